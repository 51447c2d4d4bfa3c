package input

import (
	"errors"
	"testing"
)

// TestPanic: a library that panics does not take the process with it.
func TestPanic(t *testing.T) {
	_, err := Guard(t.Context(), "rendering", func() (int, error) { panic("oops") })
	if e, ok := errors.AsType[*Error](err); !ok || e.Reason() != RefusedFeature {
		t.Errorf("got %v", err)
	}
}
