package kyma

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// TestTakeOverFromAnotherKyma checks that a Kyma that takes a runtime over from a Kyma with another name marks its
// Manifests with the version in the runtime, and with the Manifest of the former Kyma that owns the objects there. If
// the Kyma has used another cluster with a lower version until then, its later history does not hide that version.
func TestTakeOverFromAnotherKyma(t *testing.T) {
	const component = "example.com/module/m"
	entry := func(version string, age time.Duration) []v1beta2.ModuleStatus {
		at := metav1.NewTime(time.Now().Add(-age))
		done := v1beta2.ModuleChange{Version: version, Started: at, Ended: at, Outcome: v1beta2.StateReady}
		return []v1beta2.ModuleStatus{{Name: "m", Version: version, State: v1beta2.StateReady,
			OCMComponentName: component, History: []v1beta2.ModuleChange{done}}}
	}
	for name, inUse := range map[string]bool{"New": false, "InUse": true} {
		t.Run(name, func(t *testing.T) {
			var owner atomic.Pointer[ownership.Owner]
			owner.Store(&ownership.Owner{ControlPlane: "other", Kyma: "n2/z", Cluster: "cluster"})
			b := newDeletionBench(t, accessSecret(t, kymaServer(t, &owner).URL))
			kyma := b.kyma.DeepCopy()
			kyma.DeletionTimestamp = nil
			kyma.Annotations = map[string]string{v1beta2.AnnotationTakeRuntime: v1beta2.ValueTrue}
			m, key := &v1beta2.Manifest{}, client.ObjectKey{Namespace: "n", Name: "k-m"}
			if inUse {
				kyma.Status.ClusterID, kyma.Status.Modules = "former", entry("1.9.0", time.Hour)
				if err := b.Client.Get(t.Context(), key, m); err != nil {
					t.Fatal(err)
				}
				m.Spec.Version, m.Status.Version, m.Status.State = "1.9.0", "1.9.0", v1beta2.StateReady
				m.Status.Synced = []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Name: "x"}}
				if err := b.Client.Update(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			remote := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{v1beta2.AnnotationOwner: owner.Load().Encode()}}}
			remote.Status.Modules = entry("2.0.0", 24*time.Hour)
			rt, err := b.Runtimes.GetBeforeOwnerVerified(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			found, err := b.verifyOwnerAndMarkLostModules(t.Context(), kyma, rt, remote)
			if err != nil || found.TakenFrom == "" {
				t.Fatalf("the runtime is not taken over: %+v, %v", found, err)
			}
			if err := b.Client.Get(t.Context(), key, m); err != nil {
				t.Fatal(err)
			}
			want := "n2/" + v1beta2.ManifestName("z", component, "m")
			if got := m.Annotations[ownership.AnnotationFormerInstallation]; got != want ||
				m.Annotations[v1beta2.AnnotationRuntimeVersion] != "2.0.0" {
				t.Errorf("annotations %v, want version 2.0.0 and the former installation %q", m.Annotations, want)
			}
			if got := kyma.Status.Modules; len(got) != 1 || got[0].Version != "2.0.0" {
				t.Errorf("the status is %+v, want the entry of the runtime", got)
			}
		})
	}
}

// TestUnknownModulesInRuntime checks a status in the runtime with invented modules. Nothing is created if there are too
// many, and the runtime is not used; a deletion goes on nevertheless. No Manifest gets a name from the runtime.
func TestUnknownModulesInRuntime(t *testing.T) {
	owner := ownership.Owner{ControlPlane: "cp", Kyma: "n/k", UID: "u", Cluster: "cluster"}
	invented := func(n int) *v1beta2.Kyma {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{v1beta2.AnnotationOwner: owner.Encode()}}}
		done := v1beta2.ModuleChange{Version: "2.0.0", Started: metav1.Now(), Ended: metav1.Now(),
			Outcome: v1beta2.StateReady}
		k.Status.Modules = []v1beta2.ModuleStatus{{Name: "keda", Version: "2.0.0", State: v1beta2.StateReady,
			OCMComponentName: "example.com/module/keda", History: []v1beta2.ModuleChange{done},
			Manifest: &v1beta2.ObjectReference{Metadata: v1beta2.ObjectReferenceMeta{Name: "other-keda-1"}}}}
		for i := range n - 1 {
			k.Status.MandatoryModules = append(k.Status.MandatoryModules, v1beta2.MandatoryModuleStatus{
				Name: fmt.Sprintf("m-%03d", i), Version: "2.0.0", LastChange: &done,
				OCMComponentName: fmt.Sprintf("example.com/module/m-%03d", i)})
		}
		return k
	}
	released := func(name string) client.Object {
		return &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
	}
	requested := invented(51)
	requested.Spec.Modules = []v1beta2.Module{{Name: "keda"}}
	cases := map[string]struct {
		reason     string
		remote     *v1beta2.Kyma
		catalog    []client.Object
		isDeletion bool
		refused    bool
		want       int // Manifests that are created
	}{
		"Few":     {reason: "an honest status", remote: invented(50), want: 50},
		"TooMany": {reason: "nothing is changed", remote: invented(51), refused: true},
		"Known": {reason: "the catalog has a module", remote: invented(51),
			catalog: []client.Object{released("m-000")}, want: 51},
		"Requested": {reason: "the runtime requests a module", remote: requested, want: 51},
		"Deletion":  {reason: "the runtime must not prevent it", remote: invented(51), isDeletion: true, want: 50},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var atServer atomic.Pointer[ownership.Owner]
			atServer.Store(&owner)
			b := newDeletionBench(t, append(c.catalog, accessSecret(t, kymaServer(t, &atServer).URL))...)
			kyma := b.kyma.DeepCopy()
			if !c.isDeletion {
				kyma.DeletionTimestamp = nil
			}
			rt, err := b.Runtimes.GetBeforeOwnerVerified(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			n := &run{Reconciler: b.Reconciler, kyma: kyma, runtime: rt, now: time.Now()}
			err = n.verifyOwnerOrRefuse(t.Context(), c.remote)
			if refused := loop.Reason(n.found.refused) == v1beta2.ReasonRuntimeKymaInvalid; refused != c.refused ||
				(err != nil) != c.refused {
				t.Fatalf("%s: refused because of %v; %v", c.reason, n.found.refused, err)
			}
			if b.Runtimes.IsOwned("k") == c.refused {
				t.Errorf("other controllers may use the runtime: %t, want %t", !c.refused, c.refused)
			}
			all := &v1beta2.ManifestList{}
			if err := b.Client.List(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			if got := len(all.Items) - 1; got != c.want { // one Manifest existed before
				t.Errorf("%s: %d Manifests are created, want %d", c.reason, got, c.want)
			}
			for i := range all.Items {
				if m := &all.Items[i]; m.Name != "k-m" && m.Name != v1beta2.ManifestName("k",
					m.OCMComponentName(), m.ModuleName()) {
					t.Errorf("the runtime has chosen the name %s", m.Name)
				}
			}
		})
	}
}
