package watcher

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// externalKind is a kind of Istio or Gateway API. The CRD of an externalKind may be installed and removed at any time.
//
// The package watches the metadata of the CRD, selected by the name of the CRD. A watch that selects one name returns
// one object, and RBAC can grant the permission for this one name. The metadata of a CRD does not show which versions
// the API server serves, and a kind is served only a short time after its CRD was created. Therefore the package reads
// the served versions from the discovery API each time the CRD has changed. While the API server serves the kind, the
// package watches the objects of the kind in one namespace. Fields that are not needed are removed from the objects.
//
// Routes and gateways are not watched through the cache of the manager. The cache of the manager would wait for a kind
// that is not served, and the wait would block all users of the cache.
type externalKind struct {
	kind, group, resource string
	versions              []string // supported versions, the preferred version first
	namespace             string
	trim                  func(*unstructured.Unstructured) // removes fields that are not needed
	// isOwnWrite reports whether this manager wrote a version of an object. An event about a version that this manager
	// wrote triggers no reconcile. If isOwnWrite is nil, every event about an object triggers a reconcile.
	isOwnWrite func(*unstructured.Unstructured) bool
	onObject   func(context.Context, client.ObjectKey) // called when an object has changed
	// onServedChange is called when the API server starts or stops serving the kind, or when its watch fails.
	onServedChange func(context.Context)

	mu      sync.Mutex
	current snapshot // guarded by mu
}

// snapshot is what is known about an external kind at one time.
type snapshot struct {
	kind    string
	known   bool                        // discovery has shown whether the kind is served
	gvr     schema.GroupVersionResource // the served resource
	objects cache.SharedIndexInformer   // informer of the objects; nil if the kind is not served
	err     error                       // the reason why objects cannot be watched, which only a person can fix
	stop    context.CancelFunc          // stops the watch on the objects
}

// crdName is the name of the CustomResourceDefinition.
func (k *externalKind) crdName() string { return k.resource + "." + k.group }

// snapshot returns the current snapshot.
func (k *externalKind) snapshot() snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.current
	s.kind = k.kind
	return s
}

// isServed reports whether the API server serves the kind.
func (s snapshot) isServed() bool { return s.objects != nil }

// syncDelay is the requeue delay of a Watcher that waits until a watch has listed its objects. Usually syncDelay does
// not matter: when the watch has listed its objects, it triggers a reconcile at once.
const syncDelay = 10 * time.Second

// checkSynced returns nil if a watch has listed all objects, or if the kind is not served. If a watch has not listed
// its objects yet, checkSynced returns an error.
func (s snapshot) checkSynced() error {
	switch {
	case s.known && (s.objects == nil || s.objects.HasSynced()):
		return nil
	case s.err != nil:
		return s.err
	default:
		return loop.Later(syncDelay, "the first list of kind "+s.kind)
	}
}

// get returns an object, or nil if the object does not exist. The caller must not change the object.
func (s snapshot) get(key client.ObjectKey) *unstructured.Unstructured {
	if s.objects == nil {
		return nil
	}
	o, _, _ := s.objects.GetStore().GetByKey(key.String()) // a store in memory returns no error
	u, _ := o.(*unstructured.Unstructured)
	return u
}

// all returns all objects in no particular order. The caller must not change the objects.
func (s snapshot) all() []*unstructured.Unstructured {
	if s.objects == nil {
		return nil
	}
	var all []*unstructured.Unstructured
	for _, o := range s.objects.GetStore().List() {
		if u, ok := o.(*unstructured.Unstructured); ok {
			all = append(all, u)
		}
	}
	return all
}

// watchClients holds the clients for watches on external kinds.
type watchClients struct {
	metadata  metadata.Interface
	discovery rest.Interface
	objects   dynamic.Interface
}

