package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// start is the time at which the rollouts of the tests begin.
var start = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

// world is a fleet with one rollout. The type world simulates the manager.
type world struct {
	t        *testing.T
	rollout  *v1beta2.ModuleRollout
	runtimes []Runtime
	now      time.Time
	in       Inputs // the inputs that are the same for every call
}

// newWorld returns a fleet of n runtimes with version 1.0.0 that work, and a rollout to 1.1.0.
func newWorld(t *testing.T, n int, p v1beta2.RolloutPolicySpec) *world {
	w := &world{t: t, now: start, in: Inputs{Slots: -1}}
	w.rollout = New(Move{Namespace: "kcp-system", Module: "keda", Channel: "regular", From: "1.0.0",
		To: "1.1.0", Revision: 7,
		Policy: &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Spec: p}, Fleet: n})
	w.rollout.CreationTimestamp, w.rollout.Generation = metav1.NewTime(start), 1
	for i := range n {
		w.runtimes = append(w.runtimes, Runtime{Kyma: fmt.Sprintf("runtime-%04d", i), Ordered: "1.0.0", IsReady: true,
			IsObserved: true, State: v1beta2.StateReady, Since: start.Add(-24 * time.Hour)})
	}
	return w
}

// step calls Advance, stores the status as an API server does, and sets the requested version of the admitted runtimes
// to the new version.
func (w *world) step() Result {
	w.t.Helper()
	got := w.decide()
	places, err := place.New(w.rollout)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range w.runtimes {
		r := &w.runtimes[i]
		if r.Ordered != "1.1.0" && place.IsAdmitted(got.Status.Admitted, places.Of(r.Kyma, r.Labels).Token) {
			w.order(r)
		}
	}
	return got
}

