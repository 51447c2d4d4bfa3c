package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/rollout/preflight"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/promotion"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/urgency"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// pass has the data of one reconcile of one module.
type pass struct {
	*Reconciler
	release  *v1beta2.ModuleReleaseMeta
	now      time.Time
	next     time.Duration
	policies []v1beta2.RolloutPolicy  // of the cache: they are only read
	rollouts []v1beta2.ModuleRollout  // those of the module
	names    []string                 // the names of all rollouts
	staged   []*v1beta2.ModuleRollout // the active rollouts with stages, of all modules; they are only read
	catalog  channel.Catalog
	failed   func() error // why a read of the catalog has failed; nil: none has
	kymas    map[string]*v1beta2.Kyma
}

// requeueAfter lets the module be reconciled again after the delay d, or earlier if another caller has requested that.
func (p *pass) requeueAfter(d time.Duration) {
	if d > 0 && (p.next == 0 || d < p.next) {
		p.next = max(d, Period)
	}
}

func (p *pass) run(ctx context.Context) error {
	if err := p.readPoliciesAndRollouts(ctx); err != nil {
		return err
	}
	if err := p.endStraysUnlessStale(ctx, rollout.Strays(p.release, p.specChannels(), p.rollouts)...); err != nil {
		return err
	}
	next := p.release.Status.DeepCopy()
	next.ObservedGeneration = p.release.Generation
	var statuses []v1beta2.ChannelStatus
	active := false
	worst, message := v1beta2.RolloutCompleted, ""
	var failures []error
	for _, of := range p.specChannels() {
		s, phase, why, err := p.reconcileChannel(ctx, of)
		was := p.release.ChannelStatus(of)
		switch {
		case apierrors.IsConflict(err):
			return err // an object of this pass is outdated; the next pass reads all of them again
		case err != nil: // the other channels go on, because a rollout of them may have to be halted
			failures = append(failures, fmt.Errorf("channel %s: %w", of, err))
			s, phase, why = *cmp.Or(was, &v1beta2.ChannelStatus{Channel: of}), v1beta2.RolloutHeld, err.Error()
		case was == nil || was.Version != s.Version:
			s.ProvenAt = metav1.NewTime(p.now)
		}
		statuses = append(statuses, s)
		active = active || s.Rollout != "" && !phase.IsOver()
		if isWorse(phase, worst) {
			worst, message = phase, "channel "+of+": "+why
		}
	}
	for _, was := range p.release.Status.Channels {
		if was.Rollout != "" && !slices.Contains(p.specChannels(), was.Channel) {
			p.requeueAfter(Period) // the channel was removed; the next pass ends its rollout
		}
	}
	p.setActive(p.release.Name, active)
	moves := p.judgePromotions(ctx, statuses)
	next.Channels, next.Withdrawn = statuses, p.withdrawnTemplateVersions()
	if err := p.countHolders(ctx, next.Withdrawn); err != nil {
		return err
	}
	if err := p.failed(); err != nil {
		return err
	}
	rollout.SetConditions(&next.Conditions, p.release.Generation, worst, message, p.now)
	if len(failures) > 0 {
		return errors.Join(append(failures, p.saveStatusAndPruneRollouts(ctx, next))...)
	}
	if len(moves) > 0 && loop.Equal(&p.release.Status, next) { // the saved status has the moves before they are made
		return p.applyPromotedVersion(ctx, moves[0])
	}
	if len(moves) > 0 {
		p.requeueAfter(Period)
	}
	return p.saveStatusAndPruneRollouts(ctx, next)
}

// isWorse reports whether a phase needs more attention than another one.
func isWorse(a, b v1beta2.RolloutPhase) bool {
	order := []v1beta2.RolloutPhase{v1beta2.RolloutCompleted, v1beta2.RolloutTail, v1beta2.RolloutUpdating,
		v1beta2.RolloutSoaking, v1beta2.RolloutWaitingForGate, v1beta2.RolloutPending, v1beta2.RolloutHeld,
		v1beta2.RolloutEndedAborted, v1beta2.RolloutTakenBack, v1beta2.RolloutHalted}
	return slices.Index(order, a) > slices.Index(order, b)
}