// newWatchClients returns clients for the API server of cfg.
func newWatchClients(cfg *rest.Config, h *http.Client) (*watchClients, error) {
	m, err := metadata.NewForConfigAndClient(cfg, h)
	if err != nil {
		return nil, fmt.Errorf("building a client for metadata: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, h)
	if err != nil {
		return nil, fmt.Errorf("building a client for discovery: %w", err)
	}
	objects, err := dynamic.NewForConfigAndClient(cfg, h)
	if err != nil {
		return nil, fmt.Errorf("building a client for any kind: %w", err)
	}
	return &watchClients{metadata: m, discovery: d.RESTClient(), objects: objects}, nil
}

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// watch returns a function that keeps the snapshot of a kind up to date until the context of the function ends.
func (w *watchClients) watch(k *externalKind) manager.RunnableFunc {
	return func(ctx context.Context) error {
		ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("watcher").WithValues("crd", k.crdName()))
		changed := make(chan struct{}, 1)
		notify := func() {
			select {
			case changed <- struct{}{}:
			default: // a notification is already pending
			}
		}
		crds := metadatainformer.NewFilteredMetadataInformer(w.metadata, crdResource, "", 0, cache.Indexers{},
			func(o *metav1.ListOptions) {
				o.FieldSelector = "metadata.name=" + k.crdName()
			}).Informer()
		if err := crds.SetWatchErrorHandlerWithContext(
			k.watchErrorHandler("watching CustomResourceDefinition "+k.crdName(), notify)); err != nil {
			return fmt.Errorf("watching CustomResourceDefinition %s: %w", k.crdName(), err)
		}
		_, err := crds.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() },
			DeleteFunc: func(any) { notify() },
		})
		if err != nil {
			return fmt.Errorf("watching CustomResourceDefinition %s: %w", k.crdName(), err)
		}
		var running sync.WaitGroup
		running.Go(func() { crds.RunWithContext(ctx) })
		defer running.Wait()
		defer k.stopWatch()
		if cache.WaitForCacheSync(ctx.Done(), crds.HasSynced) {
			w.followVersions(ctx, k, crds, changed, notify)
		}
		return nil
	}
}

// versionsDelay is the maximum time until all versions of a new CRD are served. After a CRD was created, the API server
// begins to serve its versions one after the other.
const versionsDelay = 10 * time.Second

// followVersions updates the snapshot whenever the CRD has changed. No event reports that the API server serves a
// version of the CRD. Therefore followVersions polls the discovery API while the CRD exists and the version that the
// package prefers is not served yet.
func (w *watchClients) followVersions(
	ctx context.Context, k *externalKind, crds cache.SharedIndexInformer, changed <-chan struct{}, notify func(),
) {
	since := time.Now()
	for {
		exists := false
		for _, o := range crds.GetStore().List() {
			m, ok := o.(*metav1.PartialObjectMetadata)
			exists = ok && m.DeletionTimestamp.IsZero() // while a CRD is being deleted, no object can be created
		}
		version, err := "", error(nil)
		if exists {
			version, err = w.servedVersion(ctx, k)
		}
		if err == nil {
			w.switchWatch(ctx, k, version, notify)
		} else {
			log.FromContext(ctx).V(1).Info("cannot read whether the kind is served", "error", err.Error())
		}
		var poll <-chan time.Time
		if exists && (version == "" || version != k.versions[0] && time.Since(since) < versionsDelay) {
			poll = time.After(loop.PollDelay(time.Now(), since))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			since = time.Now()
		case <-poll:
		}
	}
}

// servedVersion returns the most preferred version that is served, or "" if no version is served.
func (w *watchClients) servedVersion(ctx context.Context, k *externalKind) (string, error) {
	for _, version := range k.versions {
		list := &metav1.APIResourceList{}
		err := w.discovery.Get().AbsPath("/apis", k.group, version).Do(ctx).Into(list)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading the kinds of %s/%s: %w", k.group, version, err)
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == k.resource }) {
			return version, nil
		}
	}
	return "", nil
}

// switchWatch starts a watch on the objects in the given version, and stops the watch in another version. "" means that
// the kind is not served. If the snapshot already has this version, switchWatch does nothing.
func (w *watchClients) switchWatch(ctx context.Context, k *externalKind, version string, notify func()) {
	before := k.snapshot()
	if before.known && before.gvr.Version == version {
		return
	}
	k.stopWatch()
	next := snapshot{known: true}
	if version != "" {
		objectsCtx, stop := context.WithCancel(ctx)
		next.stop = stop
		next.gvr = schema.GroupVersionResource{Group: k.group, Version: version, Resource: k.resource}
		objects, synced, err := w.newInformer(objectsCtx, k, next.gvr, notify)
		if err != nil { // only the configuration of a running informer fails
			stop()
			next = snapshot{err: err}
		} else {
			next.objects = objects
			go objects.RunWithContext(objectsCtx)
			go func() {
				if cache.WaitForCacheSync(objectsCtx.Done(), synced) {
					k.clearError()
					k.onServedChange(objectsCtx)
				}
			}()
		}
	}
	k.mu.Lock()
	k.current = next
	k.mu.Unlock()
	if before.known {
		log.FromContext(ctx).Info("the served version of a kind has changed", "kind", k.kind, "from",
			before.gvr.Version, "to", version)
	}
	k.onServedChange(ctx)
}

