package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
)

// bench is a fake control plane with one Kyma. bench counts status patches.
type bench struct {
	client.Client
	kyma    *v1beta2.Kyma
	patches int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	b := &bench{kyma: &v1beta2.Kyma{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a"},
		Spec:       v1beta2.KymaSpec{Channel: "regular"},
	}}
	b.Client = fake.NewClientBuilder().WithScheme(s).WithObjects(b.kyma).WithStatusSubresource(b.kyma).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string,
			o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			b.patches++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}}).Build()
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(b.kyma), b.kyma); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRun(t *testing.T) {
	boom := errors.New("boom")
	type want struct {
		Ran     []string
		Outcome Outcome
		After   time.Duration
		Failed  bool
	}
	cases := map[string]struct {
		reason string
		steps  map[string]error // by name; run in the order a, b, c
		want   want
	}{
		"AllDone": {"steps without error all run", nil, want{Ran: []string{"a", "b", "c"}}},
		"LaterStops": {"not yet stops the steps and requeues", map[string]error{"b": Later(time.Minute, "rain")},
			want{Ran: []string{"a", "b"}, Outcome: Outcome{Step: "b", Waiting: "rain"}, After: time.Minute}},
		"RecheckGoesOn": {"a recheck does not stop the steps", map[string]error{"a": ContinueAndRequeueAfter(time.Hour),
			"b": ContinueAndRequeueAfter(time.Minute)}, want{Ran: []string{"a", "b", "c"}, After: time.Minute}},
		"RecheckAndLater": {"the earlier of both counts", map[string]error{"a": ContinueAndRequeueAfter(time.Second),
			"b": Later(time.Minute, "rain")}, want{Ran: []string{"a", "b"},
			Outcome: Outcome{Step: "b", Waiting: "rain"}, After: time.Second}},
		"DoneStops": {"done stops the steps without a failure", map[string]error{"b": Done()},
			want{Ran: []string{"a", "b"}}},
		"ErrorStops": {"an error is returned for back-off", map[string]error{"b": boom},
			want{Ran: []string{"a", "b"}, Outcome: Outcome{Step: "b", Err: boom}, Failed: true}},
		"Terminal": {"a terminal error is reported as such, without its wrapper",
			map[string]error{"a": reconcile.TerminalError(boom)},
			want{Ran: []string{"a"}, Outcome: Outcome{Step: "a", Err: boom, Terminal: true}, Failed: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var got want
			var after []string
			var steps []Step
			for _, step := range []string{"a", "b", "c"} {
				steps = append(steps, Step{Name: step, Do: func(context.Context) error {
					got.Ran = append(got.Ran, step)
					return c.steps[step]
				}})
			}
			result, err := Run(t.Context(), Options{
				Client: b, Controller: "test", Object: b.kyma, Report: func(o Outcome) { got.Outcome = o },
				AfterStep: func(step string) { after = append(after, step) },
			}, steps...)
			got.After, got.Failed = result.RequeueAfter, err != nil
			if diff := cmp.Diff(c.want, got, cmp.Comparer(
				func(x, y error) bool { return errors.Is(x, y) })); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(got.Ran, after); diff != "" {
				t.Errorf("AfterStep is called after each step (-ran +called):\n%s", diff)
			}
		})
	}
}

// postponed is a Postponed error.
type postponed struct{}

func (postponed) Error() string               { return "postponed" }
func (postponed) PostponedFor() time.Duration { return time.Minute }