// readPoliciesAndRollouts reads the policies, the rollouts and the catalog for this reconcile from the cache. Only the
// rollouts of the module are copies. Policies and rollouts of other modules are the objects of the cache, so the
// reconcile must not change them. If each reconcile copied all rollouts, the cost of a change of all modules would grow
// with the square of their number.
func (p *pass) readPoliciesAndRollouts(ctx context.Context) error {
	in := client.InNamespace(p.Namespace)
	var policies v1beta2.RolloutPolicyList
	if err := p.Client.List(ctx, &policies, in, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing RolloutPolicies: %w", err)
	}
	p.policies = policies.Items
	var rollouts v1beta2.ModuleRolloutList
	if err := p.Client.List(ctx, &rollouts, in, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing ModuleRollouts: %w", err)
	}
	p.names = make([]string, 0, len(rollouts.Items))
	for i := range rollouts.Items {
		r := &rollouts.Items[i]
		p.names = append(p.names, r.Name)
		if r.Spec.Module == p.release.Name {
			r = r.DeepCopy()
			p.rollouts = append(p.rollouts, *r)
		}
		if r.Spec.Policy != "" && !r.Status.Phase.IsOver() {
			p.staged = append(p.staged, r)
		}
	}
	p.forgetEndedRollouts()
	catalog, failed := p.Catalog(ctx)
	p.catalog, p.failed = catalog.WithCachedLookups(), failed
	return nil
}

// endStraysUnlessStale ends active rollouts that no channel names. The cache may have a new rollout before it has the
// status of the release that names the rollout. Therefore endStraysUnlessStale first reads the release from the API
// server. If the release in the cache is older, endStraysUnlessStale returns a conflict error and ends no rollout.
func (p *pass) endStraysUnlessStale(ctx context.Context, strays ...rollout.Stray) error {
	if len(strays) == 0 {
		return nil
	}
	if live, err := p.liveOrCachedRelease(ctx); err != nil || live.ResourceVersion != p.release.ResourceVersion {
		return cmp.Or(err, error(apierrors.NewConflict(schema.GroupResource{Resource: "modulereleasemetas"},
			p.release.Name, errors.New("the cache has an older one"))))
	}
	for _, s := range strays {
		if err := p.endRollout(ctx, s.Rollout, s.Phase, s.Why); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// liveOrCachedRelease reads the release from the API server, with the managed fields that the cache does not have. If
// the field Live is nil, liveOrCachedRelease returns the release from the cache.
func (p *pass) liveOrCachedRelease(ctx context.Context) (*v1beta2.ModuleReleaseMeta, error) {
	if p.Live == nil {
		return p.release, nil
	}
	live := &v1beta2.ModuleReleaseMeta{}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.release), live); err != nil {
		return nil, fmt.Errorf("reading ModuleReleaseMeta %s: %w", p.release.Name, err)
	}
	return live, nil
}

