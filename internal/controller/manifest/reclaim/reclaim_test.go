package reclaim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestMerge checks that objects in the inventory that are found in the runtime keep their flags, such as adopted. An
// object that is in the inventory but not in the runtime gets the flag pending: if the object appears later, it is not
// known whether the Manifest or another client has created it.
func TestMerge(t *testing.T) {
	object := func(name string) apply.Ref { return apply.Ref{Version: "v1", Kind: "ConfigMap", Name: name} }
	adopted, gone := object("adopted"), object("gone")
	adopted.Adopted = true
	got := appendNotFoundAsPending([]apply.Ref{object("new"), adopted}, []apply.Ref{object("adopted"), gone})
	gone.Pending = true
	if diff := cmp.Diff([]apply.Ref{object("new"), adopted, gone}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
