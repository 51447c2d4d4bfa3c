package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// DeferrableUntil returns the time until which admins of runtimes may defer a rollout, or zero. The parameter r is the
// rollout, or nil if it was not made yet. If r is nil, policy is the policy from which the rollout will be made, or nil
// if there is none.
func DeferrableUntil(r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy, now time.Time) time.Time {
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

// HoldOfPolicy returns the suspension or the freeze of a policy that holds a rollout now, or nil. The second result is
// the time until the next beginning or end of a freeze; 0 means that no freeze begins or ends. The parameter policy is
// the policy that is [PolicyInForce] for the rollout. If no policy is in force any more, a suspension or a freeze stays
// until a person resumes the rollout, because deleting a policy must not end its suspensions and freezes.
func HoldOfPolicy(policy *v1beta2.RolloutPolicy, r *v1beta2.ModuleRollout, now time.Time) (hold *v1beta2.RolloutBlocker,
	untilChange time.Duration) {
	if policy == nil {
		return holdOfDeletedPolicy(r), 0
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
		r.Spec.IsRollback() && slices.Contains(f.Except, v1beta2.ExceptBack)
}

// holdOfDeletedPolicy returns the suspension or the freeze of a rollout whose policy does not exist any more, or nil.
func holdOfDeletedPolicy(r *v1beta2.ModuleRollout) *v1beta2.RolloutBlocker {
	if r.Spec.Policy == "" || len(r.Spec.Resumptions) > int(r.Status.Resumptions) {
		return nil
	}
	for _, b := range r.Status.Blockers {
		switch b.Code {
		case v1beta2.ReasonRolloutSuspended, v1beta2.ReasonRolloutFrozen, v1beta2.ReasonPolicyDeleted:
			return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPolicyDeleted, Object: "RolloutPolicy " + r.Spec.Policy,
				Message: fmt.Sprintf("RolloutPolicy %s was deleted while it stopped the rollout", r.Spec.Policy),
				Remedy:  fmt.Sprintf("create the policy again, or: klm rollout resume %s --reason=…", r.Name)}
		}
	}
	return nil
}

// PolicyInForce returns the policy that can suspend, freeze and limit a rollout now. PolicyInForce returns the policy
// from which the rollout was made. If the policy from which the rollout was made does not exist any more, for example
// because it was renamed, PolicyInForce returns the policy that applies to the channel now. If no policy applies to the
// channel, PolicyInForce returns nil.
func PolicyInForce(policies []v1beta2.RolloutPolicy, r *v1beta2.ModuleRollout) *v1beta2.RolloutPolicy {
	if r.Spec.Policy == "" {
		return nil
	}
	for i := range policies {
		if policies[i].Name == r.Spec.Policy {
			return &policies[i]
		}
	}
	policy, err := PolicyFor(policies, r.Spec.Module, r.Spec.Channel)
	if err != nil {
		return nil
	}
	return policy
}

// MaxUpdating returns the number of runtimes that the rollouts of a policy may update at the same time, 0 if it is not
// limited. policy is the policy that is [PolicyInForce]. If no policy is in force any more, the former limit stays.
func MaxUpdating(policy *v1beta2.RolloutPolicy, r *v1beta2.ModuleRollout) int {
	if policy == nil {
		return int(r.Spec.MaxUpdating)
	}
	return int(policy.Spec.MaxUpdating)
}
