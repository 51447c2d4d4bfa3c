package fleetadmin

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

const (
	kymas   = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas"
	secrets = "/api/v1/namespaces/kcp-system/secrets"
)

// runtimeA returns the objects of a runtime that has module sample.
func runtimeA() []client.Object {
	k := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"},
		v1beta2.ModuleStatus{Name: "sample", Version: "1.0.0", State: v1beta2.StateReady})
	m := fixture.Manifest("1.0.0", "1.0.0")
	m.Namespace = "kcp-system"
	access := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "runtime-a-access", Namespace: "kcp-system", UID: "s1",
		Labels: map[string]string{v1beta2.LabelKymaName: "runtime-a"}}}
	return []client.Object{k, &m, access}
}

// TestPauseAndResume checks that klm runtime pause and resume set and remove the annotation that pauses a runtime or a
// module. A module cannot be resumed while its whole runtime is paused.
func TestPauseAndResume(t *testing.T) {
	s := fixture.NewServer(t, runtimeA()...)
	annotation := func(key string) string {
		return s.Object(kymas + "/runtime-a").GetAnnotations()[key]
	}
	steps := []struct {
		fixture.Case
		paused, module string // the annotations after it
	}{
		{fixture.Case{Reason: "a reason is required", Args: "runtime pause runtime-a", Code: console.ExitUsage,
			Want: []string{"--reason is required: it is shown to other users"}}, "", ""},
		{fixture.Case{Reason: "the error suggests a runtime", Args: "runtime pause runtime-b --reason x",
			Code: console.ExitNotFound, Want: []string{"did you mean runtime-a?"}}, "", ""},
		{fixture.Case{Reason: "and a module", Args: "runtime pause runtime-a --module smaple --reason x",
			Code: console.ExitNotFound, Want: []string{"did you mean sample?"}}, "", ""},
		{fixture.Case{Reason: "the whole runtime", Args: "runtime pause runtime-a --reason ask-Kim",
			Want: []string{"runtime-a is paused"}}, "ask-Kim", ""},
		{fixture.Case{Reason: "a module cannot be resumed while its runtime is paused",
			Args: "runtime resume runtime-a --module sample", Code: console.ExitNotReady,
			Want: []string{"module sample of runtime-a is not paused separately"}}, "ask-Kim", ""},
		{fixture.Case{Reason: "a module in addition", Args: "runtime pause runtime-a --module sample --reason broken",
			Want: []string{"module sample of runtime-a is paused"}}, "ask-Kim", "broken"},
		{fixture.Case{Reason: "the runtime is resumed, the module is not", Args: "runtime resume runtime-a",
			Want: []string{"runtime-a is resumed"}}, "", "broken"},
		{fixture.Case{Reason: "the module is resumed", Args: "runtime resume runtime-a --module sample",
			Want: []string{"module sample of runtime-a is resumed"}}, "", ""},
		{fixture.Case{Reason: "nothing is written", Args: "runtime pause runtime-a --reason x --dry-run",
			Want: []string{"runtime-a would be paused"}}, "", ""},
		{fixture.Case{Reason: "neither a name nor a selector", Args: "runtime pause --reason x",
			Code: console.ExitUsage, Want: []string{"name one or more, or give --selector"}}, "", ""},
		{fixture.Case{Reason: "both", Args: "runtime pause runtime-a -l team=blue --reason x",
			Code: console.ExitUsage, Want: []string{"--selector is in place of RUNTIME"}}, "", ""},
		{fixture.Case{Reason: "no runtime has the label", Args: "runtime pause -l team=green --reason x",
			Want: []string{"no runtime has these labels"}}, "", ""},
		{fixture.Case{Reason: "a selector", Args: "runtime pause -l team=blue --reason by-label",
			Want: []string{"runtime-a is paused"}}, "by-label", ""},
		{fixture.Case{Reason: "and back", Args: "runtime resume -l team=blue -o json",
			Want: []string{`"result": "runtime-a is resumed"`}}, "", ""},
		{fixture.Case{Reason: "there is nothing to resume", Args: "runtime resume runtime-a",
			Want: []string{"runtime-a is not paused"}}, "", ""},
	}
	for _, c := range steps {
		c.Check(t, Commands, s.Kubeconfig)
		if p, m := annotation(v1beta2.AnnotationPaused),
			annotation(v1beta2.AnnotationPausedModulePrefix+"sample"); p != c.paused || m != c.module {
			t.Errorf("%s: annotations %q and %q, want %q and %q", c.Reason, p, m, c.paused, c.module)
		}
	}
}

