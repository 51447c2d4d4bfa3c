package manifest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// notYet is how soon a pass comes back for what usually takes a moment, such as a new kind being served.
const notYet = 200 * time.Millisecond

// decide works out what the runtime should have and whether anything has to be done about it.
func (n *run) decide(ctx context.Context) error {
	var err error
	if n.plan, err = n.planOf(ctx); err != nil {
		return err
	}
	n.news, n.stirred, n.missed = n.inst.take()
	n.stirred = n.stirred || !n.Runtimes.IsWatched(n.kyma) // nobody would tell
	n.plan.whole = n.manifest.Status.AppliedDigest != n.plan.digest && !n.inst.unsaved.is(n.manifest, n.plan.digest)
	n.plan.drifted = n.inst.drifted(n.news)
	n.plan.audit = time.Since(n.inst.audited) >= n.auditInterval()*7/8
	// What was compared a moment ago, such as while it was installed, need not be again.
	n.plan.audit = n.plan.audit || n.missed && time.Since(n.inst.compared) > time.Minute
	switch {
	case reportsDrift(n.manifest):
		n.plan.audit = n.plan.audit || n.inst.compared.IsZero() // what was reported before a restart still has to be
	case n.inst.drift != "": // it was reported, and now has to be put right
		n.plan.audit = true
	}
	return nil
}

// record writes the inventory ahead: what is about to be applied, next to what was applied before. The status is saved after this step.
func (n *run) record(ctx context.Context) error {
	if !n.rendered {
		n.refs = refsOf(n.manifest.Status.Synced)
		n.saved = *n.manifest.Status.DeepCopy()
		return n.listen(ctx)
	}
	var err error
	if n.refs, err = n.resolveSets(ctx); err != nil {
		return err
	}
	n.recordInventory()
	n.saved = *n.manifest.Status.DeepCopy()
	return nil
}

// resolveSets finds out what the objects are in the runtime. Two sources may bring the same object if they agree on it.
func (n *run) resolveSets(ctx context.Context) ([]apply.Ref, error) {
	var all []apply.Ref
	n.setRefs = make([][]apply.Ref, len(n.sets))
	for i, set := range n.sets {
		refs, err := n.runtime.Inventory(ctx, set)
		if err != nil && refs == nil {
			return nil, err // objects that the runtime cannot have are told by apply
		}
		n.setRefs[i] = refs
		if i == 0 {
			all = slices.Clone(refs)
			continue
		}
		for _, ref := range refs {
			if !slices.ContainsFunc(all, ref.SameObject) {
				all = append(all, ref)
				continue
			}
			first := slices.IndexFunc(n.setRefs, func(of []apply.Ref) bool { return slices.ContainsFunc(of, ref.SameObject) })
			if contentOf(n.sets[first], ref) != contentOf(set, ref) {
				return nil, duplicate{ref, n.plan.parts[first].name, n.plan.parts[i].name}
			}
		}
	}
	return all, nil
}

// contentOf identifies the content of an object in a set.
func contentOf(set apply.Set, ref apply.Ref) string {
	for _, o := range set.Bundle.Objects {
		if o.GVK.Group == ref.Group && o.GVK.Kind == ref.Kind && o.Name == ref.Name && (o.Namespace == ref.Namespace || o.Namespace == "" || ref.Namespace == "") {
			return o.Digest()
		}
	}
	return ""
}

// duplicate is the error of two sources that bring the same object.
type duplicate struct {
	ref          apply.Ref
	first, again string
}

func (d duplicate) Error() string {
	return fmt.Sprintf("%s is in %s and in %s: remove it from one of them", d.ref, d.first, d.again)
}

// Reason returns ReasonDuplicateObject.
func (duplicate) Reason() string { return v1beta2.ReasonDuplicateObject }

