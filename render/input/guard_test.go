package input

import (
	"errors"
	"testing"
)

// TestPanic checks that a panic of a library does not end the process.
func TestPanic(t *testing.T) {
	_, err := RunRecoveringPanic(t.Context(), "rendering", func() (int, error) { panic("oops") })
	if e, ok := errors.AsType[*Error](err); !ok || e.Reason() != RefusedFeature {
		t.Errorf("got %v", err)
	}
}
