package installer

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
)

// TestInventory checks that only objects that may be deleted are listed, even if the ConfigMap was edited.
func TestInventory(t *testing.T) {
	role := apply.Ref{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role", Namespace: "kcp-system",
		Name: "lifecycle-manager-agents"}
	cases := map[string]struct {
		reason string
		refs   []apply.Ref
		want   []apply.Ref
	}{
		"None": {"nothing is installed", nil, nil},
		"Role": {"a role is unchanged", []apply.Ref{role}, []apply.Ref{role}},
		"Namespace": {"deleting it would delete all Kymas",
			[]apply.Ref{{Version: "v1", Kind: "Namespace", Name: "kcp-system"}, role}, []apply.Ref{role}},
		"CRD": {"likewise", []apply.Ref{{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition", Name: "kymas.operator.kyma-project.io"}, role}, []apply.Ref{role}},
		"Keep": {"the object says that it is kept",
			[]apply.Ref{{Version: "v1", Kind: "ConfigMap", Name: "a", Keep: true}, role}, []apply.Ref{role}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text, err := encodeInventoryJSON(c.refs)
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
	if diff := cmp.Diff([]apply.Ref{{Version: "v1", Kind: "Secret", Namespace: "n", Name: "c"}}, got); err != nil ||
		diff != "" {
		t.Errorf("an inventory that somebody has edited: %v, -want +got\n%s", err, diff)
	}
	for _, text := range []string{"", "x", `{"kind":"Role"}`} {
		if refs, err := decodeInventory(text); err == nil {
			t.Errorf("%q is read as %v", text, refs)
		}
	}
}

// TestServeLiveVersions checks that CRD versions that the manager has enabled are still served after an upgrade of the
// CRDs.
func TestServeLiveVersions(t *testing.T) {
	crd := func(early, current any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{
			map[string]any{"name": "v1alpha1", "served": early}, map[string]any{"name": "v1beta2", "served": current},
		}}}}
	}
	cases := map[string]struct {
		reason           string
		new, live, wants *unstructured.Unstructured
	}{
		"On":      {"the manager can convert", crd(false, true), crd(true, true), crd(true, true)},
		"Off":     {"it cannot, or not yet", crd(false, true), crd(false, true), crd(false, true)},
		"Current": {"what the new CRD serves is served", crd(false, true), crd(false, false), crd(false, true)},
		"Unknown": {"a CRD with other versions", crd(false, true), &unstructured.Unstructured{Object: map[string]any{}},
			crd(false, true)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			keepVersionsServed(c.new, c.live)
			if diff := cmp.Diff(c.wants, c.new); diff != "" {
				t.Errorf("%s: -want +got\n%s", c.reason, diff)
			}
		})
	}
}

// templateObject matches the kind and the name of an object in a template of the chart, up to the first variable.
var templateObject = regexp.MustCompile(`(?m)^kind: (\w+)\nmetadata:\n  name: ([a-z0-9-]+)`)

// TestAllParts checks that klm uninstall knows every object of the chart, and may delete all of them except CRDs and
// the namespace.
func TestAllParts(t *testing.T) {
	var rendered []string
	for _, flavour := range []string{deploy.ControlPlaneFlavour, deploy.InClusterFlavour} {
		objects, err := renderChart(t.Context(), "", values{flavourKey: flavour}, allParts...)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			rendered = append(rendered, o.GetKind()+" "+o.GetName())
			isKept := o.GetKind() == "Namespace" || o.GetKind() == kindCRD
			if isInstalledByKlm(o) == isKept {
				t.Errorf("%s %s: klm deletes it: %v", o.GetKind(), o.GetName(), !isKept)
			}
		}
	}
	err := fs.WalkDir(deploy.Chart(), "templates", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		data, err := fs.ReadFile(deploy.Chart(), path)
		for _, found := range templateObject.FindAllSubmatch(data, -1) {
			want := string(found[1]) + " " + string(found[2])
			if !slices.ContainsFunc(rendered, func(r string) bool { return strings.HasPrefix(r, want) }) {
				t.Errorf("%s: no value in allParts renders %s", path, want)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
