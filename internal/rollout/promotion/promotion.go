// Package promotion decides whether a version that is proven in one channel of a module is promoted to the next
// channel.
//
// # Use
//
//	is := promotion.Judge(promotion.Inputs{Release: release, Policies: policies, To: "regular", …})
//	if is.Status != nil { … is.Status.State, is.Status.Blockers … }
//
// # How it works
//
// A channel has one policy, and a policy has at most one promotion, so at most one promotion leads into a channel.
// Judge collects all blockers of a promotion, so that people see all of them at once. The manager and klm call Judge
// with the same inputs.
//
// If a person moves the channel to another version than the promoted one, this move holds the promotion. The hold lasts
// until a person releases it. If a person moves the channel to the promoted version, this move does not hold the
// promotion.
//
// # What it does not do
//
// The package is pure: it moves no channel and counts no runtimes.
package promotion

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// defaultAfter is the time for which a version must have been the proven version of one channel before it is promoted
// to the next channel.
const defaultAfter = 7 * 24 * time.Hour

// countInterval is the time after which the runtimes are counted again.
const countInterval = 10 * time.Minute

// Inputs are the inputs of Judge.
type Inputs struct {
	// Release is the release of the module, with the next status of its channels.
	Release *v1beta2.ModuleReleaseMeta
	// Policies are all RolloutPolicies in the namespace of the control plane.
	Policies []v1beta2.RolloutPolicy
	// To is the name of the channel that may get another version.
	To string
	// Template returns the ModuleTemplate of a version, or nil.
	Template func(version string) *v1beta2.ModuleTemplate
	// Count counts the runtimes in a channel that have a version. Judge calls Count only if the promotion has no other
	// blocker. If Count is nil, Judge uses the numbers in the last status of the promotion.
	Count func(channel, version string) (v1beta2.PromotionEvidence, error)
	// Owners returns the field managers that own the version of the channel To, see the function Owners. Judge calls
	// Owners only if the promotion has no other blocker, and its mode is Apply.
	Owners func() ([]string, error)
	// Now is the current time.
	Now time.Time
}

// Result is the result of Judge.
type Result struct {
	// Status is the next state of the promotion, or nil if the policy of the channel has no promotion.
	Status *v1beta2.ChannelPromotion
	// Promotion is the field spec.promotion of the policy of the channel, or nil if the policy promotes no version.
	Promotion *v1beta2.RolloutPromotion
	// Next is the time after which Judge has to be called again even if nothing has changed. If Next is 0, Judge has to
	// be called again only after a change.
	Next time.Duration
}

// judge is one call of Judge.
type judge struct {
	Inputs
	next     *v1beta2.ChannelPromotion
	blockers []v1beta2.RolloutBlocker
	wait     time.Duration
}

