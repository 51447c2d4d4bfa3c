package shardcache

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
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// Selector returns a label selector that matches the objects of one shard.
func Selector(n int) labels.Selector {
	return labels.SelectorFromSet(labels.Set{v1beta2.LabelShard: strconv.Itoa(n)})
}

// UnassignedSelector returns a label selector that matches the objects that belong to no shard. Objects that belong to
// no shard have no shard label, or an invalid one.
func UnassignedSelector() (labels.Selector, error) {
	values := make([]string, shard.Count)
	for n := range values {
		values[n] = strconv.Itoa(n)
	}
	none, err := labels.NewRequirement(v1beta2.LabelShard, selection.NotIn, values)
	if err != nil {
		return nil, fmt.Errorf("selecting objects without a shard: %w", err)
	}
	return labels.NewSelector().Add(*none), nil
}

// StripToIdentifyingMetadata removes all metadata of an object that does not identify the object or its runtime. The
// time of creation stays, because it distinguishes a Kyma from a former Kyma of the same name.
func StripToIdentifyingMetadata(raw any) (any, error) {
	o, is := raw.(*metav1.PartialObjectMetadata)
	if !is {
		return raw, nil
	}
	stripped := metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		CreationTimestamp: o.CreationTimestamp, Labels: map[string]string{}, Annotations: map[string]string{},
	}
	for _, key := range []string{v1beta2.LabelKymaName, v1beta2.LabelShard, v1beta2.LabelRuntimeID} {
		if value, exists := o.Labels[key]; exists {
			stripped.Labels[key] = value
		}
	}
	if value, exists := o.Annotations[v1beta2.AnnotationCertificatesNotBefore]; exists {
		stripped.Annotations[v1beta2.AnnotationCertificatesNotBefore] = value
	}
	o.ObjectMeta = stripped
	return raw, nil
}

// LabelerOptions are the options of a Labeler. All options except Log are required.
type LabelerOptions struct {
	// Keeper holds the shards of this replica.
	Keeper *shard.Keeper
	// Cache has the objects of the shards of this replica.
	Cache *Cache
	// Unassigned is a cache with the metadata of the Kymas and Manifests that UnassignedSelector matches. Unassigned
	// must not be started before the call of NewLabeler.
	Unassigned cache.Cache
	// Client writes labels. Client has no cache.
	Client client.Client
	// Log receives a line for each object that cannot be labelled.
	Log logr.Logger
}

// Labeler writes the shard label on Kymas and Manifests that have no shard label or a wrong one. The replica that holds
// the shard of a Kyma labels the Kyma. If the label is wrong, the replica that holds the wrongly named shard corrects
// it. Labeler labels the Manifests of a Kyma before the Kyma. When the Kyma is reconciled, all its Manifests are
// therefore in the cache.
type Labeler struct {
	LabelerOptions
	queue workqueue.TypedRateLimitingInterface[labelTask]
}

// labelTask is an object that needs a shard label. The zero value of labelTask means all objects that belong to no
// shard.
type labelTask struct {
	kind  string // v1beta2.KindKyma or KindManifest
	key   types.NamespacedName
	uid   types.UID
	kyma  string
	wrong bool // the object has the label of another shard, which this replica holds
}

// kymaIndex is the name of the index that finds Manifests by the name of their Kyma.
const kymaIndex = "shard.kyma"

// labelWorkers is the number of objects that are labelled concurrently. Only when sharding is enabled for the first
// time, many objects need a label at the same time.
const labelWorkers = 8

// NewLabeler checks the options and adds handlers to the caches. NewLabeler sends no request.
func NewLabeler(ctx context.Context, o LabelerOptions) (*Labeler, error) {
	if o.Keeper == nil || o.Cache == nil || o.Unassigned == nil || o.Client == nil {
		return nil, errors.New("making a labeler: options need Keeper, Cache, Unassigned and Client")
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	l := &Labeler{LabelerOptions: o}
	l.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[labelTask](
		100*time.Millisecond, 30*time.Second))
	err := o.Unassigned.IndexField(ctx, metadataOf(v1beta2.KindManifest), kymaIndex,
		func(o client.Object) []string { return []string{o.GetLabels()[v1beta2.LabelKymaName]} })
	if err != nil {
		return nil, fmt.Errorf("indexing Manifests without a shard: %w", err)
	}
	for _, kind := range []string{v1beta2.KindManifest, v1beta2.KindKyma} {
		without, err := o.Unassigned.GetInformer(ctx, metadataOf(kind), cache.BlockUntilSynced(false))
		if err == nil {
			_, err = without.AddEventHandler(l.handlerFor(kind, false))
		}
		if err != nil {
			return nil, fmt.Errorf("watching objects without a shard: %w", err)
		}
	}
	for kind, with := range map[string]client.Object{v1beta2.KindManifest: &v1beta2.Manifest{},
		v1beta2.KindKyma: &v1beta2.Kyma{}} {
		held, err := o.Cache.GetInformer(ctx, with)
		if err == nil {
			_, err = held.AddEventHandler(l.handlerFor(kind, true))
		}
		if err != nil {
			return nil, fmt.Errorf("watching objects of shards: %w", err)
		}
	}
	o.Keeper.OnOpened(l.enqueueUnassignedCheck)
	return l, nil
}

// metadataOf returns an empty object of a kind, with which only metadata is requested.
func metadataOf(kind string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(kind))
	return m
}