// TestPostponed checks that a request that was not sent changes nothing: the status stays, and the object is reconciled
// later.
func TestPostponed(t *testing.T) {
	b := newBench(t)
	calls := 0
	result, err := Run(t.Context(), Options{Client: b, Controller: "kyma", Object: b.kyma,
		OnPostponed: func() { calls++ },
		Report:      func(Outcome) { t.Error("a report about a request that was not sent") }},
		Step{Name: "a", Do: func(context.Context) error {
			b.kyma.Status.State = v1beta2.StateError
			return fmt.Errorf("reading: %w", postponed{})
		}},
		Step{Name: "b", Do: func(context.Context) error { t.Error("the next step ran"); return nil }})
	if err != nil || result.RequeueAfter != time.Minute || b.patches != 0 || calls != 1 {
		t.Errorf("%+v, %v, %d patches and %d calls of OnPostponed, want a reconcile after a minute, no patch and a call",
			result, err, b.patches, calls)
	}
}

// TestStopped checks that the error of a reconcile is not a failure if it was cancelled because the manager stops. An
// error because of a deadline is a failure.
func TestStopped(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	late, end := context.WithTimeout(t.Context(), 0)
	defer end()
	for _, c := range []struct {
		reason string
		ctx    context.Context
		failed bool
	}{
		{"the manager stops", stopped, false},
		{"a deadline has passed", late, true},
		{"somebody else has stopped", t.Context(), true},
	} {
		b := newBench(t)
		result, err := Run(c.ctx, Options{Client: b, Controller: "test", Object: b.kyma},
			Step{Name: "a", Do: func(context.Context) error { return fmt.Errorf("reading a: %w", context.Canceled) }})
		if (err != nil) != c.failed || result.RequeueAfter != 0 {
			t.Errorf("%s: %v, %+v", c.reason, err, result)
		}
	}
}

func TestStatusIsWrittenOnlyOnChange(t *testing.T) {
	b := newBench(t)
	options := Options{Client: b, Controller: "test", Object: b.kyma,
		Report: func(Outcome) { b.kyma.Status.State = v1beta2.StateReady }}
	for range 3 {
		if _, err := Run(t.Context(), options); err != nil {
			t.Fatal(err)
		}
	}
	if b.patches != 1 {
		t.Errorf("%d status patches for one change in three reconciles, want 1", b.patches)
	}
	saved := &v1beta2.Kyma{}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(b.kyma), saved); err != nil ||
		saved.Status.State != v1beta2.StateReady {
		t.Errorf("saved state is %q (%v), want Ready", saved.Status.State, err)
	}
}

// TestBeforeSave checks that derived fields are saved together with the rest of the status, and that a change of only
// such fields causes no patch.
func TestBeforeSave(t *testing.T) {
	b := newBench(t)
	state := v1beta2.State("")
	options := Options{Client: b, Controller: "test", Object: b.kyma,
		Report:     func(Outcome) { b.kyma.Status.State = state },
		BeforeSave: func() { b.kyma.Status.Summary = "sample@1.0.0" }}
	for _, want := range []struct {
		state   v1beta2.State
		patches int
		summary string
	}{{"", 0, ""}, {v1beta2.StateReady, 1, "sample@1.0.0"}} {
		state = want.state
		if _, err := Run(t.Context(), options); err != nil {
			t.Fatal(err)
		}
		saved := &v1beta2.Kyma{}
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(b.kyma), saved); err != nil {
			t.Fatal(err)
		}
		if b.patches != want.patches || saved.Status.Summary != want.summary {
			t.Errorf("state %q: %d patches, summary %q, want %d, %q", state, b.patches, saved.Status.Summary,
				want.patches, want.summary)
		}
	}
}

func TestSaveComesBeforeTheNextStep(t *testing.T) {
	b := newBench(t)
	var seen v1beta2.State
	_, err := Run(t.Context(), Options{Client: b, Controller: "test", Object: b.kyma},
		Step{Name: "record", Save: true, Do: func(context.Context) error {
			b.kyma.Status.State = v1beta2.StateProcessing
			return nil
		}},
		Step{Name: "act", Do: func(ctx context.Context) error {
			saved := &v1beta2.Kyma{}
			err := b.Get(ctx, client.ObjectKeyFromObject(b.kyma), saved)
			seen = saved.Status.State
			return err
		}})
	if err != nil || seen != v1beta2.StateProcessing {
		t.Errorf("the step after a saved one finds state %q (%v), want Processing", seen, err)
	}
}

