// Package telemetry is what the manager tells about single passes, beside its metrics: traces, exemplars and log lines that say which
// runtime they are about.
//
// # Use
//
//	log := logr.FromSlogHandler(telemetry.LimitLogs(handler, 60))
//	ctx, stop, err := telemetry.Trace(ctx, "http://collector:4317", 0.1, version)
//	defer stop()
//	mgr, err := manager.New(ctx, c, cfg) // its passes find the tracer in their context
//
// The runner of steps (internal/loop) calls [Reconcile], [Step] and [Observe]; nobody else has to know of any of this.
//
// # How it works
//
// A tracer travels in the context. Where there is none, [Reconcile] and [Step] return the context that they were given: a look into it, no
// allocation. Spans are sent in batches over OTLP; when nobody takes them they are dropped, and no pass waits. A sample of the histograms
// carries the trace of the step it was measured in as an exemplar, if that trace is kept.
//
// # What it does not do
//
// It traces no single request, and it takes no trace over from outside: a pass begins with a wish, not with a call.
package telemetry

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// About says what a pass is about. Any of it may be empty.
type About struct {
	// Runtime is the name of the Kyma.
	Runtime string
	// Module and Version are those of a Manifest.
	Module, Version string
	// ReconcileID identifies the reconcile; log lines have it as reconcileID.
	ReconcileID string
}

// flushTime is how long the end of the program may wait for the last spans to be taken.
const flushTime = 3 * time.Second

type tracerKey struct{}

// Trace returns a context whose passes are traced: the given part of them (0 to 1) is sent to endpoint, http://HOST:PORT or
// https://HOST:PORT, by OTLP over gRPC. stop sends what is left. An empty endpoint switches tracing off: ctx is returned as it is. Nothing is
// asked of endpoint now, so that a collector which is away does not keep the manager from starting.
func Trace(ctx context.Context, endpoint string, part float64, version string) (traced context.Context, stop func(), err error) {
	if endpoint == "" {
		return ctx, func() {}, nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("preparing to send traces to %q: %w", endpoint, err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.TraceIDRatioBased(part)),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "lifecycle-manager"), attribute.String("service.version", version))))
	stop = func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		_ = provider.Shutdown(last) // nobody is there to take them: they are lost, as they would have been while the manager ran
	}
	return WithTracer(ctx, provider.Tracer("lifecycle-manager")), stop, nil
}

// WithTracer returns a context whose passes t traces.
func WithTracer(ctx context.Context, t trace.Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, t)
}

func tracerOf(ctx context.Context) trace.Tracer {
	t, _ := ctx.Value(tracerKey{}).(trace.Tracer)
	return t
}

// End ends a span: with the result of what it was about, and with its error if it failed.
type End func(result string, err error)

func endNothing(string, error) {}

// Reconcile begins the span of a pass of this controller.
func Reconcile(ctx context.Context, controller string, about About) (context.Context, End) {
	tracer := tracerOf(ctx)
	if tracer == nil {
		return ctx, endNothing
	}
	ctx, span := tracer.Start(ctx, controller, trace.WithNewRoot())
	for name, value := range map[string]string{"runtime": about.Runtime, "module": about.Module, "version": about.Version, "pass": about.ReconcileID} {
		if value != "" {
			span.SetAttributes(attribute.String(name, value))
		}
	}
	return ctx, ending(span)
}

// Step begins the span of a step of a pass.
func Step(ctx context.Context, controller, step string) (context.Context, End) {
	tracer := tracerOf(ctx)
	if tracer == nil {
		return ctx, endNothing
	}
	ctx, span := tracer.Start(ctx, controller+"/"+step)
	return ctx, ending(span)
}

func ending(span trace.Span) End {
	return func(result string, err error) {
		span.SetAttributes(attribute.String("result", result))
		if err != nil {
			span.SetStatus(codes.Error, strings.ToValidUTF8(err.Error(), "?"))
		}
		span.End()
	}
}

// Observe gives the histogram o a value, with the trace in ctx as its exemplar if that is kept.
func Observe(ctx context.Context, o prometheus.Observer, value float64) {
	if in := trace.SpanContextFromContext(ctx); in.IsSampled() {
		if e, can := o.(prometheus.ExemplarObserver); can {
			e.ObserveWithExemplar(value, prometheus.Labels{"trace_id": in.TraceID().String()})
			return
		}
	}
	o.Observe(value)
}