// decide calls Advance and stores the status as an API server does.
func (w *world) decide() Result {
	w.t.Helper()
	got := w.advance()
	data, err := json.Marshal(got.Status)
	if err != nil {
		w.t.Fatal(err)
	}
	w.rollout.Status = v1beta2.ModuleRolloutStatus{}
	if err := json.Unmarshal(data, &w.rollout.Status); err != nil {
		w.t.Fatal(err)
	}
	again := w.advance()
	if was, is := mustJSON(w.t, w.rollout.Status), mustJSON(w.t, again.Status); was != is {
		w.t.Errorf("a second call at the same time changes the status (-first +second):\n%s", cmp.Diff(was, is))
	}
	return got
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (w *world) advance() Result {
	w.t.Helper()
	in := w.in
	in.Rollout, in.Runtimes, in.Now = w.rollout, w.runtimes, w.now
	got, err := Advance(in)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// order makes the changes that the controllers make for an admitted runtime.
func (w *world) order(r *Runtime) {
	isBroken := !evidence.IsWell(r.State) && w.now.Sub(r.Since) >= admission.DefaultRuntimeDeadline
	*r = Runtime{Kyma: r.Kyma, Labels: r.Labels, Ordered: "1.1.0", State: r.State, Reason: r.Reason, Since: r.Since,
		Started: w.now, IsExcused: isBroken, Blocked: r.Blocked, UnreachableSince: r.UnreachableSince,
		UnreachableReason: r.UnreachableReason}
}

// finish lets all updates under way become Ready.
func (w *world) finish() {
	for i := range w.runtimes {
		if r := &w.runtimes[i]; r.Ordered == "1.1.0" && !r.IsReady && r.State != v1beta2.StateError {
			w.ready(r)
		}
	}
}

func (w *world) ready(r *Runtime) {
	r.IsReady, r.IsObserved, r.State, r.Reason, r.Since = true, true, v1beta2.StateReady, "", w.now
}

// fail sets the state of a runtime to Error, with a reason code that means a failure of the new version.
func (w *world) fail(r *Runtime) { w.failFor(r, v1beta2.ReasonWorkloadFailed) }

func (w *world) failFor(r *Runtime, reason string) {
	r.IsReady, r.IsObserved, r.State, r.Reason, r.Since = false, true, v1beta2.StateError, reason, w.now
}

func (w *world) silence(r *Runtime) {
	r.UnreachableSince, r.UnreachableReason = w.now, v1beta2.ReasonRuntimeUnreachable
}

func (w *world) speak(r *Runtime) { r.UnreachableSince, r.UnreachableReason = time.Time{}, "" }

// of returns the runtimes of a stage, by rank.
func (w *world) of(stage int) []*Runtime {
	w.t.Helper()
	places, err := place.New(w.rollout)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []*Runtime
	for i := range w.runtimes {
		if r := &w.runtimes[i]; places.Of(r.Kyma, r.Labels).Stage == stage {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(x, y *Runtime) int {
		return int(places.Of(x.Kyma, nil).Rank) - int(places.Of(y.Kyma, nil).Rank)
	})
	return all
}

// run calls step every minute until the phase is one of the given phases. Between two calls of step, run sets all
// updated runtimes to Ready.
func (w *world) run(limit time.Duration, until ...v1beta2.RolloutPhase) {
	w.t.Helper()
	for end := w.now.Add(limit); w.now.Before(end); w.now = w.now.Add(time.Minute) {
		if got := w.step(); slices.Contains(until, got.Status.Phase) {
			return
		}
		w.finish()
	}
	w.t.Fatalf("after %s the rollout is %s in stage %s, want %v: %s %+v", limit, w.rollout.Status.Phase,
		w.rollout.Status.Stage.Name, until, w.rollout.Status.Message, w.rollout.Status.Blockers)
}

func (w *world) mustHave(what string, code string) {
	w.t.Helper()
	if !slices.ContainsFunc(w.rollout.Status.Blockers, func(b v1beta2.RolloutBlocker) bool { return b.Code == code }) {
		w.t.Errorf("%s: blockers %+v, want %s", what, w.rollout.Status.Blockers, code)
	}
}

func (w *world) mustBe(what string, phase v1beta2.RolloutPhase) {
	w.t.Helper()
	if w.rollout.Status.Phase != phase {
		w.t.Errorf("%s: phase %s (%s), want %s", what, w.rollout.Status.Phase, w.rollout.Status.Message, phase)
	}
}

// begun returns the number of runtimes with the new version.
func (w *world) begun() int {
	n := 0
	for i := range w.runtimes {
		if w.runtimes[i].Ordered == "1.1.0" {
			n++
		}
	}
	return n
}

func (w *world) resume() {
	w.rollout.Spec.Resumptions = append(w.rollout.Spec.Resumptions, v1beta2.RolloutResumption{Reason: "known"})
}

func stage(name string, percent int32, edit ...func(*v1beta2.RolloutStage)) v1beta2.RolloutStage {
	s := v1beta2.RolloutStage{Name: name, Percent: percent, MaxConcurrency: new(intstr.FromString("100%"))}
	for _, e := range edit {
		e(&s)
	}
	return s
}

func soak(d time.Duration) func(*v1beta2.RolloutStage) {
	return func(s *v1beta2.RolloutStage) { s.Soak.Duration = d }
}

func concurrency(v intstr.IntOrString) func(*v1beta2.RolloutStage) {
	return func(s *v1beta2.RolloutStage) { s.MaxConcurrency = &v }
}

func failures(v intstr.IntOrString) func(*v1beta2.RolloutStage) {
	return func(s *v1beta2.RolloutStage) { s.MaxFailures = &v }
}

func gates(all ...v1beta2.RolloutGate) func(*v1beta2.RolloutStage) {
	return func(s *v1beta2.RolloutStage) { s.Gates = all }
}

func stages(all ...v1beta2.RolloutStage) v1beta2.RolloutPolicySpec {
	return v1beta2.RolloutPolicySpec{Stages: all}
}

// twoStages has a stage canary with a tenth of the fleet, and a stage rest.
func twoStages(edit ...func(*v1beta2.RolloutStage)) v1beta2.RolloutPolicySpec {
	return stages(stage("canary", 10, edit...), stage("rest", 0, failures(intstr.FromString("10%"))))
}

func TestRolloutCompletes(t *testing.T) {
	w := newWorld(t, 100, stages(stage("canary", 5, soak(time.Hour)),
		stage("half", 50, concurrency(intstr.FromInt32(7))),
		stage("rest", 0, concurrency(intstr.FromString("10%")))))
	canary := len(w.of(0))
	w.step()
	if w.begun() != canary {
		t.Fatalf("%d have begun, want the %d of the first stage", w.begun(), canary)
	}
	w.finish()
	w.run(5*time.Minute, v1beta2.RolloutSoaking)
	w.now = w.now.Add(59 * time.Minute)
	if w.step(); w.begun() != canary {
		t.Errorf("%d have begun before the end of the soak, want %d", w.begun(), canary)
	}
	w.now = w.now.Add(time.Minute)
	if w.step(); w.begun() != canary+7 {
		t.Errorf("%d have begun after the soak, want %d", w.begun(), canary+7)
	}
	w.run(time.Hour, v1beta2.RolloutCompleted)
	if got := w.rollout.Status.Message; w.begun() != 100 || got != "100 of 100 runtimes are proven" {
		t.Errorf("%d have the version: %s", w.begun(), got)
	}
}

// TestStageDoesNotStall checks that a stage does not wait for runtimes that cannot be updated.
func TestStageDoesNotStall(t *testing.T) {
	blocked := func(code string) func(*world, *Runtime) {
		return func(_ *world, r *Runtime) {
			r.Blocked = func() *channel.Blocker { return &channel.Blocker{Code: code} }
		}
	}
	cases := map[string]struct {
		reason string
		edit   func(w *world, r *Runtime)
		after  bool // the runtime is edited after its update was ordered
	}{
		"Unreachable":   {"it is carried over", (*world).silence, false},
		"Broken":        {"it follows in the last stage", (*world).fail, false},
		"NotReady":      {"a module that does not become Ready is broken, too", func(w *world, r *Runtime) { w.failFor(r, ""); r.State = v1beta2.StateProcessing }, false},
		"Paused":        {"a person decides", blocked(v1beta2.ReasonModulePaused), false},
		"WindowClosed":  {"it is carried over", blocked(v1beta2.ReasonWaitingForWindow), false},
		"Deferred":      {"its admin defers it", blocked(v1beta2.ReasonUpdateDeferred), false},
		"DeferredBadly": {"its admin wants to defer it", blocked(v1beta2.ReasonDeferralInvalid), false},
		"Unmanaged": {"a user maintains it", func(_ *world, r *Runtime) {
			r.IsReady, r.State = false, v1beta2.StateUnmanaged
		}, false},
		"UnreachableAfter": {"it is lost after the deadline, which is allowed for one", (*world).silence, true},
		"PausedAfter":      {"a person keeps it from finishing", func(w *world, r *Runtime) { w.failFor(r, v1beta2.ReasonModulePaused) }, true},
		"FailedAsAllowed":  {"one failure is allowed", (*world).fail, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100, twoStages(failures(intstr.FromInt32(1)), concurrency(intstr.FromInt32(3))))
			r := w.of(0)[0]
			if !c.after {
				c.edit(w, r)
			}
			w.step()
			if c.after {
				if r.Ordered != "1.1.0" {
					t.Fatal("it has not begun")
				}
				c.edit(w, r)
			}
			w.finishBut(r)
			for range 60 {
				w.now = w.now.Add(time.Minute)
				w.step()
				w.finishBut(r)
			}
			if got := w.rollout.Status; got.Stage.Index != 1 || w.begun() < 95 {
				t.Errorf("%s: phase %s in stage %s with %d begun: %s %+v", c.reason, got.Phase, got.Stage.Name, w.begun(),
					got.Message, got.Blockers)
			}
		})
	}
}

// finishBut lets all updates under way become Ready, except the update of the runtime in the parameter but.
func (w *world) finishBut(but *Runtime) {
	for i := range w.runtimes {
		if r := &w.runtimes[i]; r != but && r.Ordered == "1.1.0" && !r.IsReady {
			w.ready(r)
		}
	}
}

// TestStageNotSkipped checks that a stage in which no runtime can be updated does not pass at once, and does not pass
// because of a failure of the control plane.
func TestStageNotSkipped(t *testing.T) {
	three := stages(stage("own", 10), stage("canary", 30, soak(time.Hour)), stage("rest", 0))
	cases := map[string]struct {
		reason string
		edit   func(w *world, r *Runtime)
		wait   time.Duration
		moves  bool
	}{
		"Outage":     {"all are unreachable for a moment", (*world).silence, 10 * time.Minute, false},
		"LongOutage": {"they are carried over", (*world).silence, 2 * time.Hour, true},
		"Busy":       {"another rollout will end", func(_ *world, r *Runtime) { r.IsBusy = true }, 2 * time.Hour, false},
		"TemplateGone": {"nobody can be updated, whoever it is", func(_ *world, r *Runtime) {
			r.Blocked = func() *channel.Blocker { return &channel.Blocker{Code: v1beta2.ReasonTemplateNotFound} }
		}, 2 * time.Hour, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100, three)
			w.step()
			w.finish()
			for _, r := range w.of(1) {
				c.edit(w, r)
			}
			for range int(c.wait / time.Minute) {
				w.now = w.now.Add(time.Minute)
				w.step()
				w.finish()
			}
			if moves := w.rollout.Status.Stage.Index > 1; moves != c.moves {
				t.Errorf("%s: stage %s after %s: %s %+v", c.reason, w.rollout.Status.Stage.Name, c.wait,
					w.rollout.Status.Message, w.rollout.Status.Blockers)
			}
		})
	}
}

