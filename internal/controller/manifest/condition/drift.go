package condition

import (
	"fmt"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// UncorrectedDriftMessage returns a message with the names of the first objects that differ, and with the reason why
// they are not corrected. If no object differs, UncorrectedDriftMessage returns "".
func UncorrectedDriftMessage(found []apply.Drifted) string {
	if len(found) == 0 {
		return ""
	}
	const limit = 3
	var text []string
	for _, d := range found[:min(limit, len(found))] {
		text = append(text, d.String())
	}
	if more := len(found) - limit; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return loop.ClipLine(strings.Join(text,
		"; ")) + "; not corrected because of the annotation " + v1beta2.AnnotationDrift
}
