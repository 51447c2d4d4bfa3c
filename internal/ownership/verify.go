package ownership

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// Verify decides about a claim, see [Decide]. The annotations are those of the Kyma in the runtime. Verify reads the
// Namespace kube-system of the runtime only if [Decide] cannot decide about the claim without the UID of this
// Namespace. The error is a *[Refusal], or the error of reading the Namespace kube-system.
func Verify(ctx context.Context, runtime *apply.Cluster, annotations map[string]string, c Claim) (Found, error) {
	seen := Seen{Annotations: annotations}
	found, needsCluster, err := Decide(seen, c)
	if err != nil || !needsCluster {
		return found, err
	}
	system, err := runtime.Get(ctx, apply.Ref{Version: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem})
	if err != nil {
		return Found{}, fmt.Errorf("identifying the cluster of runtime %s: %w", c.kymaNameWithoutNamespace(), err)
	}
	if seen.Cluster = string(system.GetUID()); seen.Cluster == "" {
		return Found{}, fmt.Errorf("identifying the cluster of runtime %s: Namespace %s has no UID",
			c.kymaNameWithoutNamespace(),
			metav1.NamespaceSystem)
	}
	found, _, err = Decide(seen, c)
	return found, err
}

// Identify returns the ID of a control plane: the UID of its Namespace kube-system.
func Identify(ctx context.Context, controlPlane client.Reader) (string, error) {
	system := &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := controlPlane.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("identifying the control plane by Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	if system.UID == "" {
		return "", fmt.Errorf("identifying the control plane: Namespace %s has no UID", metav1.NamespaceSystem)
	}
	return string(system.UID), nil
}

// AnnotationsOrNil returns the annotations of the Kyma in a runtime. The parameter remote is nil if the runtime has no
// Kyma.
func AnnotationsOrNil(remote *v1beta2.Kyma) map[string]string {
	if remote == nil {
		return nil
	}
	return remote.Annotations
}

// FindOtherKyma returns the namespace/name of a Kyma in a cluster that is not the runtime's own Kyma, or "" if there is
// none. If there is one, the cluster is also a control plane. A list of two Kymas in all namespaces is enough to find
// another Kyma than the own one.
func FindOtherKyma(ctx context.Context, runtime *apply.Cluster) (other string, err error) {
	listed, _, err := runtime.ListByLabel(ctx, v1beta2.GroupVersion.WithKind(v1beta2.KindKyma), "", 2)
	if loop.Reason(err) == apply.KindUnknown {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("listing the Kymas in the runtime: %w", err)
	}
	for i := range listed {
		if k := &listed[i]; k.Namespace != v1beta2.RuntimeNamespace || k.Name != v1beta2.RuntimeKymaName {
			other = k.Namespace + "/" + k.Name
		}
	}
	return other, nil
}

// WhyCRDsStay returns the message of the event that CRDs are not deleted, because the cluster with the given address
// has another Kyma.
func WhyCRDsStay(server, otherKyma string) string {
	return "the CRDs of " + v1beta2.GroupVersion.Group + " stay in the cluster " + clip(server) + ", because Kyma " +
		clip(otherKyma) + " exists there"
}

// WithoutOwnCRDs returns the given objects without the CRDs of this project's API group. The CRDs of Lifecycle Manager
// must not be deleted while other Kymas exist, because the deletion of a CRD deletes all objects of its kind.
func WithoutOwnCRDs(objects []v1beta2.Resource) []v1beta2.Resource {
	return slices.DeleteFunc(slices.Clone(objects), func(r v1beta2.Resource) bool {
		return r.Kind == "CustomResourceDefinition" && strings.HasSuffix(r.Name, "."+v1beta2.GroupVersion.Group)
	})
}
