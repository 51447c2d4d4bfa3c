package kyma

import (
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// renewalGracePeriod is the time for which the renewal of a certificate may be overdue before a metric reports the
// certificate.
const renewalGracePeriod = 24 * time.Hour

// recordMetrics sets the gauges of this Kyma and its modules after the status was reported. recordMetrics deletes the
// gauges that no longer match the status.
func (n *run) recordMetrics() {
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
	if n.found.resolved && n.kyma.DeletionTimestamp.IsZero() {
		var mandatory [][]string
		for _, m := range plan.MandatoryEntries(n.modules, n.now) {
			mandatory = append(mandatory, []string{m.Name, n.kyma.Name, string(m.State)})
		}
		metrics.MandatoryModuleState.Set(n.kyma.Name, mandatory...)
	}
	if n.agents.CertificateOverdue(n.kyma.Status.Agent, n.now) > renewalGracePeriod {
		metrics.CertificateOverdue.WithLabelValues(n.kyma.Name).Set(1)
	} else {
		metrics.CertificateOverdue.DeleteLabelValues(n.kyma.Name)
	}
}

// forgetMetrics deletes the gauges of a deleted Kyma.
func (r *Reconciler) forgetMetrics(kyma string) {
	metrics.CertificateOverdue.DeleteLabelValues(kyma)
	metrics.KymaState.Set(kyma)
	metrics.ModuleState.Set(kyma)
	metrics.MandatoryModuleState.Set(kyma)
}

// shootOf returns the first label of the domain of the runtime. If the domain has fewer than three labels, shootOf
// returns "".
func shootOf(k *v1beta2.Kyma) string {
	parts := strings.Split(k.Annotations[v1beta2.AnnotationSKRDomain], ".")
	if len(parts) < 3 {
		return ""
	}
	return parts[0]
}
