package runtimeadmin

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestEditKeepsUnknownFields(t *testing.T) {
	w := &edit{kyma: &v1beta2.Kyma{}, modules: []any{map[string]any{"name": "keda", "future": "x"}}}
	w.ensureEntry("sample")["channel"] = "fast"
	w.ensureEntry("keda")["managed"] = false
	patch, same, err := w.newPatch([]byte(`{"modules":[{"name":"keda","future":"x"}]}`), "7")
	want := `{"metadata":{"resourceVersion":"7"},"spec":{"modules":[{"future":"x","managed":false,"name":"keda"},{"channel":"fast","name":"sample"}]}}`
	if err != nil || same || string(patch) != want {
		t.Errorf("got %s, %t, %v", patch, same, err)
	}
	w.remove("sample")
	delete(w.entryOf("keda"), "managed")
	if _, same, err := w.newPatch([]byte(`{"modules":[{"name":"keda","future":"x"}]}`), "7"); !same ||
		err != nil {
		t.Errorf("nothing to change, but %t, %v", same, err)
	}
}
