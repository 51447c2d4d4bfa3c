package authority

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

const (
	retryInterval = 2 * time.Second // delay after a failed sync
	attempts      = 5               // maximum attempts of one sync, if other replicas write the Secret at the same time
)

// Start synchronises the roots with the Secret until ctx ends. Start never returns an error. Problems are retried,
// logged, and returned by LastError.
func (a *Authority) Start(ctx context.Context) error {
	changed := a.watchSecret(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	logged := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C:
		}
		after, failed := a.Interval, ""
		if err := a.sync(ctx); err != nil && ctx.Err() == nil {
			after, failed = min(after, retryInterval), err.Error()
			if failed != logged {
				a.Log.Error(err, "cannot synchronise the roots of the certificate authority, retrying")
			}
		}
		logged = failed
		timer.Reset(after)
	}
}

// watchSecret returns a channel that signals changes of the Secret. watchSecret watches only metadata, so that it
// creates no other copy of the keys.
func (a *Authority) watchSecret(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default: // a signal is already pending
		}
	}
	list := func() *metav1.PartialObjectMetadataList {
		l := &metav1.PartialObjectMetadataList{}
		l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
		return l
	}
	only := func(raw *metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: a.Namespace, FieldSelector: fields.OneTermEqualSelector(
			"metadata.name", SecretName), Raw: raw}
	}
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l := list()
			return l, a.Client.List(ctx, l, only(&o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return a.Client.Watch(ctx, list(), only(&o))
		},
	}
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.ToListWatcherWithWatchListSemantics(lw, a.Client),
		ObjectType:    &metav1.PartialObjectMetadata{},
		// The informer does not log errors, because a failed watch means that the next sync fails with the same error,
		// and that error is logged.
		Logger: new(klog.LoggerWithName(logr.Discard(), "authority")),
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { signal() },
			UpdateFunc: func(any, any) { signal() },
			DeleteFunc: func(any) { signal() },
		},
	})
	go informer.RunWithContext(ctx)
	return changed
}

// sync reads the Secret and decides whether the roots must change. If the roots must change, sync writes the new roots
// to the Secret. Then the authority uses the roots that are in the Secret.
func (a *Authority) sync(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		again, err := a.trySync(ctx)
		if err == nil || !again || attempt == attempts {
			return err
		}
	}
}

// trySync makes one attempt of sync. If another replica has written the Secret at the same time, the result named again
// is true.
func (a *Authority) trySync(ctx context.Context) (again bool, err error) {
	key := client.ObjectKey{Namespace: a.Namespace, Name: SecretName}
	secret := &corev1.Secret{}
	err = a.Client.Get(ctx, key, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return false, fmt.Errorf("reading Secret %s with the roots: %w", key, err)
	}
	present := a.rootSet.Load() // a deleted Secret is written again
	if !missing {
		if present, err = parseRoots(secret); err != nil {
			return false, a.recordBroken(key, err)
		}
	}
	s := a.rotationInput(present, secret)
	next, done, err := present.nextRootSet(s)
	if err != nil {
		return false, fmt.Errorf("rotating the roots: %w", err)
	}
	if missing {
		done = append(done, "the Secret did not exist")
		err = a.create(ctx, key, next)
	} else if next != present {
		err = a.update(ctx, secret, next)
	}
	if err != nil {
		return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err),
			fmt.Errorf("writing Secret %s with the roots: %w", key, err)
	}
	if present != nil && newestValid(present.roots, s.now) < 0 && next.roots[0].isValidAt(s.now) &&
		s.now.Before(present.roots[0].certificate.NotBefore) {
		a.replacedAt = s.now
	}
	for _, what := range done {
		a.Log.Info("the roots of the certificate authority have changed", "what", what)
	}
	a.setRoots(next)
	outdated := next.outdatedRuntimes(s)
	a.outdated.Store(&outdated)
	metrics.AuthorityOutdatedRuntimes.Set(float64(outdated.Count))
	return false, nil
}

// rotationInput returns the input of the next decision about a rotation. rotationInput calls RuntimesByRoot only if
// there are several roots, or if this decision will create a second root.
func (a *Authority) rotationInput(present *rootSet, secret *corev1.Secret) rotationInput {
	s := rotationInput{now: a.Now(), rootLife: a.RootLifetime, overlap: a.Overlap, keep: a.SettlePeriod,
		request:  secret.Annotations[v1beta2.AnnotationRotateRoot],
		replaced: a.Now().Sub(a.replacedAt) < replacePeriod}
	if a.RuntimesByRoot != nil && present != nil &&
		(len(present.roots) > 1 || present.reasonForNewRoot(present.roots, s) != "") {
		s.seen, s.known = a.RuntimesByRoot()
	}
	return s
}

func (a *Authority) create(ctx context.Context, key client.ObjectKey, r *rootSet) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Type: corev1.SecretTypeOpaque}
	if err := r.writeTo(secret); err != nil {
		return err
	}
	return a.Client.Create(ctx, secret)
}

// update writes the roots to the Secret, unless the Secret has changed since it was read.
func (a *Authority) update(ctx context.Context, secret *corev1.Secret, r *rootSet) error {
	if err := r.writeTo(secret); err != nil {
		return err
	}
	return a.Client.Update(ctx, secret)
}

// recordBroken records that the Secret cannot be parsed. recordBroken returns an error only if the problem is new.
func (a *Authority) recordBroken(key client.ObjectKey, cause error) (newProblem error) {
	e := &Error{Code: v1beta2.ReasonAuthorityBroken, Message: fmt.Sprintf(
		"Secret %s with the roots of the certificate authority is broken (%v): restore it, or delete it to have it "+
			"written again", key, cause)}
	former := a.problem.Swap(e)
	a.known()
	metrics.AuthoritySecretInvalid.Set(1)
	if former != nil && former.Message == e.Message {
		return nil
	}
	return e
}
