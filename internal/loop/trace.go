package loop

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/telemetry"
)

// startTrace adds the runtime, the module and the version of an object to the log lines and the trace of its reconcile.
// The returned function ends the trace. The function that startTrace returns also adds the runtime, the module and the
// version to the error of the reconcile.
func startTrace(ctx context.Context, o Options) (context.Context, func(error) error) {
	about := runtimeModuleVersionOf(o.Object)
	about.ReconcileID = string(controller.ReconcileIDFromContext(ctx))
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues(about.Attributes()...))
	ctx, endSpan := telemetry.StartReconcileSpan(ctx, o.Controller, about)
	return ctx, func(err error) error {
		endSpan(verdictOf(err).result(), err)
		if isTerminal(err) {
			err = &terminalError{text: asVisibleError(err).Error(), error: err}
		}
		return about.Attach(err)
	}
}

// terminalError is a terminal error in the form that controller-runtime logs: without the words that mark it as
// terminal.
type terminalError struct {
	error
	text string
}

func (e *terminalError) Error() string { return e.text }

// Unwrap returns the marked terminal error.
func (e *terminalError) Unwrap() error { return e.error }

// runtimeModuleVersionOf returns the runtime, the module and the version that an object is about.
func runtimeModuleVersionOf(o client.Object) telemetry.About {
	switch o := o.(type) {
	case *v1beta2.Kyma:
		return telemetry.About{Runtime: o.Name}
	case *v1beta2.Manifest:
		return telemetry.About{Runtime: o.Labels[v1beta2.LabelKymaName], Module: o.Labels[v1beta2.LabelModuleName],
			Version: o.Spec.Version}
	}
	return telemetry.About{}
}