// TestSaveIf checks that the status is saved between two steps only if the function SaveIf of the first step returns
// true.
func TestSaveIf(t *testing.T) {
	for _, want := range []bool{true, false} {
		b := newBench(t)
		var saved bool
		_, err := Run(t.Context(), Options{Client: b, Controller: "test", Object: b.kyma},
			Step{Name: "record", SaveIf: func() bool { return want }, Do: func(context.Context) error {
				b.kyma.Status.State = v1beta2.StateProcessing
				return nil
			}},
			Step{Name: "act", Do: func(ctx context.Context) error {
				k := &v1beta2.Kyma{}
				err := b.Get(ctx, client.ObjectKeyFromObject(b.kyma), k)
				saved = k.Status.State == v1beta2.StateProcessing
				return err
			}})
		if err != nil || saved != want {
			t.Errorf("saved %t (%v), want %t", saved, err, want)
		}
	}
}

// TestDeferSave checks that a deferred status is neither saved nor published, and that the object is reconciled again
// in time. After a failure, the status is saved at once.
func TestDeferSave(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		reason  string
		after   time.Duration
		answer  error
		patches int
		want    time.Duration
	}{
		"Now":      {"nothing is deferred", 0, nil, 1, 0},
		"Overdue":  {"likewise", -time.Second, nil, 1, 0},
		"Deferred": {"the controller requests no reconcile", time.Second, nil, 0, time.Second},
		"Earlier": {"the controller requests an earlier one", time.Second, ContinueAndRequeueAfter(time.Millisecond),
			0, time.Millisecond},
		"Later": {"the controller requests a later one", time.Second, ContinueAndRequeueAfter(time.Hour), 0,
			time.Second},
		"Waits":  {"a step waits longer", time.Second, Later(time.Hour, "a kind"), 0, time.Second},
		"Failed": {"people see the failure", time.Second, boom, 1, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			published := 0
			result, err := Run(t.Context(), Options{Client: b, Controller: "test", Object: b.kyma,
				Report: func(Outcome) { b.kyma.Status.State = v1beta2.StateProcessing },
				DeferSave: func(saved client.Object) time.Duration {
					if saved.(*v1beta2.Kyma).Status.State != "" {
						t.Errorf("the saved state is %q", saved.(*v1beta2.Kyma).Status.State)
					}
					return c.after
				},
				Publish: func(context.Context) error { published++; return nil },
			}, Step{Name: "act", Do: func(context.Context) error { return c.answer }})
			if errors.Is(c.answer, boom) != (err != nil) || b.patches != c.patches || published != c.patches ||
				result.RequeueAfter != c.want {
				t.Errorf("%s: %d patches, %d published, again after %s (%v)", c.reason, b.patches, published,
					result.RequeueAfter, err)
			}
		})
	}
}

func TestSpecMustNotChange(t *testing.T) {
	b := newBench(t)
	_, err := Run(t.Context(), Options{Client: b, Controller: "test", Object: b.kyma},
		Step{Name: "bad", Do: func(context.Context) error {
			b.kyma.Spec.Channel = "fast"
			return nil
		}})
	if !isTerminal(err) {
		t.Errorf("a step that changes the spec gives %v, want a terminal error", err)
	}
}

