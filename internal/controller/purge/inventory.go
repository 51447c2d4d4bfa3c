package purge

import (
	"context"
	"fmt"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// purgeInventories deletes the objects of the modules whose custom resources no longer exist. An object whose deletion
// takes long does not block the deletion of other objects.
func (n *run) purgeInventories(ctx context.Context) error {
	for _, t := range n.targets {
		if t.blocked {
			continue
		}
		t.begun = true
		left, err := n.deleteInventory(ctx, t, t.inventory)
		if err != nil {
			return fmt.Errorf("purging module %s from runtime %s: %w", t.module, n.kyma.Name, err)
		}
		t.deleted = left.Done()
		t.existing = without(t.existing, stayingRefs(left))
		n.reportNewlyDeleted(ctx, t, deletedOrBeingDeleted(left))
		for _, r := range left.Remaining {
			if r.Content {
				n.addBlocker(r.Ref, r.Ref.String()+": "+r.Message)
			}
		}
		late := overdueOrRejected(left.Remaining, n.now, n.Grace)
		for _, r := range late {
			n.addBlocker(r.Ref, r.Ref.String()+": "+r.Message)
		}
		if late == nil || len(late) == len(left.Remaining) {
			continue
		}
		rest, err := n.deleteInventory(ctx, t, without(t.inventory, refsOf(late)))
		if err != nil {
			return fmt.Errorf("purging module %s from runtime %s: %w", t.module, n.kyma.Name, err)
		}
		t.existing = without(t.existing, stayingRefs(rest))
		n.reportNewlyDeleted(ctx, t, deletedOrBeingDeleted(rest))
	}
	return nil
}

// deleteInventory deletes the objects of a module that its inventory lists. A namespace is deleted only if it contains
// no objects of users or of other modules.
func (n *run) deleteInventory(ctx context.Context, t *target, refs []apply.Ref) (apply.Teardown, error) {
	return n.runtime.DeleteOwned(ctx, refs, &n.memory.deletion, &apply.Ownership{Name: t.owner,
		Title: "module " + t.module, Manager: v1beta2.FieldOwnerApplier})
}

// stayingRefs returns the objects that stay in the runtime. The next deletion returns objects that were left in the
// runtime among the deleted objects.
func stayingRefs(left apply.Teardown) []apply.Ref {
	refs := slices.Clone(left.Kept)
	for _, l := range left.Left {
		refs = append(refs, l.Ref)
	}
	return refs
}

// deletedOrBeingDeleted returns those of the objects that no longer exist, or whose deletion the API server has
// accepted.
func deletedOrBeingDeleted(left apply.Teardown) []apply.Ref {
	refs := slices.Clone(left.Deleted)
	for _, r := range left.Remaining {
		if !r.Since.IsZero() {
			refs = append(refs, r.Ref)
		}
	}
	return refs
}
