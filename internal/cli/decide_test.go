package cli

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func TestClosest(t *testing.T) {
	cases := map[string]struct {
		reason, name string
		names, want  []string
	}{
		"Swapped": {"two letters the wrong way round", "smaple", []string{"sample", "keda"}, []string{"sample"}},
		"Missing": {"one letter too few", "ked", []string{"sample", "keda"}, []string{"keda"}},
		"Part":    {"a part of a long name", "broker", []string{"keda", "serverless-broker-agent"}, []string{"serverless-broker-agent"}},
		"Case":    {"case does not matter", "KEDA", []string{"keda"}, []string{"keda"}},
		"Far":     {"nothing is close", "istio", []string{"sample", "keda"}, nil},
		"Three":   {"three at most, the likeliest first, each once", "a-1", []string{"a-2", "a-2", "a-3", "a-4", "a-11"}, []string{"a-11", "a-2", "a-3"}},
		"Nothing": {"nobody is there", "a", nil, nil},
		"Unicode": {"letters, not bytes", "käda", []string{"keda"}, []string{"keda"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, closest(c.name, c.names)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	kymas := schema.GroupResource{Group: v1beta2.GroupVersion.Group, Resource: "kymas"}
	cases := map[string]struct {
		reason string
		err    error
		code   int
		says   string
	}{
		"Forbidden":     {"which permission, of whom", apierrors.NewForbidden(kymas, "", errors.New(`User "kim" cannot list resource "kymas" in API group "operator.kyma-project.io" in the namespace "kcp-system"`)), exitForbidden, "permission missing: kim may not list kymas.operator.kyma-project.io in namespace kcp-system"},
		"ForbiddenAll":  {"in the whole cluster", apierrors.NewForbidden(kymas, "", errors.New(`User "kim" cannot get resource "namespaces" in API group "" at the cluster scope`)), exitForbidden, "may not get namespaces in the whole cluster"},
		"ForbiddenElse": {"an admission plugin has its own words", apierrors.NewForbidden(kymas, "a", errors.New("quota")), exitForbidden, "quota"},
		"Unauthorized":  {"log in", apierrors.NewUnauthorized("no"), exitForbidden, "does not accept the credentials"},
		"NotFound":      {"", apierrors.NewNotFound(kymas, "a"), exitNotFound, "not found"},
		"Conflict":      {"", apierrors.NewConflict(kymas, "a", errors.New("changed")), exitFailed, "try again"},
		"Dead":          {"the address is told once", &url.Error{Op: "Get", URL: "https://kcp/x", Err: errors.New("connection refused")}, exitCluster, `https://kcp (context "prod") does not answer: connection refused`},
		"Slow":          {"", context.DeadlineExceeded, exitCluster, "does not answer"},
		"Interrupted":   {"", context.Canceled, exitFailed, "interrupted"},
		"Older":         {"strict decoding finds fields that the definition does not have", apierrors.NewBadRequest(`strict decoding error: unknown field "spec.modules[0].version"`), exitCluster, "older than this klm"},
		"Explained":     {"what is said stays", fail(exitNotReady, "wait"), exitNotReady, "wait"},
		"Other":         {"", errors.New("odd"), exitFailed, "trying: odd"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := here.explain(c.err, "trying")
			if codeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: code %d, %v", c.reason, codeOf(err), err)
			}
		})
	}
	if here.explain(nil, "trying") != nil || codeOf(nil) != exitOK {
		t.Error("no error is no error")
	}
}

func TestProgress(t *testing.T) {
	with := func(e v1beta2.ModuleStatus, m v1beta2.Module) *v1beta2.Kyma {
		e.Name, m.Name = "sample", "sample"
		return kymaWith(v1beta2.StateProcessing, m, e)
	}
	none := kymaWith(v1beta2.StateReady, v1beta2.Module{Name: "other"}, v1beta2.ModuleStatus{Name: "other"})
	old := with(v1beta2.ModuleStatus{State: v1beta2.StateReady}, v1beta2.Module{})
	old.Status.ObservedGeneration = 2
	foreign := with(v1beta2.ModuleStatus{State: v1beta2.StateReady, Version: "1.0.0"}, v1beta2.Module{})
	foreign.Status.ObservedGeneration = 0
	cases := map[string]struct {
		reason        string
		kyma          *v1beta2.Kyma
		enable, leave string // done, blocked, or what it waits for
	}{
		"Gone":      {"a Kyma that is gone has no modules", nil, "blocked", "done"},
		"Taken":     {"somebody else has taken it out", none, "blocked", "done"},
		"Unseen":    {"the status is of before", old, "waiting for the control plane", "blocked"},
		"Foreign":   {"other managers do not say what they have seen", foreign, "done", "blocked"},
		"Ready":     {"", with(v1beta2.ModuleStatus{State: v1beta2.StateReady, Version: "1.0.0"}, v1beta2.Module{}), "done", "blocked"},
		"OtherOne":  {"another version is Ready", with(v1beta2.ModuleStatus{State: v1beta2.StateReady, Version: "0.9.0"}, v1beta2.Module{}), "sample: Ready", "blocked"},
		"Working":   {"what it waits for is said", with(v1beta2.ModuleStatus{State: v1beta2.StateProcessing, Message: "Deployment x"}, v1beta2.Module{}), "Deployment x", "blocked"},
		"Error":     {"it is tried again", with(v1beta2.ModuleStatus{State: v1beta2.StateError, Reason: v1beta2.ReasonRegistryUnreachable, Message: "no answer"}, v1beta2.Module{}), "sample: Error: no answer", "blocked"},
		"Refused":   {"waiting does not help", with(v1beta2.ModuleStatus{State: v1beta2.StateWarning, Reason: v1beta2.ReasonDowngradeRefused}, v1beta2.Module{}), "blocked", "blocked"},
		"Unmanaged": {"as it is wished", with(v1beta2.ModuleStatus{State: v1beta2.StateUnmanaged}, v1beta2.Module{Managed: new(false)}), "done", "blocked"},
		"NotYet":    {"it shall be handed over, and is not", with(v1beta2.ModuleStatus{State: v1beta2.StateReady, Version: "1.0.0"}, v1beta2.Module{Managed: new(false)}), "sample: Ready", "blocked"},
	}
	check := func(t *testing.T, reason, want string, p progress) {
		t.Helper()
		got := p.text
		switch {
		case p.done:
			got = "done"
		case p.blocked != nil:
			got = "blocked"
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", reason, got, want)
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			check(t, c.reason, c.enable, moduleProgress(c.kyma, "sample", "1.0.0", 3))
			check(t, c.reason, c.leave, disableProgress(c.kyma, "sample", 3))
		})
	}
	leaving := none.DeepCopy()
	leaving.Status.Modules = []v1beta2.ModuleStatus{{Name: "sample", State: v1beta2.StateDeleting, Message: "Sample x blocks"}}
	check(t, "on its way out", "sample: Deleting: Sample x blocks", disableProgress(leaving, "sample", 3))
	leaving.Status.Modules[0].Reason = v1beta2.ReasonKymaPaused
	check(t, "nothing goes while it is paused", "blocked", disableProgress(leaving, "sample", 3))
	check(t, "removed", "done", removeProgress(nil))
	check(t, "somebody was quicker", "blocked", removeProgress(none))
	check(t, "nobody has looked yet", "waiting for the control plane", addProgress(&v1beta2.Kyma{}))
	synced := &v1beta2.Kyma{Status: v1beta2.KymaStatus{Conditions: []metav1.Condition{condition(v1beta2.ConditionCRDsSync, "True", "Ready", "")}}}
	check(t, "reached", "done", addProgress(synced))
}

