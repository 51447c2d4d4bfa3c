package connection_test

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// appFor returns an invocation of klm with a kubeconfig, and a buffer with the progress that klm prints.
func appFor(kubeconfig string) (*console.App, *bytes.Buffer) {
	c := config.NewKlm()
	c.Kubeconfig = kubeconfig
	c.RequestTimeout = 10 * time.Minute // a busy machine may need long for a request
	progress := &bytes.Buffer{}
	return &console.App{Streams: console.Streams{Err: progress}, Config: c, Name: "klm", Now: time.Now}, progress
}

// kyma returns a Kyma with one module that is Ready.
func kyma(namespace, name string) *v1beta2.Kyma {
	k := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{Name: "sample"})
	k.Namespace, k.Name = namespace, name
	return k
}

// TestKindOfCluster checks which clusters each function accepts, depending on the kinds that the cluster serves, and
// which namespace and which Kyma the commands then use.
func TestKindOfCluster(t *testing.T) {
	controlPlane, runtime := []string{"kymas", "manifests", "moduletemplates", "modulereleasemetas"},
		[]string{"kymas", "moduletemplates", "modulereleasemetas"}
	both := []client.Object{kyma("kcp-system", "a"), kyma("kcp-system", "b")}
	self := []client.Object{kyma("kyma-system", "own")}
	cases := map[string]struct {
		reason  string
		serves  []string
		objects []client.Object
		connect func(context.Context, *console.App) (*connection.Cluster, error)
		want    string // namespace and Kyma of the admin, or part of the error
		code    int
	}{
		"ControlPlane": {
			reason:  "a control plane",
			serves:  controlPlane,
			objects: both,
			connect: connection.ControlPlane,
			want:    "kcp-system/",
		},
		"EmptyControlPlane": {
			reason:  "without Kymas, it has the usual namespace",
			serves:  controlPlane,
			connect: connection.ControlPlane,
			want:    "kcp-system/",
		},
		"InCluster": {
			reason:  "a control plane that manages only itself",
			serves:  controlPlane,
			objects: self,
			connect: connection.ControlPlane,
			want:    "kyma-system/",
		},
		"RuntimeInstead": {
			reason:  "a runtime is not a control plane",
			serves:  runtime,
			connect: connection.ControlPlane,
			want:    "is a runtime, but this command needs a control plane",
			code:    console.ExitCluster,
		},
		"Runtime": {
			reason:  "a runtime",
			serves:  runtime,
			connect: connection.Runtime,
			want:    "kyma-system/default",
		},
		"OwnAdmin": {
			reason:  "a control plane that manages only itself is its own runtime",
			serves:  controlPlane,
			objects: self,
			connect: connection.Runtime,
			want:    "kyma-system/own",
		},
		"ControlPlaneInstead": {
			reason:  "a control plane of others has no modules of its own",
			serves:  controlPlane,
			objects: both,
			connect: connection.Runtime,
			want:    "is a control plane, but this command is for the admin of a runtime",
			code:    console.ExitCluster,
		},
		"EitherControlPlane": {
			reason:  "commands for both",
			serves:  controlPlane,
			objects: both,
			connect: connection.ControlPlaneOrRuntime,
			want:    "kcp-system/",
		},
		"EitherRuntime": {
			reason:  "commands for both",
			serves:  runtime,
			connect: connection.ControlPlaneOrRuntime,
			want:    "kyma-system/",
		},
		"NoKinds": {
			reason:  "a cluster that has nothing to do with it",
			connect: connection.ControlPlaneOrRuntime,
			want:    "has no CRDs of operator.kyma-project.io",
			code:    console.ExitCluster,
		},
		"IncompleteKinds": {
			reason:  "an installation that is incomplete",
			serves:  []string{"kymas", "manifests", "moduletemplates"},
			connect: connection.ControlPlane,
			want:    "has no modulereleasemetas.operator.kyma-project.io",
			code:    console.ExitCluster,
		},
		"EitherIncompleteKinds": {
			reason:  "for every command",
			serves:  []string{"kymas"},
			connect: connection.Runtime,
			want:    "ask its platform team to install them",
			code:    console.ExitCluster,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, c.objects...)
			s.Serves = c.serves
			a, _ := appFor(s.Kubeconfig)
			cluster, err := c.connect(t.Context(), a)
			got := ""
			if err == nil {
				got = cluster.Namespace + "/" + cluster.OwnKyma
			} else {
				got = err.Error()
			}
			if console.ExitCode(err) != c.code || c.code == 0 && got != c.want || !strings.Contains(got, c.want) {
				t.Errorf("%s: %q, exit code %d, want %q, %d", c.reason, got, console.ExitCode(err), c.want, c.code)
			}
		})
	}
}