// TestPauseWaits checks that klm waits for the status with --wait only, and shows that it waits.
func TestPauseWaits(t *testing.T) {
	cases := []struct {
		fixture.Case
		records bool // the manager records the pause
	}{
		{fixture.Case{Reason: "the manager records it", Args: "runtime pause runtime-a --reason x --wait",
			Want: []string{"runtime-a is paused"}}, true},
		{fixture.Case{Reason: "no manager works", Args: "runtime pause runtime-a --reason x --wait --timeout=10ms",
			Code: console.ExitNotReady, Want: []string{"  waiting for the manager to record the pause\n",
				"not done after 10ms: waiting for the manager to record the pause"}}, false},
		{fixture.Case{Reason: "a pause is not delayed", Args: "runtime pause runtime-a --reason x --timeout=10ms",
			Want: []string{"runtime-a is paused"}}, false},
		{fixture.Case{Reason: "several runtimes", Args: "runtime pause -l team=blue --reason x --yes --wait --timeout=10ms",
			Code: console.ExitNotReady, Want: []string{"waiting for the manager to record the pause"}}, false},
	}
	for _, c := range cases {
		s := fixture.NewServer(t, runtimeA()...)
		s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
			if modules, _, _ := unstructured.NestedSlice(o.Object, "status", "modules"); c.records && len(modules) > 0 {
				modules[0].(map[string]any)["reason"] = v1beta2.ReasonKymaPaused
				if err := unstructured.SetNestedSlice(o.Object, modules, "status", "modules"); err != nil {
					t.Error(err)
				}
			}
			return o
		}
		c.Check(t, Commands, s.Kubeconfig)
	}
}

// TestPauseProgress checks when the status of the Kyma shows that the manager has recorded a pause or the end of a
// pause.
func TestPauseProgress(t *testing.T) {
	status := func(modules ...v1beta2.ModuleStatus) *v1beta2.Kyma {
		return &v1beta2.Kyma{Status: v1beta2.KymaStatus{Modules: modules}}
	}
	entry := func(name, reason, message string) v1beta2.ModuleStatus {
		return v1beta2.ModuleStatus{Name: name, State: v1beta2.StateReady, Reason: reason, Message: message}
	}
	removing := v1beta2.ModuleStatus{Name: "keda", State: v1beta2.StateDeleting}
	ready, paused := entry("sample", "", ""), entry("sample", v1beta2.ReasonKymaPaused, "Kim")
	cases := map[string]struct {
		reason   string
		before   *v1beta2.Kyma
		now      *v1beta2.Kyma
		module   string
		isPaused bool
		want     string
	}{
		"NotYet": {"the status is the former one", status(ready), status(ready), "", true, "record the pause"},
		"Recorded": {"one module shows it", status(ready), status(paused, entry("keda", "PullFailed", "")), "", true,
			"done"},
		"OtherModule": {"another module is paused", status(ready), status(ready, entry("keda",
			v1beta2.ReasonModulePaused, "Kim")), "sample", true, "record the pause"},
		"NoModules": {"nothing can show it", status(), status(), "", true, "done"},
		"Removing":  {"a deletion proceeds", status(removing), status(removing), "", true, "done"},
		"Deleted":   {"the runtime was deleted", status(ready), nil, "", true, "done"},
		"Resuming":  {"the status is the former one", status(paused), status(paused), "", false, "end the pause"},
		"Resumed":   {"no module shows it", status(paused), status(ready), "", false, "done"},
		"InRuntime": {"another pause is in force now", status(paused), status(entry("sample",
			v1beta2.ReasonModulePaused, "ann")), "", false, "done"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fixture.CheckProgress(t, c.reason, c.want, pauseProgress(c.now, c.module, &c.before.Status, c.isPaused))
		})
	}
}

