package shard

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is a lock of leader election whose Lease is in memory.
type lock struct {
	resourcelock.Interface
	me     string
	holder *atomic.Value // string
}

func (l *lock) Identity() string { return l.me }

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder.Load().(string)}, nil, nil
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *lock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.holder.Store(r.HolderIdentity)
	return nil
}

// TestShardedAndUnsharded checks that replicas with shards and replicas without shards never work at the same time,
// whichever kind starts first.
func TestShardedAndUnsharded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var holder atomic.Value
		holder.Store("")
		f := newFleet(t, 8)
		defer f.close()
		single := UnshardedLeaderLock(&lock{me: "single", holder: &holder}, &line{server: f.server})
		lead := func(l resourcelock.Interface, who string) error {
			return l.Update(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: who})
		}
		if err := lead(single, "single"); err != nil {
			t.Fatalf("alone, it cannot lead: %v", err)
		}
		several := &lock{me: ShardedLeaderIdentity("several"), holder: &holder}
		f.start(func(o *Options) { o.Gate = ShardedLeaderGate(several) })
		f.checkHolders(time.Minute)
		if f.countHeld() != 0 {
			t.Error("shards are worked on while the leader works on all")
		}
		if err := lead(single, "single"); err != nil {
			t.Errorf("a leader may not renew: %v", err)
		}
		if err := lead(single, ""); err != nil { // it ends
			t.Error(err)
		}
		if err := single.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: "single"}); err == nil {
			t.Error("it leads beside replicas with shards")
		}
		if err := lead(several, several.me); err != nil {
			t.Error(err)
		}
		f.awaitAllHeld(5 * time.Second)
		if err := lead(single, "single"); err == nil {
			t.Error("it leads beside replicas with shards")
		}
		f.kill(0)
		if err := lead(single, "single"); err == nil {
			t.Error("it leads although a replica may only have been slow")
		}
		f.checkHolders(13 * time.Second)
		if err := lead(single, "single"); err != nil {
			t.Errorf("a replica that is dead is in the way: %v", err)
		}
	})
}
