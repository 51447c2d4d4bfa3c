// Package unserved reports objects of our kinds in namespaces that the manager does not serve. Without a report, users
// could not distinguish an object in an unserved namespace from an object that the manager has not reconciled yet.
//
// # Use
//
//	r, err := unserved.New(unserved.Options{Client: live, Metadata: metadata, Events: recorder,
//		Namespaces: []string{"kcp-system"}})
//	err = mgr.Add(r)
//
// # How it works
//
// One watch for each kind reads the metadata of the objects in all namespaces except the served ones. Each unserved
// object is reported once, in this form:
//
//	Kyma, Manifest                      condition Ready with reason NamespaceNotServed, state Error, and an event
//	ModuleTemplate, ModuleReleaseMeta,  an event, because nothing reads their status there. A new leader records the event
//	RolloutPolicy                       again.
//
// Objects of these kinds are never reported:
//
//	copies that a manager has delivered into a runtime         their label managed-by has the value kyma
//	Kymas and Manifests that another manager reconciles        they have the finalizer or a state of that manager
//
// Another manager needs a short time to add its finalizer, so an object is reported only after a delay. If another
// manager serves the namespace later, that other manager overwrites the condition Ready.
//
// Only the leader reports. While no object is created in other namespaces, the package sends no request except the
// watches.
//
// # What it does not do
//
// The package changes nothing but the status of Kymas and Manifests, and stores no object. The package does not look
// for access Secrets, because that would need the right to read all Secrets.
package unserved

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

// Options configure a Reporter.
type Options struct {
	// Client reads and writes without a cache.
	Client client.Client
	// Metadata watches the metadata of objects.
	Metadata metadata.Interface
	// Events records Kubernetes events.
	Events events.EventRecorder
	// Namespaces are the namespaces that the manager serves; the first one is its own namespace.
	Namespaces []string
	// Delay is the time after which a new object is reported. Default 10 s.
	Delay time.Duration
}

// Reporter reports objects in namespaces that the manager does not serve. Reporter implements manager.Runnable.
type Reporter struct {
	Options
	queue workqueue.TypedRateLimitingInterface[item]

	mu       sync.Mutex
	reported map[types.UID]bool // guarded by mu: the objects that need no report any more
}

// item is an object in the queue that may have to be reported as unserved.
type item struct {
	kind string
	key  types.NamespacedName
	uid  types.UID
}

// kinds are the watched kinds, with their resources.
var kinds = []struct{ kind, resource string }{
	{v1beta2.KindKyma, "kymas"}, {v1beta2.KindManifest, "manifests"},
	{v1beta2.KindModuleTemplate, "moduletemplates"}, {v1beta2.KindModuleReleaseMeta, "modulereleasemetas"},
	{v1beta2.KindRolloutPolicy, "rolloutpolicies"},
}

// The delay after a failed request grows from minRetryDelay to maxRetryDelay. The most likely failure is a missing
// right, which usually lasts long.
const (
	minRetryDelay = time.Second
	maxRetryDelay = 5 * time.Minute
)

// New checks the options and returns a Reporter.
func New(o Options) (*Reporter, error) {
	if o.Client == nil || o.Metadata == nil || o.Events == nil || len(o.Namespaces) == 0 {
		return nil, fmt.Errorf("making the reporter of other namespaces: options need Client, Metadata, Events and " +
			"Namespaces")
	}
	if o.Delay == 0 {
		o.Delay = 10 * time.Second
	}
	return &Reporter{Options: o, reported: map[types.UID]bool{}, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[item](minRetryDelay, maxRetryDelay))}, nil
}

// Start watches and reports objects until ctx ends.
func (r *Reporter) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("unserved"))
	var tasks sync.WaitGroup
	for _, k := range kinds {
		tasks.Go(func() { r.watch(ctx, k.kind, k.resource) })
	}
	tasks.Go(func() {
		<-ctx.Done()
		r.queue.ShutDown()
	})
	for r.reportNext(ctx) {
	}
	tasks.Wait()
	return nil
}

// watch passes all objects of a kind in other namespaces to the function consider, until ctx ends.
func (r *Reporter) watch(ctx context.Context, kind, resource string) {
	source := r.Metadata.Resource(v1beta2.GroupVersion.WithResource(resource))
	failed := false
	_ = watch.Run(ctx, watch.Options[metav1.PartialObjectMetadata]{ // Run returns only when ctx ends
		Source: watch.ClientSource(func(ctx context.Context, o metav1.ListOptions) (
			watch.Page[metav1.PartialObjectMetadata], error) {
			list, err := source.List(ctx, o)
			if err != nil {
				return watch.Page[metav1.PartialObjectMetadata]{}, err
			}
			return watch.Page[metav1.PartialObjectMetadata]{Items: list.Items, ResourceVersion: list.ResourceVersion,
				Continue: list.Continue}, nil
		}, source.Watch),
		Query: metav1.ListOptions{
			FieldSelector: "metadata.namespace!=" + strings.Join(r.Namespaces, ",metadata.namespace!=")},
		MaxDelay: maxRetryDelay,
		Opened:   func() { failed = false },
		Page: func(items []metav1.PartialObjectMetadata, _ bool) {
			for i := range items {
				r.enqueueIfUnserved(kind, &items[i])
			}
		},
		Event: func(e watch.Event[metav1.PartialObjectMetadata]) {
			if e.Deleted {
				r.forget(e.Object.UID)
				return
			}
			r.enqueueIfUnserved(kind, e.Object)
		},
		Failed: func(err error, _ time.Time) error {
			if !failed {
				log.FromContext(ctx).Info("objects in other namespaces are not reported until they can be watched: "+
					"grant the ClusterRole lifecycle-manager-other-namespaces", "kind", kind,
					"problem", loop.ClipLine(err.Error()))
			}
			failed = true
			return nil
		},
	})
}

