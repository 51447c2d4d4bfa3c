package purge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

var (
	thing     = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	thingsCRD = apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Name: "things.example.com"}
	someThing = apply.Ref{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "a", Name: "some"}
	ownThing  = apply.Ref{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "a", Name: "own"}
)

func TestKindsOf(t *testing.T) {
	defined := func(owner string, gvk schema.GroupVersionKind) []definition {
		return []definition{{ref: thingsCRD, gvk: gvk, plural: "things", owner: owner}}
	}
	kept := func(r apply.Ref) apply.Ref { r.Keep = true; return r }
	cases := map[string]struct {
		reason  string
		targets []*target
		skip    []string
		some    bool   // the custom resource of a user may be purged
		own     bool   // that of the module may
		left    string // part of why nothing may
	}{
		"Defined":      {"what a module defines goes with it", []*target{{owner: "a/b", definitions: defined("a/b", thing)}}, nil, true, true, ""},
		"NoOwner":      {"a definition that does not say whose it is, is that of the inventory", []*target{{owner: "a/b", definitions: defined("", thing)}}, nil, true, true, ""},
		"Taken":        {"a definition that somebody else has taken over is his", []*target{{owner: "a/b", definitions: defined("a/c", thing)}}, nil, false, false, "belongs to a/c"},
		"SkipPlural":   {"the skip list knows plurals", []*target{{definitions: defined("", thing)}}, []string{"things.example.com"}, false, false, "skip list"},
		"SkipKind":     {"and kinds, in any case", []*target{{definitions: defined("", thing)}}, []string{"tHing.example.com"}, false, false, "skip list"},
		"SkipGroup":    {"and whole groups", []*target{{definitions: defined("", thing)}}, []string{"*.example.com"}, false, false, "skip list"},
		"SkipOther":    {"and nothing else", []*target{{definitions: defined("", thing)}}, []string{"*.example.org", "thing", "example.com"}, true, true, ""},
		"KeptKind":     {"a definition that is kept keeps its custom resources", []*target{{definitions: defined("", thing), inventory: []apply.Ref{kept(thingsCRD)}}}, nil, false, false, "kept"},
		"KeptResource": {"a custom resource that is kept needs its definition", []*target{{definitions: defined("", thing)}, {inventory: []apply.Ref{kept(someThing)}}}, nil, false, false, "kept"},
		"Own":          {"our own kinds are no module's", []*target{{definitions: defined("", v1beta2.GroupVersion.WithKind("Kyma"))}}, nil, false, false, "own"},
		"NotOwn":       {"modules may share our group", []*target{{definitions: defined("", v1beta2.GroupVersion.WithKind("Thing"))}}, nil, true, true, ""},
		"Undefined":    {"of a kind that no module defines, only the module's own is ours", []*target{{resources: thing, resource: ownThing}}, nil, false, true, ""},
		"Ignored":      {"with policy Ignore not even that", []*target{{resources: thing}}, nil, false, false, ""},
		"SkipOwn":      {"the skip list counts there too", []*target{{resources: thing, resource: ownThing}}, []string{"thing.*"}, false, false, "skip list"},
		"DefinedByOne": {"what one module defines, another may use", []*target{{definitions: defined("", thing)}, {resources: thing, resource: ownThing}}, nil, true, true, ""},
		"UsedByTwo":    {"each module's own is ours", []*target{{resources: thing, resource: someThing}, {resources: thing, resource: ownThing}}, nil, true, true, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			kinds := kindsOf(c.targets, c.skip)
			if len(kinds) != 1 {
				t.Fatalf("%s: got %d kinds, want one", c.reason, len(kinds))
			}
			k := kinds[0]
			if got := [2]bool{k.ours(someThing), k.ours(ownThing)}; got != [2]bool{c.some, c.own} {
				t.Errorf("%s: got %v for a user's and the module's, want %t and %t", c.reason, got, c.some, c.own)
			}
			if c.left == "" != (k.left == "") || !strings.Contains(k.left, c.left) {
				t.Errorf("%s: %q, want %q", c.reason, k.left, c.left)
			}
			k.hold()
			for _, target := range c.targets {
				waits := len(target.definitions) > 0 || target.resources.Kind != ""
				if target.held != waits {
					t.Errorf("%s: a module that waits for it: %t is held: %t", c.reason, waits, target.held)
				}
			}
		})
	}
}

