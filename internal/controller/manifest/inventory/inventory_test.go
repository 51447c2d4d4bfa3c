package inventory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// someRefs returns a random list of few different objects, in any order, with several versions and flags.
func someRefs(random *rand.Rand) []apply.Ref {
	refs := make([]apply.Ref, 0, 8)
	for _, i := range random.Perm(6)[:random.IntN(6)] {
		refs = append(refs, apply.Ref{Group: []string{"", "apps"}[i%2], Version: []string{"v1", "v2"}[random.IntN(2)],
			Kind: []string{"A", "B"}[i%2], Namespace: []string{"", "n"}[i/2%2], Name: fmt.Sprint(i / 4),
			Pending: random.IntN(2) == 0, Adopted: random.IntN(3) == 0, Shared: random.IntN(3) == 0})
	}
	if random.IntN(2) == 0 {
		slices.SortFunc(refs, func(a, b apply.Ref) int { return len(a.String()) - len(b.String()) })
	}
	return refs
}

// TestComparisons compares the functions that compare two inventories with their definitions, which look at each pair
// of objects.
func TestComparisons(t *testing.T) {
	for seed := range uint64(3_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		a, b := someRefs(random), someRefs(random)
		indexIn := func(refs []apply.Ref, r apply.Ref) int { return slices.IndexFunc(refs, r.SameObject) }

		missing := slices.DeleteFunc(slices.Clone(a), func(r apply.Ref) bool { return indexIn(b, r) >= 0 })
		flagged := slices.Clone(a)
		updated := Of(a)
		for i, r := range a {
			flagged[i].Pending, flagged[i].Adopted, flagged[i].Shared = true, false, false
			if at := indexIn(b, r); at >= 0 {
				flagged[i].Pending, flagged[i].Adopted, flagged[i].Shared = b[at].Pending, b[at].Adopted, b[at].Shared
				updated[i].Adopted, updated[i].Shared = b[at].Adopted, b[at].Shared
			}
		}
		includes := !slices.ContainsFunc(a, func(r apply.Ref) bool { return !slices.Contains(b, r) })
		ignoring := !slices.ContainsFunc(a, func(r apply.Ref) bool {
			return !slices.ContainsFunc(b, func(o apply.Ref) bool { o.Pending = r.Pending; return o == r })
		})
		type results struct {
			Missing, Flagged   []apply.Ref
			Updated            []v1beta2.Resource
			Includes, Ignoring bool
		}
		want := results{missing, flagged, updated, includes, ignoring}
		got := results{append([]apply.Ref{}, NotIn(a, b)...), WithRecordedFlagsOrPending(a, b),
			WithAdoptedAndSharedOf(Of(a), b), Includes(b, a), IncludesIgnoringPending(Of(b), Of(a))}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: (-want +got):\n%s", seed, diff)
		}
	}
}

// BenchmarkComparisons measures the comparisons of a reconcile, for a module of n objects whose first object is new.
func BenchmarkComparisons(b *testing.B) {
	for _, n := range []int{50, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			refs := make([]apply.Ref, n)
			for i := range refs {
				refs[i] = apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "kyma-system",
					Name: fmt.Sprint("c-", i)}
			}
			recorded := Of(refs[1:])
			b.ReportAllocs()
			for b.Loop() {
				known := Refs(recorded)
				Includes(known, append(slices.Clone(refs), NotIn(known, refs)...))
				WithRecordedFlagsOrPending(refs, known)
				WithAdoptedAndSharedOf(recorded, refs)
			}
		})
	}
}