// TestSoakAfterLateStart checks that the soak of a stage whose runtimes were all unreachable begins only when its
// runtimes have been updated.
func TestSoakAfterLateStart(t *testing.T) {
	w := newWorld(t, 100, twoStages(soak(time.Hour)))
	for _, r := range w.of(0) {
		w.silence(r)
	}
	w.now = w.now.Add(time.Minute)
	w.step()
	w.now = w.now.Add(time.Hour)
	w.step()
	w.mustHave("without a proven runtime", v1beta2.ReasonNoEvidence)
	for _, r := range w.of(0) {
		w.speak(r)
	}
	w.step()
	w.finish()
	w.now = w.now.Add(time.Minute)
	w.step()
	w.mustBe("after the late update", v1beta2.RolloutSoaking)
	if n := len(w.of(0)); w.begun() != n {
		t.Errorf("%d have begun without a soak, want %d", w.begun(), n)
	}
}

func TestHaltAndResume(t *testing.T) {
	p := twoStages(concurrency(intstr.FromInt32(3)))
	soak(time.Hour)(&p.Stages[1])
	w := newWorld(t, 100, p)
	w.step()
	canary := w.of(0)
	first := w.failed(canary, 1)
	w.finish()
	w.step()
	w.mustBe("with one failure", v1beta2.RolloutHalted)
	w.mustHave("with one failure", v1beta2.ReasonTooManyFailures)
	before := w.begun()
	w.now = w.now.Add(time.Hour)
	w.ready(first[0])
	if w.step(); w.begun() != before {
		t.Errorf("%d have begun while it is halted, want %d", w.begun(), before)
	}
	w.mustBe("when the failure is over", v1beta2.RolloutHalted)
	w.mustHave("when the failure is over, the reason stays", v1beta2.ReasonTooManyFailures)
	w.fail(first[0])
	w.step()

	w.resume()
	if w.step(); w.begun() <= before {
		t.Errorf("%d have begun after the resumption, want more: %s", w.begun(), w.rollout.Status.Message)
	}
	second := w.failed(canary, 2)
	if w.step(); len(second) != 2 {
		t.Fatal("no second failure")
	}
	w.mustBe("with a further failure", v1beta2.RolloutHalted)
	w.resume()
	w.step()
	for range 20 {
		w.now = w.now.Add(time.Minute)
		w.step()
		w.finish()
	}
	if got := w.rollout.Status; got.Stage.Name != "rest" {
		t.Fatalf("the rollout does not go on with acknowledged failures: %s in %s: %s %+v", got.Phase, got.Stage.Name,
			got.Message, got.Blockers)
	}
	// The stage named rest allows some failures. The two failures in the stage named canary do not count any more,
	// because the resumption above has acknowledged them.
	allowed := len(w.of(1)) / 10
	w.failed(w.of(1), allowed)
	w.step()
	if w.rollout.Status.Phase == v1beta2.RolloutHalted {
		t.Errorf("it is halted by failures that the stage allows: %s", w.rollout.Status.Message)
	}
	w.failed(w.of(1), allowed+1)
	w.step()
	w.mustBe("with more failures than the stage allows", v1beta2.RolloutHalted)
}

