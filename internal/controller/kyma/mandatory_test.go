package kyma

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// TestMandatoryModuleOfOtherShards checks that the finalizer of a mandatory module stays as long as a runtime has the
// module, even if this replica does not hold the shard of the runtime.
func TestMandatoryModuleOfOtherShards(t *testing.T) {
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "guard",
		Finalizers:        []string{v1beta2.FinalizerMandatoryModule, "example.com/other"},
		DeletionTimestamp: new(metav1.Now())}}
	release.Spec.Mandatory = &v1beta2.MandatoryVersion{Version: "1.0.0"}
	installed := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "runtime-a-guard",
		Labels: map[string]string{v1beta2.LabelModuleName: "guard", v1beta2.LabelMandatoryModule: v1beta2.ValueTrue}}}
	optional := installed.DeepCopy()
	optional.Name = "runtime-b-guard"
	delete(optional.Labels, v1beta2.LabelMandatoryModule)
	r := fleet(t, 0, release, installed, optional)
	kcp := r.Client
	r.Shards, r.Certain = &shard.Keeper{}, kcp
	r.Client = interceptor.NewClient(kcp.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context,
		c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*v1beta2.ManifestList); ok {
			return nil // the open shards have no Manifest
		}
		return c.List(ctx, list, opts...)
	}})
	check := func(want bool) {
		t.Helper()
		waits, err := r.removeMandatoryFinalizers(t.Context())
		if err := kcp.Get(t.Context(), client.ObjectKeyFromObject(release), release); err != nil {
			t.Fatal(err)
		}
		has := slices.Contains(release.Finalizers, v1beta2.FinalizerMandatoryModule)
		if err != nil || waits != want || has != want {
			t.Errorf("the finalizer waits: %t, %v; finalizers %v; want the finalizer: %t", waits, err,
				release.Finalizers, want)
		}
	}
	check(true)
	if err := kcp.Delete(t.Context(), installed); err != nil {
		t.Fatal(err)
	}
	check(false)
}
