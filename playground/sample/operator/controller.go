package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
)

// again is the requeue delay after a conflict and for a Sample that is being deleted.
const again = 200 * time.Millisecond

// reconciler reconciles Samples and their workloads. A reconcile that finds no difference writes nothing.
type reconciler struct {
	client   client.Client // reads from a cache, which holds only objects with our label
	live     client.Reader // reads from the API server
	workload workload
}

func (r *reconciler) register(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&sample.Sample{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.ConfigMap{}).
		Complete(r)
}

// Reconcile reconciles one Sample: it sets the finalizer, installs the workload, and writes the status. If the Sample
// is being deleted, Reconcile removes the workload and the finalizer.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &sample.Sample{}
	if err := r.client.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.DeletionTimestamp.IsZero() {
		return r.remove(ctx, s)
	}
	if err := r.setFinalizer(ctx, s, controllerutil.AddFinalizer); err != nil {
		return requeueOnConflict(err)
	}
	var seen observation
	if s.Spec.Fail == "" {
		seen = r.install(ctx, s)
	}
	if apierrors.IsConflict(seen.err) {
		return requeueOnConflict(seen.err) // the cache was stale: there is nothing to report
	}
	if err := r.report(ctx, s, statusFor(s, seen)); err != nil {
		return requeueOnConflict(err)
	}
	return ctrl.Result{}, seen.err
}

// install creates or updates the workload of the Sample, and returns its observed state.
func (r *reconciler) install(ctx context.Context, s *sample.Sample) observation {
	meta := metav1.ObjectMeta{Namespace: s.Namespace, Name: workloadName(s)}
	config := func() *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: meta} }
	deployment := func() *appsv1.Deployment { return &appsv1.Deployment{ObjectMeta: meta} }
	if _, err := ensureOwned(ctx, r, s, config, r.workload.shapeConfigMap); err != nil {
		return observation{err: fmt.Errorf("writing ConfigMap %s/%s: %w", meta.Namespace, meta.Name, err)}
	}
	d, err := ensureOwned(ctx, r, s, deployment, r.workload.shapeDeployment)
	if err != nil {
		return observation{err: fmt.Errorf("writing Deployment %s/%s: %w", meta.Namespace, meta.Name, err)}
	}
	return observation{deployment: d}
}

// ensureOwned creates an object, or updates it if necessary, and returns the resulting object. The function empty()
// returns the object with its name only, and the function shape() sets the desired content. ensureOwned does not change
// an object whose controller is not the Sample s.
func ensureOwned[T client.Object](ctx context.Context, r *reconciler, s *sample.Sample, empty func() T,
	shape func(T, *sample.Sample)) (T, error) {
	obj := empty()
	key := client.ObjectKeyFromObject(obj)
	err := r.client.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		shape(obj, s)
		obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(
			s, sample.GroupVersion.WithKind("Sample"))})
		if err = r.client.Create(ctx, obj); !apierrors.IsAlreadyExists(err) {
			return obj, err
		}
		obj = empty() // the object exists but is not cached: the cache is stale, or our label is missing
		err = r.live.Get(ctx, key, obj)
	}
	if err != nil {
		return obj, err
	}
	if !metav1.IsControlledBy(obj, s) {
		return obj, fmt.Errorf("it exists and does not belong to Sample %s/%s: remove or rename one of the two",
			s.Namespace, s.Name)
	}
	before := obj.DeepCopyObject()
	shape(obj, s)
	if equality.Semantic.DeepEqual(before, obj) {
		return obj, nil
	}
	return obj, r.client.Update(ctx, obj)
}

// remove deletes the workload. When the workload is deleted, remove removes the finalizer of the Sample.
func (r *reconciler) remove(ctx context.Context, s *sample.Sample) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s, sample.Finalizer) {
		return ctrl.Result{}, nil
	}
	if err := r.report(ctx, s, statusFor(s, observation{})); err != nil {
		return requeueOnConflict(client.IgnoreNotFound(err))
	}
	left := false
	for _, obj := range []client.Object{&appsv1.Deployment{}, &corev1.ConfigMap{}} {
		err := r.live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: workloadName(s)}, obj)
		if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(obj, s) {
			continue
		}
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("reading %T %s: %w", obj, workloadName(s), err)
		}
		left = true
		if !obj.GetDeletionTimestamp().IsZero() {
			continue
		}
		err = r.client.Delete(ctx, obj, client.Preconditions{UID: new(obj.GetUID())},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("deleting %T %s: %w", obj, workloadName(s), err)
		}
	}
	if left {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return requeueOnConflict(client.IgnoreNotFound(r.setFinalizer(ctx, s, controllerutil.RemoveFinalizer)))
}

// setFinalizer adds or removes our finalizer. setFinalizer writes only if that changes the Sample.
func (r *reconciler) setFinalizer(ctx context.Context, s *sample.Sample, set func(client.Object, string) bool) error {
	before := s.DeepCopy()
	if !set(s, sample.Finalizer) {
		return nil
	}
	return r.client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// report writes the status if it differs from the present status of the Sample.
func (r *reconciler) report(ctx context.Context, s *sample.Sample, status sample.Status) error {
	if equality.Semantic.DeepEqual(s.Status, status) {
		return nil
	}
	before := s.DeepCopy()
	s.Status = status
	return r.client.Status().Patch(ctx, s, client.MergeFrom(before))
}

// requeueOnConflict requeues the request soon after a conflict. A conflict means that the cache was outdated, and is
// not an error.
func requeueOnConflict(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return ctrl.Result{}, err
}
