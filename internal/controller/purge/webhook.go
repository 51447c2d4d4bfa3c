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

// webhookBlocker is a failed request about a custom resource. The request failed because an admission webhook did not
// answer.
type webhookBlocker struct {
	ref apply.Ref
	err *apply.Error
}

// addWebhookOrBlocker records a request that the API server of the runtime rejected. If the API server rejected the
// request because a webhook did not answer, purgeWebhooks deletes the configuration of this webhook later.
func (n *run) addWebhookOrBlocker(ref apply.Ref, err error) {
	if e, ok := errors.AsType[*apply.Error](err); ok && e.FailedWebhook() != "" {
		n.webhooks = append(n.webhooks, webhookBlocker{ref, e})
		return
	}
	n.addBlocker(ref, err.Error())
}

const (
	// webhookCachePeriod is the maximum time for which an API server may still call a webhook after the deletion of its
	// configuration. Usually an API server stops calling a deleted webhook within a second.
	webhookCachePeriod = 10 * time.Second
	// webhookRetryDelay is the delay between the deletion of a webhook configuration and the next attempt of the failed
	// requests.
	webhookRetryDelay = time.Second
)

// purgeWebhooks deletes the modules' webhook configurations whose webhook did not answer in purgeCustomResources. A
// webhook configuration that is in no inventory is reported and not deleted.
func (n *run) purgeWebhooks(ctx context.Context) error {
	for _, webhook := range webhookNames(n.webhooks) {
		blocked := slices.DeleteFunc(slices.Clone(n.webhooks),
			func(b webhookBlocker) bool { return b.err.FailedWebhook() != webhook })
		deleted, err := n.deleteConfigurationsWithWebhook(ctx, webhook, blocked)
		if err != nil {
			return err
		}
		if deleted {
			n.memory.webhooks[webhook] = n.now
		}
		if at, known := n.memory.webhooks[webhook]; known && n.now.Sub(at) < webhookCachePeriod {
			n.requeueAt(n.now.Add(webhookRetryDelay))
			continue
		}
		for _, b := range blocked {
			n.addBlocker(b.ref, b.err.Error())
		}
	}
	return nil
}

// deleteConfigurationsWithWebhook deletes the webhook configurations that contain the given webhook and that an
// inventory lists. deleteConfigurationsWithWebhook reports whether it deleted a webhook configuration.
func (n *run) deleteConfigurationsWithWebhook(ctx context.Context, webhook string, blocked []webhookBlocker) (
	deleted bool, err error) {
	for _, t := range n.targets {
		for _, ref := range t.inventory {
			if !isWebhookConfiguration(ref) || ref.Keep {
				continue
			}
			object, err := n.runtime.Get(ctx, ref)
			switch {
			case concernsWholeRuntime(err):
				return false, err
			case err != nil || !hasWebhook(object, webhook) || !t.stillOwns(object):
				continue
			}
			if err := n.annotatePurged(ctx, t, ref); err != nil {
				return false, err
			}
			left, err := n.runtime.Delete(ctx, []apply.Ref{ref}, nil)
			if err != nil {
				return false, err
			}
			for _, r := range left.Remaining {
				n.addBlocker(r.Ref, r.Ref.String()+": "+r.Message)
			}
			if left.Done() {
				deleted = true
				n.reportDeletedWebhook(ctx, t, ref, webhook, blocked)
			}
		}
	}
	return deleted, nil
}

// annotatePurged adds an annotation to a Manifest whose objects the purge deletes. Without the annotation, the Manifest
// controller would create the deleted objects again, because it keeps the operator running while custom resources
// exist.
func (n *run) annotatePurged(ctx context.Context, t *target, deleted apply.Ref) error {
	annotations := map[string]string{v1beta2.AnnotationPurged: deleted.String()}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding the annotation of Manifest %s: %w", t.name, err)
	}
	m := &v1beta2.Manifest{}
	m.Namespace, m.Name = n.kyma.Namespace, t.name
	err = n.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1beta2.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating Manifest %s as purged: %w", t.name, err)
	}
	return nil
}

// reportDeletedWebhook records an event about a deleted webhook configuration and the custom resources that it blocked.
func (n *run) reportDeletedWebhook(ctx context.Context, t *target, ref apply.Ref, webhook string,
	blocked []webhookBlocker) {
	refs := make([]apply.Ref, len(blocked))
	for i, b := range blocked {
		refs[i] = b.ref
	}
	t.existing = without(t.existing, []apply.Ref{ref})
	metrics.Purged.WithLabelValues(metrics.PurgedObject).Inc()
	log.FromContext(ctx).Info("purged the configuration of a webhook that does not answer", "module", t.module,
		"object", ref.String(), "webhook", webhook)
	n.recordEvent(v1beta2.ReasonPurged, ref, fmt.Sprintf(
		"module %s: deleted %s: its webhook %s does not answer, which blocked %s",
		t.module, ref, webhook, joinNames(namesOf(refs))))
}

// webhookNames returns the names of the webhooks that did not answer, sorted.
func webhookNames(blocked []webhookBlocker) []string {
	var names []string
	for _, b := range blocked {
		names = append(names, b.err.FailedWebhook())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isWebhookConfiguration reports whether an object is a configuration of admission webhooks.
func isWebhookConfiguration(r apply.Ref) bool {
	return r.Group == "admissionregistration.k8s.io" && (r.Kind == "ValidatingWebhookConfiguration" ||
		r.Kind == "MutatingWebhookConfiguration")
}

// hasWebhook reports whether a webhook configuration has a webhook with the given name.
func hasWebhook(configuration *unstructured.Unstructured, webhook string) bool {
	webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	return slices.ContainsFunc(webhooks, func(w any) bool {
		entry, _ := w.(map[string]any)
		return entry["name"] == webhook
	})
}
