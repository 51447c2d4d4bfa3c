package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOf checks that the shard of a name never changes, because labels contain it, and old replicas may run at the same
// time as new ones.
func TestOf(t *testing.T) {
	got := map[string]int{}
	for _, name := range []string{"", "kyma-a", "kyma-b", "kyma-0001", "ca2ad4e3-27d4-4e35-b2ee-e7a8ea4b8b3b"} {
		got[name] = Of(name)
	}
	want := map[string]int{"": 32, "kyma-a": 50, "kyma-b": 13, "kyma-0001": 10,
		"ca2ad4e3-27d4-4e35-b2ee-e7a8ea4b8b3b": 5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOfSpreads checks that 10,000 runtimes are divided about evenly among the shards: 156 for each shard on average.
func TestOfSpreads(t *testing.T) {
	for _, format := range []string{"kyma-%d", "runtime-%05d", "%d", "%x-4e35"} {
		var count [Count]int
		for i := range 10000 {
			count[Of(fmt.Sprintf(format, i))]++
		}
		// The standard deviation of the number of runtimes in a shard is 12.4. The test allows a difference of five
		// standard deviations from the mean, which is 156.
		if least, most := slices.Min(count[:]), slices.Max(count[:]); least < 94 || most > 218 {
			t.Errorf("names like %s: from %d to %d runtimes in a shard", format, least, most)
		}
	}
}

// countByReplica returns how many shards each replica has.
func countByReplica(holders [Count]string) map[string]int {
	count := map[string]int{}
	for _, h := range holders {
		count[h]++
	}
	return count
}

func replicas(random *rand.Rand, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("lifecycle-manager-%x_%x", random.Uint32(), random.Uint64())
	}
	return names
}

func TestAssignBalances(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 80; n++ {
		for range 4 {
			names := replicas(random, n)
			held := countByReplica(Assign(names))
			total := 0
			for name, count := range held {
				total += count
				if count > maxShardsPerReplica(n) || !slices.Contains(names, name) {
					t.Fatalf("%d replicas: %q has %d shards, at most %d are right", n, name, count,
						maxShardsPerReplica(n))
				}
			}
			if total != Count {
				t.Fatalf("%d replicas: %d shards are held", n, total)
			}
		}
	}
	if got := Assign(nil); got != [Count]string{} {
		t.Errorf("no replica holds %v", got)
	}
}

// TestAssignMovesLittle checks that a new replica gets its share, and that few other shards move. TestAssignMovesLittle
// also checks that few other shards move after the end of a replica.
func TestAssignMovesLittle(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 4, 8, 16} {
		const rounds = 50
		gained, others := 0, 0
		for range rounds {
			names := replicas(random, n+1)
			before, after := Assign(names[:n]), Assign(names)
			for s := range before {
				switch {
				case before[s] == after[s]:
				case after[s] == names[n]:
					gained++
				default:
					others++
				}
			}
		}
		// Rendezvous hashing alone moves 64/(n+1) shards to a new replica. Because Assign gives no replica more than
		// maxShardsPerReplica, some more shards move: with 16 replicas, 9 of 64 shards on average.
		if mean := float64(gained) / rounds; mean > float64(maxShardsPerReplica(n+1)) {
			t.Errorf("the newcomer to %d gets %.1f shards on average", n, mean)
		}
		if mean := float64(others) / rounds; mean > 10 {
			t.Errorf("when one comes to %d, %.1f other shards move on average", n, mean)
		}
		t.Logf("%2d replicas and one more: it gets %.1f, %.1f others move", n,
			float64(gained)/rounds, float64(others)/rounds)
	}
}

func FuzzAssign(f *testing.F) {
	f.Add("a b c")
	f.Add("")
	f.Add("x x x y")
	f.Fuzz(func(t *testing.T, text string) {
		names := strings.Fields(text)
		holders := Assign(names)
		shuffled := slices.Clone(names)
		slices.Reverse(shuffled)
		if again := Assign(append(shuffled, names...)); again != holders {
			t.Fatal("the order of names, or how often one is said, matters")
		}
		different := len(slices.Compact(slices.Sorted(slices.Values(names))))
		for name, count := range countByReplica(holders) {
			if different > 0 && (count > maxShardsPerReplica(different) || !slices.Contains(names, name)) {
				t.Fatalf("%q has %d of %d shards; there are %d replicas", name, count, Count, different)
			}
		}
	})
}