// TestOlderVersion checks the error about a cluster that serves only an older version of the API group.
func TestOlderVersion(t *testing.T) {
	s := fixture.NewServer(t)
	s.Serves = nil
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/apis/"+v1beta2.GroupVersion.Group {
			return false
		}
		_, _ = w.Write([]byte(`{"kind":"APIGroup","versions":[{"version":"v1alpha1"}]}`))
		return true
	}
	a, _ := appFor(s.Kubeconfig)
	_, err := connection.ControlPlane(t.Context(), a)
	if console.ExitCode(err) != console.ExitCluster ||
		!strings.Contains(err.Error(), "serves operator.kyma-project.io only as v1alpha1") {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	s := fixture.NewServer(t)
	cases := map[string]struct {
		reason, kubeconfig, context string
		want                        string // "" for no error
	}{
		"Current": {"the current context", s.Kubeconfig, "", ""},
		"Named":   {"a context that exists", s.Kubeconfig, "test", ""},
		"Unknown": {"the error suggests a context", s.Kubeconfig, "tset",
			`the kubeconfig has no context "tset": did you mean test?`},
		"NoFile": {"a file that does not exist", filepath.Join(t.TempDir(), "none"), "", "reading the kubeconfig"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, _ := appFor(c.kubeconfig)
			a.Config.Context = c.context
			cluster, err := connection.Open(a)
			switch {
			case c.want == "" && (err != nil || cluster.Context != "test"):
				t.Errorf("%s: %v", c.reason, err)
			case c.want != "" && (console.ExitCode(err) != console.ExitCluster ||
				!strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

// TestMissingKyma checks the error about a missing Kyma. In a control plane, the error about a missing Kyma lists the
// existing Kymas. In a runtime, the error names the control plane that manages the runtime.
func TestMissingKyma(t *testing.T) {
	s := fixture.NewServer(t, kyma("kcp-system", "runtime-a"))
	a, _ := appFor(s.Kubeconfig)
	c, err := connection.ControlPlane(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := c.Kyma(t.Context(), "runtime-a"); err != nil || k.Spec.Channel != "regular" {
		t.Errorf("a Kyma that exists: %v, %v", k, err)
	}
	_, err = c.Kyma(t.Context(), "runtime-b")
	if console.ExitCode(err) != console.ExitNotFound ||
		!strings.Contains(err.Error(), `runtime "runtime-b" does not exist in namespace kcp-system`) ||
		!strings.HasSuffix(err.Error(), "did you mean runtime-a?") {
		t.Error(err)
	}
	c.OwnKyma = "default"
	_, err = c.Kyma(t.Context(), "default")
	if console.ExitCode(err) != console.ExitNotFound ||
		!strings.Contains(err.Error(), "no control plane manages it, or not yet") {
		t.Error(err)
	}
}

func TestWithRequest(t *testing.T) {
	cases := map[string]struct {
		reason, annotation string
		want               []string // channel and modules
	}{
		"None": {"without the annotation, the spec counts", "", []string{"regular", "sample"}},
		"Requested": {"the annotation has what the runtime requests",
			`{"channel":"fast","modules":[{"name":"keda"},{"name":"istio"}]}`, []string{"fast", "keda", "istio"}},
		"Nothing": {"the runtime requests no modules", `{"channel":"fast"}`, []string{"fast"}},
		"Broken":  {"a broken annotation is ignored", `{`, []string{"regular", "sample"}},
		"Empty":   {"as is one without a channel", `{}`, []string{"regular", "sample"}},
	}
	for name, c := range cases {
		k := kyma("kcp-system", "a")
		if c.annotation != "" {
			k.Annotations = map[string]string{v1beta2.AnnotationLastRequest: c.annotation}
		}
		requested := connection.WithLastRequest(k)
		got := []string{requested.Spec.Channel}
		for _, m := range requested.Spec.Modules {
			got = append(got, m.Name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
		if k.Spec.Channel != "regular" {
			t.Errorf("%s: the Kyma itself was changed", name)
		}
	}
	k := kyma("kcp-system", "a")
	k.Status.Modules = []v1beta2.ModuleStatus{{Name: "sample"}, {Name: "old"}}
	if diff := cmp.Diff([]string{"old", "sample"}, connection.ModuleNames(k)); diff != "" {
		t.Errorf("requested and installed modules (-want +got):\n%s", diff)
	}
}

// TestCatalog checks modules with a ModuleReleaseMeta, and old modules whose ModuleTemplates name their channels.
func TestCatalog(t *testing.T) {
	old := func(name, version, channel string) v1beta2.ModuleTemplate {
		return v1beta2.ModuleTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta2.LabelModuleName: "old"}},
			Spec:       v1beta2.ModuleTemplateSpec{Channel: channel, Version: version},
		}
	}
	template := func(version string) v1beta2.ModuleTemplate {
		return v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "new-" + version},
			Spec: v1beta2.ModuleTemplateSpec{ModuleName: "new", Version: version}}
	}
	release := v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "new"},
		Spec: v1beta2.ModuleReleaseMetaSpec{
			Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.9.0"},
				{Channel: "fast", Version: "1.10.0"}}, KymaSelector: &v1beta2.Selector{},
		}}
	c := connection.NewCatalog([]v1beta2.ModuleReleaseMeta{release},
		[]v1beta2.ModuleTemplate{old("old-regular", "0.1.0", "regular"), old("old-fast", "0.2.0", "fast"),
			template("1.9.0"), template("1.10.0"), template("1.10.0-rc1")})
	check := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("modules", []string{"new", "old"}, c.Modules())
	check("versions, the highest first", []string{"1.10.0", "1.10.0-rc1", "1.9.0"}, c.VersionsOf("new"))
	check("channels of a release", []string{"fast", "regular"}, c.ChannelsOf("new"))
	check("channels of templates", []v1beta2.ChannelVersion{{Channel: "fast", Version: "0.2.0"},
		{Channel: "regular", Version: "0.1.0"}}, c.AssignmentsOf("old"))
	check("a module with a selector is restricted", []string{"new"}, c.ForResolve().Restricted)
	if release.Spec.Channels[0].Channel != "regular" {
		t.Error("sorting has changed the ModuleReleaseMeta")
	}
	if err := c.RequireModule("new", fixture.ControlPlane); err != nil {
		t.Error(err)
	}
	err := c.RequireModule("nwe", fixture.ControlPlane)
	if console.ExitCode(err) != console.ExitNotFound || !strings.HasSuffix(err.Error(), "did you mean new?") {
		t.Error(err)
	}
}