// specChannels returns the names of the channels in the spec of the release. For a mandatory module, specChannels
// returns only MandatoryChannel.
func (p *pass) specChannels() []string {
	if p.release.IsMandatory() {
		return []string{v1beta2.MandatoryChannel}
	}
	names := make([]string, 0, len(p.release.Spec.Channels))
	for _, c := range p.release.Spec.Channels {
		names = append(names, c.Channel)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// reconcileChannel records the moves of one channel, and advances its rollout.
func (p *pass) reconcileChannel(ctx context.Context, of string) (s v1beta2.ChannelStatus, phase v1beta2.RolloutPhase,
	why string,
	err error) {
	was := p.release.ChannelStatus(of)
	if was == nil {
		was = &v1beta2.ChannelStatus{Channel: of}
	}
	target, _ := p.release.Current(of)
	inSpec, _ := p.release.SpecVersion(of)
	unrecorded := rollout.Unrecorded(p.release, of, p.rollouts)
	if was.Version == target && was.Target == target && was.Rollout == "" && unrecorded == nil &&
		(was.TakenBack == "" || was.TakenBack == inSpec) &&
		!admission.AwaitsAllowedDowngrade(p.release, was) { // no version has changed: the usual case
		phase, why := completedOrTakenBack(was)
		return *was, phase, why, nil
	}
	if wait := p.settleTimeLeft(of, was, target); wait > 0 {
		p.requeueAfter(wait)
		p.forgetFlight(was.Rollout)
		return *was, v1beta2.RolloutPending, "the channel was moved to " + target + " a moment ago", nil
	}
	policy, conflict := rollout.PolicyFor(p.policies, p.release.Name, of)
	active := p.rollout(was.Rollout)
	if active != nil && active.Spec.To != target {
		active = nil // it ends now
	}
	var runtimes []rollout.Runtime
	none, err := p.canSkipFleet(ctx, was)
	if err == nil && !none {
		runtimes, err = p.runtimes(ctx, of, rollout.DeferrableUntil(active, policy, p.now))
	}
	if err != nil {
		return s, "", "", err
	}
	declared, invalid := urgency.Of(p.release, of, target)
	if invalid != nil && was.Target != target {
		if err := p.endStraysUnlessStale(ctx, rollout.RefusedStrays(unrecorded, invalid.Error())...); err != nil {
			return s, "", "", err
		}
		p.forgetFlight(was.Rollout)
		return *was, v1beta2.RolloutHeld, v1beta2.ReasonUrgencyInvalid + ": " + invalid.Error() +
			": correct the line; klm channel set --urgency writes it", nil
	}
	var unread error
	recorded := rollout.PlanMove(rollout.Channel{Release: p.release, Name: of, Policy: policy, Urgency: declared,
		Active: p.rollout(was.Rollout), Unrecorded: unrecorded, Runtimes: runtimes, GoesBack: p.checkWayBack,
		LastRevision: p.lastRevision(of),
		By:           func() (by string) { by, unread = p.fieldManagerOf(ctx, of); return by }, Now: p.now})
	if err := cmp.Or(unread, p.failed()); err != nil {
		return s, "", "", err
	}
	if err := p.endStraysUnlessStale(ctx, rollout.RefusedStrays(unrecorded, recorded.Refused)...); err != nil {
		return s, "", "", err
	}
	if conflict != nil && recorded.Make != nil { // a rollout in progress continues with its own stages
		p.forgetFlight(was.Rollout)
		return *was, v1beta2.RolloutHeld, v1beta2.ReasonPolicyConflict + ": " + conflict.Error(), nil
	}
	if recorded.Withdraw != "" {
		if err := p.annotateTemplateWithdrawn(ctx, recorded.Withdraw, p.rollout(was.Rollout)); err != nil {
			return s, "", "", err
		}
	}
	if recorded.Ended != "" {
		if err := p.endRollout(ctx, p.rollout(was.Rollout), recorded.Ended, recorded.Why); err != nil {
			return s, "", "", err
		}
	}
	if recorded.Make != nil {
		if err := p.makeRollout(ctx, recorded.Make); err != nil {
			return s, "", "", err
		}
	}
	s = recorded.Status
	if s.Rollout == "" {
		if s.Version != target {
			return s, v1beta2.RolloutEndedAborted, "the rollout was aborted", nil
		}
		phase, why = completedOrTakenBack(&s)
		return s, phase, why, nil
	}
	if active = p.rollout(s.Rollout); active == nil {
		p.requeueAfter(Period)
		return s, v1beta2.RolloutPending, "the rollout begins", nil
	}
	status, err := p.advance(ctx, active, runtimes)
	if err != nil {
		return s, "", "", err
	}
	if status.Phase == v1beta2.RolloutCompleted { // recorded at once, so that the version is the proven one
		p.requeueAfter(Period)
		active.Status = *status
		s = rollout.PlanMove(rollout.Channel{Release: p.withOnlyChannelStatus(s), Name: of, Policy: policy,
			Active:   active,
			Runtimes: runtimes, Now: p.now}).Status
	}
	return s, status.Phase, status.Message, nil
}

// fieldManagerOf returns the field manager that wrote the version of a channel, or "" if the field manager is not
// known.
func (p *pass) fieldManagerOf(ctx context.Context, of string) (string, error) {
	live, err := p.liveOrCachedRelease(ctx)
	if err != nil {
		return "", err
	}
	if live.Generation != p.release.Generation {
		return "", fmt.Errorf("reading who moved channel %s of module %s: somebody has changed it a moment ago", of,
			p.release.Name)
	}
	return promotion.Mover(live, of), nil
}

// completedOrTakenBack returns the phase of a channel that does not move, and the message for users.
func completedOrTakenBack(s *v1beta2.ChannelStatus) (v1beta2.RolloutPhase, string) {
	if s.TakenBack != "" {
		return v1beta2.RolloutTakenBack, fmt.Sprintf("version %s was halted and taken back: move the channel to "+
			"another version",
			s.TakenBack)
	}
	return v1beta2.RolloutCompleted, ""
}

// annotateTemplateWithdrawn withdraws the version of a halted rollout, so that no runtime gets it any more.
func (p *pass) annotateTemplateWithdrawn(ctx context.Context, version string, halted *v1beta2.ModuleRollout) error {
	t := &v1beta2.ModuleTemplate{}
	t.Namespace, t.Name = p.Namespace, channel.TemplateName(p.release.Name, version)
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(t), t); err != nil {
		return fmt.Errorf("reading ModuleTemplate %s: %w", t.Name, err)
	}
	if is, _ := channel.IsWithdrawn(t); is {
		return nil
	}
	updated := t.DeepCopy()
	if updated.Annotations == nil {
		updated.Annotations = map[string]string{}
	}
	updated.Annotations[v1beta2.AnnotationWithdrawn] = text.ClipLine(fmt.Sprintf("ModuleRollout %s was halted: %s",
		halted.Name,
		halted.Status.Message), 256)
	if err := p.Client.Patch(ctx, updated, client.MergeFrom(t), client.FieldOwner(v1beta2.FieldOwner)); err != nil {
		return fmt.Errorf("withdrawing ModuleTemplate %s: %w", t.Name, err)
	}
	return nil
}

// wayBack describes whether runtimes can be moved back from the new version of a rollout to the former version. For a
// rollout to a lower version, and for a rollout without a former version, wayBack returns nil.
func (p *pass) wayBack(ctx context.Context, r *v1beta2.ModuleRollout) *v1beta2.RolloutWayBack {
	if r.Spec.IsRollback() || r.Spec.From == "" {
		return nil
	}
	w := &v1beta2.RolloutWayBack{To: r.Spec.From}
	if err := p.checkWayBack(r.Spec.To, r.Spec.From); err != nil {
		w.Message = text.ClipLine(err.Error(), 256)
		return w
	}
	w.Declared = true
	is := p.requestPreflight(ctx, r.Spec.To, r.Spec.From)
	if was := r.Status.WayBack; is.IsRunning && was != nil && was.Declared && was.To == w.To {
		return was.DeepCopy() // as it was found before a restart of the manager
	}
	if is.Blocker != nil {
		w.Message = text.ClipLine(is.Blocker.Message, 256)
		return w
	}
	w.Verified, w.Message = true, "the former version can be installed; each API server checks the CRDs"
	return w
}

// checkWayBack returns the reason why a rollout to a lower version is not safe, or nil if it is safe.
func (p *pass) checkWayBack(from, to string) error {
	return p.catalog.CheckGoingBack(p.release.Name, from, to)
}

// withOnlyChannelStatus returns a copy of the release with another status of one channel.
func (p *pass) withOnlyChannelStatus(s v1beta2.ChannelStatus) *v1beta2.ModuleReleaseMeta {
	release := p.release.DeepCopy()
	release.Status.Channels = []v1beta2.ChannelStatus{s}
	return release
}

// settleTimeLeft returns the time for which a new version of a channel must stay unchanged before a rollout is made.
// settleTimeLeft records the first version of a channel at once.
func (p *pass) settleTimeLeft(channelName string, was *v1beta2.ChannelStatus, target string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := p.release.Name + "/" + channelName
	if was.Version == "" || was.Target == target {
		delete(p.moves, key)
		return 0
	}
	seen := p.moves[key]
	if seen.version != target {
		seen = pendingMove{target, p.now}
		p.moves[key] = seen
	}
	return p.SettleDelay - p.now.Sub(seen.since)
}

// rollout returns a rollout of the module by its name, or nil.
func (p *pass) rollout(name string) *v1beta2.ModuleRollout {
	for i := range p.rollouts {
		if r := &p.rollouts[i]; r.Name == name && r.DeletionTimestamp.IsZero() {
			return r
		}
	}
	return nil
}

// lastRevision returns the highest revision in a name that a rollout of the channel can have and that exists. The
// rollout with this name may be of another module: rollouts of module a-b in channel c, and of module a in channel b-c,
// have the same names.
func (p *pass) lastRevision(of string) int64 {
	last := int64(0)
	for _, name := range p.names {
		last = max(last, rollout.RevisionOf(name, p.release.Name, of))
	}
	return last
}

// canSkipFleet reports whether Fleet need not be read for a channel: the channel has no recorded version yet, and the
// control plane has no Manifest. So Fleet is not filled when the first modules are published, unless
// there is a RolloutPolicy.
func (p *pass) canSkipFleet(ctx context.Context, was *v1beta2.ChannelStatus) (bool, error) {
	if !p.IsFleetOnDemand || p.Live == nil || was.Version != "" {
		return false, nil
	}
	var some v1beta2.ManifestList
	if err := p.Live.List(ctx, &some, client.InNamespace(p.Namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("looking for Manifests: %w", err)
	}
	return len(some.Items) == 0, nil
}

// runtimes returns the known facts about the runtimes that have the module in a channel, and the times until which
// their admins defer the update.
func (p *pass) runtimes(ctx context.Context, of string, deferUntil time.Time) ([]rollout.Runtime, error) {
	var manifests v1beta2.ManifestList
	if err := p.Fleet.List(ctx, &manifests, client.InNamespace(p.Namespace),
		client.MatchingFields{moduleIndex: p.release.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the Manifests of module %s: %w", p.release.Name, err)
	}
	if p.kymas == nil && len(manifests.Items) > 0 {
		var kymas v1beta2.KymaList
		if err := p.Fleet.List(ctx, &kymas, client.InNamespace(p.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing Kymas: %w", err)
		}
		p.kymas = make(map[string]*v1beta2.Kyma, len(kymas.Items))
		for i := range kymas.Items {
			p.kymas[kymas.Items[i].Name] = &kymas.Items[i]
		}
	}
	fleet := plan.Fleet{Release: p.release, Channel: of, Catalog: p.catalog, Now: p.now, DeferUntil: deferUntil}
	all := make([]rollout.Runtime, 0, len(manifests.Items))
	for i := range manifests.Items {
		m := &manifests.Items[i]
		if r, takesPart := fleet.Runtime(p.kymas[m.Labels[v1beta2.LabelKymaName]], m); takesPart {
			all = append(all, r)
		}
	}
	return all, nil
}

// makeRollout creates a rollout. If the rollout exists already, an earlier pass was interrupted after it had created
// this rollout.
func (p *pass) makeRollout(ctx context.Context, made *v1beta2.ModuleRollout) error {
	err := p.Client.Create(ctx, made, client.FieldOwner(v1beta2.FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		return p.useExisting(ctx, made)
	}
	if err != nil {
		return fmt.Errorf("creating ModuleRollout %s: %w", made.Name, err)
	}
	p.rollouts, p.names = append(p.rollouts, *made), append(p.names, made.Name)
	note := "channel %s of module %s moves from %s to %s"
	if made.Spec.IsRollback() {
		note = "channel %s of module %s: runtimes with %s are taken back to %s"
	}
	p.event(made, corev1.EventTypeNormal, v1beta2.EventRolloutStarted,
		fmt.Sprintf(note, made.Spec.Channel, made.Spec.Module, made.Spec.From, made.Spec.To))
	if is := made.Spec.Urgency; is != "" {
		metrics.RolloutsUrgent.WithLabelValues(string(is)).Inc()
		p.event(made, corev1.EventTypeWarning, v1beta2.EventUrgentRollout, fmt.Sprintf("%s: %s", is,
			made.Spec.UrgencyReason))
	}
	return nil
}

// useExisting uses the rollout that exists with the name of the given rollout. useExisting returns an error if the
// existing rollout is another one.
func (p *pass) useExisting(ctx context.Context, made *v1beta2.ModuleRollout) error {
	existing := &v1beta2.ModuleRollout{}
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(made), existing); err != nil {
		return fmt.Errorf("reading ModuleRollout %s: %w", made.Name, err)
	}
	if !existing.DeletionTimestamp.IsZero() {
		return fmt.Errorf("ModuleRollout %s is being deleted, and its finalizers %v keep it: remove them",
			made.Name, existing.Finalizers)
	}
	if existing.Spec.Module != made.Spec.Module || existing.Spec.Channel != made.Spec.Channel {
		// The cache did not have it yet. The next pass chooses a higher revision; see lastRevision.
		return fmt.Errorf("ModuleRollout %s is of module %s in channel %s: another name is chosen", made.Name,
			existing.Spec.Module, existing.Spec.Channel)
	}
	if existing.Spec.To != made.Spec.To || existing.Spec.From != made.Spec.From ||
		existing.Spec.Urgency != made.Spec.Urgency {
		return fmt.Errorf("ModuleRollout %s exists and is for another move (%s to %s): delete it", made.Name,
			existing.Spec.From, existing.Spec.To)
	}
	if why := rollout.PlanDifference(&existing.Spec, &made.Spec); why != "" { // the cache did not have it yet
		return fmt.Errorf("ModuleRollout %s was made before: %s", made.Name, why)
	}
	p.rollouts, p.names = append(p.rollouts, *existing), append(p.names, existing.Name)
	return nil
}

// endRollout writes the last phase of a rollout.
func (p *pass) endRollout(ctx context.Context, r *v1beta2.ModuleRollout, phase v1beta2.RolloutPhase, why string) error {
	next := r.Status.DeepCopy()
	next.Phase, next.Message, next.Admitted, next.Blockers = phase, why, "", nil
	next.EndedAt.Time, next.ETA = p.now, metav1.Time{}
	setExpectedTimes(next, nil, p.now)
	rollout.SetConditions(&next.Conditions, r.Generation, phase, why, p.now)
	if err := p.saveRolloutStatus(ctx, r, next); err != nil {
		return err
	}
	p.forgetEnded(r)
	reason, kind := v1beta2.EventRolloutSuperseded, corev1.EventTypeNormal
	switch phase {
	case v1beta2.RolloutEndedAborted:
		reason = v1beta2.EventRolloutAborted
	case v1beta2.RolloutTakenBack:
		reason, kind = v1beta2.EventTakingBack, corev1.EventTypeWarning
	}
	p.event(r, kind, reason, why)
	return nil
}

// advance computes and writes the next status of a rollout.
func (p *pass) advance(ctx context.Context, r *v1beta2.ModuleRollout, runtimes []rollout.Runtime) (
	*v1beta2.ModuleRolloutStatus, error) {
	if r.Status.Phase.IsOver() {
		p.forgetEnded(r)
		return &r.Status, nil
	}
	policy := rollout.PolicyInForce(p.policies, r)
	others, err := p.flightsBeside(ctx, r, policy)
	if err != nil {
		return nil, err
	}
	for i := range runtimes {
		runtimes[i].IsBusy = others.busy[runtimes[i].Kyma]
	}
	in := rollout.Inputs{Rollout: r, Runtimes: runtimes, Now: p.now, ClockSetAt: p.clock.SetAt, Slots: -1}
	others.policy.limit(rollout.MaxUpdating(policy, r), &in)
	if r.Spec.Policy != "" {
		others.fleet.limit(p.MaxUpdating, &in)
	}
	in.WayBack = p.wayBack(ctx, r)
	hold, change := rollout.HoldOfPolicy(policy, r, p.now)
	in.Hold = hold
	p.requeueAfter(change)
	var checked preflight.Result
	if r.Spec.Policy != "" {
		checked = p.preflightOf(ctx, r)
		in.Preflight = checked.Blocker
		if checked.IsRunning {
			in.Slots, in.SlotsUsedBy = 0, nil
		}
		in.Gates = p.requestGatesAfterSoak(r)
	}
	result, err := rollout.Advance(in)
	if err != nil {
		return p.saveHeldStatus(ctx, r, err)
	}
	if err := p.failed(); err != nil {
		return nil, err
	}
	result.Status.Content, result.Status.Template = checked.Digest, checked.Template
	p.updateForecastIfDue(ctx, r, &result.Status, policy, runtimes)
	p.setFlightIfStaged(r, result.InFlight)
	p.budgets.Set(r, result.FailuresLeft)
	p.requeueAfter(result.Next)
	if n := result.Status.Runtimes.Waiting; n > 0 && !result.Status.Phase.IsOver() {
		p.requeueAfter(time.Minute) // e.g. a maintenance window opens without a change of a Kyma
	}
	if result.Status.Runtimes.Updating > 0 || in.Preflight != nil || len(result.Status.Stage.Gates) > 0 {
		p.requeueAfter(30 * time.Second) // for gates, deadlines, and changes whose events were missed
	}
	if s := &result.Status; s.Phase == v1beta2.RolloutHalted && r.Spec.TakesBackOnHalt() && s.WayBack != nil &&
		s.WayBack.Declared && r.Spec.State == v1beta2.RolloutRunning {
		p.requeueAfter(Period) // it is taken back
	}
	if len(r.Status.Stage.Gates) == 0 && len(result.Status.Stage.Gates) > 0 {
		p.requeueAfter(Period) // the stage has come to its gates: the next pass reads them
	}
	before := r.Status.DeepCopy()
	if err := p.saveRolloutStatus(ctx, r, &result.Status); err != nil {
		return nil, err
	}
	p.recordEvents(r, before)
	if r.Status.Phase.IsOver() { // the next pass may no longer find the change
		p.forgetEnded(r)
	} else {
		setOrDeleteMetrics(r)
	}
	return &r.Status, nil
}

// requestGatesAfterSoak returns the last results of those gates of the current stage that need a request, if the soak
// of the stage is over. The gates are read in other goroutines, because a server that does not answer would delay the
// halts of all modules. A stage without a proven runtime has no soak: it has come to its gates when its status has
// them.
func (p *pass) requestGatesAfterSoak(r *v1beta2.ModuleRollout) map[string]v1beta2.RolloutGateStatus {
	s := &r.Status.Stage
	if s.SoakUntil.IsZero() && len(s.Gates) == 0 || p.now.Before(s.SoakUntil.Time) ||
		int(s.Index) >= len(r.Spec.Stages) {
		return nil
	}
	results, next := p.gateResults.RequestResults(r)
	p.requeueAfter(next)
	return results
}

// saveHeldStatus records in the status that the stages of a rollout cannot be computed.
func (p *pass) saveHeldStatus(ctx context.Context, r *v1beta2.ModuleRollout, why error) (*v1beta2.ModuleRolloutStatus,
	error) {
	p.forgetFlight(r.Name)
	next := r.Status.DeepCopy()
	next.Phase, next.Message, next.Admitted = v1beta2.RolloutHeld, why.Error(), ""
	next.Blockers = []v1beta2.RolloutBlocker{{Code: v1beta2.ReasonPolicyInvalid, Message: why.Error(),
		Remedy: "correct the RolloutPolicy, and move the channel again"}}
	rollout.SetConditions(&next.Conditions, r.Generation, next.Phase, next.Message, p.now)
	if err := p.saveRolloutStatus(ctx, r, next); err != nil {
		return nil, err
	}
	setOrDeleteMetrics(r)
	return next, nil
}

// saveRolloutStatus writes the status of a rollout if it has changed. The write fails if another client has written the
// rollout since it was read.
func (p *pass) saveRolloutStatus(ctx context.Context, r *v1beta2.ModuleRollout,
	next *v1beta2.ModuleRolloutStatus) error {
	if loop.Equal(&r.Status, next) {
		return nil
	}
	updated := r.DeepCopy()
	updated.Status = *next
	if err := p.Client.Status().Patch(ctx, updated, client.MergeFromWithOptions(r,
		client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1beta2.FieldOwner)); err != nil {
		return fmt.Errorf("writing the status of ModuleRollout %s: %w", r.Name, err)
	}
	metrics.StatusWrites.WithLabelValues("rollout").Inc()
	updated.Status = *next // as computed: times keep their precision
	*r = *updated
	return nil
}

// saveStatusAndPruneRollouts writes the status of the release and deletes old rollouts, if the status has changed. The
// write fails if another client has written the release since it was read.
func (p *pass) saveStatusAndPruneRollouts(ctx context.Context, next *v1beta2.ModuleReleaseMetaStatus) error {
	if loop.Equal(&p.release.Status, next) {
		return nil
	}
	updated := p.release.DeepCopy()
	updated.Status = *next
	if err := p.Client.Status().Patch(ctx, updated, client.MergeFromWithOptions(p.release,
		client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1beta2.FieldOwner)); err != nil {
		return fmt.Errorf("writing the status of ModuleReleaseMeta %s: %w", p.release.Name, err)
	}
	return p.deleteOldRollouts(ctx)
}

// keptRollouts is the number of rollouts of a channel that are kept after they have ended.
const keptRollouts = 10

// deleteOldRollouts deletes the oldest rollouts that have ended.
func (p *pass) deleteOldRollouts(ctx context.Context) error {
	ended := map[string][]*v1beta2.ModuleRollout{}
	for i := range p.rollouts {
		if r := &p.rollouts[i]; r.Status.Phase.IsOver() && !slices.ContainsFunc(p.release.Status.Channels,
			func(s v1beta2.ChannelStatus) bool { return s.Rollout == r.Name }) {
			ended[r.Spec.Channel] = append(ended[r.Spec.Channel], r)
		}
	}
	for _, all := range ended {
		slices.SortFunc(all, func(a, b *v1beta2.ModuleRollout) int { return int(b.Spec.Revision - a.Spec.Revision) })
		for _, r := range all[min(len(all), keptRollouts):] {
			err := p.Client.Delete(ctx, r, client.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion})
			if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("deleting ModuleRollout %s: %w", r.Name, err)
			}
		}
	}
	return nil
}

// event records an event on a rollout.
func (p *pass) event(r *v1beta2.ModuleRollout, kind, reason, note string) {
	if p.Events != nil {
		p.Events.Eventf(r, nil, kind, reason, "Coordinate", "%s", note)
	}
}

// recordEvents records the events that follow from the difference between two statuses of a rollout.
func (p *pass) recordEvents(r *v1beta2.ModuleRollout, before *v1beta2.ModuleRolloutStatus) {
	s := &r.Status
	if s.Stage.Name != before.Stage.Name && s.Stage.Name != "" {
		p.event(r, corev1.EventTypeNormal, v1beta2.EventStageStarted, "stage "+s.Stage.Name+" begins")
	}
	if !s.Stage.ProvenAt.IsZero() && before.Stage.ProvenAt.IsZero() {
		note := "stage " + s.Stage.Name + " has reached its quorum"
		i := slices.IndexFunc(s.Stages, func(is v1beta2.RolloutStageResult) bool { return is.Name == s.Stage.Name })
		if i >= 0 && s.Stages[i].Evidence != "" {
			note += ": " + s.Stages[i].Evidence
		}
		p.event(r, corev1.EventTypeNormal, v1beta2.EventStageProven, note)
	}
	if s.Phase == before.Phase {
		return
	}
	switch s.Phase {
	case v1beta2.RolloutHalted:
		metrics.RolloutsHalted.WithLabelValues(firstBlockerCode(s)).Inc()
		p.event(r, corev1.EventTypeWarning, v1beta2.EventRolloutHalted, s.Message)
	case v1beta2.RolloutHeld:
		p.event(r, corev1.EventTypeWarning, v1beta2.EventRolloutHeld, s.Message)
	case v1beta2.RolloutWaitingForGate:
		p.event(r, corev1.EventTypeNormal, v1beta2.EventGateWaits, s.Message)
	case v1beta2.RolloutEndedAborted:
		p.event(r, corev1.EventTypeNormal, v1beta2.EventRolloutAborted, s.Message)
	case v1beta2.RolloutCompleted:
		p.event(r, corev1.EventTypeNormal, v1beta2.EventRolloutCompleted, s.Message)
	}
}

func firstBlockerCode(s *v1beta2.ModuleRolloutStatus) string {
	if len(s.Blockers) > 0 {
		return s.Blockers[0].Code
	}
	return ""
}
