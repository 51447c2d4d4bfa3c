package purge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// obstacle is a custom resource that the runtime does not let us touch, because it cannot ask an admission webhook about that.
type obstacle struct {
	about apply.Ref
	err   *apply.Error
}

// obstructed notes why the runtime refused something. If that was for want of an answer of a webhook, the step webhooks sees to it.
func (n *run) obstructed(about apply.Ref, err error) {
	if e, ok := errors.AsType[*apply.Error](err); ok && e.Webhook() != "" {
		n.obstacles = append(n.obstacles, obstacle{about, e})
		return
	}
	n.blocked(about, err.Error())
}

// unhooking is how long an API server may take to notice that a webhook is gone: it is usually a moment.
const unhooking = 10 * time.Second

// purgeWebhooks deletes the webhook configurations of the modules that nobody answers any more and that stood in the way of the step
// before. One that is in no inventory is named, and left alone.
func (n *run) purgeWebhooks(ctx context.Context) error {
	for _, webhook := range webhooksOf(n.obstacles) {
		kept := slices.DeleteFunc(slices.Clone(n.obstacles), func(o obstacle) bool { return o.err.Webhook() != webhook })
		removed, err := n.removeWebhook(ctx, webhook, kept)
		if err != nil {
			return err
		}
		if removed {
			n.memory.unhooked[webhook] = n.now
		}
		if gone, known := n.memory.unhooked[webhook]; known && n.now.Sub(gone) < unhooking {
			n.lookAt(n.now.Add(time.Second))
			continue
		}
		for _, o := range kept {
			n.blocked(o.about, o.err.Error())
		}
	}
	return nil
}

// removeWebhook deletes what in the inventories configures a webhook, and tells whether there was anything.
func (n *run) removeWebhook(ctx context.Context, webhook string, kept []obstacle) (removed bool, err error) {
	for _, t := range n.targets {
		for _, ref := range t.inventory {
			if !isWebhookConfiguration(ref) || ref.Keep {
				continue
			}
			object, err := n.runtime.Get(ctx, ref)
			switch {
			case concernsCluster(err):
				return false, err
			case err != nil || !configures(object, webhook) || !t.owns(object):
				continue
			}
			if err := n.mark(ctx, t, ref); err != nil {
				return false, err
			}
			left, err := n.runtime.Delete(ctx, []apply.Ref{ref}, nil)
			if err != nil {
				return false, err
			}
			for _, r := range left.Remaining {
				n.blocked(r.Ref, r.Ref.String()+": "+r.Message)
			}
			if left.Done() {
				removed = true
				n.tellWebhook(ctx, t, ref, webhook, kept)
			}
		}
	}
	return removed, nil
}

// mark says on a Manifest that its module is being taken apart: otherwise its controller, which looks after the operator while there are
// custom resources, would put back what is taken.
func (n *run) mark(ctx context.Context, t *target, what apply.Ref) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1beta2.AnnotationPurged: what.String()}}})
	if err != nil {
		return fmt.Errorf("encoding the annotation of Manifest %s: %w", t.name, err)
	}
	m := &v1beta2.Manifest{}
	m.Namespace, m.Name = n.kyma.Namespace, t.name
	err = n.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1beta2.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking Manifest %s as purged: %w", t.name, err)
	}
	return nil
}

// tellWebhook tells that a webhook configuration was deleted, and what it had kept.
func (n *run) tellWebhook(ctx context.Context, t *target, ref apply.Ref, webhook string, kept []obstacle) {
	refs := make([]apply.Ref, len(kept))
	for i, o := range kept {
		refs[i] = o.about
	}
	t.there = without(t.there, []apply.Ref{ref})
	metrics.Purged.WithLabelValues(metrics.PurgedObject).Inc()
	log.FromContext(ctx).Info("purged a webhook that nobody answers", "module", t.module, "object", ref.String(), "webhook", webhook)
	n.inform(v1beta2.ReasonPurged, ref, fmt.Sprintf("module %s: deleted %s: nobody answers its webhook %s, which kept %s",
		t.module, ref, webhook, listed(namesOf(refs))))
}

// webhooksOf returns the webhooks that are in the way, sorted.
func webhooksOf(obstacles []obstacle) []string {
	var names []string
	for _, o := range obstacles {
		names = append(names, o.err.Webhook())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isWebhookConfiguration tells whether an object configures admission webhooks.
func isWebhookConfiguration(r apply.Ref) bool {
	return r.Group == "admissionregistration.k8s.io" && (r.Kind == "ValidatingWebhookConfiguration" || r.Kind == "MutatingWebhookConfiguration")
}

// configures tells whether a webhook configuration has a webhook of that name.
func configures(configuration *unstructured.Unstructured, webhook string) bool {
	webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	return slices.ContainsFunc(webhooks, func(w any) bool {
		entry, _ := w.(map[string]any)
		return entry["name"] == webhook
	})
}
