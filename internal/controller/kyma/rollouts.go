package kyma

import (
	"context"
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// A change of a rollout enqueues only the Kymas whose module versions change. A Kyma that is not admitted yet is not
// enqueued, and causes no request. The changes and the Kymas that they enqueue:
//
//	a version in a channel with a RolloutPolicy   no Kyma: the coordinator makes a rollout
//	the channel gets its recorded version back    all Kymas of the module: they may have got the version in between,
//	                                              and the coordinator makes no rollout
//	runtimes are admitted                         these Kymas
//	the proven version of a channel               the Kymas in the channel with another version, or that wait for it
//	the proven version of a mandatory module      the Kymas with another version, or without the module

// isStagedMove reports whether the only change of a release is that channels got new versions, and whether a rollout
// with stages installs each of these new versions.
func (r *Reconciler) isStagedMove(ctx context.Context, before, after client.Object) bool {
	was, isRelease := before.(*v1beta2.ModuleReleaseMeta)
	is, ok := after.(*v1beta2.ModuleReleaseMeta)
	if !isRelease || !ok || was.IsMandatory() != is.IsMandatory() || !is.DeletionTimestamp.IsZero() {
		return false
	}
	var moved []string
	same := was.Spec.DeepCopy()
	if is.IsMandatory() {
		if same.Mandatory.Version != is.Spec.Mandatory.Version {
			moved = append(moved, v1beta2.MandatoryChannel)
		}
		same.Mandatory.Version = is.Spec.Mandatory.Version
	}
	for i := range same.Channels {
		c := &same.Channels[i]
		if version, found := is.ChannelVersion(c.Channel); found && version != c.Version {
			moved, c.Version = append(moved, c.Channel), version
		}
	}
	if len(moved) == 0 || !apiequality.Semantic.DeepEqual(same, &is.Spec) ||
		!apiequality.Semantic.DeepEqual(was.Labels, is.Labels) {
		return false
	}
	var policies v1beta2.RolloutPolicyList
	if err := r.Client.List(ctx, &policies, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	return !slices.ContainsFunc(moved, func(of string) bool {
		target, _ := is.SpecVersion(of)
		if s := is.ChannelStatus(of); s != nil && s.Target == target {
			return true // the version in between was not recorded, so no change of the status enqueues the Kymas
		}
		policy, err := rollout.PolicyFor(policies.Items, is.Name, of)
		return policy == nil && err == nil
	})
}

// onRollout returns the handler for changes of ModuleRollouts: it enqueues the Kymas that are admitted.
func (r *Reconciler) onRollout() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ queueing.Queue) {
		was, is := e.ObjectOld.(*v1beta2.ModuleRollout), e.ObjectNew.(*v1beta2.ModuleRollout)
		if was.Status.Admitted == is.Status.Admitted || is.Status.Admitted == "" {
			return
		}
		r.enqueueNewlyAdmitted(ctx, is, was.Status.Admitted)
	}}
}

// enqueueNewlyAdmitted enqueues the Kymas that a rollout admits now and did not admit before.
func (r *Reconciler) enqueueNewlyAdmitted(ctx context.Context, rollout *v1beta2.ModuleRollout, admittedBefore string) {
	var kymas []string
	if rollout.Spec.Channel == v1beta2.MandatoryChannel {
		kymas = r.kymaNames(ctx)
	} else {
		kymas = r.kymaNames(ctx, client.MatchingFields{moduleIndex: rollout.Spec.Module})
	}
	for _, name := range place.NewlyAdmitted(rollout.Spec.Lineage, admittedBefore, rollout.Status.Admitted, kymas) {
		r.enqueueWhenAdmitted(name)
	}
}

// kymaNames returns the names of Kymas in the cache.
func (r *Reconciler) kymaNames(ctx context.Context, o ...client.ListOption) []string {
	var list v1beta2.KymaList
	err := r.Client.List(ctx, &list, append(o, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy)...)
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot list Kymas")
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}

// onReleaseStatus returns the handler for changes of the status of a release. Changes of the spec of a release are
// handled by onCatalog.
func (r *Reconciler) onReleaseStatus() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ queueing.Queue) {
		was, is := e.ObjectOld.(*v1beta2.ModuleReleaseMeta), e.ObjectNew.(*v1beta2.ModuleReleaseMeta)
		for i := range is.Status.Channels {
			c := &is.Status.Channels[i]
			before := was.ChannelStatus(c.Channel)
			if before != nil && before.Version == c.Version && before.Target == c.Target && before.Policy == c.Policy &&
				before.Rollout == c.Rollout && before.TakingBack == c.TakingBack {
				continue
			}
			if c.Policy == "" {
				r.catalog.Invalidate() // the rollout in stages has ended: the other runtimes get the catalog copy now
			} else {
				r.catalog.InvalidateWithoutSignal()
			}
			r.enqueueConcerned(ctx, is.Name, c)
			if c.Rollout != "" {
				r.enqueueAlreadyAdmitted(ctx, c.Rollout)
			}
		}
	}}
}

// enqueueAlreadyAdmitted enqueues the Kymas that a rollout admits first. enqueueAlreadyAdmitted is called when the
// status of a ModuleReleaseMeta begins to name the rollout. The event about the first admissions may have arrived
// before that, and its handler has then enqueued no Kyma.
func (r *Reconciler) enqueueAlreadyAdmitted(ctx context.Context, rollout string) {
	active := &v1beta2.ModuleRollout{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: rollout}, active); {
	case err == nil:
		r.enqueueNewlyAdmitted(ctx, active, "")
	case client.IgnoreNotFound(err) != nil:
		log.FromContext(ctx).Error(err, "cannot read a ModuleRollout", "rollout", rollout)
	}
}