// Judge returns the state of the promotion into a channel. Each row whose condition is true is a blocker of the
// promotion:
//
//	1  two policies are equally exact for the channel          PolicyConflict
//	2  the channel it comes from does not exist                ChannelNotFound
//	3  promotions lead from the channel back to it             PromotionCircle
//	4  a person holds it                                       PromotionHeld
//	5  one of the channels moves                               ChannelMoving
//	6  the version is withdrawn, or has no template            VersionWithdrawn, TemplateNotFound
//	7  it is not proven for long enough                        PromotionTooEarly
//	8  the policy is suspended, or has a freeze (mode Apply)   RolloutSuspended, RolloutFrozen
//	9  too few runtimes have it, or it fails in too many       NoEvidence, TooManyFailures
//	10 another field manager owns the version (mode Apply)     PromotionNotOwned
//
// Rows 9 and 10 of this table need expensive reads, so Judge checks them only if the conditions of all other rows are
// false.
func Judge(in Inputs) Result {
	j := &judge{Inputs: in}
	policy, err := rollout.PolicyFor(in.Policies, in.Release.Name, in.To)
	to := in.Release.ChannelStatus(in.To)
	if in.Release.IsMandatory() || to == nil {
		return Result{}
	}
	was := to.Promotion
	if err != nil {
		if was == nil {
			return Result{}
		}
		j.next = was.DeepCopy()
		j.block(v1beta2.ReasonPolicyConflict, "", err.Error(), "correct the RolloutPolicies")
		return j.result(was, v1beta2.PromotionWaiting, nil)
	}
	if policy == nil || policy.Spec.Promotion == nil || policy.Spec.Promotion.To != in.To {
		return Result{}
	}
	p := policy.Spec.Promotion
	j.next = &v1beta2.ChannelPromotion{From: p.From, Revision: to.Revision}
	if was != nil {
		j.next.Hold, j.next.Notified, j.next.Evidence = was.Hold.DeepCopy(), was.Notified, was.Evidence
	}
	from := in.Release.ChannelStatus(p.From)
	if _, found := in.Release.ChannelVersion(p.From); !found || from == nil || from.Version == "" {
		j.block(v1beta2.ReasonChannelNotFound, "ModuleReleaseMeta "+in.Release.Name,
			fmt.Sprintf("module %s has no channel %s to promote from", in.Release.Name, p.From),
			"add the channel, or exclude the module from RolloutPolicy "+policy.Name)
	} else {
		j.next.Version = from.Version
	}
	j.checkHold(to, was)
	inSpec, _ := in.Release.ChannelVersion(in.To)
	if v := j.next.Version; v != "" && !channel.IsLower(inSpec, v) {
		j.blockers = nil
		return j.result(was, v1beta2.PromotionUpToDate, p)
	}
	j.checkCircle()
	if j.next.Version != "" {
		j.checkChannelsAndVersion(from, to, inSpec, p)
		if p.Mode == v1beta2.PromotionApply {
			j.checkPolicyHold(policy)
		}
	}
	if len(j.blockers) == 0 {
		j.checkReadyAndFailedCounts(p)
	}
	if len(j.blockers) == 0 && p.Mode == v1beta2.PromotionApply {
		j.checkFieldOwnership()
	}
	switch {
	case len(j.blockers) > 0:
		return j.result(was, v1beta2.PromotionWaiting, p)
	case p.Mode == v1beta2.PromotionApply:
		return j.result(was, v1beta2.PromotionApplying, p)
	}
	return j.result(was, v1beta2.PromotionProposed, p)
}

// ToMissingChannels returns the promotions of a module that lead to channels which its release does not have, by the
// name of the channel. A promotion into a channel that does not exist waits until a person adds the channel to the
// release.
func ToMissingChannels(release *v1beta2.ModuleReleaseMeta,
	policies []v1beta2.RolloutPolicy) map[string]*v1beta2.ChannelPromotion {
	all := map[string]*v1beta2.ChannelPromotion{}
	for i := range policies {
		p := policies[i].Spec.Promotion
		if p == nil || release.IsMandatory() {
			continue
		}
		version, hasFrom := release.ChannelVersion(p.From)
		_, hasTo := release.ChannelVersion(p.To)
		policy, err := rollout.PolicyFor(policies, release.Name, p.To)
		if !hasFrom || hasTo || err != nil || policy == nil || policy.Name != policies[i].Name {
			continue
		}
		all[p.To] = &v1beta2.ChannelPromotion{From: p.From, Version: version, State: v1beta2.PromotionWaiting,
			Blockers: []v1beta2.RolloutBlocker{{Code: v1beta2.ReasonChannelNotFound,
				Object:  "ModuleReleaseMeta " + release.Name,
				Message: fmt.Sprintf("module %s has no channel %s to promote to", release.Name, p.To),
				Remedy: fmt.Sprintf("add the channel: klm channel set %s %s VERSION --create; or exclude the module from "+
					"RolloutPolicy %s", release.Name, p.To, policy.Name)}}}
	}
	return all
}

func (j *judge) block(code, object, message, remedy string) {
	j.blockers = append(j.blockers, v1beta2.RolloutBlocker{Code: code, Object: object, Message: message,
		Remedy: remedy})
}

