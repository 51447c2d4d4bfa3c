package rollout

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/urgency"
)

// maxHistory is the maximum number of moves of each channel in the status of a release.
const maxHistory = 10

// Channel has the inputs of PlanMove about one channel of a module.
type Channel struct {
	// Release is the release of the module, and Name the name of the channel or v1beta2.MandatoryChannel.
	Release *v1beta2.ModuleReleaseMeta
	Name    string
	// Policy is the policy for the channel, nil if there is none.
	Policy *v1beta2.RolloutPolicy
	// Active is the rollout that the status names. Active is nil if the status names none, or if that rollout does not
	// exist.
	Active *v1beta2.ModuleRollout
	// Unrecorded is a rollout that a manager created and did not record in the status of the release, see the function
	// Unrecorded. nil means that there is no such rollout.
	Unrecorded *v1beta2.ModuleRollout
	// Urgency is the urgency that the release declares for the move to the version in its spec, see urgency.Of.
	Urgency urgency.Urgency
	// Runtimes are all runtimes that have the module in the channel.
	Runtimes []Runtime
	// GoesBack returns the reason why a downgrade from a version to a lower one is not safe, or nil if it is safe. If
	// the field GoesBack is nil, PlanMove treats every downgrade as unsafe. If a person has allowed downgrades of a
	// mandatory module, see channel.AllowsMandatoryDowngrade, the person may set it back to any lower version.
	GoesBack func(from, to string) error
	// By returns the field manager that wrote the version in the spec of the release, or "" if the field manager is not
	// known. PlanMove calls the function in the field By only if somebody has moved the channel. If the field By is
	// nil, the field manager of every move is unknown.
	By func() string
	// LastRevision is the highest revision of the existing rollouts of the channel.
	LastRevision int64
	// Now is the current time.
	Now time.Time
}

// Recorded is the result of PlanMove. A Recorded states what the caller has to write: the rollout to create, the
// version to withdraw, and the status of the channel.
type Recorded struct {
	// Status is the next status of the channel.
	Status v1beta2.ChannelStatus
	// Make is the rollout to make before the status is written, nil if there is none.
	Make *v1beta2.ModuleRollout
	// Refused is the reason why PlanMove does not adopt the rollout in Channel.Unrecorded. The caller has to end this
	// rollout in phase Superseded before it writes anything else. Refused is "" if Channel.Unrecorded is nil, or if
	// PlanMove has adopted the rollout.
	Refused string
	// Withdraw is the version to withdraw before anything else is written, "" if there is none.
	Withdraw string
	// Ended is the final phase of the active rollout, or "" if the active rollout continues. The caller writes the
	// final phase before the status of the channel. Why is the message for users about the final phase.
	Ended v1beta2.RolloutPhase
	Why   string
}

// PlanMove compares the version of a channel in the spec of a release with the status of this channel, to find out
// whether the channel was moved and which rollout has to be created, ended or recorded. The first row of the table
// whose condition is true decides what PlanMove does:
//
//	1  the channel has no status                      the version that the fleet has is the proven one; see initial
//	2  the active rollout has ended                   its outcome is recorded; after Completed its version is the proven one
//	3  the version in spec is the target in status    nothing; a rollout that was deleted is made again, and is paused
//	4  the same, and the move became more urgent      a new rollout to the same version, unless the active one is paused or
//	                                                  halted; also if the manager was interrupted, see wasActiveEndedByUnrecordedMove
//	5  the same, and the active rollout is halted,    the version is withdrawn, and runtimes with it are taken back, if
//	   and its policy takes runtimes back             that is safe; see Channel.takesBack
//	   the same, and a person has allowed downgrades  runtimes with a higher version than the proven one are taken back
//	   of a mandatory module since the last move
//	6  the version in spec is the proven one          the channel was set back: the active rollout is aborted, and
//	                                                  runtimes with its version are taken back if that is safe
//	7  it is lower, and going back is safe or allowed it is the proven one now; runtimes with the former one follow
//	8  otherwise                                      a new rollout; the active one is superseded
//
// A version that was taken back after a halt stays in the spec of the release. As long as the version that was taken
// back is in the spec, all rows of the table use the proven version instead of the version in the spec. If a person
// then sets the channel back to the proven version, the remaining runtimes are taken back, too.
//
// If a manager process has created the rollout for a move of the channel, but has stopped before it recorded the
// rollout in the status, PlanMove adopts the rollout instead of making a new one: see Recorded.create.
func PlanMove(c Channel) Recorded {
	next := planMove(c)
	if u := c.Unrecorded; u != nil && next.Refused == "" && next.Status.Rollout != u.Name {
		next.Refused = fmt.Sprintf("channel %s does not move to %s any more", c.Name, u.Spec.To)
	}
	return next
}