func TestAddOptions(t *testing.T) {
	valid := addOptions{name: "runtime-a", file: "f", channel: "regular"}
	cases := map[string]struct {
		reason string
		change func(*addOptions)
		want   string // the error; "" for none
	}{
		"Valid": {"", func(*addOptions) {}, ""},
		"Label": {"a label with a prefix, and one without a value",
			func(o *addOptions) { o.labels = []string{"kyma-project.io/region=eu", "a="} }, ""},
		"Name": {"names of objects", func(o *addOptions) { o.name = "A_B" }, "is not a valid name"},
		"Long": {"it becomes a label", func(o *addOptions) { o.name = strings.Repeat("a", 64) },
			"longer than 63"},
		"File": {"without a kubeconfig the control plane cannot connect", func(o *addOptions) { o.file = "" },
			"--kubeconfig-file is required"},
		"Channel": {"upper case", func(o *addOptions) { o.channel = "Fast" }, `"Fast" is not a channel`},
		"Reserved": {"a word that means no channel", func(o *addOptions) { o.channel = v1beta2.NoChannel },
			"is reserved"},
		"NoValue": {"no equals sign", func(o *addOptions) { o.labels = []string{"a"} },
			`"a" is not a label KEY=VALUE`},
		"LabelKey":   {"two slashes", func(o *addOptions) { o.labels = []string{"a/b/c=d"} }, "is not a label"},
		"LabelValue": {"a space", func(o *addOptions) { o.labels = []string{"a=b c"} }, "is not a label"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := valid
			c.change(&o)
			labels, err := o.validate()
			switch {
			case c.want == "" && (err != nil || labels[v1beta2.LabelManagedBy] != v1beta2.ManagedByLifecycleManager ||
				len(labels) != 1+len(o.labels)):
				t.Errorf("%s: %v, %v", c.reason, labels, err)
			case c.want != "" && (console.ExitCode(err) != console.ExitUsage || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

// TestRuntimeAdd checks which input is refused before the first write, and which objects are written.
func TestRuntimeAdd(t *testing.T) {
	runtime := fixture.NewServer(t)
	identify := func(s *fixture.Server, uid types.UID) {
		n := s.Object("/api/v1/namespaces/kube-system")
		n.SetUID(uid)
		s.Put(n)
	}
	identify(runtime, "uid-of-the-runtime")
	file := " --kubeconfig-file=" + runtime.Kubeconfig
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "runtime-b-access", Namespace: "kcp-system"}}
	cases := map[string]struct {
		fixture.Case
		forbidden []string // in the runtime
		ready     bool     // the manager connects to the runtime
		writes    []string
	}{
		"NoWait": {fixture.Case{Reason: "a Secret and a Kyma", Args: "runtime add runtime-c --no-wait" + file,
			Want: []string{"runtime runtime-c is added; klm why runtime-c shows its progress"}}, nil, false,
			[]string{"POST " + secrets, "POST " + kymas}},
		"Connected": {fixture.Case{Reason: "it waits for the condition",
			Args: "runtime add runtime-c --label team=blue" + file,
			Want: []string{"runtime runtime-c is added and connected"}}, nil, true,
			[]string{"POST " + secrets, "POST " + kymas}},
		"Timeout": {fixture.Case{Reason: "the manager does not run", Args: "runtime add runtime-c --timeout=10ms" +
			file, Code: console.ExitNotReady,
			Want: []string{"not done after 10ms: waiting for the control plane to reconcile it"}}, nil, false,
			[]string{"POST " + secrets, "POST " + kymas}},
		"Exists": {fixture.Case{Reason: "a runtime of this name", Args: "runtime add runtime-a" + file,
			Code: console.ExitFailed,
			Want: []string{"runtime runtime-a exists already, with access Secret runtime-a-access"}}, nil, false, nil},
		"Secret": {fixture.Case{Reason: "a Secret of this name is for something else",
			Args: "runtime add runtime-b" + file, Code: console.ExitFailed,
			Want: []string{"Secret runtime-b-access in namespace kcp-system exists already, but is not for runtime " +
				"runtime-b"}}, nil, false, []string{"POST " + secrets}},
		"Rights": {fixture.Case{Reason: "all missing rights are listed", Args: "runtime add runtime-c" + file,
			Code: console.ExitForbidden,
			Want: []string{"lacks rights in the runtime: create namespaces, patch deployments.apps: give"}},
			[]string{"*", "create namespaces", "patch deployments"}, false, nil},
		"SomeRights": {fixture.Case{Reason: "the needed rights are enough",
			Args: "runtime add runtime-c --no-wait" + file,
			Want: []string{"note: the kubeconfig does not have all rights"}}, []string{"*"}, false,
			[]string{"POST " + secrets, "POST " + kymas}},
		"NoFile": {fixture.Case{Reason: "a file that does not exist",
			Args: "runtime add runtime-c --kubeconfig-file=/none", Code: console.ExitUsage,
			Want: []string{"--kubeconfig-file: open /none"}}, nil, false, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, append(runtimeA(), foreign)...)
			runtime.Forbidden = c.forbidden
			if c.ready {
				s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
					condition := map[string]any{"type": v1beta2.ConditionCRDsSync, "status": "True"}
					_ = unstructured.SetNestedSlice(o.Object, []any{condition}, "status", "conditions")
					return o
				}
			}
			c.Check(t, Commands, s.Kubeconfig)
			if got := s.Writes(); !slices.Equal(got, c.writes) {
				t.Errorf("%s: writes %q, want %q", c.Reason, got, c.writes)
			}
			if k := s.Object(kymas + "/runtime-c"); name == "Connected" &&
				(k.GetLabels()["team"] != "blue" || k.GetLabels()[v1beta2.LabelManagedBy] == "") {
				t.Errorf("labels %v", k.GetLabels())
			}
		})
	}
	t.Run("Itself", func(t *testing.T) {
		s := fixture.NewServer(t)
		fixture.Case{Reason: "the kubeconfig of the control plane", Args: "runtime add runtime-c --kubeconfig-file=" +
			s.Kubeconfig, Code: console.ExitCluster, Want: []string{"leads to the control plane itself"}}.Check(
			t, Commands, s.Kubeconfig)
	})
}