func TestCompareVersions(t *testing.T) {
	cases := []struct {
		a, b string
		want int
	}{{"1.9.0", "1.10.0", -1}, {"1.10.0", "1.9.0", 1}, {"1.0.0", "1.0.0", 0}, {"1.0.0-rc1", "1.0.0", -1},
		{"1.0", "2.0.0", 0}, {"", "1.0.0", 0}}
	for _, c := range cases {
		if got := connection.CompareVersions(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// TestWaitForKyma checks that WaitForKyma returns when the change is done or blocked, or at the timeout, and prints
// each progress once.
func TestWaitForKyma(t *testing.T) {
	const path = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/a"
	untilReady := func(k *v1beta2.Kyma) connection.Progress {
		switch {
		case k == nil:
			return connection.Progress{Blocked: console.Fail(console.ExitNotReady, "it was deleted")}
		case k.Status.State == v1beta2.StateReady:
			return connection.Progress{Done: true}
		}
		return connection.Progress{Text: "state " + string(k.Status.State)}
	}
	cases := map[string]struct {
		reason    string
		timeout   time.Duration
		next      v1beta2.State // the state that it gets after the first read; "" for none
		intercept error         // of reads of the Kyma
		name      string
		code      int
		want      string // of the error and the progress
	}{
		"Done": {
			reason:  "a change ends the waiting at once, by a watch",
			timeout: time.Minute,
			next:    v1beta2.StateReady,
			name:    "a",
			want:    "  state Processing\n",
		},
		"Blocked": {
			reason:  "what waiting does not help ends it",
			timeout: time.Minute,
			name:    "b",
			code:    console.ExitNotReady,
			want:    "it was deleted",
		},
		"Timeout": {
			reason:  "the error says what it waited for",
			timeout: 50 * time.Millisecond,
			name:    "a",
			code:    console.ExitNotReady,
			want:    "not done after 50ms: state Processing",
		},
		"Forbidden": {
			reason:    "a permission that is missing",
			timeout:   time.Minute,
			intercept: apierrors.NewForbidden(schema.GroupResource{Resource: "kymas"}, "a", nil),
			name:      "a",
			code:      console.ExitForbidden,
			want:      "reading Kyma a",
		},
		"Outage": {
			reason:    "other errors may end by themselves",
			timeout:   50 * time.Millisecond,
			intercept: apierrors.NewInternalError(http.ErrServerClosed),
			name:      "a",
			code:      console.ExitNotReady,
			want:      "not done after 50ms: -",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := kyma("kcp-system", "a")
			k.Status.State = v1beta2.StateProcessing
			s := fixture.NewServer(t, k)
			var once sync.Once
			s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if c.intercept != nil && r.URL.Path == path {
					fixture.Fail(w, c.intercept)
					return true
				}
				return false
			}
			a, progress := appFor(s.Kubeconfig)
			cluster, err := connection.ControlPlane(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			err = connection.WaitForKyma(t.Context(), a, cluster, c.name, c.timeout,
				func(k *v1beta2.Kyma) connection.Progress {
					if c.next != "" {
						once.Do(func() {
							o := s.Object(path)
							_ = unstructured.SetNestedField(o.Object, string(c.next), "status", "state")
							time.AfterFunc(100*time.Millisecond, func() { s.Put(o) })
						})
					}
					return untilReady(k)
				})
			got := progress.String()
			if err != nil {
				got += err.Error()
			}
			if console.ExitCode(err) != c.code || !strings.Contains(got, c.want) {
				t.Errorf("%s: exit code %d, want %d:\n%s", c.reason, console.ExitCode(err), c.code, got)
			}
			if strings.Count(progress.String(), "\n") > 1 {
				t.Errorf("the same progress is printed again:\n%s", progress)
			}
		})
	}
}

// TestAccessSecrets checks that only the metadata of the Secrets with the label is requested.
func TestAccessSecrets(t *testing.T) {
	secret := func(name, runtime string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp-system",
			Labels: map[string]string{v1beta2.LabelKymaName: runtime}},
			Data: map[string][]byte{"config": []byte("secret")}}
	}
	s := fixture.NewServer(t, secret("a-access", "a"), secret("b-access", "b"))
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/secrets") && !strings.Contains(r.Header.Get("Accept"),
			"as=PartialObjectMetadataList") {
			t.Errorf("the data of Secrets is requested: %s", r.Header.Get("Accept"))
		}
		return false
	}
	a, _ := appFor(s.Kubeconfig)
	c, err := connection.ControlPlane(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.AccessSecrets(t.Context(), "a")
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a-access" {
		t.Errorf("%v, %v", list.Items, err)
	}
	if uid, err := c.UID(t.Context()); err != nil || uid != "uid-of-the-cluster" {
		t.Errorf("UID %q, %v", uid, err)
	}
}

