package rollout

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Slim removes from a Kyma or Manifest what the coordinator does not need, so that the cache of a whole fleet stays
// small.
func Slim(raw any) (any, error) {
	switch o := raw.(type) {
	case *v1beta2.Manifest:
		o.ManagedFields, o.OwnerReferences = nil, nil
		o.Spec = v1beta2.ManifestSpec{Version: o.Spec.Version, Target: o.Spec.Target}
		o.Status = v1beta2.ManifestStatus{State: o.Status.State, Version: o.Status.Version,
			ObservedGeneration: o.Status.ObservedGeneration, Conditions: readyOf(o.Status.Conditions)}
	case *v1beta2.Kyma:
		o.ManagedFields, o.OwnerReferences = nil, nil
		modules := make([]v1beta2.ModuleStatus, len(o.Status.Modules))
		for i, m := range o.Status.Modules {
			modules[i] = v1beta2.ModuleStatus{Name: m.Name, Channel: m.Channel, Reason: m.Reason}
		}
		o.Status = v1beta2.KymaStatus{State: o.Status.State, Conditions: readyOf(o.Status.Conditions), Modules: modules,
			MandatoryModules: o.Status.MandatoryModules}
	}
	return raw, nil
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
