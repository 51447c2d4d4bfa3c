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

// SpecChanged returns a predicate that accepts every creation and deletion, and of updates those that change more than
// the status: the spec, labels, annotations other than the ignored ones, or the beginning of a deletion. Ignored
// annotations are those that a controller writes itself to record something.
func SpecChanged(ignoredAnnotations ...string) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetGeneration() != after.GetGeneration() ||
			before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
			!maps.Equal(before.GetLabels(), after.GetLabels()) ||
			!maps.Equal(without(before.GetAnnotations(), ignoredAnnotations),
				without(after.GetAnnotations(), ignoredAnnotations))
	}}
}

// without returns a map without some keys. It does not change m, and copies it only if it has one of the keys.
func without(m map[string]string, keys []string) map[string]string {
	if !slices.ContainsFunc(keys, func(key string) bool { _, exists := m[key]; return exists }) {
		return m
	}
	m = maps.Clone(m)
	for _, key := range keys {
		delete(m, key)
	}
	return m
}

// RequestForKyma returns a request for the Kyma that the label of an object names, in the namespace of the object; none
// if it has no such label. It is a [sigs.k8s.io/controller-runtime/pkg/handler.MapFunc].
func RequestForKyma(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[v1beta2.LabelKymaName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}