// TestEvidenceAfterResumption checks that a resumption after a failure does not begin the next stage without a proven
// runtime, and that a second resumption does, because the rollout has then shown that nothing is proven.
func TestEvidenceAfterResumption(t *testing.T) {
	w := newWorld(t, 100, twoStages(soak(time.Hour), concurrency(intstr.FromInt32(1))))
	w.step()
	canary := w.of(0)
	w.failed(canary, 1)
	w.step()
	w.mustBe("with one failure", v1beta2.RolloutHalted)
	for _, r := range canary {
		r.Blocked = func() *channel.Blocker { return &channel.Blocker{Code: v1beta2.ReasonWaitingForWindow} }
	}
	w.resume()
	w.now = w.now.Add(time.Hour)
	w.step()
	w.mustBe("with an acknowledged failure", v1beta2.RolloutHeld)
	w.mustHave("with an acknowledged failure", v1beta2.ReasonNoEvidence)
	if n := w.begun(); n != 1 {
		t.Errorf("%d have begun without a proven runtime, want 1", n)
	}
	w.resume()
	if w.step(); w.rollout.Status.Stage.Name != "rest" || w.begun() == 1 {
		t.Errorf("after the second resumption: %s in stage %s, %d have begun", w.rollout.Status.Phase,
			w.rollout.Status.Stage.Name, w.begun())
	}
}

// failed lets runtimes that have begun fail until n of them have failed, and returns them.
func (w *world) failed(of []*Runtime, n int) []*Runtime {
	w.t.Helper()
	var all []*Runtime
	for _, r := range of {
		if len(all) < n && r.Ordered == "1.1.0" {
			if r.State != v1beta2.StateError {
				w.fail(r)
			}
			all = append(all, r)
		}
	}
	return all
}

// TestFailuresLeft checks the number of further failures that do not halt a rollout: with that number the rollout
// continues, and one more failure halts it.
func TestFailuresLeft(t *testing.T) {
	w := newWorld(t, 10, v1beta2.RolloutPolicySpec{Stages: []v1beta2.RolloutStage{{Name: "all",
		MaxConcurrency: new(intstr.FromString("100%")), MaxFailures: new(intstr.FromInt32(2))}}})
	if got := w.step().FailuresLeft["all"]; got != 2 {
		t.Errorf("without a failure: %d further failures do not halt, want 2", got)
	}
	for want := 1; want >= 0; want-- {
		w.fail(&w.runtimes[want])
		if got := w.decide().FailuresLeft["all"]; got != want {
			t.Errorf("after %d failures: %d further failures do not halt, want %d", 2-want, got, want)
		}
	}
	w.fail(&w.runtimes[2])
	if got := w.decide(); got.Status.Phase != v1beta2.RolloutHalted || got.FailuresLeft != nil {
		t.Errorf("halted: %s with %v", got.Status.Phase, got.FailuresLeft)
	}
	w.resume()
	if got := w.decide(); got.Status.Phase == v1beta2.RolloutHalted || got.FailuresLeft["all"] != 0 {
		t.Errorf("resumed: %s with %v", got.Status.Phase, got.FailuresLeft)
	}
}

// TestAcknowledgedFailureEnds checks that the acknowledgement of a failure ends when the failed runtime recovers: after
// the recovery, a failure of another runtime halts the rollout again.
func TestAcknowledgedFailureEnds(t *testing.T) {
	w := newWorld(t, 200, twoStages(soak(time.Hour)))
	w.step()
	one := w.failed(w.of(0), 1)[0]
	w.finish()
	w.step()
	w.resume()
	w.step()
	w.ready(one)
	w.step()
	w.fail(w.of(0)[1])
	w.step()
	w.mustBe("with another failure", v1beta2.RolloutHalted)
}

// TestLostStatus checks that deleting the status of a halted rollout does not resume the rollout.
func TestLostStatus(t *testing.T) {
	w := newWorld(t, 100, twoStages(soak(time.Hour)))
	w.step()
	w.failed(w.of(0), 1)
	w.finish()
	w.step()
	w.resume()
	w.step()
	w.failed(w.of(0), 2)
	w.step()
	w.mustBe("before", v1beta2.RolloutHalted)
	w.rollout.Status = v1beta2.ModuleRolloutStatus{}
	w.step()
	w.mustBe("after the loss", v1beta2.RolloutHalted)
}

// TestNothingBegins checks that no runtime is admitted while the rollout must not continue, and that admissions are
// taken back.
func TestNothingBegins(t *testing.T) {
	suspended := &v1beta2.RolloutBlocker{Code: v1beta2.ReasonRolloutSuspended, Message: "suspended"}
	cases := map[string]struct {
		edit  func(w *world)
		phase v1beta2.RolloutPhase
	}{
		"Paused":    {func(w *world) { w.rollout.Spec.State = v1beta2.RolloutPaused }, v1beta2.RolloutHeld},
		"Suspended": {func(w *world) { w.in.Hold = suspended }, v1beta2.RolloutHeld},
		"Preflight": {func(w *world) { w.in.Preflight = suspended }, v1beta2.RolloutPending},
		"Halted":    {func(w *world) { w.fail(w.of(0)[0]) }, v1beta2.RolloutHalted},
		"Registry": {func(w *world) { w.failFor(w.of(0)[0], v1beta2.ReasonRegistryUnreachable) },
			v1beta2.RolloutHeld},
		"Aborted": {func(w *world) { w.rollout.Spec.State = v1beta2.RolloutAborted }, v1beta2.RolloutEndedAborted},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100, stages(stage("all", 0, concurrency(intstr.FromInt32(5)))))
			if name != "Preflight" {
				w.order(w.of(0)[0])
				w.runtimes[0].IsObserved = true
			}
			if got := w.decide(); len(place.Decode(got.Status.Admitted)) < 4 {
				t.Fatalf("admitted %q", got.Status.Admitted)
			}
			c.edit(w)
			got := w.decide()
			w.mustBe("then", c.phase)
			if s := got.Status; s.Admitted != "" || len(got.Admitted) > 0 || s.Runtimes.Updating > 1 {
				t.Errorf("admitted %q, now %v, updating %d", s.Admitted, got.Admitted, s.Runtimes.Updating)
			}
			if got.Status.Message == "" && !got.Status.Phase.IsOver() {
				t.Error("it does not state what it waits for")
			}
		})
	}
}

