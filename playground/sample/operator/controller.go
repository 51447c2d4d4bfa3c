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

// again is when to look once more after a conflict, and at what is being deleted.
const again = 200 * time.Millisecond

// reconciler keeps Samples and their workloads in step. A pass that finds all as it should be writes nothing.
type reconciler struct {
	client   client.Client // reads from a cache, which holds only what carries our label
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

// Reconcile brings one Sample a step further: finalizer, workload, status; or the way back.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &sample.Sample{}
	if err := r.client.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.DeletionTimestamp.IsZero() {
		return r.remove(ctx, s)
	}
	if err := r.setFinalizer(ctx, s, controllerutil.AddFinalizer); err != nil {
		return retry(err)
	}
	var seen observation
	if s.Spec.Fail == "" {
		seen = r.install(ctx, s)
	}
	if apierrors.IsConflict(seen.err) {
		return retry(seen.err) // the cache was behind: nothing worth telling has happened
	}
	if err := r.report(ctx, s, judge(s, seen)); err != nil {
		return retry(err)
	}
	return ctrl.Result{}, seen.err
}

// install makes the workload what the Sample asks for, and returns how it is.
func (r *reconciler) install(ctx context.Context, s *sample.Sample) observation {
	meta := metav1.ObjectMeta{Namespace: s.Namespace, Name: workloadName(s)}
	config := func() *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: meta} }
	deployment := func() *appsv1.Deployment { return &appsv1.Deployment{ObjectMeta: meta} }
	if _, err := ensure(ctx, r, s, config, r.workload.shapeConfigMap); err != nil {
		return observation{err: fmt.Errorf("writing ConfigMap %s/%s: %w", meta.Namespace, meta.Name, err)}
	}
	d, err := ensure(ctx, r, s, deployment, r.workload.shapeDeployment)
	if err != nil {
		return observation{err: fmt.Errorf("writing Deployment %s/%s: %w", meta.Namespace, meta.Name, err)}
	}
	return observation{deployment: d}
}

// ensure creates the object that empty names, or updates it if shape changes anything of it, and returns it as it is
// then. What is not controlled by s is left alone.
func ensure[T client.Object](ctx context.Context, r *reconciler, s *sample.Sample, empty func() T,
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
		obj = empty() // it exists, but not in the cache, which may be late, or lacks it for want of our label
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

// remove deletes the workload and, once that is gone, lets the Sample go.
func (r *reconciler) remove(ctx context.Context, s *sample.Sample) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s, sample.Finalizer) {
		return ctrl.Result{}, nil
	}
	if err := r.report(ctx, s, judge(s, observation{})); err != nil {
		return retry(client.IgnoreNotFound(err))
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
	return retry(client.IgnoreNotFound(r.setFinalizer(ctx, s, controllerutil.RemoveFinalizer)))
}

// setFinalizer adds or removes our finalizer, and writes only if that changes something.
func (r *reconciler) setFinalizer(ctx context.Context, s *sample.Sample, set func(client.Object, string) bool) error {
	before := s.DeepCopy()
	if !set(s, sample.Finalizer) {
		return nil
	}
	return r.client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// report writes the status if it differs from what the Sample says.
func (r *reconciler) report(ctx context.Context, s *sample.Sample, status sample.Status) error {
	if equality.Semantic.DeepEqual(s.Status, status) {
		return nil
	}
	before := s.DeepCopy()
	s.Status = status
	return r.client.Status().Patch(ctx, s, client.MergeFrom(before))
}

// retry looks again soon after a conflict: it says that the cache was late, not that something is wrong.
func retry(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return ctrl.Result{}, err
}
