package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/urgency"
)

// Defaults of a policy.
const (
	DefaultProgressDeadline = 14 * 24 * time.Hour
	defaultMinProven        = "95%"
	defaultMaxLost          = "2%"
	defaultConcurrency      = "10%"
)

// Name returns the name of the ModuleRollout for one move of a channel to another version.
func Name(module, channel string, revision int64) string {
	return fmt.Sprintf("%s-%s-r%d", module, channel, revision)
}

// PolicyConflict means that two policies match the same module and channel and are equally specific.
type PolicyConflict struct {
	// Module and Channel identify the channel that the conflicting policies match.
	Module, Channel string
	// Policies are the names of the policies.
	Policies []string
}

// Error names the policies and states the remedy.
func (e *PolicyConflict) Error() string {
	return fmt.Sprintf("RolloutPolicies %s are equally exact for module %s in channel %s: exclude the module or the channel "+
		"from all but one", strings.Join(e.Policies, " and "), e.Module, e.Channel)
}

// PolicyFor returns the policy for a module and channel, or nil if there is none. If several policies match, PolicyFor
// returns the most specific one. If two policies are equally specific, the error is a [PolicyConflict], and no runtime
// may be admitted.
func PolicyFor(policies []v1beta2.RolloutPolicy, module, channel string) (*v1beta2.RolloutPolicy, error) {
	var found []*v1beta2.RolloutPolicy
	best := 1
	for i := range policies {
		p := &policies[i]
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		switch is := p.MatchPrecedence(module, channel); {
		case is < best:
		case is > best:
			found, best = []*v1beta2.RolloutPolicy{p}, is
		default:
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	conflict := &PolicyConflict{Module: module, Channel: channel}
	for _, p := range found {
		conflict.Policies = append(conflict.Policies, p.Name)
	}
	slices.Sort(conflict.Policies)
	return nil, conflict
}

// Move describes a move of a channel.
type Move struct {
	// Namespace is the namespace of the rollout.
	Namespace string
	// Module and Channel together identify the channel that is moved. Channel is v1beta2.MandatoryChannel for a
	// mandatory module.
	Module, Channel string
	// From is the proven version. To is the new version, which differs from From.
	From, To string
	// Revision is the number of this move; each move of the channel increases the number.
	Revision int64
	// Lineage is the salt of the hash that gives each runtime its rank, which is its position in the order of updates.
	// A rollout that supersedes another rollout copies its lineage, so that the same runtimes are updated first.
	// Lineage is "" if the new rollout supersedes no other rollout.
	Lineage string
	// IsBack means that runtimes with the version From are taken back to the lower version To.
	IsBack bool
	// OnlyFailed means that only runtimes in which From has failed are taken back.
	OnlyFailed bool
	// Urgency states whether and how the rollout of this move is sped up, as a person has declared it in the release.
	Urgency urgency.Urgency
	// Policy is the policy, nil if there is none.
	Policy *v1beta2.RolloutPolicy
	// Fleet is the number of runtimes in the channel. Fleet is used for a stage with minCount, to compute the share of
	// the fleet that contains at least minCount runtimes.
	Fleet int
}

// New returns the ModuleRollout of a move, without a status.
func New(m Move) *v1beta2.ModuleRollout {
	r := &v1beta2.ModuleRollout{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: Name(m.Module, m.Channel, m.Revision)},
		Spec: v1beta2.ModuleRolloutSpec{
			Module: m.Module, Channel: m.Channel, From: m.From, To: m.To, Revision: m.Revision,
			Lineage: m.Lineage, State: v1beta2.RolloutRunning, Urgency: m.Urgency.Is,
			UrgencyReason: m.Urgency.Reason, IgnoreWindows: m.Urgency.IgnoreWindows,
		},
	}
	if r.Spec.Lineage == "" {
		r.Spec.Lineage = m.Module + "/" + m.Channel + "/" + m.To
	}
	if m.IsBack {
		r.Spec.Direction, r.Spec.OnlyFailed = v1beta2.RolloutBack, m.OnlyFailed
	}
	if m.Policy == nil {
		return r
	}
	r.Spec.Policy, r.Spec.Defaults = m.Policy.Name, m.Policy.Spec.Defaults
	r.Spec.NewInstallations, r.Spec.MaxUpdating = m.Policy.Spec.NewInstallations, m.Policy.Spec.MaxUpdating
	if m.IsBack {
		r.Spec.Stages = stagesBack(m.Policy)
		return r
	}
	r.Spec.MaxDeferral = m.Policy.Spec.MaxDeferral
	r.Spec.OnHalt = m.Policy.Spec.OnHalt
	ranks := int32(0)
	for i := range m.Policy.Spec.Stages {
		s := v1beta2.ModuleRolloutStage{RolloutStage: *m.Policy.Spec.Stages[i].DeepCopy()}
		if !urgency.ShortenOrSkipStage(&s.RolloutStage, m.Urgency.Is, m.Policy.Spec.Hotfix) {
			continue
		}
		switch {
		case s.Selector != nil:
		case i == len(m.Policy.Spec.Stages)-1:
			s.Ranks = place.RankCount
		default:
			ranks = max(ranks, rankCountFor(s.Percent, s.MinCount, m.Fleet))
			s.Ranks = ranks
		}
		r.Spec.Stages = append(r.Spec.Stages, s)
	}
	return r
}

// stageBack is the name of the only stage of a rollout to a lower version.
const stageBack = "back"

// stagesBack returns the only stage of a rollout to a lower version. The only stage contains all runtimes of the
// channel and has the limits of the last stage of the policy. The stage of a rollout to a lower version has no soak and
// no gates, because runtimes must get the lower version back faster than they got the higher one.
func stagesBack(policy *v1beta2.RolloutPolicy) []v1beta2.ModuleRolloutStage {
	if len(policy.Spec.Stages) == 0 {
		return nil
	}
	last := policy.Spec.Stages[len(policy.Spec.Stages)-1].DeepCopy()
	return []v1beta2.ModuleRolloutStage{{Ranks: place.RankCount, RolloutStage: v1beta2.RolloutStage{Name: stageBack,
		MaxConcurrency: last.MaxConcurrency, MaxStartsPerMinute: last.MaxStartsPerMinute, MaxFailures: last.MaxFailures,
		ProgressDeadline: last.ProgressDeadline}}}
}

// rankCountFor is used for a stage that updates a percentage of the fleet. rankCountFor returns how many of all
// possible ranks (hash values of runtimes) belong to this stage. If this number of ranks is expected to contain fewer
// than minCount runtimes, rankCountFor returns the larger number of ranks that is expected to contain minCount
// runtimes.
func rankCountFor(percent, minCount int32, fleet int) int32 {
	ranks := int64(percent) * place.RankCount / 100
	if fleet > 0 {
		ranks = max(ranks, (int64(minCount)*place.RankCount+int64(fleet)-1)/int64(fleet))
	} else if minCount > 0 {
		ranks = place.RankCount
	}
	return int32(max(1, min(ranks, place.RankCount)))
}

// Concurrency returns the number of runtimes of a stage that may be updated at the same time, at least 1. runtimes is
// the number of runtimes of the stage.
func Concurrency(s *v1beta2.RolloutStage, runtimes int) int {
	return max(1, cmp.Or(scaledOrZero(s.MaxConcurrency, runtimes, true), share(defaultConcurrency, runtimes, true)))
}

// AllowedFailures returns the number of runtimes of a stage that may fail before the rollout is halted.
func AllowedFailures(s *v1beta2.RolloutStage, runtimes int) int {
	return scaledOrZero(s.MaxFailures, runtimes, false)
}