// apply sends what the runtime does not have yet: everything when the plan is new, else what a comparison finds to differ.
func (n *run) apply(ctx context.Context) error {
	if !n.rendered {
		return nil
	}
	if !n.plan.whole {
		found, err := n.compare(ctx)
		if err != nil {
			return err
		}
		if n.inst.drift = ""; reportsDrift(n.manifest) {
			n.inst.drift = drift(found)
			return nil
		}
		for _, d := range found {
			log.FromContext(ctx).Info("correcting drift", "object", d.String())
		}
	}
	n.inst.drift = ""
	for i := range n.sets {
		if err := n.applySet(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// applySet sends the objects of one source. Before the next one's turn, the kinds that this one defines have to be served.
func (n *run) applySet(ctx context.Context, i int) error {
	result, err := n.runtime.Apply(ctx, n.sets[i], &n.inst.progress)
	metrics.Objects.WithLabelValues("applied").Add(float64(len(result.Applied)))
	metrics.Objects.WithLabelValues("failed").Add(float64(len(result.Failed)))
	n.stirred = n.stirred || len(result.Applied) > 0
	// What runs pods takes longer than an answer: of a new version it is not asked at once.
	n.fresh = n.fresh || n.plan.whole && slices.ContainsFunc(result.Applied, isWorkload)
	n.tellTakeovers(ctx, result.TakenOver)
	switch {
	case err != nil:
		return err
	case len(result.Failed) > 0:
		return refused(result.Failed)
	case len(result.Waiting) > 0:
		first := result.Waiting[0]
		if first.Reason == apply.CRDNotEstablished {
			n.blocker = v1beta2.ReasonCRDNotEstablished
		}
		return loop.Later(loop.PollDelay(time.Now(), n.since()), first.Ref.String()+": "+first.Message)
	case i == len(n.sets)-1:
		return nil
	}
	unserved, err := n.runtime.CheckReady(ctx, definitionsOf(n.setRefs[i]), &n.inst.progress)
	if err != nil || len(unserved) == 0 {
		return err
	}
	n.blocker = v1beta2.ReasonCRDNotEstablished
	return loop.Later(loop.PollDelay(time.Now(), n.since()), unserved[0].Message)
}

// tellTakeovers reports whose fields were taken: on purpose, since the module has to be as its author made it, but not in silence.
func (n *run) tellTakeovers(ctx context.Context, taken []apply.Takeover) {
	for _, t := range taken {
		log.FromContext(ctx).Info("took fields over", "object", t.String())
		n.event(v1beta2.ReasonTakenOver, t.String())
	}
}

// event tells people of what has happened.
func (n *run) event(reason, note string) {
	if n.Events != nil {
		n.Events.Eventf(n.manifest, nil, corev1.EventTypeNormal, reason, "Apply", "%s", clip(note))
	}
}

// compare looks at the objects that were seen to change, or at all if it is time for that or if there is no memory of the others.
// What differs is forgotten in the progress, so that apply sends it again.
func (n *run) compare(ctx context.Context) ([]apply.Drifted, error) {
	only := n.plan.drifted
	for _, ref := range n.refs {
		if n.plan.audit || !n.inst.progress.IsApplied(ref) && !slices.ContainsFunc(only, ref.SameObject) {
			only = nil
			break
		}
	}
	var found []apply.Drifted
	for i, set := range n.sets {
		of := slices.DeleteFunc(slices.Clone(only), func(r apply.Ref) bool { return !slices.ContainsFunc(n.setRefs[i], r.SameObject) })
		if only != nil && len(of) == 0 {
			continue
		}
		drifted, err := n.runtime.FindDrift(ctx, set, &n.inst.progress, of...)
		if err != nil {
			return nil, err
		}
		found = append(found, drifted...)
	}
	if only == nil {
		n.inst.compared = time.Now()
		n.inst.audited = n.inst.compared
	}
	return found, nil
}

// refused is the error of objects that the runtime did not take: the first says it all, the others are counted.
func refused(failed []*apply.Error) error {
	var err error = failed[0]
	if more := len(failed) - 1; more > 0 {
		err = fmt.Errorf("%w (and %d more objects)", err, more)
	}
	return err
}

// createResource creates the module's custom resource if the policy says so and it is not there. What is there belongs to the user.
func (n *run) createResource(ctx context.Context) error {
	cr := n.manifest.Spec.Resource
	if cr == nil || n.manifest.Spec.CustomResourcePolicy == v1beta2.Ignore || !n.plan.whole && !n.stirred {
		return nil
	}
	if (!n.plan.whole || n.manifest.Status.Version != "") && stateCounts(n.manifest, n.CustomStateCheck) { // it will have to be read: once is enough
		if err := n.readResource(ctx); err != nil && loop.Reason(err) != apply.KindUnknown || n.cr != nil {
			return err
		}
	}
	create := n.runtime.Create
	if n.looked {
		create = n.runtime.CreateWithoutRead
	}
	_, err := create(ctx, cr, v1beta2.FieldOwnerCustomResource)
	n.looked = false
	if err == nil {
		n.definedHere(cr.GroupVersionKind().GroupKind())
		return nil
	}
	switch loop.Reason(err) {
	case apply.ObjectExists:
		return nil
	case apply.KindUnknown:
		n.blocker = v1beta2.ReasonCRDNotEstablished
		return loop.Later(loop.PollDelay(time.Now(), n.since()), fmt.Sprintf("kind %s of the custom resource %s/%s to be served", cr.GetKind(), cr.GetNamespace(), cr.GetName()))
	}
	return err
}

// readResource reads the module's custom resource, once in a pass.
func (n *run) readResource(ctx context.Context) error {
	if n.looked {
		return nil
	}
	cr, err := n.runtime.Get(ctx, n.resourceRef())
	switch loop.Reason(err) {
	case apply.ObjectNotFound, apply.NamespaceNotFound:
		cr, err = nil, nil
	}
	n.cr, n.looked = cr, err == nil
	if n.cr != nil {
		n.inst.progress.ObserveRead(n.resourceRef(), cr.GetUID(), cr.GetGeneration(), cr.GetResourceVersion())
	}
	return err
}

// definedHere notes that a kind is served, if a definition of this module defines it: that need not be asked again.
func (n *run) definedHere(kind schema.GroupKind) {
	for _, set := range n.sets {
		for _, o := range set.Bundle.Objects {
			if crd, ok := o.CRD(); ok && crd.Group == kind.Group && crd.Kind == kind.Kind {
				n.inst.progress.MarkServed(apply.Ref{Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind, Name: o.Name})
			}
		}
	}
}

// prune deletes what a former version had and this one has not, and waits until it is gone. The new objects are there already.
func (n *run) prune(ctx context.Context) error {
	if !n.rendered {
		return nil // record has listened
	}
	if n.inst.drift != "" {
		return n.listen(ctx)
	}
	removed := apply.Removed(refsOf(n.manifest.Status.Synced), n.refs)
	if len(removed) > 0 {
		left, err := n.runtime.Delete(ctx, removed, &n.inst.deletion)
		if err != nil {
			return err
		}
		if len(left.Remaining) > 0 {
			return loop.Later(loop.PollDelay(time.Now(), n.since()), left.WaitMessage())
		}
		metrics.Objects.WithLabelValues("deleted").Add(float64(len(left.Deleted)))
		n.kept = left.Kept
	}
	n.inst.deletion = apply.DeletionProgress{}
	if n.plan.whole {
		n.inst.compared = time.Now()
		n.tellLeftOut()
	}
	n.applied = true
	return n.listen(ctx)
}

// tellLeftOut reports what the artefacts hold and the runtime does not get, once for each version.
func (n *run) tellLeftOut() {
	for i, set := range n.sets {
		for _, what := range set.Bundle.LeftOut {
			n.event(v1beta2.ReasonLeftOut, n.plan.parts[i].name+": "+what)
		}
	}
}

// listen follows the kinds of the inventory, so that what happens to them is heard.
func (n *run) listen(ctx context.Context) error {
	if !n.Runtimes.UsesInterests() {
		return nil
	}
	kinds, err := n.interests(ctx)
	if err != nil {
		return err
	}
	n.inst.expect(n.refs, &n.shared)
	if !slices.Equal(kinds, n.inst.kinds) {
		n.inst.kinds = n.shared.interests(kinds)
		n.follow()
	}
	return nil
}

// interests are the kinds of the inventory and the custom resource, each once.
func (n *run) interests(ctx context.Context) ([]runtimes.Interest, error) {
	var all []runtimes.Interest
	add := func(ref apply.Ref, i runtimes.Interest) error {
		resource, err := n.resourceOf(ctx, ref)
		if err != nil {
			if loop.Reason(err) == v1beta2.ReasonKindUnknown {
				return nil // not served yet, so there is nothing to hear
			}
			return err
		}
		i.Resource, i.Kind = resource, ref.Kind
		if !slices.Contains(all, i) {
			all = append(all, i)
		}
		return nil
	}
	for _, ref := range n.refs {
		if err := add(ref, runtimes.Interest{Labels: v1beta2.LabelManagedBy + "=" + v1beta2.ManagedByKyma}); err != nil {
			return nil, err
		}
	}
	if ref := n.resourceRef(); ref != (apply.Ref{}) {
		if err := add(ref, runtimes.Interest{Namespace: ref.Namespace, Name: ref.Name}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, runtimes.Interest.Compare)
	return n.Runtimes.ShareInterests(all), nil
}

// resourceOf returns the resource of a kind. A module that was installed has its definitions in its inventory, and the only one of a group defines
// what is in that group: so nobody has to be asked after a restart.
func (n *run) resourceOf(ctx context.Context, ref apply.Ref) (schema.GroupVersionResource, error) {
	plural := ""
	for _, r := range n.refs {
		name, isOf := strings.CutSuffix(r.Name, "."+ref.Group)
		switch {
		case !isOf || r.Kind != "CustomResourceDefinition":
		case plural != "" || n.manifest.Status.AppliedDigest == "":
			return n.askResource(ctx, ref)
		default:
			plural = name
		}
	}
	if plural != "" {
		return ref.GVK().GroupVersion().WithResource(plural), nil
	}
	return n.askResource(ctx, ref)
}

// askResource asks the runtime how it serves a kind, unless that is known anyway.
func (n *run) askResource(ctx context.Context, ref apply.Ref) (schema.GroupVersionResource, error) {
	if n.runtime == nil {
		if resource, known := n.Runtimes.LookupResource(ref); known {
			return resource, nil
		}
		if err := n.connectBy(ctx, n.Runtimes.Get); err != nil {
			return schema.GroupVersionResource{}, err
		}
	}
	resource, _, err := n.runtime.Resource(ctx, ref)
	return resource, err
}

// observed is what was seen of the module in the runtime.
type observed struct {
	state   v1beta2.State
	reason  string
	message string
}

// observe finds out whether what was applied works: workloads first, then the module's custom resource.
func (n *run) observe(ctx context.Context) error {
	rules := judgingBy(n.manifest, n.CustomStateCheck)
	quiet := n.isQuiet(rules)
	n.inst.judged = rules
	if quiet {
		n.seen = observed{state: v1beta2.StateReady}
		return nil
	}
	if n.fresh {
		n.seen = observed{v1beta2.StateProcessing, v1beta2.ReasonWorkloadNotReady, v1beta2.OperationManifestWaiting}
		return loop.RecheckAfter(notYet)
	}
	ask := n.runtime.CheckReady
	if n.manifest.Status.State == v1beta2.StateProcessing && time.Since(n.since()) < 2*time.Second {
		ask = n.runtime.CheckReadyWithoutPods
	}
	waiting, err := ask(ctx, deciding(n.refs, n.manifest.Spec.Manager), &n.inst.progress)
	if err != nil {
		return err
	}
	n.seen = judge(waiting)
	if n.seen.state == v1beta2.StateReady && stateCounts(n.manifest, n.CustomStateCheck) {
		if n.seen, err = n.judgeResource(ctx); err != nil {
			return err
		}
	}
	if n.seen.state == v1beta2.StateReady && n.inst.drift != "" {
		n.seen = observed{v1beta2.StateWarning, v1beta2.ReasonDriftDetected, n.inst.drift}
		return nil
	}
	if n.seen.state == v1beta2.StateReady {
		return nil
	}
	return loop.RecheckAfter(loop.PollDelay(time.Now(), n.since()))
}

// isQuiet tells whether the module is Ready and nothing has happened that could change that. What the status says does not count if the last pass
// said something else: then it could not be saved.
func (n *run) isQuiet(rules string) bool {
	said := n.manifest.Status.State
	return said == v1beta2.StateReady && (n.inst.reported == said || n.inst.reported == "") &&
		!n.rendered && !n.stirred && len(n.news) == 0 && n.manifest.Status.ObservedGeneration == n.manifest.Generation &&
		(n.inst.judged == rules || n.inst.judged == "")
}

// judgeResource reads the state that the module's operator reports.
func (n *run) judgeResource(ctx context.Context) (observed, error) {
	ref := n.resourceRef()
	if err := n.readResource(ctx); err != nil {
		return observed{}, err
	}
	if n.cr == nil {
		return observed{v1beta2.StateProcessing, v1beta2.ReasonCustomResourceNotReady, fmt.Sprintf("%s is not there yet", ref)}, nil
	}
	verdict, err := n.states.Evaluate(ref, n.cr, stateRules(&n.manifest.Spec))
	if err != nil {
		return observed{}, reconcile.TerminalError(err)
	}
	return judged(verdict), nil
}
