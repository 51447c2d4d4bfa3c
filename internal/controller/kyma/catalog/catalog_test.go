package catalog

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// writtenBy returns the managedFields entry of a field manager that wrote the object the given number of seconds after
// a fixed time.
func writtenBy(manager string, seconds int64) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Time: new(metav1.Unix(1000+seconds, 0))}
}

func TestCheck(t *testing.T) {
	v := &contents{hashes: hashSet{{objectKey{"ModuleTemplate", "keda-1.0.0"}, "h1"}}}
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
			if got := r.suspectIfWrong(v, "ModuleTemplate", &c.object, c.deleted); got != c.wrong ||
				r.suspects[objectKey{"ModuleTemplate", c.object.Name}] != c.wrong {
				t.Errorf("%s: wrong is %v and suspects %v, want %v", c.reason, got, r.suspects, c.wrong)
			}
		})
	}
}

func TestNoteChangeListed(t *testing.T) {
	c := New(Options{})
	c.records["a"] = &record{}
	c.contents.byKey = map[contentsKey]*contents{{}: {hashes: hashSet{
		{objectKey{"ModuleTemplate", "keda-1.0.0"}, "h1"}, {objectKey{"ModuleTemplate", "nats-1.0.0"}, "h2"},
		{objectKey{"ModuleReleaseMeta", "keda"}, "h3"},
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
	c.contents.byKey = nil
	if !c.noteEvent("a", e) || !c.records["a"].compareAll {
		t.Error("after a change of the catalog, not all objects are compared")
	}
}

// TestManySuspects checks that invented names of catalog objects are not kept without a limit: after too many of them,
// the whole catalog copy is compared, also field by field.
func TestManySuspects(t *testing.T) {
	c := New(Options{})
	audited := time.Now()
	c.records["a"] = &record{auditedAt: audited}
	c.contents.byKey = map[contentsKey]*contents{{}: {hashes: hashSet{
		{objectKey{"ModuleTemplate", "keda-1.0.0"}, "h1"}}}}
	r, most := c.records["a"], 0
	observe := func(n int) {
		c.noteEvent("a", runtimes.Event{Interest: runtimes.Interest{Kind: "ModuleTemplate"},
			Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(n),
				Labels: map[string]string{v1beta2.LabelCatalogHash: "h"},
				ManagedFields: []metav1.ManagedFieldsEntry{
					writtenBy(v1beta2.FieldOwnerCatalog, 1)}}}})
		most = max(most, len(r.suspects))
	}
	for n := range maxSuspects {
		observe(n)
		observe(n)
	}
	if len(r.suspects) != maxSuspects || r.compareAll || r.auditedAt != audited {
		t.Fatalf("%d suspects are kept, want %d; all are compared: %t", len(r.suspects), maxSuspects, r.compareAll)
	}
	for n := range 2 * maxSuspects {
		observe(maxSuspects + n)
	}
	if most > maxSuspects || !r.compareAll || !r.auditedAt.IsZero() {
		t.Errorf("up to %d suspects are kept, all are compared: %t, last time of an audit: %v", most, r.compareAll,
			r.auditedAt)
	}
}

// TestMissedWhileAuditing checks that there is no data race if an event arrives while a reconcile reads the time of the
// last comparison. Run this test with -race.
func TestMissedWhileAuditing(t *testing.T) {
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Runtimes: pool, AuditInterval: time.Hour})
	target := Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, Now: time.Now()}
	c.editRecord(target, func(r *record) { r.auditedAt = time.Now().Add(-2 * recentPeriod) })
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

