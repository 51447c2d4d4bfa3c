package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// movingCatalog returns the Copies of a catalog with the given number of modules, of which the first ones move channel
// regular from 1.0.0 to 2.0.0 in stages. Each module has two ModuleTemplates with a descriptor of the usual size.
func movingCatalog(t testing.TB, modules, moving int) *Copies {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	for i := range modules {
		name := fmt.Sprintf("m%03d", i)
		r := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name},
			Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: name, Channels: []v1beta2.ChannelVersion{
				{Channel: "fast", Version: "2.0.0"}, {Channel: "regular", Version: "1.0.0"}}}}
		if i < moving {
			r.Spec.Channels[1].Version = "2.0.0"
			r.Status.Channels = []v1beta2.ChannelStatus{{Channel: "regular", Version: "1.0.0", Target: "2.0.0",
				Rollout: name + "-regular-r2", Policy: "standard"}}
		}
		objects = append(objects, r)
		for _, version := range []string{"1.0.0", "2.0.0"} {
			objects = append(objects, &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system",
				Name: name + "-" + version}, Spec: v1beta2.ModuleTemplateSpec{ModuleName: name, Version: version,
				Descriptor: runtime.RawExtension{Raw: []byte(`{"a":"` + strings.Repeat("x", 4<<10) + `"}`)}}})
		}
	}
	return New(Options{Namespace: "kcp-system", Client: fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(objects...).Build()})
}

// contentsAhead returns the contents for a runtime that is admitted in the moving channels whose bit is set.
func contentsAhead(t testing.TB, c *Copies, admitted int) *contents {
	t.Helper()
	kyma := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a"}}
	_, made, err := c.contentsFor(t.Context(), kyma, func(m move) bool {
		var i int
		_, err := fmt.Sscanf(m.module, "m%d", &i)
		return err == nil && admitted&(1<<i) != 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestContentsShareObjects checks that each object is encoded once, however many different catalog copies there are
// while several channels move in stages.
func TestContentsShareObjects(t *testing.T) {
	const modules, moving = 12, 4
	c := movingCatalog(t, modules, moving)
	encoded, digests := map[*render.Object]bool{}, map[string]bool{}
	for admitted := range 1 << moving {
		made := contentsAhead(t, c, admitted)
		digests[made.digest] = true
		for _, o := range made.objects {
			encoded[o] = true
		}
	}
	if len(digests) != 1<<moving {
		t.Errorf("there are %d catalog copies, want %d", len(digests), 1<<moving)
	}
	// Each ModuleReleaseMeta of a moving channel has two contents, and all other objects have one.
	if want := 3*modules + moving; len(encoded) != want {
		t.Errorf("%d objects were encoded for %d catalog copies, want %d", len(encoded), len(digests), want)
	}
	c.Invalidate()
	if len(c.contents.encoded) > 0 || c.contents.byKey != nil || c.contents.catalog.Templates != nil {
		t.Error("objects of the former catalog are kept")
	}
}

// TestContents checks the order, the labels and the hashes of the objects of a catalog copy: they must not depend on
// the version of the manager, because all objects with another hash are sent again.
func TestContents(t *testing.T) {
	c := movingCatalog(t, 3, 1)
	made := contentsAhead(t, c, 0)
	all, err := c.readSharedCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range all.Releases {
		all.Releases[i] = withProven(r, c.contents.moving, nil)
	}
	visible, err := channel.CatalogCopyFor(channel.Access{}, all, v1beta2.RuntimeNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if made.digest != "sha256:"+visible.Digest || len(made.objects) != len(visible.Objects) ||
		len(made.objects) != 9 {
		t.Fatalf("it has %d objects and digest %s, want %d and %s", len(made.objects), made.digest,
			len(visible.Objects), visible.Digest)
	}
	for i, o := range made.objects {
		want := visible.Objects[i]
		sum := sha256.Sum256(want.JSON)
		hash := hex.EncodeToString(sum[:8])
		key := objectKey{want.Kind, want.Name}
		if o.GVK.Kind != want.Kind || o.Name != want.Name || o.Label(v1beta2.LabelCatalogHash) != hash ||
			made.hashes.of(key) != hash || made.hashes.index(key) != i {
			t.Errorf("object %d is %s %s with hash %q, want %s %s with hash %q", i, o.GVK.Kind, o.Name,
				made.hashes.of(key), want.Kind, want.Name, hash)
		}
	}
	for _, key := range []objectKey{{}, {"ModuleTemplate", "m001"}, {"ModuleReleaseMeta", "m001-1.0.0"},
		{"ModuleReleaseMeta", "z"}, {"ModuleTemplate", "z"}} {
		if made.hashes.of(key) != "" || made.hashes.index(key) != -1 {
			t.Errorf("the catalog copy has %v", key)
		}
	}
	if diff := cmp.Diff(made.digest, contentsAhead(t, movingCatalog(t, 3, 1), 0).digest); diff != "" {
		t.Errorf("the digest differs after a restart (-before +after):\n%s", diff)
	}
	if !slices.Equal(made.hashes, contentsAhead(t, c, 0).hashes) {
		t.Error("equal contents are not shared")
	}
}

// BenchmarkContents measures the first catalog copy after a change of the catalog, and each further one while channels
// move in stages: its time, its garbage, and the memory that it keeps.
func BenchmarkContents(b *testing.B) {
	for _, modules := range []int{25, 250} {
		for _, further := range []bool{false, true} {
			b.Run(fmt.Sprintf("modules=%d/further=%t", modules, further), func(b *testing.B) {
				c := movingCatalog(b, modules, 20)
				contentsAhead(b, c, 0)
				before := liveHeap()
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					if n++; !further {
						c.Invalidate()
					}
					contentsAhead(b, c, n)
				}
				if further {
					b.ReportMetric(float64(liveHeap()-before)/float64(n), "kept-B/op")
				}
				goruntime.KeepAlive(c)
			})
		}
	}
}

// liveHeap returns the size of all objects on the heap that are still in use.
func liveHeap() int64 {
	goruntime.GC()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
