package kyma

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// The admin of the runtime is the owner of the Kyma in the runtime. If an admin deletes the Kyma in the runtime by
// accident, its modules must not be uninstalled. Therefore the manager stores the last requested channel and modules,
// the last request, in an annotation of the Kyma in the control plane. The last request also has the annotations with
// which the admin pauses modules and defers updates. If the last request equals the spec of the Kyma in the control
// plane, the manager removes the annotation.

// lastRequestLimit is the maximum size of the annotation with the last request, in bytes. All annotations of an object
// together may have 256 KiB. For 250 modules, the annotation has about 40 KiB.
const lastRequestLimit = 128 << 10

// saveOrRemoveLastRequest stores the channel and the modules that the Kyma in the runtime requests, before the next
// steps act on this request. If encodeLastRequestIfNeeded returns no value, saveOrRemoveLastRequest removes the stored
// request.
func (n *run) saveOrRemoveLastRequest(ctx context.Context) error {
	if n.InCluster {
		return nil
	}
	return loop.PatchMetadata(ctx, n.Client, n.kyma, func(m *metav1.ObjectMeta) {
		if value := encodeLastRequestIfNeeded(n.kyma, n.remote); value == "" {
			delete(m.Annotations, v1beta2.AnnotationLastRequest)
		} else {
			metav1.SetMetaDataAnnotation(m, v1beta2.AnnotationLastRequest, value)
		}
	})
}

// encodeLastRequestIfNeeded returns the value of AnnotationLastRequest. The result is "" if the last request need not
// be stored, because the spec of the Kyma in the control plane is the same or the Kyma in the runtime has
// AnnotationStartOver, or if the value would be longer than lastRequestLimit.
func encodeLastRequestIfNeeded(kyma, remote *v1beta2.Kyma) string {
	last := channel.LastRequest{Channel: remote.Spec.Channel, Modules: remote.Spec.Modules,
		Deferrals: channel.DeferralAnnotations(remote), Pauses: channel.PauseAnnotations(remote)}
	if remote.Annotations[v1beta2.AnnotationStartOver] == v1beta2.ValueTrue ||
		equality.Semantic.DeepEqual(last, channel.LastRequest{Channel: kyma.Spec.Channel, Modules: kyma.Spec.Modules}) {
		return ""
	}
	text, err := json.Marshal(last)
	if err != nil || len(text) > lastRequestLimit {
		return ""
	}
	return string(text)
}
