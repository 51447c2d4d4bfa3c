package memory

import (
	"runtime/debug"
	"testing"
)

func TestPercentFor(t *testing.T) {
	const mib, target = 1 << 20, 1400 << 20
	cases := map[string]struct {
		reason string
		use    memoryUse
		want   int
	}{
		"Begin": {"nothing was collected yet", memoryUse{all: 20 * mib}, maxPercent},
		"Small": {"there is room for all", memoryUse{live: 50 * mib, heap: 100 * mib, all: 120 * mib}, maxPercent},
		"Half":  {"what lives may double", memoryUse{live: 700 * mib, heap: 900 * mib, all: 900 * mib}, 100},
		"Stacks": {"they count for growth, and take room", memoryUse{live: 600 * mib, stacks: 100 * mib,
			heap: 900 * mib, all: 1000 * mib}, 100},
		"Others": {"what is no heap takes room", memoryUse{live: 600 * mib, heap: 900 * mib, all: 1100 * mib}, 100},
		"TooLarge": {"it does not fit: the processor is not to pay for that",
			memoryUse{live: 1300 * mib, heap: 1350 * mib, all: 1400 * mib}, minPercent},
		"Beyond": {"nor here", memoryUse{live: 3000 * mib, heap: 3000 * mib, all: 3100 * mib}, minPercent},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := gcPercent(target, c.use); got != c.want {
				t.Errorf("%s: %d %%, want %d", c.reason, got, c.want)
			}
		})
	}
}

// TestMemoryLimit checks that the memory limit is the target as long as the live objects may still grow.
func TestMemoryLimit(t *testing.T) {
	const mib, target = 1 << 20, 1400 << 20
	cases := map[string]struct {
		reason string
		use    memoryUse
		want   int64
	}{
		"Begin": {"nothing was collected yet", memoryUse{all: 20 * mib}, target},
		"Fits":  {"700 × 1.8 + 100", memoryUse{live: 700 * mib, heap: 1000 * mib, all: 1100 * mib}, target},
		"Grows": {"800 × 1.8 + 100", memoryUse{live: 800 * mib, heap: 1000 * mib, all: 1100 * mib}, 1540 * mib},
		"Stacks": {"they grow, too", memoryUse{live: 800 * mib, stacks: 100 * mib, heap: 1000 * mib, all: 1100 * mib},
			1590 * mib},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := memoryLimit(target, c.use); got != c.want {
				t.Errorf("%s: %d MiB, want %d", c.reason, got/mib, c.want/mib)
			}
		})
	}
}

// TestMemoryNow checks that all values are measured and plausible.
func TestMemoryNow(t *testing.T) {
	debug.FreeOSMemory() // collects
	m := measureMemory()
	if m.live <= 0 || m.stacks <= 0 || m.heap < m.live/2 || m.all < m.heap {
		t.Errorf("%+v", m)
	}
}
