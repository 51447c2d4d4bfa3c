package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/condition"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/customresource"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// resolveSourcesAndMakePlan resolves the sources of the Manifest and makes the plan of this reconcile.
func (n *run) resolveSourcesAndMakePlan(ctx context.Context) error {
	found, err := n.sources.Find(ctx, n.manifest)
	if err != nil && !isCurrentSpecApplied(n.manifest) {
		return err
	}
	n.changes = n.memory.takeChanges()
	if err != nil {
		return n.continueIfSourcesUnreadable(err, true)
	}
	n.changes.readiness = n.changes.readiness || !n.cluster.IsWatched() // no event would report a change
	n.plan = newPlan(n.manifest, found, n.PullSecret, n.memory.history(n.changes, n.auditInterval()))
	return nil
}

// recordInventoryBeforeApply writes the inventory before the objects are applied. The saved inventory has the objects
// that will be applied, and the objects that were applied before. If the saved inventory lacks an object, the status is
// saved after the step record.
func (n *run) recordInventoryBeforeApply(ctx context.Context) error {
	if n.rendered == nil {
		n.refs = inventory.Refs(n.manifest.Status.Synced)
		return n.subscribeToObjects(ctx)
	}
	var err error
	if n.refs, err = n.resolveRefs(ctx); err != nil {
		return err
	}
	n.recorded = n.reportStartAndInventory()
	n.memory.noteSending()
	return nil
}

// isInventoryChanged reports whether the step record has changed the status.
func (n *run) isInventoryChanged() bool { return n.recorded }

// resolveRefs returns the references of all objects, with the scope and namespace that the objects have in the runtime.
// Objects whose kind the runtime does not serve are missing in the result; the field unresolved has the reason.
func (n *run) resolveRefs(ctx context.Context) ([]apply.Ref, error) {
	n.rendered.refs, n.rendered.unresolved = make([][]apply.Ref, len(n.rendered.sets)), nil
	for i, set := range n.rendered.sets {
		refs, err := n.runtime.DesiredInventory(ctx, set)
		if err != nil && refs == nil {
			return nil, err
		}
		n.rendered.refs[i], n.rendered.unresolved = refs, errors.Join(n.rendered.unresolved, err)
	}
	all, err := inventory.Combined(n.rendered.sets, n.rendered.refs,
		func(i int) string { return n.plan.sources[i].Name })
	if err := n.cluster.CheckObjects(all, n.manifest.Spec.Resource); err != nil {
		return nil, err
	}
	return inventory.WithRecordedFlagsOrPending(all, inventory.Refs(n.manifest.Status.Synced)), err
}

// If the digest of the plan has not been applied completely, applyAllOrDrifted sends all objects to the runtime. If the
// digest has been applied, applyAllOrDrifted sends only the objects that differ from their desired state. If an object
// cannot exist in the runtime now, applyAllOrDrifted returns an error, even if it sends nothing: the object is missing
// in refs, and prune would delete it.
func (n *run) applyAllOrDrifted(ctx context.Context) error {
	if n.rendered == nil {
		return nil
	}
	if n.plan.applyAll {
		n.memory.ownersTurn = nil
		n.forgetProgressOfDrifted()
	} else {
		found, err := n.findDrift(ctx)
		if err != nil {
			return err
		}
		found = n.memory.deferToOwners(found, time.Now())
		if n.memory.drift = ""; reportsDrift(n.manifest) {
			n.memory.drift = condition.UncorrectedDriftMessage(found)
			return n.rendered.unresolved
		}
		for _, d := range found {
			log.FromContext(ctx).Info("correcting drift", "object", d.String())
		}
	}
	n.memory.drift, n.memory.conflicts = "", nil
	var conflicts []*apply.Error
	for i := range n.rendered.sets {
		err := n.applySetAndAwaitCRDs(ctx, i, &conflicts)
		if err != nil {
			return err
		}
	}
	if len(conflicts) == 0 {
		return n.rendered.unresolved
	}
	for _, c := range conflicts {
		n.memory.conflicts = append(n.memory.conflicts, c.Ref)
	}
	// an event reports the end of a conflict
	return errors.Join(n.subscribeToObjects(ctx), apply.JoinFailures(conflicts), n.rendered.unresolved)
}

// forgetProgressOfDrifted makes Apply send the objects that other clients have changed or deleted. Without
// forgetProgressOfDrifted, Apply would skip an object whose desired content is the same in the former and in the new
// version of the module, and the change by the other client would stay. Apply reads the objects that events have
// reported before it sends them, because another client may have created them again.
func (n *run) forgetProgressOfDrifted() {
	// an event may name any object, and a doubted object stays in the progress until it is applied
	n.memory.progress.Doubt(slices.DeleteFunc(slices.Clone(n.plan.drifted), func(drifted apply.Ref) bool {
		return !slices.ContainsFunc(n.refs, drifted.SameObject)
	})...)
	if n.plan.compareAll {
		n.memory.progress.Forget(n.refs...)
		return
	}
	n.memory.progress.Forget(n.plan.drifted...)
}

