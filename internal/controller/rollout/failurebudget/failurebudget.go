// Package failurebudget finds the failure that halts a rollout at once, without waiting for the next regular reconcile
// of the coordinator.
//
// # Use
//
//	budgets.CountNewFailure(before, after) // for each change of a Manifest
//	if budgets.TakeExceeded(module) { … } // the module has to be reconciled without a delay
//	budgets.Set(rollout, result.FailuresLeft) // after each reconcile
//
// # How it works
//
// A rollout has to halt soon after the failure that exceeds the limit of its stage, but the coordinator reconciles a
// module at most once in two seconds. Therefore each reconcile records how many failures each stage still allows, and
// between two reconciles the package counts the failures that the events of Manifests show. When the number of failures
// exceeds the allowed number, the coordinator reconciles the module at once. A halt therefore costs one additional
// write of the status; failures within the limit cost no additional write.
//
// # What it does not do
//
// The package does not halt a rollout: the reconcile decides about that, and may find that the failure does not count.
// The package may miss a failure during a reconcile; the next reconcile finds this failure.
package failurebudget

import (
	"maps"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
)

// Budgets has the numbers of failures that do not halt the active rollouts. Budgets is safe for concurrent use, and its
// zero value is empty.
type Budgets struct {
	mu       sync.Mutex
	rollouts map[string]of   // guarded by mu: by name
	exceeded map[string]bool // guarded by mu: the modules for which IsExceeded returns true
}

// of has, for each stage of one rollout, the number of further failures that do not halt the rollout.
type of struct {
	module string
	left   map[string]int
}

// Set records how many further failures do not halt a rollout, by stage. If the map left is nil, failures in the
// rollout are not counted. Set keeps the map left, so the caller must not change it after the call.
func (b *Budgets) Set(r *v1beta2.ModuleRollout, leftByStage map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if leftByStage == nil {
		delete(b.rollouts, r.Name)
		return
	}
	if b.rollouts == nil {
		b.rollouts = map[string]of{}
	}
	b.rollouts[r.Name] = of{module: r.Spec.Module, left: leftByStage}
}

// ForgetInactiveRollouts forgets all rollouts for which isActive returns false.
func (b *Budgets) ForgetInactiveRollouts(isActive func(name string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.rollouts, func(name string, _ of) bool { return !isActive(name) })
}

// CountNewFailure counts a change of a Manifest if the change is a failure: before the change, the version that a
// rollout has requested had not failed.
func (b *Budgets) CountNewFailure(before, after client.Object) {
	was, isManifest := before.(*v1beta2.Manifest)
	is, _ := after.(*v1beta2.Manifest)
	if !isManifest || is == nil || !hasRolloutVersionFailed(is) || hasRolloutVersionFailed(was) {
		return
	}
	name, stage, _ := strings.Cut(is.Annotations[v1beta2.AnnotationRollout], "/")
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rollouts[name]
	left, isKnown := r.left[stage]
	if !isKnown {
		return
	}
	r.left[stage] = left - 1
	if left > 0 {
		return
	}
	delete(r.left, stage) // only the first failure beyond the limit matters
	if b.exceeded == nil {
		b.exceeded = map[string]bool{}
	}
	b.exceeded[r.module] = true
}

// IsExceeded reports whether a failure was counted that a stage of a rollout of the module does not allow. TakeExceeded
// resets this result to false.
func (b *Budgets) IsExceeded(module string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exceeded[module]
}

// TakeExceeded returns the same as IsExceeded, and resets it to false. The coordinator calls TakeExceeded when it
// reconciles the module.
func (b *Budgets) TakeExceeded(module string) (isExceeded bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	isExceeded = b.exceeded[module]
	delete(b.exceeded, module)
	return isExceeded
}

// hasRolloutVersionFailed reports whether the version that a rollout has ordered has failed in a runtime.
func hasRolloutVersionFailed(m *v1beta2.Manifest) bool {
	if m.Status.State != v1beta2.StateError || m.Annotations[v1beta2.AnnotationRollout] == "" {
		return false
	}
	r := rollout.RuntimeOf(&v1beta2.Kyma{}, m)
	return r.IsObserved && !r.IsExcused && evidence.CauseOf(r.Reason) == evidence.CauseVersion
}
