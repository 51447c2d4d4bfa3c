package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// AddFinalizers adds finalizers to an object of the control plane. AddFinalizers sends one request, or none if the
// object has all these finalizers. If another writer has changed the object since it was read, AddFinalizers returns
// the conflict error of the API server, and the runner reconciles the object again. A finalizer that another writer has
// added is therefore not lost.
func AddFinalizers(ctx context.Context, c client.Client, o client.Object, finalizers ...string) error {
	return PatchMetadata(ctx, c, o, func(m *metav1.ObjectMeta) { AppendFinalizers(m, finalizers...) })
}

// RemoveFinalizers removes finalizers from an object of the control plane. RemoveFinalizers sends one request, or none
// if the object has none of these finalizers. RemoveFinalizers handles conflicts in the same way as [AddFinalizers]. If
// the object no longer exists, RemoveFinalizers returns no error.
func RemoveFinalizers(ctx context.Context, c client.Client, o client.Object, finalizers []string,
	opts ...client.PatchOption) error {
	err := PatchMetadata(ctx, c, o, func(m *metav1.ObjectMeta) {
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return slices.Contains(finalizers, f) })
	}, opts...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// WaitForForeignFinalizers is for an object from which the controller has removed its own finalizers. If the object is
// being deleted and only finalizers of other controllers remain, WaitForForeignFinalizers returns an answer that names
// the remaining finalizers. In all other cases there is nothing to wait for, and WaitForForeignFinalizers returns nil.
// The parameter own lists the finalizers of the controller.
func WaitForForeignFinalizers(o client.Object, own []string) error {
	left := o.GetFinalizers()
	if o.GetDeletionTimestamp().IsZero() || len(left) == 0 ||
		slices.ContainsFunc(left, func(f string) bool { return slices.Contains(own, f) }) {
		return nil
	}
	what := "its finalizer "
	if len(left) > 1 {
		what = "its finalizers "
	}
	// The object is read again after a minute, because a change of its finalizers triggers no reconcile. Reading the
	// object again costs no request, because it comes from the cache.
	return Later(time.Minute, "another controller to remove "+what+strings.Join(left, ", ")+
		": Lifecycle Manager has nothing left to delete")
}

// AppendFinalizers appends those of the given finalizers that are missing in m. Use AppendFinalizers in the function
// that is passed to [PatchMetadata].
func AppendFinalizers(m *metav1.ObjectMeta, finalizers ...string) {
	for _, f := range finalizers {
		if !slices.Contains(m.Finalizers, f) {
			m.Finalizers = append(m.Finalizers, f)
		}
	}
}

// PatchMetadata applies the function change to the labels, annotations and finalizers of an object, and sends the
// difference as one merge patch. If there is no difference, PatchMetadata sends no request. A merge patch replaces the
// list of finalizers as a whole. Therefore a patch of finalizers contains the resource version of the object: if
// another writer has changed the object since it was read, the API server refuses the patch with a conflict. If the
// patch succeeds, the object in memory has the metadata of the answer. If the patch fails, the metadata of the object
// in memory is unchanged. The object must be an object of the control plane, and its Go type must be a struct with a
// field ObjectMeta.
func PatchMetadata(ctx context.Context, c client.Client, o client.Object, change func(*metav1.ObjectMeta),
	opts ...client.PatchOption) error {
	before := fieldPointer(o, "ObjectMeta").(*metav1.ObjectMeta)
	after := before.DeepCopy()
	change(after)
	patch := map[string]any{}
	if diff := diffStrings(before.Labels, after.Labels); len(diff) > 0 {
		patch["labels"] = diff
	}
	if diff := diffStrings(before.Annotations, after.Annotations); len(diff) > 0 {
		patch["annotations"] = diff
	}
	if !slices.Equal(before.Finalizers, after.Finalizers) {
		if before.ResourceVersion == "" {
			return fmt.Errorf("changing the finalizers of %T %s: it has no resource version", o,
				client.ObjectKeyFromObject(o))
		}
		patch["finalizers"], patch["resourceVersion"] = after.Finalizers, before.ResourceVersion
	}
	if len(patch) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"metadata": patch})
	if err != nil {
		return fmt.Errorf("encoding the metadata of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	answer := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	answer.SetNamespace(o.GetNamespace())
	answer.SetName(o.GetName())
	opts = append(slices.Clip(opts), client.FieldOwner(v1beta2.FieldOwner))
	if err := c.Patch(ctx, answer, client.RawPatch(types.MergePatchType, data), opts...); err != nil {
		return fmt.Errorf("changing the metadata of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	*before = *fieldPointer(answer, "ObjectMeta").(*metav1.ObjectMeta)
	return nil
}

// diffStrings returns the merge patch from the map before to the map after. The patch contains new and changed values,
// and nil for removed keys.
func diffStrings(before, after map[string]string) map[string]any {
	if maps.Equal(before, after) {
		return nil
	}
	diff := map[string]any{}
	for key, value := range after {
		if old, exists := before[key]; !exists || old != value {
			diff[key] = value
		}
	}
	for key := range before {
		if _, exists := after[key]; !exists {
			diff[key] = nil
		}
	}
	return diff
}