// applySetAndAwaitCRDs sends the objects of one source. applySetAndAwaitCRDs waits until the API server of the runtime
// serves the kinds that the CRDs of this source define, because the next source may need these kinds. If objects of one
// source conflict with another module, the next source is applied all the same.
func (n *run) applySetAndAwaitCRDs(ctx context.Context, i int, conflicts *[]*apply.Error) error {
	// If a deletion has begun, it has to delete these objects again, even those whose apply request seems to fail.
	n.memory.deletion.Forget(n.rendered.refs[i]...)
	result, err := n.runtime.Apply(ctx, n.rendered.sets[i], &n.memory.progress)
	metrics.Objects.WithLabelValues("applied").Add(float64(len(result.Applied)))
	metrics.Objects.WithLabelValues("failed").Add(float64(len(result.Failed)))
	n.changes.readiness = n.changes.readiness || len(result.Applied) > 0
	n.rememberReadinessFromApply(result)
	n.reportTakeovers(result.TakenOver)
	n.flagAndReportExisting(ctx, result.Existing)
	isConflict := func(e *apply.Error) bool { return e.Reason() == apply.OwnedByOtherModule }
	for _, e := range result.Failed {
		if isConflict(e) {
			*conflicts = append(*conflicts, e)
		}
	}
	failed := slices.DeleteFunc(slices.Clone(result.Failed), isConflict)
	switch {
	case err != nil:
		return err
	case len(failed) > 0:
		return apply.JoinFailures(failed)
	case len(result.Waiting) > 0:
		first := result.Waiting[0]
		if first.Reason == apply.CRDNotEstablished {
			n.observed.blocker = v1beta2.ReasonCRDNotEstablished
		}
		return n.requeueWaitingFor(first.Ref.String() + ": " + first.Message)
	case i == len(n.rendered.sets)-1:
		return nil
	}
	unserved, err := n.runtime.CheckReady(ctx, inventory.CRDs(n.rendered.refs[i]), &n.memory.progress)
	if err != nil || len(unserved) == 0 {
		return err
	}
	n.observed.blocker = v1beta2.ReasonCRDNotEstablished
	return n.requeueWaitingFor(unserved[0].Message)
}

// rememberReadinessFromApply records whether the applied workloads are ready, according to the API server's responses
// to the apply requests. A workload whose readiness is not reported by events is read after firstPollDelay.
func (n *run) rememberReadinessFromApply(result apply.Result) {
	for _, ref := range result.Applied {
		switch {
		case !inventory.IsWorkload(ref):
		case slices.ContainsFunc(result.Ready, ref.SameObject):
			n.memory.recordReadiness(ref, n.memory.progress.Version(ref), readiness{state: v1beta2.StateReady})
		case hasStateInEvents(ref):
			n.memory.recordSentAsNotReady(ref)
		default:
			n.observed.workloadSent = n.observed.workloadSent || n.plan.applyAll
		}
	}
}

// requeueWaitingFor ends the reconcile and requeues the Manifest. The longer the wait has taken already, the longer is
// the delay of the requeue.
func (n *run) requeueWaitingFor(what string) error {
	return loop.Later(loop.PollDelay(time.Now(), n.notReadySinceOrNow()), what)
}

// reportTakeovers records an event for each object of which Apply has taken over fields from other field managers.
func (n *run) reportTakeovers(taken []apply.Takeover) {
	for _, t := range taken {
		n.recordEvent(v1beta2.ReasonTakenOver, t.String())
	}
}

// flagAndReportExisting records in the inventory which objects existed before, and records an event for each object
// that was adopted or taken over.
func (n *run) flagAndReportExisting(ctx context.Context, existing []apply.Existing) {
	for _, e := range existing {
		inventory.SetFlags(n.refs, e.Ref)
		log.FromContext(ctx).Info("object existed", "object", e.Ref.String(), "result", string(e.Met))
		if reason, note := inventory.Note(e); reason != "" {
			n.recordEvent(reason, note)
		}
	}
}

// recordEvent records an event of type Normal about the Manifest.
func (n *run) recordEvent(reason, note string) { n.recordEventOf(corev1.EventTypeNormal, reason, note) }

// recordEventOf records an event of the given type about the Manifest.
func (n *run) recordEventOf(kind, reason, note string) {
	if n.Events != nil {
		n.Events.Eventf(n.manifest, nil, kind, reason, "Apply", "%s", loop.ClipLine(note))
	}
}

