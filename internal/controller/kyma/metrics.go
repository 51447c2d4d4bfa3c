package kyma

import (
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// renewalGracePeriod is the time for which the renewal of a certificate may be overdue before a metric reports it.
const renewalGracePeriod = 24 * time.Hour

// recordMetrics sets the metrics of this Kyma and its modules after the status was reported. recordMetrics deletes the
// series that no longer match the status.
func (n *run) recordMetrics() {
	owner := n.Namespace + "/" + n.kyma.Name
	metrics.Modules.Set(owner, moduleLabelValues(n.kyma.Status.Modules)...)
	if n.found.resolved {
		metrics.Modules.Set(owner+"/mandatory", moduleLabelValues(plan.MandatoryEntries(n.modules, n.now))...)
	}
	if !n.RuntimeMetrics {
		return
	}
	instance, shoot := n.kyma.Labels[v1beta2.LabelInstanceID], shootFromDomain(n.kyma)
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

// moduleLabelValues returns the label values for the metric that counts the modules of the fleet.
func moduleLabelValues(modules []v1beta2.ModuleStatus) [][]string {
	all := make([][]string, len(modules))
	for i, m := range modules {
		all[i] = []string{m.Name, m.Version, m.Channel, string(m.State)}
	}
	return all
}

// forgetMetrics deletes the metrics of a deleted Kyma.
func (r *Reconciler) forgetMetrics(kyma string) {
	metrics.Modules.Set(r.Namespace + "/" + kyma)
	metrics.Modules.Set(r.Namespace + "/" + kyma + "/mandatory")
	metrics.CertificateOverdue.DeleteLabelValues(kyma)
	metrics.KymaState.Set(kyma)
	metrics.ModuleState.Set(kyma)
	metrics.MandatoryModuleState.Set(kyma)
}

// shootFromDomain returns the name of the Gardener cluster (shoot) of a runtime: the first label of the domain name of
// the runtime. If the domain name has fewer than three labels, shootFromDomain returns "".
func shootFromDomain(k *v1beta2.Kyma) string {
	parts := strings.Split(k.Annotations[v1beta2.AnnotationSKRDomain], ".")
	if len(parts) < 3 {
		return ""
	}
	return parts[0]
}