// enqueueIfUnserved adds an object to the queue if it may have to be reported.
func (r *Reporter) enqueueIfUnserved(kind string, o *metav1.PartialObjectMetadata) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported[o.UID] || !isUnserved(o, r.Namespaces) {
		return
	}
	r.reported[o.UID] = true // events that follow add it no more
	r.queue.AddAfter(item{kind, client.ObjectKeyFromObject(o), o.UID}, r.Delay)
}

// isUnserved reports whether an object has to be reported as unserved. An object in a namespace that the manager does
// not serve has to be reported, unless it is being deleted, a manager has copied it into a runtime, or another manager
// reconciles it.
func isUnserved(o client.Object, servedNamespaces []string) bool {
	return !slices.Contains(servedNamespaces, o.GetNamespace()) && o.GetDeletionTimestamp().IsZero() &&
		o.GetLabels()[v1beta2.LabelManagedBy] != v1beta2.ManagedByKyma &&
		!slices.Contains(o.GetFinalizers(), v1beta2.FinalizerKyma) &&
		!slices.Contains(o.GetFinalizers(), v1beta2.FinalizerManifest)
}

// forget drops what the Reporter has recorded about a deleted object.
func (r *Reporter) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reported, uid)
}

// reportNext reports the next object of the queue. When the queue has ended, reportNext returns false.
func (r *Reporter) reportNext(ctx context.Context) bool {
	next, ended := r.queue.Get()
	if ended {
		return false
	}
	defer r.queue.Done(next)
	if err := r.report(ctx, next); err != nil {
		log.FromContext(ctx).Info("an object in a namespace that is not served cannot be reported", "kind", next.kind,
			"object", next.key.String(), "problem", loop.ClipLine(err.Error()))
		r.queue.AddRateLimited(next)
		return true
	}
	r.queue.Forget(next)
	return true
}

// report reports one object, unless it was reported before or is reconciled by another manager.
func (r *Reporter) report(ctx context.Context, of item) error {
	message := fmt.Sprintf("namespace %s is not served by the manager in namespace %s: delete this %s, and create it in "+
		"namespace %s, or have the manager serve this namespace, too (--watch-namespaces)",
		of.key.Namespace, r.Namespaces[0], of.kind, strings.Join(r.Namespaces, " or "))
	var object client.Object
	switch of.kind {
	case v1beta2.KindKyma:
		object = &v1beta2.Kyma{}
	case v1beta2.KindManifest:
		object = &v1beta2.Manifest{}
	case v1beta2.KindModuleTemplate:
		r.record(&v1beta2.ModuleTemplate{ObjectMeta: of.meta()}, message)
		return nil
	case v1beta2.KindRolloutPolicy:
		r.record(&v1beta2.RolloutPolicy{ObjectMeta: of.meta()}, message)
		return nil
	default:
		r.record(&v1beta2.ModuleReleaseMeta{ObjectMeta: of.meta()}, message)
		return nil
	}
	if err := r.Client.Get(ctx, of.key, object); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading %s %s: %w", of.kind, of.key, err)
	}
	if object.GetUID() != of.uid || !isUnserved(object, r.Namespaces) {
		return nil
	}
	needed := false
	_, err := loop.Run(ctx, loop.Options{Client: r.Client, Controller: "unserved", Object: object,
		Report: func(loop.Outcome) { needed = setErrorStatus(object, message) }})
	if err == nil && needed {
		r.record(object, message)
	}
	return err
}

// meta returns the metadata with which an event refers to the object.
func (i item) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: i.key.Namespace, Name: i.key.Name, UID: i.uid}
}

// record records an event.
func (r *Reporter) record(object client.Object, message string) {
	r.Events.Eventf(object, nil, corev1.EventTypeWarning, v1beta2.ReasonNamespaceNotServed, "Report", "%s", message)
}

// setErrorStatus sets the status of a Kyma or Manifest in a namespace that is not served. If the status shows the
// condition already, or if another manager has written the status, setErrorStatus returns false and changes nothing.
func setErrorStatus(object client.Object, message string) (changed bool) {
	var state *v1beta2.State
	var operation *v1beta2.LastOperation
	var conditions *[]metav1.Condition
	switch o := object.(type) {
	case *v1beta2.Kyma:
		state, operation, conditions = &o.Status.State, &o.Status.LastOperation, &o.Status.Conditions
	case *v1beta2.Manifest:
		state, operation, conditions = &o.Status.State, &o.Status.LastOperation, &o.Status.Conditions
	}
	ready := meta.FindStatusCondition(*conditions, v1beta2.ConditionReady)
	isOurs := ready != nil && ready.Reason == v1beta2.ReasonNamespaceNotServed
	if *state != "" && !isOurs || isOurs && ready.Message == message {
		return false
	}
	meta.SetStatusCondition(conditions, metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse,
		Reason: v1beta2.ReasonNamespaceNotServed, Message: message, ObservedGeneration: object.GetGeneration()})
	*state = v1beta2.StateError
	*operation = v1beta2.LastOperation{Operation: message, LastUpdateTime: metav1.Now()}
	return true
}
