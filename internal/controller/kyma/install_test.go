package kyma

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// kinds returns a scheme with the kinds of this project.
func kinds(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFinalizersOfOthersStay checks that a finalizer is kept if another client adds it between our read and our write
// of the object.
func TestFinalizersOfOthersStay(t *testing.T) {
	const other = "example.com/other"
	cases := map[string]struct {
		reason     string
		object     client.Object
		isDeleting bool
		do         func(ctx context.Context, n *run, read client.Object) error
	}{
		"Adopt": {
			reason: "when ours is added", object: &v1beta2.Kyma{},
			do: func(ctx context.Context, n *run, _ client.Object) error { return n.addFinalizerAndLabel(ctx) },
		},
		"Release": {
			reason: "when ours is removed", object: &v1beta2.Kyma{}, isDeleting: true,
			do: func(ctx context.Context, n *run, _ client.Object) error {
				return n.revokeCertificatesAndRemoveFinalizer(ctx)
			},
		},
		"Mandatory": {
			reason: "when that of the Kyma project is removed", isDeleting: true,
			object: &v1beta2.ModuleReleaseMeta{Spec: v1beta2.ModuleReleaseMetaSpec{
				Mandatory: &v1beta2.MandatoryVersion{Version: "1.0.0"}}},
			do: func(ctx context.Context, n *run, read client.Object) error {
				n.Client = staleList{n.Client, read.(*v1beta2.ModuleReleaseMeta)}
				_, err := n.removeMandatoryFinalizers(ctx)
				return err
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.object.SetNamespace("kcp-system")
			c.object.SetName("a")
			if c.isDeleting {
				c.object.SetFinalizers([]string{v1beta2.FinalizerKyma, v1beta2.FinalizerMandatoryModule})
				c.object.SetDeletionTimestamp(new(metav1.NewTime(time.Now())))
			}
			kcp := fake.NewClientBuilder().WithScheme(kinds(t)).WithObjects(c.object).Build()
			read := c.object.DeepCopyObject().(client.Object)
			if err := kcp.Get(t.Context(), client.ObjectKeyFromObject(read), read); err != nil {
				t.Fatal(err)
			}
			written := read.DeepCopyObject().(client.Object)
			written.SetFinalizers(append(written.GetFinalizers(), other))
			if err := kcp.Update(t.Context(), written); err != nil {
				t.Fatal(err)
			}
			pool, err := runtimes.New(t.Context(), runtimes.Options{Cache: kcp, Live: kcp, Namespace: "kcp-system"})
			if err != nil {
				t.Fatal(err)
			}
			n := &run{Reconciler: testReconciler(t, Options{Client: kcp, Namespace: "kcp-system", Runtimes: pool}),
				now: time.Now()}
			n.kyma, _ = read.(*v1beta2.Kyma)
			err = c.do(t.Context(), n, read)
			if err := kcp.Get(t.Context(), client.ObjectKeyFromObject(read), read); err != nil {
				t.Fatalf("%s: the object is deleted though it had finalizer %s: %v", c.reason, other, err)
			}
			if !slices.Contains(read.GetFinalizers(), other) {
				t.Errorf("%s: the finalizers are %v, %s is lost (%v)", c.reason, read.GetFinalizers(), other, err)
			}
		})
	}
}

// staleList is a client whose List returns an outdated version of the only ModuleReleaseMeta in the cluster.
type staleList struct {
	client.Client

	release *v1beta2.ModuleReleaseMeta
}

func (s staleList) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if releases, ok := list.(*v1beta2.ModuleReleaseMetaList); ok {
		releases.Items = []v1beta2.ModuleReleaseMeta{*s.release.DeepCopy()}
		return nil
	}
	return s.Client.List(ctx, list, opts...)
}

// TestDeleteOnlyTheManifestThatWasRead checks that a Manifest is not deleted if it was created, with the same name,
// after the read.
func TestDeleteOnlyTheManifestThatWasRead(t *testing.T) {
	var preconditions *metav1.Preconditions
	kcp := fake.NewClientBuilder().WithScheme(kinds(t)).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			all := client.DeleteOptions{}
			all.ApplyOptions(opts)
			if preconditions = all.Preconditions; preconditions != nil && preconditions.UID != nil &&
				*preconditions.UID == o.GetUID() {
				return apierrors.NewConflict(v1beta2.GroupVersion.WithResource("manifests").GroupResource(),
					o.GetName(), nil)
			}
			return nil
		},
	}).Build()
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system",
		Name: "a-keda", UID: types.UID("read")}}
	m.Labels = map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}
	for name, do := range map[string]func(*run) error{
		"Remove": func(n *run) error { return n.removeUnwantedManifests(t.Context()) },
		"Delete": func(n *run) error { return n.deleteModules(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			n := &run{Reconciler: testReconciler(t, Options{Client: kcp}), kyma: &v1beta2.Kyma{}, now: time.Now()}
			n.manifests, n.modules = map[string]*v1beta2.Manifest{m.Name: m}, []plan.Module{{Manifest: m}}
			if err := do(n); !apierrors.IsConflict(err) {
				t.Errorf("got %v with preconditions %+v, want the conflict of the UID", err, preconditions)
			}
		})
	}
}
