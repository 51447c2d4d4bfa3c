package delivery

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestKymaProjectObjects checks the names of the delivered objects: for every object that the lifecycle-manager of the
// Kyma project delivers for its agent, this package must deliver an object of the same name. No webhook configuration
// is delivered in this test, because a webhook configuration exists only for Watchers that request webhooks.
func TestKymaProjectObjects(t *testing.T) {
	b, err := newDelivery(t).build(request(), nil)
	if err != nil {
		t.Fatal(err)
	}
	delivered := append(refsOf(b), secretRef())
	var others []string
	for _, r := range KymaProjectObjects() {
		if !slices.Contains(delivered, r) {
			others = append(others, r.Kind)
		}
	}
	if diff := cmp.Diff([]string{"ValidatingWebhookConfiguration"}, others); diff != "" {
		t.Errorf("what is not ours then, -want +got:\n%s", diff)
	}
	hook := Webhook{Name: "a.b.c", Manager: "m", Version: "v1", Resource: "configmaps"}
	r := request()
	r.Webhooks = []Webhook{hook}
	if b, err = newDelivery(t).build(r, nil); err != nil {
		t.Fatal(err)
	}
	isHook := func(r v1beta2.Resource) bool { return r.Kind == "ValidatingWebhookConfiguration" }
	ours, theirs := slices.IndexFunc(refsOf(b), isHook), slices.IndexFunc(KymaProjectObjects(), isHook)
	if diff := cmp.Diff(KymaProjectObjects()[theirs], refsOf(b)[ours]); diff != "" {
		t.Errorf("the webhooks of who asks for them, -theirs +ours:\n%s", diff)
	}
}
