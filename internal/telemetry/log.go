package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// mostRuntimes is how many runtimes are counted at the same time before those that say little are forgotten.
const mostRuntimes = 4096

// Attributes returns what is known, as keys and values of a logger.
func (a About) Attributes() []any {
	var all []any
	for _, known := range []struct{ name, value string }{{"runtime", a.Runtime}, {"module", a.Module}, {"version", a.Version}} {
		if known.value != "" {
			all = append(all, known.name, known.value)
		}
	}
	return all
}

// Explain returns err with what it is about, for [LimitLogs] to tell in a log line. The text stays as it is. nil stays nil.
func (a About) Explain(err error) error {
	if err == nil || a.Runtime == "" {
		return err
	}
	return &explained{error: err, about: a}
}

// explained is an error that knows what it is about.
type explained struct {
	error
	about About
}

// Unwrap makes the error below visible.
func (e *explained) Unwrap() error { return e.error }

// LimitLogs returns a handler of log records in front of next. It passes on at most perMinute records a minute about the same runtime, as many
// at once; the next one that passes says in the attribute "suppressed" how many did not. Which runtime that is says the attribute "runtime", or
// else "name". Errors that know what they are about (see [About.Explain]) have it told beside them. perMinute 0 is no limit.
func LimitLogs(next slog.Handler, perMinute int) slog.Handler {
	return &limited{Handler: next, limit: &limit{perMinute: float64(perMinute), runtimes: map[string]*allowance{}}}
}

// limited is a handler with the attributes it has been given.
type limited struct {
	slog.Handler // the next
	limit        *limit
	runtime      string // what is said of all records: attribute runtime
	name         string // likewise, name
	grouped      bool   // attributes are inside of a group by now
}

// Handle passes a record on, if the runtime that it is about has not said too much.
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

// aboutOf returns what an error of the record is about.
func aboutOf(r slog.Record) (about About, found bool) {
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is {
			if e, knows := errors.AsType[*explained](err); knows {
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

// limit counts what was said about each runtime.
type limit struct {
	perMinute float64

	mu       sync.Mutex            // guards all below
	runtimes map[string]*allowance // by name
}

// allowance is what may still be said about a runtime.
type allowance struct {
	left       float64 // records
	at         time.Time
	suppressed int // since the last one that passed
}

// take asks for one record about a runtime.
func (l *limit) take(runtime string, now time.Time) (suppressed int, pass bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.runtimes[runtime]
	if a == nil {
		if len(l.runtimes) >= mostRuntimes {
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

// forgetLocked forgets the runtimes about which as much may be said as about those that were never heard of.
func (l *limit) forgetLocked(now time.Time) {
	for name, a := range l.runtimes {
		if l.refillLocked(a, now); a.left >= l.perMinute && a.suppressed == 0 {
			delete(l.runtimes, name)
		}
	}
}
