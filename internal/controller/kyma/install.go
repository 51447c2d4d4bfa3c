package kyma

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/changelog"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// listManifestsAndDecideModules finds the desired version and the Manifest of every module.
func (n *run) listManifestsAndDecideModules(ctx context.Context) (err error) {
	if n.manifests, err = n.listManifests(ctx); err != nil {
		return err
	}
	n.policies.RefreshConfigMap(ctx)
	n.found.policyProblem = n.policies.Problem()
	if n.modules, err = n.decide(ctx, n.remote, n.manifests); err != nil {
		return err
	}
	n.found.resolved = true
	return nil
}

// decide returns all modules of the Kyma with their decisions. remote is the Kyma that has the requested modules. After
// a failed read of the catalog, decide returns no modules, because decisions with an incomplete catalog may be wrong.
func (n *run) decide(ctx context.Context, remote *v1beta2.Kyma, manifests map[string]*v1beta2.Manifest) (
	[]plan.Module, error) {
	catalog, failed := n.Catalog(ctx)
	modules := plan.Resolve(plan.Inputs{Kyma: n.kyma, Remote: remote, Manifests: manifests,
		Catalog: catalog, Now: n.now})
	if err := failed(); err != nil {
		return nil, err
	}
	return modules, nil
}

// listManifests returns all Manifests of this Kyma, by name. listManifests reads the Manifests one by one, because a
// list from the cache may lack recent writes.
func (n *run) listManifests(ctx context.Context) (byName map[string]*v1beta2.Manifest, _ error) {
	list := &v1beta2.ManifestList{}
	err := n.Client.List(ctx, list, client.InNamespace(n.kyma.Namespace),
		client.MatchingFields{runtimes.KymaNameIndex: n.kyma.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the Manifests of Kyma %s: %w", n.kyma.Name, err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	for _, m := range n.kyma.Status.Modules { // the list may lack Manifests that were created a moment ago
		if m.Manifest != nil {
			names = append(names, m.Manifest.Metadata.Name)
		}
	}
	all := make(map[string]*v1beta2.Manifest, len(names))
	for _, name := range names {
		if all[name] != nil {
			continue
		}
		m, err := n.readOwnManifest(ctx, name)
		if err != nil {
			return nil, err
		}
		if m != nil {
			all[name] = m
		}
	}
	return all, nil
}

// readOwnManifest reads one Manifest of this Kyma. readOwnManifest returns nil if the Manifest does not exist or
// belongs to another Kyma.
func (n *run) readOwnManifest(ctx context.Context, name string) (*v1beta2.Manifest, error) {
	m := &v1beta2.Manifest{}
	if err := n.Client.Get(ctx, types.NamespacedName{Namespace: n.kyma.Namespace, Name: name}, m); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Manifest %s: %w", name, err)
	}
	if m.Labels[v1beta2.LabelKymaName] != n.kyma.Name {
		return nil, nil
	}
	return m, nil
}

// writeRequestedManifests creates or updates the Manifest of every requested module. If a module fails,
// writeRequestedManifests continues with the other modules, and the next steps run, too. The later step settle returns
// the errors of the failed modules.
func (n *run) writeRequestedManifests(ctx context.Context) error {
	for i := range n.modules {
		m := &n.modules[i]
		switch {
		case !m.IsRequested:
		case m.PauseBlocker() != nil:
			m.Err = n.setManifestAnnotation(ctx, m, v1beta2.AnnotationPaused, m.PauseBlocker().Message)
		case !m.Spec.IsManaged():
			m.Err = n.setManifestAnnotation(ctx, m, v1beta2.AnnotationIsUnmanaged, v1beta2.ValueTrue)
		case m.Decision.Blocker != nil:
			m.Err = errors.Join(n.setManifestAnnotation(ctx, m, v1beta2.AnnotationPaused, ""),
				n.unblockIfContentReverted(ctx, m))
		default:
			m.Err = n.installModule(ctx, m)
		}
	}
	return nil
}

