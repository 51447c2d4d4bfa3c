package purge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// purgeInventories deletes what the modules consist of, once no custom resource needs their operators any more. What has been going for
// long does not hold up the rest.
func (n *run) purgeInventories(ctx context.Context) error {
	for _, t := range n.targets {
		if t.held {
			continue
		}
		t.begun = true
		left, err := n.runtime.Delete(ctx, t.inventory, &n.memory.deletion)
		if err != nil {
			return fmt.Errorf("purging module %s from runtime %s: %w", t.module, n.kyma.Name, err)
		}
		t.gone = left.Done()
		t.there = without(t.there, left.Kept)
		n.tellDeleted(ctx, t, accepted(left))
		late := overdue(left.Remaining, n.now, n.Grace)
		for _, r := range late {
			n.blocked(r.Ref, r.Ref.String()+": "+r.Message)
		}
		if late == nil || len(late) == len(left.Remaining) {
			continue
		}
		rest, err := n.runtime.Delete(ctx, without(t.inventory, refsOf(late)), &n.memory.deletion)
		if err != nil {
			return fmt.Errorf("purging module %s from runtime %s: %w", t.module, n.kyma.Name, err)
		}
		n.tellDeleted(ctx, t, accepted(rest))
	}
	return nil
}

// accepted returns the objects that are gone or going.
func accepted(left apply.Teardown) []apply.Ref {
	refs := slices.Clone(left.Deleted)
	for _, r := range left.Remaining {
		if !r.Since.IsZero() {
			refs = append(refs, r.Ref)
		}
	}
	return refs
}

// tellEnd tells the last of a Manifest that is gone: its controller has seen all of its inventory go.
func (n *run) tellEnd(ctx context.Context, t *target) {
	if t.begun {
		n.tellDeleted(ctx, t, t.there)
	}
}

// tellDeleted tells which objects of an inventory were deleted, of those that were there when the purge began.
func (n *run) tellDeleted(ctx context.Context, t *target, deleted []apply.Ref) {
	var news []apply.Ref
	var names []string
	for _, ref := range t.there {
		if slices.ContainsFunc(deleted, ref.SameObject) && !ref.Keep {
			news = append(news, ref)
			names = append(names, ref.String())
		}
	}
	if news == nil {
		return
	}
	t.there = without(t.there, news)
	metrics.Purged.WithLabelValues(metrics.PurgedObject).Add(float64(len(news)))
	log.FromContext(ctx).Info("purged objects of a module", "module", t.module, "objects", names)
	n.inform(v1beta2.ReasonPurged, news[0], fmt.Sprintf("module %s: deleted %s: %s", t.module, counted(len(names), "object"), listed(names)))
}

// blocker is something that stands in the way.
type blocker struct {
	about apply.Ref // zero if it is the runtime
	text  string
}

func (n *run) blocked(about apply.Ref, text string) {
	n.blockers = append(n.blockers, blocker{about, text})
}

// mostBlockers is how many events of what stands in the way come of one pass. The status of Manifests tells the rest.
const mostBlockers = 10

// tell says what stands in the way and has not been told.
func (n *run) tell() {
	told := map[string]bool{}
	for _, b := range n.blockers[:min(mostBlockers, len(n.blockers))] {
		if !n.memory.told[b.text] {
			n.warn(v1beta2.ReasonPurgeBlocked, b.about, clip(b.text))
		}
		told[b.text] = true
	}
	n.memory.told = told
}

// inform and warn tell what was done, beginning with the object about. Events that are alike but for their text count as one, which
// would lose the text, so that object is related to the event.
func (n *run) inform(reason string, about apply.Ref, text string) {
	n.Events.Eventf(n.kyma, referenceTo(about), corev1.EventTypeNormal, reason, "Purge", "%s", text)
}

func (n *run) warn(reason string, about apply.Ref, text string) {
	n.Events.Eventf(n.kyma, referenceTo(about), corev1.EventTypeWarning, reason, "Purge", "%s", text)
}

func referenceTo(r apply.Ref) runtime.Object {
	if r.Kind == "" {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: r.GVK().GroupVersion().String(), Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// isAbsent tells whether an error says that there is no such object.
func isAbsent(err error) bool {
	return slices.Contains([]string{apply.ObjectNotFound, apply.KindUnknown, apply.NamespaceNotFound}, loop.Reason(err))
}

// concernsCluster tells whether an error is about the runtime as a whole, so that nothing else can be done there now.
func concernsCluster(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := errors.AsType[*apply.Error](err); !ok {
		return true
	}
	class := apply.ClassOf(err)
	return class == apply.Unreachable || class == apply.Unauthorized
}

// refused returns the objects whose deletion was not accepted.
func refused(left []apply.Remaining) []apply.Ref {
	var refs []apply.Ref
	for _, r := range left {
		if r.Err != nil || r.Since.IsZero() {
			refs = append(refs, r.Ref)
		}
	}
	return refs
}
