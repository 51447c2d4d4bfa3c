package kyma

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/maintenance"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// writtenBy returns the entry of a field manager, some seconds after the beginning.
func writtenBy(manager string, seconds int64) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Time: new(metav1.Unix(1000+seconds, 0))}
}

func TestJudge(t *testing.T) {
	v := &view{hashes: map[item]string{{"ModuleTemplate", "keda-1.0.0"}: "h1"}}
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
		"OwnEcho":      {"our own write is no news", object("keda-1.0.0", "h1", ours), false, false},
		"Status":       {"nor is a status", object("keda-1.0.0", "h1", ours, status), false, false},
		"EditedBefore": {"an edit before our write was overwritten by it", object("keda-1.0.0", "h1", writtenBy("kubectl", 9), ours), false, false},
		"Edited":       {"an edit after it was not", object("keda-1.0.0", "h1", ours, writtenBy("kubectl", 11)), false, true},
		"SameSecond":   {"within a second nobody can tell", object("keda-1.0.0", "h1", ours, writtenBy("kubectl", 10)), false, true},
		"OtherContent": {"content of another catalog", object("keda-1.0.0", "h0", ours), false, true},
		"TakenAway":    {"somebody made it anew", object("keda-1.0.0", "h1", writtenBy("kubectl", 1)), false, true},
		"Deleted":      {"it has to be there", object("keda-1.0.0", "h1", ours), true, true},
		"Users":        {"what a user made is his", object("mine-1.0.0", "", writtenBy("kubectl", 1)), false, false},
		"TooMuch":      {"ours, and no longer to be seen", object("keda-0.9.0", "h9", ours), false, true},
		"Gone":         {"as it should be", object("keda-0.9.0", "h9", ours), true, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &sighting{}
			if got := s.judge(v, "ModuleTemplate", &c.object, c.deleted); got != c.wrong || s.news[item{"ModuleTemplate", c.object.Name}] != c.wrong {
				t.Errorf("%s: wrong is %v and news %v, want %v", c.reason, got, s.news, c.wrong)
			}
		})
	}
}

func TestNoteSeenListed(t *testing.T) {
	r := &Reconciler{known: map[string]*memory{"a": {catalog: sighting{group: channel.Access{}}}}}
	r.views.byGroup = map[channel.Access]*view{{}: {hashes: map[item]string{
		{"ModuleTemplate", "keda-1.0.0"}: "h1", {"ModuleTemplate", "nats-1.0.0"}: "h2", {"ModuleReleaseMeta", "keda"}: "h3",
	}}}
	seen := runtimes.Event{Listed: true, Interest: runtimes.Interest{Kind: "ModuleTemplate"}, Objects: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
		Name: "keda-1.0.0", Labels: map[string]string{v1beta2.LabelCatalogHash: "h1"}, ManagedFields: []metav1.ManagedFieldsEntry{writtenBy(v1beta2.FieldOwnerCatalog, 1)},
	}}}}
	if !r.noteSeen("a", seen) {
		t.Error("an object that is missing in a list is not noticed")
	}
	if diff := cmp.Diff([]item{{"ModuleTemplate", "nats-1.0.0"}}, slices.Collect(maps.Keys(r.known["a"].catalog.news)), cmp.AllowUnexported(item{})); diff != "" {
		t.Errorf("noted (-want +got):\n%s", diff)
	}
	if r.noteSeen("unknown", seen) {
		t.Error("a Kyma that nobody has worked on is woken")
	}
	r.views.byGroup = nil
	if !r.noteSeen("a", seen) || !r.known["a"].catalog.all {
		t.Error("while the catalog changes, anything may be wrong")
	}
}

func TestNewView(t *testing.T) {
	seen, err := channel.CatalogCopyFor(channel.Access{}, channel.Contents{
		Releases:  []*v1beta2.ModuleReleaseMeta{{ObjectMeta: metav1.ObjectMeta{Name: "keda"}, Spec: v1beta2.ModuleReleaseMetaSpec{Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.0.0"}}}}},
		Templates: []*v1beta2.ModuleTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "keda-1.0.0"}, Spec: v1beta2.ModuleTemplateSpec{Version: "1.0.0"}}},
	}, "kyma-system")
	if err != nil {
		t.Fatal(err)
	}
	v, err := newView(seen)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.objects) != 2 || v.digest != "sha256:"+seen.Digest {
		t.Fatalf("view has %d objects and digest %s", len(v.objects), v.digest)
	}
	for _, o := range v.objects {
		if hash := v.hashes[item{o.GVK.Kind, o.Name}]; len(hash) != 16 || o.Label(v1beta2.LabelCatalogHash) != hash {
			t.Errorf("%s %s has label %q, want its hash %q", o.GVK.Kind, o.Name, o.Label(v1beta2.LabelCatalogHash), hash)
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
		"Equal":   {"nothing to undo", map[string]any{"a": "b"}, map[string]any{"a": "b"}, ""},
		"Added":   {"what was added goes", map[string]any{"a": "b", "c": true}, map[string]any{"a": "b"}, `{"spec":{"c":null}}`},
		"Changed": {"what was changed comes back", map[string]any{"a": "x"}, map[string]any{"a": "b"}, `{"spec":{"a":"b"}}`},
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

// fleet returns a Reconciler whose control plane has some Kymas, of which every tenth has the module keda.
func fleet(t testing.TB, kymas int, more ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(more...)
	for i := range kymas {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: fmt.Sprintf("runtime-%d", i)}}
		if i%10 == 0 {
			k.Status.Modules = []v1beta2.ModuleStatus{{Name: "keda", Reason: v1beta2.ReasonWaitingForWindow}}
		}
		b = b.WithObjects(k)
	}
	for _, i := range indexes {
		b = b.WithIndex(i.object, i.name, i.keys)
	}
	b = b.WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues)
	return &Reconciler{Options: Options{Client: b.Build(), Namespace: "kcp-system", CatalogSpread: time.Hour}, known: map[string]*memory{}, policies: maintenance.New(maintenance.Options{})}
}