// setManifestAnnotation sets an annotation of the Manifest of a module, or removes the annotation if value is "".
// setManifestAnnotation does nothing if the Manifest does not exist or is being deleted.
func (n *run) setManifestAnnotation(ctx context.Context, m *plan.Module, key, value string) error {
	if m.Manifest == nil || !m.Manifest.DeletionTimestamp.IsZero() || m.Manifest.Annotations[key] == value {
		return nil
	}
	updated := m.Manifest.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, key, value)
	if value == "" {
		delete(updated.Annotations, key)
	}
	if key != v1beta2.AnnotationPaused {
		delete(updated.Annotations, v1beta2.AnnotationPaused)
	}
	return n.patchManifest(ctx, m, updated)
}

// patchManifest sends the changes of the Manifest of a module to the API server.
func (n *run) patchManifest(ctx context.Context, m *plan.Module, updated *v1beta2.Manifest) error {
	n.ownWrites.expect(updated) // before the request: the event may arrive before the response
	if err := n.Client.Patch(ctx, updated, client.MergeFrom(m.Manifest),
		client.FieldOwner(v1beta2.FieldOwner)); err != nil {
		n.ownWrites.forget(client.ObjectKeyFromObject(m.Manifest))
		return fmt.Errorf("updating Manifest %s: %w", m.Manifest.Name, err)
	}
	m.Manifest = updated
	return nil
}

// installModule creates or updates the Manifest of one module. If the Manifest is already as desired, installModule
// does nothing.
func (n *run) installModule(ctx context.Context, m *plan.Module) error {
	if m.Manifest != nil && (!m.Manifest.DeletionTimestamp.IsZero() || m.Manifest.IsUnmanaged()) {
		n.upgradeDeleted(ctx, m)
		return nil // the deletion event triggers the reconcile that creates the next Manifest
	}
	if plan.AwaitsInventory(m.Manifest) {
		// The event of the inventory triggers the next reconcile. The controller of Manifests reads no inventory of a
		// paused Manifest, so the pause has to end now.
		return n.setManifestAnnotation(ctx, m, v1beta2.AnnotationPaused, "")
	}
	artefact, err := n.resolveArtefactOrBlock(ctx, m)
	if err != nil {
		return fmt.Errorf("module %s, version %s: %w", m.Spec.Name, m.Decision.Version, err)
	}
	if m.Decision.Blocker != nil {
		return nil // the version was replaced in the registry
	}
	want := plan.DesiredManifest(n.kyma, m, artefact, n.now)
	n.Shards.SetShardLabel(want, n.kyma.Name)
	if m.Manifest == nil {
		if mayInstall, err := n.useExistingManifest(ctx, m, want.Name); err != nil || !mayInstall {
			return err
		}
	}
	if m.Manifest == nil || m.Manifest.Name != want.Name {
		n.annotateOCIRefIfCached(want)
		if err := n.Client.Create(ctx, want, client.FieldOwner(v1beta2.FieldOwner)); err != nil {
			return fmt.Errorf("creating Manifest %s: %w", want.Name, err)
		}
		m.Manifest = want
		return nil
	}
	isEdited := plan.HasEditedVersionOrSources(m.Manifest) || n.hasSourcesEditedByOthers(m.Manifest)
	updated := plan.WithDesired(m.Manifest, want)
	if updated == nil {
		return nil
	}
	n.annotateOCIRefIfCached(updated)
	if err := n.patchManifest(ctx, m, updated); err != nil {
		return err
	}
	if isEdited && n.Events != nil {
		n.Events.Eventf(m.Manifest, nil, corev1.EventTypeWarning, v1beta2.ReasonManifestRestored, "Reconcile", "%s",
			"somebody else changed what this Manifest installs; version "+m.Decision.Version+" was written again: "+
				"change the ModuleTemplate or the ModuleReleaseMeta instead")
	}
	return nil
}

