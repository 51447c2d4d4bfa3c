package installer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestInventory: what is written down is what may be removed later, however the ConfigMap was edited.
func TestInventory(t *testing.T) {
	role := apply.Ref{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role", Namespace: "kcp-system", Name: "lifecycle-manager-agents"}
	cases := map[string]struct {
		reason string
		refs   []apply.Ref
		want   []apply.Ref
	}{
		"None":       {"nothing is installed", nil, nil},
		"Role":       {"a role comes back as it was", []apply.Ref{role}, []apply.Ref{role}},
		"Namespace":  {"all Kymas would go with it", []apply.Ref{{Version: "v1", Kind: "Namespace", Name: "kcp-system"}, role}, []apply.Ref{role}},
		"Definition": {"likewise", []apply.Ref{{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Name: "kymas.operator.kyma-project.io"}, role}, []apply.Ref{role}},
		"Keep":       {"whoever made it wants it to stay", []apply.Ref{{Version: "v1", Kind: "ConfigMap", Name: "a", Keep: true}, role}, []apply.Ref{role}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text, err := encodeInventory(c.refs)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeInventory(text)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%s: %v, -want +got\n%s", c.reason, err, diff)
			}
		})
	}
	edited := `[{"group":"apiextensions.k8s.io","version":"v1","kind":"CustomResourceDefinition","name":"a"},{"version":"v1","kind":"Namespace","name":"b"},{"version":"v1","kind":"Secret","namespace":"n","name":"c"}]`
	got, err := decodeInventory(edited)
	if diff := cmp.Diff([]apply.Ref{{Version: "v1", Kind: "Secret", Namespace: "n", Name: "c"}}, got); err != nil || diff != "" {
		t.Errorf("an inventory that somebody has edited: %v, -want +got\n%s", err, diff)
	}
	for _, text := range []string{"", "x", `{"kind":"Role"}`} {
		if refs, err := decodeInventory(text); err == nil {
			t.Errorf("%q is read as %v", text, refs)
		}
	}
}

// TestServeAs: an upgrade does not switch off what the manager has switched on.
func TestServeAs(t *testing.T) {
	definition := func(early, current any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{
			map[string]any{"name": "v1alpha1", "served": early}, map[string]any{"name": "v1beta2", "served": current},
		}}}}
	}
	cases := map[string]struct {
		reason           string
		new, live, wants *unstructured.Unstructured
	}{
		"On":      {"the manager can convert", definition(false, true), definition(true, true), definition(true, true)},
		"Off":     {"it cannot, or not yet", definition(false, true), definition(false, true), definition(false, true)},
		"Current": {"what is served by the new definition is served", definition(false, true), definition(false, false), definition(false, true)},
		"Unknown": {"a definition that has other versions", definition(false, true), &unstructured.Unstructured{Object: map[string]any{}}, definition(false, true)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			serveAs(c.new, c.live)
			if diff := cmp.Diff(c.wants, c.new); diff != "" {
				t.Errorf("%s: -want +got\n%s", c.reason, diff)
			}
		})
	}
}