func planMove(c Channel) Recorded {
	target, found := c.Release.Current(c.Name)
	was := c.Release.ChannelStatus(c.Name)
	if was == nil || was.Version == "" {
		if !found || target == "" {
			return Recorded{Status: v1beta2.ChannelStatus{Channel: c.Name}}
		}
		return initialPlanFromRuntimes(c, target)
	}
	next := Recorded{Status: *was.DeepCopy()}
	s := &next.Status
	if s.Rollout != "" && c.Active != nil && c.Active.Status.Phase.IsOver() {
		setOutcome(s, c.Active.Spec.Revision, c.Active.Status.Phase)
		if c.Active.Status.Phase == v1beta2.RolloutCompleted {
			s.Version, s.Rollout, s.Policy = c.Active.Spec.To, "", ""
		}
		if c.Active.Spec.IsRollback() {
			s.Rollout, s.Policy, s.TakingBack = "", "", ""
		}
	}
	inSpec, _ := c.Release.SpecVersion(c.Name)
	isConfirmed := s.TakenBack != "" && inSpec == s.Version
	if inSpec != s.TakenBack {
		s.TakenBack = ""
	}
	switch {
	case !found || target == "":
	case isConfirmed:
		next.takeBackRestIfSafe(c, was.TakenBack, target)
	case target == s.Target:
		switch {
		case c.shouldTakeBackHalted(s):
			next.Withdraw = target
			next.end(c.Active, v1beta2.RolloutTakenBack, fmt.Sprintf(
				"%s: version %s is withdrawn, and taken back (onHalt: %s)", c.Active.Status.Message, target,
				c.Active.Spec.OnHalt))
			c.Urgency = urgency.Urgency{} // the urgency was declared for the move to the version that is taken back
			next.beginTakeBack(c, target, s.Version, c.Active.Spec.OnHalt == v1beta2.HaltTakeBackFailed)
			s.TakenBack = target
			last := &s.History[len(s.History)-1]
			last.By, last.Reason = v1beta2.FieldOwner, "ModuleRollout "+c.Active.Name+" was halted"
		case s.Rollout != "" && c.Active == nil && (s.Version != target || s.TakingBack != ""):
			next.Make = remakeDeleted(c, s)
		case c.needsMoreUrgentRollout():
			next.end(c.Active, v1beta2.RolloutSuperseded, fmt.Sprintf("the move to %s became urgent: %s (%s)", target,
				c.Urgency.Is, c.Urgency.Reason))
			next.begin(c, target, c.Active.Spec.Lineage)
		case c.wasActiveEndedByUnrecordedMove():
			next.begin(c, target, c.Active.Spec.Lineage)
		case c.Policy != nil && admission.AwaitsAllowedDowngrade(c.Release, was):
			if newer := c.mostFrequentHigher(target); newer != "" {
				next.beginTakeBack(c, newer, target, false)
			}
		}
	case target == s.Version:
		next.abortAndTakeBack(c, target)
	case channel.IsLower(target, s.Version) && c.checkDowngrade(s.Version, target) == nil:
		next.end(c.Active, v1beta2.RolloutSuperseded, "the channel was set back to "+target)
		next.beginTakeBack(c, s.Version, target, false)
	default:
		lineage := ""
		if r := c.Active; r != nil && (!r.Status.Phase.IsOver() || r.Status.Phase == v1beta2.RolloutSuperseded) {
			lineage = r.Spec.Lineage
		}
		next.end(c.Active, v1beta2.RolloutSuperseded, "the channel was moved on to "+target)
		next.begin(c, target, lineage)
	}
	return next
}

