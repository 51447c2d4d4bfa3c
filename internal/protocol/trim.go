package protocol

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastAppliedAnnotation contains a copy of the whole object, written by kubectl.
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// TrimMetadata returns the metadata that an event contains: uid, resourceVersion, generation, deletionTimestamp,
// labels, annotations without the copy of the object that kubectl adds, and the managers and times of managedFields. It
// shares only strings with o. nil gives nil.
func TrimMetadata(o *metav1.ObjectMeta) *metav1.ObjectMeta {
	if o == nil {
		return nil
	}
	t := &metav1.ObjectMeta{
		UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
		DeletionTimestamp: o.DeletionTimestamp.DeepCopy(),
		Labels:            maps.Clone(o.Labels), Annotations: maps.Clone(o.Annotations),
	}
	delete(t.Annotations, lastAppliedAnnotation)
	for _, m := range o.ManagedFields {
		t.ManagedFields = append(t.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: m.Manager, Operation: m.Operation, Time: m.Time.DeepCopy(), Subresource: m.Subresource,
		})
	}
	return t
}
