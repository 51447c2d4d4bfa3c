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

// foreign is a kind of others. Its definition may be there or not, and come and go.
//
// The definition is watched by metadata, by its name alone: that is one object, and a right that can be granted for just these names.
// Metadata does not tell which versions are served, and a definition is served a moment after it is there, so discovery is asked when the
// definition has changed. As long as the kind is served, its objects are watched in one namespace; slim takes off what is not needed.
//
// These watches are not the manager's cache: a cache that was asked for a kind waits for it, and lets everybody else wait as well.
type foreign struct {
	kind, group, resource string
	versions              []string // that we know, the best first
	namespace             string
	slim                  func(*unstructured.Unstructured)
	isOwn                 func(*unstructured.Unstructured) bool   // tells what we wrote ourselves, which is no news; nil: nothing
	wakeOne               func(context.Context, client.ObjectKey) // called when an object has changed
	wakeAll               func(context.Context)                   // called when the view is another one

	mu  sync.Mutex
	now view // guarded by mu
}

// view is what is known of a kind at one moment.
type view struct {
	kind    string
	known   bool                        // it is known whether the kind is served
	gvr     schema.GroupVersionResource // as it is served
	objects cache.SharedIndexInformer   // nil if it is not served
	err     error                       // why the view cannot be complete; a person has to do something about it
	stop    context.CancelFunc
}

// definition is the name of the CustomResourceDefinition.
func (f *foreign) definition() string { return f.resource + "." + f.group }

// look returns what is known.
func (f *foreign) look() view {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.now
	v.kind = f.kind
	return v
}

// served tells whether the API server serves the kind.
func (v view) served() bool { return v.objects != nil }

// wait returns nil when the view is complete, else what is waited for.
func (v view) wait() error {
	switch {
	case v.known && (v.objects == nil || v.objects.HasSynced()):
		return nil
	case v.err != nil:
		return v.err
	default:
		return loop.Later(10*time.Second, "the first look at kind "+v.kind) // whoever completes the view wakes us
	}
}

// get returns an object, which must not be changed; nil if it is not there.
func (v view) get(key client.ObjectKey) *unstructured.Unstructured {
	if v.objects == nil {
		return nil
	}
	o, _, _ := v.objects.GetStore().GetByKey(key.String()) // of a store in memory
	u, _ := o.(*unstructured.Unstructured)
	return u
}

// all returns all objects, which must not be changed, in no order.
func (v view) all() []*unstructured.Unstructured {
	if v.objects == nil {
		return nil
	}
	var all []*unstructured.Unstructured
	for _, o := range v.objects.GetStore().List() {
		if u, ok := o.(*unstructured.Unstructured); ok {
			all = append(all, u)
		}
	}
	return all
}

// watch has the clients that foreign kinds are watched with.
type watch struct {
	definitions metadata.Interface
	served      rest.Interface
	objects     dynamic.Interface
}

// newWatch returns clients for the API server behind cfg.
func newWatch(cfg *rest.Config, h *http.Client) (*watch, error) {
	definitions, err := metadata.NewForConfigAndClient(cfg, h)
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
	return &watch{definitions: definitions, served: d.RESTClient(), objects: objects}, nil
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// follow keeps the view of a kind up to date, until the context ends.
func (w *watch) follow(f *foreign) manager.RunnableFunc {
	return func(ctx context.Context) error {
		ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("watcher").WithValues("definition", f.definition()))
		changed := make(chan struct{}, 1)
		notice := func() {
			select {
			case changed <- struct{}{}:
			default: // it is noticed already
			}
		}
		d := metadatainformer.NewFilteredMetadataInformer(w.definitions, definitions, "", 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.FieldSelector = "metadata.name=" + f.definition()
		}).Informer()
		if err := d.SetWatchErrorHandlerWithContext(f.failed("watching CustomResourceDefinition "+f.definition(), notice)); err != nil {
			return fmt.Errorf("watching CustomResourceDefinition %s: %w", f.definition(), err)
		}
		_, err := d.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notice() }, UpdateFunc: func(any, any) { notice() }, DeleteFunc: func(any) { notice() },
		})
		if err != nil {
			return fmt.Errorf("watching CustomResourceDefinition %s: %w", f.definition(), err)
		}
		var running sync.WaitGroup
		running.Go(func() { d.RunWithContext(ctx) })
		defer running.Wait()
		defer f.stop()
		if cache.WaitForCacheSync(ctx.Done(), d.HasSynced) {
			w.tend(ctx, f, d, changed, notice)
		}
		return nil
	}
}

// settling is how long a definition may take until all its versions are served. They begin one by one.
const settling = 10 * time.Second