// needsMoreUrgentRollout reports whether the active rollout has to be made again with a higher urgency. While the
// active rollout is paused or halted, a declared urgency makes no new rollout: an urgent rollout must not bypass a
// pause or a halt.
func (c *Channel) needsMoreUrgentRollout() bool {
	r := c.Active
	if r == nil || r.Spec.Policy == "" || c.Policy == nil || r.Status.Phase.IsOver() || r.Spec.IsRollback() ||
		r.Spec.State != v1beta2.RolloutRunning || !r.Status.HaltedAt.IsZero() {
		return false
	}
	return c.Urgency.Is == v1beta2.UrgencyEmergency && r.Spec.Urgency != v1beta2.UrgencyEmergency ||
		c.Urgency.Is == v1beta2.UrgencyHotfix && cmp.Or(r.Spec.Urgency, v1beta2.UrgencyNormal) == v1beta2.UrgencyNormal
}

// wasActiveEndedByUnrecordedMove reports whether a manager process was interrupted between two writes: it has ended the
// active rollout because the channel was moved, but has stopped before it recorded the move. PlanMove calls
// wasActiveEndedByUnrecordedMove if the channel was then moved back, so that the version in spec equals the target in
// status. If a person has aborted the rollout, wasActiveEndedByUnrecordedMove returns false.
func (c *Channel) wasActiveEndedByUnrecordedMove() bool {
	r := c.Active
	return r != nil && (r.Status.Phase == v1beta2.RolloutSuperseded ||
		r.Status.Phase == v1beta2.RolloutEndedAborted && r.Spec.State != v1beta2.RolloutAborted)
}

// abortAndTakeBack ends the active rollout of a channel that was set back to its proven version. If runtimes have the
// newer version and a downgrade is safe, abortAndTakeBack makes a rollout that takes these runtimes back.
func (r *Recorded) abortAndTakeBack(c Channel, proven string) {
	s := &r.Status
	newer := s.Target
	why := "the channel was set back to " + proven + ": nobody begins any more"
	has := slices.ContainsFunc(c.Runtimes, func(is Runtime) bool { return is.Ordered == newer })
	err := c.checkDowngrade(newer, proven)
	switch {
	case !has:
	case err != nil:
		why += fmt.Sprintf("; runtimes with %s keep it (%s): %s; move the channel to a higher version that corrects it",
			newer, v1beta2.ReasonDowngradeUnsafe, err.Error())
	default:
		why += "; runtimes with " + newer + " are taken back"
	}
	r.end(c.Active, v1beta2.RolloutEndedAborted, why)
	if has && err == nil {
		r.beginTakeBack(c, newer, proven, false)
		return
	}
	s.Revision = max(s.Revision, c.LastRevision) + 1
	s.Target, s.Rollout, s.Policy, s.Since = proven, "", "", metav1.NewTime(c.Now)
	addMove(s, c.newMove(proven, v1beta2.RolloutCompleted))
}

// mostFrequentHigher returns the version above the given one that most runtimes have, or "" if no runtime has a higher
// version.
func (c *Channel) mostFrequentHigher(version string) string {
	counts, most := map[string]int{}, ""
	for i := range c.Runtimes {
		v := c.Runtimes[i].Ordered
		if !channel.IsLower(version, v) {
			continue
		}
		counts[v]++
		if n := counts[v]; most == "" || n > counts[most] || n == counts[most] && channel.IsLower(most, v) {
			most = v
		}
	}
	return most
}

// shouldTakeBackHalted reports whether the active rollout is halted and takes runtimes back without an action by a
// person. shouldTakeBackHalted returns true only if no person has paused or resumed the rollout or moved the channel.
// If a rollout has the phase TakenBack and is still the active one, a manager process ended the rollout and stopped
// before it recorded the end. Only a declared downgrade happens without a person: the annotation that allows downgrades
// of a mandatory module may still be there from an earlier downgrade.
func (c *Channel) shouldTakeBackHalted(s *v1beta2.ChannelStatus) bool {
	r := c.Active
	return r != nil && r.Spec.TakesBackOnHalt() && !r.Status.HaltedAt.IsZero() &&
		(!r.Status.Phase.IsOver() || r.Status.Phase == v1beta2.RolloutTakenBack) &&
		r.Spec.State == v1beta2.RolloutRunning && len(r.Spec.Resumptions) <= int(r.Status.Resumptions) &&
		r.Spec.To == s.Target && c.checkDeclaredDowngrade(r.Spec.To, s.Version) == nil
}

