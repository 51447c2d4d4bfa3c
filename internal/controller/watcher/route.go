package watcher

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// route is one kind of route of one Watcher.
type route struct {
	plan
	view  view
	there *unstructured.Unstructured // as it was last seen; nil if it is not there. It is of the view's memory: not to be changed
	done  bool                       // set by route: it is as it should be
	err   error                      // set by route: why not
}

// answer is what an API server made of a spec: it may have added defaults that we do not know.
type answer struct {
	wanted, got map[string]any
	version     string // the resourceVersion of what we wrote
}

// route brings every route to what it should be. That one of them fails does not keep the others from it.
func (n *run) route(ctx context.Context) error {
	var failed []error
	for _, r := range n.routes {
		switch {
		case r.spec != nil && r.there != nil && !isOurs(r.there, n.watcher):
			r.plan = r.unknown(v1beta2.ReasonRouteConflict, "%s is there and is not ours: delete it, or give the Watcher another name", n.identity(r))
		case r.spec != nil:
			r.err = n.put(ctx, r)
			r.done = r.err == nil
		case !r.leave:
			_, r.err = n.take(ctx, r)
		}
		failed = append(failed, r.err)
	}
	return first(failed)
}

// remove takes the routes of a Watcher that is being deleted, and waits until they are gone.
func (n *run) remove(ctx context.Context) error {
	var waits []error
	for _, r := range n.routes {
		there, err := n.take(ctx, r)
		switch {
		case err != nil:
			waits = append(waits, err)
		case there:
			waits = append(waits, loop.Later(10*time.Second, n.identity(r)+" to be gone")) // the watch tells
		}
	}
	return first(waits)
}

// first returns the error that decides what happens next: a failure is more than a wait.
func first(errs []error) error {
	var wait error
	for _, err := range errs {
		switch {
		case err == nil:
		case loop.Reason(err) != "" || apierrors.IsConflict(err):
			return err
		default:
			wait = cmp.Or(wait, err)
		}
	}
	return wait
}

// put creates a route or repairs it. Nothing is sent if it is as it should be.
func (n *run) put(ctx context.Context, r *route) error {
	key := n.identity(r)
	to := n.objects.Resource(r.view.gvr).Namespace(n.watcher.Namespace)
	var got *unstructured.Unstructured
	var err error
	switch {
	case r.there == nil:
		got, err = to.Create(ctx, n.claim(r, &unstructured.Unstructured{Object: map[string]any{}}), metav1.CreateOptions{FieldManager: v1beta2.FieldOwner})
		if apierrors.IsAlreadyExists(err) { // the watch has not shown it yet
			err = apierrors.NewConflict(r.view.gvr.GroupResource(), n.watcher.Name, err)
		}
	case n.isRight(key, r):
		return nil
	default:
		got, err = to.Update(ctx, n.claim(r, r.there.DeepCopy()), metav1.UpdateOptions{FieldManager: v1beta2.FieldOwner})
	}
	if err != nil {
		return n.refused(r, "writing", err)
	}
	spec, _, _ := unstructured.NestedMap(got.Object, "spec")
	r.there = got
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[key] = answer{wanted: r.spec, got: spec, version: got.GetResourceVersion()}
	return nil
}

// isOwn tells whether a route is exactly as we wrote it last.
func (r *Reconciler) isOwn(u *unstructured.Unstructured) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers[identity(u.GetKind(), u.GetNamespace(), u.GetName())].version == u.GetResourceVersion()
}

