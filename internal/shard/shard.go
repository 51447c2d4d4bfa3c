// Package shard divides the runtimes of a fleet among the replicas of the manager, so that exactly one replica works on
// each runtime.
//
// # Use
//
//	k, err := shard.New(shard.Options{Leases: …, Name: host, Open: …, Opened: …, Close: …})
//	err = k.Start(ctx)                                 // a Runnable of controller-runtime, on all replicas
//	ctx, done, held := k.BeginReconcile(ctx, "kyma-a") // at the start of a reconcile
//	err = shard.CheckHeld(ctx)                         // before each write; FencedTransport does this for HTTP clients
//
// A nil *Keeper holds all shards. A nil *Keeper is for a single replica, and costs nothing.
//
// # How it works
//
// A runtime belongs to one of Count shards. The name of the Kyma determines the shard (Of). The names of the running
// replicas determine the replica of each shard (Assign: rendezvous hashing), so replicas need not negotiate. Leases of
// coordination.k8s.io show which replicas are running and which shards they hold. Every replica watches all these
// Leases:
//
//	lifecycle-manager-replica-…   one for each replica, which renews it. It contains the address of the replica's listener
//	lifecycle-manager-shard-NN    one for each shard, with its holder. It is written when the holder changes, and is never renewed
//
// The Lease of a replica covers all shards that the replica holds. So a replica whose shards do not change writes once
// in a third of Duration. The number of shards does not matter. The rules are:
//
//	a replica may act             for two thirds of Duration after the start of its last successful renewal, by its own monotonic clock
//	a replica is considered dead  when its Lease has not changed for Duration, by the clock of the observer. The first observer deletes the
//	                              Lease, unless the Lease has changed in the meantime
//	a shard is free               when it has no holder, or when the Lease of its holder does not exist
//
// If the Lease of a replica was deleted or was not renewed in time, the replica releases all shards and joins again
// under another name.
//
// Two replicas never hold a shard at the same time, for three reasons. No Lease gets the name of a deleted Lease. One
// watch shows all Leases in the order of their writes. Every write is conditional on the version that it replaces. The
// clocks of replicas may differ, as long as they run at about the same speed. A replica that was suspended for an hour
// detects by its own clock that it has lost its shards.
//
// Once the network works again and no replica starts or ends, every shard has one holder within two Durations, and
// keeps it. For this, a replica releases each shard whose Lease names the replica although the replica does not have
// the shard: the answer to its write was lost.
//
// A shard moves in two steps. First, its holder starts no more reconciles, cancels the running reconciles, waits until
// they have ended, drops the cache of the shard, and clears the holder in the Lease of the shard. Then the next holder
// receives this change, writes itself into the Lease, and fills its cache. A replica that shuts down ends its
// reconciles in the same way. The replica then deletes its own Lease, which frees all its shards at once.
//
// Package shardcache limits the caches and clients of a controller-runtime manager to the shards of its replica.
//
// # What it does not do
//
// Assign does not balance by load: all runtimes have the same weight. The package cannot withdraw a request that was
// sent before the process was suspended. Such a request was sent while the Lease was valid.
package shard

import (
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"
)

// Count is the number of shards. Count is the same in all replicas and must never change, because labels and Leases
// depend on it.
const Count = 64

// Of returns the number of the shard of the Kyma with this name.
func Of(kyma string) int {
	return int(weight(kyma, "") % Count)
}

// LabelValue returns the value of the label v1beta2.LabelShard for a Kyma and its Manifests.
func LabelValue(kyma string) string { return strconv.Itoa(Of(kyma)) }

// weight returns a hash of two names with evenly distributed bits. The hash function must never change, because Of
// depends on it.
func weight(a, b string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(b))
	// FNV alone hardly mixes the last bytes into the high bits. Therefore the final steps of splitmix64 follow.
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// maxShards returns the maximum number of shards that each of n replicas can hold: a quarter more than an equal share.
func maxShards(n int) int { return (Count*5 + 4*n - 1) / (4 * n) }

// Assign returns the replica of each shard, or "" if there are no replicas. The result depends only on the set of
// names.
//
// Hashing gives each replica a weight for each shard. Assign gives a shard to the replica with the largest weight. So
// when a replica starts or ends, only the shards of that replica move. Weights alone would give some replicas twice as
// many shards as others. Therefore no replica gets more than a quarter above an equal share. A shard above that limit
// goes to the replica with the next largest weight. This limit causes a few more moves.
func Assign(replicas []string) (holders [Count]string) {
	replicas = slices.Compact(slices.Sorted(slices.Values(replicas)))
	if len(replicas) == 0 {
		return holders
	}
	limit, held := maxShards(len(replicas)), make([]int, len(replicas))
	for s := range holders {
		// Shards are assigned in a mixed but fixed order. Otherwise shards with neighbouring numbers would always be
		// assigned last.
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
