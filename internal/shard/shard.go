// Package shard splits the runtimes of a fleet among the replicas of the manager, so that exactly one replica works on each.
//
// # Use
//
//	k, err := shard.New(shard.Options{Leases: …, Name: host, Open: …, Opened: …, Close: …})
//	err = k.Start(ctx)                          // a Runnable of controller-runtime, on all replicas
//	ctx, leave, ours := k.BeginReconcile(ctx, "kyma-a")  // at the beginning of a pass
//	err = shard.CheckHeld(ctx)                      // before anything is written; Transport does that for HTTP clients
//
// A nil *Keeper is one that holds everything: there is one replica then, and it costs nothing.
//
// # How it works
//
// A runtime belongs to one of Count shards by the name of its Kyma (Of); which replica is to have a shard follows from the names of the
// replicas that there are (Assign: rendezvous hashing). So nobody is asked and nothing is negotiated. Who is there, and who has what, is
// said by Leases of coordination.k8s.io, which everybody watches:
//
//	lifecycle-manager-replica-…   one for each replica, renewed by it: a sign of life, with the address of its listener
//	lifecycle-manager-shard-NN    one for each shard: who holds it. It is written when it changes hands, and never renewed
//
// The Lease of a replica decides about all shards that it holds, which keeps the idle cost at one write for each replica in a third of
// Duration, however many shards there are:
//
//	a replica works            as long as its last renewal was begun less than two thirds of Duration ago, by its own monotonic clock
//	a replica counts as dead   when its Lease has not changed for a whole Duration, by the clock of whoever looks; who finds that first deletes
//	                           the Lease, if it still is what was looked at
//	a shard is free            when it has no holder, or one whose Lease does not exist
//
// A replica that finds its Lease deleted, or could not renew it in time, gives up all that it held and comes back under another name. A name is
// never used twice, so "does not exist" never changes back; one watch shows all Leases in the order in which they were written; and every
// write names the version that it replaces. So two replicas never hold a shard at the same time: clocks may differ as they like, as long as a second
// is about a second, and a replica that was stopped for an hour learns from its own clock that it has lost everything.
//
// A shard changes hands like this: its holder lets nobody begin a pass, cancels those under way, waits until they have ended, drops what
// it has cached, and writes the Lease. The heir sees that, writes itself into the Lease, and fills its cache. At a clean exit, passes end
// likewise, and then the replica's own Lease goes, which sets all its shards free at once.
//
// [Cache] and [Client] are the view of a controller-runtime manager on the shards that are held: of Kymas and Manifests, one small cache
// for each shard, selected by label. [Labeler] writes the label where it is missing.
//
// # What it does not do
//
// It does not balance by load: a runtime is a runtime. It cannot call back a request that has left for the network when the process is
// stopped: what arrives then was begun while the Lease was valid.
package shard

import (
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"
)

// Count is the number of shards. It is the same in all replicas and never changes: labels and Leases are made of it.
const Count = 64

// Of returns the shard of a runtime, by the name of its Kyma.
func Of(kyma string) int {
	return int(weight(kyma, "") % Count)
}

// LabelValue returns the value of the label v1beta2.LabelShard for what belongs to a Kyma.
func LabelValue(kyma string) string { return strconv.Itoa(Of(kyma)) }

// weight mixes two names into a number of which each bit looks like chance. It must never change: see Of.
func weight(a, b string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(b))
	// FNV alone hardly mixes its last bytes into the high bits; this is the end of splitmix64.
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// most is how many shards one of n replicas has at most: a quarter more than an equal share.
func most(n int) int { return (Count*5 + 4*n - 1) / (4 * n) }

// Assign returns the replica that is to have each shard, "" if there are no replicas. It depends on the set of names alone.
//
// Each replica has a weight for each shard, by hashing, and a shard goes to the heaviest; so when a replica comes or goes, only shards change hands that
// it gets or had. Chance would give one replica twice as many as another now and then. Therefore nobody gets more than a quarter above
// the equal share: what is too much goes to the next in weight, which moves a few shards more.
func Assign(replicas []string) (holders [Count]string) {
	replicas = slices.Compact(slices.Sorted(slices.Values(replicas)))
	if len(replicas) == 0 {
		return holders
	}
	limit, held := most(len(replicas)), make([]int, len(replicas))
	for s := range holders {
		// Shards choose in an order that is chance, too, and never changes, so that no neighbours are always the last.
		s = int(bits.Reverse8(uint8(s)) >> 2)
		name, best, chosen := strconv.Itoa(s), uint64(0), -1
		for i, replica := range replicas {
			if w := weight(replica, name); held[i] < limit && (chosen < 0 || w > best) {
				best, chosen = w, i
			}
		}
		held[chosen]++
		holders[s] = replicas[chosen]
	}
	return holders
}
