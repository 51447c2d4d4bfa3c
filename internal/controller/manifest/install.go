package manifest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// notYet is how soon a pass comes back for what usually takes a moment, such as a new kind being served.
const notYet = 200 * time.Millisecond

// decide works out what the runtime should have and whether anything has to be done about it.
func (n *run) decide(ctx context.Context) error {
	var err error
	if n.plan, err = n.planOf(ctx); err != nil {
		return err
	}
	n.news, n.stirred = n.inst.take()
	n.plan.whole = n.manifest.Status.AppliedDigest != n.plan.digest
	n.plan.drifted = n.inst.drifted(n.news)
	n.plan.audit = time.Since(n.inst.audited) >= n.AuditInterval*7/8
	return nil
}

// planOf turns the spec into what has to be rendered. It asks the registry only if the artefact is named by a tag.
func (n *run) planOf(ctx context.Context) (plan, error) {
	p, err := newPlan(n.manifest)
	if err != nil {
		return plan{}, err
	}
	if p.options.Digest == "" {
		if _, p.options.Digest, err = n.Registry.Fetch(ctx, p.layer); err != nil {
			return plan{}, err
		}
	}
	p.digest = p.sum(n.manifest)
	return p, nil
}

// render makes the bundle, if anything has to be applied or compared. Runtimes that want the same share it.
func (n *run) render(ctx context.Context) error {
	if !n.plan.work() {
		return nil
	}
	bundle, err := n.bundles.get(n.plan.options.BundleDigest(), func() (*render.Bundle, error) {
		data, _, err := n.Registry.Fetch(ctx, n.plan.layer)
		if err != nil {
			return nil, err
		}
		objects, err := render.Read(data, render.Limits{})
		if err != nil {
			return nil, err
		}
		if len(objects) == 0 { // would remove all that was installed before
			return nil, emptyArtefact{}
		}
		return render.Build(objects, n.plan.options)
	})
	if err != nil {
		return fmt.Errorf("rendering %s: %w", n.plan.layer.Component, err)
	}
	n.set = apply.Set{Bundle: bundle, Overlay: n.plan.overlay, Owner: v1beta2.FieldOwnerApplier}
	return nil
}

// emptyArtefact is the error of an artefact without objects. Taken at its word it would remove everything.
type emptyArtefact struct{}

func (emptyArtefact) Error() string  { return "the artefact holds no object: build the module anew" }
func (emptyArtefact) Reason() string { return v1beta2.ReasonInvalidObject }

// record writes the inventory ahead: what is about to be applied, next to what was applied before. The status is saved after this step.
func (n *run) record(ctx context.Context) error {
	if n.set.Bundle == nil {
		n.refs = refsOf(n.manifest.Status.Synced)
		return n.listen(ctx)
	}
	var err error
	if n.refs, err = n.runtime.Refs(ctx, n.set); err != nil && n.refs == nil {
		return err
	}
	n.recordInventory()
	return nil
}

// apply sends what the runtime does not have yet: everything when the plan is new, else what a comparison finds to differ.
func (n *run) apply(ctx context.Context) error {
	if n.set.Bundle == nil {
		return nil
	}
	if !n.plan.whole {
		if err := n.compare(ctx); err != nil {
			return err
		}
	}
	result, err := n.runtime.Apply(ctx, n.set, &n.inst.progress)
	metrics.Objects.WithLabelValues("applied").Add(float64(len(result.Applied)))
	metrics.Objects.WithLabelValues("failed").Add(float64(len(result.Failed)))
	n.stirred = n.stirred || len(result.Applied) > 0
	switch {
	case err != nil:
		return err
	case len(result.Failed) > 0:
		return refused(result.Failed)
	case len(result.Waiting) > 0:
		return loop.Later(notYet, result.Waiting[0].Message)
	}
	return nil
}

