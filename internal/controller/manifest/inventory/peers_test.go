package inventory

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// TestPeers checks which Manifests share a cluster. The inventory of a Manifest on another cluster must not change the
// decision about an object on this cluster.
func TestPeers(t *testing.T) {
	const remote, here = v1beta2.TargetRemote, v1beta2.TargetControlPlane
	manifest := func(name, kyma string, target v1beta2.Target) *v1beta2.Manifest {
		m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name,
			Labels: map[string]string{v1beta2.LabelKymaName: kyma}}}
		if target == here {
			m.Spec.Target, m.Labels[v1beta2.LabelTarget] = target, string(target)
		}
		m.Status.Synced = []v1beta2.Resource{{Kind: "ConfigMap", Namespace: "b", Name: name}}
		m.Status.Target = m.Spec.Target
		return m
	}
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).
		WithObjects(manifest("a-remote", "a", remote), manifest("a-here", "a", here),
			manifest("b-remote", "b", remote), manifest("b-here", "b", here)).Build()
	tests := map[string]struct {
		reason string
		of     *v1beta2.Manifest
		target v1beta2.Target
		want   map[string]bool
	}{
		"Runtime":      {"only the runtime of the Kyma", manifest("x", "a", remote), remote, map[string]bool{"a-remote": true}},
		"ControlPlane": {"all Kymas", manifest("x", "a", here), here, map[string]bool{"a-here": true, "b-here": true}},
		"InCluster": {"both targets are one cluster", manifest("x", "a", remote), "",
			map[string]bool{"a-remote": true, "a-here": true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := Peers{Reader: c, Target: tc.target}
			others, err := p.ListOtherManifests(t.Context(), tc.of)
			if err != nil {
				t.Fatal(err)
			}
			own := p.Ownership(t.Context(), tc.of, apply.Adopt)
			for _, other := range []string{"a-remote", "a-here", "b-remote", "b-here"} {
				wanted := others.HolderOf(apply.Ref{Kind: "ConfigMap", Namespace: "b", Name: other}) != ""
				_, exists := own.Find("kcp-system/" + other)
				if wanted != tc.want[other] || exists != tc.want[other] {
					t.Errorf("%s: %s contains its object: %t, owns it: %t; want %t", tc.reason, other, wanted, exists,
						tc.want[other])
				}
			}
			if refuses := own.Adoption == apply.Refuse && own.IgnoreAdoptionOfObjects; refuses != (tc.target == here) {
				t.Errorf("%s: adoption %s, always: %t", tc.reason, own.Adoption, own.IgnoreAdoptionOfObjects)
			}
		})
	}
}