func (j *judge) requeueAfter(d time.Duration) {
	if d > 0 && (j.wait == 0 || d < j.wait) {
		j.wait = d
	}
}

// result writes the given state and the collected blockers to the next status of the promotion, and returns the Result
// of Judge.
func (j *judge) result(was *v1beta2.ChannelPromotion, state v1beta2.PromotionState,
	p *v1beta2.RolloutPromotion) Result {
	j.next.State, j.next.Blockers, j.next.Since = state, j.blockers, metav1.NewTime(j.Now)
	if was != nil && was.State == state && was.Version == j.next.Version {
		j.next.Since = was.Since
	}
	if state == v1beta2.PromotionUpToDate {
		j.next.Evidence = nil
	}
	return Result{Status: j.next, Promotion: p, Next: j.wait}
}

// checkHold checks whether a person holds the promotion: row 4 of the table of Judge.
func (j *judge) checkHold(to *v1beta2.ChannelStatus, was *v1beta2.ChannelPromotion) {
	if was != nil && len(to.History) > 0 {
		last := to.History[len(to.History)-1]
		isPromoted := last.Version == j.next.Version || last.Version == was.Version
		if last.Revision > was.Revision && !isPromoted && last.By != v1beta2.FieldOwner {
			j.next.Hold = &v1beta2.PromotionHold{Revision: last.Revision, Version: last.Version, By: last.By,
				At: last.At}
		}
	}
	order, err := InstructionOf(j.Release, j.To)
	if h := j.next.Hold; h != nil && order.Released >= h.Revision && err == nil {
		j.next.Hold = nil
	}
	object := "ModuleReleaseMeta " + j.Release.Name
	release := fmt.Sprintf("klm promotions release %s %s", j.Release.Name, j.To)
	switch h := j.next.Hold; {
	case err != nil:
		j.block(v1beta2.ReasonPromotionHeld, object, err.Error(), "correct the annotation: "+release)
	case order.Hold != "":
		j.block(v1beta2.ReasonPromotionHeld, object, "a person holds it: "+order.Hold, release)
	case h != nil:
		j.block(v1beta2.ReasonPromotionHeld, object, fmt.Sprintf(
			"the channel was moved to %s (revision %d), which is not the promoted version", h.Version, h.Revision),
			release)
	}
}

// checkCircle checks whether a chain of promotions starts at the channel and leads back to the same channel: row 3 of
// the table of Judge.
func (j *judge) checkCircle() {
	path := []string{j.To}
	for at := j.To; len(path) <= 32; {
		policy, err := rollout.PolicyFor(j.Policies, j.Release.Name, at)
		if err != nil || policy == nil || policy.Spec.Promotion == nil || policy.Spec.Promotion.To != at {
			return
		}
		at = policy.Spec.Promotion.From
		path = append(path, at)
		if at == j.To {
			slices.Reverse(path)
			j.block(v1beta2.ReasonPromotionCircle, "RolloutPolicy "+policy.Name,
				"promotions lead in a circle: "+strings.Join(path, " → "), "remove the promotion of one of the "+
					"policies")
			return
		}
	}
}

