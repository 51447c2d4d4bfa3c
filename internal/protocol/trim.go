package protocol

import (
	"encoding/json"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastAppliedAnnotation is the annotation in which kubectl stores a copy of the whole object.
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// EventMetadata returns that part of an object's metadata which an event contains: uid, resourceVersion, generation,
// deletionTimestamp, labels and annotations, and the managers and times of managedFields. EventMetadata leaves out the
// annotation in which kubectl stores a copy of the object. The returned metadata is a copy: it shares no maps or slices
// with the parameter o. If the parameter o is nil, EventMetadata returns nil.
func EventMetadata(o *metav1.ObjectMeta) *metav1.ObjectMeta {
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

// TrimAndEncodeState returns the part of an object that decides about its readiness, as JSON: the object without
// managedFields, without the annotation with the copy of the object that kubectl writes, and, if it is a workload,
// without the template of its pods. The spec of a custom resource is not shortened, because the readiness expression of
// a module may use any of its fields. If the trimmed object has more than [MaxStateBytes], TrimAndEncodeState returns
// nil. TrimAndEncodeState changes the object.
func TrimAndEncodeState(object map[string]any) json.RawMessage {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, lastAppliedAnnotation)
		}
	}
	version, _ := object["apiVersion"].(string)
	if spec, ok := object["spec"].(map[string]any); ok && strings.HasPrefix(version, "apps/") {
		delete(spec, "template")
	}
	data, err := json.Marshal(object)
	if err != nil || len(data) > MaxStateBytes {
		return nil
	}
	return data
}
