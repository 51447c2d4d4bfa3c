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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// route is one route of one Watcher: a VirtualService or an HTTPRoute.
type route struct {
	plan
	gvr     schema.GroupVersionResource // the served resource of the kind
	current *unstructured.Unstructured  // the object in the cache, which must not be changed; nil if it does not exist
	applied bool                        // set by applyRoutes: the route is in its desired state
	err     error                       // set by applyRoutes: the reason why the route is not in its desired state
}

// writtenRoute has a spec that this manager wrote, and the spec that the API server stored for it. The API server may
// have added defaults to the stored spec.
type writtenRoute struct {
	sent, stored map[string]any
	version      string // the resourceVersion of the stored object
}

// applyRoutes brings every route of a Watcher to its desired state. If one route cannot be written, applyRoutes still
// writes the other routes.
func (n *run) applyRoutes(ctx context.Context) error {
	var failed []error
	for _, r := range n.desired {
		switch {
		case r.spec != nil && r.current != nil && !isOurs(r.current, n.watcher):
			r.plan = r.withUnknownRoute(v1beta2.ReasonRouteConflict,
				"%s exists and belongs to another owner: delete it, or rename the Watcher", n.nameOf(r))
		case r.spec != nil:
			r.err = n.createOrUpdateRouteIfNeeded(ctx, r)
			r.applied = r.err == nil
		case !r.unknown:
			_, r.err = n.delete(ctx, r)
		}
		failed = append(failed, r.err)
	}
	return firstFailureOrWait(failed)
}

// removeRoutes deletes the routes of a Watcher that is being deleted, and waits until they are deleted.
func (n *run) removeRoutes(ctx context.Context) error {
	var waits []error
	for _, r := range n.desired {
		exists, err := n.delete(ctx, r)
		switch {
		case err != nil:
			waits = append(waits, err)
		case exists:
			waits = append(waits, loop.Later(deletionDelay, n.nameOf(r)+" to be deleted"))
		}
	}
	return firstFailureOrWait(waits)
}

// deletionDelay is the requeue delay of a Watcher that waits for the deletion of a route. Usually deletionDelay does
// not matter, because the event of the deleted route triggers a reconcile at once.
const deletionDelay = 10 * time.Second

// firstFailureOrWait returns the first error that has a reason code or is a conflict. If no error has a reason code or
// is a conflict, firstFailureOrWait returns the first error; it only means that the Watcher has to be reconciled again
// later.
func firstFailureOrWait(errs []error) error {
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

// createOrUpdateRouteIfNeeded creates or updates a route. createOrUpdateRouteIfNeeded sends no request if the route is
// already in its desired state.
func (n *run) createOrUpdateRouteIfNeeded(ctx context.Context, r *route) error {
	key := n.nameOf(r)
	to := n.routes.Resource(r.gvr).Namespace(n.watcher.Namespace)
	var got *unstructured.Unstructured
	var err error
	switch {
	case r.current == nil:
		got, err = to.Create(ctx, n.setDesiredState(r, &unstructured.Unstructured{Object: map[string]any{}}),
			metav1.CreateOptions{FieldManager: v1beta2.FieldOwner})
		if apierrors.IsAlreadyExists(err) { // the cache does not have the existing route yet
			err = apierrors.NewConflict(r.gvr.GroupResource(), n.watcher.Name, err)
		}
	case n.isInDesiredState(key, r):
		return nil
	default:
		got, err = to.Update(ctx, n.setDesiredState(r, r.current.DeepCopy()),
			metav1.UpdateOptions{FieldManager: v1beta2.FieldOwner})
	}
	if err != nil {
		return n.withReason(r, "writing", err)
	}
	spec, _, _ := unstructured.NestedMap(got.Object, "spec")
	r.current = got
	n.mu.Lock()
	defer n.mu.Unlock()
	n.written[key] = writtenRoute{sent: r.spec, stored: spec, version: got.GetResourceVersion()}
	return nil
}

// isOwnWrite reports whether this manager wrote this version of a route.
func (r *Reconciler) isOwnWrite(u *unstructured.Unstructured) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written[nameOf(u.GetKind(), u.GetNamespace(), u.GetName())].version == u.GetResourceVersion()
}

