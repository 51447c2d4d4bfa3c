package kyma

import (
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// TestTakeOverFromAnotherKyma checks that a Kyma that takes a runtime over from a Kyma with another name marks its
// Manifests with the version in the runtime, and with the Manifest of the former Kyma that owns the objects there.
func TestTakeOverFromAnotherKyma(t *testing.T) {
	const component = "example.com/module/m"
	var owner atomic.Pointer[ownership.Owner]
	owner.Store(&ownership.Owner{ControlPlane: "other", Kyma: "n2/z", Cluster: "cluster"})
	b := newDeletionBench(t, accessSecret(t, kymaServer(t, &owner).URL))
	kyma := b.kyma.DeepCopy()
	kyma.DeletionTimestamp = nil
	kyma.Annotations = map[string]string{v1beta2.AnnotationTakeRuntime: v1beta2.ValueTrue}
	remote := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{v1beta2.AnnotationOwner: owner.Load().Encode()}}}
	remote.Status.Modules = []v1beta2.ModuleStatus{{Name: "m", Version: "2.0.0", State: v1beta2.StateReady,
		OCMComponentName: component, History: []v1beta2.ModuleChange{{Version: "2.0.0", Started: metav1.Now(),
			Ended: metav1.Now(), Outcome: v1beta2.StateReady}}}}
	rt, err := b.Runtimes.GetBeforeOwnerVerified(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	found, err := b.verifyOwnerAndMarkLostModules(t.Context(), kyma, rt, remote)
	if err != nil || found.TakenFrom == "" {
		t.Fatalf("the runtime is not taken over: %+v, %v", found, err)
	}
	m := &v1beta2.Manifest{}
	if err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "k-m"}, m); err != nil {
		t.Fatal(err)
	}
	want := "n2/" + v1beta2.ManifestName("z", component, "m")
	if got := m.Annotations[ownership.AnnotationFormerInstallation]; got != want ||
		m.Annotations[v1beta2.AnnotationRuntimeVersion] != "2.0.0" {
		t.Errorf("annotations %v, want version 2.0.0 and the former installation %q", m.Annotations, want)
	}
}