// takeBackRestIfSafe is called when a person sets the channel back after a halt. If a downgrade is safe,
// takeBackRestIfSafe takes all runtimes that still have the version of the halted rollout back to the proven version.
// Before that, the policy may have taken back only the runtimes in which the version has failed.
func (r *Recorded) takeBackRestIfSafe(c Channel, newer, proven string) {
	isUnderWay := c.Active != nil && !c.Active.Status.Phase.IsOver()
	if isUnderWay && !c.Active.Spec.OnlyFailed || c.checkDowngrade(newer, proven) != nil ||
		!slices.ContainsFunc(c.Runtimes, func(is Runtime) bool { return is.Ordered == newer }) {
		return
	}
	r.end(c.Active, v1beta2.RolloutSuperseded, "the channel was set back to "+proven+": all runtimes with "+newer+
		" are taken back")
	r.beginTakeBack(c, newer, proven, false)
}

// beginTakeBack makes the rollout that takes runtimes with a newer version back to a lower one, and records the move.
// beginTakeBack makes the lower version the proven version of the channel.
func (r *Recorded) beginTakeBack(c Channel, newer, proven string, onlyFailed bool) {
	s := &r.Status
	r.makeOrAdoptUnrecorded(c, Move{From: newer, To: proven, IsBack: true, OnlyFailed: onlyFailed})
	r.markUrgencyUsed(c, proven)
	s.Version, s.Target, s.TakingBack, s.Since = proven, proven, newer, metav1.NewTime(c.Now)
	move := c.newMove(proven, "")
	move.Direction = v1beta2.RolloutBack
	addMove(s, move)
}

// checkDowngrade returns the reason why a downgrade by a person is refused, or nil if the downgrade is declared as
// safe, or if the person has allowed it for a mandatory module.
func (c *Channel) checkDowngrade(from, to string) error {
	if channel.AllowsMandatoryDowngrade(c.Release) && channel.IsLower(to, from) {
		return nil
	}
	return c.checkDeclaredDowngrade(from, to)
}

// checkDeclaredDowngrade returns the reason why a downgrade is not safe, or nil if it is safe.
func (c *Channel) checkDeclaredDowngrade(from, to string) error {
	if c.GoesBack == nil {
		return errors.New("it is not known whether going back is safe")
	}
	return c.GoesBack(from, to)
}

// end ends the active rollout.
func (r *Recorded) end(active *v1beta2.ModuleRollout, phase v1beta2.RolloutPhase, why string) {
	if active != nil && !active.Status.Phase.IsOver() {
		r.Ended, r.Why = phase, why
		setOutcome(&r.Status, active.Spec.Revision, phase)
	}
}

// begin makes the rollout of a move, and records the move.
func (r *Recorded) begin(c Channel, target, lineage string) {
	s := &r.Status
	r.makeOrAdoptUnrecorded(c, Move{From: s.Version, To: target, Lineage: lineage})
	r.markUrgencyUsed(c, target)
	s.Target, s.TakingBack, s.Since = target, "", metav1.NewTime(c.Now)
	addMove(s, c.newMove(target, ""))
}

// makeOrAdoptUnrecorded makes the rollout for the move m of the channel. If there is an unrecorded rollout with the
// same plan, makeOrAdoptUnrecorded adopts the unrecorded rollout instead. The adoption skips no revision, and keeps a
// pause, an abort or an approval by a person. If the unrecorded rollout has another plan, the caller has to end the
// unrecorded rollout. If a person has paused or aborted an unrecorded rollout for the same move, the new rollout is
// also paused or aborted, so that nothing bypasses the decision of the person.
func (r *Recorded) makeOrAdoptUnrecorded(c Channel, m Move) {
	s := &r.Status
	m.Namespace, m.Module, m.Channel = c.Release.Namespace, c.Release.Name, c.Name
	m.Urgency, m.Policy, m.Fleet = c.Urgency, c.Policy, len(c.Runtimes)
	if m.IsBack {
		m.Policy = c.policyOfWayBack(s)
	}
	m.Revision = max(s.Revision, c.LastRevision) + 1
	made, u := New(m), c.Unrecorded
	if u != nil {
		r.Refused = PlanDifference(&u.Spec, &made.Spec)
	}
	if u != nil && r.Refused == "" {
		s.Revision, s.Rollout, s.Policy = u.Spec.Revision, u.Name, u.Spec.Policy
		return
	}
	if u != nil && u.Spec.To == m.To && u.Spec.IsRollback() == m.IsBack && u.Spec.State != v1beta2.RolloutRunning {
		made.Spec.State, made.Spec.Reason = u.Spec.State, u.Spec.Reason
	}
	r.Make = made
	s.Revision, s.Rollout, s.Policy = m.Revision, made.Name, made.Spec.Policy
}

