package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// AddFinalizers adds finalizers to an object of the control plane that does not have them, with one request, or none if
// it has all. If somebody else has written the object since it was read, it returns the conflict of the API server, for
// which the runner reconciles again: no finalizer of others is lost.
func AddFinalizers(ctx context.Context, c client.Client, o client.Object, finalizers ...string) error {
	return PatchMetadata(ctx, c, o, func(m *metav1.ObjectMeta) { AppendFinalizers(m, finalizers...) })
}

// RemoveFinalizers removes finalizers from an object of the control plane that has them, with one request, or none if
// it has none of them. Conflicts are as with [AddFinalizers]. If the object does not exist any more, there is nothing
// to remove and no error.
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

// AppendFinalizers appends the finalizers that m does not have, for use in [PatchMetadata].
func AppendFinalizers(m *metav1.ObjectMeta, finalizers ...string) {
	for _, f := range finalizers {
		if !slices.Contains(m.Finalizers, f) {
			m.Finalizers = append(m.Finalizers, f)
		}
	}
}

// PatchMetadata sends what change does to the labels, annotations and finalizers of an object, as one merge patch of
// the difference, or nothing if there is none. A patch of finalizers, which are a list that is replaced as a whole, is
// refused by the API server with a conflict if somebody else has written the object since it was read. After a success
// the metadata of the object in memory is that of the answer; after a failure it is unchanged. The object must be one
// of the control plane, as a struct with a field ObjectMeta.
func PatchMetadata(ctx context.Context, c client.Client, o client.Object, change func(*metav1.ObjectMeta),
	opts ...client.PatchOption) error {
	before := field(o, "ObjectMeta").(*metav1.ObjectMeta)
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
	*before = *field(answer, "ObjectMeta").(*metav1.ObjectMeta)
	return nil
}

// diffStrings returns the merge patch that makes one map another: new values, and nil for keys that are removed.
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
