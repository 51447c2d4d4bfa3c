package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// DeferralLimit returns the time until which admins of runtimes may defer a rollout, or zero. r is the rollout, nil if
// it was not made yet; then policy is the policy with which it will be made, nil if there is none.
func DeferralLimit(r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy, now time.Time) time.Time {
	most := time.Duration(0)
	switch {
	case r != nil:
		if most = r.Spec.MaxDeferral.Duration; !r.CreationTimestamp.IsZero() {
			now = r.CreationTimestamp.Time
		}
	case policy != nil:
		most = policy.Spec.MaxDeferral.Duration
	}
	if most <= 0 {
		return time.Time{}
	}
	return now.Add(most)
}

// HoldOf returns what a policy keeps a rollout from now: a suspension or a freeze, or nil. It also returns the time
// until that changes by itself, or 0. policy is nil if the rollout has none, or if it does not exist any more.
func HoldOf(policy *v1beta2.RolloutPolicy, r *v1beta2.ModuleRollout, now time.Time) (*v1beta2.RolloutBlocker,
	time.Duration) {
	if policy == nil {
		return nil, 0
	}
	object := "RolloutPolicy " + policy.Name
	var current *v1beta2.RolloutFreeze
	change := time.Duration(0)
	for i := range policy.Spec.Freezes {
		f := &policy.Spec.Freezes[i]
		at := f.To.Time
		switch {
		case isExcepted(f, r), !now.Before(f.To.Time):
			continue
		case now.Before(f.From.Time):
			at = f.From.Time
		case current == nil || current.To.Before(&f.To):
			current = f
		}
		if left := at.Sub(now); change == 0 || left < change {
			change = left
		}
	}
	switch {
	case policy.Spec.Suspend:
		return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonRolloutSuspended, Object: object,
			Message: object + " suspends all its rollouts", Remedy: fmt.Sprintf(
				`kubectl -n %s patch rolloutpolicy %s --type merge -p '{"spec":{"suspend":false}}'`, r.Namespace,
				policy.Name)}, change
	case current != nil:
		return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonRolloutFrozen, Object: object,
			Message: fmt.Sprintf("%s has the freeze %s until %s: nobody begins before", object, current.Name,
				current.To.UTC().Format(time.RFC3339)),
			Remedy: "wait, or shorten it in spec.freezes of " + object}, change
	}
	return nil, change
}

// isExcepted reports whether a freeze does not stop a rollout.
func isExcepted(f *v1beta2.RolloutFreeze, r *v1beta2.ModuleRollout) bool {
	return slices.Contains(f.Except, v1beta2.FreezeException(r.Spec.Urgency)) ||
		r.Spec.IsBack() && slices.Contains(f.Except, v1beta2.ExceptBack)
}