// useExistingManifest looks for a Manifest with the name that a new Manifest of a module would have: the list of
// Manifests may lack a Manifest that was created a moment ago. If the module cannot be installed now, because the found
// Manifest is being deleted or belongs to another module, useExistingManifest returns false. An event of the found
// Manifest then triggers the next reconcile.
func (n *run) useExistingManifest(ctx context.Context, m *plan.Module, name string) (mayInstall bool, err error) {
	found, err := n.readOwnManifest(ctx, name)
	if err != nil || found == nil {
		return err == nil, err
	}
	isDeleted := !found.DeletionTimestamp.IsZero()
	switch b := plan.NameConflictBlocker(m, found); {
	case b == nil:
		m.Manifest = found
		return !isDeleted, nil
	case !isDeleted:
		m.Decision.Blocker = b
	}
	return false, nil
}

// annotateOCIRefIfCached sets AnnotationSyncOCIRef, the reference of the module's artefact, if the registry cache of
// the manager already has the artefact. If the registry cache does not have the artefact, the Manifest controller sets
// AnnotationSyncOCIRef later, which costs an additional write.
func (n *run) annotateOCIRefIfCached(m *v1beta2.Manifest) {
	if source, err := v1beta2.DecodeImageSpecLeniently(m.Spec.Install.Source); err == nil &&
		n.Registry.IsCachedWithoutTrustPolicy(source.Ref) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta2.AnnotationSyncOCIRef, source.Ref)
	}
}

// removeUnwantedManifests deletes two kinds of Manifests: those of modules that are no longer requested, and those of
// modules that this runtime must not have.
func (n *run) removeUnwantedManifests(ctx context.Context) error {
	var errs []error
	for i := range n.modules {
		m := &n.modules[i]
		isForbidden := m.Decision.Blocker != nil && !m.Decision.Blocker.KeepInstalled
		if m.Manifest == nil || m.IsRequested && !isForbidden {
			continue
		}
		errs = append(errs, n.deleteOrUpgradeIfDeleting(ctx, m))
	}
	return errors.Join(errs...)
}

// deleteOrUpgradeIfDeleting deletes the Manifest of a module. If the Manifest is being deleted already, upgradeDeleted
// is called instead. In both cases, deleteOrUpgradeIfDeleting first records in the Manifest whether the user allows the
// deletion of custom resources.
func (n *run) deleteOrUpgradeIfDeleting(ctx context.Context, m *plan.Module) error {
	if updated := plan.WithCustomResourceDeletion(m); updated != nil {
		if err := n.patchManifest(ctx, m, updated); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if !m.Manifest.DeletionTimestamp.IsZero() {
		n.upgradeDeleted(ctx, m)
		return nil
	}
	return n.deleteManifest(ctx, m.Manifest)
}

// upgradeDeleted writes a higher version into a Manifest that is being deleted: the deletion may wait for an operator
// that works only in the higher version. If the higher version cannot be written, upgradeDeleted only logs the failure
// and the deletion of the module continues.
func (n *run) upgradeDeleted(ctx context.Context, m *plan.Module) {
	if m.Upgrade == nil {
		return
	}
	upgraded := *m
	upgraded.Decision = *m.Upgrade
	artefact, err := n.resolveArtefactOrBlock(ctx, &upgraded)
	if err == nil && upgraded.Decision.Blocker == nil {
		want := plan.DesiredManifest(n.kyma, &upgraded, artefact, n.now)
		if err = n.patchManifest(ctx, m, plan.WithSpecKeepingResource(m.Manifest, want)); err == nil {
			log.FromContext(ctx).Info("upgrading a module that is being deleted", "module", m.Spec.Name, "version",
				want.Spec.Version)
			return
		}
	}
	if err != nil {
		log.FromContext(ctx).Info("cannot upgrade a module that is being deleted", "module", m.Spec.Name, "error",
			err.Error())
	}
}

// deleteManifest deletes a Manifest. The DELETE request contains the UID of the Manifest. If another Manifest with the
// same name was created since the Manifest was read, the API server therefore returns a conflict and does not delete
// the new Manifest.
func (n *run) deleteManifest(ctx context.Context, m *v1beta2.Manifest) error {
	err := n.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Manifest %s: %w", m.Name, err)
	}
	return nil
}

