package telemetry

import (
	"context"
	"strings"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// apiWarnings logs each warning of the API server of the control plane once. The warning about the name of our
// finalizer is not logged: clients of Kyma know this name, so it cannot be changed.
type apiWarnings struct {
	next rest.WarningHandlerWithContext
}

// NewAPIWarnings returns the handler for warnings of the API server of the control plane.
func NewAPIWarnings() rest.WarningHandlerWithContext {
	return apiWarnings{log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{Deduplicate: true})}
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w apiWarnings) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if strings.HasPrefix(text, "metadata.finalizers: ") && strings.Contains(text, `"`+v1beta2.FinalizerLabelRemoval+`"`) {
		return
	}
	w.next.HandleWarningHeaderWithContext(ctx, code, agent, text)
}