// NeedLeaderElection returns false: a Labeler runs on all replicas.
func (l *Labeler) NeedLeaderElection() bool { return false }

// Start writes the missing and wrong shard labels of Kymas and Manifests until ctx ends.
func (l *Labeler) Start(ctx context.Context) error {
	var working sync.WaitGroup
	for range labelWorkers {
		working.Go(func() {
			for {
				u, end := l.queue.Get()
				if end {
					return
				}
				if err := l.runTaskIfResponsible(ctx, u); err != nil && ctx.Err() == nil {
					l.Log.Info("the shard label of an object cannot be written; trying again", "kind", u.kind, "name",
						u.key.Name, "error", err.Error())
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

// handlerFor returns the event handler for objects of a kind.
func (l *Labeler) handlerFor(kind string, labelled bool) toolscache.ResourceEventHandler {
	enqueue := func(raw any) {
		if o, is := raw.(client.Object); is {
			l.enqueueIfWrong(kind, o, labelled)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }}
}

// enqueueIfWrong enqueues an object if its shard label is missing or wrong.
func (l *Labeler) enqueueIfWrong(kind string, o client.Object, labelled bool) {
	u := labelTask{kind: kind, key: client.ObjectKeyFromObject(o), uid: o.GetUID(), kyma: o.GetName(), wrong: labelled}
	if kind == v1beta2.KindManifest {
		u.kyma = o.GetLabels()[v1beta2.LabelKymaName]
	}
	if o.GetLabels()[v1beta2.LabelShard] != shard.LabelValue(u.kyma) {
		l.queue.Add(u)
	}
}

// enqueueUnassignedCheck makes the workers check all objects that belong to no shard, because this replica may be
// responsible for some of them now.
func (l *Labeler) enqueueUnassignedCheck(int) { l.queue.Add(labelTask{}) }

// unassigned returns the objects of a kind that belong to no shard. If kyma is not empty, unassigned returns only the
// objects of that Kyma.
func (l *Labeler) unassigned(ctx context.Context, kind, kyma string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(kind + "List"))
	opts := []client.ListOption{client.UnsafeDisableDeepCopy}
	if kyma != "" {
		opts = append(opts, client.MatchingFields{kymaIndex: kyma})
	}
	if err := l.Unassigned.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("listing objects without a shard: %w", err)
	}
	return list.Items, nil
}

// enqueueUnassigned enqueues all objects that belong to no shard.
func (l *Labeler) enqueueUnassigned(ctx context.Context) error {
	for _, kind := range []string{v1beta2.KindManifest, v1beta2.KindKyma} {
		all, err := l.unassigned(ctx, kind, "")
		if err != nil {
			return err
		}
		for i := range all {
			l.enqueueIfWrong(kind, &all[i], false)
		}
	}
	return nil
}

// runTaskIfResponsible runs a labelTask: it writes the shard label of the object, if this replica is responsible for
// the object. The Manifests of a Kyma are labelled before the Kyma.
func (l *Labeler) runTaskIfResponsible(ctx context.Context, u labelTask) error {
	switch {
	case u.kind == "":
		return l.enqueueUnassigned(ctx)
	case u.wrong:
		return l.patchLabel(ctx, u)
	}
	ctx, done, held := l.Keeper.BeginReconcile(ctx, u.kyma)
	if !held {
		return nil
	}
	defer done()
	if u.kind == v1beta2.KindManifest {
		return l.patchLabel(ctx, u)
	}
	first, err := l.unassigned(ctx, v1beta2.KindManifest, u.kyma)
	if err != nil {
		return err
	}
	for i := range first {
		of := labelTask{kind: v1beta2.KindManifest, key: client.ObjectKeyFromObject(&first[i]),
			uid: first[i].UID, kyma: u.kyma}
		if err := l.patchLabel(ctx, of); err != nil {
			return err
		}
		if err := l.waitForManifestInCache(ctx, of); err != nil {
			return err
		}
	}
	return l.patchLabel(ctx, u)
}

// patchLabel writes the shard label of an object. If another object with the same name has replaced the object,
// patchLabel does nothing.
func (l *Labeler) patchLabel(ctx context.Context, u labelTask) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.uid,
		"labels": map[string]string{v1beta2.LabelShard: shard.LabelValue(u.kyma)}}})
	if err != nil {
		return fmt.Errorf("encoding the label of %s %s: %w", u.kind, u.key.Name, err)
	}
	o := metadataOf(u.kind)
	o.Namespace, o.Name = u.key.Namespace, u.key.Name
	// The errors NotFound and Conflict are ignored. If another object has replaced the object of the labelTask, the
	// event handler receives the new object.
	if err := l.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, body),
		client.FieldOwner(v1beta2.FieldOwner)); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("labelling %s %s: %w", u.kind, u.key.Name, err)
	}
	return nil
}

// waitForManifestInCache waits until the cache of the shard contains a Manifest, but at most one second.
func (l *Labeler) waitForManifestInCache(ctx context.Context, u labelTask) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range 100 {
		if err := l.Cache.Get(ctx, u.key, &v1beta2.Manifest{}); client.IgnoreNotFound(err) != nil || err == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("labelling %s %s: %w", u.kind, u.key.Name, ctx.Err())
		case <-ticker.C:
		}
	}
	return fmt.Errorf("labelling %s %s: the cache does not have it yet", u.kind, u.key.Name)
}