func TestPublish(t *testing.T) {
	boom, other := errors.New("boom"), errors.New("other")
	cases := map[string]struct {
		reason        string
		step, publish error
		want          error
	}{
		"AfterAFailure": {"the earlier error is returned", boom, other, boom},
		"ItsOwnFailure": {"its error is returned", nil, other, other},
		"Success":       {"nothing failed", nil, nil, nil},
		"Conflict": {"the object is requeued soon, without an error", nil,
			apierrors.NewConflict(schema.GroupResource{}, "a", boom), nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			called := false
			result, err := Run(t.Context(), Options{Client: b, Controller: "test", Object: b.kyma,
				Publish: func(context.Context) error {
					called = true
					return c.publish
				}}, Step{Name: "a", Do: func(context.Context) error { return c.step }})
			if !called || !errors.Is(err, c.want) {
				t.Errorf("%s: published %v, error %v, want %v", c.reason, called, err, c.want)
			}
			if apierrors.IsConflict(c.publish) && (result.RequeueAfter < 50*time.Millisecond ||
				result.RequeueAfter > 100*time.Millisecond) {
				t.Errorf("%s: requeued after %s, want 50 to 100 ms", c.reason, result.RequeueAfter)
			}
		})
	}
}

type reasoned struct{}

func (reasoned) Error() string  { return "no" }
func (reasoned) Reason() string { return "Because" }

func TestReason(t *testing.T) {
	if got := Reason(fmt.Errorf("a: %w", errors.Join(errors.New("b"), reasoned{}))); got != "Because" {
		t.Errorf("reason of a wrapped error is %q, want Because", got)
	}
	if got := Reason(errors.New("plain")); got != "" {
		t.Errorf("reason of a plain error is %q, want none", got)
	}
}

func TestPollDelay(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct{ since, want time.Duration }{
		"JustNow":  {0, 200 * time.Millisecond},
		"AWhile":   {8 * time.Second, 2 * time.Second},
		"AnHour":   {time.Hour, 30 * time.Second},
		"InFuture": {-time.Hour, 30 * time.Second},
		"NoTime":   {-1, 200 * time.Millisecond},
	} {
		since := now.Add(-c.since)
		if c.since == -1 {
			since = time.Time{}
		}
		if got := PollDelay(now, since); got != c.want {
			t.Errorf("%s: the delay is %s, want %s", name, got, c.want)
		}
	}
}

// TestUnreachable checks that the back-off after an outage of the control plane is not longer than the outage.
func TestUnreachable(t *testing.T) {
	away := fmt.Errorf("saving: %w", &url.Error{Op: "Patch", URL: "https://control-plane",
		Err: errors.New("connection refused")})
	cases := map[string]struct {
		reason string
		err    error
		soon   bool
	}{
		"Refused":  {"the connection is refused", away, true},
		"Starting": {"the server is starting", apierrors.NewServiceUnavailable("starting"), true},
		"Runtime":  {"an error with a reason is of a runtime, and backs off", because{away}, false},
		"Other":    {"an error of another kind backs off", errors.New("no"), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			result, err := Run(t.Context(), Options{Object: &v1beta2.Kyma{}, Controller: "test"},
				Step{Name: "fail", Do: func(context.Context) error { return c.err }})
			if soon := err == nil && result.RequeueAfter >= time.Second &&
				result.RequeueAfter <= 2*time.Second; soon != c.soon {
				t.Errorf("%s: %v, requeued after %s", c.reason, err, result.RequeueAfter)
			}
		})
	}
}

// because is an error with a reason code, for tests.
type because struct{ error }

func (because) Reason() string { return "Because" }

func TestLogLinesNameTheRuntime(t *testing.T) {
	out := &bytes.Buffer{}
	ctx := log.IntoContext(t.Context(), logr.FromSlogHandler(slog.NewJSONHandler(out, nil)))
	m := &v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1beta2.LabelKymaName: "runtime-a",
			v1beta2.LabelModuleName: "sample"}},
		Spec: v1beta2.ManifestSpec{Version: "1.0.0"},
	}
	boom := errors.New("boom")
	_, err := Run(ctx, Options{Controller: "test", Object: m}, Step{Name: "a", Do: func(ctx context.Context) error {
		log.FromContext(ctx).Info("in a step")
		return boom
	}})
	if !errors.Is(err, boom) || err.Error() != "boom" {
		t.Errorf("the error is %v, want boom", err)
	}
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"runtime": "runtime-a", "module": "sample", "version": "1.0.0"} {
		if line[key] != want {
			t.Errorf("%s is %v, want %s", key, line[key], want)
		}
	}
}