// reportBlockersAndErrors returns the errors of modules and of the catalog copy, so that these are retried. For each
// newly blocked module, reportBlockersAndErrors records one event. The error of a mandatory module only requeues the
// Kyma and does not become an error of the Kyma, because the admin of the runtime has not requested the module. An
// error of a module may last as long as the module is requested, and it ends the reconcile. Therefore
// reportBlockersAndErrors runs after the agent is delivered: the agent watches the other modules, too.
func (n *run) reportBlockersAndErrors(context.Context) error {
	errs := []error{n.found.catalogRefused}
	var blocked []changelog.Event
	recheckAfter := time.Duration(0)
	for i := range n.modules {
		m := &n.modules[i]
		switch {
		case m.Err != nil && m.IsMandatory:
			recheckAfter = loop.PollDelay(n.now, n.mandatoryNotReadySinceOrNow())
		case m.Err != nil:
			errs = append(errs, m.Err)
		case m.Decision.Blocker != nil && !m.IsMandatory:
			blocked = append(blocked, n.countNewBlockers(m)...)
		}
	}
	for _, e := range changelog.FoldByReason(blocked) {
		n.event(e.Type, e.Reason, e.Note)
	}
	if err := errors.Join(errs...); err != nil || recheckAfter == 0 {
		return err
	}
	return loop.ContinueAndRequeueAfter(recheckAfter)
}

// countNewBlockers counts the new blockers of modules, and returns one event for each of them. A blocker is new if its
// code is not the former reason of the module.
func (n *run) countNewBlockers(m *plan.Module) (eventsToRecord []changelog.Event) {
	b := m.Decision.Blocker
	if m.Former != nil && m.Former.Reason == b.Code {
		return nil
	}
	name := m.Spec.Name
	if b.Code == v1beta2.ReasonModuleNotFound {
		name = "" // users can request any name, and each name would be another time series
	}
	metrics.ModuleBlocked.WithLabelValues(name, b.Code).Inc()
	kind := corev1.EventTypeWarning
	if b.Code == v1beta2.ReasonWaitingForWindow || m.PauseBlocker() != nil {
		kind = corev1.EventTypeNormal // a person or the policy intends this blocker
	}
	return []changelog.Event{{Type: kind, Reason: b.Code, Note: b.Message, Module: m.Spec.Name}}
}

// event records an event on the Kyma.
func (n *run) event(kind, reason, note string) {
	if n.Events != nil {
		n.Events.Eventf(n.kyma, nil, kind, reason, "Reconcile", "%s", note)
	}
}

