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
	thingsCRD = apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		Name: "things.example.com"}
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
		"Defined": {
			reason:  "custom resources of a CRD of the module are purged",
			targets: []*target{{owner: "a/b", crds: defined("a/b", thing)}},
			some:    true,
			own:     true,
		},
		"NoOwner": {
			reason:  "a CRD without owner annotation belongs to the inventory",
			targets: []*target{{owner: "a/b", crds: defined("", thing)}},
			some:    true,
			own:     true,
		},
		"Taken": {
			reason:    "a CRD that another owner has taken over",
			targets:   []*target{{owner: "a/b", crds: defined("a/c", thing)}},
			protected: "belongs to a/c",
		},
		"SkipPlural": {
			reason:    "the skip list may have plurals",
			targets:   []*target{{crds: defined("", thing)}},
			skip:      []string{"things.example.com"},
			protected: "skip list",
		},
		"SkipKind": {
			reason:    "and kinds in upper or lower case",
			targets:   []*target{{crds: defined("", thing)}},
			skip:      []string{"tHing.example.com"},
			protected: "skip list",
		},
		"SkipGroup": {
			reason:    "and whole groups",
			targets:   []*target{{crds: defined("", thing)}},
			skip:      []string{"*.example.com"},
			protected: "skip list",
		},
		"SkipOther": {
			reason:  "patterns that do not match",
			targets: []*target{{crds: defined("", thing)}},
			skip:    []string{"*.example.org", "thing", "example.com"},
			some:    true,
			own:     true,
		},
		"KeptKind": {
			reason:    "a kept CRD keeps its custom resources",
			targets:   []*target{{crds: defined("", thing), inventory: []apply.Ref{kept(thingsCRD)}}},
			protected: "kept",
		},
		"KeptResource": {
			reason:    "a kept custom resource needs its CRD",
			targets:   []*target{{crds: defined("", thing)}, {inventory: []apply.Ref{kept(someThing)}}},
			protected: "kept",
		},
		"Own": {
			reason:    "kinds of Lifecycle Manager",
			targets:   []*target{{crds: defined("", v1beta2.GroupVersion.WithKind("RolloutPolicy"))}},
			protected: "kind of Lifecycle Manager",
		},
		"NotOwn": {
			reason:  "a module may use our group",
			targets: []*target{{crds: defined("", v1beta2.GroupVersion.WithKind("Thing"))}},
			some:    true,
			own:     true,
		},
		"Undefined": {
			reason:  "without a CRD only the module's own custom resource may be purged",
			targets: []*target{{resourceKind: thing, resource: ownThing}},
			own:     true,
		},
		"Ignored": {reason: "with policy Ignore not even that one", targets: []*target{{resourceKind: thing}}},
		"SkipOwn": {
			reason:    "the skip list applies there too",
			targets:   []*target{{resourceKind: thing, resource: ownThing}},
			skip:      []string{"thing.*"},
			protected: "skip list",
		},
		"DefinedByOne": {
			reason:  "one module has the CRD, another one a custom resource",
			targets: []*target{{crds: defined("", thing)}, {resourceKind: thing, resource: ownThing}},
			some:    true,
			own:     true,
		},
		"UsedByTwo": {
			reason:  "each module's own custom resource may be purged",
			targets: []*target{{resourceKind: thing, resource: someThing}, {resourceKind: thing, resource: ownThing}},
			some:    true,
			own:     true,
		},
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
			k.blockInventoryDeletion()
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
		"NotOurs": {
			reason:     "it must not be purged",
			kind:       kind{protected: "because"},
			grace:      time.Hour,
			deleted:    ago(time.Hour),
			finalizers: mine,
			want:       actionNone,
			until:      time.Time{},
		},
		"NotOnlyOurs": {
			reason:     "nor one of a kind without CRD",
			kind:       kind{only: []apply.Ref{ownThing}},
			grace:      time.Hour,
			deleted:    ago(time.Hour),
			finalizers: mine,
			want:       actionNone,
			until:      time.Time{},
		},
		"Fresh": {
			reason:     "first it is deleted",
			kind:       kind{},
			grace:      time.Hour,
			deleted:    time.Time{},
			finalizers: mine,
			want:       actionDelete,
			until:      now.Add(finalizerGracePeriod),
		},
		"ShortGrace": {
			reason:     "the time is at most the grace period",
			kind:       kind{},
			grace:      time.Second,
			deleted:    time.Time{},
			finalizers: mine,
			want:       actionDelete,
			until:      now.Add(time.Second),
		},
		"Going": {
			reason:     "the time is not over",
			kind:       kind{},
			grace:      time.Hour,
			deleted:    ago(20 * time.Second),
			finalizers: mine,
			want:       actionWait,
			until:      now.Add(40 * time.Second),
		},
		"Held": {
			reason:     "the time is over",
			kind:       kind{},
			grace:      time.Hour,
			deleted:    ago(finalizerGracePeriod),
			finalizers: mine,
			want:       actionRemoveFinalizers,
			until:      time.Time{},
		},
		"ClockAhead": {
			reason:     "the clock of the runtime is ahead of ours",
			kind:       kind{},
			grace:      time.Hour,
			deleted:    now.Add(time.Hour),
			finalizers: mine,
			want:       actionRemoveFinalizers,
			until:      time.Time{},
		},
		"NoFinalizers": {
			reason:  "without finalizers it is deleted by itself",
			kind:    kind{},
			grace:   time.Hour,
			deleted: ago(time.Hour),
			want:    actionWait,
			until:   time.Time{},
		},
		"Collected": {
			reason:     "finalizers of the garbage collector stay",
			kind:       kind{},
			grace:      time.Hour,
			deleted:    ago(time.Hour),
			finalizers: []string{"foregroundDeletion", "orphan"},
			want:       actionWait,
			until:      time.Time{},
		},
		"Both": {
			reason:     "other finalizers are removed",
			kind:       kind{},
			grace:      time.Hour,
			deleted:    ago(time.Hour),
			finalizers: append([]string{"foregroundDeletion"}, mine...),
			want:       actionRemoveFinalizers,
			until:      time.Time{},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, until := c.kind.actionFor(&apply.ObjectMetadata{Ref: someThing, DeletionTime: c.deleted,
				Finalizers: c.finalizers}, now, c.grace)
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
			"versions": []any{map[string]any{"name": "v1beta1"}, map[string]any{"name": "v1", "storage": true},
				map[string]any{"name": "v2"}},
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
		{
			Ref:   someThing,
			Since: now.Add(-time.Hour)}, {Ref: ownThing,
			Since: now}, {Ref: thingsCRD}, {Ref: apply.Ref{Name: "refused"},
			Err: &apply.Error{},
		},
	}
	if got, want := refsOf(overdueOrRejected(left, now, time.Hour)),
		[]apply.Ref{someThing, {Name: "refused"}}; !slices.Equal(got, want) {
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
			got := joinNames(c.names)
			if !strings.HasSuffix(got, c.want) || len(got) > 1000 {
				t.Errorf("got %d bytes that end with %q, want at most 1000 and %q", len(got),
					got[max(0, len(got)-30):], c.want)
			}
		})
	}
}

// TestMayPurgeClusterScoped checks the default custom resource of a module whose kind is cluster-scoped. The purge must
// find this custom resource, although spec.resource of the Manifest has a namespace and the custom resource has none.
func TestMayPurgeClusterScoped(t *testing.T) {
	declared := apply.Ref{Group: "example.com", Kind: "Whole", Namespace: "kyma-system", Name: "default"}
	k := kind{only: []apply.Ref{declared}}
	live := declared
	live.Namespace = ""
	elsewhere := declared
	elsewhere.Namespace = "other"
	if !k.mayPurge(live) || !k.mayPurge(declared) || k.mayPurge(elsewhere) {
		t.Errorf("cluster-scoped %v, namespaced %v, elsewhere %v", k.mayPurge(live), k.mayPurge(declared),
			k.mayPurge(elsewhere))
	}
}
