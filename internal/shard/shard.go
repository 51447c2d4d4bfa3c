// Package shard divides the runtimes of a fleet among the replicas of the manager, so that exactly one replica works on
// each runtime.
//
// # Use
//
//	k, err := shard.New(shard.Options{Leases: …, Name: host, Open: …, Opened: …, Close: …})
//	err = k.Start(ctx)                                 // a Runnable of controller-runtime, on all replicas
//	ctx, done, held := k.BeginReconcile(ctx, "kyma-a") // at the start of a reconcile
//	err = shard.CheckHeld(ctx)                         // before each write; FencedTransport does that for HTTP clients
//
// A nil *Keeper has all shards: it stands for a single replica, and costs nothing.
//
// # How it works
//
// A runtime belongs to one of Count shards, by the name of its Kyma (Of). The names of the running replicas determine
// which replica gets which shard (Assign: rendezvous hashing), so that replicas need not negotiate. Leases of
// coordination.k8s.io show which replicas are running and which shards they have; every replica watches all of them:
//
//	lifecycle-manager-replica-…   one for each replica, which renews it. It has the address of the replica's listener
//	lifecycle-manager-shard-NN    one for each shard, with its holder. It is written when the holder changes, and never renewed
//
// The Lease of a replica covers all shards that it holds. So a replica that changes nothing writes once in a third of
// Duration, however many shards there are:
//
//	a replica may act             while its last renewal was started less than two thirds of Duration ago, by its own monotonic clock
//	a replica is considered dead  when its Lease has not changed for Duration, by the clock of the observer. The first observer deletes the Lease,
//	                              if it has not changed since
//	a shard is free               when it has no holder, or one whose Lease does not exist
//
// A replica whose Lease was deleted, or not renewed in time, releases all shards and joins again under another name. No
// name is used twice, so a Lease that does not exist never exists again; one watch shows all Leases in the order of
// their writes; and every write is conditional on the version that it replaces. So two replicas never hold a shard at
// the same time. Clocks may show different times, as long as they run at about the same speed, and a replica that was
// stopped for an hour finds out by its own clock that it has lost its shards.
//
// A shard moves like this: its holder starts no more reconciles, cancels running ones, waits until they have ended,
// drops the cache of the shard, and clears the holder in its Lease. The next holder receives that, writes itself into
// the Lease, and fills its cache. When a replica ends, its reconciles end in the same way; then it deletes its own
// Lease, which frees all its shards at once.
//
// [Cache] and [Client] show a controller-runtime manager the shards that its replica has: Kymas and Manifests are in
// one small cache for each shard, selected by label. [Labeler] writes the label where it is missing.
//
// # What it does not do
//
// It does not balance by load: all runtimes count the same. It cannot withdraw a request that was sent before the
// process is stopped: such a request was sent while the Lease was valid.
package shard

import (
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"
)

// Count is the number of shards. It is the same in all replicas and must never change, because labels and Leases depend
// on it.
const Count = 64

// Of returns the number of the shard of a Kyma, by its name.
func Of(kyma string) int {
	return int(weight(kyma, "") % Count)
}

// LabelValue returns the value of the label v1beta2.LabelShard for a Kyma and its Manifests.
func LabelValue(kyma string) string { return strconv.Itoa(Of(kyma)) }

// weight returns a hash of two names with evenly distributed bits. It must never change: see Of.
func weight(a, b string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(b))
	// FNV alone hardly mixes the last bytes into the high bits. These are the final steps of splitmix64.
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// maxShards returns the largest number of shards of one of n replicas: a quarter more than an equal share.
func maxShards(n int) int { return (Count*5 + 4*n - 1) / (4 * n) }

// Assign returns the replica of each shard, "" if there are no replicas. The result depends on the set of names alone.
//
// Each replica has a weight for each shard, by hashing, and a shard is assigned to the replica with the largest weight.
// So when a replica starts or ends, only shards move that it gets or had. Weights alone would give some replicas twice
// as many shards as others. Therefore no replica gets more than a quarter above the equal share; the next replica by
// weight gets the others, which moves a few more shards.
func Assign(replicas []string) (holders [Count]string) {
	replicas = slices.Compact(slices.Sorted(slices.Values(replicas)))
	if len(replicas) == 0 {
		return holders
	}
	limit, held := maxShards(len(replicas)), make([]int, len(replicas))
	for s := range holders {
		// Shards are assigned in a mixed but fixed order, so that neighbours are not always assigned last.
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
