package connection

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// InNamespace returns the list option for the namespace of the Kymas and the catalog.
func (c *Cluster) InNamespace() client.ListOption { return client.InNamespace(c.Namespace) }

// Kyma reads a Kyma. If the Kyma does not exist, the error suggests similar names.
func (c *Cluster) Kyma(ctx context.Context, name string) (*v1beta2.Kyma, error) {
	k := &v1beta2.Kyma{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, k)
	switch {
	case apierrors.IsNotFound(err) && c.OwnKyma != "":
		return nil, console.Fail(console.ExitNotFound, "%s has no Kyma %s/%s: no control plane manages it, or not yet",
			c, c.Namespace, name)
	case apierrors.IsNotFound(err):
		return nil, console.Fail(console.ExitNotFound, "runtime %q does not exist in namespace %s of %s: %s", name,
			c.Namespace, c, console.SuggestionText(name, c.kymaNames(ctx)))
	}
	return k, c.Explain(err, "reading Kyma "+name)
}

// WithLastRequest returns the Kyma with the channel and the modules that the runtime has requested last. If the last
// request of the runtime differs from the spec of its Kyma in the control plane, the manager stores the request in the
// annotation v1beta2.AnnotationLastRequest of this Kyma.
func WithLastRequest(k *v1beta2.Kyma) *v1beta2.Kyma {
	var last channel.LastRequest
	text, there := k.Annotations[v1beta2.AnnotationLastRequest]
	if !there || json.Unmarshal([]byte(text), &last) != nil || last.Channel == "" {
		return k
	}
	requested := *k
	requested.Spec.Channel, requested.Spec.Modules = last.Channel, last.Modules
	if len(last.Deferrals) > 0 {
		requested.Annotations = maps.Clone(k.Annotations)
		maps.Copy(requested.Annotations, last.Deferrals)
	}
	return &requested
}

// ModuleNames returns the names of the modules that a runtime requests, and of the modules that the runtime still has.
func ModuleNames(k *v1beta2.Kyma) []string {
	var all []string
	for _, m := range WithLastRequest(k).Spec.Modules {
		all = append(all, m.Name)
	}
	for _, m := range k.Status.Modules {
		all = append(all, m.Name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
