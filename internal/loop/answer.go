package loop

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// answer is what a step returns to control the runner. It is an error that is not a failure.
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

// Later returns the answer "not yet": the runner stops, and reconciles the object again after the given time or when
// something happens. The text why names what is waited for. It becomes part of the status, so it must not change while
// nothing changes.
func Later(after time.Duration, why string) error {
	return &answer{kind: later, after: after, why: why}
}

// RecheckAfter returns the answer "go on, and reconcile again after the given time even if nothing happens". The
// earliest of several wins.
func RecheckAfter(after time.Duration) error { return &answer{kind: recheck, after: after} }

// Done returns the answer "the other steps are not needed; all is well".
func Done() error { return &answer{kind: done} }

// verdict is the meaning of the error of a step, in which answers and failures may be joined and wrapped:
//
//	parts of the error                   meaning
//	answers only                         the strongest of them: Later before Done before RecheckAfter
//	terminal errors only                 a terminal failure
//	any other failure, also with others  a failure that is tried again; no answer hides it
type verdict struct {
	waiting  bool          // the step answered Later
	done     bool          // the step answered Done
	after    time.Duration // of the earliest Later
	recheck  time.Duration // of the earliest RecheckAfter, 0 if there is none
	failure  error         // nil if nothing failed; without answers, and without the text that marks terminal errors
	terminal bool          // failure will not go away by trying again
	err      error         // what Run returns: nil, an answer, or a failure that controller-runtime understands
}

// judge returns the meaning of the error of a step.
func judge(err error) verdict {
	if err == nil {
		return verdict{}
	}
	var p parts
	p.add(err)
	v := verdict{recheck: p.recheck}
	switch {
	case p.failed || p.terminal && p.answered:
		v.failure = visible(err)
		v.err = v.failure
	case p.terminal:
		v.failure, v.terminal, v.err = visible(err), true, err
	case p.waiting:
		v.waiting, v.after, v.err = true, p.after, err
	case p.done:
		v.done, v.err = true, err
	}
	return v
}

// result returns the label of the verdict in metrics and traces.
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

// parts are the kinds of parts that an error has.
type parts struct {
	failed, terminal, answered, waiting, done bool
	after, recheck                            time.Duration
}

// add collects the parts of err and of all errors that it wraps.
func (p *parts) add(err error) {
	if a, ok := err.(*answer); ok { //nolint:errorlint // each part is looked at by itself
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
	wrapped := unwrap(err)
	for _, inner := range wrapped {
		p.add(inner)
	}
	if len(wrapped) == 0 {
		p.failed = true
	}
}

// unwrap returns the errors that err wraps directly.
func unwrap(err error) []error {
	switch e := err.(type) { //nolint:errorlint // each part is looked at by itself
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return []error{inner}
		}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}

// isTerminalMark reports whether err itself, not an error that it wraps, is what reconcile.TerminalError returns.
func isTerminalMark(err error) bool {
	e, ok := err.(interface{ Is(error) bool }) // each part is checked by itself
	_, masked := err.(*visibleError)           //nolint:errorlint // likewise
	return ok && !masked && e.Is(reconcile.TerminalError(nil))
}

// isTerminal reports whether a failure will not go away by trying again.
func isTerminal(err error) bool { return judge(err).terminal }

// visible returns err as people see it, and as controller-runtime has to see it when it is to be tried again: without
// the text of answers, without the words that mark a terminal error, and not found to be terminal.
func visible(err error) error {
	if wrapped := unwrap(err); isTerminalMark(err) && len(wrapped) > 0 {
		return visible(wrapped[0])
	}
	text, changed := visibleText(err)
	if !changed {
		return err
	}
	return &visibleError{text: text, err: err}
}

// visibleText returns the text of err without answers and marks, and reports whether it has any.
func visibleText(err error) (text string, changed bool) {
	if _, ok := err.(*answer); ok { //nolint:errorlint // each part is looked at by itself
		return "", true
	}
	wrapped := unwrap(err)
	if isTerminalMark(err) {
		if len(wrapped) == 0 {
			return err.Error(), true
		}
		text, _ = visibleText(wrapped[0])
		return text, true
	}
	text = err.Error()
	var lines []string
	for _, inner := range wrapped {
		innerText, innerChanged := visibleText(inner)
		if innerText != "" {
			lines = append(lines, innerText)
		}
		if innerChanged {
			changed = true
			text = strings.Replace(text, inner.Error(), innerText, 1)
		}
	}
	if changed && err.Error() == errors.Join(wrapped...).Error() {
		text = strings.Join(lines, "\n") // joined: answers leave no empty line
	}
	return text, changed
}

// visibleError is a failure that does not show the answers and marks in it.
type visibleError struct {
	text string
	err  error
}

// Error implements error.
func (e *visibleError) Error() string { return e.text }

// Is finds what the error wraps, but no mark of a terminal error.
func (e *visibleError) Is(target error) bool {
	return !isTerminalMark(target) && errors.Is(e.err, target)
}

// As finds what the error wraps.
func (e *visibleError) As(target any) bool { return errors.As(e.err, target) }

// Format prints the text also for %+v, so that no log shows more.
func (e *visibleError) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(e.text)) }
