package rollout

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// Lookups find what decides about a runtime's turn. Both are required. A lookup that fails must make its caller discard
// the decisions that were made with it.
type Lookups struct {
	// Rollout returns a ModuleRollout by its name, or nil if there is none. It must not be changed.
	Rollout func(name string) *v1beta2.ModuleRollout
	// HasPolicy reports whether a RolloutPolicy is for a module and channel.
	HasPolicy func(module, channel string) bool
}

// Turns returns the function for [channel.Catalog.Turn]. The version of a channel for a runtime is the first row that
// fits:
//
//	1  the channel does not move, or moves without a policy      the version in spec
//	2  nothing is known about the channel yet                    the version that was ordered last; none for a new module
//	3  the module is new in the runtime                          the version in spec if the first stage has passed
//	                                                             (newInstallations), else the proven version
//	4  the version in spec was already ordered                   the version in spec
//	5  the rollout runs, and the runtime is admitted             the version in spec
//	6  a higher version than the proven one was ordered          that version: waiting never lowers a version
//	7  otherwise                                                 the proven version
func Turns(find Lookups) func(*v1beta2.ModuleReleaseMeta, channel.Request) channel.Turn {
	return func(release *v1beta2.ModuleReleaseMeta, r channel.Request) channel.Turn {
		of := r.Channel
		if r.Mandatory {
			of = v1beta2.MandatoryChannel
		}
		target, _ := release.Target(of)
		return turnOf(find, release, of, target, r)
	}
}

func turnOf(find Lookups, release *v1beta2.ModuleReleaseMeta, of, target string, r channel.Request) channel.Turn {
	s := release.ChannelStatus(of)
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
	if !isStaged && (active != nil || !find.HasPolicy(release.Name, of)) {
		return channel.Turn{Version: target} // rule 1
	}
	if s == nil || s.Version == "" { // rule 2
		return waiting(r.ManifestVersion, release.Name, of, target,
			"the manager has not recorded yet which version the fleet has: wait")
	}
	if !isStaged {
		return waiting(keep(r, s.Version), release.Name, of, target, "the manager is planning the rollout: wait")
	}
	return turnIn(active, s.Version, release.Name, r)
}

// turnIn returns a runtime's turn in a staged rollout.
func turnIn(active *v1beta2.ModuleRollout, proven, module string, r channel.Request) channel.Turn {
	spec, status := &active.Spec, &active.Status
	isRunning := spec.State == v1beta2.RolloutRunning && status.HaltedAt.IsZero() && !status.Phase.IsOver()
	if r.ManifestVersion == "" { // rule 3
		isHeld := status.Phase == v1beta2.RolloutHeld || status.Phase == v1beta2.RolloutPending
		hasPassed := status.Stage.Index > 0 || status.Phase == v1beta2.RolloutTail
		if spec.NewInstallations != "Proven" && isRunning && !isHeld && hasPassed {
			return channel.Turn{Version: spec.To}
		}
		return waiting(proven, module, spec.Channel, spec.To,
			fmt.Sprintf("new installations get it when the first stage of ModuleRollout %s has passed", active.Name))
	}
	places, err := place.New(active)
	if err == nil && len(spec.Stages) == 0 {
		err = fmt.Errorf("ModuleRollout %s has no stages", active.Name)
	}
	if err != nil {
		return waiting(keep(r, proven), module, spec.Channel, spec.To,
			err.Error()+": correct the RolloutPolicy, and move the channel again")
	}
	at := places.Of(r.Kyma, r.Labels)
	turn := channel.Turn{Version: spec.To, Rollout: active.Name + "/" + spec.Stages[at.Stage].Name,
		RuntimeDeadline: RuntimeDeadline(active), IsCorrection: channel.IsLower(proven, r.ManifestVersion)}
	if r.ManifestVersion == spec.To { // rule 4
		return turn
	}
	if isRunning && at.Stage <= int(status.Stage.Index) && place.IsAdmitted(status.Admitted, at.Token) { // rule 5
		return turn
	}
	return waiting(keep(r, proven), module, spec.Channel, spec.To, waitsIn(active, at))
}

// keep returns the version that a runtime keeps while it waits: rules 6 and 7.
func keep(r channel.Request, proven string) string {
	if channel.IsLower(proven, r.ManifestVersion) {
		return r.ManifestVersion
	}
	return proven
}

// waitsIn states what a runtime waits for in a rollout.
func waitsIn(r *v1beta2.ModuleRollout, at place.Place) string {
	name := r.Spec.Stages[at.Stage].Name
	where := fmt.Sprintf("this runtime is in stage %s of ModuleRollout %s (rank %d %%)", name, r.Name,
		int(at.Rank)*100/place.RankCount)
	current := cmp.Or(r.Status.Stage.Name, "the first one")
	switch {
	case r.Spec.State == v1beta2.RolloutPaused:
		return where + ", which is paused: klm rollout resume " + r.Name
	case r.Spec.State == v1beta2.RolloutAborted:
		return where + ", which was aborted"
	case !r.Status.HaltedAt.IsZero():
		return where + ", which is halted: klm rollout show " + r.Name
	case at.Stage <= int(r.Status.Stage.Index):
		return where + ", which is under way, and its turn comes when a place is free and nothing else blocks it"
	}
	return where + "; the current stage is " + current
}

func waiting(version, module, of, target, why string) channel.Turn {
	return channel.Turn{Version: version, Waiting: &channel.Blocker{
		Code: v1beta2.ReasonWaitingForRollout, Object: "ModuleReleaseMeta " + module, KeepInstalled: true,
		Message: fmt.Sprintf("channel %s of module %s moves to %s; %s", of, module, target, why),
	}}
}

// RuntimeDeadline returns the time that one runtime has to become Ready.
func RuntimeDeadline(r *v1beta2.ModuleRollout) time.Duration {
	return cmp.Or(r.Spec.Defaults.RuntimeDeadline.Duration, DefaultRuntimeDeadline)
}

// IsBroken reports whether a module has not been Ready for as long as a runtime has to become Ready. An update of such
// a module is no evidence about the version.
func IsBroken(m *v1beta2.Manifest, deadline time.Duration, now time.Time) bool {
	if m == nil || isWell(m.Status.State) {
		return false
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady)
	return c != nil && c.Status != metav1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) >= deadline
}
