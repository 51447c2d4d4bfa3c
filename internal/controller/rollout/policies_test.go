package rollout

import (
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// TestPolicies checks the status and the metrics of policies, and that an unchanged status is not written.
func TestPolicies(t *testing.T) {
	policy := onePolicy()
	policy.Spec.Stages = append([]v1beta2.RolloutStage{{Name: "own",
		Selector: &v1beta2.StageSelector{MatchLabels: map[string]string{"stage": "own"}},
		Gates:    []v1beta2.RolloutGate{{Name: "errors", Webhook: &v1beta2.WebhookGate{URL: "https://example.com/x"}}},
	}}, policy.Spec.Stages...)
	f := newFleet(t, append(objects(2), policy)...)
	f.MaxUpdating = 7
	read := func() *v1beta2.RolloutPolicy {
		p := &v1beta2.RolloutPolicy{}
		if err := f.control.Get(t.Context(), client.ObjectKeyFromObject(policy), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	reconcileOnce := func() {
		if _, err := (policies{f.Reconciler}).Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(ready, stalled metav1.ConditionStatus, reason, message string, metric float64) {
		t.Helper()
		p := read()
		is := meta.FindStatusCondition(p.Status.Conditions, v1beta2.ConditionReady)
		if is == nil || is.Status != ready || is.Reason != reason || !strings.Contains(is.Message, message) ||
			!meta.IsStatusConditionPresentAndEqual(p.Status.Conditions, "Stalled", stalled) {
			t.Errorf("the conditions: %+v", p.Status.Conditions)
		}
		var m dto.Metric
		if err := metrics.RolloutPolicyReady.WithLabelValues(p.Name).Write(&m); err != nil ||
			m.GetGauge().GetValue() != metric {
			t.Errorf("the metric: %v, %v", &m, err)
		}
	}
	reconcileOnce()
	expect(metav1.ConditionFalse, metav1.ConditionTrue, v1beta2.ReasonPolicyInvalid,
		"spec.stages[own].gates[errors].webhook.url: the manager may not call this address", 0)
	f.gates.Allow = []string{"https://example.com"}
	reconcileOnce()
	expect(metav1.ConditionTrue, metav1.ConditionFalse, v1beta2.ReasonPolicyAccepted,
		"channels: 1 of 1 modules; no runtime has the labels of stage own", 1)
	before := read()
	if before.Status.FleetMaxUpdating != 7 {
		t.Errorf("the limit of the manager: %+v", before.Status)
	}
	reconcileOnce()
	if after := read(); after.ResourceVersion != before.ResourceVersion {
		t.Error("an unchanged status is written")
	}
	if err := f.control.Delete(t.Context(), client.Object(before)); err != nil {
		t.Fatal(err)
	}
	reconcileOnce()
}

// TestRenamedPolicy checks that rollouts share the limit of a policy that was renamed while one of them was under way.
func TestRenamedPolicy(t *testing.T) {
	made := func(module, policy string) *v1beta2.ModuleRollout {
		return &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: module + "-regular-r2"},
			Spec: v1beta2.ModuleRolloutSpec{Module: module, Channel: "regular", Policy: policy}}
	}
	for name, c := range map[string]struct {
		reason   string
		policies []string
		own      *v1beta2.ModuleRollout
		other    *v1beta2.ModuleRollout
		want     int
	}{
		"OtherRenamed": {"the other one was made before", []string{"new"}, made("keda", "new"),
			made("istio", "old"), 1},
		"OwnRenamed": {"this one was made before", []string{"new"}, made("keda", "old"), made("istio", "new"), 1},
		"Deleted":    {"the former limit stays", nil, made("keda", "old"), made("istio", "old"), 1},
		"Different": {"each policy has its own limit", []string{"new", "old"}, made("keda", "new"),
			made("istio", "old"), 0},
	} {
		f := newFleet(t, objects(0)...)
		p := &pass{Reconciler: f.Reconciler, staged: []*v1beta2.ModuleRollout{c.own, c.other}}
		for _, policy := range c.policies {
			one := onePolicy()
			one.Name = policy
			p.policies = append(p.policies, *one)
		}
		p.setFlightIfStaged(c.other, []string{"runtime-0"})
		beside, err := p.flightsBeside(t.Context(), c.own, rollout.PolicyInForce(p.policies, c.own))
		if err != nil {
			t.Fatal(err)
		}
		if beside.policy.n != c.want {
			t.Errorf("%s: %s: %d slots of the policy are used, want %d", name, c.reason, beside.policy.n, c.want)
		}
	}
}
