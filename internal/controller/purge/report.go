package purge

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// reportUnreportedDeletions reports the deletion of the objects of a Manifest that no longer exists, as far as no event
// has reported it yet. All objects of the Manifest are deleted, because the Manifest controller deletes them before it
// releases the Manifest.
func (n *run) reportUnreportedDeletions(ctx context.Context, t *target) {
	if t.begun {
		n.reportNewlyDeleted(ctx, t, t.existing)
	}
}

// reportNewlyDeleted records an event about the deleted objects of an inventory. The event names only objects that
// existed when the purge started.
func (n *run) reportNewlyDeleted(ctx context.Context, t *target, deleted []apply.Ref) {
	var reported []apply.Ref
	var names []string
	for _, ref := range t.existing {
		if slices.ContainsFunc(deleted, ref.SameObject) && !ref.Keep {
			reported = append(reported, ref)
			names = append(names, ref.String())
		}
	}
	if reported == nil {
		return
	}
	t.existing = without(t.existing, reported)
	metrics.Purged.WithLabelValues(metrics.PurgedObject).Add(float64(len(reported)))
	log.FromContext(ctx).Info("purged objects of a module", "module", t.module, "objects", names)
	n.recordEvent(v1beta2.ReasonPurged, reported[0], fmt.Sprintf("module %s: deleted %s: %s", t.module,
		countText(len(names), "object"), joinNames(names)))
}

// waitingPeriod is a period after the deletion of the first Manifest; in this period, a deletion that waits is not
// reported.
const waitingPeriod = 5 * time.Minute

// warnAndWaitWithoutPurge is called for runtimes that are never purged. warnAndWaitWithoutPurge records events that
// state why the modules of the Kyma are not deleted yet, and returns a loop.Later error. Only the cache is read, and
// the same text is recorded only once.
func (n *run) warnAndWaitWithoutPurge(ctx context.Context) error {
	begun, err := n.findGracePeriodStart(ctx)
	if err != nil {
		return err
	}
	if left := n.begin.Add(waitingPeriod).Sub(n.now); !begun || left > 0 {
		return loop.Later(min(max(left, waitingPeriod/5), waitingPeriod), "the modules to be deleted")
	}
	var manifests v1beta2.ManifestList
	if err := n.Client.List(ctx, &manifests, client.InNamespace(n.kyma.Namespace),
		client.MatchingFields{manifestIndex: n.kyma.Name}); err != nil {
		return fmt.Errorf("listing the Manifests of Kyma %s: %w", n.kyma.Name, err)
	}
	n.memory = n.memoryOf(nil)
	reported := map[string]bool{}
	for i := range manifests.Items {
		m := &manifests.Items[i]
		text := clip(fmt.Sprintf("nothing is deleted by force (--purge-grace-period is 0), and module %s waits: %s",
			m.ModuleName(), m.Status.LastOperation.Operation))
		if reported[text] = true; !n.memory.reported[text] && i < blockerEventsLimit {
			n.recordWarning(v1beta2.EventDeletionWaits, apply.Ref{}, text)
		}
	}
	n.memory.reported = reported
	return loop.Later(waitingPeriod, "the modules to be deleted")
}

// blocker is an object or a runtime that the purge waits for.
type blocker struct {
	ref  apply.Ref // zero if the purge waits for the runtime
	text string
}

// addBlocker adds a blocker to the list that recordBlockerWarnings reports.
func (n *run) addBlocker(ref apply.Ref, text string) {
	n.blockers = append(n.blockers, blocker{ref, text})
}

// blockerEventsLimit is the maximum number of events about blockers in one reconcile. Blockers above this limit are
// visible only in the status of the Manifests.
const blockerEventsLimit = 10

// recordBlockerWarnings records a warning for each blocker that the last reconcile did not report.
func (n *run) recordBlockerWarnings() {
	reported := map[string]bool{}
	for _, b := range n.blockers[:min(blockerEventsLimit, len(n.blockers))] {
		if !n.memory.reported[b.text] {
			n.recordWarning(v1beta2.ReasonPurgeBlocked, b.ref, clip(b.text))
		}
		reported[b.text] = true
	}
	n.memory.reported = reported
}

// recordEvent records an event on the Kyma about an object. The event has the object as its related object. Without a
// related object, events that differ only in their text would be combined into one event, and later texts would be
// lost.
func (n *run) recordEvent(reason string, about apply.Ref, text string) {
	n.Events.Eventf(n.kyma, referenceTo(about), corev1.EventTypeNormal, reason, "Purge", "%s", text)
}

// recordWarning is like recordEvent, but records an event of type Warning.
func (n *run) recordWarning(reason string, about apply.Ref, text string) {
	n.Events.Eventf(n.kyma, referenceTo(about), corev1.EventTypeWarning, reason, "Purge", "%s", text)
}

// referenceTo returns the reference to an object for an event, or nil for the zero Ref.
func referenceTo(r apply.Ref) runtime.Object {
	if r.Kind == "" {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: r.GVK().GroupVersion().String(), Kind: r.Kind,
		Namespace: r.Namespace, Name: r.Name}
}
