package purge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// mostMoves is how many custom resources one pass asks to go, or lets go. The next pass comes at once; meanwhile others get a turn.
const mostMoves = 500

// survey finds the Manifests that are being deleted, and reads once what their inventories name. A Manifest that is not asked to go yet will be,
// by the Kyma controller.
func (n *run) survey(ctx context.Context) error {
	var manifests v1beta2.ManifestList
	err := n.Client.List(ctx, &manifests, client.InNamespace(n.kyma.Namespace), client.MatchingFields{manifestIndex: n.kyma.Name})
	if err != nil {
		return fmt.Errorf("looking for the Manifests of Kyma %s: %w", n.kyma.Name, err)
	}
	present := map[string]bool{}
	for i := range manifests.Items {
		m := &manifests.Items[i]
		if m.IsUnmanaged() {
			continue // what it installed is the user's now
		}
		present[m.Name] = true
		if n.memory.targets[m.Name] == nil {
			n.memory.targets[m.Name] = newTarget(m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.memory.targets)) {
		t := n.memory.targets[name]
		if !present[name] {
			n.tellEnd(ctx, t)
			delete(n.memory.targets, name)
			continue
		}
		n.targets = append(n.targets, t)
	}
	return n.lookAtTargets(ctx)
}

// lookAtTargets reads what the inventories of the targets name, and decides what stands between them and their end.
func (n *run) lookAtTargets(ctx context.Context) error {
	for _, t := range n.targets {
		if err := n.look(ctx, t); err != nil {
			return err
		}
		t.held, t.gone = false, false
	}
	n.kinds = kindsOf(n.targets, n.Skip)
	return nil
}

// look reads what of an inventory is there, and the definitions among it. It does so once, so that what is told to be purged was there.
func (n *run) look(ctx context.Context, t *target) error {
	if t.surveyed {
		return nil
	}
	t.there, t.definitions = nil, nil
	for _, ref := range t.inventory {
		object, err := n.runtime.Get(ctx, ref)
		switch {
		case isAbsent(err):
			continue
		case concernsCluster(err):
			return err
		}
		t.there = append(t.there, ref) // if it could not be read, it is there
		if err != nil || !isDefinition(ref) {
			continue
		}
		if d, ok := definitionOf(ref, object); ok {
			t.definitions = append(t.definitions, d)
		}
	}
	t.surveyed = true
	return nil
}

// purgeResources deletes custom resources, and takes the finalizers of those that nobody lets go.
func (n *run) purgeResources(ctx context.Context) error {
	moves := 0
	for _, k := range n.kinds {
		found, err := n.runtime.List(ctx, k.gvk, "")
		switch {
		case loop.Reason(err) == apply.KindUnknown:
			continue // so there are none
		case concernsCluster(err):
			return err
		case err != nil:
			k.hold()
			n.blocked(apply.Ref{Group: k.gvk.Group, Version: k.gvk.Version, Kind: k.gvk.Kind}, err.Error())
			continue
		}
		p := purging{run: n, kind: k}
		for i := range found {
			if moves == mostMoves {
				n.more = true
				k.hold()
				break
			}
			moved, err := p.move(ctx, &found[i])
			if err != nil {
				return err
			}
			moves += moved
		}
		if err := p.end(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hold keeps the operators that serve this kind.
func (k *kind) hold() {
	for _, t := range k.of {
		t.held = true
	}
}

// purging is the work on one kind in one pass.
type purging struct {
	*run
	kind     *kind
	leaving  []apply.Ref // to be asked to go
	released []apply.Ref // lost their finalizers
	names    []string    // of those, with the finalizers
	left     []apply.Ref // not ours to touch
}

// move does to one custom resource what is to be done, and returns 1 if that is anything. Its error concerns the cluster.
func (p *purging) move(ctx context.Context, found *apply.ObjectMetadata) (int, error) {
	do, until := p.kind.moveFor(found, p.now, p.Grace)
	if !until.IsZero() {
		p.lookAt(until)
	}
	switch do {
	case leave:
		p.left = append(p.left, found.Ref)
		p.kind.hold()
		return 0, nil
	case remove:
		p.leaving = append(p.leaving, found.Ref)
		return 1, nil
	case release:
		return 1, p.release(ctx, found)
	default:
		p.kind.hold()
		return 0, nil
	}
}

// release takes the finalizers of one custom resource, if it is still the one that was found.
func (p *purging) release(ctx context.Context, found *apply.ObjectMetadata) error {
	keep := served(found.Finalizers)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": found.UID, "finalizers": keep}})
	if err != nil {
		return fmt.Errorf("encoding the finalizers of %s: %w", found.Ref, err)
	}
	_, err = p.runtime.Patch(ctx, found.Ref, types.MergePatchType, "", patch, v1beta2.FieldOwner)
	switch {
	case isAbsent(err):
		return nil
	case concernsCluster(err):
		return err
	case err != nil:
		p.obstructed(found.Ref, err)
		p.kind.hold()
		return nil
	}
	if len(keep) > 0 {
		p.kind.hold()
	}
	gone := slices.DeleteFunc(slices.Clone(found.Finalizers), func(f string) bool { return slices.Contains(keep, f) })
	p.released = append(p.released, found.Ref)
	p.names = append(p.names, found.String()+" (held by "+strings.Join(gone, ", ")+")")
	metrics.Purged.WithLabelValues(metrics.PurgedFinalizers).Inc()
	log.FromContext(ctx).Info("removed finalizers of a custom resource", "object", found.String(), "finalizers", gone)
	return nil
}

// end asks those to go that have not been, all at once, and tells what was done.
func (p *purging) end(ctx context.Context) error {
	if p.names != nil {
		p.warn(v1beta2.ReasonFinalizersRemoved, p.released[0], fmt.Sprintf("removed the finalizers of %s: %s",
			counted(len(p.names), "custom resource"), listed(p.names)))
	}
	if p.left != nil {
		why := p.kind.left
		if why == "" {
			why = "is defined by none of the modules"
		}
		p.blocked(p.left[0], fmt.Sprintf("the kind %s %s: %s", p.kind.gvk.GroupKind(), why, listed(namesOf(p.left))))
	}
	if p.leaving == nil {
		return nil
	}
	left, err := p.runtime.Delete(ctx, p.leaving, &p.memory.deletion)
	var names []string
	for _, ref := range without(p.leaving, refused(left.Remaining)) {
		names = append(names, ref.String())
		metrics.Purged.WithLabelValues(metrics.PurgedResource).Inc()
		log.FromContext(ctx).Info("deleted a custom resource", "object", ref.String())
	}
	for _, r := range left.Remaining {
		p.kind.hold()
		if r.Err != nil {
			p.obstructed(r.Ref, r.Err)
		}
	}
	if names != nil && err == nil {
		p.inform(v1beta2.ReasonPurged, p.leaving[0], fmt.Sprintf("deleted %s: %s", counted(len(names), "custom resource"), listed(names)))
	}
	return err
}