// enqueueConcerned enqueues the Kymas in a channel that do not have the proven version of the channel (the version of
// its last completed rollout). enqueueConcerned also enqueues the Kymas that wait for the first entry of the channel in
// the status of the ModuleReleaseMeta.
func (r *Reconciler) enqueueConcerned(ctx context.Context, module string, c *v1beta2.ChannelStatus) {
	if c.Version != c.Target && c.Policy == "" {
		return // the version takes effect at once, so the change of spec has enqueued all Kymas
	}
	kymas, manifests, err := r.kymasAndManifestsOf(ctx, module, c.Channel)
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot find the Kymas of a channel", "module", module, "channel", c.Channel)
		return
	}
	var others []string
	for i := range kymas {
		if k := &kymas[i]; needsReconcileAfterChannelChange(k, manifests[k.Name], module, c) {
			others = append(others, k.Name)
		}
	}
	if c.Channel == v1beta2.MandatoryChannel {
		r.enqueueStaggered(others)
		return
	}
	for _, name := range others {
		r.enqueueWhenAdmitted(name)
	}
}

// enqueueMandatoryUsers enqueues the Kymas that have, or may now get, one of the given versions of a mandatory module.
// In a rollout in stages, a runtime that is not admitted yet keeps the proven version, so its Kyma needs no reconcile
// after changes of other versions.
func (r *Reconciler) enqueueMandatoryUsers(ctx context.Context, release *v1beta2.ModuleReleaseMeta,
	templates []client.Object) {
	c := release.ChannelStatus(v1beta2.MandatoryChannel)
	if c == nil || c.Version == "" {
		r.EnqueueAll(ctx)
		return
	}
	kymas, manifests, err := r.kymasAndManifestsOf(ctx, release.Name, c.Channel)
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot find the Kymas of a mandatory module", "module", release.Name)
		return
	}
	isStaged := c.Policy != "" && c.Rollout != ""
	var concerned []string
	for i := range kymas {
		k := &kymas[i]
		m := manifests[k.Name]
		ordered, installed := plan.VersionWrittenByController(m), plan.InstalledOrRequestedVersion(m)
		hasVersion := slices.ContainsFunc(templates, func(t client.Object) bool {
			return t.GetName() == channel.TemplateName(release.Name, ordered) ||
				t.GetName() == channel.TemplateName(release.Name, installed)
		})
		if hasVersion || !isStaged && ordered != release.Spec.Mandatory.Version || needsReconcileAfterChannelChange(k,
			m, release.Name, c) {
			concerned = append(concerned, k.Name)
		}
	}
	r.enqueueStaggered(concerned)
}

// kymasAndManifestsOf returns the Kymas that may have a given module from a given channel, and the Manifests of the
// module, by the names of their Kymas. For a mandatory module, kymasAndManifestsOf returns all Kymas. Callers must not
// change the returned objects.
func (r *Reconciler) kymasAndManifestsOf(ctx context.Context, module, channelName string) ([]v1beta2.Kyma,
	map[string]*v1beta2.Manifest,
	error) {
	options := []client.ListOption{client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy}
	var manifests v1beta2.ManifestList
	err := r.Client.List(ctx, &manifests, append(options, client.MatchingFields{manifestModuleIndex: module})...)
	if err != nil {
		return nil, nil, fmt.Errorf("listing the Manifests of module %s: %w", module, err)
	}
	byKyma := make(map[string]*v1beta2.Manifest, len(manifests.Items))
	for i := range manifests.Items {
		m := &manifests.Items[i]
		byKyma[m.Labels[v1beta2.LabelKymaName]] = m
	}
	if channelName != v1beta2.MandatoryChannel {
		options = append(options, client.MatchingFields{moduleIndex: module})
	}
	var kymas v1beta2.KymaList
	if err := r.Client.List(ctx, &kymas, options...); err != nil {
		return nil, nil, fmt.Errorf("listing Kymas: %w", err)
	}
	return kymas.Items, byKyma, nil
}

// needsReconcileAfterChannelChange reports whether a Kyma needs a reconcile after a change in the status of a channel.
// A Kyma needs a reconcile in two cases: its installed or requested version is not the proven version of the channel,
// or it waits for the first record of the channel. The status of a Kyma does not show whether a mandatory module waits
// for a rollout, so every Kyma without a Manifest of the mandatory module counts as waiting. While runtimes are
// downgraded to the proven version in stages, a Kyma with another version needs no reconcile before the rollout admits
// it.
func needsReconcileAfterChannelChange(k *v1beta2.Kyma, m *v1beta2.Manifest, module string,
	c *v1beta2.ChannelStatus) bool {
	hasOther := func(installed string) bool {
		waitsForAdmission := c.TakingBack != "" && c.Policy != ""
		ordered := plan.VersionWrittenByController(m)
		return !waitsForAdmission && (installed != c.Version || ordered != "" && ordered != c.Version)
	}
	if c.Channel == v1beta2.MandatoryChannel {
		return plan.VersionWrittenByController(m) == "" || hasOther(plan.InstalledOrRequestedVersion(m))
	}
	return slices.ContainsFunc(k.Status.Modules, func(s v1beta2.ModuleStatus) bool {
		return s.Name == module && (s.Channel == c.Channel && hasOther(s.Version) ||
			s.Reason == v1beta2.ReasonWaitingForRollout)
	})
}

// Catalog returns the catalog from which this controller resolves requests, together with the maintenance policy in
// force. readError returns an error if a read of the catalog has failed.
func (r *Reconciler) Catalog(ctx context.Context) (catalog channel.Catalog, readError func() error) {
	catalog, readError = r.catalog.Lookup(ctx)
	catalog.Policy, catalog.ControlPlane = r.policies.InForce(), r.ControlPlane
	return catalog, readError
}
