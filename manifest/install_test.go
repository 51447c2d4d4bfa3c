package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// Objects of the inventories in the tests.
var (
	homeRef   = apply.Ref{Version: "v1", Kind: "Namespace", Name: "n"}
	extraRef  = apply.Ref{Version: "v1", Kind: "Namespace", Name: "extra"}
	configRef = apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: "a"}
	orderRef  = apply.Ref{Group: "shop.example.com", Version: "v1", Kind: "Order", Namespace: "n", Name: "first"}
)

// TestToPrune checks that an upgrade never deletes the namespace of the release.
func TestToPrune(t *testing.T) {
	r := &release{namespace: "n", refs: []apply.Ref{configRef}}
	got := r.toPrune([]apply.Ref{homeRef, extraRef, configRef, orderRef})
	if diff := cmp.Diff([]apply.Ref{extraRef, orderRef}, got); diff != "" {
		t.Error(diff)
	}
}
