package telemetry

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
)

// maxSuppressed is the maximum number of runtimes whose suppressed log records are counted. If more than maxSuppressed
// runtimes have suppressed log records, all counts start again from zero.
const maxSuppressed = 4096

// Attributes returns those fields that are not empty, as keys and values for a logger.
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

// Attach returns an error with the same text as err, to which the runtime, the module and the version are attached.
// [LimitLogs] adds these attributes to a log line that contains the error. If err is nil, Attach returns nil.
func (a About) Attach(err error) error {
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

// Unwrap returns the error to which the attributes are attached.
func (e *explained) Unwrap() error { return e.error }

// LimitLogs returns a handler that passes log records to the handler next, but at most perMinute records per minute
// about the same runtime. All records of one minute may be passed in one burst. After records were suppressed, the next
// passed record has their number in the attribute "suppressed". The attribute "runtime" of a record identifies the
// runtime; without this attribute, the attribute "name" identifies the runtime. If a record contains an error that was
// returned by [About.Attach], the attributes in this error are added to the record. If perMinute is 0, the number of
// records per minute is not limited.
//
// If several records about the same runtime have the same error, one of them is passed within repeatInterval. The next
// record with the same error that is passed contains the number of suppressed records in the attribute "repeated".
func LimitLogs(next slog.Handler, perMinute int) slog.Handler {
	l := &limit{suppressed: map[string]int{}, errors: map[problem]*passed{}}
	if perMinute > 0 {
		l.budget = budget.New(perMinute, time.Minute/time.Duration(perMinute))
	}
	return &limited{Handler: next, limit: l}
}

// limited is a handler that limits the log records about each runtime. limited stores the attributes that all of its
// records have.
type limited struct {
	slog.Handler // next handler
	limit        *limit
	runtime      string // attribute "runtime" of all records
	name         string // attribute "name" of all records
	grouped      bool   // true if further attributes belong to a group
}

// Handle passes a record to the next handler, unless there were too many records about the runtime.
func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	runtime := cmp.Or(h.runtime, h.name)
	if about, found := aboutOfFirstError(r); found && h.runtime == "" {
		runtime = about.Runtime
		r = r.Clone()
		r.Add(about.Attributes()...)
	}
	repeated, pass := h.limit.takeError(problemOfFirstError(runtime, r), r.Time)
	if !pass {
		return nil
	}
	if repeated > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", repeated))
	}
	if runtime != "" {
		suppressed, pass := h.limit.countRecord(runtime, r.Time)
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

// errorOf returns the text of the first error in a record, or "" if the record has no error.
func errorOf(r slog.Record) (text string) {
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is && err != nil {
			text = err.Error()
		}
		return text == ""
	})
	return text
}

// aboutOfFirstError returns the attributes of the first error in the record that has attributes.
func aboutOfFirstError(r slog.Record) (about About, found bool) {
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

// WithAttrs returns a handler that adds these attributes to all records.
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

// WithGroup returns a handler that adds further attributes in a group with this name.
func (h *limited) WithGroup(name string) slog.Handler {
	with := *h
	with.Handler, with.grouped = h.Handler.WithGroup(name), true
	return &with
}

// limit counts the log records about each runtime.
type limit struct {
	budget *budget.Budget // nil: no limit

	mu         sync.Mutex
	suppressed map[string]int      // guarded by mu; records since the last passed record, by name of the runtime
	errors     map[problem]*passed // guarded by mu
}

// problem identifies an error in a runtime. The text of the error is stored as a hash, because it may have any size.
type problem struct {
	runtime string
	text    uint64 // 0: no error
}

// seed is random, so the hashes of two processes differ.
var seed = maphash.MakeSeed()

// problemOfFirstError returns the problem that a record about a runtime reports. The first error in the record
// identifies the problem.
func problemOfFirstError(runtime string, r slog.Record) problem {
	text := errorOf(r)
	if text == "" {
		return problem{runtime: runtime}
	}
	return problem{runtime, max(maphash.String(seed, text), 1)}
}

// passed has the time of the last log record about a problem that was written, and the number of log records about this
// problem that were suppressed since then.
type passed struct {
	at    time.Time
	since int
}

// repeatInterval is the time in which the same error of a runtime is logged only once.
const repeatInterval = time.Minute

// takeError reports whether a log record about a problem may be written. If it may be written, the result repeated is
// the number of records about the same problem that were suppressed since the last written record. A record about a
// problem without a text is never suppressed.
func (l *limit) takeError(p problem, now time.Time) (repeated int, pass bool) {
	if p.text == 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.errors[p]
	if last != nil && now.Sub(last.at).Abs() < repeatInterval {
		last.since++
		return 0, false
	}
	if last != nil {
		repeated = last.since
	}
	if len(l.errors) >= maxSuppressed {
		clear(l.errors)
	}
	l.errors[p] = &passed{at: now}
	return repeated, true
}

// countRecord counts one record about a runtime. The result pass is true if the limit per minute allows the record to
// be passed on.
func (l *limit) countRecord(runtime string, now time.Time) (suppressed int, pass bool) {
	pass = l.budget.Take(runtime, now) == 0
	l.mu.Lock()
	defer l.mu.Unlock()
	if !pass {
		if len(l.suppressed) >= maxSuppressed {
			clear(l.suppressed)
		}
		l.suppressed[runtime]++
		return 0, false
	}
	suppressed = l.suppressed[runtime]
	delete(l.suppressed, runtime)
	return suppressed, true
}
