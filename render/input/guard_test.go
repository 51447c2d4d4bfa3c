package input

import "testing"

// TestPanic: a library that panics does not take the process with it.
func TestPanic(t *testing.T) {
	_, err := Guard(t.Context(), "rendering", func() (int, error) { panic("oops") })
	if e, ok := err.(*Error); !ok || e.Reason() != RefusedFeature {
		t.Errorf("got %v", err)
	}
}
