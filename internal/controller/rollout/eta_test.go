package rollout

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/plan"
)

// members returns the first n runtimes of the fleet as values of the type rollout.Runtime, which package plan makes
// from Kymas and Manifests.
func (f *fleet) members(n int) []rollout.Runtime {
	f.Helper()
	catalog, _ := f.catalog(f.Context())
	members := plan.Fleet{Release: f.release(f.Context()), Channel: "regular", Catalog: catalog, Now: time.Now()}
	var all []rollout.Runtime
	for i := range n {
		name := fmt.Sprintf("runtime-%d", i)
		k, m := &v1beta2.Kyma{}, &v1beta2.Manifest{}
		if err := f.control.Get(f.Context(), types.NamespacedName{Namespace: namespace, Name: name}, k); err != nil {
			f.Fatal(err)
		}
		key := types.NamespacedName{Namespace: namespace, Name: name + "-keda"}
		if err := f.control.Get(f.Context(), key, m); err != nil {
			f.Fatal(err)
		}
		if is, takesPart := members.Runtime(k, m); takesPart {
			all = append(all, is)
		}
	}
	return all
}

// planned returns the present plan of a rollout.
func (f *fleet) planned(r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy, n int) *plan.Plan {
	f.Helper()
	p, err := plan.For(r, policy, f.members(n), time.Now())
	if err != nil {
		f.Fatal(err)
	}
	return p
}

// TestExpectedStages checks that the status of a rollout has the times at which the planner expects its stages to begin
// and to end, until the rollout is paused or has ended. After a restart, the manager does not write the status again.
func TestExpectedStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := onePolicy()
		policy.Spec.Stages = []v1beta2.RolloutStage{{Name: "half", Percent: 50, MinCount: 1,
			Soak: metav1.Duration{Duration: 5 * time.Hour}}, {Name: "rest"}}
		from := time.Now().Add(4 * time.Hour).Truncate(time.Second)
		policy.Spec.Freezes = []v1beta2.RolloutFreeze{{Name: "sale", From: metav1.NewTime(from),
			To: metav1.NewTime(from.Add(24 * time.Hour))}}
		const n = 8
		f := newFleet(t, append(objects(n), policy)...)
		f.pass()
		f.move("2.0.0")
		f.pass()
		time.Sleep(time.Second) // until the version has settled
		f.pass()
		r := f.rollout("keda-regular-r2")
		p := f.planned(r, policy, n)
		isRounded := func(what string, got metav1.Time, want time.Time) {
			t.Helper()
			if d := got.Sub(want); d < -time.Minute || d > 11*time.Minute || want.IsZero() {
				t.Errorf("%s is %s in the status, and %s in the plan", what, got, want)
			}
		}
		if got := r.Status.Stages[0].ExpectedBegin; !got.IsZero() {
			t.Errorf("the first stage has begun, and is expected at %s", got)
		}
		isRounded("the end of the first stage", r.Status.Stages[0].ExpectedEnd, p.Stages[0].Ends)
		isRounded("the begin of the second stage", r.Status.Stages[1].ExpectedBegin, p.Stages[1].Begins)
		isRounded("the end of the second stage", r.Status.Stages[1].ExpectedEnd, p.Stages[1].Ends)
		if got := r.Status.Stages[1].ExpectedBegin; got.Before(new(metav1.NewTime(from.Add(24 * time.Hour)))) {
			t.Errorf("the second stage is expected to begin at %s, in the freeze", got)
		}

		restarted, err := New(f.Options)
		if err != nil {
			t.Fatal(err)
		}
		f.Reconciler = restarted
		f.pass()
		if is := f.rollout(r.Name).ResourceVersion; is != r.ResourceVersion {
			t.Errorf("a restart has written the rollout: %s, then %s", r.ResourceVersion, is)
		}

		r.Spec.State = v1beta2.RolloutPaused
		if err := f.control.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		f.pass()
		r = f.rollout(r.Name)
		for _, s := range r.Status.Stages {
			if !s.ExpectedBegin.IsZero() || !s.ExpectedEnd.IsZero() {
				t.Errorf("the rollout is paused, and stage %s is expected: %+v", s.Name, s)
			}
		}
		r.Spec.State = v1beta2.RolloutRunning
		if err := f.control.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		f.pass()
		if got := f.rollout(r.Name).Status.Stages[1].ExpectedBegin; got.IsZero() {
			t.Error("the rollout goes on, and its second stage is not expected")
		}
		f.move("1.0.0")
		f.pass()
		time.Sleep(time.Second)
		f.pass()
		if s := f.rollout(r.Name).Status; s.Phase != v1beta2.RolloutEndedAborted || !s.Stages[1].ExpectedEnd.IsZero() {
			t.Errorf("the rollout has ended: %+v", s)
		}
	})
}

// TestExpectedStagesStay checks that the expected times of stages cause no status writes of their own. While no runtime
// changes, these times change only together with the expected end of the rollout, even if the manager restarts.
func TestExpectedStagesStay(t *testing.T) {
	policy := onePolicy()
	policy.Spec.Stages = []v1beta2.RolloutStage{{Name: "half", Percent: 50, MinCount: 1,
		Gates: []v1beta2.RolloutGate{{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 1}}}}, {Name: "rest"}}
	const n = 8
	f := newFleet(t, append(objects(n), policy)...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	r := f.rollout("keda-regular-r2")
	runtimes := f.members(n)
	status, changes := r.Status.DeepCopy(), 0
	for i := range 300 {
		before := status.DeepCopy()
		if i%10 == 0 {
			clear(f.forecasts) // a restart
		}
		p := &pass{Reconciler: f.Reconciler, now: time.Now().Add(time.Duration(i) * 61 * time.Second)}
		p.updateForecastIfDue(t.Context(), r, status, policy, runtimes)
		if status.ETA.Equal(&before.ETA) {
			if diff := cmp.Diff(before.Stages, status.Stages); diff != "" {
				t.Fatalf("step %d: the stages are expected at other times, and the rollout is not:\n%s", i, diff)
			}
			continue
		}
		changes++
	}
	if changes == 0 {
		t.Error("nothing has changed in five hours")
	}
}
