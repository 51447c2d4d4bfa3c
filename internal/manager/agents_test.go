package manager

import (
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

func TestPaceOfHeartbeats(t *testing.T) {
	cases := map[string]struct {
		reason        string
		kymas, budget int
		want          time.Duration
	}{
		"None":      {"nobody", 0, 33, 0},
		"Small":     {"33 a second are enough for 30 s", 990, 33, 0},
		"Large":     {"and not for more", 9900, 33, 300 * time.Second},
		"Unlimited": {"as often as the watch list says", 1_000_000, 0, 0},
		"Huge":      {"no agent waits for longer", 1_000_000, 33, protocol.MaxHeartbeatInterval},
	}
	for name, c := range cases {
		h := &heartbeats{interval: 30 * time.Second, budget: c.budget, kymas: c.kymas, countedAt: time.Now()}
		if got := h.nextInterval(); got != c.want {
			t.Errorf("%s: %s: %v, want %v", name, c.reason, got, c.want)
		}
	}
}
