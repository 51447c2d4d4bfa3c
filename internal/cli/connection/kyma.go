package connection

import (
	"context"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// InNamespace lists in the namespace of Kymas and catalog.
func (c *Cluster) InNamespace() client.ListOption { return client.InNamespace(c.Namespace) }

// Kyma reads a Kyma. If there is none of this name, the error says which one may be meant.
func (c *Cluster) Kyma(ctx context.Context, name string) (*v1beta2.Kyma, error) {
	k := &v1beta2.Kyma{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, k)
	switch {
	case apierrors.IsNotFound(err) && c.OwnKyma != "":
		return nil, console.Fail(console.ExitNotFound, "%s has no Kyma %s/%s: it is not looked after by a control plane, or not yet", c, c.Namespace, name)
	case apierrors.IsNotFound(err):
		return nil, console.Fail(console.ExitNotFound, "there is no runtime %q in namespace %s of %s: %s", name, c.Namespace, c, console.Suggest(name, c.kymaNames(ctx)))
	}
	return k, c.Explain(err, "reading Kyma "+name)
}

// WithRequest returns the Kyma with what its runtime asks for, as far as the control plane knows: the annotation v1beta2.AnnotationLastRequest has it
// if it is not what the Kyma there says itself.
func WithRequest(k *v1beta2.Kyma) *v1beta2.Kyma {
	var last struct {
		Channel string           `json:"channel"`
		Modules []v1beta2.Module `json:"modules"`
	}
	text, there := k.Annotations[v1beta2.AnnotationLastRequest]
	if !there || json.Unmarshal([]byte(text), &last) != nil || last.Channel == "" {
		return k
	}
	wished := *k
	wished.Spec.Channel, wished.Spec.Modules = last.Channel, last.Modules
	return &wished
}

// ModuleNames returns the modules that a runtime asks for or has.
func ModuleNames(k *v1beta2.Kyma) []string {
	var all []string
	for _, m := range WithRequest(k).Spec.Modules {
		all = append(all, m.Name)
	}
	for _, m := range k.Status.Modules {
		all = append(all, m.Name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
