package loop

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// answer is an error value with which a step controls how the reconcile continues: whether the next step runs, and when
// the object is reconciled again. A step that returns an answer has not failed.
type answer struct {
	kind  answerKind
	after time.Duration
	why   string
}

type answerKind int

const (
	recheck answerKind = iota
	done
	later
)

// Error implements error.
func (a *answer) Error() string { return a.why }

// Later returns the answer "not yet": the step cannot continue now. When a step returns Later, the runner stops. The
// object is reconciled again after the given time, or earlier when an event is received. The text waitingFor states
// what the step waits for. The text becomes part of the status, so it must stay the same while the step waits for the
// same thing.
func Later(after time.Duration, waitingFor string) error {
	return &answer{kind: later, after: after, why: waitingFor}
}

// ContinueAndRequeueAfter returns the answer "continue, and reconcile again after the given time even without an
// event". If several steps return ContinueAndRequeueAfter, the shortest time is used.
func ContinueAndRequeueAfter(after time.Duration) error { return &answer{kind: recheck, after: after} }

// Done returns the answer "the other steps are not needed, and there is no failure".
func Done() error { return &answer{kind: done} }

// WaitDelay returns the delay of err if err is the answer "not yet", see [Later].
func WaitDelay(err error) (delay time.Duration, isWaiting bool) {
	v := verdictOf(err)
	return v.after, v.waiting
}

// verdict is what the error of a step means for the reconcile. The error may contain several answers (values of type
// answer) and failures (all other errors), wrapped with %w or joined with errors.Join. These parts decide the verdict:
//
//	parts of the error                   meaning
//	only answers                         the strongest answer: Later before Done before ContinueAndRequeueAfter
//	only terminal errors                 a terminal failure
//	any other failure, also with others  a failure after which the object is requeued; answers do not hide it
type verdict struct {
	waiting  bool          // the step answered Later
	done     bool          // the step answered Done
	after    time.Duration // shortest delay of Later
	recheck  time.Duration // shortest delay of ContinueAndRequeueAfter, 0 if there is none
	failure  error         // nil if nothing failed; contains no answers, and no text that marks terminal errors
	terminal bool          // the failure is terminal: trying again cannot succeed
	err      error         // error for Run to return: nil, an answer, or a failure in the form for controller-runtime
}

// verdictOf returns the verdict on the error that a step has returned.
func verdictOf(err error) verdict {
	if err == nil {
		return verdict{}
	}
	var p parts
	p.recordErrorKinds(err)
	v := verdict{recheck: p.recheck}
	switch {
	case p.failed || p.terminal && p.answered:
		v.failure = asVisibleError(err)
		v.err = v.failure
	case p.terminal:
		v.failure, v.terminal, v.err = asVisibleError(err), true, err
	case p.waiting:
		v.waiting, v.after, v.err = true, p.after, err
	case p.done:
		v.done, v.err = true, err
	}
	return v
}

// result returns the value that the label result has in metrics and traces.
func (v verdict) result() string {
	switch {
	case v.terminal:
		return metrics.ResultTerminal
	case v.failure != nil:
		return metrics.ResultError
	case v.waiting:
		return metrics.ResultLater
	}
	return metrics.ResultDone
}

// The type parts records which kinds of errors are joined in one error.
type parts struct {
	failed, terminal, answered, waiting, done bool
	after, recheck                            time.Duration
}

// recordErrorKinds records the kinds of err and of all errors that err wraps.
func (p *parts) recordErrorKinds(err error) {
	if a, ok := err.(*answer); ok { //nolint:errorlint // each part is checked separately
		p.answered = true
		switch a.kind {
		case later:
			if !p.waiting || a.after < p.after {
				p.after = a.after
			}
			p.waiting = true
		case recheck:
			if p.recheck == 0 || a.after < p.recheck {
				p.recheck = a.after
			}
		case done:
			p.done = true
		}
		return
	}
	if isTerminalMark(err) {
		p.terminal = true
		return
	}
	wrapped := unwrapErrors(err)
	for _, inner := range wrapped {
		p.recordErrorKinds(inner)
	}
	if len(wrapped) == 0 {
		p.failed = true
	}
}

// unwrapErrors returns the errors that err wraps directly.
func unwrapErrors(err error) []error {
	switch e := err.(type) { //nolint:errorlint // each part is checked separately
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return []error{inner}
		}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}

// isTerminalMark reports whether err itself is an error that reconcile.TerminalError has returned. isTerminalMark
// returns false if err only wraps the result of reconcile.TerminalError.
func isTerminalMark(err error) bool {
	e, ok := err.(interface{ Is(error) bool }) // checks err itself, without the errors that it wraps
	_, masked := err.(*nonTerminalError)       //nolint:errorlint // likewise
	return ok && !masked && e.Is(reconcile.TerminalError(nil))
}

// isTerminal reports whether a failure is terminal: trying again cannot succeed.
func isTerminal(err error) bool { return verdictOf(err).terminal }

// asVisibleError removes the answers and the words "terminal error" from the text of err, so that people see only the
// problem. The returned error is not terminal, so controller-runtime requeues the object.
func asVisibleError(err error) error {
	if wrapped := unwrapErrors(err); isTerminalMark(err) && len(wrapped) > 0 {
		return asVisibleError(wrapped[0])
	}
	text, changed := textWithoutAnswerAndTerminalMark(err)
	if !changed {
		return err
	}
	return &nonTerminalError{text: text, err: err}
}

// textWithoutAnswerAndTerminalMark returns the text of err without the parts that are only instructions for the
// controller: answers, such as a delay, and the mark of a terminal error. The result changed is true if err contains
// such an instruction, so that the returned text differs from the text of err.
func textWithoutAnswerAndTerminalMark(err error) (text string, changed bool) {
	if _, ok := err.(*answer); ok { //nolint:errorlint // each part is checked separately
		return "", true
	}
	wrapped := unwrapErrors(err)
	if isTerminalMark(err) {
		if len(wrapped) == 0 {
			return err.Error(), true
		}
		text, _ = textWithoutAnswerAndTerminalMark(wrapped[0])
		return text, true
	}
	text = err.Error()
	var lines []string
	for _, inner := range wrapped {
		innerText, innerChanged := textWithoutAnswerAndTerminalMark(inner)
		if innerText != "" {
			lines = append(lines, innerText)
		}
		if innerChanged {
			changed = true
			text = strings.Replace(text, inner.Error(), innerText, 1)
		}
	}
	if changed && err.Error() == errors.Join(wrapped...).Error() {
		text = strings.Join(lines, "\n") // for joined errors: answers leave no empty line
	}
	return text, changed
}

// nonTerminalError is a failure with a text for people. The text leaves out the instructions for the controller in the
// wrapped error: answers, such as a delay, and the mark of a terminal error.
type nonTerminalError struct {
	text string
	err  error
}

// Error implements error.
func (e *nonTerminalError) Error() string { return e.text }

// Is compares target with the errors that nonTerminalError wraps, as errors.Is expects. If target is the error that
// marks terminal errors, Is returns false, so that controller-runtime does not treat a nonTerminalError as terminal.
func (e *nonTerminalError) Is(target error) bool {
	return !isTerminalMark(target) && errors.Is(e.err, target)
}

// The method As searches the errors that nonTerminalError wraps, as errors.As expects.
func (e *nonTerminalError) As(target any) bool { return errors.As(e.err, target) }

// Format prints the same text for all verbs, also for %+v, so that no log shows the parts that are left out.
func (e *nonTerminalError) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(e.text)) }
