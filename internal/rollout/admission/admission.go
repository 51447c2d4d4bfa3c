// Package admission decides to which version a channel is resolved for one runtime during a rollout.
//
// # Use
//
//	catalog.Turn = admission.NewTurnFunc(admission.Lookups{…})
//
// # How it works
//
// The status of a rollout names the runtimes that may begin. All other runtimes keep their version, and get a message
// that states what they wait for. A runtime that waits never gets a lower version.
//
// # What it does not do
//
// The package ignores all other reasons for which a version can be blocked, such as maintenance windows and missing
// rights. Package channel decides about them.
package admission

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// Lookups return the objects that decide whether a runtime may begin with its update. The fields Rollout and HasPolicy
// must be set. The functions cannot return an error. If a lookup fails, the package that provides the function must
// discard all decisions that were made with the Lookups.
type Lookups struct {
	// Rollout returns a ModuleRollout by its name, or nil if there is none. The caller must not change the
	// ModuleRollout.
	Rollout func(name string) *v1beta2.ModuleRollout
	// HasPolicy reports whether there is a RolloutPolicy for the given module and channel.
	HasPolicy func(module, channel string) bool
}

// NewTurnFunc returns a function that chooses the version of a channel for one runtime. The caller stores the returned
// function in the field [channel.Catalog.Turn]. The first row whose condition is true decides. turnWhileTakingBack has
// another table for channels whose runtimes are taken back to a lower version:
//
//	1  the channel does not move, or moves without a policy      the version in spec
//	2  nothing is known about the channel yet                    the version that was ordered last; none for a new module
//	3  the module is new in the runtime                          the version in spec if a stage with proven runtimes has
//	                                                             passed (newInstallations), or if the channel moves to
//	                                                             a lower version and the rollout is neither halted nor
//	                                                             over; else the proven version
//	4  the version in spec was already ordered                   the version in spec
//	5  the rollout runs, and the runtime is admitted             the version in spec
//	6  a higher version than the proven one was ordered          that version: waiting never lowers a version
//	7  the channel moves to a lower version than the proven one  the version that was ordered last: nobody gets the
//	                                                             version that people leave, which often has no way back
//	8  otherwise                                                 the proven version
func NewTurnFunc(find Lookups) func(*v1beta2.ModuleReleaseMeta, channel.Request) channel.Turn {
	return func(release *v1beta2.ModuleReleaseMeta, r channel.Request) channel.Turn {
		of := r.Channel
		if r.Mandatory {
			of = v1beta2.MandatoryChannel
		}
		target, _ := release.Current(of)
		return turnOf(find, release, of, target, r)
	}
}

func turnOf(find Lookups, release *v1beta2.ModuleReleaseMeta, of, target string, r channel.Request) channel.Turn {
	s := release.ChannelStatus(of)
	if s != nil && s.TakingBack != "" && s.Version == target {
		return turnWhileTakingBack(find.Rollout(s.Rollout), s, release.Name, r)
	}
	if s != nil && s.TakenBack != "" && s.Version == target && channel.IsLower(target, r.ManifestVersion) {
		return waitingTurn(r.ManifestVersion, release.Name, of, target, fmt.Sprintf(
			"version %s was halted and taken back where it failed; this runtime keeps %s until the channel is moved to "+
				"another version", s.TakenBack, r.ManifestVersion))
	}
	if why := whyDowngradeWaits(find, release, s, of, target, r); why != "" {
		return waitingTurn(r.ManifestVersion, release.Name, of, target, why)
	}
	if s != nil && s.Version == target && s.Target != target && r.ManifestVersion != "" {
		return waitingTurn(keptVersion(r, target, target), release.Name, of, target,
			"the manager has not recorded yet that it was set back: wait")
	}
	if s != nil && s.Version == target || target == "" {
		return channel.Turn{Version: target} // rule 1
	}
	var active *v1beta2.ModuleRollout
	if s != nil && s.Target == target && s.Rollout != "" {
		if active = find.Rollout(s.Rollout); active != nil && active.Spec.To != target {
			active = nil
		}
	}
	isStaged := active != nil && active.Spec.Policy != ""
	// The status names the policy of a move in stages even if its rollout and its policy were deleted.
	wasStaged := s != nil && s.Target == target && s.Policy != ""
	if !isStaged && (active != nil || !wasStaged && !find.HasPolicy(release.Name, of)) {
		return channel.Turn{Version: target} // rule 1
	}
	if s == nil || s.Version == "" { // rule 2
		return waitingTurn(r.ManifestVersion, release.Name, of, target,
			"the manager has not recorded yet which version the fleet has: wait")
	}
	if !isStaged && r.ManifestVersion == "" && channel.IsLower(target, s.Version) { // rule 3
		return channel.Turn{Version: target}
	}
	if !isStaged {
		return waitingTurn(keptVersion(r, s.Version, target), release.Name, of, target,
			"the manager is planning the rollout: wait")
	}
	return turnInStages(active, s.Version, release.Name, r)
}

