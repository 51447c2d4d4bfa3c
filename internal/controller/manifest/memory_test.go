package manifest

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func TestChangedByOthers(t *testing.T) {
	at := func(manager, sub string, seconds int64) metav1.ManagedFieldsEntry {
		when := metav1.NewTime(time.Unix(seconds, 0))
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: sub, Time: &when}
	}
	ours := v1beta2.FieldOwnerApplier
	cases := map[string]struct {
		reason string
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"OnlyOurs": {"no other manager wrote", []metav1.ManagedFieldsEntry{at(ours, "", 1)}, false},
		"StatusLater": {"changes of status do not count",
			[]metav1.ManagedFieldsEntry{at(ours, "", 1), at("kcm", "status", 2)}, false},
		"EditLater": {"another manager wrote after us",
			[]metav1.ManagedFieldsEntry{at(ours, "", 1), at("kubectl", "", 2)}, true},
		"EditBefore": {"our write was later", []metav1.ManagedFieldsEntry{at(ours, "", 2), at("kubectl", "", 1)},
			false},
	}
	for name, c := range cases {
		if got := contentChangedByOthers(
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.fields}}); got != c.want {
			t.Errorf("%s: %s: got %v", name, c.reason, got)
		}
	}
}

func TestAddEvent(t *testing.T) {
	cr := apply.Ref{Group: "x.io", Version: "v1", Kind: "Keda", Namespace: "n", Name: "default"}
	object := func(name, owner string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name,
			Annotations: map[string]string{v1beta2.AnnotationOwnedBy: owner}}}
	}
	at := func(o *metav1.PartialObjectMetadata, version string) *metav1.PartialObjectMetadata {
		o.UID, o.ResourceVersion = "u", version
		return o
	}
	cases := map[string]struct {
		reason string
		seen   runtimes.Event
		want   bool
	}{
		"Connection": {"a change of the connection concerns every Manifest",
			runtimes.Event{ConnectionChanged: true}, true},
		"AllAsItShould": {"a list of another kind",
			runtimes.Event{Listed: true, Interest: runtimes.Interest{Kind: "Other"}}, false},
		"OneIsMissing": {"a list without an expected object",
			runtimes.Event{Listed: true, Interest: runtimes.Interest{Kind: "ConfigMap"}}, true},
		"Ours": {"an object of this Manifest", runtimes.Event{Interest: runtimes.Interest{Kind: "ConfigMap"},
			Object: object("a", "kcp-system/m")}, true},
		"Theirs": {"an object of another Manifest",
			runtimes.Event{Interest: runtimes.Interest{Kind: "ConfigMap"}, Object: object("b", "kcp-system/other")},
			false},
		"Shared": {"an object of another Manifest that this one contains too",
			runtimes.Event{Interest: runtimes.Interest{Kind: "ConfigMap"}, Object: object("a", "kcp-system/other"),
				Deleted: true}, true},
		"CustomResource": {"the custom resource has no owner annotation",
			runtimes.Event{Interest: interestOf(cr), Object: object("default", "")}, true},
		"AsItWasRead": {"the version that was read",
			runtimes.Event{Interest: interestOf(cr), Object: at(object("default", ""), "7")}, false},
		"SinceItWasRead": {"a later version", runtimes.Event{Interest: interestOf(cr),
			Object: at(object("default", ""), "8")}, true},
		"ReadAndGone": {"the custom resource was deleted",
			runtimes.Event{Interest: interestOf(cr), Object: at(object("default", ""), "7"), Deleted: true}, true},
		"UsersOwn": {"another custom resource of its kind",
			runtimes.Event{Interest: interestOf(cr), Object: object("mine", "")}, false},
	}
	for name, c := range cases {
		m := &memory{expected: []apply.Ref{{Kind: "ConfigMap", Namespace: "n", Name: "a"}}}
		m.progress.RecordReadUnlessChanged(cr, "u", 1, "7")
		if got := m.addEvent(c.seen, "kcp-system/m", cr); got != c.want {
			t.Errorf("%s: %s: got %v", name, c.reason, got)
		}
	}
}

