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

// FindObjectsOfOthers returns the kind and the name of an object in a runtime that does not belong to the Kyma of the
// runtime, although the deletion of our CRDs would delete it. The result other is "" if there is no such object. A Kyma
// other than the runtime's own shows that the cluster is also a control plane. A ModuleTemplate or ModuleReleaseMeta
// that is not in the catalog copy of the runtime belongs to the catalog of a control plane that has no Kyma, or to a
// user of the runtime. If there is no such object, but the cluster is a control plane, the result other is its kind
// Manifest: the control plane needs its CRDs for later objects.
//
// The result copies has the objects of the catalog copy. They have to be deleted one by one if the CRDs stay.
func FindObjectsOfOthers(ctx context.Context, runtime *apply.Cluster) (other string, copies []v1beta2.Resource,
	err error) {
	if other, err = findOtherKyma(ctx, runtime); err != nil {
		return "", nil, err
	}
	for _, kind := range []string{v1beta2.KindModuleTemplate, v1beta2.KindModuleReleaseMeta} {
		listed, err := runtime.List(ctx, v1beta2.GroupVersion.WithKind(kind), "")
		if loop.Reason(err) == apply.KindUnknown {
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("listing the objects of kind %s in the runtime: %w", kind, err)
		}
		for i := range listed {
			o := &listed[i]
			if o.Namespace == v1beta2.RuntimeNamespace && o.IsAppliedBy(v1beta2.FieldOwnerCatalog) {
				copies = append(copies, v1beta2.Resource{Group: o.Group, Version: o.Version, Kind: kind,
					Namespace: o.Namespace, Name: o.Name})
			} else if other == "" {
				other = kind + " " + o.Namespace + "/" + o.Name
			}
		}
	}
	if other != "" {
		return other, copies, nil
	}
	is, err := IsControlPlane(ctx, runtime)
	if err != nil {
		return "", nil, err
	}
	if is {
		other = "the kind " + v1beta2.KindManifest + " of a control plane"
	}
	return other, copies, nil
}

// IsControlPlane reports whether a cluster is a control plane of Lifecycle Manager: whether it serves the kind
// Manifest. Every control plane serves the kind Manifest, and the manager installs its CRD in no runtime.
// IsControlPlane sends one request, which needs no rights. IsControlPlane sends no request if the last response about
// the kind Kyma has shown that the cluster does not serve it.
func IsControlPlane(ctx context.Context, cluster *apply.Cluster) (bool, error) {
	if cluster.WasLastSeenUnserved(v1beta2.GroupVersion.WithKind(v1beta2.KindKyma)) {
		return false, nil
	}
	is, err := cluster.Serves(ctx, v1beta2.GroupVersion.WithKind(v1beta2.KindManifest))
	if err != nil {
		return false, fmt.Errorf("finding out whether the runtime is a control plane: %w", err)
	}
	return is, nil
}

// findOtherKyma returns the kind and the name of a Kyma in a cluster that is not the runtime's own Kyma, or "" if there
// is none. A list of two Kymas in all namespaces is enough to find another Kyma than the own one.
func findOtherKyma(ctx context.Context, runtime *apply.Cluster) (other string, err error) {
	listed, _, err := runtime.ListByLabel(ctx, v1beta2.GroupVersion.WithKind(v1beta2.KindKyma), "", 2)
	if loop.Reason(err) == apply.KindUnknown {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("listing the Kymas in the runtime: %w", err)
	}
	for i := range listed {
		if k := &listed[i]; k.Namespace != v1beta2.RuntimeNamespace || k.Name != v1beta2.RuntimeKymaName {
			other = v1beta2.KindKyma + " " + k.Namespace + "/" + k.Name
		}
	}
	return other, nil
}

// WhyCRDsStay returns the message of the event that CRDs are not deleted, because the cluster with the given address
// has an object of others: the result other of FindObjectsOfOthers.
func WhyCRDsStay(server, other string) string {
	return "the CRDs of " + v1beta2.GroupVersion.Group + " stay in the cluster " + clip(server) + ", because " +
		clip(other) + " exists there"
}

// WhyCRDsAreNotChanged returns the message of the event that the CRDs in the cluster with the given address are not
// changed, because the cluster is a control plane.
func WhyCRDsAreNotChanged(server string) string {
	return "the CRDs of " + v1beta2.GroupVersion.Group + " in the cluster " + clip(server) + " are not changed, " +
		"because the cluster serves the kind " + v1beta2.KindManifest + ": it is a control plane, too, and its own " +
		"installation updates the CRDs"
}

// IsOwnCRD reports whether an object is a CRD of this project's API group.
func IsOwnCRD(kind, name string) bool {
	return kind == "CustomResourceDefinition" && strings.HasSuffix(name, "."+v1beta2.GroupVersion.Group)
}

// WithoutOwnCRDs returns the given objects without the CRDs of this project's API group. The CRDs of Lifecycle Manager
// must not be deleted while objects of others exist, because the deletion of a CRD deletes all objects of its kind.
func WithoutOwnCRDs(objects []v1beta2.Resource) []v1beta2.Resource {
	return slices.DeleteFunc(slices.Clone(objects), func(r v1beta2.Resource) bool {
		return IsOwnCRD(r.Kind, r.Name)
	})
}