func TestMoveFor(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	mine := []string{"example.com/mine"}
	cases := map[string]struct {
		reason     string
		kind       kind
		grace      time.Duration
		deleted    time.Time
		finalizers []string
		want       move
		until      time.Time
	}{
		"NotOurs":      {"what is not ours stays", kind{left: "because"}, time.Hour, ago(time.Hour), mine, leave, time.Time{}},
		"NotOnlyOurs":  {"of a foreign kind, too", kind{only: []apply.Ref{ownThing}}, time.Hour, ago(time.Hour), mine, leave, time.Time{}},
		"Fresh":        {"first it is asked to go", kind{}, time.Hour, time.Time{}, mine, remove, now.Add(farewell)},
		"ShortGrace":   {"for no longer than the grace period", kind{}, time.Second, time.Time{}, mine, remove, now.Add(time.Second)},
		"Going":        {"it has some time", kind{}, time.Hour, ago(20 * time.Second), mine, wait, now.Add(40 * time.Second)},
		"Held":         {"but not for ever", kind{}, time.Hour, ago(farewell), mine, release, time.Time{}},
		"ClockAhead":   {"a runtime from the future gets no farewell", kind{}, time.Hour, now.Add(time.Hour), mine, release, time.Time{}},
		"NoFinalizers": {"without finalizers it goes by itself", kind{}, time.Hour, ago(time.Hour), nil, wait, time.Time{}},
		"Collected":    {"the garbage collector always runs", kind{}, time.Hour, ago(time.Hour), []string{"foregroundDeletion", "orphan"}, wait, time.Time{}},
		"Both":         {"and does not protect the others", kind{}, time.Hour, ago(time.Hour), append([]string{"foregroundDeletion"}, mine...), release, time.Time{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, until := c.kind.moveFor(&apply.ObjectMetadata{Ref: someThing, DeletionTime: c.deleted, Finalizers: c.finalizers}, now, c.grace)
			if got != c.want || !until.Equal(c.until) {
				t.Errorf("%s: got %d until %s, want %d until %s", c.reason, got, until, c.want, c.until)
			}
		})
	}
}

func TestDefinitionOf(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1beta2.AnnotationOwnedBy: "a/b"}},
		"spec": map[string]any{
			"group": "example.com", "names": map[string]any{"kind": "Thing", "plural": "things"},
			"versions": []any{map[string]any{"name": "v1beta1"}, map[string]any{"name": "v1", "storage": true}, map[string]any{"name": "v2"}},
		},
	}}
	got, ok := definitionOf(thingsCRD, u)
	want := definition{ref: thingsCRD, gvk: thing, plural: "things", owner: "a/b"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(definition{})); !ok || diff != "" {
		t.Errorf("usable %t (-want +got):\n%s", ok, diff)
	}
	if _, ok := definitionOf(thingsCRD, &unstructured.Unstructured{Object: map[string]any{}}); ok {
		t.Error("a definition without content is usable")
	}
}

func TestOverdue(t *testing.T) {
	now := time.Now()
	left := []apply.Remaining{
		{Ref: someThing, Since: now.Add(-time.Hour)}, {Ref: ownThing, Since: now}, {Ref: thingsCRD}, {Ref: apply.Ref{Name: "refused"}, Err: &apply.Error{}},
	}
	if got, want := refsOf(overdue(left, now, time.Hour)), []apply.Ref{someThing, {Name: "refused"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want what lingers and what is refused: %v", got, want)
	}
}

func TestTextsFitIntoEvents(t *testing.T) {
	long := strings.Repeat("ä", 2000)
	cases := map[string]struct {
		names []string
		want  string // how it ends
	}{
		"One":  {[]string{"a"}, "a"},
		"Two":  {[]string{"a", "b"}, "a, b"},
		"Long": {[]string{long, "b", "c"}, "… and 2 more"},
		"Many": {slices.Repeat([]string{"Thing.example.com namespace/name"}, 100), " and 75 more"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := listed(c.names)
			if !strings.HasSuffix(got, c.want) || len(got) > 1000 {
				t.Errorf("got %d bytes that end with %q, want at most 1000 and %q", len(got), got[max(0, len(got)-30):], c.want)
			}
		})
	}
}