func TestEffects(t *testing.T) {
	o := assigning{module: "sample", channel: "regular", version: "2.0.0"}
	s := sampleStock()
	w := what{assigning: o, now: s.catalog(), then: s.assigned(o).catalog()}
	back := assigning{module: "sample", channel: "fast", version: "1.0.0"}
	backwards := what{assigning: back, now: s.catalog(), then: s.assigned(back).catalog()}
	beta := assigning{module: "sample", channel: "regular", version: "3.0.0"}
	forBeta := what{assigning: beta, now: s.catalog(), then: s.assigned(beta).catalog()}
	paused := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{v1beta2.AnnotationPaused: "x"}}, Spec: v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{{Name: "sample"}}}}
	plain := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1beta2.KymaSpec{Channel: "regular", SkipMaintenanceWindows: true, Modules: []v1beta2.Module{{Name: "sample"}}}}
	waiting := plain.DeepCopy()
	waiting.Spec.SkipMaintenanceWindows = false
	unmanaged := plain.DeepCopy()
	unmanaged.Spec.Modules[0].Managed = new(false)
	fast := plain.DeepCopy()
	fast.Spec.Channel = "fast"
	cases := map[string]struct {
		reason string
		what   what
		kyma   *v1beta2.Kyma
		has    version
		effect string
		code   string
	}{
		"Moves":     {"an update", w, plain, version{"1.0.0", "1.0.0"}, "moves", ""},
		"Installs":  {"it is not there yet", w, plain, version{}, "moves", ""},
		"There":     {"it has the version already", w, plain, version{"2.0.0", "2.0.0"}, "stays", ""},
		"OnItsWay":  {"it is being updated to it", w, plain, version{"1.0.0", "2.0.0"}, "stays", ""},
		"Window":    {"2.0.0 needs a downtime", w, waiting, version{"1.0.0", "1.0.0"}, "waits", v1beta2.ReasonWaitingForWindow},
		"Paused":    {"nothing moves", w, paused, version{"1.0.0", "1.0.0"}, "blocked", v1beta2.ReasonKymaPaused},
		"Unmanaged": {"it was handed over", w, unmanaged, version{"1.0.0", "1.0.0"}, "stays", v1beta2.ReasonUnmanaged},
		"Downgrade": {"back is refused", backwards, fast, version{"2.0.0", "2.0.0"}, "blocked", v1beta2.ReasonDowngradeRefused},
		"Beta":      {"only for some", forBeta, plain, version{"1.0.0", "1.0.0"}, "blocked", v1beta2.ReasonModuleNotAllowed},
	}
	a := &app{now: func() time.Time { return noon }}
	r := &assignReport{Module: "sample", Channel: "regular", From: "1.0.0", Version: "2.0.0", DryRun: true}
	for _, name := range []string{"Beta", "Downgrade", "Paused", "Window", "Moves", "Installs", "There", "OnItsWay", "Unmanaged"} {
		c := cases[name]
		e := c.what.effectOn(c.kyma, c.has, a)
		if e.Effect != c.effect || e.Reason != c.code {
			t.Errorf("%s: %s: got %+v", name, c.reason, e)
		}
		e.Runtime = strings.ToLower(name)
		r.Runtimes = append(r.Runtimes, e)
	}
	golden(t, "channel_set.txt", show(t, r, config.FormatTable))
	if version := s.assignments("sample")[1].Version; version != "1.0.0" {
		t.Errorf("asking has changed the catalog: %s", version)
	}
}