// policyOfWayBack returns the policy for a rollout that takes runtimes back. If no policy applies to the channel any
// more, the rollout gets the limits of the rollout that it takes back: without limits, the whole fleet would be
// downgraded at once. The parameter s is the status of the channel before the way back.
func (c *Channel) policyOfWayBack(s *v1beta2.ChannelStatus) *v1beta2.RolloutPolicy {
	r := c.Active
	switch {
	case c.Policy != nil:
		return c.Policy
	case r == nil:
		return policyIfDeleted(s)
	case r.Spec.Policy == "" || len(r.Spec.Stages) == 0:
		return nil
	}
	last := r.Spec.Stages[len(r.Spec.Stages)-1].RolloutStage
	return &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: r.Spec.Policy},
		Spec: v1beta2.RolloutPolicySpec{Stages: []v1beta2.RolloutStage{last}, Defaults: r.Spec.Defaults,
			NewInstallations: r.Spec.NewInstallations, MaxUpdating: r.Spec.MaxUpdating}}
}

// policyIfDeleted returns a policy for a move whose rollout and policy were both deleted, so that the stages of the
// move are not known any more. The returned policy has one stage with the default limits. If the move had no policy,
// policyIfDeleted returns nil.
func policyIfDeleted(s *v1beta2.ChannelStatus) *v1beta2.RolloutPolicy {
	if s.Policy == "" {
		return nil
	}
	return &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Policy},
		Spec: v1beta2.RolloutPolicySpec{Stages: []v1beta2.RolloutStage{{Name: "all"}}}}
}

// PlanDifference returns the first difference between a rollout that exists and the rollout that the same move would
// get now, as a text for users. The revision and the fields that people change are ignored. PlanDifference returns ""
// if the rollouts are equal.
func PlanDifference(is, now *v1beta2.ModuleRolloutSpec) string {
	plan := func(s *v1beta2.ModuleRolloutSpec) string {
		c := *s
		c.Revision, c.State, c.Reason, c.Approvals, c.Resumptions = 0, "", "", nil, nil
		data, err := json.Marshal(c)
		if err != nil {
			return err.Error()
		}
		return string(data)
	}
	switch {
	case is.From != now.From || is.To != now.To:
		return fmt.Sprintf("it leads from %s to %s, and channel %s moves from %s to %s now", is.From, is.To,
			now.Channel, now.From, now.To)
	case is.Urgency != now.Urgency || is.UrgencyReason != now.UrgencyReason || is.IgnoreWindows != now.IgnoreWindows:
		return fmt.Sprintf("its urgency is %s, and the urgency of the move is %s now",
			cmp.Or(is.Urgency, v1beta2.UrgencyNormal), cmp.Or(now.Urgency, v1beta2.UrgencyNormal))
	case is.Policy != now.Policy:
		return fmt.Sprintf("its RolloutPolicy is %s, and the RolloutPolicy of the channel is %s now",
			cmp.Or(is.Policy, "none"), cmp.Or(now.Policy, "none"))
	case is.Lineage != now.Lineage:
		return "other runtimes would be the first ones now"
	case plan(is) != plan(now):
		return "the stages or settings that follow from the RolloutPolicy and the runtimes are different now"
	}
	return ""
}

// markUrgencyUsed records that the annotation line in which a person has declared a move of the channel urgent was
// used. Therefore the same line does not make a later move to the same version urgent.
func (r *Recorded) markUrgencyUsed(c Channel, target string) {
	if line := urgency.LineOf(c.Release, c.Name, target); line != "" {
		r.Status.UsedUrgency = line
	}
}

