package loop

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// SpecLabelsOrAnnotationsChanged returns a predicate that accepts updates of the spec, of labels and of annotations,
// the start of a deletion, and every creation and deletion. The predicate does not accept changes of only the labels
// and annotations with the ignored keys, because a controller writes these itself to record something.
func SpecLabelsOrAnnotationsChanged(ignoredKeys ...string) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetGeneration() != after.GetGeneration() ||
			before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
			!maps.Equal(withoutKeys(before.GetLabels(), ignoredKeys), withoutKeys(after.GetLabels(), ignoredKeys)) ||
			!maps.Equal(withoutKeys(before.GetAnnotations(), ignoredKeys),
				withoutKeys(after.GetAnnotations(), ignoredKeys))
	}}
}

// withoutKeys returns the map m without some keys. withoutKeys does not change m, and copies m only if m contains one
// of these keys.
func withoutKeys(m map[string]string, keys []string) map[string]string {
	if !slices.ContainsFunc(keys, func(key string) bool { _, exists := m[key]; return exists }) {
		return m
	}
	m = maps.Clone(m)
	for _, key := range keys {
		delete(m, key)
	}
	return m
}

// RequestForKyma returns a reconcile request for the Kyma of an object. The Kyma is in the namespace of the object, and
// the label LabelKymaName of the object contains its name. If an object does not have the label LabelKymaName,
// RequestForKyma returns no reconcile request. RequestForKyma is a
// [sigs.k8s.io/controller-runtime/pkg/handler.MapFunc].
func RequestForKyma(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[v1beta2.LabelKymaName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}
