package delivery

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestInherited: of what is taken over, all becomes ours under the same name, but for webhooks, which only those have who ask for them.
func TestInherited(t *testing.T) {
	b, err := newDelivery(t).compose(request(), nil)
	if err != nil {
		t.Fatal(err)
	}
	kit := append(refsOf(b), secretRef())
	var others []string
	for _, r := range Inherited() {
		if !slices.Contains(kit, r) {
			others = append(others, r.Kind)
		}
	}
	if diff := cmp.Diff([]string{"ValidatingWebhookConfiguration"}, others); diff != "" {
		t.Errorf("what is not ours then, -want +got:\n%s", diff)
	}
	hook := Webhook{Name: "a.b.c", Manager: "m", Version: "v1", Resource: "configmaps"}
	r := request()
	r.Webhooks = []Webhook{hook}
	if b, err = newDelivery(t).compose(r, nil); err != nil {
		t.Fatal(err)
	}
	isHook := func(r v1beta2.Resource) bool { return r.Kind == "ValidatingWebhookConfiguration" }
	ours, theirs := slices.IndexFunc(refsOf(b), isHook), slices.IndexFunc(Inherited(), isHook)
	if diff := cmp.Diff(Inherited()[theirs], refsOf(b)[ours]); diff != "" {
		t.Errorf("the webhooks of who asks for them, -theirs +ours:\n%s", diff)
	}
}