// TestListAndEventsInAnyOrder checks that no change is lost if a list and later events are received in any order.
func TestListAndEventsInAnyOrder(t *testing.T) {
	ref := apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: "a"}
	in := runtimes.Interest{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Kind: "ConfigMap"}
	at := func(version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "a", ResourceVersion: version,
			Annotations: map[string]string{v1beta2.AnnotationOwnedBy: "kcp-system/m"},
		}}
	}
	listed := runtimes.Event{Listed: true, Interest: in, Objects: []metav1.PartialObjectMetadata{*at("10")}}
	cases := map[string]struct {
		reason string
		events []runtimes.Event
		want   objectEvent
	}{
		"Listed": {"as it was listed", []runtimes.Event{listed}, objectEvent{resourceVersion: "10"}},
		"Changed": {"it changed after the list", []runtimes.Event{{Interest: in, Object: at("11")}, listed},
			objectEvent{resourceVersion: "11"}},
		"Before": {"it changed before the list", []runtimes.Event{{Interest: in, Object: at("9")}, listed},
			objectEvent{resourceVersion: "10"}},
		"Deleted": {"it was deleted after the list", []runtimes.Event{{Interest: in, Object: at("11"), Deleted: true},
			listed}, objectEvent{resourceVersion: "11", deleted: true}},
		"Gone": {"it is not in the list", []runtimes.Event{{Listed: true, Interest: in}}, objectEvent{deleted: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := &memory{expected: []apply.Ref{ref}}
			for _, s := range c.events {
				m.addEvent(s, "kcp-system/m", apply.Ref{})
			}
			if got := m.changes.objects[ref]; got != c.want {
				t.Errorf("%s: got %+v, want %+v", c.reason, got, c.want)
			}
		})
	}
}

func interestOf(ref apply.Ref) runtimes.Interest {
	return runtimes.Interest{Resource: ref.GVK().GroupVersion().WithResource("kedas"), Kind: ref.Kind}
}

// TestRestoreChanges checks that a reported change is not lost if the reconcile that handles it fails: the next
// reconcile handles the change again. If an event about the same object has arrived meanwhile, the event replaces the
// older change.
func TestRestoreChanges(t *testing.T) {
	a, b := apply.Ref{Kind: "ConfigMap", Name: "a"}, apply.Ref{Kind: "ConfigMap", Name: "b"}
	m := &memory{}
	m.changes = changes{objects: map[apply.Ref]objectEvent{a: {resourceVersion: "1"}, b: {resourceVersion: "1"}},
		missed: true, retried: true}
	taken := m.takeChanges()
	if again := m.takeChanges(); len(again.objects) > 0 || again.missed || again.readiness || again.retried {
		t.Errorf("changes are taken twice: %+v", again)
	}
	m.changes = changes{objects: map[apply.Ref]objectEvent{a: {resourceVersion: "2"}}, readiness: true}
	m.restoreChanges(taken)
	want := changes{objects: map[apply.Ref]objectEvent{a: {resourceVersion: "2"}, b: {resourceVersion: "1"}},
		readiness: true, missed: true, retried: true}
	if diff := cmp.Diff(want, m.takeChanges(), cmp.AllowUnexported(changes{}, resourceEvent{}, objectEvent{}),
		cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestManyChanges checks that the memory keeps the events of the objects of a large module, but not those of any number
// of objects with the annotation of the Manifest. After the memory has dropped events, all objects are compared, also
// if the reconcile that compares them fails.
func TestManyChanges(t *testing.T) {
	m := &memory{}
	in := runtimes.Interest{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Kind: "ConfigMap"}
	observe := func(name string, n int) bool {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: name + strconv.Itoa(n), ResourceVersion: "1",
			Annotations: map[string]string{v1beta2.AnnotationOwnedBy: "kcp-system/m"},
		}}
		return m.addEvent(runtimes.Event{Interest: in, Object: o}, "kcp-system/m", apply.Ref{})
	}
	const module = 500
	for n := range module {
		m.expected = append(m.expected, refOf(in, "n", "object"+strconv.Itoa(n)))
	}
	for range 2 {
		for n := range module {
			observe("object", n)
		}
	}
	for n := range maxUnexpectedObjects {
		observe("former", n)
	}
	if c := m.changes; len(c.objects) != module+maxUnexpectedObjects || c.dropped {
		t.Fatalf("%d objects are kept, dropped %t, want all", len(c.objects), c.dropped)
	}
	for n := range 3 * maxUnexpectedObjects {
		if !observe("invented", n) {
			t.Fatal("an event after the limit causes no reconcile")
		}
	}
	taken := m.takeChanges()
	if len(taken.objects) > 0 || !taken.dropped || !taken.readiness || !m.history(taken, time.Hour).dropped {
		t.Errorf("%d objects are kept, dropped %t, readiness %t, want none and a comparison of all", len(taken.objects),
			taken.dropped, taken.readiness)
	}
	observe("object", 0)
	if c := m.changes; len(c.objects) != 1 || c.dropped {
		t.Errorf("after a reconcile, %d objects are kept, dropped %t, want one", len(c.objects), c.dropped)
	}
	m.restoreChanges(taken)
	if c := m.takeChanges(); len(c.objects) > 0 || !c.dropped {
		t.Errorf("after a reconcile that has failed, %d objects are kept, dropped %t", len(c.objects), c.dropped)
	}
}

