package kyma

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// series are the label values of the gauges of one Kyma that are 1. There are none for states that do not hold: of ten thousand runtimes that
// would be hundreds of thousands. They are remembered because to look for them means to look at those of all runtimes.
type series struct {
	kyma      []string            // of metrics.KymaState; nil if there is none
	modules   map[string][]string // of metrics.ModuleState, by module
	mandatory map[string][]string // of metrics.MandatoryModuleState, by module
}

// reportMetrics sets the gauges of this Kyma and its modules, and drops those that hold no longer.
func (n *run) reportMetrics() {
	if !n.RuntimeMetrics {
		return
	}
	instance, shoot := n.kyma.Labels[v1beta2.LabelInstanceID], shootOf(n.kyma)
	s := n.seriesOf(n.kyma.Name)
	n.seriesMu.Lock()
	defer n.seriesMu.Unlock()
	state := string(n.kyma.Status.State)
	s.kyma = move(metrics.KymaState, s.kyma, []string{n.kyma.Name, state, shoot, instance})
	wanted := make(map[string][]string, len(n.kyma.Status.Modules))
	for _, m := range n.kyma.Status.Modules {
		wanted[m.Name] = []string{m.Name, n.kyma.Name, string(m.State), shoot, instance}
	}
	s.modules = moveAll(metrics.ModuleState, s.modules, wanted)
}

// reportMandatoryMetrics sets the gauges of the mandatory modules of this Kyma, and drops those that hold no longer.
func (n *run) reportMandatoryMetrics(modules []v1beta2.ModuleStatus) {
	if !n.RuntimeMetrics {
		return
	}
	s := n.seriesOf(n.kyma.Name)
	n.seriesMu.Lock()
	defer n.seriesMu.Unlock()
	wanted := make(map[string][]string, len(modules))
	for _, m := range modules {
		wanted[m.Name] = []string{m.Name, n.kyma.Name, string(m.State)}
	}
	s.mandatory = moveAll(metrics.MandatoryModuleState, s.mandatory, wanted)
}

// seriesOf returns what is remembered of a Kyma.
func (r *Reconciler) seriesOf(kyma string) *series {
	r.seriesMu.Lock()
	defer r.seriesMu.Unlock()
	s := r.series[kyma]
	if s == nil {
		s = &series{}
		r.series[kyma] = s
	}
	return s
}

// move sets the series with the values in to, instead of that with the values in from, and returns to.
func move(gauge *prometheus.GaugeVec, from, to []string) []string {
	if slices.Equal(from, to) {
		return from
	}
	if from != nil {
		gauge.DeleteLabelValues(from...)
	}
	if to != nil {
		gauge.WithLabelValues(to...).Set(1)
	}
	return to
}

// moveAll does the same for several, by whatever tells them apart.
func moveAll(gauge *prometheus.GaugeVec, from, to map[string][]string) map[string][]string {
	if len(to) == 0 {
		to = nil
	}
	for key, values := range from {
		if to[key] == nil {
			move(gauge, values, nil)
		}
	}
	for key, values := range to {
		move(gauge, from[key], values)
	}
	return to
}

// forgetMetrics drops the gauges of a Kyma that is gone.
func (r *Reconciler) forgetMetrics(kyma string) {
	metrics.CertificateOverdue.DeleteLabelValues(kyma)
	r.seriesMu.Lock()
	defer r.seriesMu.Unlock()
	s := r.series[kyma]
	if s == nil {
		return
	}
	delete(r.series, kyma)
	move(metrics.KymaState, s.kyma, nil)
	moveAll(metrics.ModuleState, s.modules, nil)
	moveAll(metrics.MandatoryModuleState, s.mandatory, nil)
}

// shootOf is the first label of the runtime's domain, if it has at least three.
func shootOf(k *v1beta2.Kyma) string {
	parts := strings.Split(k.Annotations[v1beta2.AnnotationSKRDomain], ".")
	if len(parts) < 3 {
		return ""
	}
	return parts[0]
}
