package kyma

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// The Kyma in the runtime belongs to the runtime's admin. If it is deleted, which is easily done by accident, what the admin has asked for
// would be uninstalled: so it is remembered in the control plane, as far as it is not what the Kyma there asks for anyway.

// lastWish is the value of v1beta2.AnnotationLastRequest.
type lastWish struct {
	Channel string           `json:"channel"`
	Modules []v1beta2.Module `json:"modules,omitempty"`
}

// maxWish bounds the annotation, in bytes. All annotations of an object together may have 256 KiB; 250 modules have about 40.
const maxWish = 128 << 10

// rememberWish writes down what the Kyma in the runtime asks for, before anything is done about it.
func (n *run) rememberWish(ctx context.Context) error {
	if n.InCluster {
		return nil
	}
	want := wishToRemember(n.kyma, n.remote)
	if n.kyma.Annotations[v1beta2.AnnotationLastRequest] == want {
		return nil
	}
	old := n.kyma.DeepCopy()
	if want == "" {
		delete(n.kyma.Annotations, v1beta2.AnnotationLastRequest)
	} else {
		metav1.SetMetaDataAnnotation(&n.kyma.ObjectMeta, v1beta2.AnnotationLastRequest, want)
	}
	return n.patchMetadata(ctx, old)
}

// wishToRemember returns the value of the annotation, "" if there is nothing to remember.
func wishToRemember(kyma, remote *v1beta2.Kyma) string {
	w := lastWish{remote.Spec.Channel, remote.Spec.Modules}
	if remote.Annotations[v1beta2.AnnotationStartOver] == v1beta2.ValueTrue ||
		equality.Semantic.DeepEqual(w, lastWish{kyma.Spec.Channel, kyma.Spec.Modules}) {
		return ""
	}
	text, err := json.Marshal(w)
	if err != nil || len(text) > maxWish {
		return ""
	}
	return string(text)
}

// firstWish returns the spec of a Kyma that is created in a runtime, and whether it is one that was remembered.
func firstWish(kyma *v1beta2.Kyma) (spec v1beta2.KymaSpec, restored bool) {
	spec = *kyma.Spec.DeepCopy()
	var w lastWish
	text, there := kyma.Annotations[v1beta2.AnnotationLastRequest]
	if !there || json.Unmarshal([]byte(text), &w) != nil || w.Channel == "" {
		return spec, false
	}
	spec.Channel, spec.Modules = w.Channel, w.Modules
	return spec, true
}
