package rollout

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// The limits of the fleet need to know what the other rollouts are updating. The coordinator remembers the runtimes in
// flight of each active rollout from its last pass.

// setFlight records the runtimes that a rollout is updating.
func (p *pass) setFlight(r *v1beta2.ModuleRollout, kymas []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := flight{policy: r.Spec.Policy, kymas: make(map[string]bool, len(kymas))}
	for _, k := range kymas {
		f.kymas[k] = true
	}
	p.flights[r.Name] = f
}

// forget removes the flight and the metrics of a rollout that has ended. Its updates that are still under way use no
// slot of other rollouts.
func (p *pass) forget(r *v1beta2.ModuleRollout) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.flights, r.Name)
	delete(p.forecasts, r.Name)
	count(r)
}

// isBlind reports whether this process has not yet seen what another active rollout is updating.
func (p *pass) isBlind(r *v1beta2.ModuleRollout) bool {
	if r.Spec.Policy == "" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.others, func(name string) bool {
		_, seen := p.flights[name]
		return !seen
	})
}

// count sets the metrics of a rollout. A rollout that has ended has none.
func count(r *v1beta2.ModuleRollout) {
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

// flightsBeside returns the runtimes in which another staged rollout is under way, if the policy is exclusive, and the
// number of runtimes that the other rollouts of the policy are updating.
func (p *pass) flightsBeside(r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy) (busy map[string]bool,
	others int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	isExclusive := policy == nil || policy.Spec.Exclusive == nil || *policy.Spec.Exclusive
	busy = map[string]bool{}
	for name, f := range p.flights {
		if name == r.Name || f.policy == "" {
			continue
		}
		if f.policy == r.Spec.Policy {
			others += len(f.kymas)
		}
		if isExclusive && r.Spec.Policy != "" {
			for k := range f.kymas {
				busy[k] = true
			}
		}
	}
	return busy, others
}