func TestCatalogChangedWakes(t *testing.T) {
	mandatory := &v1beta2.ModuleReleaseMeta{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "guard"},
		Spec:       v1beta2.ModuleReleaseMetaSpec{Mandatory: &v1beta2.MandatoryVersion{Version: "1.0.0"}},
	}
	former := &v1beta2.ModuleReleaseMeta{ObjectMeta: mandatory.ObjectMeta}
	template := func(name, module, version string) *v1beta2.ModuleTemplate {
		return &v1beta2.ModuleTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name},
			Spec:       v1beta2.ModuleTemplateSpec{ModuleName: module, Version: version},
		}
	}
	cases := map[string]struct {
		reason  string
		objects []client.Object
		want    int
	}{
		"Release":           {"the users of a module, and nobody else", []client.Object{&v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "keda"}}}, 3},
		"Template":          {"by the module", []client.Object{template("keda-1.0.0", "keda", "1.0.0")}, 3},
		"TemplateByName":    {"by the name, by which it is found", []client.Object{template("keda-1.0.0", "other", "1.0.0")}, 3},
		"Early":             {"by the module of an early template", []client.Object{template("any", "keda", "")}, 3},
		"Unused":            {"nobody uses it", []client.Object{template("nats-1.0.0", "nats", "1.0.0")}, 0},
		"Mandatory":         {"everybody has it", []client.Object{mandatory}, 30},
		"MandatoryNoMore":   {"everybody has had it", []client.Object{mandatory, former}, 30},
		"MandatoryTemplate": {"everybody has it", []client.Object{template("guard-1.0.0", "guard", "1.0.0")}, 30},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, 30, mandatory.DeepCopy())
				q := &counting{}
				r.catalogChanged(t.Context(), q, c.objects...)
				time.Sleep(30 * pace) // that of a small fleet, not the hour that is configured
				synctest.Wait()
				if got := len(q.all()); got != c.want {
					t.Errorf("%s: %d Kymas are woken, want %d", c.reason, got, c.want)
				}
			})
		})
	}
}

// TestWakeSpread: a change that concerns all is spread over time, only a few have their turn, and who will have it anyway need not be told.
func TestWakeSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 100)
		r.CatalogSpread = 200 * time.Millisecond
		q := &counting{}
		r.wakeFleet(t.Context(), q)
		time.Sleep(r.CatalogSpread / 2)
		synctest.Wait()
		if got := len(q.all()); got < 50 || got > 52 {
			t.Errorf("%d of 100 are woken after half the time", got)
		}
		time.Sleep(r.CatalogSpread / 2)
		synctest.Wait()
		if got := len(q.all()); got != 100 {
			t.Errorf("%d of 100 are woken when the time is over", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 100)
		q := &counting{}
		r.rollout = turns{most: 8, next: func(kyma string) { q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: kyma}}) }}
		r.wakeFleet(t.Context(), q)
		time.Sleep(100 * pace)
		synctest.Wait()
		if got := len(q.all()); got != 8 {
			t.Fatalf("%d have their turn, want 8", got)
		}
		allDone := func(from int) {
			for i := from; i < len(q.all()); i++ {
				r.rollout.done(q.all()[i]) // whose turn it is then is woken
			}
		}
		r.wakeFleet(t.Context(), q)
		allDone(0)
		time.Sleep(100 * pace)
		synctest.Wait()
		allDone(100)
		if got := len(q.all()); got != 108 {
			t.Errorf("%d are woken in all; want each of 100, and the 8 again that may have begun before the second change", got)
		}
	})
}

// counting is a queue that only notes who is woken. Safe for concurrent use.
type counting struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // of which nothing else is used

	mu    sync.Mutex
	woken []string // guarded by mu
}

func (c *counting) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.woken)
}

func (c *counting) Add(r reconcile.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.woken = append(c.woken, r.Name)
}

func (c *counting) AddAfter(r reconcile.Request, _ time.Duration) { c.Add(r) }