// TestHeldTail checks that a held rollout does not end, even if its deadline has passed.
func TestHeldTail(t *testing.T) {
	w := newWorld(t, 100, twoStages())
	last := w.of(1)[3]
	w.silence(last)
	w.run(time.Hour, v1beta2.RolloutTail)
	w.rollout.Spec.State = v1beta2.RolloutPaused
	w.now = w.now.Add(30 * 24 * time.Hour)
	w.step()
	w.mustBe("paused", v1beta2.RolloutHeld)
	w.rollout.Spec.State = v1beta2.RolloutRunning
	w.step()
	w.mustBe("after the deadline", v1beta2.RolloutCompleted)
	if !strings.Contains(w.rollout.Status.Message, "1 could not be updated in time") {
		t.Errorf("message %q", w.rollout.Status.Message)
	}
}

// TestTailAgain checks that a rollout that was held after its last stage had passed does not observe that stage again.
func TestTailAgain(t *testing.T) {
	w := newWorld(t, 100, stages(stage("canary", 10), stage("rest", 0, soak(time.Hour))))
	for _, r := range w.of(1) {
		w.silence(r)
	}
	w.run(3*time.Hour, v1beta2.RolloutTail)
	w.rollout.Spec.State = v1beta2.RolloutPaused
	w.step()
	w.mustBe("paused", v1beta2.RolloutHeld)
	late := w.of(1)[0]
	w.speak(late)
	w.order(late)
	w.ready(late)
	w.step()
	w.rollout.Spec.State = v1beta2.RolloutRunning
	w.step()
	w.mustBe("resumed", v1beta2.RolloutTail)
}

// TestFormerFailure checks that a failure of the former version does not count as a failure of the new version.
func TestFormerFailure(t *testing.T) {
	w := newWorld(t, 100, twoStages())
	r := w.of(0)[0]
	w.step()
	r.State, r.Reason, r.Since, r.IsObserved = v1beta2.StateError, v1beta2.ReasonWorkloadFailed, w.now, false
	w.step()
	if w.rollout.Status.Runtimes.Failed != 0 {
		t.Errorf("phase %s: %s", w.rollout.Status.Phase, w.rollout.Status.Message)
	}
	w.now = w.now.Add(admission.DefaultRuntimeDeadline + time.Minute)
	w.finishBut(r)
	w.step()
	w.mustHave("when nobody has looked at it", v1beta2.ReasonControlPlaneFailing)
	r.IsObserved = true
	w.step()
	w.mustBe("when it is the failure of the new version", v1beta2.RolloutHalted)
}

// TestBroken checks that modules that do not work are updated in the last stage, within the limits, and do not count as
// evidence.
func TestBroken(t *testing.T) {
	w := newWorld(t, 100, stages(stage("canary", 10), stage("rest", 0, concurrency(intstr.FromInt32(5)))))
	for i := range w.runtimes {
		if i%2 == 0 {
			w.failFor(&w.runtimes[i], v1beta2.ReasonWorkloadFailed)
			w.runtimes[i].Since = start.Add(-time.Hour)
		}
	}
	for range 200 {
		if w.step(); w.rollout.Status.Stage.Index == 0 {
			for _, r := range w.of(0) {
				if r.IsExcused {
					t.Fatalf("%s is updated in the first stage", r.Kyma)
				}
			}
		}
		if n := len(w.underWay()); w.rollout.Status.Stage.Index == 1 && n > 5+len(w.of(0)) {
			t.Fatalf("%d are updated at the same time", n)
		}
		w.now = w.now.Add(time.Minute)
		for _, r := range w.underWay() {
			if r.IsObserved = true; !r.IsExcused {
				w.ready(r)
			}
		}
	}
	w.now = w.now.Add(4 * time.Hour)
	for range 40 {
		w.step()
		for _, r := range w.underWay() {
			if r.IsObserved = true; !r.IsExcused {
				w.ready(r)
			}
		}
		w.now = w.now.Add(admission.DefaultRuntimeDeadline)
	}
	if s := w.rollout.Status; s.Phase != v1beta2.RolloutCompleted || s.Runtimes.Excused != 50 ||
		s.Runtimes.Failed != 0 {
		t.Errorf("%s: %+v", s.Phase, s.Runtimes)
	}
}

func (w *world) underWay() []*Runtime {
	var all []*Runtime
	for i := range w.runtimes {
		r := &w.runtimes[i]
		if r.Ordered == "1.1.0" && !r.IsReady && w.now.Sub(r.Started) < admission.DefaultRuntimeDeadline {
			all = append(all, r)
		}
	}
	return all
}

// TestCorrection checks that a rollout that supersedes a bad one begins with the runtimes that have the bad version,
// although their modules do not work.
func TestCorrection(t *testing.T) {
	w := newWorld(t, 100, twoStages(concurrency(intstr.FromInt32(2))))
	hurt := w.of(0)[len(w.of(0))-1]
	hurt.Ordered = "1.0.5"
	w.fail(hurt)
	w.now = w.now.Add(3 * time.Hour)
	if w.step(); hurt.Ordered != "1.1.0" {
		t.Errorf("it is not updated first: %s %+v", w.rollout.Status.Message, w.rollout.Status.Blockers)
	}
}

// TestNotOrderedByRollout checks runtimes that got the version without the rollout: they use no slot, and they do not
// count as failed if the module was broken before.
func TestNotOrderedByRollout(t *testing.T) {
	w := newWorld(t, 100, twoStages(concurrency(intstr.FromInt32(1))))
	canary := w.of(0)
	for i, r := range canary[:4] {
		r.Ordered, r.IsReady, r.State = "1.1.0", false, v1beta2.StateProcessing
		if r.Since = start.Add(time.Minute); i%2 == 0 {
			r.Since = start.Add(-time.Hour)
			w.failFor(r, v1beta2.ReasonWorkloadFailed)
			r.Since = start.Add(-time.Hour)
		}
		if i == 1 {
			w.silence(r)
		}
	}
	w.now = w.now.Add(2 * time.Minute)
	w.step()
	if canary[4].Ordered != "1.1.0" {
		t.Errorf("new installations use the slot: %s", w.rollout.Status.Message)
	}
	w.now = w.now.Add(time.Hour)
	w.ready(canary[4])
	w.step()
	if c := w.rollout.Status.Runtimes; c.Excused != 4 || c.Failed+c.Lost != 0 {
		t.Errorf("%+v", c)
	}
}

