package author

import (
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                size: {type: integer, maximum: 10}
                colour: {type: string, enum: [red, green]}
                tags: {type: array, items: {type: string, maxLength: 9}}
            status: {type: object, properties: {state: {type: string}, seen: {type: string}}}
`

const others = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: widget, namespace: kyma-system}
spec:
  selector: {matchLabels: {app: widget}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: widget}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: kyma-system}
immutable: true
data: {a: b}
`

func moduleOf(t *testing.T, version, text string) *Module {
	t.Helper()
	objects, err := render.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &Module{Name: "example.com/module/widget", Version: version, Manifest: []byte(text), Objects: objects}
}

func TestLintUpgrade(t *testing.T) {
	cases := map[string]struct {
		reason   string
		old, new string // replaced in the second version
		level    content.Level
		want     string // "" means no error and no warning
	}{
		"Same":            {"an upgrade that changes nothing", "", "", "", ""},
		"FieldGone":       {"the API server would drop it", "size: {type: integer, maximum: 10}", "", content.Error, ".spec.size: the field is removed"},
		"FieldNew":        {"nobody has it", "size: {type: integer", "more: {type: string}\n                size: {type: integer", "", ""},
		"TypeChanges":     {"stored values do not fit", "size: {type: integer, maximum: 10}", "size: {type: string}", content.Error, ".spec.size: its type changes from integer to string"},
		"EnumNarrower":    {"stored values do not fit", "enum: [red, green]", "enum: [red]", content.Error, `.spec.colour: "green" is not allowed any more`},
		"EnumWider":       {"all stored values fit", "enum: [red, green]", "enum: [red, green, blue]", "", ""},
		"MaximumLower":    {"stored values do not fit", "maximum: 10", "maximum: 9", content.Error, ".spec.size: maximum is 9 now"},
		"ItemsShorter":    {"inside of lists, too", "maxLength: 9", "maxLength: 8", content.Error, ".spec.tags[]: maxLength is 8 now"},
		"Required":        {"stored objects lack it", "              properties:\n                size", "              required: [size]\n              properties:\n                size", content.Error, ".spec.size: it is required now"},
		"RequiredDefault": {"the default is filled in", "              properties:\n                size: {type: integer,", "              required: [size]\n              properties:\n                size: {type: integer, default: 1,", "", ""},
		"StatusGone":      {"the operator writes it", ", seen: {type: string}", "", content.Warning, ".status.seen: the field is removed"},
		"Pattern":         {"perhaps", "colour: {type: string,", "colour: {type: string, pattern: '^r',", content.Warning, ".spec.colour: the pattern changes"},
		"VersionGone":     {"objects are stored in it", "name: v1\n      served", "name: v2\n      served", content.Error, "version v1 goes, and custom resources are stored in it"},
		"VersionUnserved": {"clients use it", "served: true", "served: false", content.Error, "version v1 is not served any more"},
		"Scope":           {"it cannot be changed", "scope: Namespaced", "scope: Cluster", content.Error, "its scope changes from Namespaced to Cluster"},
		"DefinitionGone":  {"all custom resources would go", definition, "", content.Error, "the upgrade deletes it, and with it every such custom resource"},
		"Selector":        {"it cannot be changed", "matchLabels: {app: widget}", "matchLabels: {app: gadget}", content.Error, "spec.selector changes, which an API server refuses"},
		"SelectorRecreated": {"the author says so", "metadata: {name: widget, namespace: kyma-system}\nspec:\n  selector: {matchLabels: {app: widget}}",
			"metadata: {name: widget, namespace: kyma-system, annotations: {operator.kyma-project.io/on-immutable: recreate}}\nspec:\n  selector: {matchLabels: {app: gadget}}", content.Warning, "deletes it and creates it again"},
		"Sealed":     {"it says that it never changes", "data: {a: b}", "data: {a: c}", content.Error, "data changes, which an API server refuses"},
		"MoreRights": {"who installs it should know", "verbs: [get]", "verbs: [get, delete]", content.Warning, "the new version requests more permissions: delete configmaps"},
		"AllRights":  {"close to everything", "resources: [configmaps], verbs: [get]", "resources: ['*'], verbs: [get]", content.Warning, "requests wide permissions: get * (all resources)"},
		"Twice":      {"only one can be", "kind: ConfigMap\nmetadata: {name: settings, namespace: kyma-system}\nimmutable: true\ndata: {a: b}", "kind: ConfigMap\nmetadata: {name: settings, namespace: kyma-system}\nimmutable: true\ndata: {a: b}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: kyma-system}", content.Error, "it is in the manifest twice"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := definition + others
			changed := strings.Replace(text, c.old, c.new, 1)
			if c.old != "" && changed == text {
				t.Fatal("the case changes nothing")
			}
			found := moduleOf(t, "1.1.0", changed).Lint(moduleOf(t, "1.0.0", text))
			var grave []content.Finding
			for _, f := range found {
				if f.Level == content.Error || f.Level == content.Warning {
					grave = append(grave, f)
				}
			}
			if c.want == "" {
				if len(grave) > 0 {
					t.Errorf("%s: got %v, want nothing grave", c.reason, grave)
				}
				return
			}
			if len(grave) == 0 || grave[0].Level != c.level || !strings.Contains(grave[0].String(), c.want) {
				t.Errorf("%s: got %v, want %s %q first", c.reason, grave, c.level, c.want)
			}
		})
	}
}

// TestLintPrune lists what goes.
func TestLintPrune(t *testing.T) {
	found := moduleOf(t, "1.1.0", definition).Lint(moduleOf(t, "1.0.0", definition+others))
	gone := 0
	for _, f := range found {
		if f.What == "the upgrade deletes it" {
			gone++
		}
	}
	if gone != 3 {
		t.Errorf("got %v, want three objects that go", found)
	}
	if back := moduleOf(t, "1.0.0", definition).Lint(moduleOf(t, "1.1.0", definition)); len(back) == 0 || back[0].Level != content.Error {
		t.Errorf("got %v, want an error: that is no upgrade", back)
	}
}

// TestLintDefaultCR holds the default custom resource against its definition, and the template against its own.
func TestLintDefaultCR(t *testing.T) {
	cases := map[string]struct{ reason, cr, want string }{
		"Right":   {"nothing to say", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 3}\n", ""},
		"Refused": {"the API server would reject it", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 30}\n", "spec.size"},
		"Dropped": {"it would be lost", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {siez: 3}\n", "field spec.siez is not in the schema"},
		"Version": {"it does not exist", "apiVersion: example.com/v2\nkind: Widget\nmetadata: {name: a}\n", `no version "v2"`},
		"Foreign": {"somebody else has to define it", "apiVersion: other.com/v1\nkind: Gadget\nmetadata: {name: a}\n", "the manifest does not define its kind"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := moduleOf(t, "1.0.0", definition)
			m.DefaultCR = moduleOf(t, "1.0.0", c.cr).Objects[0]
			found := m.Lint(nil)
			if c.want == "" && len(found) > 0 || c.want != "" && (len(found) == 0 || !strings.Contains(found[0].String(), c.want)) {
				t.Errorf("%s: got %v, want %q", c.reason, found, c.want)
			}
		})
	}
}
