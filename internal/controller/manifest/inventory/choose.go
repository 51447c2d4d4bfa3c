package inventory

import (
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// ReadinessRefs returns the objects whose readiness decides about the readiness of the module. The field spec.manager
// of a Manifest may name the workload that is the operator of the module. If refs contains the operator, only this
// workload decides, and the result contains no other workload.
func ReadinessRefs(refs []apply.Ref, manager *v1beta2.Manager) []apply.Ref {
	if manager == nil {
		return refs
	}
	isManager := func(r apply.Ref) bool {
		return r.Group == manager.Group && r.Kind == manager.Kind && r.Name == manager.Name &&
			(manager.Namespace == "" || r.Namespace == manager.Namespace)
	}
	if !slices.ContainsFunc(refs, isManager) {
		return refs
	}
	return slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool { return IsWorkload(r) && !isManager(r) })
}

// IsWorkload reports whether an object runs pods, or is a pod.
func IsWorkload(r apply.Ref) bool {
	switch r.Group + "/" + r.Kind {
	case "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet", "apps/ReplicaSet", "batch/Job", "/Pod":
		return true
	}
	return false
}

// CRDs returns the CRDs among refs.
func CRDs(refs []apply.Ref) []apply.Ref {
	return slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool { return r.Kind != "CustomResourceDefinition" })
}