// TestOrderedAMomentAgo checks a runtime that got the version without the rollout, and whose status still shows the
// former version: a module that works is being updated, and was not broken before.
func TestOrderedAMomentAgo(t *testing.T) {
	w := newWorld(t, 2, twoStages())
	first := &w.runtimes[0]
	first.Ordered, first.IsReady, first.IsObserved = "1.1.0", false, false
	w.step()
	if c := w.rollout.Status.Runtimes; c.Updating == 0 || c.Excused != 0 {
		t.Errorf("%+v", c)
	}
	w.ready(first)
	w.step()
	if c := w.rollout.Status.Runtimes; c.Proven == 0 || c.Excused != 0 {
		t.Errorf("when it is Ready: %+v", c)
	}
}

// TestGatesOfNextStage checks that the result of a gate counts only for the stage for which it was read.
func TestGatesOfNextStage(t *testing.T) {
	gate := func(expr string) v1beta2.RolloutGate {
		return v1beta2.RolloutGate{Name: "errors", PromQL: &v1beta2.PromQLGate{Expr: expr}}
	}
	w := newWorld(t, 100, stages(stage("a", 10, gates(gate("one"))), stage("b", 20, gates(gate("two"))), stage("c", 0)))
	for _, r := range append(w.of(0), w.of(1)...) {
		w.order(r)
		w.ready(r)
	}
	w.in.Gates = map[string]v1beta2.RolloutGateStatus{"errors": {State: v1beta2.GatePass}}
	got := w.advance()
	if got.Status.Stage.Name != "b" || got.Status.Phase != v1beta2.RolloutWaitingForGate {
		t.Errorf("stage %s, %s", got.Status.Stage.Name, got.Status.Phase)
	}
}

func TestGateFails(t *testing.T) {
	gate := v1beta2.RolloutGate{Name: "errors", PromQL: &v1beta2.PromQLGate{FailFor: metav1.Duration{
		Duration: 5 * time.Minute}}}
	w := newWorld(t, 100, twoStages(gates(gate)))
	set := func(s v1beta2.GateState) {
		w.in.Gates = map[string]v1beta2.RolloutGateStatus{"errors": {State: s}}
		w.step()
		w.finish()
	}
	set(v1beta2.GatePass)
	set(v1beta2.GateUnknown)
	w.mustBe("unknown", v1beta2.RolloutWaitingForGate)
	set("")
	w.mustBe("no result", v1beta2.RolloutWaitingForGate)
	set(v1beta2.GateFail)
	w.mustBe("failing", v1beta2.RolloutWaitingForGate)
	w.now, w.in.Gates = w.now.Add(5*time.Minute), nil
	w.step()
	w.mustBe("after a restart, before the gate is read", v1beta2.RolloutWaitingForGate)
	if g := w.rollout.Status.Stage.Gates; len(g) != 1 || g[0].State != v1beta2.GateFail ||
		!g[0].Since.Time.Equal(start) {
		t.Errorf("the saved result stays: %+v", g)
	}
	set(v1beta2.GateFail)
	w.mustBe("failing for long", v1beta2.RolloutHalted)
	w.mustHave("failing for long", v1beta2.ReasonGateFailed)
	set(v1beta2.GatePass)
	w.mustBe("a halt stays", v1beta2.RolloutHalted)
	w.mustHave("a halt stays", v1beta2.ReasonGateFailed)
	w.resume()
	set(v1beta2.GateFail)
	w.mustBe("after the resumption the time begins anew", v1beta2.RolloutWaitingForGate)
	set(v1beta2.GatePass)
	if w.rollout.Status.Stage.Name != "rest" {
		t.Errorf("stage %s", w.rollout.Status.Stage.Name)
	}
	paused := newWorld(t, 100, twoStages(gates(v1beta2.RolloutGate{Name: "errors", Webhook: &v1beta2.WebhookGate{}})))
	paused.step()
	paused.finish()
	paused.rollout.Spec.State = v1beta2.RolloutPaused
	paused.in.Gates = map[string]v1beta2.RolloutGateStatus{"errors": {State: v1beta2.GateFail}}
	paused.step()
	paused.mustBe("a failing gate while it is paused", v1beta2.RolloutHalted)
}

func TestApproval(t *testing.T) {
	w := newWorld(t, 100, twoStages(gates(v1beta2.RolloutGate{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 2}})))
	w.step()
	w.finish()
	w.step()
	w.mustHave("no approval", v1beta2.ReasonApprovalNeeded)
	approve := func(by, stage, gate, plan string) {
		w.rollout.Spec.Approvals = append(w.rollout.Spec.Approvals, v1beta2.RolloutApproval{By: by, Stage: stage,
			Gate: gate,
			Plan: plan})
		w.step()
		w.mustHave("not enough approvals", v1beta2.ReasonApprovalNeeded)
	}
	approve("ann", "canary", "", w.rollout.Status.Plan)
	approve("ann", "canary", "go", w.rollout.Status.Plan)
	approve("bob", "rest", "go", w.rollout.Status.Plan)
	approve("bob", "canary", "other", w.rollout.Status.Plan)
	approve("bob", "canary", "go", "sha256:other")
	w.rollout.Spec.Approvals = append(w.rollout.Spec.Approvals, v1beta2.RolloutApproval{By: "bob", Stage: "canary",
		Plan: w.rollout.Status.Plan})
	if w.step(); w.rollout.Status.Stage.Name != "rest" {
		t.Errorf("stage %s: %s", w.rollout.Status.Stage.Name, w.rollout.Status.Message)
	}
}