// whyDowngradeWaits returns what a runtime waits for if it has a higher version of a mandatory module than the spec of
// the release, and the annotation of the release allows downgrades in all runtimes. Without this check, the annotation
// would downgrade the whole fleet at once. whyDowngradeWaits returns "" in all other cases, and if the last move was a
// rollout back that has completed: the remaining runtimes follow when they can. The coordinator makes no rollout for a
// runtime with a version that was found after a restore, so this runtime does not wait.
func whyDowngradeWaits(find Lookups, release *v1beta2.ModuleReleaseMeta, s *v1beta2.ChannelStatus, of, target string,
	r channel.Request) string {
	if s == nil || s.Version != target || s.Target != target || r.IsRestored ||
		!channel.AllowsMandatoryDowngrade(release) || !channel.IsLower(target, r.ManifestVersion) {
		return ""
	}
	switch {
	case AwaitsAllowedDowngrade(release, s) && find.HasPolicy(release.Name, of):
		return "the manager is planning the rollout back: wait"
	case len(s.History) > 0 && s.History[len(s.History)-1].Outcome == v1beta2.RolloutEndedAborted:
		return fmt.Sprintf("the rollout back was aborted; this runtime keeps %s until the module is moved to another "+
			"version", r.ManifestVersion)
	}
	return ""
}

// AwaitsAllowedDowngrade reports whether the coordinator has to make a rollout back if there is a policy, and if
// runtimes have a higher version of a mandatory module than its proven version. This is the case if a person has
// allowed downgrades of the module in all runtimes after the move to the lower version: that move was no rollout back.
func AwaitsAllowedDowngrade(release *v1beta2.ModuleReleaseMeta, s *v1beta2.ChannelStatus) bool {
	return channel.AllowsMandatoryDowngrade(release) && s.Version != "" && s.Rollout == "" && s.Version == s.Target &&
		(len(s.History) == 0 || s.History[len(s.History)-1].Direction != v1beta2.RolloutBack)
}

