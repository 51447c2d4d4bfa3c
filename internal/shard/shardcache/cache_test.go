package shardcache

import (
	"context"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

const (
	namespace = "kcp-system"
	kymaName  = "kyma-name" // the index
)

// memoryCache is a cache with the objects of a fake client. memoryCache counts its reads.
type memoryCache struct {
	cache.Cache
	content client.Client

	mu    sync.Mutex
	reads int // guarded by mu
}

func (c *memoryCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.count()
	return c.content.Get(ctx, key, o, opts...)
}

func (c *memoryCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.count()
	return c.content.List(ctx, list, opts...)
}

func (c *memoryCache) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
}

func (c *memoryCache) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

func (c *memoryCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, nil //nolint:nilnil // the Cache only prepares the informer
}

func (c *memoryCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (c *memoryCache) WaitForCacheSync(context.Context) bool { return true }

// replica is a Cache whose shards are caches in memory.
type replica struct {
	*Cache
	shards map[int]*memoryCache
}

// newReplica returns a Cache with the open shards of the given Kymas. Each Kyma has one Manifest.
func newReplica(t *testing.T, kymas ...string) replica {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := replica{shards: map[int]*memoryCache{}}
	withObjects := func(objects ...client.Object) *memoryCache {
		return &memoryCache{content: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
			WithIndex(&v1beta2.Manifest{}, kymaName, func(o client.Object) []string {
				return []string{o.GetLabels()[v1beta2.LabelKymaName]}
			}).Build()}
	}
	var err error
	r.Cache, err = NewCache(CacheOptions{
		Base: withObjects(), Scheme: scheme, KymaIndex: kymaName,
		NewShardCache: func(n int) (cache.Cache, error) {
			var objects []client.Object
			for _, name := range kymas {
				if shard.Of(name) != n {
					continue
				}
				objects = append(objects,
					&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
					&v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-module",
						Labels: map[string]string{v1beta2.LabelKymaName: name}}})
			}
			r.shards[n] = withObjects(objects...)
			return r.shards[n], nil
		},
		NewShardClient: func(cache.Cache) (client.Client, error) { return nil, nil }, //nolint:nilnil // not used
		ShardedKinds:   []client.Object{&v1beta2.Kyma{}, &v1beta2.Manifest{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range kymas {
		if r.shards[shard.Of(name)] == nil {
			if err := r.Open(t.Context(), shard.Of(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return r
}

// takeReads returns the number of reads by shard since the last call.
func (r replica) takeReads() (total int, shards []int) {
	for n, c := range r.shards {
		c.mu.Lock()
		if c.reads > 0 {
			total += c.reads
			shards = append(shards, n)
		}
		c.reads = 0
		c.mu.Unlock()
	}
	slices.Sort(shards)
	return total, shards
}

// TestReadsOfOneKyma checks that reads of one Kyma outside of a reconcile ask only the cache of its shard.
func TestReadsOfOneKyma(t *testing.T) {
	kymas := []string{"kyma-a", "kyma-b", "kyma-c", "kyma-d"}
	r := newReplica(t, kymas...)
	if len(r.shards) < 3 {
		t.Fatalf("the Kymas are in %d shards, want at least 3", len(r.shards))
	}
	for _, name := range kymas {
		k := &v1beta2.Kyma{}
		if err := r.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, k); err != nil {
			t.Fatal(err)
		}
		if total, from := r.takeReads(); total != 1 || from[0] != shard.Of(name) {
			t.Errorf("Kyma %s was read by %d reads of the shards %d, want one of %d", name, total, from, shard.Of(name))
		}
		var list v1beta2.ManifestList
		if err := r.List(t.Context(), &list, client.InNamespace(namespace),
			client.MatchingFields{kymaName: name}); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Name != name+"-module" {
			t.Errorf("the Manifests of Kyma %s are %v", name, list.Items)
		}
		if total, from := r.takeReads(); total != 1 || from[0] != shard.Of(name) {
			t.Errorf("the Manifests of %s were read by %d reads of the shards %d, want one of %d", name, total, from,
				shard.Of(name))
		}
	}
}

// TestReadsOfFleet checks that other reads outside of a reconcile return the objects of all open shards.
func TestReadsOfFleet(t *testing.T) {
	kymas := []string{"kyma-a", "kyma-b", "kyma-c", "kyma-d"}
	r := newReplica(t, kymas...)
	var all v1beta2.KymaList
	if err := r.List(t.Context(), &all, client.InNamespace(namespace)); err != nil || len(all.Items) != len(kymas) {
		t.Errorf("%d Kymas (%v), want %d", len(all.Items), err, len(kymas))
	}
	m := &v1beta2.Manifest{} // the name of a Manifest does not say to which Kyma it belongs
	if err := r.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "kyma-d-module"}, m); err != nil {
		t.Error(err)
	}
}

// TestReadsOfOtherReplica checks reads of a Kyma whose shard is not open: it is not found, as if it did not exist.
func TestReadsOfOtherReplica(t *testing.T) {
	r := newReplica(t, "kyma-a", "kyma-b")
	other := "kyma-c"
	if r.shards[shard.Of(other)] != nil {
		t.Fatalf("the shard of %s is open", other)
	}
	err := r.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: other}, &v1beta2.Kyma{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the read returned %v, want NotFound", err)
	}
	list := v1beta2.ManifestList{Items: []v1beta2.Manifest{{}}}
	err = r.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingFields{kymaName: other})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%d Manifests (%v), want none", len(list.Items), err)
	}
	if total, from := r.takeReads(); total != 0 {
		t.Errorf("%d reads of the shards %d, want none", total, from)
	}
}
