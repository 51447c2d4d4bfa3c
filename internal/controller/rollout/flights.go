package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// The limits of the fleet depend on the runtimes that the other rollouts are updating. The coordinator keeps the
// runtimes in flight of each active rollout in memory after each reconcile. After a start of the manager, and for a
// rollout that cannot be computed, the coordinator determines the runtimes in flight from the Manifests.

// setFlightIfStaged records the runtimes that a rollout with stages is updating.
func (p *pass) setFlightIfStaged(r *v1beta2.ModuleRollout, kymas []string) {
	if r.Spec.Policy == "" {
		return // all runtimes are admitted at once, so no limit applies
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := flight{kymas: make(map[string]bool, len(kymas))}
	for _, k := range kymas {
		f.kymas[k] = true
	}
	p.flights[r.Name] = f
}

// forgetEnded removes the runtimes in flight and the metrics of a rollout that has ended. Updates of the ended rollout
// that are still in progress do not count in the limits of other rollouts. The runtimes of the ended rollout are not
// busy, so the next rollout can begin with the runtimes in which the ended rollout has failed.
func (p *pass) forgetEnded(r *v1beta2.ModuleRollout) {
	p.staged = slices.DeleteFunc(p.staged, func(s *v1beta2.ModuleRollout) bool { return s.Name == r.Name })
	p.budgets.Set(r, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.flights, r.Name)
	delete(p.forecasts, r.Name)
	setOrDeleteMetrics(r)
}

// flightOf returns the runtimes that an active rollout is updating. If this process has not computed the rollout yet,
// flightOf returns the admitted runtimes, and the runtimes that are not Ready and whose Manifest names the rollout in
// an annotation. A runtime in which a person has paused the module uses no slot. The returned runtimes may include a
// few runtimes that the rollout is not updating.
func (p *pass) flightOf(ctx context.Context, r *v1beta2.ModuleRollout) (flight, error) {
	p.mu.Lock()
	f, seen := p.flights[r.Name]
	p.mu.Unlock()
	if seen {
		return f, nil
	}
	var manifests v1beta2.ManifestList
	if err := p.Fleet.List(ctx, &manifests, client.InNamespace(p.Namespace),
		client.MatchingFields{moduleIndex: r.Spec.Module}, client.UnsafeDisableDeepCopy); err != nil {
		return flight{}, fmt.Errorf("listing the Manifests of module %s: %w", r.Spec.Module, err)
	}
	var names, marked []string
	for i := range manifests.Items {
		m := &manifests.Items[i]
		kyma := m.Labels[v1beta2.LabelKymaName]
		names = append(names, kyma)
		mark, _, _ := strings.Cut(m.Annotations[v1beta2.AnnotationRollout], "/")
		if is := rollout.RuntimeOf(&v1beta2.Kyma{}, m); mark == r.Name && !is.IsReady &&
			evidence.CauseOf(is.Reason) != evidence.CausePerson {
			marked = append(marked, kyma)
		}
	}
	marked = append(marked, place.NewlyAdmitted(r.Spec.Lineage, "", r.Status.Admitted, names)...)
	f = flight{kymas: map[string]bool{}}
	for _, k := range marked {
		f.kymas[k] = true
	}
	return f, nil
}

// forgetFlight removes the recorded runtimes in flight of a rollout whose next status cannot be computed now. Then
// flightOf determines the runtimes from the Manifests.
func (p *pass) forgetFlight(rolloutName string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.flights, rolloutName)
}

