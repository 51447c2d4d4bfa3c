package chaos

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// makeRequests makes all requests in their order, each at its time or when the previous one was accepted.
func (r *run) makeRequests(ctx context.Context, begin time.Time, requests []event) error {
	for _, e := range requests {
		if err := sleep(ctx, e.At-time.Since(begin)); err != nil {
			return err
		}
		if err := r.repeatUntilAccepted(ctx, e); err != nil {
			return err
		}
		r.logf("request %s", e)
		r.report.countIn(r.report.Requests, e.What)
	}
	return nil
}

// repeatUntilAccepted repeats a request until the API servers have accepted it, as a user would.
func (r *run) repeatUntilAccepted(ctx context.Context, e event) error {
	err := r.await(ctx, r.options.Round+r.options.Heal, func(ctx context.Context) string {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		if err := r.tryRequest(ctx, e); err != nil {
			return err.Error()
		}
		return ""
	})
	if err != nil {
		return fmt.Errorf("request %s is not accepted: %w", e, err)
	}
	return nil
}

// tryRequest makes a request once.
func (r *run) tryRequest(ctx context.Context, e event) error {
	c := e.change
	switch {
	case c.channels != nil:
		return r.land.SetChannels(ctx, e.Target, ocmComponentName(e.Target), c.channels)
	case c.remove:
		return client.IgnoreNotFound(r.land.Clients[landscape.ControlPlane].Delete(ctx, r.kymaWithNameOnly(e.Target)))
	case c.create:
		if err := r.ensureRuntimeRegistered(ctx, e.Target); err != nil {
			return err
		}
	}
	return r.land.PatchDesiredKymaSpec(ctx, e.Target, func(s *v1beta2.KymaSpec) { s.Modules = c.modules })
}

// ensureRuntimeRegistered creates the access Secret and the Kyma of a runtime unless they exist. While a former Kyma is
// being deleted, ensureRuntimeRegistered returns an error.
func (r *run) ensureRuntimeRegistered(ctx context.Context, name string) error {
	k := r.kymaWithNameOnly(name)
	err := r.land.Clients[landscape.ControlPlane].Get(ctx, client.ObjectKeyFromObject(k), k)
	switch {
	case err == nil && k.DeletionTimestamp != nil:
		return fmt.Errorf("the former Kyma of %s still exists: %s", name, k.Status.LastOperation.Operation)
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading the Kyma of %s: %w", name, err)
	}
	r.promises.forgetVersions(name)
	return r.land.Register(ctx, name, v1beta2.DefaultChannel)
}

func (r *run) kymaWithNameOnly(name string) *v1beta2.Kyma {
	return &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.land.Namespace()}}
}

// requestAndAwait makes the request of an event without faults, and waits until the request is fulfilled.
func (r *run) requestAndAwait(ctx context.Context, e event) error {
	if err := r.repeatUntilAccepted(ctx, e); err != nil {
		return err
	}
	err := r.await(ctx, r.options.Heal, func(ctx context.Context) string {
		return r.firstProblem(ctx,
			e.change.want)
	})
	if err != nil {
		return fmt.Errorf("request %s is not fulfilled: %w", e, err)
	}
	return nil
}

// firstProblem returns a text about the first difference from the versions that all runtimes should have. firstProblem
// returns "" if all modules are Ready in these versions.
func (r *run) firstProblem(ctx context.Context, wantVersions map[string]map[string]int) string {
	list := &v1beta2.KymaList{}
	if err := r.land.Clients[landscape.ControlPlane].List(ctx, list); err != nil {
		return err.Error()
	}
	found := 0
	for _, k := range list.Items {
		modules := wantVersions[k.Name]
		if modules == nil {
			if len(wantVersions) > 0 {
				return "Kyma " + k.Name + " still exists: " + k.Status.LastOperation.Operation
			}
			continue
		}
		found++
		if len(k.Status.Modules) != len(modules) || k.Status.State != v1beta2.StateReady {
			return fmt.Sprintf("Kyma %s is %s with %d of %d modules: %s", k.Name, k.Status.State,
				len(k.Status.Modules), len(modules), k.Status.LastOperation.Operation)
		}
		for _, m := range k.Status.Modules {
			if m.Version != semverOfMajor(modules[m.Name]) || m.State != v1beta2.StateReady {
				return fmt.Sprintf("module %s of %s is %s in version %s instead of %s: %s", m.Name, k.Name, m.State,
					m.Version, semverOfMajor(modules[m.Name]), m.Message)
			}
		}
	}
	if found < len(wantVersions) {
		return fmt.Sprintf("%d of %d Kymas exist", found, len(wantVersions))
	}
	return ""
}

// unregisterAllAndAwaitEmpty removes all Kymas and their access Secrets, and waits until the state of all clusters
// equals the parameter empty, which is their state before the first Kyma was created.
func (r *run) unregisterAllAndAwaitEmpty(ctx context.Context, empty picture) error {
	for _, name := range r.options.Runtimes {
		e := event{What: "remove", Target: name, change: &change{remove: true}}
		if err := r.repeatUntilAccepted(ctx, e); err != nil {
			return err
		}
	}
	err := r.await(ctx, r.options.Heal, func(ctx context.Context) string {
		list := &v1beta2.KymaList{}
		if err := r.land.Clients[landscape.ControlPlane].List(ctx, list); err != nil {
			return err.Error()
		}
		for _, k := range list.Items {
			return "Kyma " + k.Name + " still exists: " + k.Status.LastOperation.Operation
		}
		return ""
	})
	if err != nil {
		return err
	}
	for _, name := range r.options.Runtimes {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + "-access", Namespace: r.land.Namespace()}}
		err := client.IgnoreNotFound(r.land.Clients[landscape.ControlPlane].Delete(ctx, secret))
		if err != nil {
			return fmt.Errorf("deleting the access Secret of %s: %w", name, err)
		}
	}
	return r.await(ctx, r.options.Heal, func(ctx context.Context) string {
		got, err := r.takeSnapshot(ctx)
		if err != nil {
			return err.Error()
		}
		return snapshotDiff(empty, got)
	})
}