// TestOwner checks that the cluster of another owner is refused before anything is written, that a takeover asks for
// confirmation, and that a removal does not change the cluster of another owner.
func TestOwner(t *testing.T) {
	remote := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "kyma-system", UID: "u",
		Annotations: map[string]string{v1beta2.AnnotationOwner: ownership.Owner{ControlPlane: "other",
			Kyma: "kcp-system/theirs", Cluster: "uid-of-the-runtime"}.Encode()}}}
	runtime := fixture.NewServer(t, remote)
	system := runtime.Object("/api/v1/namespaces/kube-system")
	system.SetUID("uid-of-the-runtime")
	runtime.Put(system)
	kubeconfig, err := os.ReadFile(runtime.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	const theirs = "belongs to Kyma kcp-system/theirs of another control plane (UID other)"
	const kyma, secret = kymas + "/runtime-a", secrets + "/runtime-a-access"
	file := " --kubeconfig-file=" + runtime.Kubeconfig
	cases := map[string]struct {
		fixture.Case
		taken  bool // the status says that the cluster belongs to another owner
		writes []string
	}{
		"Add": {fixture.Case{Reason: "it says whose the cluster is", Args: "runtime add runtime-c --no-wait" + file,
			Code: console.ExitCluster, Want: []string{theirs, "--take takes it over"}}, false, nil},
		"AddTake": {fixture.Case{Reason: "on request", Args: "runtime add runtime-c --take --no-wait" + file,
			Want: []string{"taking the cluster over", "kcp-system/theirs"}}, false,
			[]string{"POST " + secrets, "POST " + kymas}},
		"Take": {fixture.Case{Reason: "it says what happens, and asks", Args: "runtime take runtime-a", Input: "y\n",
			Want: []string{theirs, "A former owner changes nothing there any more", "the cluster belongs to runtime " +
				"runtime-a"}}, true, []string{"PATCH " + kyma}},
		"TakeNo": {fixture.Case{Reason: "the user does not want it", Args: "runtime take runtime-a", Input: "n\n",
			Code: console.ExitFailed, Want: []string{"nothing was changed"}}, true, nil},
		"TakeNoWait": {fixture.Case{Reason: "it is only requested", Args: "runtime take runtime-a --yes --no-wait",
			Want: []string{"runtime runtime-a will take its cluster"}}, true, []string{"PATCH " + kyma}},
		"Remove": {fixture.Case{Reason: "nothing is changed in the cluster of another owner",
			Args: "runtime remove runtime-a", Input: "y\n", Want: []string{
				"nothing is changed in the cluster, because it is not the cluster of this runtime: " + theirs}}, true,
			[]string{"DELETE " + kyma, "DELETE " + secret}},
		"Why": {fixture.Case{Reason: "the reason and the remedy", Args: "why runtime-a", Code: console.ExitNotReady,
			Want: []string{"RuntimeTaken", theirs, "klm runtime take runtime-a",
				"next: when the access Secret changes"}}, true, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			objects := runtimeA()
			objects[2].(*corev1.Secret).Data = map[string][]byte{v1beta2.AccessSecretKey: kubeconfig}
			if c.taken {
				objects[0].(*v1beta2.Kyma).Status.Conditions = []metav1.Condition{fixture.Condition(
					v1beta2.ConditionReady, "False", v1beta2.ReasonRuntimeTaken, theirs+": klm runtime take runtime-a")}
			}
			s := fixture.NewServer(t, objects...)
			s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
				if o.GetDeletionTimestamp() != nil {
					return nil
				}
				annotations := o.GetAnnotations()
				delete(annotations, v1beta2.AnnotationTakeRuntime)
				o.SetAnnotations(annotations)
				return o
			}
			r := fixture.Run(t, Commands, s.Kubeconfig, c.Input, strings.Fields(c.Args)...)
			text := strings.Join(strings.Fields(r.Out+" "+r.Err), " ")
			if r.Code != c.Code {
				t.Errorf("%s: exit code %d, want %d: %s", c.Reason, r.Code, c.Code, text)
			}
			for _, want := range c.Want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: output without %q: %s", c.Reason, want, text)
				}
			}
			if got := s.Writes(); !slices.Equal(got, c.writes) {
				t.Errorf("%s: writes %q, want %q", c.Reason, got, c.writes)
			}
			if got := runtime.Writes(); len(got) > 0 {
				t.Errorf("%s: writes in the runtime: %q", c.Reason, got)
			}
		})
	}
}