// checkChannelsAndVersion checks the channels and the version: rows 5 to 7 of the table of Judge.
func (j *judge) checkChannelsAndVersion(from, to *v1beta2.ChannelStatus, toSpec string,
	p *v1beta2.RolloutPromotion) {
	moves := func(s *v1beta2.ChannelStatus, spec string) bool {
		return s.Rollout != "" || s.Target != spec && s.TakenBack != spec || s.Version != s.Target
	}
	fromSpec, _ := j.Release.ChannelVersion(p.From)
	for _, c := range []struct {
		name  string
		moves bool
	}{{p.From, moves(from, fromSpec)}, {j.To, moves(to, toSpec)}} {
		if c.moves {
			j.block(v1beta2.ReasonChannelMoving, "ModuleReleaseMeta "+j.Release.Name,
				fmt.Sprintf("channel %s is being moved, or its move was aborted", c.name),
				fmt.Sprintf("wait until its rollout is completed: klm rollout history %s %s", j.Release.Name, c.name))
		}
	}
	version := j.next.Version
	if t := j.Template(version); t == nil {
		j.block(v1beta2.ReasonTemplateNotFound, "ModuleTemplate "+channel.TemplateName(j.Release.Name, version),
			"version "+version+" has no ModuleTemplate", "publish it")
	} else if is, why := channel.IsWithdrawn(t); is {
		j.block(v1beta2.ReasonVersionWithdrawn, "ModuleTemplate "+t.Name,
			fmt.Sprintf("version %s was withdrawn: %.128s", version, why), "move channel "+p.From+" to another version")
	}
	after := defaultAfter
	if p.After != nil {
		after = p.After.Duration
	}
	at := from.ProvenAt.Add(after)
	if left := at.Sub(j.Now); from.ProvenAt.IsZero() || left > 0 {
		j.requeueAfter(left)
		j.block(v1beta2.ReasonPromotionTooEarly, "", fmt.Sprintf("version %s is the proven one of channel %s since "+
			"%s: not before %s",
			version, p.From, from.ProvenAt.UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339)), "wait")
	}
}

// checkPolicyHold checks whether the policy allows a rollout of the channel to begin now: row 8 of the table of Judge.
func (j *judge) checkPolicyHold(policy *v1beta2.RolloutPolicy) {
	held, change := rollout.HoldOfPolicy(policy, &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{
		Namespace: j.Release.Namespace}}, j.Now)
	j.requeueAfter(change)
	if held != nil {
		j.blockers = append(j.blockers, *held)
	}
}

// checkReadyAndFailedCounts checks whether the version is Ready in enough runtimes of the channel from which it is
// promoted, and whether it fails in too many of these runtimes: row 9 of the table of Judge.
func (j *judge) checkReadyAndFailedCounts(p *v1beta2.RolloutPromotion) {
	if j.Count != nil {
		counted, err := j.Count(p.From, j.next.Version)
		if err != nil {
			j.block(v1beta2.ReasonNoEvidence, "", "the runtimes cannot be counted: "+err.Error(), "wait")
			j.requeueAfter(countInterval)
			return
		}
		j.next.Evidence = &counted
	}
	e := j.next.Evidence
	if e == nil || e.Version != j.next.Version {
		j.block(v1beta2.ReasonNoEvidence, "", "the manager has not counted the runtimes with "+j.next.Version+" yet",
			"wait")
		return
	}
	if need := max(1, p.If.MinRuntimes); e.Ready < need {
		j.block(v1beta2.ReasonNoEvidence, "", fmt.Sprintf("version %s is Ready in %d runtimes of channel %s, and %d "+
			"are needed",
			e.Version, e.Ready, p.From, need), "wait")
	}
	if allowed := rollout.AllowedFailures(&v1beta2.RolloutStage{MaxFailures: p.If.MaxFailures},
		int(e.Ready+e.Failed)); int(e.Failed) > allowed {
		j.block(v1beta2.ReasonTooManyFailures, "", fmt.Sprintf("version %s fails in %d runtimes of channel %s, and "+
			"%d are allowed",
			e.Version, e.Failed, p.From, allowed), fmt.Sprintf("see klm status --module %s", j.Release.Name))
	}
	if len(j.blockers) > 0 {
		j.requeueAfter(countInterval)
	}
}

// checkFieldOwnership checks whether the manager may change the version of the channel, because no other field manager
// owns it: row 10 of the table of Judge.
func (j *judge) checkFieldOwnership() {
	owners, err := j.Owners()
	if err != nil {
		j.block(v1beta2.ReasonPromotionNotOwned, "ModuleReleaseMeta "+j.Release.Name, "its owner cannot be read: "+
			err.Error(),
			"wait")
		j.requeueAfter(countInterval)
		return
	}
	others := slices.DeleteFunc(slices.Clone(owners), func(manager string) bool {
		return manager == v1beta2.FieldOwnerClient || manager == v1beta2.FieldOwnerPromotionPrefix+j.To
	})
	if len(others) == 0 && len(owners) > 0 {
		return
	}
	who := "it is not known which field manager owns"
	if len(others) > 0 {
		who = "field manager " + strings.Join(others, " and ") + " owns"
	}
	j.block(v1beta2.ReasonPromotionNotOwned, "ModuleReleaseMeta "+j.Release.Name, fmt.Sprintf(
		"%s the version of channel %s, so the manager does not change it", who, j.To), fmt.Sprintf(
		"move it to %s there, or once with klm channel set %s %s %s",
		j.next.Version, j.Release.Name, j.To, j.next.Version))
}