// turnWhileTakingBack chooses the version of a channel for one runtime while a rollout takes the runtimes back to a
// lower version. The first row whose condition is true decides:
//
//	1  the module is new in the runtime, or has a lower version, or the version in spec
//	   there are no stages, and the downgrade is allowed there
//	2  the version in spec was already ordered by this rollout      the version in spec
//	3  it has the version that is taken back, and is admitted, or   the version in spec
//	   there are no stages, and it fails or all are taken back
//	4  otherwise                                                    the version that was ordered last
func turnWhileTakingBack(active *v1beta2.ModuleRollout, s *v1beta2.ChannelStatus, module string,
	r channel.Request) channel.Turn {
	is := channel.Turn{Version: s.Version}
	if !channel.IsLower(s.Version, channel.Highest(r.ManifestVersion, r.Installed)) { // row 1
		return is
	}
	wait := func(why string) channel.Turn {
		return waitingTurn(r.ManifestVersion, module, s.Channel, s.Version, why)
	}
	if active == nil || !active.Spec.IsRollback() || active.Spec.To != s.Version {
		return wait("the manager is planning the way back: wait")
	}
	if r.ManifestVersion != s.Version && r.ManifestVersion != active.Spec.From {
		if len(active.Spec.Stages) == 0 && r.AllowDowngrade {
			return is
		}
		return wait(fmt.Sprintf("ModuleRollout %s takes back %s only", active.Name, active.Spec.From))
	}
	is.IgnoreWindows = active.Spec.IgnoreWindows
	is.IsBack, is.IsCorrection, is.RuntimeDeadline = true, true, RuntimeDeadline(active)
	spec, status := &active.Spec, &active.Status
	isRunning := spec.State == v1beta2.RolloutRunning && status.HaltedAt.IsZero() && !status.Phase.IsOver()
	if len(spec.Stages) == 0 {
		is.Rollout = active.Name
		switch {
		case r.ManifestVersion == s.Version:
			return is
		case !isRunning:
			return wait("ModuleRollout " + active.Name + " does not go on: klm rollout show " + active.Name)
		case spec.OnlyFailed && !r.IsFailing:
			return wait(fmt.Sprintf("ModuleRollout %s takes back only the runtimes in which %s fails", active.Name,
				spec.From))
		}
		return is
	}
	places, err := place.New(active)
	if err != nil {
		return wait(err.Error())
	}
	at := places.Of(r.Kyma, r.Labels)
	is.Rollout = active.Name + "/" + spec.Stages[at.Stage].Name
	if r.ManifestVersion == s.Version || isRunning && place.IsAdmitted(status.Admitted, at.Token) { // rows 2 and 3
		return is
	}
	return wait(waitMessage(active, at))
}

// turnInStages returns the version for a runtime in a rollout with stages.
func turnInStages(active *v1beta2.ModuleRollout, provenVersion, module string, r channel.Request) channel.Turn {
	spec, status := &active.Spec, &active.Status
	isRunning := spec.State == v1beta2.RolloutRunning && status.HaltedAt.IsZero() && !status.Phase.IsOver()
	if r.ManifestVersion == "" { // rule 3
		isHeld := status.Phase == v1beta2.RolloutHeld || status.Phase == v1beta2.RolloutPending
		isStopped := !status.HaltedAt.IsZero() || status.Phase.IsOver() || spec.State == v1beta2.RolloutAborted
		if spec.NewInstallations != "Proven" && isRunning && !isHeld && hasProvenStagePassed(status) ||
			!isStopped && channel.IsLower(spec.To, provenVersion) {
			return channel.Turn{Version: spec.To}
		}
		return waitingTurn(provenVersion, module, spec.Channel, spec.To, fmt.Sprintf(
			"new installations get it when a stage of ModuleRollout %s has passed with proven runtimes", active.Name))
	}
	places, err := place.New(active)
	if err == nil && len(spec.Stages) == 0 {
		err = fmt.Errorf("ModuleRollout %s has no stages", active.Name)
	}
	if err != nil {
		return waitingTurn(keptVersion(r, provenVersion, spec.To), module, spec.Channel, spec.To,
			err.Error()+": correct the RolloutPolicy, and move the channel again")
	}
	at := places.Of(r.Kyma, r.Labels)
	is := channel.Turn{Version: spec.To, Rollout: active.Name + "/" + spec.Stages[at.Stage].Name,
		IgnoreWindows:   spec.IgnoreWindows,
		RuntimeDeadline: RuntimeDeadline(active), IsCorrection: channel.IsLower(provenVersion, r.ManifestVersion) ||
			channel.IsLower(r.ManifestVersion, r.Installed)}
	if most := spec.MaxDeferral.Duration; most > 0 {
		is.DeferUntil = active.CreationTimestamp.Add(most)
	}
	if r.ManifestVersion == spec.To { // rule 4
		return is
	}
	if isRunning && at.Stage <= int(status.Stage.Index) && place.IsAdmitted(status.Admitted, at.Token) { // rule 5
		return is
	}
	why := waitMessage(active, at)
	if until, _ := channel.DeferredUntil(r, is.DeferUntil); !until.IsZero() {
		why += "; its admin has deferred it until " + until.UTC().Format(time.RFC3339)
	}
	return waitingTurn(keptVersion(r, provenVersion, spec.To), module, spec.Channel, spec.To, why)
}

