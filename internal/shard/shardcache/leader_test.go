package shardcache

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// slowCache is a cache that is filled when the test says so.
type slowCache struct {
	cache.Cache
	starts, lists atomic.Int32
	filled        chan struct{}
}

func (c *slowCache) Start(ctx context.Context) error {
	c.starts.Add(1)
	<-ctx.Done()
	return nil
}

func (c *slowCache) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-c.filled:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *slowCache) List(context.Context, client.ObjectList, ...client.ListOption) error {
	c.lists.Add(1)
	select {
	case <-c.filled:
		return nil
	default:
		return errors.New("read before the cache was filled")
	}
}

// TestLeaderCache checks that a leader starts the cache with the first read, once, and that no read is answered before
// the cache is filled.
func TestLeaderCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slowCache{filled: make(chan struct{})}
		l := NewLeaderCache(inner)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = l.Start(ctx) }()
		synctest.Wait()
		if n := inner.starts.Load(); n != 0 {
			t.Fatalf("%d starts before the first read, want none", n)
		}
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- l.List(ctx, &v1beta2.ManifestList{}) }()
		}
		synctest.Wait()
		if starts, lists := inner.starts.Load(), inner.lists.Load(); starts != 1 || lists != 0 {
			t.Fatalf("%d starts and %d answers before the cache is filled, want 1 and 0", starts, lists)
		}
		close(inner.filled)
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if starts, lists := inner.starts.Load(), inner.lists.Load(); starts != 1 || lists != 2 {
			t.Errorf("%d starts and %d answers, want 1 and 2", starts, lists)
		}
	})
}

// TestLeaderCacheOfFollower checks that the cache of a replica that does not lead answers nothing: an empty answer
// would mean that there is no runtime.
func TestLeaderCacheOfFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slowCache{filled: make(chan struct{})}
		l := NewLeaderCache(inner)
		ctx, stop := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- l.List(ctx, &v1beta2.ManifestList{}) }()
		synctest.Wait()
		stop()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("the read returned %v, want the end of its context", err)
		}
		if starts, lists := inner.starts.Load(), inner.lists.Load(); starts != 0 || lists != 0 {
			t.Errorf("%d starts and %d answers, want none", starts, lists)
		}
	})
}

// TestLeaderCacheRunsOnLeader checks by which methods controller-runtime decides where the cache runs.
func TestLeaderCacheRunsOnLeader(t *testing.T) {
	var l ctrlmanager.Runnable = NewLeaderCache(&slowCache{})
	if of, is := l.(ctrlmanager.LeaderElectionRunnable); !is || !of.NeedLeaderElection() {
		t.Error("the cache runs on all replicas")
	}
	if _, is := l.(interface{ GetCache() cache.Cache }); is {
		t.Error("the manager starts the cache before the leader is elected")
	}
}
