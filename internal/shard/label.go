package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Selector returns the objects of one shard.
func Selector(shard int) labels.Selector {
	return labels.SelectorFromSet(labels.Set{v1beta2.LabelShard: strconv.Itoa(shard)})
}

// UnassignedSelector returns the objects that are of no shard: those without label, and those with one that says nothing.
func UnassignedSelector() (labels.Selector, error) {
	values := make([]string, Count)
	for shard := range values {
		values[shard] = strconv.Itoa(shard)
	}
	none, err := labels.NewRequirement(v1beta2.LabelShard, selection.NotIn, values)
	if err != nil {
		return nil, fmt.Errorf("selecting objects without shard: %w", err)
	}
	return labels.NewSelector().Add(*none), nil
}

// LabelerOptions are what a Labeler works with. All but Log are needed.
type LabelerOptions struct {
	// Keeper holds the shards.
	Keeper *Keeper
	// Cache has the objects of the shards that are held.
	Cache *Cache
	// Unassigned has the metadata of the Kymas and Manifests that UnassignedSelector selects. It is not started yet.
	Unassigned cache.Cache
	// Client writes, without a cache.
	Client client.Client
	// Log gets a line for each object that cannot be labelled.
	Log logr.Logger
}

// Labeler gives Kymas and Manifests the label of their shard where it is missing, or wrong. That of a Kyma without is the business of the replica that
// holds the shard that it should have; a wrong one is that of the replica that sees it. Manifests go before their Kyma, so that nobody
// works on a Kyma whose Manifests cannot be seen yet.
type Labeler struct {
	LabelerOptions
	queue workqueue.TypedRateLimitingInterface[unlabelled]
}

// unlabelled is an object without its label. The zero value stands for all of them.
type unlabelled struct {
	kind  string // v1beta2.KindKyma or KindManifest
	key   types.NamespacedName
	uid   types.UID
	kyma  string
	wrong bool // it has the label of another shard, which is held
}

// strangerIndex finds Manifests by their Kyma.
const strangerIndex = "shard.kyma"

// labellers is how many objects are labelled at the same time. There are many only when sharding is switched on.
const labellers = 8

// NewLabeler checks options and prepares what is watched. It makes no request.
func NewLabeler(ctx context.Context, o LabelerOptions) (*Labeler, error) {
	if o.Keeper == nil || o.Cache == nil || o.Unassigned == nil || o.Client == nil {
		return nil, errors.New("making what labels objects with their shard: options need Keeper, Cache, Strangers and Client")
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	l := &Labeler{LabelerOptions: o}
	l.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[unlabelled](100*time.Millisecond, 30*time.Second))
	err := o.Unassigned.IndexField(ctx, slim(v1beta2.KindManifest), strangerIndex, func(o client.Object) []string { return []string{o.GetLabels()[v1beta2.LabelKymaName]} })
	if err != nil {
		return nil, fmt.Errorf("indexing Manifests without shard: %w", err)
	}
	for _, kind := range []string{v1beta2.KindManifest, v1beta2.KindKyma} {
		without, err := o.Unassigned.GetInformer(ctx, slim(kind), cache.BlockUntilSynced(false))
		if err == nil {
			_, err = without.AddEventHandler(l.seen(kind, false))
		}
		if err != nil {
			return nil, fmt.Errorf("watching objects without shard: %w", err)
		}
	}
	for kind, with := range map[string]client.Object{v1beta2.KindManifest: &v1beta2.Manifest{}, v1beta2.KindKyma: &v1beta2.Kyma{}} {
		held, err := o.Cache.GetInformer(ctx, with)
		if err == nil {
			_, err = held.AddEventHandler(l.seen(kind, true))
		}
		if err != nil {
			return nil, fmt.Errorf("watching objects of shards: %w", err)
		}
	}
	o.Keeper.OnOpened(l.opened)
	return l, nil
}

// slim returns an object of which only metadata is read.
func slim(kind string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(kind))
	return m
}

// NeedLeaderElection says that all replicas label.
func (l *Labeler) NeedLeaderElection() bool { return false }