// TestAddToExistingKyma checks that klm runtime add gives an existing Kyma an access Secret, and that it refuses flags
// that it would ignore. A second access Secret is refused, because the manager would use none of both. A Kyma that is
// being deleted gets no access Secret, because the manager would delete everything from the cluster.
func TestAddToExistingKyma(t *testing.T) {
	remote := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "kyma-system", UID: "u",
		Annotations: map[string]string{v1beta2.AnnotationOwner: ownership.Owner{ControlPlane: "other",
			Kyma: "kcp-system/theirs", Cluster: "uid-of-the-runtime"}.Encode()}}}
	free, taken := fixture.NewServer(t), fixture.NewServer(t, remote)
	for _, s := range []*fixture.Server{free, taken} {
		system := s.Object("/api/v1/namespaces/kube-system")
		system.SetUID("uid-of-the-runtime")
		s.Put(system)
	}
	add := func(flags string) string { return "runtime add runtime-a --no-wait " + flags + " --kubeconfig-file=" }
	written := []string{"POST " + secrets, "POST " + kymas}
	leaving := runtimeA()[0]
	leaving.SetDeletionTimestamp(new(fixture.BeforeNoon(time.Hour)))
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "kcp-system",
		Labels: map[string]string{v1beta2.LabelKymaName: "runtime-a"}}}
	cases := map[string]struct {
		fixture.Case
		objects []client.Object
		writes  []string
	}{
		"Plain": {fixture.Case{Reason: "the channel of the Kyma is kept", Args: add("") + free.Kubeconfig,
			Want: []string{"runtime runtime-a is added"}}, runtimeA()[:1], written},
		"Same": {fixture.Case{Reason: "nothing differs", Args: add("--channel=stable --label=team=blue") + free.Kubeconfig,
			Want: []string{"runtime runtime-a is added"}}, runtimeA()[:1], written},
		"Differs": {fixture.Case{Reason: "the commands", Args: add("--channel=fast --label=region=eu --label=team=blue") +
			free.Kubeconfig, Code: console.ExitFailed, Want: []string{
			`kubectl -n kcp-system patch kyma runtime-a --type=merge -p '{"spec":{"channel":"fast"}}'; ` +
				"kubectl -n kcp-system label kyma runtime-a --overwrite region=eu"}}, runtimeA()[:1], nil},
		"Take": {fixture.Case{Reason: "the Kyma takes the cluster over", Args: add("--take") + taken.Kubeconfig,
			Want: []string{"taking the cluster over"}}, runtimeA()[:1], append(written, "PATCH "+kymas+"/runtime-a")},
		"Ambiguous": {fixture.Case{Reason: "a Secret of another client", Args: add("") + free.Kubeconfig,
			Code: console.ExitFailed, Want: []string{"Secret other is an access Secret for runtime runtime-a already"}},
			[]client.Object{other}, nil},
		"Leaving": {fixture.Case{Reason: "its deletion would use the new kubeconfig", Args: add("") + free.Kubeconfig,
			Code: console.ExitNotReady, Want: []string{"runtime runtime-a is being deleted: wait until its Kyma is " +
				"gone"}}, []client.Object{leaving}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if k, ok := c.objects[0].(*v1beta2.Kyma); ok {
				k.Spec.Channel = "stable"
			}
			s := fixture.NewServer(t, c.objects...)
			c.Check(t, Commands, s.Kubeconfig)
			if got := s.Writes(); !slices.Equal(got, c.writes) {
				t.Errorf("%s: writes %q, want %q", c.Reason, got, c.writes)
			}
			if k := s.Object(kymas + "/runtime-a"); name == "Take" &&
				k.GetAnnotations()[v1beta2.AnnotationTakeRuntime] != v1beta2.ValueTrue {
				t.Errorf("%s: annotations %v", c.Reason, k.GetAnnotations())
			}
		})
	}
	t.Run("LeavingLate", func(t *testing.T) {
		s := fixture.NewServer(t)
		s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && r.URL.Path == kymas {
				s.Create(t, leaving)
			}
			return false
		}
		fixture.Case{Reason: "the user learns how to keep the cluster", Args: add("") + free.Kubeconfig,
			Code: console.ExitNotReady, Want: []string{"to prevent that, delete Secret runtime-a-access"}}.Check(
			t, Commands, s.Kubeconfig)
	})
}

// TestRuntimeRemove checks that klm runtime remove asks the user, deletes the Kyma, waits, and then deletes the access
// Secret. If the user states that the cluster is gone, the command deletes the access Secret before the Kyma.
func TestRuntimeRemove(t *testing.T) {
	const kyma, secret = "DELETE " + kymas + "/runtime-a", "DELETE " + secrets + "/runtime-a-access"
	cases := map[string]struct {
		fixture.Case
		released bool // the manager removes its finalizer
		writes   []string
	}{
		"NoAnswer": {fixture.Case{Reason: "a script has to confirm", Args: "runtime remove runtime-a",
			Code: console.ExitUsage, Want: []string{"2 objects of 1 module (sample) will be removed from runtime-a",
				"add --yes"}}, true, nil},
		"No": {fixture.Case{Reason: "the user does not want it", Args: "runtime remove runtime-a", Input: "n\n",
			Code: console.ExitFailed, Want: []string{"nothing was changed"}}, true, nil},
		"Yes": {fixture.Case{Reason: "the Secret is needed until the end", Args: "runtime remove runtime-a",
			Input: "y\n", Want: []string{"runtime runtime-a is removed"}}, true, []string{kyma, secret}},
		"Gone": {fixture.Case{Reason: "no requests are sent to the cluster",
			Args: "runtime remove runtime-a --yes --cluster-is-gone",
			Want: []string{"nothing is removed from its cluster", "runtime runtime-a is removed"}},
			true, []string{secret, kyma}},
		"NoWait": {fixture.Case{Reason: "the Secret is deleted later",
			Args: "runtime remove runtime-a --yes --no-wait", Want: []string{"runtime runtime-a is being removed; " +
				"when its Kyma is deleted, klm runtime remove runtime-a deletes its access Secret"}}, false,
			[]string{kyma}},
		"Timeout": {fixture.Case{Reason: "a finalizer stays, and so does the Secret",
			Args: "runtime remove runtime-a --yes --timeout=10ms", Code: console.ExitNotReady,
			Want: []string{"not done after 10ms: something; when its Kyma is deleted, klm runtime remove runtime-a " +
				"deletes its access Secret"}}, false, []string{kyma}},
		"Unknown": {fixture.Case{Reason: "the error suggests a runtime", Args: "runtime remove runtime-b --yes",
			Code: console.ExitNotFound, Want: []string{"did you mean runtime-a?"}}, true, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, runtimeA()...)
			s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
				if c.released && o.GetDeletionTimestamp() != nil {
					return nil
				}
				return o
			}
			c.Check(t, Commands, s.Kubeconfig)
			if got := s.Writes(); !slices.Equal(got, c.writes) {
				t.Errorf("%s: writes %q, want %q", c.Reason, got, c.writes)
			}
		})
	}
}

