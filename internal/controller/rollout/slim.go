package rollout

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/dedup"
)

// Slim returns a transformation for the cache of a whole fleet. Slim removes the fields of Kymas and Manifests that the
// coordinator does not need, and stores equal values once. TestSlim measures the size of the objects that Slim has
// reduced.
func Slim() toolscache.TransformFunc {
	share := dedup.Transform()
	return func(raw any) (any, error) { return share(slim(raw)) }
}

// slim removes the fields that the coordinator does not need.
func slim(raw any) any {
	switch o := raw.(type) {
	case *v1beta2.Manifest:
		slimMetadata(&o.ObjectMeta)
		o.Labels = deleteForeignKeys(o.Labels)
		o.Spec = v1beta2.ManifestSpec{Version: o.Spec.Version, Target: o.Spec.Target}
		o.Status = v1beta2.ManifestStatus{State: o.Status.State, Version: o.Status.Version,
			ObservedGeneration: o.Status.ObservedGeneration, Conditions: readyOf(o.Status.Conditions)}
	case *v1beta2.Kyma:
		slimMetadata(&o.ObjectMeta)
		modules := make([]v1beta2.ModuleStatus, len(o.Status.Modules))
		for i, m := range o.Status.Modules {
			modules[i] = v1beta2.ModuleStatus{Name: m.Name, Channel: m.Channel, Reason: m.Reason}
		}
		o.Status = v1beta2.KymaStatus{State: o.Status.State, Conditions: readyOf(o.Status.Conditions), Modules: modules,
			MandatoryModules: o.Status.MandatoryModules, KubernetesVersion: o.Status.KubernetesVersion}
	}
	return raw
}

// slimMetadata removes metadata that the coordinator does not use. slimMetadata keeps our own annotations, and all
// labels, because selectors may use them.
func slimMetadata(m *metav1.ObjectMeta) {
	m.ManagedFields, m.OwnerReferences, m.UID, m.GenerateName = nil, nil, "", ""
	m.Annotations = deleteForeignKeys(m.Annotations)
}

// deleteForeignKeys deletes the labels or annotations whose key does not belong to our API group. The result is the map
// that was passed.
func deleteForeignKeys(all map[string]string) map[string]string {
	maps.DeleteFunc(all, func(key, _ string) bool { return !strings.Contains(key, v1beta2.Group) })
	return all
}

// readyOf returns the condition Ready.
func readyOf(all []metav1.Condition) []metav1.Condition {
	for _, c := range all {
		if c.Type == v1beta2.ConditionReady {
			return []metav1.Condition{c}
		}
	}
	return nil
}