func TestRedact(t *testing.T) {
	cases := map[string]struct {
		reason      string
		value, want any
	}{
		"Key":        {"by the key", map[string]any{"password": "x", "clientSecret": "y", "client-key-data": "z", "secretName": "a", "tokenRef": "b"}, map[string]any{"password": hidden, "clientSecret": hidden, "client-key-data": hidden, "secretName": "a", "tokenRef": "b"}},
		"Env":        {"as containers have it", map[string]any{"name": "DB_PASSWORD", "value": "x"}, map[string]any{"name": "DB_PASSWORD", "value": hidden}},
		"Kubeconfig": {"by what it looks like", map[string]any{"config": "apiVersion: v1\nkind: Config\nusers: []"}, map[string]any{"config": hidden}},
		"JWT":        {"a token", map[string]any{"x": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVz"}, map[string]any{"x": hidden}},
		"PEM":        {"a key", []any{"-----BEGIN EC PRIVATE KEY-----\nabc"}, []any{hidden}},
		"Argument":   {"in a longer text", []any{"--password=x --user=kim"}, []any{"--password=" + hidden + " --user=kim"}},
		"URL":        {"a login in an address", "https://kim:x@example.com/a", "https://example.com/a"},
		"Text":       {"what others wrote", "pull from http://kim:x@example.com/a failed", "pull from http://example.com/a failed"},
		"Plain":      {"numbers and words stay", map[string]any{"replicas": int64(3), "message": "is Ready", "on": true, "none": nil, "secretKeyRef": map[string]any{"name": "n", "key": "k"}}, map[string]any{"replicas": int64(3), "message": "is Ready", "on": true, "none": nil, "secretKeyRef": map[string]any{"name": "n", "key": "k"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, redact("", c.value)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestWishKeepsWhatItDoesNotKnow(t *testing.T) {
	w := &wish{kyma: &v1beta2.Kyma{}, modules: []any{map[string]any{"name": "keda", "future": "x"}}}
	w.add("sample")["channel"] = "fast"
	w.add("keda")["managed"] = false
	patch, same, err := wishPatch([]byte(`{"modules":[{"name":"keda","future":"x"}]}`), "7", w.modules)
	want := `{"metadata":{"resourceVersion":"7"},"spec":{"modules":[{"future":"x","managed":false,"name":"keda"},{"channel":"fast","name":"sample"}]}}`
	if err != nil || same || string(patch) != want {
		t.Errorf("got %s, %t, %v", patch, same, err)
	}
	w.remove("sample")
	delete(w.entry("keda"), "managed")
	if _, same, err := wishPatch([]byte(`{"modules":[{"name":"keda","future":"x"}]}`), "7", w.modules); !same || err != nil {
		t.Errorf("nothing to change, but %t, %v", same, err)
	}
}

// TestHelp: every verb has an example, which begins with its own name, and a sentence.
func TestHelp(t *testing.T) {
	for _, program := range []string{"klm", "kubectl-lifecycle"} {
		a := &app{config: config.NewKlm(), name: nameOf(program), now: time.Now}
		root := a.root()
		all := root.Commands()
		for len(all) > 0 {
			c := all[0]
			all = append(all[1:], c.Commands()...)
			if c.Name() == "completion" || c.Parent().Name() == "completion" || c.Name() == "help" {
				continue
			}
			if !strings.Contains(c.Example, "  "+c.CommandPath()) || strings.Contains(c.Example, "\nklm") || c.Short == "" {
				t.Errorf("%s has no example of itself:\n%s", c.CommandPath(), c.Example)
			}
		}
	}
}

func TestRun(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		code   int
		says   string
	}{
		"Nothing": {"without a verb it helps", nil, exitOK, "Exit codes:"},
		"Version": {"", []string{"--version"}, exitOK, "klm version " + config.Version},
		"Unknown": {"the closest is offered", []string{"chanel", "list"}, exitUsage, "did you mean channel?"},
		"Missing": {"which argument", []string{"runtime", "show"}, exitUsage, "RUNTIME is missing"},
		"Empty":   {"an empty variable of a script", []string{"runtime", "show", ""}, exitUsage, "RUNTIME must not be empty"},
		"Format":  {"", []string{"status", "-o", "csv"}, exitUsage, "--output"},
		"Name":    {"no name of an object", []string{"runtime", "add", "A_B", "--kubeconfig-file=x"}, exitUsage, "is no name"},
		"Long":    {"it becomes a label", []string{"runtime", "add", strings.Repeat("a", 64), "--kubeconfig-file=x"}, exitUsage, "longer than 63"},
		"Channel": {"a reserved word", []string{"runtime", "add", "a", "--kubeconfig-file=x", "--channel=none"}, exitUsage, "is no channel"},
		"Cluster": {"no such file", []string{"status", "--kubeconfig=/nowhere/x"}, exitCluster, "/nowhere/x"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code := Run(t.Context(), config.NewKlm(), append([]string{"/usr/bin/klm"}, c.args...), Streams{In: strings.NewReader(""), Out: &out, Err: &out})
			if code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("%s: code %d, says:\n%s", c.reason, code, out.String())
			}
		})
	}
}
