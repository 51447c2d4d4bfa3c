package fleetindex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// TestMain lengthens deadlines, because a busy machine may need long for a read.
func TestMain(m *testing.M) {
	OnDemandTimeout = 10 * time.Minute
	m.Run()
}

const manifestPath = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/manifests/runtime-a-sample-1"

// run runs an index that follows a server until the end of the test.
func run(t *testing.T, x *Index, server *fixture.Server) {
	t.Helper()
	start(t, x, server)
	until(t, "the fleet", func() bool { return x.Snapshot().Ready })
}

// start keeps the index up to date until the end of the test.
func start(t *testing.T, x *Index, server *fixture.Server) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		x.Run(ctx, func(ctx context.Context) (*connection.Cluster, error) {
			return connection.ControlPlane(ctx, fixture.App(server.Kubeconfig))
		})
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// until waits until a condition is true, and fails the test after ten minutes.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not reached: %s", what)
		}
	}
}

// viewAndAwaitWatch marks a runtime as viewed, and waits until the Manifests of the runtime are watched.
func viewAndAwaitWatch(t *testing.T, x *Index, name string) {
	t.Helper()
	v := x.markViewed(name)
	until(t, "the watch of the Manifests of "+name, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return v.isWatched
	})
}

// withManifest returns a control plane with a runtime that has one module.
func withManifest(t *testing.T) *fixture.Server {
	t.Helper()
	manifest := fixture.Manifest("1.0.0", "1.0.0")
	manifest.Namespace = v1beta2.ControlPlaneNamespace
	kyma := fixture.FactsBySituation()["healthy"].Kyma
	kyma.Status.Modules[0].Manifest = &v1beta2.ObjectReference{Metadata: v1beta2.ObjectReferenceMeta{
		Name: manifest.Name, Namespace: manifest.Namespace}}
	return fixture.NewServer(t, kyma, &manifest)
}