func TestNotBefore(t *testing.T) {
	at := metav1.NewTime(start.Add(time.Hour))
	w := newWorld(t, 100, twoStages(gates(v1beta2.RolloutGate{Name: "monday", NotBefore: &at})))
	w.step()
	w.finish()
	if got := w.step(); got.Next != time.Hour || got.Status.Stage.Index != 0 {
		t.Errorf("next %s, stage %d", got.Next, got.Status.Stage.Index)
	}
	w.now = w.now.Add(time.Hour)
	if w.step(); w.rollout.Status.Stage.Index != 1 {
		t.Errorf("stage %s: %s", w.rollout.Status.Stage.Name, w.rollout.Status.Message)
	}
}

func TestEmptyFleet(t *testing.T) {
	w := newWorld(t, 0, twoStages(gates(v1beta2.RolloutGate{Name: "go", Approval: &v1beta2.ApprovalGate{}})))
	w.rollout.Spec.State = v1beta2.RolloutPaused
	w.step()
	w.mustBe("paused", v1beta2.RolloutHeld)
	w.rollout.Spec.State = v1beta2.RolloutRunning
	w.step()
	w.mustBe("without runtimes", v1beta2.RolloutCompleted)
}

// TestAtOnce checks that a rollout without stages only observes the runtimes, and then ends.
func TestAtOnce(t *testing.T) {
	w := newWorld(t, 10, twoStages())
	w.rollout.Spec.Policy, w.rollout.Spec.Stages = "", nil
	w.decide()
	w.mustBe("at first", v1beta2.RolloutUpdating)
	for i := range w.runtimes {
		r := &w.runtimes[i]
		r.Ordered, r.IsReady = "1.1.0", false
		r.State, r.Reason = v1beta2.StateProcessing, v1beta2.ReasonWorkloadNotReady
		r.Since = w.now
	}
	for i := range w.runtimes[:9] {
		w.ready(&w.runtimes[i])
	}
	w.decide()
	w.mustBe("while one is not ready", v1beta2.RolloutUpdating)
	w.now = w.now.Add(admission.DefaultRuntimeDeadline)
	w.decide()
	w.mustBe("after its deadline", v1beta2.RolloutCompleted)
	if c := w.rollout.Status.Runtimes; c.Proven != 9 || c.Failed != 1 {
		t.Errorf("%+v", c)
	}
}

// TestFailedAndLost checks that one call of Advance halts a rollout for two reasons if too many of its updated runtimes
// have failed and too many are lost. In this test, only the lost runtimes are more frequent than among the runtimes
// that were not updated. If the second reason appeared only after the next call of Advance, people would get two
// messages about the same facts.
func TestFailedAndLost(t *testing.T) {
	w := newWorld(t, 100, stages(stage("canary", 30, failures(intstr.FromInt32(0))), stage("rest", 0)))
	w.step()
	w.now = w.now.Add(time.Minute)
	for i, r := range w.of(0) {
		switch i % 3 {
		case 0:
			w.fail(r)
		case 1:
			w.silence(r)
		default:
			w.ready(r)
		}
	}
	for i, r := range w.of(1) {
		if i%2 == 0 {
			w.fail(r)
		}
	}
	w.now = w.now.Add(admission.DefaultRuntimeDeadline)
	w.decide() // it fails if the same facts lead to another status
	w.mustBe("halted", v1beta2.RolloutHalted)
	w.mustHave("halted", v1beta2.ReasonTooManyLost)
	w.mustHave("halted", v1beta2.ReasonTooManyFailures)
}

// TestStartsPerMinute checks the limit of starts per minute in three cases: for late runtimes of earlier stages, for
// stored times that have lost their fractions of a second, and after the clock was set back.
func TestStartsPerMinute(t *testing.T) {
	limited := func(s *v1beta2.RolloutStage) { s.MaxStartsPerMinute = 2 }
	w := newWorld(t, 100, stages(stage("canary", 30, limited, failures(intstr.FromInt32(99))), stage("rest", 0)))
	w.now = w.now.Add(900 * time.Millisecond)
	for _, r := range w.of(0)[5:] {
		w.silence(r)
	}
	var starts []time.Time
	run := func(d time.Duration) {
		for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(700 * time.Millisecond) {
			for range w.step().Admitted {
				starts = append(starts, w.now)
			}
			w.finish()
		}
	}
	run(4 * time.Minute)
	if w.rollout.Status.Stage.Name != "rest" {
		t.Fatalf("stage %s: %s", w.rollout.Status.Stage.Name, w.rollout.Status.Message)
	}
	run(2 * time.Minute)
	starts = nil
	for _, r := range w.of(0) {
		w.speak(r)
	}
	run(5 * time.Minute)
	for i := range starts {
		n := 0
		for _, at := range starts {
			if d := at.Sub(starts[i]); d >= 0 && d < time.Minute {
				n++
			}
		}
		if n > 2 {
			t.Fatalf("%d begin in the minute from %s", n, starts[i])
		}
	}
	if len(starts) < 8 {
		t.Errorf("%d began in 5 minutes", len(starts))
	}
	w.now = w.now.Add(-30 * 24 * time.Hour)
	starts = nil
	if run(3 * time.Minute); len(starts) < 4 {
		t.Errorf("%d began in 3 minutes after the clock was put back: %s", len(starts), w.rollout.Status.Message)
	}
}

