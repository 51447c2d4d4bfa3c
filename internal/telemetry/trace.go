// Package telemetry adds data about single reconciles to the metrics: traces, exemplars, and log lines with the name of
// their runtime.
//
// # Use
//
//	log := logr.FromSlogHandler(telemetry.LimitLogs(handler, 60))
//	ctx, stop, err := telemetry.Trace(ctx, "http://collector:4317", 0.1, version)
//	defer stop()
//	mgr, err := manager.New(ctx, c, cfg) // reconciles get the tracer from their context
//
// Package internal/loop, which runs the steps of a reconcile, calls [StartReconcileSpan], [StartStepSpan] and
// [Observe]. Controllers need not call these three functions.
//
// # How it works
//
// The tracer is stored in the context. If there is no tracer, [StartReconcileSpan] and [StartStepSpan] return the
// context unchanged and allocate no memory. Spans are sent in batches over OTLP. If the receiver does not accept the
// spans, they are dropped, so that a reconcile never waits for the receiver. If the trace is sampled, an observation of
// a histogram has the trace of its step as an exemplar.
//
// # What it does not do
//
// The package does not trace single requests. The package does not continue the trace of a caller either, because a
// reconcile has no caller: a change of an object starts it.
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

// About identifies the runtime, the module and the version that a reconcile is about. Each field may be empty.
type About struct {
	// Runtime is the name of the Kyma.
	Runtime string
	// Module and Version are the module and the version of a Manifest.
	Module, Version string
	// ReconcileID is the ID of the reconcile. The log lines of the reconcile contain this ID, too, under the key
	// reconcileID.
	ReconcileID string
}

// flushTimeout is the maximum time in which the last spans are sent before the program exits. Tests change it.
var flushTimeout = 3 * time.Second

type tracerKey struct{}

// Trace returns a context in which reconciles are traced. share is the fraction of reconciles whose traces are sent,
// from 0 to 1. endpoint receives the traces by OTLP over gRPC; it is http://HOST:PORT or https://HOST:PORT. The
// function stop sends the remaining spans. If endpoint is empty, there is no tracing, and ctx is returned unchanged.
// Trace itself does not connect to endpoint, so the manager can start while the collector is unavailable.
func Trace(ctx context.Context, endpoint string, share float64, version string) (
	traced context.Context, stop func(), err error) {
	if endpoint == "" {
		return ctx, func() {}, nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("preparing to send traces to %q: %w", endpoint, err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.TraceIDRatioBased(share)),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "lifecycle-manager"),
			attribute.String("service.version", version))))
	stop = func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		_ = provider.Shutdown(last) // spans that cannot be sent are dropped
	}
	return WithTracer(ctx, provider.Tracer("lifecycle-manager")), stop, nil
}

// WithTracer returns a context in which the tracer t traces reconciles.
func WithTracer(ctx context.Context, t trace.Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, t)
}

func tracerOf(ctx context.Context) trace.Tracer {
	t, _ := ctx.Value(tracerKey{}).(trace.Tracer)
	return t
}

// End ends a span with a result. err is nil if the traced work did not fail.
type End func(result string, err error)

func endNothing(string, error) {}

// StartReconcileSpan starts the span for one reconcile of the given controller.
func StartReconcileSpan(ctx context.Context, controller string, about About) (context.Context, End) {
	tracer := tracerOf(ctx)
	if tracer == nil {
		return ctx, endNothing
	}
	ctx, span := tracer.Start(ctx, controller, trace.WithNewRoot())
	for name, value := range map[string]string{"runtime": about.Runtime, "module": about.Module,
		"version": about.Version, "pass": about.ReconcileID} {
		if value != "" {
			span.SetAttributes(attribute.String(name, value))
		}
	}
	return ctx, endFunc(span)
}

// StartStepSpan starts the span for one step of a reconcile.
func StartStepSpan(ctx context.Context, controller, step string) (context.Context, End) {
	tracer := tracerOf(ctx)
	if tracer == nil {
		return ctx, endNothing
	}
	ctx, span := tracer.Start(ctx, controller+"/"+step)
	return ctx, endFunc(span)
}

func endFunc(span trace.Span) End {
	return func(result string, err error) {
		span.SetAttributes(attribute.String("result", result))
		if err != nil {
			span.SetStatus(codes.Error, strings.ToValidUTF8(err.Error(), "?"))
		}
		span.End()
	}
}

// Observe adds a value to the histogram o. If the trace in ctx is sampled, Observe adds the ID of the trace to the
// histogram as the exemplar of the value.
func Observe(ctx context.Context, o prometheus.Observer, value float64) {
	if in := trace.SpanContextFromContext(ctx); in.IsSampled() {
		if e, can := o.(prometheus.ExemplarObserver); can {
			e.ObserveWithExemplar(value, prometheus.Labels{"trace_id": in.TraceID().String()})
			return
		}
	}
	o.Observe(value)
}