// Order has what a person has ordered for the promotion into a channel: a hold, or the release of a hold.
type Order struct {
	// Hold is the reason why a person holds the promotion, or "" if no person holds it.
	Hold string
	// Released is a revision of the channel: the number of the last move that held the promotion until a person
	// released the hold.
	Released int64
}

// Line returns the line of v1beta2.AnnotationPromotion for a channel.
func (o Order) Line(channel string) string {
	if o.Hold != "" {
		return channel + " Hold: " + o.Hold
	}
	return fmt.Sprintf("%s Release %d", channel, o.Released)
}

// InstructionOf returns what a person has ordered for the promotion into a channel: to hold it, or to release a hold.
// InstructionOf reads the annotation v1beta2.AnnotationPromotion of the release, which has one line of text for each
// channel. If the line of the channel cannot be read, InstructionOf returns an error, and no version is promoted to the
// channel.
func InstructionOf(release *v1beta2.ModuleReleaseMeta, channel string) (Order, error) {
	for line := range strings.Lines(release.Annotations[v1beta2.AnnotationPromotion]) {
		line = strings.TrimSpace(line)
		rest, found := strings.CutPrefix(line, channel+" ")
		if !found {
			continue
		}
		if reason, is := strings.CutPrefix(strings.TrimSpace(rest), "Hold:"); is && strings.TrimSpace(reason) != "" {
			return Order{Hold: strings.TrimSpace(reason)}, nil
		}
		if number, is := strings.CutPrefix(strings.TrimSpace(rest), "Release "); is {
			if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 {
				return Order{Released: n}, nil
			}
		}
		return Order{}, fmt.Errorf("the annotation %s has the line %.128q, and \"%s Hold: REASON\" or \"%s Release "+
			"REVISION\" is expected", v1beta2.AnnotationPromotion, line, channel, channel)
	}
	return Order{}, nil
}

// Mover returns the field manager that wrote the version of a channel in the spec of a release, or "" if the field
// manager is not known. If several field managers own the field with the version, Mover returns "", because the managed
// fields do not show which of them wrote the version.
func Mover(release *v1beta2.ModuleReleaseMeta, channel string) (soleFieldManager string) {
	if all := Owners(release, channel); len(all) == 1 {
		return all[0]
	}
	return ""
}

// Owners returns the field managers that own the version of a channel in the spec of a release, sorted. The channel of
// a mandatory module is v1beta2.MandatoryChannel.
func Owners(release *v1beta2.ModuleReleaseMeta, channel string) (fieldManagers []string) {
	var all []string
	key := fmt.Sprintf(`k:{"channel":%q}`, channel)
	for i := range release.ManagedFields {
		m := &release.ManagedFields[i]
		if m.Subresource != "" || m.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Spec struct {
				Channels  map[string]json.RawMessage `json:"f:channels"`
				Mandatory json.RawMessage            `json:"f:mandatory"`
			} `json:"f:spec"`
		}
		if json.Unmarshal([]byte(m.FieldsV1.GetRawString()), &fields) != nil {
			all = append(all, m.Manager) // it may own everything
			continue
		}
		raw := fields.Spec.Channels[key]
		if release.IsMandatory() && channel == v1beta2.MandatoryChannel {
			raw = fields.Spec.Mandatory
		}
		var entry map[string]json.RawMessage
		if json.Unmarshal(raw, &entry) == nil && entry["f:version"] != nil {
			all = append(all, m.Manager)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