// Start labels until the end of ctx.
func (l *Labeler) Start(ctx context.Context) error {
	var working sync.WaitGroup
	for range labellers {
		working.Go(func() {
			for {
				u, end := l.queue.Get()
				if end {
					return
				}
				if err := l.label(ctx, u); err != nil && ctx.Err() == nil {
					l.Log.Info("the label of a shard cannot be written", "kind", u.kind, "name", u.key.Name, "problem", err.Error())
					l.queue.AddRateLimited(u)
				} else {
					l.queue.Forget(u)
				}
				l.queue.Done(u)
			}
		})
	}
	<-ctx.Done()
	l.queue.ShutDown()
	working.Wait()
	return nil
}

// seen returns what is told of objects of a kind.
func (l *Labeler) seen(kind string, labelled bool) toolscache.ResourceEventHandler {
	look := func(raw any) {
		if o, is := raw.(client.Object); is {
			l.note(kind, o, labelled)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }}
}

// note puts an object into the queue if its label is not what it should be.
func (l *Labeler) note(kind string, o client.Object, labelled bool) {
	u := unlabelled{kind: kind, key: client.ObjectKeyFromObject(o), uid: o.GetUID(), kyma: o.GetName(), wrong: labelled}
	if kind == v1beta2.KindManifest {
		u.kyma = o.GetLabels()[v1beta2.LabelKymaName]
	}
	if o.GetLabels()[v1beta2.LabelShard] != LabelValue(u.kyma) {
		l.queue.Add(u)
	}
}

// opened has all objects without a label looked at: this replica may be the one to label some of them now.
func (l *Labeler) opened(int) { l.queue.Add(unlabelled{}) }

// strangers returns the objects without label: all, or the Manifests of one Kyma.
func (l *Labeler) strangers(ctx context.Context, kind, kyma string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(kind + "List"))
	opts := []client.ListOption{client.UnsafeDisableDeepCopy}
	if kyma != "" {
		opts = append(opts, client.MatchingFields{strangerIndex: kyma})
	}
	if err := l.Unassigned.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("listing objects without shard: %w", err)
	}
	return list.Items, nil
}

// lookAtAll puts all objects without a label into the queue.
func (l *Labeler) lookAtAll(ctx context.Context) error {
	for _, kind := range []string{v1beta2.KindManifest, v1beta2.KindKyma} {
		all, err := l.strangers(ctx, kind, "")
		if err != nil {
			return err
		}
		for i := range all {
			l.note(kind, &all[i], false)
		}
	}
	return nil
}

// label writes the label of an object, if that is our business.
func (l *Labeler) label(ctx context.Context, u unlabelled) error {
	switch {
	case u.kind == "":
		return l.lookAtAll(ctx)
	case u.wrong:
		return l.write(ctx, u)
	}
	ctx, leave, ours := l.Keeper.BeginReconcile(ctx, u.kyma)
	if !ours {
		return nil
	}
	defer leave()
	if u.kind == v1beta2.KindManifest {
		return l.write(ctx, u)
	}
	first, err := l.strangers(ctx, v1beta2.KindManifest, u.kyma)
	if err != nil {
		return err
	}
	for i := range first {
		of := unlabelled{kind: v1beta2.KindManifest, key: client.ObjectKeyFromObject(&first[i]), uid: first[i].UID, kyma: u.kyma}
		if err := l.write(ctx, of); err != nil {
			return err
		}
		if err := l.await(ctx, of); err != nil {
			return err
		}
	}
	return l.write(ctx, u)
}

// write patches the label of an object, unless it is another one by now.
func (l *Labeler) write(ctx context.Context, u unlabelled) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.uid, "labels": map[string]string{v1beta2.LabelShard: LabelValue(u.kyma)}}})
	if err != nil {
		return fmt.Errorf("encoding the label of %s %s: %w", u.kind, u.key.Name, err)
	}
	o := slim(u.kind)
	o.Namespace, o.Name = u.key.Namespace, u.key.Name
	if err := l.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, body), client.FieldOwner(v1beta2.FieldOwner)); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // another one of that name is told of
		return fmt.Errorf("labelling %s %s: %w", u.kind, u.key.Name, err)
	}
	return nil
}

// await waits until the cache of its shard has a Manifest, a second at most.
func (l *Labeler) await(ctx context.Context, u unlabelled) error {
	for range 100 {
		if err := l.Cache.Get(ctx, u.key, &v1beta2.Manifest{}); client.IgnoreNotFound(err) != nil || err == nil {
			return err
		}
		if !pause(ctx, 10*time.Millisecond) {
			break
		}
	}
	return fmt.Errorf("labelling %s %s: the cache does not show it yet", u.kind, u.key.Name)
}
