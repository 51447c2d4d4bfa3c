package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// sink is a test server that receives traces.
type sink struct {
	collector.UnimplementedTraceServiceServer
	got chan *spans.Span
}

// Export receives spans.
func (s *sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (
	*collector.ExportTraceServiceResponse, error) {
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				s.got <- span
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func startSink(t *testing.T) (*sink, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, server := &sink{got: make(chan *spans.Span, 100)}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return s, "http://" + l.Addr().String()
}

func newHistogram() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Help: "Seconds.", Buckets: []float64{1}})
}

// exemplar returns the ID of the trace in the first bucket of the histogram, or "" if the bucket has no trace.
func exemplar(t *testing.T, h prometheus.Histogram) string {
	t.Helper()
	m := &dto.Metric{}
	if err := h.Write(m); err != nil {
		t.Fatal(err)
	}
	if labels := m.Histogram.Bucket[0].GetExemplar().GetLabel(); len(labels) == 1 && labels[0].GetName() == "trace_id" {
		return labels[0].GetValue()
	}
	return ""
}

func TestTrace(t *testing.T) {
	// The exporter, in milliseconds, and the provider drop spans that have not arrived within their timeouts.
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "600000")
	defer func(before time.Duration) { flushTimeout = before }(flushTimeout)
	flushTimeout = 10 * time.Minute
	s, endpoint := startSink(t)
	ctx, stop, err := Trace(t.Context(), endpoint, 1, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	ctx, endReconcile := StartReconcileSpan(ctx, "manifest", About{Runtime: "runtime-a", Module: "sample",
		Version: "1.0.0", ReconcileID: "id"})
	inStep, endStep := StartStepSpan(ctx, "manifest", "apply")
	h := newHistogram()
	Observe(inStep, h, 0.5)
	endStep("error", errors.New("applying ConfigMap a/b: no"))
	endReconcile("error", nil)
	stop()
	next := func() *spans.Span {
		t.Helper()
		select {
		case span := <-s.got:
			return span
		case <-time.After(flushTimeout):
			t.Fatalf("a span did not arrive in %s", flushTimeout)
			return nil
		}
	}
	step, pass := next(), next()
	attributes := map[string]string{}
	for _, a := range pass.Attributes {
		attributes[a.Key] = a.Value.GetStringValue()
	}
	want := map[string]string{"runtime": "runtime-a", "module": "sample", "version": "1.0.0",
		"pass": "id", "result": "error"}
	if diff := cmp.Diff(want, attributes); diff != "" || pass.Name != "manifest" {
		t.Errorf("span %q of the reconcile (-want +got):\n%s", pass.Name, diff)
	}
	if step.Name != "manifest/apply" || !bytes.Equal(step.ParentSpanId, pass.SpanId) ||
		step.Status.GetMessage() != "applying ConfigMap a/b: no" {
		t.Errorf("span of the step: %v", step)
	}
	if got, want := exemplar(t, h), fmt.Sprintf("%x", step.TraceId); got != want {
		t.Errorf("the exemplar has trace %q, want %q", got, want)
	}
}

func TestTraceOff(t *testing.T) {
	ctx, stop, err := Trace(t.Context(), "", 1, "")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	h := newHistogram()
	about := About{Runtime: "runtime-a"}
	if n := testing.AllocsPerRun(100, func() {
		inReconcile, endReconcile := StartReconcileSpan(ctx, "kyma", about)
		inStep, endStep := StartStepSpan(inReconcile, "kyma", "connect")
		Observe(inStep, h, 0.5)
		endStep("done", nil)
		endReconcile("done", nil)
	}); n != 0 {
		t.Errorf("without a tracer, a reconcile and a step make %v allocations", n)
	}
	if got := exemplar(t, h); got != "" {
		t.Errorf("there is an exemplar without a trace: %q", got)
	}
}

