package protocol

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastApplied is where kubectl keeps all of an object a second time.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// TrimMetadata returns what an event tells of an object: uid, resourceVersion, generation, deletionTimestamp, labels, annotations without that of
// kubectl which repeats the object, and who wrote when. It shares only strings with o. nil gives nil.
func TrimMetadata(o *metav1.ObjectMeta) *metav1.ObjectMeta {
	if o == nil {
		return nil
	}
	t := &metav1.ObjectMeta{
		UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation, DeletionTimestamp: o.DeletionTimestamp.DeepCopy(),
		Labels: maps.Clone(o.Labels), Annotations: maps.Clone(o.Annotations),
	}
	delete(t.Annotations, lastApplied)
	for _, m := range o.ManagedFields {
		t.ManagedFields = append(t.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: m.Manager, Operation: m.Operation, Time: m.Time.DeepCopy(), Subresource: m.Subresource,
		})
	}
	return t
}