// compare looks at the objects that were seen to change, or at all if it is time for that or if there is no memory of the others.
// What differs is forgotten in the progress, so that apply sends it again.
func (n *run) compare(ctx context.Context) error {
	only := n.plan.drifted
	for _, ref := range n.refs {
		if n.plan.audit || !n.inst.progress.Applied(ref) && !slices.ContainsFunc(only, ref.SameObject) {
			only = nil
			break
		}
	}
	drifted, err := n.runtime.Drift(ctx, n.set, &n.inst.progress, only...)
	if err != nil {
		return err
	}
	for _, d := range drifted {
		log.FromContext(ctx).Info("correcting drift", "object", d.String())
	}
	if only == nil {
		n.inst.audited = time.Now()
	}
	return nil
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
	_, err := n.runtime.Create(ctx, cr.DeepCopy(), v1beta2.FieldOwnerCustomResource)
	switch loop.Reason(err) {
	case apply.ObjectExists:
		return nil
	case apply.KindUnknown:
		return loop.Later(notYet, fmt.Sprintf("kind %s of the custom resource %s/%s to be served", cr.GetKind(), cr.GetNamespace(), cr.GetName()))
	}
	return err
}

// prune deletes what a former version had and this one has not, and waits until it is gone. The new objects are there already.
func (n *run) prune(ctx context.Context) error {
	if n.set.Bundle == nil || !n.plan.whole {
		return n.listen(ctx)
	}
	removed := apply.Removed(refsOf(n.manifest.Status.Synced), n.refs)
	if len(removed) > 0 {
		left, err := n.runtime.Delete(ctx, removed, &n.inst.deletion)
		if err != nil {
			return err
		}
		if len(left.Remaining) > 0 {
			return loop.Later(loop.Wait(time.Now(), n.since()), left.Waits())
		}
		metrics.Objects.WithLabelValues("deleted").Add(float64(len(left.Gone)))
		n.kept = left.Kept
	}
	n.inst.deletion = apply.Deletion{}
	n.applied = true
	return n.listen(ctx)
}

// listen follows the kinds of the inventory, so that what happens to them is heard.
func (n *run) listen(ctx context.Context) error {
	if !n.Runtimes.Watches() {
		return nil
	}
	kinds, err := n.interests(ctx)
	if err != nil {
		return err
	}
	n.inst.expect(n.refs)
	if !slices.Equal(kinds, n.inst.kinds) {
		n.inst.kinds = kinds
		n.follow()
	}
	return nil
}

// interests are the kinds of the inventory and the custom resource, each once.
func (n *run) interests(ctx context.Context) ([]runtimes.Interest, error) {
	seen := map[runtimes.Interest]bool{}
	var all []runtimes.Interest
	add := func(ref apply.Ref, i runtimes.Interest) error {
		resource, _, err := n.runtime.Resource(ctx, ref)
		if err != nil {
			if loop.Reason(err) == v1beta2.ReasonKindUnknown {
				return nil // not served yet, so there is nothing to hear
			}
			return err
		}
		i.Resource, i.Kind = resource, ref.Kind
		if !seen[i] {
			seen[i] = true
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
	slices.SortFunc(all, func(a, b runtimes.Interest) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all, nil
}

// observed is what was seen of the module in the runtime.
type observed struct {
	state   v1beta2.State
	reason  string
	message string
}

// observe finds out whether what was applied works: workloads first, then the module's custom resource.
func (n *run) observe(ctx context.Context) error {
	quiet := n.set.Bundle == nil && !n.stirred && len(n.news) == 0
	if quiet && n.manifest.Status.State == v1beta2.StateReady {
		n.seen = observed{state: v1beta2.StateReady}
		return nil
	}
	waiting, err := n.runtime.Ready(ctx, n.refs, &n.inst.progress)
	if err != nil {
		return err
	}
	n.seen = judge(waiting)
	if n.seen.state == v1beta2.StateReady && n.manifest.Spec.Resource != nil && n.manifest.Spec.CustomResourcePolicy != v1beta2.Ignore {
		if n.seen, err = n.judgeResource(ctx); err != nil {
			return err
		}
	}
	if n.seen.state == v1beta2.StateReady {
		return nil
	}
	return loop.Look(loop.Wait(time.Now(), n.since()))
}

// judgeResource reads the state that the module's operator reports.
func (n *run) judgeResource(ctx context.Context) (observed, error) {
	ref := n.resourceRef()
	cr, err := n.runtime.Get(ctx, ref)
	if loop.Reason(err) == apply.ObjectNotFound {
		return observed{v1beta2.StateProcessing, v1beta2.ReasonCustomResourceNotReady, fmt.Sprintf("%s is not there yet", ref)}, nil
	}
	if err != nil {
		return observed{}, err
	}
	return judgeState(ref, cr), nil
}
