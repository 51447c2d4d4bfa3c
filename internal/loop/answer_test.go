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

// TestJoinedAnswers checks that no failure is lost, and that a terminal error keeps its text even if it is joined or
// wrapped.
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
		"Plain":          {reason: "nothing to change", err: boom, text: "boom", retried: true},
		"Terminal":       {reason: "without the words for programs", err: terminal, text: "boom", terminal: true},
		"TerminalJoined": {reason: "the same", err: errors.Join(terminal), text: "boom", terminal: true},
		"TerminalTwice": {
			reason:   "both are told",
			err:      errors.Join(terminal, reconcile.TerminalError(other)),
			text:     "boom\nother",
			terminal: true,
		},
		"TerminalWrapped": {
			reason:   "with the text around it",
			err:      fmt.Errorf("outer: %w", terminal),
			text:     "outer: boom",
			terminal: true,
		},
		"TerminalWrappedTwice": {
			reason:   "likewise",
			err:      fmt.Errorf("a: %w", fmt.Errorf("b: %w", terminal)),
			text:     "a: b: boom",
			terminal: true,
		},
		"TerminalNil": {
			reason:   "even this has a text",
			err:      reconcile.TerminalError(nil),
			text:     "nil terminal error",
			terminal: true,
		},
		"TerminalAndOther": {
			reason:  "the other may go away",
			err:     errors.Join(terminal, other),
			text:    "boom\nother",
			retried: true,
		},
		"TerminalAndLater": {
			reason:  "what is waited for may help",
			err:     errors.Join(Later(time.Minute, "a"), terminal),
			text:    "boom",
			retried: true,
		},
		"TerminalWrappedMany": {
			reason:  "two errors in one text",
			err:     fmt.Errorf("x %w y %w", terminal, other),
			text:    "x boom y other",
			retried: true,
		},
		"Later": {reason: "not yet", err: Later(time.Minute, "a"), waiting: "a", after: time.Minute},
		"LaterWrapped": {
			reason:  "with the text around it",
			err:     fmt.Errorf("outer: %w", Later(time.Minute, "a")),
			waiting: "outer: a",
			after:   time.Minute,
		},
		"LaterTwice": {
			reason:  "the earliest",
			err:     errors.Join(Later(time.Minute, "a"), Later(time.Second, "b")),
			waiting: "a\nb",
			after:   time.Second,
		},
		"LaterAndFailure": {
			reason:  "the failure counts",
			err:     errors.Join(Later(time.Minute, "a"), boom),
			text:    "boom",
			retried: true,
		},
		"FailureAndLater": {
			reason:  "in any order",
			err:     errors.Join(boom, Later(time.Minute, "a")),
			text:    "boom",
			retried: true,
		},
		"LaterAndFailureDeep": {
			reason:  "and any depth",
			err:     fmt.Errorf("outer: %w", errors.Join(Later(1, "a"), boom)),
			text:    "outer: boom",
			retried: true,
		},
		"RecheckAndFailure": {
			reason:  "the failure counts",
			err:     errors.Join(ContinueAndRequeueAfter(time.Minute), boom),
			text:    "boom",
			retried: true,
		},
		"RecheckAndLater": {
			reason:  "the earliest, and not yet",
			err:     errors.Join(ContinueAndRequeueAfter(time.Second), Later(time.Minute, "a")),
			waiting: "\na",
			after:   time.Second,
		},
		"DoneAndFailure": {reason: "the failure counts", err: errors.Join(Done(), boom), text: "boom", retried: true},
		"Recheck":        {reason: "goes on", err: ContinueAndRequeueAfter(time.Minute), after: time.Minute},
		"Done":           {reason: "all is well", err: Done()},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out Outcome
			result, err := Run(t.Context(), Options{Controller: "test", Object: &v1beta2.Kyma{},
				Report: func(o Outcome) { out = o }},
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

// TestVisibleErrorKeepsReason checks that Reason finds the reason code of a failure that is joined with an answer, such
// as Later.
func TestVisibleErrorKeepsReason(t *testing.T) {
	v := verdictOf(errors.Join(Later(1, "a"), fmt.Errorf("b: %w", reasoned{})))
	if got := Reason(v.failure); got != "Because" {
		t.Errorf("the reason is %q, want Because", got)
	}
	if got := fmt.Sprintf("%+v", v.failure); got != "b: no" {
		t.Errorf("printed as %q", got)
	}
}

// TestSaveFails checks a status that could not be saved: another reconcile saves it, even after a terminal error.
func TestSaveFails(t *testing.T) {
	cases := map[string]struct {
		reason   string
		step     error
		save     error
		requeued bool // without an error
	}{
		"AfterTerminal": {"it is tried again", reconcile.TerminalError(errors.New("no")),
			errors.New("refused"), false},
		"AfterLater": {"it is tried again soon", Later(time.Hour, "a"), errors.New("refused"), false},
		"ConflictAfterTerminal": {"a conflict is no failure", reconcile.TerminalError(errors.New("no")),
			apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("x")), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			broken := interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
					...client.SubResourcePatchOption) error {
					return c.save
				},
			})
			result, err := Run(t.Context(), Options{Client: broken, Controller: "test", Object: b.kyma,
				Report: func(Outcome) { b.kyma.Status.State = v1beta2.StateError }},
				Step{Name: "a", Do: func(context.Context) error { return c.step }})
			if c.requeued != (err == nil && result.RequeueAfter > 0) || errors.Is(err, reconcile.TerminalError(nil)) {
				t.Errorf("%s: after %s, %v", c.reason, result.RequeueAfter, err)
			}
		})
	}
}
