package catalog

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// writtenBy returns the managedFields entry of a field manager that wrote the given number of seconds after the start.
func writtenBy(manager string, seconds int64) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Time: new(metav1.Unix(1000+seconds, 0))}
}

func TestCheck(t *testing.T) {
	v := &contents{hashes: map[objectKey]string{{"ModuleTemplate", "keda-1.0.0"}: "h1"}}
	object := func(name, hash string, fields ...metav1.ManagedFieldsEntry) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1beta2.LabelCatalogHash: hash}, ManagedFields: fields,
		}}
	}
	ours, status := writtenBy(v1beta2.FieldOwnerCatalog, 10), writtenBy("someone", 99)
	status.Subresource = "status"
	cases := map[string]struct {
		reason  string
		object  metav1.PartialObjectMetadata
		deleted bool
		wrong   bool
	}{
		"OwnWrite": {"our own write is right", object("keda-1.0.0", "h1", ours), false, false},
		"Status":   {"so is a write of the status", object("keda-1.0.0", "h1", ours, status), false, false},
		"EditedBefore": {"an edit before our write was overwritten by it",
			object("keda-1.0.0", "h1", writtenBy("kubectl", 9), ours), false, false},
		"Edited": {"an edit after it was not", object("keda-1.0.0", "h1", ours, writtenBy("kubectl", 11)), false,
			true},
		"SameSecond": {"within a second the order is not known",
			object("keda-1.0.0", "h1", ours, writtenBy("kubectl", 10)), false, true},
		"OtherContent": {"content of another catalog", object("keda-1.0.0", "h0", ours), false, true},
		"TakenAway": {"somebody else created it again", object("keda-1.0.0", "h1", writtenBy("kubectl", 1)), false,
			true},
		"Deleted": {"it has to exist", object("keda-1.0.0", "h1", ours), true, true},
		"Users": {"objects of users are not checked", object("mine-1.0.0", "", writtenBy("kubectl", 1)), false,
			false},
		"TooMuch":      {"ours, and no longer in the copy", object("keda-0.9.0", "h9", ours), false, true},
		"ExtraDeleted": {"no longer in the copy, and deleted", object("keda-0.9.0", "h9", ours), true, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &record{}
			if got := r.check(v, "ModuleTemplate", &c.object, c.deleted); got != c.wrong ||
				r.suspects[objectKey{"ModuleTemplate", c.object.Name}] != c.wrong {
				t.Errorf("%s: wrong is %v and suspects %v, want %v", c.reason, got, r.suspects, c.wrong)
			}
		})
	}
}

func TestNoteChangeListed(t *testing.T) {
	c := New(Options{})
	c.records["a"] = &record{}
	c.contents.byAccess = map[channel.Access]*contents{{}: {hashes: map[objectKey]string{
		{"ModuleTemplate", "keda-1.0.0"}: "h1", {"ModuleTemplate", "nats-1.0.0"}: "h2",
		{"ModuleReleaseMeta", "keda"}: "h3",
	}}}
	e := runtimes.Event{Listed: true, Interest: runtimes.Interest{Kind: "ModuleTemplate"},
		Objects: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
			Name: "keda-1.0.0", Labels: map[string]string{v1beta2.LabelCatalogHash: "h1"},
			ManagedFields: []metav1.ManagedFieldsEntry{writtenBy(v1beta2.FieldOwnerCatalog, 1)},
		}}}}
	if !c.noteEvent("a", e) {
		t.Error("an object that is missing in a list is not noticed")
	}
	if diff := cmp.Diff([]objectKey{{"ModuleTemplate", "nats-1.0.0"}},
		slices.Collect(maps.Keys(c.records["a"].suspects)), cmp.AllowUnexported(objectKey{})); diff != "" {
		t.Errorf("noted (-want +got):\n%s", diff)
	}
	if c.noteEvent("unknown", e) {
		t.Error("a Kyma without a record is enqueued")
	}
	c.contents.byAccess = nil
	if !c.noteEvent("a", e) || !c.records["a"].compareAll {
		t.Error("after a change of the catalog, not all objects are compared")
	}
}

// TestMissedWhileAuditing checks that events may arrive while a reconcile reads the time of the last comparison. Run it
// with -race.
func TestMissedWhileAuditing(t *testing.T) {
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Runtimes: pool, AuditInterval: time.Hour})
	target := Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, Now: time.Now()}
	c.edit(target, func(r *record) { r.auditedAt = time.Now().Add(-2 * recentPeriod) })
	missed := runtimes.Event{Missed: true, Interest: runtimes.Interest{Resource: v1beta2.GroupVersion.WithResource(
		"moduletemplates")}}
	var both sync.WaitGroup
	both.Go(func() { c.noteEvent("a", missed) })
	both.Go(func() { c.isAuditDue(target) })
	both.Wait()
	if !c.isAuditDue(target) {
		t.Error("after changes may have been missed, the copy is not compared")
	}
}

func TestNewContents(t *testing.T) {
	visible, err := channel.CatalogCopyFor(channel.Access{}, channel.Contents{
		Releases: []*v1beta2.ModuleReleaseMeta{{ObjectMeta: metav1.ObjectMeta{Name: "keda"},
			Spec: v1beta2.ModuleReleaseMetaSpec{Channels: []v1beta2.ChannelVersion{{Channel: "regular",
				Version: "1.0.0"}}}}},
		Templates: []*v1beta2.ModuleTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "keda-1.0.0"},
			Spec: v1beta2.ModuleTemplateSpec{Version: "1.0.0"}}},
	}, "kyma-system")
	if err != nil {
		t.Fatal(err)
	}
	v, err := newContents(visible)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.objects) != 2 || v.digest != "sha256:"+visible.Digest {
		t.Fatalf("it has %d objects and digest %s", len(v.objects), v.digest)
	}
	for _, o := range v.objects {
		if hash := v.hashes[objectKey{o.GVK.Kind, o.Name}]; len(hash) != 16 ||
			o.Label(v1beta2.LabelCatalogHash) != hash {
			t.Errorf("%s %s has label %q, want its hash %q", o.GVK.Kind, o.Name,
				o.Label(v1beta2.LabelCatalogHash), hash)
		}
	}
}

func TestSpecPatch(t *testing.T) {
	object := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	}
	cases := map[string]struct {
		reason   string
		is, want map[string]any
		patch    string
	}{
		"Equal": {"nothing to undo", map[string]any{"a": "b"}, map[string]any{"a": "b"}, ""},
		"Added": {"an added field is removed", map[string]any{"a": "b", "c": true},
			map[string]any{"a": "b"}, `{"spec":{"c":null}}`},
		"Changed": {"a changed field is changed back", map[string]any{"a": "x"},
			map[string]any{"a": "b"}, `{"spec":{"a":"b"}}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			patch, err := specPatch(object(c.is), object(c.want))
			if err != nil || string(patch) != c.patch {
				t.Errorf("%s: got %s, %v; want %s", c.reason, patch, err, c.patch)
			}
		})
	}
}