// newInformer returns an informer of the objects of a kind. newInformer also returns a function that reports whether
// all events of the informer's first list were handled.
func (w *watchClients) newInformer(
	ctx context.Context, k *externalKind, gvr schema.GroupVersionResource, notify func(),
) (cache.SharedIndexInformer, cache.InformerSynced, error) {
	i := dynamicinformer.NewFilteredDynamicInformer(w.objects, gvr, k.namespace, 0, cache.Indexers{}, nil).Informer()
	err := i.SetTransform(func(o any) (any, error) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			u.SetManagedFields(nil)
			k.trim(u)
		}
		return o, nil
	})
	if err != nil {
		return nil, nil, err
	}
	doing := "watching " + gvr.GroupResource().String() + " in namespace " + k.namespace
	if err := i.SetWatchErrorHandlerWithContext(k.watchErrorHandler(doing, notify)); err != nil {
		return nil, nil, err
	}
	onObject := func(o any) {
		if deleted, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = deleted.Obj
		}
		if u, ok := o.(*unstructured.Unstructured); ok && i.HasSynced() { // before that, events are not needed
			k.onObject(ctx, client.ObjectKeyFromObject(u))
		}
	}
	registration, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: onObject,
		AddFunc: func(o any) {
			if !k.isVersionWrittenByManager(o) {
				onObject(o)
			}
		},
		UpdateFunc: func(before, after any) {
			if !k.isVersionWrittenByManager(after) && !equalObjects(before, after) {
				onObject(after)
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return i, registration.HasSynced, nil
}

// isVersionWrittenByManager reports whether this manager wrote this version of an object.
func (k *externalKind) isVersionWrittenByManager(o any) bool {
	u, ok := o.(*unstructured.Unstructured)
	return ok && k.isOwnWrite != nil && k.isOwnWrite(u)
}

// equalObjects reports whether two versions of an object are equal in all fields that trim keeps.
func equalObjects(before, after any) bool {
	a, ok := before.(*unstructured.Unstructured)
	b, fine := after.(*unstructured.Unstructured)
	if !ok || !fine {
		return false
	}
	a = a.DeepCopy()
	a.SetResourceVersion(b.GetResourceVersion())
	a.SetGeneration(b.GetGeneration())
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

// watchErrorHandler returns the handler for errors of a watch. If a permission is missing, which only a person can
// grant, the handler stores this error in the snapshot. If the kind of a watch does not exist any more, the handler
// stores no error: the CRD may have been deleted, so the handler triggers a check of the CRD.
func (k *externalKind) watchErrorHandler(doing string, onNotFound func()) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) {
			onNotFound()
			return
		}
		if apierrors.IsForbidden(err) {
			k.mu.Lock()
			first := k.current.err == nil
			k.current.err = &reasonError{reason: v1beta2.ReasonControlPlaneForbidden,
				err: fmt.Errorf("%s: %w", doing, err)}
			k.mu.Unlock()
			if first {
				k.onServedChange(ctx)
			}
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// clearError removes the error from the snapshot after the watch has succeeded.
func (k *externalKind) clearError() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current.err = nil
}

// stopWatch stops the watch on the objects of the kind.
func (k *externalKind) stopWatch() {
	if s := k.snapshot(); s.stop != nil {
		s.stop()
	}
}

// reasonError is an error with a reason code for the status.
type reasonError struct {
	reason string
	err    error
}

func (e *reasonError) Error() string { return e.err.Error() }

// Unwrap returns the wrapped error, which has no reason code.
func (e *reasonError) Unwrap() error { return e.err }

// Reason returns the reason code for the status.
func (e *reasonError) Reason() string { return e.reason }
