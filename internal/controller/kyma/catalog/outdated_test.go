package catalog

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestFindOutdated checks that a catalog copy whose objects this process has in memory is updated without a list
// request.
func TestFindOutdated(t *testing.T) {
	a, b, c := objectKey{"ModuleTemplate", "a"}, objectKey{"ModuleTemplate", "b"}, objectKey{"ModuleTemplate", "c"}
	want := &contents{digest: "new", hashes: hashSet{{a, "1"}, {b, "2"}}}
	cases := map[string]struct {
		reason  string
		record  record
		digest  string // in the status of the Kyma in the runtime
		keys    []objectKey
		unknown bool
	}{
		"Changed": {"one object differs, one was removed",
			record{digest: "old", has: hashSet{{a, "1"}, {b, "1"}, {c, "1"}}}, "old", []objectKey{b, c}, false},
		"New":     {"the CRDs were just created", record{has: hashSet{}}, "", []objectKey{a, b}, false},
		"Restart": {"the memory is lost", record{}, "old", nil, true},
		"Other": {"another process has written a copy", record{digest: "old", has: hashSet{{a, "1"}}},
			"other", nil, true},
		"Removed": {"somebody has removed the digest", record{digest: "old", has: hashSet{{a, "1"}}}, "",
			nil, true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			copies := New(Options{})
			copies.records["k"] = &test.record
			target := Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "k"}}, Digest: test.digest}
			keys, unknown := copies.findOutdated(target, want)
			slices.SortFunc(keys, func(x, y objectKey) int { return slices.Compare([]byte(x.name), []byte(y.name)) })
			if !slices.Equal(keys, test.keys) || unknown != test.unknown {
				t.Errorf("%s: got %v, %t, want %v, %t", test.reason, keys, unknown, test.keys, test.unknown)
			}
		})
	}
}

// TestHasCreatedKinds checks when it is certain that a runtime has no catalog copy yet: this reconcile must have
// created the CRDs of all kinds of the catalog.
func TestHasCreatedKinds(t *testing.T) {
	crd := func(plural string) apply.Ref {
		return apply.Ref{Kind: "CustomResourceDefinition", Name: plural + "." + v1beta2.GroupVersion.Group}
	}
	both := []apply.Ref{crd("kymas"), crd("modulereleasemetas"), crd("moduletemplates")}
	if !hasCreatedAllCatalogCRDs(both) {
		t.Error("both were created")
	}
	if hasCreatedAllCatalogCRDs(both[:2]) {
		t.Error("one existed, so objects may exist")
	}
}

// fleet is a cache with Kymas and the ModuleReleaseMetas of restricted modules. It counts the objects that it copies.
type fleet struct {
	client.Reader
	kymas    []runtime.Object
	releases map[string]*v1beta2.ModuleReleaseMeta
	copied   int
}

func (f *fleet) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	f.copied++
	f.releases[key.Name].DeepCopyInto(into.(*v1beta2.ModuleReleaseMeta))
	return nil
}

func (f *fleet) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	if _, is := into.(*v1beta2.KymaList); !is {
		return f.Reader.List(ctx, into, o...)
	}
	return meta.SetList(into, f.kymas)
}

// fleetOf returns the Copies of a fleet. Each runtime may have one of the restricted modules, half of the runtimes have
// the current catalog copy, and rollouts move channels of several modules.
func fleetOf(t testing.TB, kymas, restricted, moving int) (*Copies, *fleet) {
	c := movingCatalog(t, moving, moving)
	f := &fleet{Reader: c.options.Client, releases: map[string]*v1beta2.ModuleReleaseMeta{}}
	c.options.Client = f
	for i := range restricted {
		name := fmt.Sprint("restricted-", i)
		c.options.Restricted = append(c.options.Restricted, name)
		f.releases[name] = &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: name, KymaSelector: &v1beta2.Selector{
				MatchLabels: map[string]string{"plan": name}}}}
	}
	for i := range kymas {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: fmt.Sprint("kyma-", i),
			Labels: map[string]string{"plan": fmt.Sprint("restricted-", i%restricted)}}}
		f.kymas = append(f.kymas, k)
		key, made, err := c.contentsFor(t.Context(), k, func(m move) bool { return m.module <= "m002" })
		if err != nil {
			t.Fatal(err)
		}
		r := &record{key: key}
		if i%2 == 0 {
			r.digest = made.digest
		}
		c.records[k.Name] = r
	}
	return c, f
}

// TestOutdatedKymasReads checks that a ModuleReleaseMeta of a restricted module is read once, not for each Kyma.
func TestOutdatedKymasReads(t *testing.T) {
	const kymas, restricted = 40, 5
	c, f := fleetOf(t, kymas, restricted, 4)
	f.copied = 0
	outdated, err := c.OutdatedKymas(t.Context())
	if err != nil || len(outdated) != kymas/2 || slices.Contains(outdated, "kyma-0") {
		t.Fatalf("%v are outdated: %v", outdated, err)
	}
	if f.copied != restricted {
		t.Errorf("%d objects were copied, want %d", f.copied, restricted)
	}
}

// BenchmarkOutdatedKymas measures the search for outdated catalog copies, by the number of restricted modules and of
// channels that move in stages.
func BenchmarkOutdatedKymas(b *testing.B) {
	for _, n := range []int{5, 50} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, _ := fleetOf(b, 1_000, n, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.OutdatedKymas(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
