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
	defined := func(owner string, gvk schema.GroupVersionKind) []crd {
		return []crd{{ref: thingsCRD, gvk: gvk, plural: "things", owner: owner}}
	}
	kept := func(r apply.Ref) apply.Ref { r.Keep = true; return r }
	cases := map[string]struct {
		reason    string
		targets   []*target
		skip      []string
		some      bool   // the custom resource of a user may be purged
		own       bool   // that of the module may
		protected string // part of the reason why nothing may be purged
	}{
		"Defined":      {"custom resources of a CRD of the module are purged", []*target{{owner: "a/b", crds: defined("a/b", thing)}}, nil, true, true, ""},
		"NoOwner":      {"a CRD without owner annotation belongs to the inventory", []*target{{owner: "a/b", crds: defined("", thing)}}, nil, true, true, ""},
		"Taken":        {"a CRD that another owner has taken over", []*target{{owner: "a/b", crds: defined("a/c", thing)}}, nil, false, false, "belongs to a/c"},
		"SkipPlural":   {"the skip list may have plurals", []*target{{crds: defined("", thing)}}, []string{"things.example.com"}, false, false, "skip list"},
		"SkipKind":     {"and kinds in upper or lower case", []*target{{crds: defined("", thing)}}, []string{"tHing.example.com"}, false, false, "skip list"},
		"SkipGroup":    {"and whole groups", []*target{{crds: defined("", thing)}}, []string{"*.example.com"}, false, false, "skip list"},
		"SkipOther":    {"patterns that do not match", []*target{{crds: defined("", thing)}}, []string{"*.example.org", "thing", "example.com"}, true, true, ""},
		"KeptKind":     {"a kept CRD keeps its custom resources", []*target{{crds: defined("", thing), inventory: []apply.Ref{kept(thingsCRD)}}}, nil, false, false, "kept"},
		"KeptResource": {"a kept custom resource needs its CRD", []*target{{crds: defined("", thing)}, {inventory: []apply.Ref{kept(someThing)}}}, nil, false, false, "kept"},
		"Own":          {"kinds of Lifecycle Manager", []*target{{crds: defined("", v1beta2.GroupVersion.WithKind("Kyma"))}}, nil, false, false, "kind of Lifecycle Manager"},
		"NotOwn":       {"a module may use our group", []*target{{crds: defined("", v1beta2.GroupVersion.WithKind("Thing"))}}, nil, true, true, ""},
		"Undefined":    {"without a CRD only the module's own custom resource may be purged", []*target{{resourceKind: thing, resource: ownThing}}, nil, false, true, ""},
		"Ignored":      {"with policy Ignore not even that one", []*target{{resourceKind: thing}}, nil, false, false, ""},
		"SkipOwn":      {"the skip list applies there too", []*target{{resourceKind: thing, resource: ownThing}}, []string{"thing.*"}, false, false, "skip list"},
		"DefinedByOne": {"one module has the CRD, another one a custom resource", []*target{{crds: defined("", thing)}, {resourceKind: thing, resource: ownThing}}, nil, true, true, ""},
		"UsedByTwo":    {"each module's own custom resource may be purged", []*target{{resourceKind: thing, resource: someThing}, {resourceKind: thing, resource: ownThing}}, nil, true, true, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			kinds := kindsOf(c.targets, c.skip)
			if len(kinds) != 1 {
				t.Fatalf("%s: got %d kinds, want one", c.reason, len(kinds))
			}
			k := kinds[0]
			if got := [2]bool{k.mayPurge(someThing), k.mayPurge(ownThing)}; got != [2]bool{c.some, c.own} {
				t.Errorf("%s: got %v for a user's and the module's, want %t and %t", c.reason, got, c.some, c.own)
			}
			if c.protected == "" != (k.protected == "") || !strings.Contains(k.protected, c.protected) {
				t.Errorf("%s: %q, want %q", c.reason, k.protected, c.protected)
			}
			k.blockTargets()
			for _, target := range c.targets {
				waits := len(target.crds) > 0 || target.resourceKind.Kind != ""
				if target.blocked != waits {
					t.Errorf("%s: a module that waits for it: %t is held: %t", c.reason, waits, target.blocked)
				}
			}
		})
	}
}