// tend brings the view up to date whenever something was noticed. While the definition is there and the kind is not served, or not in
// the best version, it looks again by itself: nobody tells when that begins.
func (w *watch) tend(ctx context.Context, f *foreign, d cache.SharedIndexInformer, changed <-chan struct{}, notice func()) {
	since := time.Now()
	for {
		there := false
		for _, o := range d.GetStore().List() {
			m, ok := o.(*metav1.PartialObjectMetadata)
			there = ok && m.DeletionTimestamp.IsZero() // a definition that goes lets nobody create anything
		}
		version, err := "", error(nil)
		if there {
			version, err = w.version(ctx, f)
		}
		if err == nil {
			w.show(ctx, f, version, notice)
		} else {
			log.FromContext(ctx).V(1).Info("cannot tell whether the kind is served", "error", err.Error())
		}
		var again <-chan time.Time
		if there && (version == "" || version != f.versions[0] && time.Since(since) < settling) {
			again = time.After(loop.PollDelay(time.Now(), since))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			since = time.Now()
		case <-again:
		}
	}
}

// version returns the best version that is served, "" if none is.
func (w *watch) version(ctx context.Context, f *foreign) (string, error) {
	for _, version := range f.versions {
		list := &metav1.APIResourceList{}
		err := w.served.Get().AbsPath("/apis", f.group, version).Do(ctx).Into(list)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("asking for the kinds of %s/%s: %w", f.group, version, err)
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == f.resource }) {
			return version, nil
		}
	}
	return "", nil
}

// show makes the view that of a version, "" if the kind is not served. It does nothing if it is that already.
func (w *watch) show(ctx context.Context, f *foreign, version string, notice func()) {
	before := f.look()
	if before.known && before.gvr.Version == version {
		return
	}
	f.stop()
	next := view{known: true}
	if version != "" {
		objectsCtx, stop := context.WithCancel(ctx)
		next.stop = stop
		next.gvr = schema.GroupVersionResource{Group: f.group, Version: version, Resource: f.resource}
		objects, synced, err := w.informer(objectsCtx, f, next.gvr, notice)
		if err != nil { // only an informer that runs already refuses to be set up
			stop()
			next = view{err: err}
		} else {
			next.objects = objects
			go objects.RunWithContext(objectsCtx)
			go func() {
				if cache.WaitForCacheSync(objectsCtx.Done(), synced) {
					f.clear()
					f.wakeAll(objectsCtx)
				}
			}()
		}
	}
	f.mu.Lock()
	f.now = next
	f.mu.Unlock()
	if before.known {
		log.FromContext(ctx).Info("what is served has changed", "kind", f.kind, "from", before.gvr.Version, "to", version)
	}
	f.wakeAll(ctx)
}

// informer returns an informer of the objects of a kind, and what tells that all of them were seen.
func (w *watch) informer(ctx context.Context, f *foreign, gvr schema.GroupVersionResource, notice func()) (cache.SharedIndexInformer, cache.InformerSynced, error) {
	i := dynamicinformer.NewFilteredDynamicInformer(w.objects, gvr, f.namespace, 0, cache.Indexers{}, nil).Informer()
	err := i.SetTransform(func(o any) (any, error) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			u.SetManagedFields(nil)
			f.slim(u)
		}
		return o, nil
	})
	if err != nil {
		return nil, nil, err
	}
	if err := i.SetWatchErrorHandlerWithContext(f.failed("watching "+gvr.GroupResource().String()+" in namespace "+f.namespace, notice)); err != nil {
		return nil, nil, err
	}
	wake := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if u, ok := o.(*unstructured.Unstructured); ok && i.HasSynced() { // before that, nobody could make anything of it
			f.wakeOne(ctx, client.ObjectKeyFromObject(u))
		}
	}
	registration, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: wake,
		AddFunc: func(o any) {
			if !f.wrote(o) {
				wake(o)
			}
		},
		UpdateFunc: func(before, after any) {
			if !f.wrote(after) && !alike(before, after) {
				wake(after)
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return i, registration.HasSynced, nil
}

// wrote tells whether an object is as we wrote it.
func (f *foreign) wrote(o any) bool {
	u, ok := o.(*unstructured.Unstructured)
	return ok && f.isOwn != nil && f.isOwn(u)
}

// alike tells whether two versions of an object differ in nothing that was kept of them.
func alike(before, after any) bool {
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

// failed returns what is called when a watch fails. What only a person can mend is told to the Watchers, as long as there is no view. That a
// kind is not there is no failure: its definition may have gone, so that is noticed instead.
func (f *foreign) failed(doing string, notice func()) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) {
			notice()
			return
		}
		if apierrors.IsForbidden(err) {
			f.mu.Lock()
			first := f.now.err == nil
			f.now.err = &failure{reason: v1beta2.ReasonControlPlaneForbidden, err: fmt.Errorf("%s: %w", doing, err)}
			f.mu.Unlock()
			if first {
				f.wakeAll(ctx)
			}
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// clear forgets a failure: the watch works.
func (f *foreign) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.err = nil
}

// stop ends the watch on the objects.
func (f *foreign) stop() {
	if v := f.look(); v.stop != nil {
		v.stop()
	}
}

// failure is an error with a reason that a status can have.
type failure struct {
	reason string
	err    error
}

func (f *failure) Error() string { return f.err.Error() }

// Unwrap returns what happened.
func (f *failure) Unwrap() error { return f.err }

// Reason returns the reason for the status.
func (f *failure) Reason() string { return f.reason }