// TestDetail checks that the data of a runtime is read once, and again after a change of a Manifest or of the Kyma, and
// that a change of a Manifest is published.
func TestDetail(t *testing.T) {
	server := withManifest(t)
	x := New()
	now := time.Now()
	x.now = func() time.Time { return now } // no data becomes too old
	run(t, x, server)
	viewAndAwaitWatch(t, x, "runtime-a")
	reads := 0
	detail := func() {
		t.Helper()
		d, err := x.Detail(t.Context(), "runtime-a", func(context.Context) (any, error) {
			reads++
			return fmt.Sprint("read ", reads), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint("read ", reads); d.Value != want {
			t.Errorf("the detail is of %q, want %q", d.Value, want)
		}
	}
	for range 5 {
		detail()
	}
	if reads != 1 {
		t.Errorf("five views cost %d reads, want one", reads)
	}
	published := x.Snapshot().Of[Details]
	server.Patch(t, manifestPath, `{"status":{"state":"Error"}}`)
	until(t, "the change of the Manifest is published", func() bool { return x.Snapshot().Of[Details] > published })
	if detail(); reads != 2 {
		t.Errorf("after a change of the Manifest: %d reads, want 2", reads)
	}
	server.Patch(t, "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/runtime-a",
		`{"status":{"state":"Error"}}`)
	until(t, "the change of the Kyma", func() bool { return x.Snapshot().Members[0].Status.State == "Error" })
	if detail(); reads < 3 {
		t.Errorf("after a change of the Kyma: %d reads, want 3", reads)
	}
}

// TestDetailUnwatched checks the index for a user who may not watch Manifests. The data of a runtime is read again
// after a short time, and the refused watch is not requested again. An error is cached no longer than data.
func TestDetailUnwatched(t *testing.T) {
	server := withManifest(t)
	var watches atomic.Int64
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		isManifests := strings.HasSuffix(r.URL.Path, "/manifests")
		if isManifests {
			watches.Add(1)
			fixture.Fail(w, apierrors.NewForbidden(schema.GroupResource{Resource: "manifests"}, "", errors.New("no")))
		}
		return isManifests
	}
	x := New()
	begin := time.Now()
	var later atomic.Int64
	x.now = func() time.Time { return begin.Add(time.Duration(later.Load())) }
	run(t, x, server)
	x.markViewed("runtime-a")
	until(t, "the refused watch", func() bool { return watches.Load() > 0 })
	reads := 0
	var problem error
	detail := func() {
		t.Helper()
		if _, err := x.Detail(t.Context(), "runtime-a", func(context.Context) (any, error) {
			reads++
			return nil, problem
		}); !errors.Is(err, problem) {
			t.Fatal(err)
		}
	}
	detail()
	detail()
	later.Add(int64(unwatchedAge))
	detail()
	problem = io.ErrUnexpectedEOF
	later.Add(int64(unwatchedAge))
	detail()
	detail()
	problem = nil
	later.Add(int64(unwatchedAge))
	detail()
	if reads != 4 || watches.Load() != 1 {
		t.Errorf("%d reads and %d refused requests for the Manifests, want 4 and 1", reads, watches.Load())
	}
}

// TestDetailLimit checks that the Manifests of a limited number of runtimes are watched, and that a runtime that was
// dropped can be viewed again.
func TestDetailLimit(t *testing.T) {
	server := withManifest(t)
	var open, most atomic.Int64
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/manifests") || r.URL.Query().Get("watch") == "" {
			return false
		}
		most.Store(max(most.Load(), open.Add(1)))
		defer open.Add(-1)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
	x := New()
	begin := time.Now()
	var ticks atomic.Int64
	x.now = func() time.Time { return begin.Add(time.Duration(ticks.Add(1))) } // views differ, and no data becomes old
	run(t, x, server)
	reads := 0
	view := func(i int) {
		t.Helper()
		name := fmt.Sprint("runtime-", i)
		viewAndAwaitWatch(t, x, name)
		if _, err := x.Detail(t.Context(), name, func(context.Context) (any, error) {
			reads++
			return "", nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxViewed + 10 {
		view(i)
		until(t, "the former watches have ended", func() bool { return open.Load() <= maxViewed })
	}
	until(t, "the watches of the last runtimes", func() bool { return open.Load() == maxViewed })
	view(0)
	if before := reads; before != maxViewed+11 {
		t.Errorf("%d reads, want %d", before, maxViewed+11)
	}
	view(0)
	if reads != maxViewed+11 || most.Load() > maxViewed+1 {
		t.Errorf("%d reads, at most %d watches", reads, most.Load())
	}
}

// TestSignatures checks that the finding of the manager about the signatures of a version becomes part of the
// snapshots, that a finding is read once, and that the findings about a version that no runtime has are dropped.
func TestSignatures(t *testing.T) {
	server := withManifest(t)
	server.Patch(t, manifestPath, `{"status":{"conditions":[{"type":"Signature","status":"True","reason":`+
		`"SignatureVerified","message":"raw-manifest is signed with key release (cosign)"}]}}`)
	var reads atomic.Int64
	server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == manifestPath {
			reads.Add(1)
		}
		return false
	}
	x := New()
	run(t, x, server)
	sample := Version{"sample", "1.0.0"}
	until(t, "the finding", func() bool { return x.Snapshot().Signatures[sample].Runtime != "" })
	s := x.Snapshot()
	if is := s.Signatures[sample]; !is.Verified || is.Runtime != "runtime-a" ||
		!strings.Contains(is.Message, "release") {
		t.Errorf("the finding is %+v", is)
	}
	if left := s.versionsWithSignatureDue(x.now()); len(left) > 0 || reads.Load() != 1 {
		t.Errorf("%v would be read again after %d reads", left, reads.Load())
	}
	if left := s.versionsWithSignatureDue(x.now().Add(signatureAge)); left[sample] != "runtime-a" {
		t.Errorf("after %s, %v would be read again", signatureAge, left)
	}
	x.AddSignatures(map[Version]Signature{{"sample", "0.9.0"}: {Runtime: "runtime-b"}})
	x.AddSignatures(nil)
	x.Publish()
	if n := len(x.Snapshot().Signatures); n != 1 {
		t.Errorf("%d findings, want one", n)
	}
}

// TestUnverified checks that one runtime is chosen for each version, if possible a runtime in which the version is
// Ready, and that the number of chosen runtimes is limited.
func TestUnverified(t *testing.T) {
	x := New()
	for i := range maxSignatures + 5 {
		m := member(fmt.Sprintf("r-%03d", i), "1", "Ready")
		m.Status.Modules = append(m.Status.Modules, moduleOf("a", "1.0.0", "Processing"),
			moduleOf("b", fmt.Sprint(i), "Ready"), moduleOf("c", "", "Processing"))
		if i > 3 {
			m.Status.Modules[0].State = v1beta2.StateReady
		}
		x.Put(m)
	}
	x.Publish()
	all := x.Snapshot().versionsWithSignatureDue(x.now())
	if len(all) != maxSignatures || all[Version{"a", "1.0.0"}] != "r-004" || all[Version{"c", ""}] != "" {
		t.Errorf("%d versions: %v", len(all), all)
	}
}

// TestSignatureOfManifest checks which finding about the signatures of a version a Manifest shows.
func TestSignatureOfManifest(t *testing.T) {
	verified := fixture.Condition(v1beta2.ConditionSignature, "True", "SignatureVerified", "signed with key release")
	refused := fixture.Condition(v1beta2.ConditionReady, "False", v1beta2.ReasonSignatureMissing,
		"no key has signed it")
	for name, test := range map[string]struct {
		spec, applied string
		conditions    []metav1.Condition
		known         bool
		want          Signature
	}{
		"Verified": {
			spec: "1.0.0", applied: "1.0.0", conditions: []metav1.Condition{verified},
			known: true, want: Signature{Verified: true, Message: "signed with key release"},
		},
		"NotRequired": {spec: "1.0.0", applied: "1.0.0", known: true},
		"RefusedFirst": {
			spec: "1.0.0", conditions: []metav1.Condition{refused},
			known: true, want: Signature{Message: "no key has signed it"},
		},
		"RefusedAfterOther": {
			spec: "1.0.0", applied: "0.9.0", conditions: []metav1.Condition{verified, refused},
			known: true, want: Signature{Message: "no key has signed it"},
		},
		"NotApplied":   {spec: "1.0.0", applied: "0.9.0", conditions: []metav1.Condition{verified}},
		"OtherVersion": {spec: "2.0.0", applied: "1.0.0", conditions: []metav1.Condition{verified}},
	} {
		t.Run(name, func(t *testing.T) {
			kyma := fixture.FactsBySituation()["healthy"].Kyma
			kyma.Name = "runtime-a"
			entry := v1beta2.ModuleStatus{Name: "sample", Version: "1.0.0", Manifest: &v1beta2.ObjectReference{}}
			entry.Manifest.Metadata.Name = "the-manifest"
			kyma.Status.Modules = []v1beta2.ModuleStatus{entry}
			m := fixture.Manifest(test.spec, test.applied)
			m.Namespace, m.Name, m.Spec.Version = v1beta2.ControlPlaneNamespace, "the-manifest", test.spec
			m.Status.Version, m.Status.Conditions = test.applied, test.conditions
			server := fixture.NewServer(t, kyma, &m)
			c, err := connection.ControlPlane(t.Context(), fixture.App(server.Kubeconfig))
			if err != nil {
				t.Fatal(err)
			}
			is, known, err := readSignature(t.Context(), c, &v1beta2.ModuleReleaseMeta{}, Version{"sample", "1.0.0"},
				"runtime-a")
			test.want.Runtime = "runtime-a"
			if err != nil || known != test.known || known && is != test.want {
				t.Errorf("%+v, known %t, %v, want %+v", is, known, err, test.want)
			}
		})
	}
}

// TestMandatorySignature checks that the finding about the signature of a mandatory module is read from a runtime with
// this version of the module. The status of a Kyma does not list mandatory modules, so the index has to find such a
// runtime in another way.
func TestMandatorySignature(t *testing.T) {
	const component = "kyma-project.io/module/guard"
	release := &v1beta2.ModuleReleaseMeta{}
	release.Namespace, release.Name = v1beta2.ControlPlaneNamespace, "guard"
	release.Spec = v1beta2.ModuleReleaseMetaSpec{ModuleName: "guard", OCMComponentName: component,
		Mandatory: &v1beta2.MandatoryVersion{Version: "2.0.0"}}
	release.Status.Channels = []v1beta2.ChannelStatus{{Channel: v1beta2.MandatoryChannel, Version: "1.0.0"}}
	objects := []client.Object{release}
	for runtime, version := range map[string]string{"runtime-a": "1.0.0", "runtime-b": "2.0.0"} {
		kyma := fixture.FactsBySituation()["healthy"].Kyma
		kyma.Name = runtime
		m := fixture.Manifest(version, version)
		m.Namespace, m.Name = v1beta2.ControlPlaneNamespace, v1beta2.ManifestName(runtime, component, "guard")
		m.Status.Conditions = []metav1.Condition{fixture.Condition(v1beta2.ConditionSignature, "True",
			"SignatureVerified", "signed for "+version)}
		objects = append(objects, kyma, &m)
	}
	server := fixture.NewServer(t, objects...)
	c, err := connection.ControlPlane(t.Context(), fixture.App(server.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	for runtime, version := range map[string]string{"runtime-a": "1.0.0", "runtime-b": "2.0.0"} {
		is, known, err := readSignature(t.Context(), c, release, Version{"guard", version}, runtime)
		if err != nil || !known || !is.Verified || is.Message != "signed for "+version {
			t.Errorf("%s: %+v, %t, %v", version, is, known, err)
		}
	}
	for _, runtime := range []string{"runtime-a", "runtime-c"} {
		is, known, err := readSignature(t.Context(), c, release, Version{"guard", "2.0.0"}, runtime)
		if known || err != nil {
			t.Errorf("%s does not have the version: %+v, %v", runtime, is, err)
		}
	}
	s := &Snapshot{Members: []*fleetlist.Member{member("runtime-a", "1", "Ready"), member("runtime-b", "1", "Ready")},
		Catalog: connection.NewCatalog([]v1beta2.ModuleReleaseMeta{*release}, nil)}
	seen := map[string]bool{}
	for round := range 2 {
		wanted := s.versionsWithSignatureDue(fixture.Noon.Add(time.Duration(round) * signatureInterval))
		seen[wanted[Version{"guard", "2.0.0"}]] = true
		if wanted[Version{"guard", "1.0.0"}] == "" {
			t.Errorf("the proven version is not read: %v", wanted)
		}
	}
	if len(seen) != 2 || !s.IsUsed(Version{"guard", "1.0.0"}) || s.IsUsed(Version{"guard", "0.9.0"}) {
		t.Errorf("the runtimes in two rounds are %v", seen)
	}
}

func moduleOf(name, version string, state v1beta2.State) fleetlist.MemberModule {
	return fleetlist.MemberModule{Name: name, Version: version, State: state}
}
