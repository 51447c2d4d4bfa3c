package shardcache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
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

	informer memoryInformer

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
	return &c.informer, nil
}

// memoryInformer keeps its handlers, to which the test passes events.
type memoryInformer struct {
	cache.Informer
	handlers []toolscache.ResourceEventHandler
}

func (i *memoryInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (
	toolscache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, h)
	return nil, nil //nolint:nilnil // not used
}

func (c *memoryCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (c *memoryCache) WaitForCacheSync(context.Context) bool { return true }

// replica is a Cache whose shards are caches in memory.
type replica struct {
	*Cache
	base   *memoryCache
	shards map[int]*memoryCache
}

// newReplica returns a Cache with the open shards of the given Kymas. Each Kyma has one Manifest.
func newReplica(t *testing.T, kymas ...string) replica {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1beta2.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	r := replica{shards: map[int]*memoryCache{}}
	withObjects := func(objects ...client.Object) *memoryCache {
		return &memoryCache{content: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
			WithIndex(&v1beta2.Manifest{}, kymaName, func(o client.Object) []string {
				return []string{o.GetLabels()[v1beta2.LabelKymaName]}
			}).Build()}
	}
	r.base = withObjects(&corev1.Secret{ObjectMeta: secretOf("kyma-a").ObjectMeta},
		&corev1.Secret{ObjectMeta: secretOf("kyma-b").ObjectMeta})
	var err error
	r.Cache, err = NewCache(CacheOptions{
		Base: r.base, Scheme: scheme, KymaIndex: kymaName,
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
		ReplayedKinds:  []client.Object{secretOf("")},
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

// secretOf returns the metadata of the access Secret of a Kyma.
func secretOf(kyma string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kyma + "-access",
		Labels: map[string]string{v1beta2.LabelKymaName: kyma}}}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}

// TestSecretsOfOpenShards checks that a handler of access Secrets receives only the Secrets of Kymas whose shards are
// open, and all of them when a shard is opened or closed.
func TestSecretsOfOpenShards(t *testing.T) {
	r := newReplica(t, "kyma-a")
	informer, err := r.GetInformer(t.Context(), secretOf(""))
	if err != nil {
		t.Fatal(err)
	}
	var received []string
	record := func(what string) func(any) {
		return func(raw any) {
			if left, is := raw.(toolscache.DeletedFinalStateUnknown); is {
				raw = left.Obj
			}
			received = append(received, what+" "+raw.(client.Object).GetName())
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: record("add"),
		UpdateFunc: func(_, now any) { record("update")(now) }, DeleteFunc: record("delete")}); err != nil {
		t.Fatal(err)
	}
	expect := func(reason string, want ...string) {
		t.Helper()
		if !slices.Equal(received, want) {
			t.Errorf("%s: the handler received %q, want %q", reason, received, want)
		}
		received = nil
	}
	events, a, b := r.base.informer.handlers[0], secretOf("kyma-a"), secretOf("kyma-b")
	other := secretOf("kyma-b")
	other.Name = a.Name

	events.OnAdd(a, true)
	events.OnAdd(b, true)
	expect("no shard is open yet")
	r.AnnounceShard(shard.Of("kyma-a"))
	expect("the shard of kyma-a is opened", "add kyma-a-access")
	events.OnUpdate(a, a)
	events.OnUpdate(b, b)
	expect("only the shard of kyma-a is open", "update kyma-a-access")
	events.OnUpdate(a, other)
	events.OnUpdate(other, a)
	expect("a Secret moves from one Kyma to another one", "update kyma-a-access", "update kyma-a-access")
	events.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: b})
	events.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: a})
	expect("deletions that were noticed late", "delete kyma-a-access")
	r.Close(shard.Of("kyma-a"))
	expect("the shard of kyma-a is closed", "delete kyma-a-access")
	events.OnAdd(a, false)
	events.OnUpdate(a, a)
	expect("the shard of kyma-a is not open any more")
}

// TestOneHandlerForEachShard checks that the informer of a shard has one handler, however many controllers there are,
// and that each controller receives each event once.
func TestOneHandlerForEachShard(t *testing.T) {
	r := newReplica(t, "kyma-a")
	informer, err := r.GetInformer(t.Context(), &v1beta2.Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	register := func(controller string) {
		t.Helper()
		count := func(what string) func(any) { return func(any) { counts[controller+" "+what]++ } }
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: count("add"),
			UpdateFunc: func(_, now any) { count("update")(now) }, DeleteFunc: count("delete")}); err != nil {
			t.Fatal(err)
		}
	}
	register("kyma")
	register("manifest")
	register("orphan")
	r.AnnounceShard(shard.Of("kyma-a"))
	of := &r.shards[shard.Of("kyma-a")].informer
	if n := len(of.handlers); n != 1 {
		t.Fatalf("the informer of the shard has %d handlers, want 1", n)
	}
	register("late")
	if n := len(of.handlers); n != 2 {
		t.Fatalf("the informer of the shard has %d handlers after a late one, want 2", n)
	}
	m := &v1beta2.Manifest{}
	for _, h := range of.handlers {
		h.OnAdd(m, true)
		h.OnUpdate(m, m)
		h.OnDelete(m)
	}
	want := map[string]int{}
	for _, controller := range []string{"kyma", "manifest", "orphan", "late"} {
		for _, what := range []string{"add", "update", "delete"} {
			want[controller+" "+what] = 1
		}
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("received events -want +got:\n%s", diff)
	}
}

// TestStripToIdentifyingMetadata checks that the metadata that distinguish a Kyma from a former one, and the time of
// revocation, stay.
func TestStripToIdentifyingMetadata(t *testing.T) {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "uid",
		ResourceVersion: "1", CreationTimestamp: metav1.Unix(1_800_000_000, 0), Generation: 2,
		Labels:        map[string]string{v1beta2.LabelRuntimeID: "id", "other": "label"},
		Annotations:   map[string]string{v1beta2.AnnotationCertificatesNotBefore: "time", "other": "annotation"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	want := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "uid",
		ResourceVersion: "1", CreationTimestamp: metav1.Unix(1_800_000_000, 0),
		Labels:      map[string]string{v1beta2.LabelRuntimeID: "id"},
		Annotations: map[string]string{v1beta2.AnnotationCertificatesNotBefore: "time"}}}
	got, err := StripToIdentifyingMetadata(o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
