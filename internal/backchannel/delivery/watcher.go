package delivery

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// ValidateWatcher returns an error if the watch or the webhook of a Watcher cannot be delivered to runtimes.
func ValidateWatcher(w *v1beta2.Watcher) error {
	if w.ChangeDetectionMode() == v1beta2.WatcherModeWebhook {
		_, err := WebhookFor(w)
		return err
	}
	_, err := WatchFor(w)
	return err
}

// WatchFor returns the entry of a Watcher in the watch list of an agent. WatchFor returns an error if agents would
// refuse the entry: an agent that refuses one entry refuses the whole watch list.
func WatchFor(w *v1beta2.Watcher) (protocol.Watch, error) {
	selector, err := w.LabelSelector()
	if err != nil {
		return protocol.Watch{}, err
	}
	of := w.Spec.ResourceToWatch
	watch := protocol.Watch{
		Manager: w.NotifiedManagerName(), Group: of.Group, Version: of.Version, Resource: of.Resource,
		Selector: selector,
		Field:    protocol.Field(w.Spec.Field),
	}
	if err := watch.Validate(); err != nil {
		return protocol.Watch{}, fmt.Errorf("agents cannot watch the resource: %w", err)
	}
	return watch, nil
}

// WebhookFor returns the webhook of a Watcher. WebhookFor returns an error if the API server of a runtime would refuse
// the webhook: an API server that refuses one webhook refuses the whole ValidatingWebhookConfiguration.
func WebhookFor(w *v1beta2.Watcher) (Webhook, error) {
	if _, err := w.LabelSelector(); err != nil {
		return Webhook{}, err
	}
	of := w.Spec.ResourceToWatch
	if of.Version == "" || of.Resource == "" {
		return Webhook{}, errors.New("spec.resourceToWatch has no version or no resource")
	}
	if len(validation.IsDNS1123Subdomain(w.WebhookName())) > 0 {
		return Webhook{}, fmt.Errorf("the name of the webhook, %q, is not a DNS name", w.WebhookName())
	}
	for part := range strings.SplitSeq(w.NotifiedManagerName(), "/") { // it is a part of the path of the webhook
		if len(validation.IsDNS1123Subdomain(part)) > 0 {
			return Webhook{}, fmt.Errorf(
				"the manager %q cannot be part of the path of a webhook: use lower-case letters, digits, dots and hyphens",
				w.NotifiedManagerName())
		}
	}
	return Webhook{
		Name: w.WebhookName(), Manager: w.NotifiedManagerName(), Group: of.Group,
		Version: of.Version, Resource: of.Resource,
		Status: w.Spec.Field == v1beta2.StatusField, Labels: w.Spec.LabelsToWatch,
	}, nil
}