// TestLimits checks that a rollout never exceeds its concurrency, its spread and the limit of the whole fleet.
// TestLimits also checks that a runtime that cannot begin loses its admission.
func TestLimits(t *testing.T) {
	spread := func(s *v1beta2.RolloutStage) { s.Spread = &v1beta2.RolloutSpread{Label: "region", Max: "40%"} }
	w := newWorld(t, 100, stages(stage("all", 0, concurrency(intstr.FromInt32(10)), spread)))
	for i := range w.runtimes {
		w.runtimes[i].Labels = map[string]string{"region": fmt.Sprint(i % 2)}
	}
	got := w.decide()
	if n := len(got.Admitted); n != 8 || len(got.InFlight) != 8 {
		t.Errorf("admitted %d, in flight %d, want 4 of each region", n, len(got.InFlight))
	}
	w.silence(w.named(got.Admitted[0]))
	again := w.decide()
	if slices.Contains(again.InFlight, got.Admitted[0]) || len(again.InFlight) != 8 {
		t.Errorf("in flight %v, want another one instead of %s", again.InFlight, got.Admitted[0])
	}
	w.in.Slots = 0
	if got := w.decide(); len(got.Admitted) > 0 {
		t.Errorf("admitted %v without a slot", got.Admitted)
	}
	fleet := newWorld(t, 100, twoStages())
	fleet.in.Slots = 3
	if got := fleet.advance(); len(got.Admitted) != 3 {
		t.Errorf("admitted %d, want 3", len(got.Admitted))
	}
}

func (w *world) named(kyma string) *Runtime {
	i := slices.IndexFunc(w.runtimes, func(r Runtime) bool { return r.Kyma == kyma })
	return &w.runtimes[i]
}

// TestControlGroup checks that a rollout is held if the runtimes without the new version fail as often, and that it
// continues when these failures end.
func TestControlGroup(t *testing.T) {
	w := newWorld(t, 200, twoStages(soak(time.Hour)))
	w.step()
	w.finish()
	w.now = w.now.Add(time.Minute)
	for i := range w.runtimes {
		if i%10 == 0 {
			w.fail(&w.runtimes[i])
		}
	}
	w.fail(w.of(0)[0])
	w.step()
	w.mustBe("when all fail as often", v1beta2.RolloutHeld)
	w.mustHave("when all fail as often", v1beta2.ReasonInconclusive)
	for i := range w.runtimes {
		w.ready(&w.runtimes[i])
	}
	w.step()
	w.mustBe("when the outage is over", v1beta2.RolloutSoaking)
	for _, r := range w.of(0) {
		w.fail(r)
	}
	w.step()
	w.mustBe("when only the updated fail", v1beta2.RolloutHalted)
}

func TestLost(t *testing.T) {
	w := newWorld(t, 100, twoStages(soak(24*time.Hour)))
	w.step()
	w.finish()
	for _, r := range w.of(0)[:4] {
		w.silence(r)
	}
	w.now = w.now.Add(29 * time.Minute)
	w.step()
	if c := w.rollout.Status.Runtimes; c.Lost != 0 || w.rollout.Status.Phase != v1beta2.RolloutSoaking {
		t.Errorf("%s before the deadline: %+v", w.rollout.Status.Phase, c)
	}
	w.now = w.now.Add(time.Minute)
	w.step()
	w.mustBe("after the deadline", v1beta2.RolloutHalted)
	w.mustHave("after the deadline", v1beta2.ReasonTooManyLost)
}

// TestStatusSize checks that the size of the status does not depend on the size of the fleet.
func TestStatusSize(t *testing.T) {
	long := strings.Repeat("x", 40)
	all := []v1beta2.RolloutStage{}
	for i, percent := range []int32{1, 5, 10, 50, 0} {
		all = append(all, stage(fmt.Sprintf("stage-%d-%s", i, long[:20]), percent, soak(time.Hour),
			failures(intstr.FromString("50%")), gates(
				v1beta2.RolloutGate{Name: "approval", Approval: &v1beta2.ApprovalGate{}},
				v1beta2.RolloutGate{Name: "errors", Webhook: &v1beta2.WebhookGate{}})))
	}
	w := newWorld(t, 10_000, stages(all...))
	for i := range w.runtimes {
		r := &w.runtimes[i]
		r.Kyma += "-" + long
		r.Message = strings.Repeat("a message of an object ", 100)
		if i%50 == 0 {
			w.fail(r)
			r.Ordered, r.Started = "1.1.0", start
		}
		if i%7 == 0 {
			w.silence(r)
		}
		if i%11 == 0 {
			r.Blocked = func() *channel.Blocker {
				return &channel.Blocker{Code: fmt.Sprintf("Code%d", i%12), Message: r.Message}
			}
		}
	}
	w.rollout.Status = v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutUpdating,
		Stage: v1beta2.RolloutStageStatus{Index: 4, Name: w.rollout.Spec.Stages[4].Name,
			StartedAt: metav1.NewTime(start)}}
	got := w.decide()
	data, err := json.Marshal(got.Status)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 16<<10 || len(got.Status.Admitted) != 8*place.MaxAdmitted || len(got.Status.Worst) == 0 {
		t.Errorf("the status has %d bytes, %d of them admissions, %d failures", len(data), len(got.Status.Admitted),
			len(got.Status.Worst))
	}
	t.Logf("the status has %d bytes", len(data))
}

func BenchmarkAdvance(b *testing.B) {
	w := newWorld(&testing.T{}, 10_000, stages(stage("canary", 1), stage("early", 10), stage("half", 50),
		stage("rest", 0, concurrency(intstr.FromString("5%")))))
	for i := range w.runtimes {
		r := &w.runtimes[i]
		r.Blocked = func() *channel.Blocker { return nil }
		if i%2 == 0 {
			w.order(r)
			w.ready(r)
		}
	}
	w.rollout.Status = v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutUpdating,
		Stage: v1beta2.RolloutStageStatus{Index: 3, Name: "rest", StartedAt: metav1.NewTime(start)}}
	b.ReportAllocs()
	var all []time.Duration
	for b.Loop() {
		began := time.Now()
		w.advance()
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}