func TestActionFor(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	mine := []string{"example.com/mine"}
	cases := map[string]struct {
		reason     string
		kind       kind
		grace      time.Duration
		deleted    time.Time
		finalizers []string
		want       action
		until      time.Time
	}{
		"NotOurs":      {"it must not be purged", kind{protected: "because"}, time.Hour, ago(time.Hour), mine, actionNone, time.Time{}},
		"NotOnlyOurs":  {"nor one of a kind without CRD", kind{only: []apply.Ref{ownThing}}, time.Hour, ago(time.Hour), mine, actionNone, time.Time{}},
		"Fresh":        {"first it is deleted", kind{}, time.Hour, time.Time{}, mine, actionDelete, now.Add(finalizerGracePeriod)},
		"ShortGrace":   {"the time is at most the grace period", kind{}, time.Second, time.Time{}, mine, actionDelete, now.Add(time.Second)},
		"Going":        {"the time is not over", kind{}, time.Hour, ago(20 * time.Second), mine, actionWait, now.Add(40 * time.Second)},
		"Held":         {"the time is over", kind{}, time.Hour, ago(finalizerGracePeriod), mine, actionRemoveFinalizers, time.Time{}},
		"ClockAhead":   {"the clock of the runtime is ahead of ours", kind{}, time.Hour, now.Add(time.Hour), mine, actionRemoveFinalizers, time.Time{}},
		"NoFinalizers": {"without finalizers it is deleted by itself", kind{}, time.Hour, ago(time.Hour), nil, actionWait, time.Time{}},
		"Collected":    {"finalizers of the garbage collector stay", kind{}, time.Hour, ago(time.Hour), []string{"foregroundDeletion", "orphan"}, actionWait, time.Time{}},
		"Both":         {"other finalizers are removed", kind{}, time.Hour, ago(time.Hour), append([]string{"foregroundDeletion"}, mine...), actionRemoveFinalizers, time.Time{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, until := c.kind.actionFor(&apply.ObjectMetadata{Ref: someThing, DeletionTime: c.deleted, Finalizers: c.finalizers}, now, c.grace)
			if got != c.want || !until.Equal(c.until) {
				t.Errorf("%s: got %d until %s, want %d until %s", c.reason, got, until, c.want, c.until)
			}
		})
	}
}

func TestNewCRD(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1beta2.AnnotationOwnedBy: "a/b"}},
		"spec": map[string]any{
			"group": "example.com", "names": map[string]any{"kind": "Thing", "plural": "things"},
			"versions": []any{map[string]any{"name": "v1beta1"}, map[string]any{"name": "v1", "storage": true}, map[string]any{"name": "v2"}},
		},
	}}
	got, ok := newCRD(thingsCRD, u)
	want := crd{ref: thingsCRD, gvk: thing, plural: "things", owner: "a/b"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(crd{})); !ok || diff != "" {
		t.Errorf("usable %t (-want +got):\n%s", ok, diff)
	}
	if _, ok := newCRD(thingsCRD, &unstructured.Unstructured{Object: map[string]any{}}); ok {
		t.Error("an empty CRD is usable")
	}
}

func TestOverdue(t *testing.T) {
	now := time.Now()
	left := []apply.Remaining{
		{Ref: someThing, Since: now.Add(-time.Hour)}, {Ref: ownThing, Since: now}, {Ref: thingsCRD}, {Ref: apply.Ref{Name: "refused"}, Err: &apply.Error{}},
	}
	if got, want := refsOf(overdue(left, now, time.Hour)), []apply.Ref{someThing, {Name: "refused"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want overdue and refused objects: %v", got, want)
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
			got := join(c.names)
			if !strings.HasSuffix(got, c.want) || len(got) > 1000 {
				t.Errorf("got %d bytes that end with %q, want at most 1000 and %q", len(got), got[max(0, len(got)-30):], c.want)
			}
		})
	}
}