func TestTraceIsSampled(t *testing.T) {
	s, endpoint := startSink(t)
	ctx, stop, err := Trace(t.Context(), endpoint, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := StartReconcileSpan(ctx, "kyma", About{})
	h := newHistogram()
	Observe(ctx, h, 0.5)
	end("done", nil)
	stop()
	if got := exemplar(t, h); got != "" || len(s.got) != 0 || trace.SpanContextFromContext(ctx).IsSampled() {
		t.Errorf("a trace that is not sampled has exemplar %q and %d spans", got, len(s.got))
	}
}

func TestTraceWithoutCollector(t *testing.T) {
	if _, _, err := Trace(t.Context(), "http://127.0.0.1:1", 1, ""); err != nil {
		t.Errorf("a collector that does not answer prevents the start: %v", err)
	}
}

// lines returns the lines of the log that was written to out.
func lines(t *testing.T, out io.Reader) []map[string]any {
	t.Helper()
	var all []map[string]any
	for d := json.NewDecoder(out); ; {
		var line map[string]any
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
}

func TestLimitLogs(t *testing.T) {
	now := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	emit := func(h slog.Handler, after time.Duration, n int) {
		for range n {
			if err := h.Handle(t.Context(), slog.NewRecord(now.Add(after), slog.LevelInfo, "text", 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	of := func(runtime string) []slog.Attr { return []slog.Attr{slog.String("runtime", runtime)} }
	cases := map[string]struct {
		reason     string
		perMinute  int
		do         func(h slog.Handler)
		lines      int
		suppressed float64 // attribute of the last log line
	}{
		"Few": {
			reason:    "records within the limit are passed on",
			perMinute: 10,
			do:        func(h slog.Handler) { emit(h.WithAttrs(of("a")), 0, 10) },
			lines:     10,
		},
		"Many": {
			reason:    "records over the limit are not",
			perMinute: 10,
			do:        func(h slog.Handler) { emit(h.WithAttrs(of("a")), 0, 100) },
			lines:     10,
		},
		"Counted": {
			reason:     "the next line has the number of suppressed ones",
			perMinute:  10,
			do:         func(h slog.Handler) { a := h.WithAttrs(of("a")); emit(a, 0, 15); emit(a, time.Minute, 1) },
			lines:      11,
			suppressed: 5,
		},
		"Others": {
			reason:    "the limit is per runtime",
			perMinute: 10,
			do:        func(h slog.Handler) { emit(h.WithAttrs(of("a")), 0, 15); emit(h.WithAttrs(of("b")), 0, 1) },
			lines:     11,
		},
		"NoRuntime": {
			reason:    "records without a runtime are not limited",
			perMinute: 10,
			do:        func(h slog.Handler) { emit(h, 0, 100) },
			lines:     100,
		},
		"Name": {
			reason:    "the attribute name is used without runtime",
			perMinute: 10,
			do:        func(h slog.Handler) { emit(h.WithAttrs([]slog.Attr{slog.String("name", "a")}), 0, 100) },
			lines:     10,
		},
		"InGroup": {
			reason:    "a runtime in a group does not count",
			perMinute: 10,
			do:        func(h slog.Handler) { emit(h.WithGroup("g").WithAttrs(of("a")), 0, 100) },
			lines:     100,
		},
		"Off": {
			reason: "0 is no limit",
			do:     func(h slog.Handler) { emit(h.WithAttrs(of("a")), 0, 100) },
			lines:  100,
		},
		"ClockBack": {
			reason:    "a clock that was put back adds no allowance",
			perMinute: 10,
			do:        func(h slog.Handler) { a := h.WithAttrs(of("a")); emit(a, 0, 10); emit(a, -time.Hour, 5) },
			lines:     10,
		},
		"ManyOthers": {reason: "the memory does not grow with the fleet", perMinute: 1, do: func(h slog.Handler) {
			for i := range 2 * maxSuppressed {
				emit(h.WithAttrs(of(fmt.Sprint(i))), 0, 2)
			}
			if n := len(h.(*limited).limit.suppressed); n > maxSuppressed {
				t.Errorf("the suppressed records of %d runtimes are counted", n)
			}
		}, lines: 2 * maxSuppressed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out := &bytes.Buffer{}
			c.do(LimitLogs(slog.NewJSONHandler(out, nil), c.perMinute))
			got := lines(t, out)
			suppressed, _ := got[len(got)-1]["suppressed"].(float64)
			if len(got) != c.lines || suppressed != c.suppressed {
				t.Errorf("%s: %d lines, %v suppressed; want %d, %v", c.reason, len(got),
					suppressed, c.lines, c.suppressed)
			}
		})
	}
}

func TestErrorsNameTheRuntime(t *testing.T) {
	boom := errors.New("boom")
	about := About{Runtime: "runtime-a", Module: "sample", Version: "1.0.0"}
	out := &bytes.Buffer{}
	log := logr.FromSlogHandler(LimitLogs(slog.NewJSONHandler(out, nil), 1)).WithValues("name", "runtime-a-sample-123")
	log.Error(fmt.Errorf("outside: %w", about.Attach(boom)), "Reconciler error")
	log.WithValues("runtime", "runtime-a").Info("once more, of the same runtime")
	got := lines(t, out)
	if len(got) != 1 {
		t.Fatalf("%d lines passed, want 1: %v", len(got), got)
	}
	want := map[string]any{"runtime": "runtime-a", "module": "sample", "version": "1.0.0", "err": "outside: boom"}
	for key, value := range want {
		if got[0][key] != value {
			t.Errorf("%s is %v, want %v", key, got[0][key], value)
		}
	}
	if err := about.Attach(boom); !errors.Is(err, boom) || err.Error() != "boom" {
		t.Errorf("Explain changes the error: %v", err)
	}
	if err := about.Attach(nil); err != nil {
		t.Errorf("Explain makes an error of none: %v", err)
	}
}

// TestRepeatedErrors checks that the same error of a runtime is logged once in a minute, whichever controller logs it.
func TestRepeatedErrors(t *testing.T) {
	var out bytes.Buffer
	h := LimitLogs(slog.NewJSONHandler(&out, nil), 0)
	now := time.Now()
	add := func(runtime, text string, after time.Duration) {
		r := slog.NewRecord(now.Add(after), slog.LevelError, "Reconciler error", 0)
		if text != "" {
			r.Add("err", About{Runtime: runtime}.Attach(errors.New(text)))
		}
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	add("a", "boom", 0)
	add("a", "boom", time.Second)
	add("a", "boom", 2*time.Second)
	add("a", "bang", 3*time.Second)
	add("b", "boom", 4*time.Second)
	add("a", "boom", repeatInterval)
	add("", "", repeatInterval)
	add("", "", repeatInterval)
	var got []string
	for _, l := range lines(t, &out) {
		got = append(got, fmt.Sprint(l["runtime"], " ", l["err"], " ", l["repeated"]))
	}
	want := []string{"a boom <nil>", "a bang <nil>", "b boom <nil>", "a boom 2", "<nil> <nil> <nil>",
		"<nil> <nil> <nil>"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records -want +got:\n%s", diff)
	}
}
