package inventory

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
			names := []string{"a-remote", "a-here", "b-remote", "b-here"}
			var refs []apply.Ref
			for _, name := range names {
				refs = append(refs, apply.Ref{Kind: "ConfigMap", Version: "v2", Namespace: "b", Name: name})
			}
			holderOf := others.HoldersOf(refs)
			for i, other := range names {
				wanted := holderOf(refs[i]) != ""
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

// TestToDelete checks which objects stay when their module is removed. An object that is recorded as shared stays only
// as long as it belongs to another Manifest. An object whose entry is pending stays if the module has not created it.
func TestToDelete(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	crd := apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		Name: "things.example.com"}
	live := func(owner, manager, adopted string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetAnnotations(map[string]string{v1beta2.AnnotationOwnedBy: owner, apply.AnnotationAdopted: adopted})
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Apply"}})
		return u
	}
	const applier = v1beta2.FieldOwnerApplier
	tests := map[string]struct {
		reason                   string
		holder, leaving, adopted bool // another Manifest contains the object, and is being deleted
		shared                   bool
		owner                    string
		want                     bool
		pending                  *unstructured.Unstructured // the object in the cluster, if its entry is pending
	}{
		"Own":       {reason: "only this module contains it", owner: "kcp-system/m", want: true},
		"Adopted":   {reason: "it existed before", adopted: true, owner: "kcp-system/m"},
		"Held":      {reason: "the other module gets it", holder: true, owner: "kcp-system/m"},
		"Shared":    {reason: "the other module owns it", holder: true, shared: true, owner: "kcp-system/other"},
		"NoHolder":  {reason: "the other module was removed", shared: true, owner: "kcp-system/m", want: true},
		"OwnerGone": {reason: "the other module was removed", shared: true, owner: "kcp-system/other", want: true},
		"BothLeave": {reason: "the other module deletes it", holder: true, leaving: true, shared: true,
			owner: "kcp-system/other"},
		"HandedOver": {reason: "the other module has handed it over", holder: true, leaving: true, shared: true,
			owner: "kcp-system/m", want: true},
		"Unknown": {reason: "it cannot be read", holder: true, leaving: true, shared: true, want: true},
		"Applied": {reason: "the first installation is not complete", want: true,
			pending: live("kcp-system/m", applier, "")},
		"NoAnnotation": {reason: "a former release has applied it", want: true, pending: live("", applier, "")},
		"NotApplied":   {reason: "a user has made it, and it was never applied", pending: live("", "kubectl", "")},
		"OtherCluster": {reason: "it was copied from another cluster", pending: live("kcp-system/x", "backup", "")},
		"NotRecorded": {reason: "it existed before, and the inventory was not saved",
			pending: live("kcp-system/m", applier, "true")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme).
				WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues)
			m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "m",
				Labels: map[string]string{v1beta2.LabelKymaName: "a"}}}
			other := m.DeepCopy()
			other.Name, other.Status.Synced = "other", Of([]apply.Ref{crd})
			if tc.leaving {
				other.DeletionTimestamp, other.Finalizers = new(metav1.Now()), []string{v1beta2.FinalizerManifest}
			}
			if tc.holder {
				c = c.WithObjects(other)
			}
			ref := crd
			ref.Adopted, ref.Shared, ref.Pending = tc.adopted, tc.shared, tc.pending != nil
			found := Peers{Reader: c.Build()}.ToDelete(t.Context(), m, []apply.Ref{ref},
				func(apply.Ref) *unstructured.Unstructured {
					if tc.pending != nil || tc.owner == "" {
						return tc.pending
					}
					return live(tc.owner, applier, "")
				})
			if got := len(found) == 1; got != tc.want {
				t.Errorf("%s: deleted: %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// TestPeersAreReadWithoutCopies checks that the other Manifests are read only if there is an object to ask about, and
// are not copied: a Manifest on the control plane has the Manifests of all Kymas as peers.
func TestPeersAreReadWithoutCopies(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	lists, copies := 0, 0
	c := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
			list client.ObjectList, opts ...client.ListOption) error {
			lists++
			if no := (&client.ListOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy; no == nil || !*no {
				copies++
			}
			return c.List(ctx, list, opts...)
		}}).Build()
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "x"}}
	for _, target := range []v1beta2.Target{v1beta2.TargetRemote, v1beta2.TargetControlPlane} {
		lists, copies = 0, 0
		p := Peers{Reader: c, Target: target}
		p.ToDelete(t.Context(), m, nil, nil)
		p.ToDelete(t.Context(), m, []apply.Ref{{Kind: "ConfigMap", Namespace: "b", Name: "x"}}, nil)
		if lists != 1 || copies != 0 {
			t.Errorf("target %q: %d lists, %d of them copy the Manifests, want 1 and 0", target, lists, copies)
		}
	}
}

// BenchmarkHoldersOf searches the objects of one Manifest in the inventories of the other Manifests of its cluster. The
// time should grow with the number of objects of the others, and not with this number times the number of objects.
func BenchmarkHoldersOf(b *testing.B) {
	for _, size := range []struct{ objects, others int }{{25, 49}, {500, 49}, {25, 980}} {
		b.Run(fmt.Sprintf("objects=%d,others=%d", size.objects, size.others), func(b *testing.B) {
			others := make(Others, size.others)
			for i := range others {
				for j := range 25 {
					others[i].Status.Synced = append(others[i].Status.Synced, v1beta2.Resource{Group: "apps",
						Version: "v1", Kind: "Deployment", Namespace: "kyma-system", Name: fmt.Sprintf("m%d-%d", i, j)})
				}
			}
			refs := make([]apply.Ref, size.objects)
			for i := range refs {
				refs[i] = apply.Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "kyma-system",
					Name: fmt.Sprintf("me-%d", i)}
			}
			b.ReportAllocs()
			for b.Loop() {
				holderOf := others.HoldersOf(refs)
				for _, r := range refs {
					if holderOf(r) != "" {
						b.Fatal("another Manifest contains the object")
					}
				}
			}
		})
	}
}
