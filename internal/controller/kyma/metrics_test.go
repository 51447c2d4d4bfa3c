package kyma

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// TestSeries checks that a runtime has one series for its state and one series for each module, regardless of its
// earlier series.
func TestSeries(t *testing.T) {
	r := testReconciler(t, Options{RuntimeMetrics: true, Namespace: "n"})
	modules := func() int {
		all := make(chan prometheus.Metric, 100)
		metrics.Modules.Collect(all)
		return len(all)
	}
	count := func() int {
		all := make(chan prometheus.Metric, 100)
		for _, c := range []prometheus.Collector{metrics.KymaState, metrics.ModuleState, metrics.MandatoryModuleState} {
			c.Collect(all)
		}
		return len(all)
	}
	report := func(kyma string, state v1beta2.State, modules ...string) {
		n := &run{Reconciler: r, kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: kyma}}}
		n.kyma.Status.State = state
		for _, m := range modules {
			n.kyma.Status.Modules = append(n.kyma.Status.Modules, v1beta2.ModuleStatus{Name: m, State: state})
		}
		n.modules = []plan.Module{{Spec: v1beta2.Module{Name: "mandatory"}, IsMandatory: true}}
		n.found.resolved = true
		n.recordMetrics()
	}
	report("a", v1beta2.StateProcessing, "x", "y")
	report("b", v1beta2.StateReady, "x")
	if n := count(); n != 4+3 {
		t.Errorf("%d series, want 4 and 3", n)
	}
	if n := modules(); n != 4 { // x and y Processing, x Ready, and the mandatory module of both Kymas
		t.Errorf("%d series of modules, want 4", n)
	}
	for range 2 {
		report("a", v1beta2.StateReady, "y")
		if n := count(); n != 3+3 {
			t.Errorf("%d series, want 3 and 3", n)
		}
	}
	r.forgetMetrics("a")
	r.forgetMetrics("b")
	r.forgetMetrics("c")
	if n := count() + modules(); n != 0 {
		t.Errorf("%d series are left of deleted Kymas", n)
	}
}
