package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

var crdRef = apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	Name: "orders.shop.example.com"}

func TestHolderOf(t *testing.T) {
	newer := orderRef
	newer.Version = "v2"
	cases := map[string]struct {
		reason string
		ref    apply.Ref
		others map[string]*inventory
		want   string
	}{
		"Nobody": {"", configRef, nil, ""},
		"Object": {"in any version", orderRef, map[string]*inventory{"n/b": {Objects: []apply.Ref{newer}}}, "n/b"},
		"First": {"the message stays the same", configRef, map[string]*inventory{
			"n/c": {Objects: []apply.Ref{configRef}},
			"n/b": {Objects: []apply.Ref{homeRef, configRef}}}, "n/b"},
		"Other": {"", configRef, map[string]*inventory{"n/b": {Objects: []apply.Ref{homeRef, crdRef}}}, ""},
		"CustomResource": {"its CRD is needed, too", crdRef,
			map[string]*inventory{"n/b": {CustomResources: []apply.Ref{orderRef}}}, "n/b"},
		"OtherGroup": {"", crdRef, map[string]*inventory{"n/b": {Objects: []apply.Ref{configRef, homeRef}}}, ""},
	}
	for name, c := range cases {
		if got := holderOf(c.others, c.ref); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", name, c.reason, got, c.want)
		}
	}
}

// TestInventoryFlags checks the flags of objects in the inventory before and after they are applied.
func TestInventoryFlags(t *testing.T) {
	flagged := func(ref apply.Ref, pending, adopted bool) apply.Ref {
		ref.Pending, ref.Adopted = pending, adopted
		return ref
	}
	recorded := []apply.Ref{homeRef, flagged(extraRef, false, true)}
	before := recordedOrPending([]apply.Ref{homeRef, extraRef, configRef, crdRef, orderRef}, recorded)
	want := []apply.Ref{homeRef, flagged(extraRef, false, true), flagged(configRef, true, false),
		flagged(crdRef, true, false), flagged(orderRef, true, false)}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Fatalf("before (-want +got):\n%s", diff)
	}
	result := apply.Result{
		Applied: []apply.Ref{homeRef, extraRef, configRef, crdRef}, // and orderRef waits
		Created: []apply.Ref{extraRef, crdRef},
		Existing: []apply.Existing{{Ref: flagged(configRef, true, true), Met: apply.MetAdopted,
			Managers: []string{"kubectl"}}},
	}
	want = []apply.Ref{homeRef, extraRef, flagged(configRef, false, true), crdRef, flagged(orderRef, true, false)}
	if diff := cmp.Diff(want, withFlagsAfter(before, &result)); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	messages := []string{"ConfigMap n/a existed before the installation (field managers kubectl): " +
		"UninstallChart will not delete it"}
	if diff := cmp.Diff(messages, takenOverMessages(&result)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// TestLeftCustomResources checks that the inventory still has a custom resource that an upgrade has left in the
// cluster, if the release also has its CRD. Otherwise UninstallChart would delete the custom resource with its CRD.
func TestLeftCustomResources(t *testing.T) {
	now := inventory{Objects: []apply.Ref{crdRef, homeRef}}
	got := now.withLeftCustomResources([]apply.Ref{configRef, orderRef})
	want := orderRef
	want.Adopted = true
	if diff := cmp.Diff([]apply.Ref{want}, got.CustomResources); diff != "" {
		t.Error(diff)
	}
	if got := (inventory{}).withLeftCustomResources([]apply.Ref{orderRef}); len(got.CustomResources) > 0 {
		t.Errorf("without a CRD: %v", got.CustomResources)
	}
}