// TestRuntimeRemoveAccessSecret checks that klm runtime remove does not report success if the access Secret stays. With
// --cluster-is-gone, an access Secret that stays would let the manager delete everything from the cluster: then klm
// does not delete the Kyma.
func TestRuntimeRemoveAccessSecret(t *testing.T) {
	const kyma, secret = "DELETE " + kymas + "/runtime-a", "DELETE " + secrets + "/runtime-a-access"
	// replaceBefore returns a function that replaces the access Secret before the n-th request with a method and path.
	replaceBefore := func(n int, request string) func(*fixture.Server, *http.Request) error {
		var requests atomic.Int32
		return func(s *fixture.Server, r *http.Request) error {
			if r.Method+" "+r.URL.Path == request && requests.Add(1) == int32(n) {
				o := s.Object(secrets + "/runtime-a-access")
				o.SetUID("s2")
				s.Put(o)
			}
			return nil
		}
	}
	mayNotList := func(_ *fixture.Server, r *http.Request) error {
		if r.Method+" "+r.URL.Path == "GET "+secrets {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no"))
		}
		return nil
	}
	cases := map[string]struct {
		fixture.Case
		intercept func(*fixture.Server, *http.Request) error
		writes    []string
	}{
		"GoneForbidden": {fixture.Case{Reason: "the Secrets are unknown",
			Args: "runtime remove runtime-a --yes --cluster-is-gone", Code: console.ExitForbidden,
			Want: []string{"looking for access Secrets of runtime-a: not allowed"}}, mayNotList, nil},
		"GoneDryRun": {fixture.Case{Reason: "the same error",
			Args: "runtime remove runtime-a --dry-run --cluster-is-gone", Code: console.ExitForbidden}, mayNotList,
			nil},
		"GoneReplaced": {fixture.Case{Reason: "nobody has agreed to delete the new Secret",
			Args: "runtime remove runtime-a --yes --cluster-is-gone", Code: console.ExitFailed,
			Want: []string{"access Secret runtime-a-access was created in the meantime"}},
			replaceBefore(2, "GET "+secrets), nil},
		"GoneReplacedLate": {fixture.Case{Reason: "the new Secret leads to the cluster",
			Args: "runtime remove runtime-a --yes --cluster-is-gone", Code: console.ExitFailed,
			Want: []string{"access Secret runtime-a-access was replaced in the meantime"}},
			replaceBefore(1, secret), []string{secret}},
		"Forbidden": {fixture.Case{Reason: "the user learns that the Secret stays",
			Args: "runtime remove runtime-a --yes", Want: []string{"runtime runtime-a is removed; klm could not list " +
				"its access Secret, so the Secret stays: "}}, mayNotList, []string{kyma}},
		"ForbiddenNoWait": {fixture.Case{Reason: "likewise", Args: "runtime remove runtime-a --yes --no-wait",
			Want: []string{"when its Kyma is deleted, klm runtime remove runtime-a deletes its access Secret"}},
			mayNotList, []string{kyma}},
		"Replaced": {fixture.Case{Reason: "a Secret of somebody else is kept, and named",
			Args: "runtime remove runtime-a --yes", Code: console.ExitFailed,
			Want: []string{"access Secret runtime-a-access was replaced in the meantime"}},
			replaceBefore(1, kyma), []string{kyma, secret}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, runtimeA()...)
			s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
				if o.GetDeletionTimestamp() != nil {
					return nil
				}
				return o
			}
			s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				err := c.intercept(s, r)
				if err != nil {
					fixture.Fail(w, err)
				}
				return err != nil
			}
			c.Check(t, Commands, s.Kubeconfig)
			if got := s.Writes(); !slices.Equal(got, c.writes) {
				t.Errorf("%s: writes %q, want %q", c.Reason, got, c.writes)
			}
		})
	}
}

// tombstone is the record of a deletion that was given up.
func tombstone() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tombstone-runtime-a-1", Namespace: "kcp-system",
		Labels: map[string]string{v1beta2.LabelTombstone: v1beta2.ValueTrue, v1beta2.LabelKymaName: "runtime-a"}}}
}

// TestRuntimeRemoveGivenUp checks that klm runtime remove keeps the access Secret if the deletion of the Kyma was given
// up, because the manager still needs the Secret. If the cluster is gone, the Secret is not needed.
func TestRuntimeRemoveGivenUp(t *testing.T) {
	const kyma, secret = "DELETE " + kymas + "/runtime-a", "DELETE " + secrets + "/runtime-a-access"
	const configMaps = "/api/v1/namespaces/kcp-system/configmaps"
	other := tombstone()
	other.Labels[v1beta2.LabelKymaName] = "runtime-b"
	cases := map[string]struct {
		fixture.Case
		tombstone *corev1.ConfigMap
		forbidden bool // the user may not list ConfigMaps
		writes    []string
	}{
		"GivenUp": {fixture.Case{Reason: "objects are left in the cluster", Args: "runtime remove runtime-a --yes",
			Code: console.ExitNotReady, Want: []string{"the deletion of runtime runtime-a was given up, and " +
				"ConfigMap tombstone-runtime-a-1 lists"}}, tombstone(), false, []string{kyma}},
		"Unknown": {fixture.Case{Reason: "perhaps objects are left", Args: "runtime remove runtime-a --yes",
			Code: console.ExitForbidden, Want: []string{"looking for a tombstone of runtime-a: not allowed",
				"the access Secret stays"}}, tombstone(), true, []string{kyma}},
		"Gone": {fixture.Case{Reason: "nothing is left", Args: "runtime remove runtime-a --yes --cluster-is-gone",
			Want: []string{"runtime runtime-a is removed"}}, tombstone(), false, []string{secret, kyma}},
		"Other": {fixture.Case{Reason: "the tombstone of another runtime", Args: "runtime remove runtime-a --yes",
			Want: []string{"runtime runtime-a is removed"}}, other, false, []string{kyma, secret}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, append(runtimeA(), c.tombstone)...)
			s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
				if o.GetDeletionTimestamp() != nil {
					return nil
				}
				return o
			}
			s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !c.forbidden || r.URL.Path != configMaps {
					return false
				}
				fixture.Fail(w, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "",
					errors.New("no")))
				return true
			}
			c.Check(t, Commands, s.Kubeconfig)
			if got := s.Writes(); !slices.Equal(got, c.writes) {
				t.Errorf("%s: writes %q, want %q", c.Reason, got, c.writes)
			}
		})
	}
}

