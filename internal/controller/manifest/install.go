package manifest

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// decide resolves the sources and plans what the runtime should have and what this reconcile has to do.
func (n *run) decide(ctx context.Context) error {
	found, err := n.sources.Find(ctx, n.manifest)
	if err != nil {
		return err
	}
	n.changes = n.memory.takeChanges()
	n.changes.readiness = n.changes.readiness || !n.Runtimes.IsWatched(n.kyma) // nothing would report a change
	n.plan = newPlan(n.manifest, found, n.PullSecret, n.memory.history(n.changes, n.auditInterval()))
	return nil
}

// record writes the inventory before the objects are applied: those that will be applied, and those that were applied
// before. The status is saved after this step.
func (n *run) record(ctx context.Context) error {
	if n.rendered == nil {
		n.refs = inventoryRefs(n.manifest.Status.Synced)
		n.saved = *n.manifest.Status.DeepCopy()
		return n.expectObjects(ctx)
	}
	var err error
	if n.refs, err = n.resolveRefs(ctx); err != nil {
		return err
	}
	n.reportInventory()
	n.saved = *n.manifest.Status.DeepCopy()
	return nil
}

// resolveRefs returns the identity of all objects in the runtime. Two sources may contain the same object if its
// content is equal.
func (n *run) resolveRefs(ctx context.Context) ([]apply.Ref, error) {
	var all []apply.Ref
	n.rendered.refs = make([][]apply.Ref, len(n.rendered.sets))
	for i, set := range n.rendered.sets {
		refs, err := n.runtime.Inventory(ctx, set)
		if err != nil && refs == nil {
			return nil, err // errors about single objects are returned by apply
		}
		n.rendered.refs[i] = refs
		if i == 0 {
			all = slices.Clone(refs)
			continue
		}
		for _, ref := range refs {
			if !slices.ContainsFunc(all, ref.SameObject) {
				all = append(all, ref)
				continue
			}
			first := slices.IndexFunc(n.rendered.refs,
				func(of []apply.Ref) bool { return slices.ContainsFunc(of, ref.SameObject) })
			if contentDigest(n.rendered.sets[first], ref) != contentDigest(set, ref) {
				return nil, duplicateError{ref, n.plan.sources[first].Name, n.plan.sources[i].Name}
			}
		}
	}
	return all, nil
}

// contentDigest identifies the content of an object in a set; "" if the set does not contain it.
func contentDigest(set apply.Set, ref apply.Ref) string {
	for _, o := range set.Bundle.Objects {
		if o.GVK.Group == ref.Group && o.GVK.Kind == ref.Kind && o.Name == ref.Name &&
			(o.Namespace == ref.Namespace || o.Namespace == "" || ref.Namespace == "") {
			return o.Digest()
		}
	}
	return ""
}

// duplicateError is the error of two sources that contain the same object with different content.
type duplicateError struct {
	ref           apply.Ref
	first, second string
}

func (d duplicateError) Error() string {
	return fmt.Sprintf("%s is in %s and in %s: remove it from one of them", d.ref, d.first, d.second)
}

// Reason returns ReasonDuplicateObject.
func (duplicateError) Reason() string { return v1beta2.ReasonDuplicateObject }