// hasProvenStagePassed reports whether a stage has passed in which enough runtimes were proven, or all stages have
// passed. A stage without runtimes also passes, but it proves nothing about the version.
func hasProvenStagePassed(status *v1beta2.ModuleRolloutStatus) bool {
	return status.Phase == v1beta2.RolloutTail || slices.ContainsFunc(status.Stages,
		func(s v1beta2.RolloutStageResult) bool { return s.Passed && !s.ProvenAt.IsZero() })
}

// keptVersion returns the version of a runtime that is not admitted yet: rows 6 to 8 of the table at the function
// NewTurnFunc.
func keptVersion(r channel.Request, provenVersion, target string) string {
	isDown := r.ManifestVersion != "" && channel.IsLower(target, provenVersion)
	if isDown || channel.IsLower(provenVersion, r.ManifestVersion) {
		return r.ManifestVersion
	}
	return provenVersion
}

// waitMessage returns a text about what a runtime waits for in a rollout.
func waitMessage(r *v1beta2.ModuleRollout, at place.Place) string {
	name := r.Spec.Stages[at.Stage].Name
	where := fmt.Sprintf("this runtime is in stage %s of ModuleRollout %s (rank %d %%%s)", name, r.Name,
		int(at.Rank)*100/place.RankCount, urgencySuffix(r))
	current := cmp.Or(r.Status.Stage.Name, "the first one")
	switch {
	case r.Spec.State == v1beta2.RolloutPaused:
		return where + ", which is paused: klm rollout resume " + r.Name
	case r.Spec.State == v1beta2.RolloutAborted:
		return where + ", which was aborted"
	case !r.Status.HaltedAt.IsZero():
		return where + ", which is halted: klm rollout show " + r.Name
	}
	by := ""
	if eta := r.Status.ETA; !eta.IsZero() {
		by = "; all runtimes are expected to have it by " + eta.UTC().Format(time.RFC3339)
	}
	if at.Stage <= int(r.Status.Stage.Index) {
		return where + ", which is under way: the runtime is admitted when a slot is free and nothing else blocks it" + by
	}
	return where + "; the current stage is " + current + by
}

// urgencySuffix returns the urgency of a rollout and the reason, as the end of a message. For a normal rollout,
// urgencySuffix returns "".
func urgencySuffix(r *v1beta2.ModuleRollout) string {
	switch r.Spec.Urgency {
	case v1beta2.UrgencyHotfix:
		return "; it is a hotfix: " + r.Spec.UrgencyReason
	case v1beta2.UrgencyEmergency:
		return "; it is an emergency: " + r.Spec.UrgencyReason
	}
	return ""
}

func waitingTurn(version, module, channelName, target, why string) channel.Turn {
	return channel.Turn{Version: version, Waiting: &channel.Blocker{
		Code: v1beta2.ReasonWaitingForRollout, Object: "ModuleReleaseMeta " + module, KeepInstalled: true,
		Message: fmt.Sprintf("channel %s of module %s moves to %s; %s", channelName, module, target, why),
	}}
}

// DefaultRuntimeDeadline is the time that a runtime has to become Ready if the policy has none.
const DefaultRuntimeDeadline = 30 * time.Minute

// RuntimeDeadline returns the time that one runtime has to become Ready.
func RuntimeDeadline(r *v1beta2.ModuleRollout) time.Duration {
	return cmp.Or(r.Spec.Defaults.RuntimeDeadline.Duration, DefaultRuntimeDeadline)
}
