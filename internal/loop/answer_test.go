package loop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestJoinedAnswers: no failure is lost, and a terminal error keeps its text, whatever it is joined with or wrapped in.
func TestJoinedAnswers(t *testing.T) {
	boom, other := errors.New("boom"), errors.New("other")
	terminal := reconcile.TerminalError(boom)
	cases := map[string]struct {
		reason   string
		err      error
		text     string // of Outcome.Err, "" for none
		terminal bool
		waiting  string
		after    time.Duration // when the object is reconciled again if nothing failed
		retried  bool          // controller-runtime tries again
	}{
		"Plain":                {"nothing to change", boom, "boom", false, "", 0, true},
		"Terminal":             {"without the words for programs", terminal, "boom", true, "", 0, false},
		"TerminalJoined":       {"the same", errors.Join(terminal), "boom", true, "", 0, false},
		"TerminalTwice":        {"both are told", errors.Join(terminal, reconcile.TerminalError(other)), "boom\nother", true, "", 0, false},
		"TerminalWrapped":      {"with the text around it", fmt.Errorf("outer: %w", terminal), "outer: boom", true, "", 0, false},
		"TerminalWrappedTwice": {"likewise", fmt.Errorf("a: %w", fmt.Errorf("b: %w", terminal)), "a: b: boom", true, "", 0, false},
		"TerminalNil":          {"even this has a text", reconcile.TerminalError(nil), "nil terminal error", true, "", 0, false},
		"TerminalAndOther":     {"the other may go away", errors.Join(terminal, other), "boom\nother", false, "", 0, true},
		"TerminalAndLater":     {"what is waited for may help", errors.Join(Later(time.Minute, "a"), terminal), "boom", false, "", 0, true},
		"TerminalWrappedMany":  {"two errors in one text", fmt.Errorf("x %w y %w", terminal, other), "x boom y other", false, "", 0, true},
		"Later":                {"not yet", Later(time.Minute, "a"), "", false, "a", time.Minute, false},
		"LaterWrapped":         {"with the text around it", fmt.Errorf("outer: %w", Later(time.Minute, "a")), "", false, "outer: a", time.Minute, false},
		"LaterTwice":           {"the earliest", errors.Join(Later(time.Minute, "a"), Later(time.Second, "b")), "", false, "a\nb", time.Second, false},
		"LaterAndFailure":      {"the failure counts", errors.Join(Later(time.Minute, "a"), boom), "boom", false, "", 0, true},
		"FailureAndLater":      {"in any order", errors.Join(boom, Later(time.Minute, "a")), "boom", false, "", 0, true},
		"LaterAndFailureDeep":  {"and any depth", fmt.Errorf("outer: %w", errors.Join(Later(1, "a"), boom)), "outer: boom", false, "", 0, true},
		"RecheckAndFailure":    {"the failure counts", errors.Join(RecheckAfter(time.Minute), boom), "boom", false, "", 0, true},
		"RecheckAndLater":      {"the earliest, and not yet", errors.Join(RecheckAfter(time.Second), Later(time.Minute, "a")), "", false, "\na", time.Second, false},
		"DoneAndFailure":       {"the failure counts", errors.Join(Done(), boom), "boom", false, "", 0, true},
		"Recheck":              {"goes on", RecheckAfter(time.Minute), "", false, "", time.Minute, false},
		"Done":                 {"all is well", Done(), "", false, "", 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out Outcome
			result, err := Run(t.Context(), Options{Controller: "test", Object: &v1beta2.Kyma{}, Report: func(o Outcome) { out = o }},
				Step{Name: "a", Do: func(context.Context) error { return c.err }})
			text := ""
			if out.Err != nil {
				text = out.Err.Error()
			}
			if text != c.text || out.Terminal != c.terminal || out.Waiting != c.waiting {
				t.Errorf("%s: the outcome is %q, terminal %t, waiting for %q; want %q, %t, %q",
					c.reason, text, out.Terminal, out.Waiting, c.text, c.terminal, c.waiting)
			}
			if result.RequeueAfter != c.after {
				t.Errorf("%s: reconciled again after %s, want %s", c.reason, result.RequeueAfter, c.after)
			}
			if (err != nil) != (c.text != "") {
				t.Errorf("%s: controller-runtime gets %v", c.reason, err)
			}
			if retried := err != nil && !errors.Is(err, reconcile.TerminalError(nil)); retried != c.retried {
				t.Errorf("%s: tried again is %t, want %t", c.reason, retried, c.retried)
			}
			for _, part := range []error{boom, other} {
				if errors.Is(c.err, part) && (!errors.Is(err, part) || !errors.Is(out.Err, part)) {
					t.Errorf("%s: %q is not found any more", c.reason, part)
				}
			}
		})
	}
}

// TestVisibleErrorKeepsReason: the reason code of an error that is joined with an answer is found.
func TestVisibleErrorKeepsReason(t *testing.T) {
	v := judge(errors.Join(Later(1, "a"), fmt.Errorf("b: %w", reasoned{})))
	if got := Reason(v.failure); got != "Because" {
		t.Errorf("the reason is %q, want Because", got)
	}
	if got := fmt.Sprintf("%+v", v.failure); got != "b: no" {
		t.Errorf("printed as %q", got)
	}
}

// TestSaveFails: a status that could not be saved is saved by another reconcile, also after a terminal error.
func TestSaveFails(t *testing.T) {
	cases := map[string]struct {
		reason   string
		step     error
		save     error
		requeued bool // without an error
	}{
		"AfterTerminal":         {"it is tried again", reconcile.TerminalError(errors.New("no")), errors.New("refused"), false},
		"AfterLater":            {"it is tried again soon", Later(time.Hour, "a"), errors.New("refused"), false},
		"ConflictAfterTerminal": {"a conflict is no failure", reconcile.TerminalError(errors.New("no")), apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("x")), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			broken := interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					return c.save
				},
			})
			result, err := Run(t.Context(), Options{Client: broken, Controller: "test", Object: b.kyma, Report: func(Outcome) { b.kyma.Status.State = v1beta2.StateError }},
				Step{Name: "a", Do: func(context.Context) error { return c.step }})
			if c.requeued != (err == nil && result.RequeueAfter > 0) || errors.Is(err, reconcile.TerminalError(nil)) {
				t.Errorf("%s: after %s, %v", c.reason, result.RequeueAfter, err)
			}
		})
	}
}