// TestDrifted checks that the manager's own writes, and changes of only the status, do not count as drift.
func TestDrifted(t *testing.T) {
	ref := func(name string) apply.Ref { return apply.Ref{Version: "v1", Kind: "ConfigMap", Name: name} }
	m := &memory{}
	got := m.drifted(map[apply.Ref]objectEvent{
		ref("unknown"):  {uid: "u", resourceVersion: "1"},
		ref("others"):   {uid: "u", resourceVersion: "1", byOthers: true},
		ref("deleted"):  {deleted: true},
		ref("deleted2"): {deleted: true, byOthers: true},
	})
	if diff := cmp.Diff([]apply.Ref{ref("deleted"), ref("deleted2"), ref("others")}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestMemoryOf checks that a Manifest does not get the memory of a deleted Manifest with the same name.
func TestMemoryOf(t *testing.T) {
	r := &Reconciler{}
	key := types.NamespacedName{Namespace: "kcp-system", Name: "m"}
	first := r.memoryOf(key, "1")
	first.released = true
	if r.memoryOf(key, "1") != first {
		t.Error("the memory of a Manifest is lost")
	}
	if second := r.memoryOf(key, "2"); second == first || second.released || second.audited.IsZero() {
		t.Errorf("another Manifest of the name has the memory of the first: %+v", second)
	}
	r.forget(key)
	if r.memories.Len() != 0 {
		t.Error("a forgotten Manifest is remembered")
	}
}

// TestMissedEvents checks which lost events matter to a Manifest: those of the kinds of its objects and of its custom
// resource.
func TestMissedEvents(t *testing.T) {
	object := apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: "a"}
	cr := apply.Ref{Group: "x.io", Version: "v1", Kind: "Keda", Namespace: "n", Name: "default"}
	cases := map[string]struct {
		reason string
		in     runtimes.Interest
		want   changes
	}{
		"All": {"no kind means all", runtimes.Interest{}, changes{readiness: true, missed: true}},
		"Object": {"the kind of an object", runtimes.Interest{Resource: schema.GroupVersionResource{Version: "v1"},
			Kind: "ConfigMap"}, changes{readiness: true, missed: true}},
		"Resource": {"the kind of the custom resource", interestOf(cr), changes{readiness: true}},
		"Other":    {"another kind", runtimes.Interest{Kind: "Secret"}, changes{}},
	}
	for name, c := range cases {
		m := &memory{expected: []apply.Ref{object}}
		concerned := m.addEvent(runtimes.Event{Missed: true, Interest: c.in}, "kcp-system/m", cr)
		if diff := cmp.Diff(c.want, m.changes, cmp.AllowUnexported(changes{}, resourceEvent{})); diff != "" ||
			concerned != c.want.readiness {
			t.Errorf("%s: %s: concerned %t, -want +got:\n%s", name, c.reason, concerned, diff)
		}
	}
}

// TestWaitForOwners checks that the owner of a shared object has the time ownerGrace to correct a change by another
// client. After ownerGrace, the change counts as a conflict.
func TestWaitForOwners(t *testing.T) {
	shared := apply.Ref{Kind: "ConfigMap", Name: "shared"}
	found := func() []apply.Drifted {
		return []apply.Drifted{{Ref: apply.Ref{Kind: "ConfigMap", Name: "own"}}, {Ref: shared, OwnersTurn: true}}
	}
	var m memory
	start := time.Now()
	for _, c := range []struct {
		reason string
		after  time.Duration
		found  []apply.Drifted
		rest   int
		left   time.Duration
		waits  bool
	}{
		{"the owner has not noticed the change", 0, found(), 1, ownerGrace, true},
		{"the owner has some time left", ownerGrace / 4, found(), 1, 3 * ownerGrace / 4, true},
		{"the owner has corrected it", ownerGrace / 2, found()[:1], 1, 0, false},
		{"it is changed once more", ownerGrace, found(), 1, ownerGrace, true},
		{"the owner has not corrected it in time", 2 * ownerGrace, found(), 2, 0, false},
	} {
		now := start.Add(c.after)
		rest := m.deferToOwners(c.found, now)
		left, waits := m.ownersTurnLeft(now)
		if len(rest) != c.rest || waits != c.waits || waits && left != c.left {
			t.Errorf("%s: %d are drifted, %v left (%t), want %d, %v (%t)", c.reason, len(rest), left, waits, c.rest,
				c.left, c.waits)
		}
		if compares := len(m.history(changes{}, time.Hour).drifted) > 0; compares != c.waits {
			t.Errorf("%s: the next reconcile compares it: %t, want %t", c.reason, compares, c.waits)
		}
	}
}
