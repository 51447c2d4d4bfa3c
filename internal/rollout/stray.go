package rollout

import (
	"fmt"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Stray is a stray rollout: an active rollout to which no channel refers any more. A stray rollout has to be ended,
// because it would use slots of other rollouts.
type Stray struct {
	// Rollout is the rollout.
	Rollout *v1beta2.ModuleRollout
	// Phase is the phase with which the rollout ends, and Why is the message for users.
	Phase v1beta2.RolloutPhase
	Why   string
}

// Strays returns the active rollouts of a module to which no channel refers. The first row of the table whose condition
// is true decides how a rollout ends:
//
//	1  it is being deleted                                  Aborted; it is made again when it does not exist any more
//	2  the status of the release names it                   no stray
//	3  its channel is not in the spec of the release        Aborted
//	4  it is the last one that a manager made and did not   no stray yet: PlanMove adopts it, or states why it has to end
//	   record, see Unrecorded
//	5  otherwise                                            Superseded: the status was lost, or names a later rollout
//
// If a channel was removed, its rollout is ended only after the status of the release no longer contains the rollout.
// If a person adds the channel to the release again, the channel therefore starts with a new status, and does not wait
// for the rollout that has ended.
func Strays(release *v1beta2.ModuleReleaseMeta, channels []string, rollouts []v1beta2.ModuleRollout) []Stray {
	var all []Stray
	for i := range rollouts {
		r := &rollouts[i]
		if r.Status.Phase.IsOver() || r.Spec.Module != release.Name {
			continue
		}
		is := Stray{Rollout: r, Phase: v1beta2.RolloutEndedAborted}
		s := release.ChannelStatus(r.Spec.Channel)
		switch {
		case !r.DeletionTimestamp.IsZero():
			is.Why = "the ModuleRollout is being deleted: nobody begins any more"
		case s != nil && s.Rollout == r.Name:
			continue
		case !slices.Contains(channels, r.Spec.Channel):
			is.Why = fmt.Sprintf("channel %s was removed from ModuleReleaseMeta %s: nobody begins any more; what has begun "+
				"finishes and stays", r.Spec.Channel, release.Name)
		case r == Unrecorded(release, r.Spec.Channel, rollouts):
			continue
		default:
			is.Phase = v1beta2.RolloutSuperseded
			is.Why = fmt.Sprintf("the status of ModuleReleaseMeta %s does not name it: another rollout takes its place",
				release.Name)
		}
		all = append(all, is)
	}
	return all
}

// Unrecorded returns the rollout that a manager created for the last move of a channel, but did not record in the
// status of the release. A rollout stays unrecorded if the manager process ends, or if a user changes the release,
// after the rollout was created and before the status is written. If there is no unrecorded rollout, Unrecorded returns
// nil. If the channel has no status, Unrecorded also returns nil: the status may have been lost, and then a rollout
// that has begun must not continue by itself.
func Unrecorded(release *v1beta2.ModuleReleaseMeta, channel string,
	rollouts []v1beta2.ModuleRollout) *v1beta2.ModuleRollout {
	s := release.ChannelStatus(channel)
	if s == nil || s.Version == "" {
		return nil
	}
	var last *v1beta2.ModuleRollout
	for i := range rollouts {
		r := &rollouts[i]
		if r.Spec.Module == release.Name && r.Spec.Channel == channel && r.Spec.Revision > s.Revision &&
			(last == nil || r.Spec.Revision > last.Spec.Revision) {
			last = r
		}
	}
	if last == nil || last.Status.Phase.IsOver() || !last.DeletionTimestamp.IsZero() || last.Name == s.Rollout ||
		last.Name != Name(release.Name, channel, last.Spec.Revision) {
		return nil
	}
	return last
}

// RefusedStrays returns a list with one Stray for the unrecorded rollout, if PlanMove does not adopt that rollout. The
// parameter why is [Recorded].Refused, the reason against the adoption. If unrecorded is nil or why is "", the list is
// empty.
func RefusedStrays(unrecorded *v1beta2.ModuleRollout, why string) []Stray {
	if unrecorded == nil || why == "" {
		return nil
	}
	return []Stray{{Rollout: unrecorded, Phase: v1beta2.RolloutSuperseded, Why: fmt.Sprintf("ModuleReleaseMeta %s was "+
		"changed, or the manager ended, before this rollout was recorded; %s", unrecorded.Spec.Module, why)}}
}
