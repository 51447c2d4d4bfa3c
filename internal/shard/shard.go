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
// A nil *Keeper holds all shards. Use a nil *Keeper if there is only one replica; it sends no requests.
//
// # How it works
//
// A runtime belongs to one of Count shards. The name of the Kyma determines the shard (function Of). The names of the
// running replicas determine to which replica each shard belongs (function Assign: rendezvous hashing), so replicas
// need not negotiate. Leases of coordination.k8s.io show which replicas are running and which shards they hold. Every
// replica watches all Leases of replicas and all Leases of shards:
//
//	lifecycle-manager-replica-…   one for each replica, which renews it. It contains the address of the replica's listener
//	lifecycle-manager-shard-NN    one for each shard, with its holder. It is written when the holder changes, and is never renewed
//
// The Lease of a replica covers all shards that the replica holds. A replica whose shards do not change therefore
// writes only its own Lease, once in a third of Options.Duration, however many shards it holds. These are the rules:
//
//	a replica may act             for two thirds of Duration after the start of its last successful renewal, by its own monotonic clock
//	a replica is considered dead  when its Lease has not changed for Duration, by the clock of the observer. The first observer deletes the
//	                              Lease, unless the Lease has changed in the meantime
//	a shard is free               when it has no holder, or when the Lease of its holder does not exist
//
// If the Lease of a replica was deleted or was not renewed in time, the replica releases all its shards and joins again
// under another name.
//
// Two replicas never hold a shard at the same time, for three reasons. The first reason is that each Lease of a replica
// has a new name, which no deleted Lease had. The second reason is that one watch shows all Leases in the order of
// their writes. The third reason is that every write contains the resourceVersion that it replaces, and fails if the
// Lease has changed since. The clocks of replicas may differ, as long as they run at about the same speed. A replica
// that was suspended for an hour detects by its own clock that it has lost its shards.
//
// When the network has recovered, and no replica starts or ends, every shard has one holder after at most twice
// Options.Duration, and keeps this holder. A replica may have written itself into the Lease of a shard without
// receiving the answer to the write. Therefore a replica releases a shard whose Lease contains its name although the
// replica does not hold the shard, so that the shard can get a holder.
//
// A shard moves to another replica in two steps. In the first step, the old holder of the shard starts no more
// reconciles, cancels the running reconciles, waits until they have ended, drops the cache of the shard, and removes
// itself from the Lease of the shard. In the second step, the next holder receives the change of the Lease, writes
// itself into the Lease, and fills its cache. A replica that shuts down also cancels its reconciles and waits until
// they have ended. When its reconciles have ended, the replica deletes its own Lease, which frees all its shards at
// once.
//
// Package shardcache limits the caches and clients of a controller-runtime manager to the shards of its replica.
//
// # What it does not do
//
// Assign does not balance the load: all runtimes have the same weight. If the manager process is suspended, a request
// that it has sent before may reach an API server after the Lease has expired, and the package cannot prevent this. A
// request that arrives after the expiry does no harm, because the Lease was valid when the request was sent.
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

// Of returns the number of the shard to which the Kyma with this name belongs.
func Of(kyma string) int {
	return int(weight(kyma, "") % Count)
}

// LabelValue returns the value of the label v1beta2.LabelShard on a Kyma and its Manifests.
func LabelValue(kyma string) string { return strconv.Itoa(Of(kyma)) }

// weight returns a hash of two names whose bits are evenly distributed. The hash function must never change, because
// otherwise the function Of would assign Kymas to other shards.
func weight(a, b string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(b))
	// FNV alone hardly mixes the last bytes into the high bits of the hash. Therefore the final steps of the splitmix64
	// generator mix all bits of the FNV hash.
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// maxShardsPerReplica returns the maximum number of shards that each replica can hold, for a number of replicas: a
// quarter more than an equal share.
func maxShardsPerReplica(replicas int) int { return (Count*5 + 4*replicas - 1) / (4 * replicas) }

// Assign returns the replica of each shard, or "" if there are no replicas. The assignment depends only on the set of
// the replicas' names, so every replica computes the same assignment.
//
// Hashing gives each replica a weight for each shard. Assign gives a shard to the replica with the largest weight. When
// a replica starts or ends, only the shards of this replica therefore move. If only the weights decided, some replicas
// would get twice as many shards as others. Therefore no replica gets more than maxShardsPerReplica. If the replica
// with the largest weight already has the maximum number of shards, the shard goes to the replica with the next largest
// weight. Because of the limit maxShardsPerReplica, a few more shards move than if only the weights decided.
func Assign(replicas []string) (holders [Count]string) {
	replicas = slices.Compact(slices.Sorted(slices.Values(replicas)))
	if len(replicas) == 0 {
		return holders
	}
	limit, held := maxShardsPerReplica(len(replicas)), make([]int, len(replicas))
	for s := range holders {
		// Shards are assigned in a shuffled order, which is always the same. When the last shards are assigned, many
		// replicas have reached their limit. In the order of their numbers, these last shards would always be shards
		// with neighbouring numbers.
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
