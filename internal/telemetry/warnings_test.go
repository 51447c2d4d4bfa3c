package telemetry

import (
	"context"
	"slices"
	"testing"
)

type warningRecorder struct{ texts []string }

func (r *warningRecorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	r.texts = append(r.texts, text)
}

// TestAPIWarnings checks that the only warning that is not logged is the one about the name of our finalizer.
func TestAPIWarnings(t *testing.T) {
	r := &warningRecorder{}
	w := apiWarnings{next: r}
	const hint = ": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
	theirs := []string{`metadata.finalizers: "somebody"` + hint, "kind v1 is deprecated: label-removal-finalizer"}
	for _, text := range append([]string{`metadata.finalizers: "label-removal-finalizer"` + hint}, theirs...) {
		w.HandleWarningHeaderWithContext(t.Context(), 299, "-", text)
	}
	if !slices.Equal(r.texts, theirs) {
		t.Errorf("logged %q, want %q", r.texts, theirs)
	}
}