// setOrDeleteMetrics sets the metrics that count the runtimes of a rollout. A rollout that has ended has no metrics.
func setOrDeleteMetrics(r *v1beta2.ModuleRollout) {
	of := prometheus.Labels{"module": r.Spec.Module, "channel": r.Spec.Channel}
	metrics.RolloutPhase.DeletePartialMatch(of)
	metrics.RolloutRuntimes.DeletePartialMatch(of)
	metrics.RolloutETA.DeletePartialMatch(of)
	if r.Status.Phase.IsOver() {
		return
	}
	metrics.RolloutPhase.WithLabelValues(r.Spec.Module, r.Spec.Channel, string(r.Status.Phase)).Set(1)
	if eta := r.Status.ETA; !eta.IsZero() {
		metrics.RolloutETA.WithLabelValues(r.Spec.Module, r.Spec.Channel).Set(float64(eta.Unix()))
	}
	c := &r.Status.Runtimes
	for verdict, n := range map[string]int32{"waiting": c.Waiting, "updating": c.Updating, "proven": c.Proven,
		"failed": c.Failed, "lost": c.Lost, "excused": c.Excused} {
		metrics.RolloutRuntimes.WithLabelValues(r.Spec.Module, r.Spec.Channel, verdict).Set(float64(n))
	}
}

// beside counts, for one rollout, the updates of all other active rollouts with stages.
type beside struct {
	busy   map[string]bool // runtimes in these updates, which may not take part in another rollout
	policy usedSlots       // slots that rollouts with the same policy use
	fleet  usedSlots       // slots that all of them use
}

// usedSlots has the number of runtimes that some rollouts are updating, and the names of these rollouts.
type usedSlots struct {
	n  int
	by []string
}

func (u *usedSlots) add(rollout string, f flight) {
	if len(f.kymas) > 0 {
		u.n, u.by = u.n+len(f.kymas), append(u.by, rollout)
	}
}

// limit reduces the slots of a rollout to those that a limit on the updates of all rollouts leaves. A limit of 0 means
// that there is none.
func (u *usedSlots) limit(most int, in *rollout.Inputs) {
	left := max(0, most-u.n)
	if most > 0 && (in.Slots < 0 || left < in.Slots) {
		slices.Sort(u.by) // the cache returns rollouts in any order
		in.Slots, in.SlotsUsedBy = left, u.by
	}
}

// flightsBeside returns the updates of the other active rollouts. The parameter policy is the policy in force for the
// rollout.
func (p *pass) flightsBeside(ctx context.Context, r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy) (beside,
	error) {
	is := beside{busy: map[string]bool{}}
	if r.Spec.Policy == "" {
		return is, nil
	}
	isExclusive := policy == nil || policy.Spec.Exclusive == nil || *policy.Spec.Exclusive
	for _, other := range p.staged {
		if other.Name == r.Name {
			continue
		}
		f, err := p.flightOf(ctx, other)
		if err != nil {
			return is, err
		}
		is.fleet.add(other.Name, f)
		if p.sharesLimit(r, policy, other) {
			is.policy.add(other.Name, f)
		}
		if isExclusive {
			maps.Copy(is.busy, f.kymas)
		}
	}
	return is, nil
}

// sharesLimit reports whether the limit of updates of a rollout also counts the updates of another rollout. The
// parameter policy is the policy in force for the first rollout. Two rollouts with the same policy in force share its
// limit, even if one of them was made before the policy was renamed: otherwise a renamed policy would allow twice as
// many updates.
func (p *pass) sharesLimit(r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy, other *v1beta2.ModuleRollout) bool {
	if others := rollout.PolicyInForce(p.policies, other); policy != nil && others != nil {
		return policy.Name == others.Name
	}
	return r.Spec.Policy == other.Spec.Policy // the limit is that of the former policy, see rollout.MaxUpdating
}

// forgetEndedRollouts forgets the runtimes in flight, the budgets and the results of gates of rollouts that do not
// exist any more, or that have ended.
func (p *pass) forgetEndedRollouts() {
	isActive := func(name string) bool {
		return slices.ContainsFunc(p.staged, func(r *v1beta2.ModuleRollout) bool { return r.Name == name })
	}
	p.budgets.ForgetInactiveRollouts(isActive)
	p.gateResults.Forget(func(name string) bool { return !isActive(name) })
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.flights, func(name string, _ flight) bool { return !isActive(name) })
}