// apply sends all objects if the plan is new, otherwise those that a comparison finds to differ.
func (n *run) apply(ctx context.Context) error {
	if n.rendered == nil {
		return nil
	}
	if !n.plan.applyAll {
		found, err := n.compare(ctx)
		if err != nil {
			return err
		}
		if n.memory.drift = ""; reportsDrift(n.manifest) {
			n.memory.drift = driftMessage(found)
			return nil
		}
		for _, d := range found {
			log.FromContext(ctx).Info("correcting drift", "object", d.String())
		}
	}
	n.memory.drift = ""
	for i := range n.rendered.sets {
		if err := n.applySet(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// applySet sends the objects of one source. The kinds that its CRDs define must be served before the next source is
// applied.
func (n *run) applySet(ctx context.Context, i int) error {
	result, err := n.runtime.Apply(ctx, n.rendered.sets[i], &n.memory.progress)
	metrics.Objects.WithLabelValues("applied").Add(float64(len(result.Applied)))
	metrics.Objects.WithLabelValues("failed").Add(float64(len(result.Failed)))
	n.changes.readiness = n.changes.readiness || len(result.Applied) > 0
	// A new workload is never ready at once, so its readiness is not read in this reconcile.
	n.observed.workloadSent = n.observed.workloadSent || n.plan.applyAll &&
		slices.ContainsFunc(result.Applied, isWorkload)
	n.reportTakeovers(ctx, result.TakenOver)
	switch {
	case err != nil:
		return err
	case len(result.Failed) > 0:
		return result.Err()
	case len(result.Waiting) > 0:
		first := result.Waiting[0]
		if first.Reason == apply.CRDNotEstablished {
			n.observed.blocker = v1beta2.ReasonCRDNotEstablished
		}
		return n.waitFor(first.Ref.String() + ": " + first.Message)
	case i == len(n.rendered.sets)-1:
		return nil
	}
	unserved, err := n.runtime.CheckReady(ctx, crdsOf(n.rendered.refs[i]), &n.memory.progress)
	if err != nil || len(unserved) == 0 {
		return err
	}
	n.observed.blocker = v1beta2.ReasonCRDNotEstablished
	return n.waitFor(unserved[0].Message)
}

// waitFor ends the reconcile until what it waits for has happened. The longer that takes, the longer the delay.
func (n *run) waitFor(what string) error {
	return loop.Later(loop.PollDelay(time.Now(), n.notReadySince()), what)
}

// reportTakeovers records an event for each object of which fields were taken from other field managers.
func (n *run) reportTakeovers(ctx context.Context, taken []apply.Takeover) {
	for _, t := range taken {
		log.FromContext(ctx).Info("took ownership of fields", "object", t.String())
		n.recordEvent(v1beta2.ReasonTakenOver, t.String())
	}
}

// recordEvent records an event on the Manifest.
func (n *run) recordEvent(reason, note string) {
	if n.Events != nil {
		n.Events.Eventf(n.manifest, nil, corev1.EventTypeNormal, reason, "Apply", "%s", loop.Clip(note))
	}
}

// compare compares objects with their desired state: those that events reported as changed, or all if the plan says so
// or if there is no memory of the others. It forgets the progress of objects that differ, so that apply sends them
// again.
func (n *run) compare(ctx context.Context) ([]apply.Drifted, error) {
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
	if only == nil {
		n.memory.compared = time.Now()
		n.memory.audited = n.memory.compared
	}
	return found, nil
}

// createResource creates the module's custom resource if the policy says so and it does not exist. An existing one
// belongs to the user.
func (n *run) createResource(ctx context.Context) error {
	cr := n.manifest.Spec.Resource
	if cr == nil || n.manifest.Spec.CustomResourcePolicy == v1beta2.Ignore || !n.plan.applyAll && !n.changes.readiness {
		return nil
	}
	create := n.runtime.Create
	if (!n.plan.applyAll || n.manifest.Status.Version != "") && resourceDecides(n.manifest, n.CustomStateCheck) {
		// observe needs it anyway, so it is read first, and created if it does not exist.
		object, err := n.readResource(ctx)
		if err != nil && loop.Reason(err) != apply.KindUnknown || object != nil {
			return err
		}
	}
	if n.observed.resource != nil {
		create = n.runtime.CreateWithoutRead
	}
	_, err := create(ctx, cr, v1beta2.FieldOwnerCustomResource)
	n.observed.resource = nil
	if err == nil {
		n.noteServed(cr.GroupVersionKind().GroupKind())
		return nil
	}
	switch loop.Reason(err) {
	case apply.ObjectExists:
		return nil
	case apply.KindUnknown:
		n.observed.blocker = v1beta2.ReasonCRDNotEstablished
		return n.waitFor(fmt.Sprintf("kind %s of the custom resource %s/%s to be served", cr.GetKind(),
			cr.GetNamespace(), cr.GetName()))
	}
	return err
}

// readResource returns the module's custom resource, nil if it does not exist. It is read once in a reconcile.
func (n *run) readResource(ctx context.Context) (*unstructured.Unstructured, error) {
	if n.observed.resource != nil {
		return n.observed.resource.object, nil
	}
	ref := resourceRefOf(n.manifest)
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
		n.memory.progress.ObserveRead(ref, object.GetUID(), object.GetGeneration(), object.GetResourceVersion())
	}
	return object, nil
}

// noteServed records that a kind is served, if a CRD of this module defines it. That saves a request.
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

// prune deletes the objects that only the former version had, and waits until they are deleted. The new objects exist
// already.
func (n *run) prune(ctx context.Context) error {
	if n.rendered == nil {
		return nil // record has called expectObjects
	}
	if n.memory.drift != "" {
		return n.expectObjects(ctx)
	}
	removed := apply.Removed(inventoryRefs(n.manifest.Status.Synced), n.refs)
	if len(removed) > 0 {
		left, err := n.runtime.Delete(ctx, removed, &n.memory.deletion)
		if err != nil {
			return err
		}
		if len(left.Remaining) > 0 {
			return n.waitFor(left.WaitMessage())
		}
		metrics.Objects.WithLabelValues("deleted").Add(float64(len(left.Deleted)))
		n.pruned.kept = left.Kept
	}
	n.memory.deletion = apply.DeletionProgress{}
	if n.plan.applyAll {
		n.memory.compared = time.Now()
		n.reportLeftOut()
	}
	n.pruned.complete = true
	return n.expectObjects(ctx)
}

// reportLeftOut records events for content of the artefacts that is not applied, such as hooks, once for each version.
func (n *run) reportLeftOut() {
	for i, set := range n.rendered.sets {
		for _, what := range set.Bundle.LeftOut {
			n.recordEvent(v1beta2.ReasonLeftOut, n.plan.sources[i].Name+": "+what)
		}
	}
}