// initialPlanFromRuntimes returns the first status of a channel. Normally the version in the spec of the release is the
// proven version. If runtimes have a version lower than the one in spec, either the status of the ModuleReleaseMeta was
// lost, or a former Lifecycle Manager that did not record moves has moved the channel. When runtimes have a lower
// version, the most frequent lower version becomes the proven version, and initialPlanFromRuntimes makes a rollout from
// the proven version to the version in spec. If a rollout has already installed the version in spec in some runtimes,
// the new rollout is paused, so that a person who deletes the status of a ModuleReleaseMeta does not bypass gates. The
// new rollout is never urgent, so that nobody can make a rollout urgent a second time by deleting the status.
func initialPlanFromRuntimes(c Channel, target string) Recorded {
	c.Urgency = urgency.Urgency{}
	counts := map[string]int{}
	proven, wasMoving := target, false
	for i := range c.Runtimes {
		r := &c.Runtimes[i]
		wasMoving = wasMoving || r.Rollout != "" && r.Ordered == target
		if channel.IsLower(r.Ordered, target) {
			counts[r.Ordered]++
			if n := counts[r.Ordered]; proven == target || n > counts[proven] ||
				n == counts[proven] && channel.IsLower(proven, r.Ordered) {
				proven = r.Ordered
			}
		}
	}
	next := Recorded{Status: v1beta2.ChannelStatus{Channel: c.Name, Version: proven, Target: proven,
		Since: metav1.NewTime(c.Now)}}
	if lines := urgency.Lines(c.Release, c.Name); len(lines) > 0 {
		next.Status.UsedUrgency = lines[0] // the urgency may have been used before the status was lost
	}
	if proven == target {
		next.Status.Revision = c.LastRevision + 1
		addMove(&next.Status, c.newMove(target, v1beta2.RolloutCompleted))
		return next
	}
	next.begin(c, target, "")
	if wasMoving {
		pauseRemade(next.Make, "the status of ModuleReleaseMeta "+c.Release.Name+" was lost")
	}
	return next
}

// remakeDeleted returns a rollout that replaces an active rollout that was deleted. If the new rollout has stages, the
// new rollout is paused, so that deleting a halted or paused rollout does not let the update continue. If the policy
// was deleted, too, the new rollout has one stage, because without stages it could not be paused. The new rollout is
// not urgent.
func remakeDeleted(c Channel, s *v1beta2.ChannelStatus) *v1beta2.ModuleRollout {
	policy, why := c.Policy, "the ModuleRollout was deleted during the rollout"
	if policy == nil && s.Policy != "" {
		policy, why = policyIfDeleted(s), fmt.Sprintf("the ModuleRollout and RolloutPolicy %s were deleted during the "+
			"rollout, so its stages are not known any more, and it has one stage", s.Policy)
	}
	r := New(Move{Namespace: c.Release.Namespace, Module: c.Release.Name, Channel: c.Name,
		From: cmp.Or(s.TakingBack, s.Version), To: s.Target, IsBack: s.TakingBack != "", Revision: s.Revision,
		OnlyFailed: s.TakenBack != "" && (c.Policy == nil || c.Policy.Spec.OnHalt != v1beta2.HaltTakeBack),
		Policy:     policy, Fleet: len(c.Runtimes)})
	r.Name = s.Rollout
	pauseRemade(r, why)
	s.Policy = r.Spec.Policy
	return r
}

func pauseRemade(r *v1beta2.ModuleRollout, why string) {
	if r.Spec.Policy != "" {
		r.Spec.State, r.Spec.Reason = v1beta2.RolloutPaused, v1beta2.ReasonRolloutRemade+": "+why
	}
}

func (c Channel) newMove(version string, outcome v1beta2.RolloutPhase) v1beta2.ChannelMove {
	by := ""
	if c.By != nil {
		by = c.By()
	}
	return v1beta2.ChannelMove{Version: version, By: by, At: metav1.NewTime(c.Now), Outcome: outcome,
		Urgency: c.Urgency.Is, Reason: c.Urgency.Reason}
}

// addMove adds a move with the present revision to the history.
func addMove(s *v1beta2.ChannelStatus, m v1beta2.ChannelMove) {
	m.Revision = s.Revision
	s.History = append(s.History, m)
	if n := len(s.History) - maxHistory; n > 0 {
		s.History = s.History[n:]
	}
}

// setOutcome records the outcome of a move.
func setOutcome(s *v1beta2.ChannelStatus, revision int64, outcome v1beta2.RolloutPhase) {
	for i := range s.History {
		if s.History[i].Revision == revision {
			s.History[i].Outcome = outcome
		}
	}
}

// RevisionOf returns the revision in the name of a rollout of a module and channel, or 0 if the name belongs to a
// rollout of another channel.
func RevisionOf(rolloutName, module, channelName string) int64 {
	number, found := strings.CutPrefix(rolloutName, module+"-"+channelName+"-r")
	if !found {
		return 0
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
