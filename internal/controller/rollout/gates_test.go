package rollout

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

const gateHost = "http://gate.example.com"

// answering sends no request: it answers as a server of Prometheus does.
type answering func(r *http.Request) (answer string)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	_, _ = w.WriteString(a(r))
	return w.Result(), r.Context().Err()
}

const passes = `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`

// gatedPolicy is a policy whose first stage has a gate, and selects the runtimes with the label stage=first.
func gatedPolicy() *v1beta2.RolloutPolicy {
	p := onePolicy()
	p.Spec.Stages = []v1beta2.RolloutStage{{Name: "first",
		Selector: &v1beta2.StageSelector{MatchLabels: map[string]string{"stage": "first"}},
		Gates: []v1beta2.RolloutGate{{Name: "errors", PromQL: &v1beta2.PromQLGate{Expr: "up", URL: gateHost}}}},
		{Name: "half", Percent: 50}, {Name: "rest"}}
	return p
}

// TestGateOfUnprovenStage checks that the gate of a stage without a proven runtime is read, so that a stage without any
// runtime passes, and a stage whose runtimes cannot be updated waits for evidence.
func TestGateOfUnprovenStage(t *testing.T) {
	for name, c := range map[string]struct {
		isPaused bool // the first stage has a runtime, which is paused
		want     int32
		blocker  string // "" means that no blocker is wanted
	}{
		"NoRuntime":     {want: 1},
		"PausedRuntime": {isPaused: true, blocker: v1beta2.ReasonNoEvidence},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := append(objects(2), gatedPolicy())
				if c.isPaused {
					all[1].SetLabels(map[string]string{"stage": "first"})
					ready := &all[2].(*v1beta2.Manifest).Status.Conditions[0]
					ready.Status, ready.Reason = metav1.ConditionFalse, v1beta2.ReasonModulePaused
				}
				f := newFleet(t, all...)
				requests := atomic.Int32{}
				f.gates.Allow, f.gates.Client = []string{gateHost}, &http.Client{Transport: answering(
					func(*http.Request) string { requests.Add(1); return passes })}
				f.pass()
				f.move("2.0.0")
				f.pass()
				time.Sleep(time.Second) // until the version has settled
				f.pass()
				if c.isPaused {
					time.Sleep(31 * time.Minute) // until the stage no longer waits for its runtime
					f.once("keda")
				}
				f.once("keda")
				s := f.rollout("keda-regular-r2").Status
				if n := requests.Load(); n != 1 || s.Stage.Index != c.want {
					t.Errorf("%d requests, stage %d: %s %+v", n, s.Stage.Index, s.Message, s.Blockers)
				}
				if c.blocker != "" && (len(s.Blockers) == 0 || s.Blockers[0].Code != c.blocker) {
					t.Errorf("want the blocker %s: %+v", c.blocker, s.Blockers)
				}
			})
		})
	}
}
