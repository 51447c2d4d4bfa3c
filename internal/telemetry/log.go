package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// maxRuntimes is the number of runtimes whose log lines are counted. Above this number, the counts of runtimes without
// recent log lines are deleted.
const maxRuntimes = 4096

// Attributes returns the fields that are not empty, as keys and values for a logger.
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

// Explain returns an error with the same text as err, to which runtime, module and version are attached. [LimitLogs]
// adds these attributes to a log line that contains the error. If err is nil, Explain returns nil.
func (a About) Explain(err error) error {
	if err == nil || a.Runtime == "" {
		return err
	}
	return &explained{error: err, about: a}
}

// explained is an error with the runtime, module and version in which it occurred.
type explained struct {
	error
	about About
}

// Unwrap returns the original error.
func (e *explained) Unwrap() error { return e.error }

// LimitLogs returns a handler that passes log records to next, but at most perMinute records per minute about the same
// runtime. All of them may be passed in one burst. After suppressed records, the next passed record has their number in
// the attribute "suppressed". The attribute "runtime" of a record identifies its runtime; without it, the attribute
// "name" does. A record with an error from [About.Explain] gets the attributes of the error. perMinute 0 means no
// limit.
func LimitLogs(next slog.Handler, perMinute int) slog.Handler {
	return &limited{Handler: next, limit: &limit{perMinute: float64(perMinute), runtimes: map[string]*allowance{}}}
}

// limited is a handler that limits the log records about each runtime. limited stores the attributes that all its
// records have.
type limited struct {
	slog.Handler // next handler
	limit        *limit
	runtime      string // attribute "runtime" of all records
	name         string // attribute "name" of all records
	grouped      bool   // true if further attributes belong to a group
}

// Handle passes a record to the next handler, unless the runtime of the record has exceeded the limit.
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

// aboutOf returns the attributes of the first error in the record that has attributes.
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

// WithAttrs returns a handler whose records have these attributes.
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

// WithGroup returns a handler whose further attributes are in a group.
func (h *limited) WithGroup(name string) slog.Handler {
	with := *h
	with.Handler, with.grouped = h.Handler.WithGroup(name), true
	return &with
}

// limit counts the records about each runtime.
type limit struct {
	perMinute float64

	mu       sync.Mutex            // guards runtimes
	runtimes map[string]*allowance // by name
}

// allowance is the number of records about a runtime that may still be passed to the next handler.
type allowance struct {
	left       float64 // records
	at         time.Time
	suppressed int // number of suppressed records since the last passed record
}

// take uses the allowance for one record about a runtime. pass reports whether the record may be passed on.
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

// forgetLocked deletes the runtimes with a full allowance and without suppressed records. The state of these runtimes
// equals the state of a new runtime.
func (l *limit) forgetLocked(now time.Time) {
	for name, a := range l.runtimes {
		if l.refillLocked(a, now); a.left >= l.perMinute && a.suppressed == 0 {
			delete(l.runtimes, name)
		}
	}
}
