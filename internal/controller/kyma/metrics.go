package kyma

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// kymaStates and moduleStates are the values of label "state" of the two gauges.
var (
	kymaStates   = []v1beta2.State{v1beta2.StateProcessing, v1beta2.StateDeleting, v1beta2.StateReady, v1beta2.StateError, v1beta2.StateWarning}
	moduleStates = append([]v1beta2.State{v1beta2.StateUnmanaged}, kymaStates...)
)

// reportMetrics sets the gauges of this Kyma and its modules, and drops those of modules that are gone.
func (n *run) reportMetrics() {
	if !n.RuntimeMetrics {
		return
	}
	instance := n.kyma.Labels[v1beta2.LabelInstanceID]
	shoot := shootOf(n.kyma)
	for _, state := range kymaStates {
		metrics.KymaState.WithLabelValues(n.kyma.Name, string(state), shoot, instance).Set(oneIf(n.kyma.Status.State == state))
	}
	metrics.ModuleState.DeletePartialMatch(prometheus.Labels{"kyma_name": n.kyma.Name})
	for _, m := range n.kyma.Status.Modules {
		for _, state := range moduleStates {
			metrics.ModuleState.WithLabelValues(m.Name, n.kyma.Name, string(state), shoot, instance).Set(oneIf(m.State == state))
		}
	}
}

// reportMandatoryMetrics sets the gauges of the mandatory modules of this Kyma, and drops those of modules that are gone.
func (n *run) reportMandatoryMetrics(modules []v1beta2.ModuleStatus) {
	if !n.RuntimeMetrics {
		return
	}
	metrics.MandatoryModuleState.DeletePartialMatch(prometheus.Labels{"kyma_name": n.kyma.Name})
	for _, m := range modules {
		for _, state := range kymaStates {
			metrics.MandatoryModuleState.WithLabelValues(m.Name, n.kyma.Name, string(state)).Set(oneIf(m.State == state))
		}
	}
}

// forgetMetrics drops the gauges of a Kyma that is gone.
func (r *Reconciler) forgetMetrics(kyma string) {
	metrics.KymaState.DeletePartialMatch(prometheus.Labels{"kyma_name": kyma})
	metrics.ModuleState.DeletePartialMatch(prometheus.Labels{"kyma_name": kyma})
	metrics.MandatoryModuleState.DeletePartialMatch(prometheus.Labels{"kyma_name": kyma})
	metrics.CertificateOverdue.DeleteLabelValues(kyma)
}

// shootOf is the first label of the runtime's domain, if it has at least three.
func shootOf(k *v1beta2.Kyma) string {
	parts := strings.Split(k.Annotations[v1beta2.AnnotationSKRDomain], ".")
	if len(parts) < 3 {
		return ""
	}
	return parts[0]
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
