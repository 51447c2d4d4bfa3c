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
  template: {metadata: {labels: {app: widget, tier: a}}}
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
		old, new string // text in the first version, and its replacement in the second version
		level    content.Level
		want     string // "" means no error and no warning
	}{
		"Same": {reason: "an upgrade that changes nothing"},
		"FieldGone": {
			reason: "the API server would drop it",
			old:    "size: {type: integer, maximum: 10}",
			level:  content.Error,
			want:   ".spec.size: the field is removed",
		},
		"FieldNew": {
			reason: "nobody has it",
			old:    "size: {type: integer",
			new:    "more: {type: string}\n                size: {type: integer",
		},
		"TypeChanges": {
			reason: "stored values do not fit",
			old:    "size: {type: integer, maximum: 10}",
			new:    "size: {type: string}",
			level:  content.Error,
			want:   ".spec.size: its type changes from integer to string",
		},
		"EnumNarrower": {
			reason: "stored values do not fit",
			old:    "enum: [red, green]",
			new:    "enum: [red]",
			level:  content.Error,
			want:   `.spec.colour: "green" is not allowed any more`,
		},
		"EnumWider": {
			reason: "all stored values fit",
			old:    "enum: [red, green]",
			new:    "enum: [red, green, blue]",
		},
		"MaximumLower": {
			reason: "stored values do not fit",
			old:    "maximum: 10",
			new:    "maximum: 9",
			level:  content.Error,
			want:   ".spec.size: maximum is 9 now",
		},
		"ItemsShorter": {
			reason: "inside of lists, too",
			old:    "maxLength: 9",
			new:    "maxLength: 8",
			level:  content.Error,
			want:   ".spec.tags[]: maxLength is 8 now",
		},
		"Required": {
			reason: "stored objects lack it",
			old:    "              properties:\n                size",
			new:    "              required: [size]\n              properties:\n                size",
			level:  content.Error,
			want:   ".spec.size: it is required now",
		},
		"RequiredDefault": {
			reason: "the default is filled in",
			old:    "              properties:\n                size: {type: integer,",
			new: "              required: [size]\n              properties:\n                size: {type: " +
				"integer, default: 1,",
		},
		"StatusGone": {
			reason: "the operator writes it",
			old:    ", seen: {type: string}",
			level:  content.Warning,
			want:   ".status.seen: the field is removed",
		},
		"Pattern": {
			reason: "perhaps",
			old:    "colour: {type: string,",
			new:    "colour: {type: string, pattern: '^r',",
			level:  content.Warning,
			want:   ".spec.colour: the pattern changes",
		},
		"VersionGone": {
			reason: "objects are stored in it",
			old:    "name: v1\n      served",
			new:    "name: v2\n      served",
			level:  content.Error,
			want:   "version v1 goes, and custom resources are stored in it",
		},
		"VersionUnserved": {
			reason: "clients use it",
			old:    "served: true",
			new:    "served: false",
			level:  content.Error,
			want:   "version v1 is not served any more",
		},
		"Scope": {
			reason: "it cannot be changed",
			old:    "scope: Namespaced",
			new:    "scope: Cluster",
			level:  content.Error,
			want:   "its scope changes from Namespaced to Cluster",
		},
		"DefinitionGone": {
			reason: "all custom resources would go",
			old:    definition,
			level:  content.Error,
			want:   "the upgrade deletes it, and with it every such custom resource",
		},
		"Selector": {
			reason: "it cannot be changed",
			old:    "matchLabels: {app: widget}",
			new:    "matchLabels: {tier: a}",
			level:  content.Error,
			want:   "spec.selector changes, which an API server refuses",
		},
		"SelectorRecreated": {reason: "the author says so",
			old: "metadata: {name: widget, namespace: kyma-system}\nspec:\n  selector: {matchLabels: {app: widget}}",
			new: "metadata: {name: widget, namespace: kyma-system, annotations: " +
				"{operator.kyma-project.io/on-immutable: recreate}}\nspec:\n  selector: {matchLabels: {tier: a}}",
			level: content.Warning, want: "deletes it and creates it again"},
		"Sealed": {
			reason: "it says that it never changes",
			old:    "data: {a: b}",
			new:    "data: {a: c}",
			level:  content.Error,
			want:   "data changes, which an API server refuses",
		},
		"MoreRights": {
			reason: "who installs it should know",
			old:    "verbs: [get]",
			new:    "verbs: [get, delete]",
			level:  content.Warning,
			want:   "the new version requests more permissions: delete configmaps",
		},
		"AllRights": {
			reason: "close to everything",
			old:    "resources: [configmaps], verbs: [get]",
			new:    "resources: ['*'], verbs: [get]",
			level:  content.Warning,
			want:   "requests wide permissions: get * (all resources)",
		},
		"Twice": {
			reason: "only one can be",
			old: "kind: ConfigMap\nmetadata: {name: settings, namespace: kyma-system}\nimmutable: " +
				"true\ndata: {a: b}",
			new: "kind: ConfigMap\nmetadata: {name: settings, namespace: kyma-system}\nimmutable: true\ndata: {a: " +
				"b}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: kyma-system}",
			level: content.Error,
			want:  "it is in the manifest twice",
		},
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

// TestLintPrune checks that Lint reports the objects that an upgrade deletes.
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
	if back := moduleOf(t, "1.0.0", definition).Lint(moduleOf(t, "1.1.0", definition)); len(back) == 0 ||
		back[0].Level != content.Error {
		t.Errorf("got %v, want an error: that is no upgrade", back)
	}
}

