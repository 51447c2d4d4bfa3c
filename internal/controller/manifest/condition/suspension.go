package condition

import (
	"fmt"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// ReasonToSuspend returns a reason and a message if a Manifest must not be reconciled. Its deletion is reconciled
// nevertheless. If the Manifest may be reconciled, ReasonToSuspend returns "" for both.
func ReasonToSuspend(m *v1beta2.Manifest) (reason, message string) {
	if m.SkipsReconciliation() {
		return v1beta2.ReasonSkipReconciliation, fmt.Sprintf(
			"the status is from before the label %s was set: remove the label to continue",
			v1beta2.LabelSkipReconciliation)
	}
	if message := m.Annotations[v1beta2.AnnotationPaused]; message != "" {
		return v1beta2.ReasonModulePaused, message
	}
	return "", ""
}