// TestCopyDuringRollout checks catalog copies while a channel moves in stages: a waiting runtime keeps its catalog
// copy, also after a restart, and an admitted runtime has the catalog copy that all runtimes get at the end.
func TestCopyDuringRollout(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kyma := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a"}}
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "keda"},
		Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "keda", Channels: []v1beta2.ChannelVersion{{Channel: "regular",
			Version: "1.0.0"}, {Channel: "fast", Version: "1.0.0"}}}}
	policy := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "standard"},
		Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"keda"}}}}
	digest := func(spec string, status v1beta2.ChannelStatus, others ...client.Object) (waits, hasTurn string) {
		t.Helper()
		r := release.DeepCopy()
		r.Spec.Channels[0].Version = spec
		if status.Version != "" {
			status.Channel = "regular"
			r.Status.Channels = []v1beta2.ChannelStatus{status}
		}
		objects := append([]client.Object{kyma, r}, others...)
		for _, version := range []string{"1.0.0", "2.0.0"} {
			objects = append(objects, &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system",
				Name: "keda-" + version}, Spec: v1beta2.ModuleTemplateSpec{ModuleName: "keda", Version: version}})
		}
		c := New(Options{Namespace: "kcp-system", Client: fake.NewClientBuilder().WithScheme(scheme).
			WithObjects(objects...).Build()}) // as after a restart
		var all [2]string
		for i := range all {
			key, made, err := c.contentsFor(t.Context(), kyma, func(m move) bool {
				return i == 1 && m == move{"keda", "regular", "1.0.0", "2.0.0"}
			})
			if err != nil {
				t.Fatal(err)
			}
			all[i] = made.digest
			c.records["a"] = &record{key: key, digest: made.digest}
			if outdated, err := c.OutdatedKymas(t.Context()); err != nil || len(outdated) > 0 {
				t.Errorf("the catalog copy is outdated as soon as it is made: %v, %v", outdated, err)
			}
		}
		return all[0], all[1]
	}
	before, _ := digest("1.0.0", v1beta2.ChannelStatus{Version: "1.0.0", Target: "1.0.0"}, policy)
	after, _ := digest("2.0.0", v1beta2.ChannelStatus{Version: "2.0.0", Target: "2.0.0"}, policy)
	if before == after {
		t.Fatal("the catalog copy does not have the version of the channel")
	}
	for name, c := range map[string]struct {
		status  v1beta2.ChannelStatus
		others  []client.Object
		isAtEnd bool // all runtimes get the version
	}{
		"NotRecorded": {v1beta2.ChannelStatus{Version: "1.0.0", Target: "1.0.0"}, []client.Object{policy}, false},
		"Staged": {v1beta2.ChannelStatus{Version: "1.0.0", Target: "2.0.0", Rollout: "keda-regular-r2",
			Policy: "standard"}, []client.Object{policy}, false},
		"PolicyDeleted": {v1beta2.ChannelStatus{Version: "1.0.0", Target: "2.0.0", Rollout: "keda-regular-r2",
			Policy: "standard"}, nil, false},
		"NoPolicy": {v1beta2.ChannelStatus{Version: "1.0.0", Target: "1.0.0"}, nil, true},
		"NotStaged": {v1beta2.ChannelStatus{Version: "1.0.0", Target: "2.0.0", Rollout: "keda-regular-r2"}, nil,
			true},
		"PolicyTooLate": {v1beta2.ChannelStatus{Version: "1.0.0", Target: "2.0.0"}, []client.Object{policy}, true},
		"Completed":     {v1beta2.ChannelStatus{Version: "2.0.0", Target: "2.0.0"}, []client.Object{policy}, true},
	} {
		t.Run(name, func(t *testing.T) {
			waits, hasTurn := digest("2.0.0", c.status, c.others...)
			if hasTurn != after {
				t.Error("an admitted runtime gets another catalog copy than at the end")
			}
			want := before
			if c.isAtEnd {
				want = after
			}
			if waits != want {
				t.Error("a runtime that waits gets another catalog copy")
			}
		})
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

// TestNotServedYet checks what a reconcile reports if the runtime does not serve the kinds of the catalog. If the CRDs
// were sent recently, also by an earlier reconcile, the reconcile waits. Otherwise it reports an error.
func TestNotServedYet(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	now := time.Now()
	for name, tc := range map[string]struct {
		sentAt time.Time
		waits  bool
	}{
		"ThisReconcile":    {now, true},
		"EarlierReconcile": {now.Add(-servedTimeout / 2), true},
		"LongAgo":          {now.Add(-servedTimeout), false},
		"Never":            {time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, err := apply.New(&rest.Config{Host: server.URL}, nil,
				apply.ClusterOptions{RequestTimeout: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			c := New(Options{})
			target := Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, Now: now,
				Runtime: &runtimes.Runtime{Cluster: cluster}}
			c.editRecord(target, func(r *record) { r.baseSentAt = tc.sentAt })
			err = c.addListedDifferences(t.Context(), target, &contents{}, nil, nil)
			if _, waits := errors.AsType[*NotServedError](err); err == nil || waits != tc.waits {
				t.Errorf("got %v, want that it waits: %t", err, tc.waits)
			}
		})
	}
}