// TestRuntimeRemoveAgain checks that klm runtime remove deletes an access Secret that an interrupted removal has left,
// but not the access Secret of a deletion that was given up, or of a runtime that was added again.
func TestRuntimeRemoveAgain(t *testing.T) {
	const secret = "DELETE " + secrets + "/runtime-a-access"
	left := func() client.Object { return runtimeA()[2] }
	cases := map[string]struct {
		fixture.Case
		objects []client.Object
		writes  []string
	}{
		"Left": {fixture.Case{Reason: "the first call was interrupted", Args: "runtime remove runtime-a", Input: "y\n",
			Want: []string{"runtime-a has no Kyma any more. Its access Secret runtime-a-access will be deleted.",
				"runtime runtime-a is removed; its access Secret was left, and is deleted now"}},
			[]client.Object{left()}, []string{secret}},
		"DryRun": {fixture.Case{Reason: "nothing is written", Args: "runtime remove runtime-a --dry-run",
			Want: []string{"the access Secret of runtime runtime-a would be deleted"}}, []client.Object{left()}, nil},
		"GivenUp": {fixture.Case{Reason: "the manager needs the Secret", Args: "runtime remove runtime-a --yes",
			Code: console.ExitNotReady, Want: []string{"was given up",
				"klm runtime remove runtime-a --cluster-is-gone"}}, []client.Object{left(), tombstone()}, nil},
		"Gone": {fixture.Case{Reason: "nobody needs the Secret",
			Args: "runtime remove runtime-a --yes --cluster-is-gone", Want: []string{"is deleted now"}},
			[]client.Object{left(), tombstone()}, []string{secret}},
		"Other": {fixture.Case{Reason: "the Secret of another runtime", Args: "runtime remove runtime-b --yes",
			Code: console.ExitNotFound, Want: []string{`runtime "runtime-b" does not exist`}},
			[]client.Object{left()}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, c.objects...)
			c.Check(t, Commands, s.Kubeconfig)
			if got := s.Writes(); !slices.Equal(got, c.writes) {
				t.Errorf("%s: writes %q, want %q", c.Reason, got, c.writes)
			}
		})
	}
	t.Run("Added", func(t *testing.T) {
		s := fixture.NewServer(t, left())
		var requests atomic.Int32
		s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == kymas+"/runtime-a" && requests.Add(1) == 2 {
				s.Create(t, runtimeA()[0])
			}
			return false
		}
		fixture.Case{Reason: "the Secret is used again", Args: "runtime remove runtime-a --yes",
			Code: console.ExitNotReady, Want: []string{"runtime runtime-a was added again in the meantime"}}.Check(
			t, Commands, s.Kubeconfig)
		if got := s.Writes(); len(got) > 0 {
			t.Errorf("writes %q, want none", got)
		}
	})
}

// TestReadCommands checks the lists and reports that the commands print, and the input that the commands refuse.
func TestReadCommands(t *testing.T) {
	s := fixture.NewServer(t, runtimeA()...)
	for _, c := range []fixture.Case{
		{Reason: "a list", Args: "runtime list -o name", Want: []string{"kyma/runtime-a\n"}},
		{Reason: "in a state", Args: "runtime list --state Error", Want: []string{"no runtimes"}},
		{Reason: "with a version of a module", Args: "runtime list --module sample --version 1.0.0 -o name",
			Want: []string{"kyma/runtime-a\n"}},
		{Reason: "with another version of a module", Args: "runtime list --module sample --version 2.0.0",
			Want: []string{"no runtimes"}},
		{Reason: "several control planes", Args: "runtime list --contexts test -o custom-columns=C:.context,N:.name",
			Want: []string{"C      N\ntest   runtime-a\n"}},
		{Reason: "one that does not exist", Args: "runtime list --contexts test,mars", Code: console.ExitCluster,
			Want: []string{"runtime-a", "1 of 2 control planes were not read: mars"}},
		{Reason: "a column of choice", Args: "runtime list -o custom-columns=N:.name", Want: []string{"N\nruntime-a\n"}},
		{Reason: "a history without such a change", Args: "history runtime-a --version 3.0.0",
			Want: []string{"no version of a module has changed"}},
		{
			Reason: "an unknown state",
			Args:   "runtime list --state Redy",
			Code:   console.ExitUsage,
			Want:   []string{`"Redy" is not a state: did you mean Ready?`},
		},
		{
			Reason: "one runtime",
			Args:   "runtime show runtime-a",
			Want:   []string{"Access:    Secret runtime-a-access", "team=blue"},
		},
		{
			Reason: "its blockers",
			Args:   "why runtime-a",
			Want:   []string{"runtime-a is Ready", "access: Secret runtime-a-access"},
		},
		{
			Reason: "a module that it does not have",
			Args:   "why runtime-a keda",
			Code:   console.ExitNotFound,
			Want:   []string{`runtime-a has no module "keda": choose one of sample`},
		},
		{
			Reason: "two versions to compare with",
			Args:   "diff runtime-a sample --to 1.0.0 --channel fast",
			Code:   console.ExitUsage,
			Want:   []string{"exclude each other"},
		},
		{
			Reason: "a module that is not in the catalog",
			Args:   "diff runtime-a sample",
			Code:   console.ExitNotFound,
			Want:   []string{`module "sample" does not exist in the catalog`},
		},
	} {
		c.Check(t, Commands, s.Kubeconfig)
	}
	if got := s.Writes(); len(got) > 0 {
		t.Errorf("reading has written: %q", got)
	}
}