// nameOf returns a text with the kind, the namespace and the name of a route. The text that nameOf returns is used in
// messages and as a map key.
func nameOf(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// delete deletes a route of the Watcher, and reports whether it existed.
func (n *run) delete(ctx context.Context, r *route) (existed bool, err error) {
	n.mu.Lock()
	delete(n.written, n.nameOf(r))
	n.mu.Unlock()
	if r.current == nil || !isOurs(r.current, n.watcher) {
		return false, nil
	}
	if !r.current.GetDeletionTimestamp().IsZero() {
		return true, nil
	}
	uid := r.current.GetUID()
	err = n.routes.Resource(r.gvr).Namespace(n.watcher.Namespace).Delete(ctx, n.watcher.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err == nil || isObjectOrKindNotFound(err) {
		return true, nil
	}
	return true, n.withReason(r, "deleting", err)
}

// nameOf returns a text with the kind, the namespace and the name of a route of the Watcher.
func (n *run) nameOf(r *route) string { return nameOf(r.kind, n.watcher.Namespace, n.watcher.Name) }

// setDesiredState changes an object to the desired state of a route. setDesiredState keeps the labels, annotations and
// owner references that other clients have set.
func (n *run) setDesiredState(r *route, u *unstructured.Unstructured) *unstructured.Unstructured {
	u.SetAPIVersion(r.gvr.GroupVersion().String())
	u.SetKind(r.kind)
	u.SetNamespace(n.watcher.Namespace)
	u.SetName(n.watcher.Name)
	labels := maps.Clone(u.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByLifecycleManager
	u.SetLabels(labels)
	others := slices.DeleteFunc(u.GetOwnerReferences(), isWatcher)
	u.SetOwnerReferences(append(others, ownerReference(n.watcher)))
	u.Object["spec"] = (&unstructured.Unstructured{Object: r.spec}).DeepCopy().Object
	delete(u.Object, "status")
	return u
}

// ownerReference returns the owner reference of the routes of a Watcher.
func ownerReference(w *v1beta2.Watcher) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1beta2.GroupVersion.String(), Kind: v1beta2.KindWatcher, Name: w.Name,
		UID: w.UID}
}

// isWatcher reports whether an owner reference points to a Watcher.
func isWatcher(o metav1.OwnerReference) bool {
	return o.Kind == v1beta2.KindWatcher && o.APIVersion == v1beta2.GroupVersion.String()
}

// isOurs reports whether a route that has the name of the Watcher belongs to the Watcher. A route of the Watcher has
// our label, or an owner reference to the Watcher. A route that an earlier release of the manager wrote has the owner
// reference, but not the label.
func isOurs(u *unstructured.Unstructured, w *v1beta2.Watcher) bool {
	return u.GetLabels()[v1beta2.LabelManagedBy] == v1beta2.ManagedByLifecycleManager ||
		slices.ContainsFunc(u.GetOwnerReferences(),
			func(o metav1.OwnerReference) bool { return isWatcher(o) && o.Name == w.Name })
}

// isInDesiredState reports whether a route is in its desired state, so that it needs no write. The spec of the route
// must be equal to the desired spec, or to the spec that the API server has stored after the desired spec was sent.
func (n *run) isInDesiredState(key string, r *route) bool {
	refs := slices.DeleteFunc(slices.Clone(r.current.GetOwnerReferences()),
		func(o metav1.OwnerReference) bool { return !isWatcher(o) })
	if !equality.Semantic.DeepEqual(refs, []metav1.OwnerReference{ownerReference(n.watcher)}) ||
		r.current.GetLabels()[v1beta2.LabelManagedBy] != v1beta2.ManagedByLifecycleManager {
		return false
	}
	n.mu.Lock()
	w := n.written[key]
	n.mu.Unlock()
	is := r.current.Object["spec"]
	return equality.Semantic.DeepEqual(is, any(r.spec)) ||
		w.stored != nil && equality.Semantic.DeepEqual(w.sent, r.spec) && equality.Semantic.DeepEqual(is, any(w.stored))
}

// withReason adds a reason code for the status to an error of the API server. If the kind is not served any more,
// withReason returns an error that only requeues the Watcher.
func (n *run) withReason(r *route, doing string, err error) error {
	if apierrors.IsConflict(err) {
		return err
	}
	if isObjectOrKindNotFound(err) {
		return loop.Later(time.Second, "kind "+r.kind+" to be served or removed")
	}
	reason := v1beta2.ReasonInternalError
	switch {
	case apierrors.IsForbidden(err):
		reason = v1beta2.ReasonControlPlaneForbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		reason = v1beta2.ReasonRouteRefused
	}
	return &reasonError{reason: reason, err: fmt.Errorf("%s %s: %w", doing, n.nameOf(r), err)}
}

// trimVirtualService removes the status from a VirtualService, because the status is not needed.
func trimVirtualService(u *unstructured.Unstructured) { delete(u.Object, "status") }

// trimHTTPRoute removes no fields, because the controller uses all fields: it compares spec and metadata with the
// desired state, and reads in the status whether the Gateways have accepted the route.
func trimHTTPRoute(*unstructured.Unstructured) {}

// trimGateway removes all fields of a Gateway except for metadata and hosts.
func trimGateway(u *unstructured.Unstructured) {
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

// sortUnique returns the strings sorted and without duplicates.
func sortUnique(all []any) []any {
	slices.SortFunc(all, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) })
	return slices.Compact(all)
}
