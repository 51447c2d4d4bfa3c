package agentdelivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// desiredRequest returns the desired watch list and webhooks of the agent of a runtime. The watch list contains the
// objects that other controllers want to be notified of (interests), and the objects of Watchers. The webhooks come
// from the Watchers.
func (a *Agents) desiredRequest(ctx context.Context, k *v1beta2.Kyma, server string) (delivery.Request, error) {
	request := delivery.Request{Kyma: k, Server: server, NotBefore: certificatesNeededSince(k, time.Now())}
	request.Watchlist.HeartbeatInterval = metav1.Duration{Duration: a.HeartbeatInterval}
	for _, i := range a.Runtimes.Interests(k.Name) {
		if i.Resource.Group == "" && i.Resource.Resource == "secrets" {
			continue // a permission to watch Secrets permits reading them; audits find changes of Secrets
		}
		request.Watchlist.Watches = append(request.Watchlist.Watches, watchFor(i))
	}
	var watchers v1beta2.WatcherList
	if err := a.Client.List(ctx, &watchers, client.InNamespace(a.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return request, fmt.Errorf("listing Watchers: %w", err)
	}
	slices.SortFunc(watchers.Items, func(x, y v1beta2.Watcher) int { return strings.Compare(x.Name, y.Name) })
	for i := range watchers.Items {
		w := &watchers.Items[i]
		if w.NotifiedManagerName() == "" || !w.DeletionTimestamp.IsZero() {
			continue // the status of the Watcher shows the problem
		}
		addWatchOrWebhook(&request, w)
	}
	return request, nil
}

// addWatchOrWebhook adds the watch or the webhook of a Watcher to what has to be delivered to a runtime. An invalid
// Watcher is left out, because it would make the watches and the webhooks of all other Watchers useless. The status of
// the Watcher shows the problem.
func addWatchOrWebhook(r *delivery.Request, w *v1beta2.Watcher) {
	if w.ChangeDetectionMode() == v1beta2.WatcherModeWebhook {
		if webhook, err := delivery.WebhookFor(w); err == nil {
			r.Webhooks = append(r.Webhooks, webhook)
		}
		return
	}
	watch, err := delivery.WatchFor(w)
	if err != nil {
		return
	}
	isSame := func(w protocol.Watch) bool {
		w.State = false
		return w == watch
	}
	if !slices.ContainsFunc(r.Watchlist.Watches, isSame) {
		r.Watchlist.Watches = append(r.Watchlist.Watches, watch)
	}
}

// watchFor returns the watch of the agent for one interest of a subscriber.
func watchFor(i runtimes.Interest) protocol.Watch {
	w := protocol.Watch{
		Group: i.Resource.Group, Version: i.Resource.Version, Resource: i.Resource.Resource, Kind: i.Kind,
		Namespace: i.Namespace, Name: i.Name, Selector: i.Labels,
	}
	if i.Resource.Group == v1beta2.GroupVersion.Group { // the manager itself writes the status of these kinds
		w.Field = protocol.FieldSpec
		return w
	}
	// The readiness of a module depends on the state of its workloads and of its custom resource. An interest in a
	// single named object is in the custom resource of a module, or in an object that belongs to the credential of the
	// manager. The objects that belong to the credential are in API groups of Kubernetes, so the API group of an object
	// shows whether the object is a custom resource of a module.
	isKubernetes := i.Resource.Group == "" || strings.HasSuffix(i.Resource.Group, ".k8s.io")
	w.State = i.Resource.Group == "apps" || i.Name != "" && !isKubernetes
	return w
}

// certificatesNeededSince returns the time before which a certificate must have been issued to be replaced: the time of
// revocation, unless it is in the future, or the time at which the Kyma was created, whichever is later. A certificate
// of cert-manager does not contain the UID of the Kyma, so the listener refuses such a certificate if it was issued
// before the Kyma was created. A restored Kyma may have a certificate that was issued before.
func certificatesNeededSince(k *v1beta2.Kyma, now time.Time) time.Time {
	t := RevokedBefore(k.Annotations, now)
	if created := k.CreationTimestamp.Time; created.After(t) {
		return created
	}
	return t
}

// RevokedBefore returns the time before which a certificate of a runtime must have been issued to be refused now. If
// the time in the annotation [v1beta2.AnnotationCertificatesNotBefore] is in the future, or if the Kyma does not have
// the annotation, RevokedBefore returns the zero time: a certificate is refused only if the issuer replaces it.
func RevokedBefore(annotations map[string]string, now time.Time) time.Time {
	t := certificatesNotBefore(annotations)
	if t.After(now) {
		return time.Time{}
	}
	return t
}

// certificatesNotBefore returns the time in the annotation [v1beta2.AnnotationCertificatesNotBefore] of a Kyma: all
// certificates of the runtime that were issued before this time are revoked. The time has whole seconds, because a
// certificate contains the time of its issue in seconds. If the Kyma does not have the annotation,
// certificatesNotBefore returns the zero time.
func certificatesNotBefore(annotations map[string]string) time.Time {
	t, err := time.Parse(time.RFC3339, annotations[v1beta2.AnnotationCertificatesNotBefore])
	if err != nil {
		return time.Time{}
	}
	return t.Truncate(time.Second)
}

// The Manifest controller declares, for one Manifest after the other, in which objects of the runtime it is interested,
// also after a restart of the manager. The watch list is incomplete until this has happened for all Manifests. The
// agent keeps its current watch list until the new one is complete, but at most until one of the following timeouts has
// passed.
const (
	installInterestsTimeout = 5 * time.Second // for a Manifest that is being installed
	restartInterestsTimeout = 2 * time.Minute // for a Manifest that was installed before this process started
)

// recordInterestsWait reports whether the delivery has to wait because the watch list is incomplete: the Manifest
// controller has not yet declared for every Manifest which objects have to be watched.
func (a *Agents) recordInterestsWait(t Target) (waits bool) {
	var keys []string
	timeout := installInterestsTimeout
	for _, m := range t.Manifests {
		if m == nil || !m.DeletionTimestamp.IsZero() || m.IsUnmanaged() ||
			m.InstalledOrSpecTarget() == v1beta2.TargetControlPlane {
			continue // it has no objects in the runtime
		}
		key := runtimes.ManifestSubscriberKey(m.Namespace, m.Name)
		if keys = append(keys, key); m.Status.AppliedDigest != "" && !a.Runtimes.HasInterests(t.Kyma.Name, key) {
			timeout = restartInterestsTimeout
		}
	}
	complete := a.haveAllDeclaredInterests(t.Kyma.Name, keys)
	var left time.Duration
	a.editRecord(t, func(r *record) {
		if r.manifests = keys; complete {
			r.waitingSince = time.Time{}
			return
		}
		if r.waitingSince.IsZero() {
			r.waitingSince = t.Now
		}
		if left = r.waitingSince.Add(timeout).Sub(t.Now); left > 0 {
			waits, r.waitTimeout = true, timeout
		}
	})
	if waits {
		a.Reviews.AddAfter(t.Kyma.Name, left+time.Millisecond)
	}
	return waits
}

// haveAllDeclaredInterests reports whether all given subscribers have declared in which objects of the runtime they are
// interested.
func (a *Agents) haveAllDeclaredInterests(kyma string, subscribers []string) bool {
	return !slices.ContainsFunc(subscribers, func(key string) bool { return !a.Runtimes.HasInterests(kyma, key) })
}