func TestVersionToCompare(t *testing.T) {
	pinned := fixture.Kyma("", v1beta2.Module{Name: "sample", Version: "3.0.0"}, v1beta2.ModuleStatus{})
	following := fixture.Kyma("", v1beta2.Module{Name: "sample", Channel: "fast"}, v1beta2.ModuleStatus{})
	without := fixture.Kyma("", v1beta2.Module{Name: "other"}, v1beta2.ModuleStatus{})
	ofAdmin := fixture.Kyma("", v1beta2.Module{Name: "other"}, v1beta2.ModuleStatus{})
	ofAdmin.Annotations = map[string]string{v1beta2.AnnotationLastRequest: `{"channel":"regular","modules":[` +
		`{"name":"sample","channel":"fast"}]}`}
	cases := map[string]struct {
		reason      string
		kyma        *v1beta2.Kyma
		to, channel string
		want        string // the version, or part of the error
		code        int
	}{
		"To": {reason: "a version that exists", kyma: pinned, to: "2.0.0", want: "2.0.0"},
		"UnknownTo": {
			reason: "a version that does not exist",
			kyma:   pinned,
			to:     "2.0.1",
			want:   "version 2.0.1 of module sample does not exist: did you mean 2.0.0",
			code:   console.ExitNotFound,
		},
		"Pinned":  {reason: "the runtime has pinned a version", kyma: pinned, want: "3.0.0"},
		"Channel": {reason: "a channel takes precedence", kyma: pinned, channel: "regular", want: "1.0.0"},
		"Follows": {reason: "the module follows a channel", kyma: following, want: "2.0.0"},
		"OfRuntime": {
			reason: "a module that is not enabled follows the channel of the runtime",
			kyma:   without,
			want:   "1.0.0",
		},
		"OfAdmin": {
			reason: "the module was enabled in the runtime, not in the control plane",
			kyma:   ofAdmin,
			want:   "2.0.0",
		},
		"UnknownChannel": {
			reason:  "a channel that does not exist",
			kyma:    following,
			channel: "fats",
			want:    "did you mean fast?",
			code:    console.ExitNotFound,
		},
	}
	for name, c := range cases {
		got, err := versionToCompare(fixture.Catalog(), c.kyma,
			diffOptions{module: "sample", to: c.to, channel: c.channel})
		if err != nil {
			got = err.Error()
		}
		if console.ExitCode(err) != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s: %q, want %q", name, c.reason, got, c.want)
		}
	}
}

// TestTargetOf checks that klm diff looks at the cluster in which the objects of the module are.
func TestTargetOf(t *testing.T) {
	s := fixture.Catalog()
	name := channel.TemplateName("sample", "2.0.0")
	inControlPlane := *s.Templates[name]
	inControlPlane.Spec.Target = v1beta2.TargetControlPlane
	s.Templates = map[string]*v1beta2.ModuleTemplate{name: &inControlPlane}
	moved := fixture.Manifest("1.0.0", "1.0.0") // it does not move with an update
	moved.Status.Synced = []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Name: "a"}}
	installed := fixture.Manifest("1.0.0", "1.0.0")
	installed.Status.Target = v1beta2.TargetControlPlane
	for name, c := range map[string]struct {
		installed *v1beta2.Manifest
		version   string
		want      bool // the control plane
	}{
		"Installed":    {&installed, "1.0.0", true},
		"InRuntime":    {&moved, "2.0.0", false},
		"New":          {nil, "2.0.0", true},
		"NewInRuntime": {nil, "1.0.0", false},
	} {
		if got := targetOf(s, "sample", c.installed, c.version); (got == v1beta2.TargetControlPlane) != c.want {
			t.Errorf("%s: the target is %q, want the control plane: %t", name, got, c.want)
		}
	}
}

func TestSourceOf(t *testing.T) {
	m := fixture.Manifest("1.0.0", "1.0.0")
	_, err := sourceOf(&m)
	if console.ExitCode(err) != console.ExitFailed || !strings.Contains(err.Error(), "has no source yet") {
		t.Errorf("a Manifest without sources: %v", err)
	}
}
