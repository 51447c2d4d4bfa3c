package purge

import (
	"context"
	"fmt"
	"slices"

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
		left, err := n.runtime.Delete(ctx, t.inventory, &n.memory.deletion)
		if err != nil {
			return fmt.Errorf("purging module %s from runtime %s: %w", t.module, n.kyma.Name, err)
		}
		t.deleted = left.Done()
		t.existing = without(t.existing, left.Kept)
		n.reportDeleted(ctx, t, deletedOf(left))
		late := overdue(left.Remaining, n.now, n.Grace)
		for _, r := range late {
			n.addBlocker(r.Ref, r.Ref.String()+": "+r.Message)
		}
		if late == nil || len(late) == len(left.Remaining) {
			continue
		}
		rest, err := n.runtime.Delete(ctx, without(t.inventory, refsOf(late)), &n.memory.deletion)
		if err != nil {
			return fmt.Errorf("purging module %s from runtime %s: %w", t.module, n.kyma.Name, err)
		}
		n.reportDeleted(ctx, t, deletedOf(rest))
	}
	return nil
}

// deletedOf returns the objects that no longer exist, or whose deletion the API server has accepted.
func deletedOf(left apply.Teardown) []apply.Ref {
	refs := slices.Clone(left.Deleted)
	for _, r := range left.Remaining {
		if !r.Since.IsZero() {
			refs = append(refs, r.Ref)
		}
	}
	return refs
}
