package loop

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/telemetry"
)

// begin has the log lines and the trace of a pass say what it is about. end does so for the error that the pass ends with.
func begin(ctx context.Context, p Options) (told context.Context, end func(error) error) {
	about := aboutOf(p.Object)
	about.ReconcileID = string(controller.ReconcileIDFromContext(ctx))
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues(about.Attributes()...))
	ctx, endSpan := telemetry.Reconcile(ctx, p.Controller, about)
	return ctx, func(err error) error {
		result := metrics.ResultDone
		switch {
		case isTerminal(err):
			result = metrics.ResultTerminal
		case err != nil:
			result = metrics.ResultError
		}
		endSpan(result, err)
		return about.Explain(err)
	}
}

// aboutOf returns what a pass over this object is about.
func aboutOf(o client.Object) telemetry.About {
	switch o := o.(type) {
	case *v1beta2.Kyma:
		return telemetry.About{Runtime: o.Name}
	case *v1beta2.Manifest:
		return telemetry.About{Runtime: o.Labels[v1beta2.LabelKymaName], Module: o.Labels[v1beta2.LabelModuleName], Version: o.Spec.Version}
	}
	return telemetry.About{}
}

// failure returns err unless it is an answer of a step that is not a failure.
func failure(err error) error {
	if _, is := errors.AsType[*verdict](err); is {
		return nil
	}
	return err
}
