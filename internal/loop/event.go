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

// SpecChanged returns a predicate that accepts every creation and every deletion. The predicate accepts an update if it
// changes the spec, a label or an annotation, or starts a deletion. Changes of the ignored annotations are not
// accepted, because a controller writes these annotations itself to record something.
func SpecChanged(ignoredAnnotations ...string) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetGeneration() != after.GetGeneration() ||
			before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
			!maps.Equal(before.GetLabels(), after.GetLabels()) ||
			!maps.Equal(withoutKeys(before.GetAnnotations(), ignoredAnnotations),
				withoutKeys(after.GetAnnotations(), ignoredAnnotations))
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

// RequestForKyma returns a request for the Kyma of an object: the label of the object contains the name of the Kyma,
// and the Kyma is in the namespace of the object. If the object has no such label, there is no request. RequestForKyma
// is a [sigs.k8s.io/controller-runtime/pkg/handler.MapFunc].
func RequestForKyma(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[v1beta2.LabelKymaName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}