// identity names a route, in answers and for people.
func identity(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// take deletes a route of ours, and tells whether it was there.
func (n *run) take(ctx context.Context, r *route) (there bool, err error) {
	n.mu.Lock()
	delete(n.answers, n.identity(r))
	n.mu.Unlock()
	if r.there == nil || !isOurs(r.there, n.watcher) {
		return false, nil
	}
	if !r.there.GetDeletionTimestamp().IsZero() {
		return true, nil
	}
	uid := r.there.GetUID()
	err = n.objects.Resource(r.view.gvr).Namespace(n.watcher.Namespace).Delete(ctx, n.watcher.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err == nil || kindIsGoing(err) {
		return true, nil
	}
	return true, n.refused(r, "deleting", err)
}

// identity names a route in answers and for people.
func (n *run) identity(r *route) string {
	return r.kind + " " + n.watcher.Namespace + "/" + n.watcher.Name
}

// claim makes an object the route of the Watcher. What others have added to its labels and annotations stays.
func (n *run) claim(r *route, u *unstructured.Unstructured) *unstructured.Unstructured {
	u.SetAPIVersion(r.view.gvr.GroupVersion().String())
	u.SetKind(r.kind)
	u.SetNamespace(n.watcher.Namespace)
	u.SetName(n.watcher.Name)
	marked := maps.Clone(u.GetLabels())
	if marked == nil {
		marked = map[string]string{}
	}
	marked[v1beta2.LabelManagedBy] = v1beta2.ManagedByLifecycleManager
	u.SetLabels(marked)
	others := slices.DeleteFunc(u.GetOwnerReferences(), isWatcher)
	u.SetOwnerReferences(append(others, owner(n.watcher)))
	u.Object["spec"] = (&unstructured.Unstructured{Object: r.spec}).DeepCopy().Object
	delete(u.Object, "status")
	return u
}

// owner is how a route says whose it is.
func owner(w *v1beta2.Watcher) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1beta2.GroupVersion.String(), Kind: v1beta2.KindWatcher, Name: w.Name, UID: w.UID}
}

// isWatcher tells whether an owner is a Watcher.
func isWatcher(o metav1.OwnerReference) bool {
	return o.Kind == v1beta2.KindWatcher && o.APIVersion == v1beta2.GroupVersion.String()
}

// isOurs tells whether a route of the name of the Watcher is its own: it says so by owner, which those of earlier managers have, or by label.
func isOurs(u *unstructured.Unstructured, w *v1beta2.Watcher) bool {
	return u.GetLabels()[v1beta2.LabelManagedBy] == v1beta2.ManagedByLifecycleManager ||
		slices.ContainsFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return isWatcher(o) && o.Name == w.Name })
}

// isRight tells whether a route is as it should be. Its spec is what we want, or what the API server made of that.
func (n *run) isRight(key string, r *route) bool {
	refs := slices.DeleteFunc(slices.Clone(r.there.GetOwnerReferences()), func(o metav1.OwnerReference) bool { return !isWatcher(o) })
	if !equality.Semantic.DeepEqual(refs, []metav1.OwnerReference{owner(n.watcher)}) ||
		r.there.GetLabels()[v1beta2.LabelManagedBy] != v1beta2.ManagedByLifecycleManager {
		return false
	}
	n.mu.Lock()
	a := n.answers[key]
	n.mu.Unlock()
	is := r.there.Object["spec"]
	return equality.Semantic.DeepEqual(is, any(r.spec)) ||
		a.got != nil && equality.Semantic.DeepEqual(a.wanted, r.spec) && equality.Semantic.DeepEqual(is, any(a.got))
}

// refused gives an error of the API server a reason.
func (n *run) refused(r *route, doing string, err error) error {
	if apierrors.IsConflict(err) {
		return err
	}
	if kindIsGoing(err) {
		return loop.Later(time.Second, "kind "+r.kind+" to be served or gone")
	}
	reason := v1beta2.ReasonInternalError
	switch {
	case apierrors.IsForbidden(err):
		reason = v1beta2.ReasonControlPlaneForbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		reason = v1beta2.ReasonRouteRefused
	}
	return &failure{reason: reason, err: fmt.Errorf("%s %s: %w", doing, n.identity(r), err)}
}

// slimVirtualService keeps what is ours to write.
func slimVirtualService(u *unstructured.Unstructured) { delete(u.Object, "status") }

// slimHTTPRoute keeps what is ours to write, and what Gateways say of it.
func slimHTTPRoute(*unstructured.Unstructured) {}

// slimGateway keeps labels and hosts.
func slimGateway(u *unstructured.Unstructured) {
	servers, _, _ := unstructured.NestedSlice(u.Object, "spec", "servers")
	var kept []any
	for _, s := range servers {
		if server, ok := s.(map[string]any); ok {
			kept = append(kept, map[string]any{"hosts": server["hosts"]})
		}
	}
	u.SetAnnotations(nil)
	delete(u.Object, "status")
	u.Object["spec"] = map[string]any{"servers": kept}
}

// sortedOnce returns strings in order, each once.
func sortedOnce(all []any) []any {
	slices.SortFunc(all, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) })
	return slices.Compact(all)
}
