package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// maxRuntimes is the number of runtimes whose log lines are counted; above it, runtimes without recent lines are
// forgotten.
const maxRuntimes = 4096

// Attributes returns the fields that are set, as keys and values of a logger.
func (a About) Attributes() []any {
	var all []any
	for _, a := range []struct{ name, value string }{{"runtime", a.Runtime},
		{"module", a.Module}, {"version", a.Version}} {
		if a.value != "" {
			all = append(all, a.name, a.value)
		}
	}
	return all
}

// Explain returns err with the runtime, module and version, which [LimitLogs] adds to a log line with the error. The
// text of the error does not change. nil stays nil.
func (a About) Explain(err error) error {
	if err == nil || a.Runtime == "" {
		return err
	}
	return &explained{error: err, about: a}
}

// explained is an error with the runtime, module and version that it belongs to.
type explained struct {
	error
	about About
}

// Unwrap returns the original error.
func (e *explained) Unwrap() error { return e.error }

// LimitLogs returns a handler that passes on to next at most perMinute log records a minute about the same runtime,
// which may come in one burst. The next record that is passed on has the number of suppressed ones in the attribute
// "suppressed". The runtime of a record is in its attribute "runtime", else "name". Records with an error of
// [About.Explain] get its attributes. perMinute 0 is no limit.
func LimitLogs(next slog.Handler, perMinute int) slog.Handler {
	return &limited{Handler: next, limit: &limit{perMinute: float64(perMinute), runtimes: map[string]*allowance{}}}
}

// limited is a handler with attributes.
type limited struct {
	slog.Handler // the next one
	limit        *limit
	runtime      string // the attribute runtime of all records
	name         string // the attribute name of all records
	grouped      bool   // further attributes belong to a group
}

// Handle passes a record on unless its runtime is over the limit.
func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	runtime := cmp.Or(h.runtime, h.name)
	if about, found := aboutOf(r); found && h.runtime == "" {
		runtime = about.Runtime
		r = r.Clone()
		r.Add(about.Attributes()...)
	}
	if runtime != "" && h.limit.perMinute > 0 {
		suppressed, pass := h.limit.take(runtime, r.Time)
		if !pass {
			return nil
		}
		if suppressed > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("suppressed", suppressed))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// aboutOf returns the attributes of the first error in the record that has some.
func aboutOf(r slog.Record) (about About, found bool) {
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is {
			if e, is := errors.AsType[*explained](err); is {
				about, found = e.about, true
			}
		}
		return !found
	})
	return about, found
}

// WithAttrs returns a handler for records with these attributes.
func (h *limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	for _, a := range attrs {
		switch {
		case h.grouped:
		case a.Key == "runtime":
			with.runtime = a.Value.String()
		case a.Key == "name":
			with.name = a.Value.String()
		}
	}
	with.Handler = h.Handler.WithAttrs(attrs)
	return &with
}

// WithGroup returns a handler for records whose attributes are in a group.
func (h *limited) WithGroup(name string) slog.Handler {
	with := *h
	with.Handler, with.grouped = h.Handler.WithGroup(name), true
	return &with
}

// limit counts the records about each runtime.
type limit struct {
	perMinute float64

	mu       sync.Mutex            // guards all below
	runtimes map[string]*allowance // by name
}

// allowance is the number of records that may still be passed on about a runtime.
type allowance struct {
	left       float64 // records
	at         time.Time
	suppressed int // since the last one that was passed on
}

// take takes the allowance for one record about a runtime, and reports whether there is any.
func (l *limit) take(runtime string, now time.Time) (suppressed int, pass bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.runtimes[runtime]
	if a == nil {
		if len(l.runtimes) >= maxRuntimes {
			l.forgetLocked(now)
		}
		a = &allowance{left: l.perMinute, at: now}
		l.runtimes[runtime] = a
	}
	l.refillLocked(a, now)
	if a.left < 1 {
		a.suppressed++
		return 0, false
	}
	a.left--
	suppressed, a.suppressed = a.suppressed, 0
	return suppressed, true
}

func (l *limit) refillLocked(a *allowance, now time.Time) {
	if passed := now.Sub(a.at); passed > 0 {
		a.left, a.at = min(l.perMinute, a.left+passed.Minutes()*l.perMinute), now
	}
}

// forgetLocked forgets the runtimes with a full allowance and no suppressed records, which are in the same state as new
// ones.
func (l *limit) forgetLocked(now time.Time) {
	for name, a := range l.runtimes {
		if l.refillLocked(a, now); a.left >= l.perMinute && a.suppressed == 0 {
			delete(l.runtimes, name)
		}
	}
}
