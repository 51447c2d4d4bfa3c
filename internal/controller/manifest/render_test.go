package manifest

import (
	"errors"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestTerminalIfPinned checks that a rendering error is terminal only if the source is pinned by a digest.
func TestTerminalIfPinned(t *testing.T) {
	broken := &render.Error{}
	cases := map[string]struct {
		reason string
		err    error
		pinned bool
		want   bool
	}{
		"Pinned":  {"the content never changes", broken, true, true},
		"Tag":     {"the tag may get other content", broken, false, false},
		"Crashed": {"the same content would crash again", source.Failure{}, true, true},
		"Network": {"another try may succeed", errors.New("connection refused"), true, false},
	}
	for name, c := range cases {
		err := terminalIfPinned(fmt.Errorf("rendering a: %w", c.err), source.Artefact{Pinned: c.pinned})
		if got := errors.Is(err, reconcile.TerminalError(nil)); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %s: got %v", name, c.reason, err)
		}
	}
}