// resolveArtefactOrBlock returns the artefact of the decided version. The artefact is taken from the Manifest, without
// a request to the registry, if the Manifest already has the decided version, with the content whose digest the
// ModuleTemplate records, and if nobody else has edited the Manifest. A Manifest that has no spec.install, or that
// names another registry, is used only if the registry cannot be read. If the content of the version was replaced in
// the registry, resolveArtefactOrBlock sets the blocker of the module.
func (n *run) resolveArtefactOrBlock(ctx context.Context, m *plan.Module) (plan.Artefact, error) {
	var has *plan.Artefact // the artefact in the Manifest, nil if the Manifest does not have this version and content
	if is := m.Manifest; is != nil && is.Spec.Version == m.Decision.Version &&
		is.Annotations[v1beta2.AnnotationOCMComponentName] == m.Decision.Component && !n.hasSourcesEditedByOthers(is) {
		a := plan.ArtefactOf(is)
		isRecorded, isKnown := a.HasRecordedContent(m.Decision.Template)
		if isRecorded || !isKnown {
			has = &a
		}
		if source, err := v1beta2.DecodeImageSpecLeniently(is.Spec.Install.Source); isRecorded && err == nil &&
			source.Repo == n.Registry.Base() {
			return a, nil
		}
	}
	component, err := n.Registry.Component(ctx, m.Decision.Component, m.Decision.Version)
	switch ocm.ReasonOf(err) {
	case ocm.RegistryUnreachable, ocm.EgressRefused, ocm.RegistryUnauthorized, ocm.ArtifactNotFound:
		if has != nil {
			return *has, nil
		}
	}
	if err != nil {
		return plan.Artefact{}, err
	}
	artefact, err := plan.ArtefactIn(component)
	if err != nil {
		return plan.Artefact{}, err
	}
	template, err := n.versions.RecordContentOrReplacement(ctx, m.Decision.Template, artefact.Content)
	if err != nil {
		return plan.Artefact{}, err
	}
	if b := channel.ReplacedContentBlocker(template, m.Spec.Name, m.Decision.Version); b != nil {
		m.Decision.Blocker, m.Decision.Template, m.Decision.Next = b, nil, ""
	}
	return artefact, nil
}

// PreflightManifest returns the Manifest that a runtime without settings of its own would get for a version. The
// returned Manifest is not written: the preflight check of a version renders it.
func (r *Reconciler) PreflightManifest(ctx context.Context, component, version string, t *v1beta2.ModuleTemplate) (
	*v1beta2.Manifest, error) {
	found, err := r.Registry.Component(ctx, component, version)
	if err != nil {
		return nil, err
	}
	artefact, err := plan.ArtefactIn(found)
	if err != nil {
		return nil, err
	}
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: "any"}}
	m := &plan.Module{Spec: v1beta2.Module{Name: channel.ModuleOf(t)},
		Decision: channel.Decision{Version: version, Component: component, Template: t}}
	return plan.DesiredManifest(k, m, artefact, time.Now()), nil
}

// unblockIfContentReverted reads the registry again for a version that is blocked because its content was replaced
// there. If the registry has the former content again, unblockIfContentReverted records that in the ModuleTemplate, and
// this change triggers the next reconcile. If the registry cannot be read, nothing is changed. The registry is read at
// most once per contentRecheckPeriod for all runtimes.
func (n *run) unblockIfContentReverted(ctx context.Context, m *plan.Module) error {
	b := m.Decision.Blocker
	name, named := strings.CutPrefix(b.Object, v1beta2.KindModuleTemplate+" ")
	if b.Code != v1beta2.ReasonVersionReplaced || !named {
		return nil
	}
	const contentRecheckPeriod = time.Minute
	if oldest := n.now.Add(-contentRecheckPeriod); !retry.IsOutdated(ctx, oldest) {
		ctx = retry.WithTime(ctx, oldest)
	}
	component, err := n.Registry.Component(ctx, m.Decision.Component, m.Decision.Version)
	if err != nil {
		return ctx.Err()
	}
	t := &v1beta2.ModuleTemplate{}
	if err := n.Client.Get(ctx, types.NamespacedName{Namespace: n.Namespace, Name: name}, t); err != nil {
		return client.IgnoreNotFound(err)
	}
	_, err = n.versions.RecordContentOrReplacement(ctx, t, component.Content)
	return err
}

// hasSourcesEditedByOthers reports whether somebody else has edited the sources of a Manifest: the references to the
// artefacts of the module. The sources are compared with the digest of the sources in an annotation of the Manifest. If
// the Manifest does not have this annotation, hasSourcesEditedByOthers knows about an edit only if the manager has
// received the event of the edit.
func (n *run) hasSourcesEditedByOthers(m *v1beta2.Manifest) bool {
	has, known := plan.HasUneditedSources(m)
	return known && !has || !known && n.ownWrites.isEditedByOthers(client.ObjectKeyFromObject(m))
}
