package rollout

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/rollout/gate"
)

const gateHost = "http://gate.example.com"

// answering sends no request: it answers as a server of Prometheus does.
type answering func(r *http.Request) (answer string)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	_, _ = w.WriteString(a(r))
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

const passes = `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`

// gatedPolicy is a policy whose first stage has a gate, and selects the runtimes with the label stage=first.
func gatedPolicy() *v1beta2.RolloutPolicy {
	p := onePolicy()
	p.Spec.Stages = []v1beta2.RolloutStage{{Name: "first",
		Selector: &v1beta2.StageSelector{MatchLabels: map[string]string{"stage": "first"}},
		Gates:    []v1beta2.RolloutGate{{Name: "errors", PromQL: &v1beta2.PromQLGate{Expr: "up", URL: gateHost}}}},
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
				go func() { _ = f.gateResults.Start(t.Context()) }()
				f.pass()
				f.move("2.0.0")
				f.pass()
				time.Sleep(time.Second) // until the version has settled
				f.pass()
				if c.isPaused {
					time.Sleep(31 * time.Minute) // until the stage no longer waits for its runtime
					f.once("keda")
				}
				f.once("keda") // requests the gate
				synctest.Wait()
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

// TestGateWithoutAnswer checks that a server that does not answer delays no reconcile, neither of the module with the
// gate nor of another one, whose rollout is halted meanwhile. The gate is read at most once per gate.Interval.
func TestGateWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := append(objects(2), gatedPolicy())
		m := all[2].(*v1beta2.Manifest).DeepCopy()
		m.Status = manifestStatus("2.0.0", v1beta2.StateError)
		f := newFleet(t, append(all, otherUpdate(m)...)...)
		requests := atomic.Int32{}
		f.gates.Allow, f.gates.Client = []string{gateHost}, &http.Client{Transport: answering(
			func(r *http.Request) string { requests.Add(1); <-r.Context().Done(); return "" })}
		go func() { _ = f.gateResults.Start(t.Context()) }()
		f.pass()
		f.move("2.0.0")
		f.pass()
		time.Sleep(time.Second) // until the version has settled
		begin := time.Now()
		f.pass()
		synctest.Wait()
		f.pass()
		if n := requests.Load(); n != 1 {
			t.Fatalf("%d requests", n)
		}
		f.once("other")
		if s := f.rollout("other-fast-r2").Status; s.Phase != v1beta2.RolloutHalted {
			t.Errorf("the other rollout: %s %+v", s.Phase, s.Runtimes)
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("the reconciles took %s", waited)
		}
		time.Sleep(gate.Interval - time.Second)
		f.pass()
		if s := f.rollout("keda-regular-r2").Status; requests.Load() != 1 || s.Phase != v1beta2.RolloutWaitingForGate ||
			!strings.Contains(s.Message, "no answer") {
			t.Errorf("after the timeout and %d requests: %s %s", requests.Load(), s.Phase, s.Message)
		}
		time.Sleep(time.Second)
		f.pass()
		synctest.Wait()
		if n := requests.Load(); n != 2 {
			t.Errorf("%d requests after %s", n, gate.Interval)
		}
	})
}