// findDrift compares objects in the runtime with their desired state. All objects are compared if the plan requires
// this, or if the memory does not show that the unchanged objects were applied. In all other reconciles, only the
// objects that events reported as changed are compared. If an object differs from its desired state, findDrift removes
// the object from the stored progress, so that the step apply sends the object again.
func (n *run) findDrift(ctx context.Context) ([]apply.Drifted, error) {
	only := n.plan.drifted
	for _, ref := range n.refs {
		if n.plan.compareAll || !n.memory.progress.IsApplied(ref) && !slices.ContainsFunc(only, ref.SameObject) {
			only = nil
			break
		}
	}
	var found []apply.Drifted
	for i, set := range n.rendered.sets {
		inSet := slices.DeleteFunc(slices.Clone(only),
			func(r apply.Ref) bool { return !slices.ContainsFunc(n.rendered.refs[i], r.SameObject) })
		if only != nil && len(inSet) == 0 {
			continue
		}
		drifted, err := n.runtime.FindDrift(ctx, set, &n.memory.progress, inSet...)
		if err != nil {
			return nil, err
		}
		found = append(found, drifted...)
	}
	if only == nil && n.rendered.unresolved == nil { // otherwise the next reconcile compares again
		n.memory.compared = time.Now()
		n.memory.audited = n.memory.compared
	}
	return found, nil
}

// createModuleCR creates the module's custom resource if the policy is to create it and the custom resource does not
// exist. A custom resource that exists belongs to the user and is not changed.
func (n *run) createModuleCR(ctx context.Context) error {
	cr := n.manifest.Spec.Resource
	if cr == nil || n.manifest.Spec.CustomResourcePolicy == v1beta2.Ignore || !n.plan.applyAll && !n.changes.readiness {
		return nil
	}
	ref, isNew := inventory.ModuleCRRef(n.manifest), n.plan.applyAll && n.manifest.Status.Version == ""
	if !isNew && isModuleCRDecisive(n.manifest, n.CustomStateCheck) {
		if !n.plan.applyAll && n.manifest.Status.State == v1beta2.StateProcessing &&
			n.memory.progress.Version(ref) != 0 {
			return nil // it exists, and observe reads it when the workloads are ready
		}
		// The step observe needs the state of the custom resource, so the custom resource is read first, and created
		// only if it does not exist.
		object, err := n.readModuleCR(ctx)
		if object != nil {
			_, _ = n.recordModuleCRReadiness(object) // observe reports the error
			return nil
		}
		if err != nil && loop.Reason(err) != apply.KindUnknown {
			return err
		}
	}
	create := n.runtime.Create
	if isNew || n.observed.resource != nil {
		create = n.runtime.CreateWithoutRead
	}
	made, err := create(ctx, cr, v1beta2.FieldOwnerCustomResource)
	n.observed.resource = nil
	if err == nil {
		n.memory.progress.RecordReadUnlessChanged(ref, made.UID, made.Generation, made.ResourceVersion)
		n.memory.recordSentAsNotReady(ref)
		n.noteServed(cr.GroupVersionKind().GroupKind())
		return nil
	}
	switch loop.Reason(err) {
	case apply.ObjectExists:
		return nil
	case apply.KindUnknown:
		n.observed.blocker = v1beta2.ReasonCRDNotEstablished
		return n.requeueWaitingFor(fmt.Sprintf("kind %s of the custom resource %s/%s to be served", cr.GetKind(),
			cr.GetNamespace(), cr.GetName()))
	}
	return err
}