// TestLintDefaultCR validates the default custom resource against its CRD, and the ModuleTemplate against the CRD of
// ModuleTemplate.
func TestLintDefaultCR(t *testing.T) {
	cases := map[string]struct{ reason, cr, want string }{
		"Right": {"nothing to say",
			"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 3}\n", ""},
		"Refused": {"the API server would reject it",
			"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 30}\n", "spec.size"},
		"Dropped": {"it would be lost",
			"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {siez: 3}\n",
			"field spec.siez is not in the schema"},
		"Version": {"it does not exist", "apiVersion: example.com/v2\nkind: Widget\nmetadata: {name: a}\n",
			`no version "v2"`},
		"Foreign": {"somebody else has to define it", "apiVersion: other.com/v1\nkind: Gadget\nmetadata: {name: a}\n",
			"the manifest does not define its kind"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := moduleOf(t, "1.0.0", definition)
			m.DefaultCR = moduleOf(t, "1.0.0", c.cr).Objects[0]
			found := m.Lint(nil)
			if c.want == "" && len(found) > 0 || c.want != "" &&
				(len(found) == 0 || !strings.Contains(found[0].String(), c.want)) {
				t.Errorf("%s: got %v, want %q", c.reason, found, c.want)
			}
		})
	}
}

// TestLintObjects checks objects that are in a manifest twice, and objects that stay when the module is removed.
func TestLintObjects(t *testing.T) {
	object := func(more string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: kyma-system" + more + "}\n---\n"
	}
	cases := map[string]struct{ reason, manifest, want string }{
		"Equal":     {"the manager applies it once", object("") + object(""), ""},
		"Different": {"", object("") + object(", labels: {a: b}"), "twice, with different content"},
		"Kept": {"", object(", annotations: {operator.kyma-project.io/prune: keep}"),
			"it stays in the runtime when the module is removed"},
	}
	for name, tc := range cases {
		got := ""
		for _, f := range moduleOf(t, "1.0.0", tc.manifest).lintObjects() {
			got += f.String()
		}
		if !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
}

// TestLintSizes checks that the size of an object is the size of the JSON that is sent. The YAML of the same object can
// be larger than the JSON, because YAML indents nested lists.
func TestLintSizes(t *testing.T) {
	deep := func(lines int) string {
		text, indent := "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec:\n", "  "
		for range 20 {
			text, indent = text+indent+"a:\n", indent+"  "
		}
		return text + strings.Repeat(indent+"- twenty-letters-a-line\n", lines)
	}
	for _, c := range []struct {
		reason   string
		manifest string
		want     string
	}{
		{"its YAML alone is larger", deep(30_000), ""},
		{"an API server refuses it", deep(60_000), "bytes as JSON"},
	} {
		got := ""
		for _, f := range moduleOf(t, "1.0.0", c.manifest).lintSizes() {
			if strings.Contains(f.What, "API server takes") {
				got += f.String()
			}
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%d bytes, %s: got %q, want %q", len(c.manifest), c.reason, got, c.want)
		}
	}
}