func TestEqual(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		a, b any
		want bool
	}{
		"Same": {&v1beta2.KymaStatus{State: v1beta2.StateReady}, &v1beta2.KymaStatus{State: v1beta2.StateReady},
			true},
		"Other": {&v1beta2.KymaStatus{State: v1beta2.StateReady}, &v1beta2.KymaStatus{State: v1beta2.StateError},
			false},
		"EmptyList": {&v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{}}, &v1beta2.KymaStatus{}, true},
		"OtherZone": {now, metav1.NewTime(now.In(time.FixedZone("x", 3600))), true},
	} {
		if got := Equal(c.a, c.b); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestSavesAreLimited checks a runtime whose status changes again and again: the number of patches is limited, the last
// status is saved in the end, and a deletion and the steps with Save do not wait.
func TestSavesAreLimited(t *testing.T) {
	b := newBench(t)
	saves := budget.New(3, time.Hour)
	reconcileWith := func(cluster string, err error, saves *budget.Budget, steps ...Step) reconcile.Result {
		t.Helper()
		result, failed := Run(t.Context(), Options{Client: b, Controller: "test", Object: b.kyma, Saves: saves,
			Runtime: "a", Report: func(Outcome) { b.kyma.Status.ClusterID = cluster }},
			append(steps, Step{Name: "a", Do: func(context.Context) error { return err }})...)
		if failed != nil {
			t.Fatal(failed)
		}
		return result
	}
	read := func() string {
		k := &v1beta2.Kyma{}
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(b.kyma), k); err != nil {
			t.Fatal(err)
		}
		b.kyma = k
		return k.Status.ClusterID
	}
	for i := range 100 {
		result := reconcileWith(fmt.Sprint(i), nil, saves)
		if (i < 3) != (result.RequeueAfter == 0) {
			t.Fatalf("the reconcile with status %d: again after %s", i, result.RequeueAfter)
		}
		read()
	}
	if got := read(); b.patches != 3 || got != "2" {
		t.Errorf("%d patches, the status is %s", b.patches, got)
	}
	for _, failure := range []error{errors.New("boom"), reconcile.TerminalError(errors.New("boom"))} {
		if result := reconcileWith("failed", failure, saves); result.RequeueAfter < time.Second {
			t.Errorf("after %q, a status that was not saved is not saved later: %v", failure, result)
		}
		read()
	}
	if result := reconcileWith("2", nil, saves); result.RequeueAfter != 0 || b.patches != 3 {
		t.Errorf("an unchanged status waits: %v", result)
	}
	reconcileWith("x", nil, saves, Step{Name: "record", Save: true, Do: func(context.Context) error {
		b.kyma.Status.ClusterID = "recorded"
		return nil
	}})
	if got := read(); got != "recorded" {
		t.Errorf("a step with Save waited: the status is %s", got)
	}
	if reconcileWith("last", nil, budget.New(3, time.Hour)); read() != "last" {
		t.Error("the last status was not saved")
	}
}

// TestTerminalText checks that controller-runtime gets a terminal error, and that the logged text does not contain the
// words that mark it as terminal.
func TestTerminalText(t *testing.T) {
	b := newBench(t)
	_, err := Run(t.Context(), Options{Client: b.Client, Controller: "test", Object: b.kyma},
		Step{Name: "a", Do: func(context.Context) error { return reconcile.TerminalError(errors.New("boom")) }})
	if !errors.Is(err, reconcile.TerminalError(nil)) || err.Error() != "boom" {
		t.Errorf("the error is %q, want a terminal error with the text boom", err)
	}
}
