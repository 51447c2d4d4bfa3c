package kyma

import (
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// reportMetrics sets the gauges of this Kyma and its modules, and drops those that hold no longer.
func (n *run) reportMetrics() {
	if !n.RuntimeMetrics {
		return
	}
	instance, shoot := n.kyma.Labels[v1beta2.LabelInstanceID], shootOf(n.kyma)
	metrics.KymaState.Set(n.kyma.Name, []string{n.kyma.Name, string(n.kyma.Status.State), shoot, instance})
	modules := make([][]string, len(n.kyma.Status.Modules))
	for i, m := range n.kyma.Status.Modules {
		modules[i] = []string{m.Name, n.kyma.Name, string(m.State), shoot, instance}
	}
	metrics.ModuleState.Set(n.kyma.Name, modules...)
}

// reportMandatoryMetrics sets the gauges of the mandatory modules of this Kyma, and drops those that hold no longer.
func (n *run) reportMandatoryMetrics(modules []v1beta2.ModuleStatus) {
	if !n.RuntimeMetrics {
		return
	}
	series := make([][]string, len(modules))
	for i, m := range modules {
		series[i] = []string{m.Name, n.kyma.Name, string(m.State)}
	}
	metrics.MandatoryModuleState.Set(n.kyma.Name, series...)
}

// forgetMetrics drops the gauges of a Kyma that is gone.
func (r *Reconciler) forgetMetrics(kyma string) {
	metrics.CertificateOverdue.DeleteLabelValues(kyma)
	metrics.KymaState.Set(kyma)
	metrics.ModuleState.Set(kyma)
	metrics.MandatoryModuleState.Set(kyma)
}

// shootOf is the first label of the runtime's domain, if it has at least three.
func shootOf(k *v1beta2.Kyma) string {
	parts := strings.Split(k.Annotations[v1beta2.AnnotationSKRDomain], ".")
	if len(parts) < 3 {
		return ""
	}
	return parts[0]
}