// readModuleCR returns the module's custom resource, or nil if the custom resource does not exist. readModuleCR sends
// at most one read per reconcile.
func (n *run) readModuleCR(ctx context.Context) (*unstructured.Unstructured, error) {
	if n.observed.resource != nil {
		return n.observed.resource.object, nil
	}
	ref := inventory.ModuleCRRef(n.manifest)
	object, err := n.runtime.Get(ctx, ref)
	switch loop.Reason(err) {
	case apply.ObjectNotFound, apply.NamespaceNotFound:
		object, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	n.observed.resource = &moduleResource{object}
	if object != nil {
		n.memory.progress.RecordReadUnlessChanged(ref, object.GetUID(), object.GetGeneration(),
			object.GetResourceVersion())
	}
	return object, nil
}

// noteServed records that the runtime serves a kind if a CRD of this module defines this kind. If it is recorded that
// the runtime serves a kind, the next apply of this kind needs no discovery request.
func (n *run) noteServed(kind schema.GroupKind) {
	if n.rendered == nil {
		return
	}
	for _, set := range n.rendered.sets {
		for _, o := range set.Bundle.Objects {
			if crd, ok := o.CRD(); ok && crd.Group == kind.Group && crd.Kind == kind.Kind {
				n.memory.progress.MarkServed(apply.Ref{Group: o.GVK.Group, Version: o.GVK.Version,
					Kind: o.GVK.Kind, Name: o.Name})
			}
		}
	}
}

// prune deletes the objects that only the former version had, and waits until they no longer exist. When prune runs,
// all objects of the new version were applied before.
func (n *run) prune(ctx context.Context) error {
	if n.rendered == nil {
		return nil // record has already called subscribeToObjects
	}
	if n.memory.drift != "" {
		return n.subscribeToObjects(ctx)
	}
	removed := apply.Removed(inventory.Refs(n.manifest.Status.Synced), n.refs)
	removed, n.pruned.kept = n.withoutInhabitedNamespaces(removed)
	if err := n.deleteRemoved(ctx, removed); err != nil {
		return err
	}
	n.memory.deletion = apply.DeletionProgress{}
	if n.plan.applyAll {
		n.memory.compared = time.Now()
		n.reportPartsLeftOut()
	}
	n.pruned.complete = true
	return n.subscribeToObjects(ctx)
}

// withoutInhabitedNamespaces takes those namespaces out of the objects that only the former version had in which
// objects of the new version are. The result inhabited has these namespaces. They stay in the inventory, so that they
// are deleted with the module.
func (n *run) withoutInhabitedNamespaces(removed []apply.Ref) (others, inhabited []apply.Ref) {
	used := map[string]bool{}
	for _, r := range n.refs {
		used[r.Namespace] = true
	}
	if n.manifest.Spec.CustomResourcePolicy != v1beta2.Ignore {
		used[inventory.ModuleCRRef(n.manifest).Namespace] = true
	}
	for _, r := range removed {
		if r.Group == "" && r.Kind == "Namespace" && used[r.Name] {
			inhabited = append(inhabited, r)
		} else {
			others = append(others, r)
		}
	}
	return others, inhabited
}

// deleteRemoved deletes objects that only the former version had. deleteRemoved waits until they no longer exist, and
// until users have no custom resources of a removed CRD. A CRD that the new version needs stays in the inventory, so
// that it is deleted with the module: with the CRD, the API server would delete custom resources of the new version,
// such as the default custom resource that a user has configured.
func (n *run) deleteRemoved(ctx context.Context, removed []apply.Ref) error {
	if len(removed) == 0 {
		return nil
	}
	question := n.questionAbout(ctx, removed)
	used, err := n.usedCRDs(ctx, question.CRDs)
	if err != nil {
		return err
	}
	n.pruned.kept = append(n.pruned.kept, used...)
	removed, question.CRDs = inventory.NotIn(removed, used), inventory.NotIn(question.CRDs, used)
	found, err := customresource.FindOfUsers(ctx, question)
	if err != nil {
		return err
	}
	left, err := n.deleteOwnedObjects(ctx, found.WithoutFoundCRDs(removed))
	if err != nil {
		return err
	}
	if len(found.Kinds) > 0 {
		if found.Count() > 0 {
			n.observed.blocker = v1beta2.ReasonCustomResourceBlocksDeletion
		}
		if err := errors.Join(found.DeleteIfUserAllows(ctx, n.recordEvent), n.subscribeToObjects(ctx)); err != nil {
			return err
		}
		return n.awaitUserCRs(found)
	}
	if len(left.Remaining) > 0 {
		return n.requeueWaitingFor(left.WaitMessage())
	}
	metrics.Objects.WithLabelValues("deleted").Add(float64(len(left.Deleted)))
	n.pruned.kept = append(n.pruned.kept, left.Kept...)
	return nil
}

// usedCRDs returns those CRDs whose custom resources are in the new version, or that are needed for the module's
// default custom resource.
func (n *run) usedCRDs(ctx context.Context, crds []apply.Ref) ([]apply.Ref, error) {
	if len(crds) == 0 {
		return nil, nil
	}
	objects := slices.Clone(n.refs)
	if n.manifest.Spec.Resource != nil && n.manifest.Spec.CustomResourcePolicy != v1beta2.Ignore {
		objects = append(objects, inventory.ModuleCRRef(n.manifest))
	}
	return customresource.CRDsInUse(ctx, n.runtime.Cluster, crds, objects)
}

// reportPartsLeftOut records events about parts of the artefacts that are not applied, such as hooks.
// reportPartsLeftOut records each event once per version.
func (n *run) reportPartsLeftOut() {
	for i, set := range n.rendered.sets {
		for _, what := range set.Bundle.LeftOut {
			n.recordEvent(v1beta2.ReasonLeftOut, n.plan.sources[i].Name+": "+what)
		}
	}
}