// TestCompletion checks that shell completions are the names of the objects in the cluster, and that an error yields no
// completions.
func TestCompletion(t *testing.T) {
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "sample", Namespace: "kcp-system"},
		Spec: v1beta2.ModuleReleaseMetaSpec{Channels: []v1beta2.ChannelVersion{{Channel: "fast", Version: "2.0.0"}}}}
	template := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "sample-2.0.0", Namespace: "kcp-system"},
		Spec: v1beta2.ModuleTemplateSpec{ModuleName: "sample", Version: "2.0.0"}}
	s := fixture.NewServer(t, kyma("kcp-system", "runtime-a"), kyma("kcp-system", "runtime-b"), release, template)
	up, _ := appFor(s.Kubeconfig)
	down, _ := appFor(filepath.Join(t.TempDir(), "none"))
	cases := map[string]struct {
		source func(*console.App) console.NameSource
		args   []string
		want   []string
	}{
		"Runtimes":       {connection.RuntimeNames, nil, []string{"runtime-a", "runtime-b"}},
		"Modules":        {connection.CatalogModules, nil, []string{"sample"}},
		"Channels":       {connection.ModuleChannels, []string{"sample"}, []string{"fast"}},
		"NoModule":       {connection.ModuleChannels, nil, nil},
		"Versions":       {connection.ModuleVersions, []string{"sample"}, []string{"2.0.0"}},
		"OfRuntime":      {connection.ModulesOfRuntime, []string{"runtime-a"}, []string{"sample"}},
		"UnknownRuntime": {connection.ModulesOfRuntime, []string{"runtime-x"}, nil},
		"NoRuntime":      {connection.ModulesOfRuntime, nil, nil},
		"Enabled":        {connection.ModulesOfOwnRuntime, nil, nil}, // this is no runtime
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, c.source(up)(t.Context(), c.args)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := c.source(down)(t.Context(), c.args); len(got) > 0 {
			t.Errorf("%s: without a cluster there is %v", name, got)
		}
	}
}
