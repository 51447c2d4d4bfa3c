package loop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

const (
	ourFinalizer   = "example.com/ours"
	otherFinalizer = "example.com/other"
)

// newStored returns a client with one Kyma, this Kyma as it was read, and a record of the patches that are sent.
func newStored(t *testing.T, meta metav1.ObjectMeta) (c client.Client, k *v1beta2.Kyma, patches *[]string) {
	t.Helper()
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	meta.Namespace, meta.Name = "kcp-system", "a"
	patches = &[]string{}
	c = fake.NewClientBuilder().WithScheme(kinds).WithObjects(&v1beta2.Kyma{ObjectMeta: meta}).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object,
			p client.Patch, opts ...client.PatchOption) error {
			data, err := p.Data(o)
			*patches = append(*patches, string(data))
			return errors.Join(err, c.Patch(ctx, o, p, opts...))
		}}).Build()
	k = &v1beta2.Kyma{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "kcp-system", Name: "a"}, k); err != nil {
		t.Fatal(err)
	}
	return c, k, patches
}

func TestFinalizers(t *testing.T) {
	add := func(ctx context.Context, c client.Client, k *v1beta2.Kyma) error {
		return AddFinalizers(ctx, c, k, ourFinalizer, otherFinalizer)
	}
	remove := func(ctx context.Context, c client.Client, k *v1beta2.Kyma) error {
		return RemoveFinalizers(ctx, c, k, []string{ourFinalizer, "example.com/unknown"})
	}
	cases := map[string]struct {
		reason string
		before []string
		do     func(context.Context, client.Client, *v1beta2.Kyma) error
		after  []string
		writes int
	}{
		"Add": {reason: "both are missing", do: add, after: []string{ourFinalizer, otherFinalizer}, writes: 1},
		"AddOne": {
			reason: "one is missing",
			before: []string{otherFinalizer},
			do:     add,
			after:  []string{otherFinalizer, ourFinalizer},
			writes: 1,
		},
		"AddNone": {
			reason: "nothing is sent",
			before: []string{ourFinalizer, otherFinalizer},
			do:     add,
			after:  []string{ourFinalizer, otherFinalizer},
		},
		"Remove": {
			reason: "only ours",
			before: []string{ourFinalizer, otherFinalizer},
			do:     remove,
			after:  []string{otherFinalizer},
			writes: 1,
		},
		"RemoveTheir": {
			reason: "nothing is sent",
			before: []string{otherFinalizer},
			do:     remove,
			after:  []string{otherFinalizer},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			stored, k, patches := newStored(t, metav1.ObjectMeta{Finalizers: c.before})
			k.Status.State = v1beta2.StateReady // in memory, to be kept
			if err := c.do(t.Context(), stored, k); err != nil {
				t.Fatal(err)
			}
			after := &v1beta2.Kyma{}
			if err := stored.Get(t.Context(), client.ObjectKeyFromObject(k), after); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.after, after.Finalizers) + cmp.Diff(after.ObjectMeta, k.ObjectMeta); diff != "" {
				t.Errorf("%s: stored and in memory, -want +got:\n%s", c.reason, diff)
			}
			if len(*patches) != c.writes || k.Status.State != v1beta2.StateReady {
				t.Errorf("%s: sent %v, want %d; state is %s", c.reason, *patches, c.writes, k.Status.State)
			}
		})
	}
}

// TestFinalizersOfOthers checks a finalizer that another writer has added after the object was read: the finalizer is
// not lost, and the object is not deleted before the other writer has removed the finalizer.
func TestFinalizersOfOthers(t *testing.T) {
	deletion := metav1.NewTime(time.Now())
	for name, meta := range map[string]metav1.ObjectMeta{
		"Add": {}, "Remove": {Finalizers: []string{ourFinalizer}, DeletionTimestamp: &deletion},
	} {
		t.Run(name, func(t *testing.T) {
			stored, seen, _ := newStored(t, meta)
			theirs := seen.DeepCopy()
			theirs.Finalizers = append(theirs.Finalizers, otherFinalizer)
			if err := stored.Update(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			do := func() error { return AddFinalizers(t.Context(), stored, seen, ourFinalizer) }
			if name == "Remove" {
				do = func() error { return RemoveFinalizers(t.Context(), stored, seen, []string{ourFinalizer}) }
			}
			before := seen.DeepCopy()
			if err := do(); !apierrors.IsConflict(err) {
				t.Errorf("the error is %v, want a conflict", err)
			}
			if diff := cmp.Diff(before, seen); diff != "" {
				t.Errorf("the object in memory was changed: %s", diff)
			}
			after := &v1beta2.Kyma{}
			if err := stored.Get(t.Context(), client.ObjectKeyFromObject(seen), after); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(theirs.Finalizers, after.Finalizers); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			*seen = *after
			if err := do(); err != nil {
				t.Errorf("after another read: %v", err)
			}
		})
	}
}

func TestRemoveFinalizersOfMissingObject(t *testing.T) {
	stored, k, _ := newStored(t, metav1.ObjectMeta{})
	k.Finalizers = []string{ourFinalizer} // as it was before somebody else removed it
	if err := stored.Delete(t.Context(), k.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := RemoveFinalizers(t.Context(), stored, k, []string{ourFinalizer}); err != nil {
		t.Errorf("removing: %v", err)
	}
	if err := AddFinalizers(t.Context(), stored, k, otherFinalizer); !apierrors.IsNotFound(err) {
		t.Errorf("adding: %v", err)
	}
}

func TestPatchMetadata(t *testing.T) {
	stored, k, patches := newStored(t, metav1.ObjectMeta{
		Labels: map[string]string{"kept": "1", "changed": "1"}, Annotations: map[string]string{"removed": "1"},
	})
	// Another writer changes a label of the Kyma k. The following PatchMetadata meets no conflict, because it changes
	// no finalizer.
	theirs := k.DeepCopy()
	theirs.Labels["theirs"] = "1"
	if err := stored.Update(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	err := PatchMetadata(t.Context(), stored, k, func(m *metav1.ObjectMeta) {
		m.Labels["changed"] = "2"
		delete(m.Annotations, "removed")
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`{"metadata":{"annotations":{"removed":null},"labels":{"changed":"2"}}}`},
		*patches); diff != "" {
		t.Errorf("only the difference is sent: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"kept": "1", "changed": "2", "theirs": "1"}, k.Labels); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := AddFinalizers(t.Context(), stored, &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "unread"}},
		ourFinalizer); err == nil {
		t.Error("finalizers of an object that was never read were changed")
	}
}
