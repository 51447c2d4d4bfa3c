package orphan

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// Kinds of orphans, the values of label "kind" of the metric.
const (
	manifestOrphan = "manifest"
	secretOrphan   = "access_secret"
	objectOrphan   = "runtime_object"
	catalogOrphan  = "catalog_object"
)

// kinds are what modules are made of: an operator with its rights, settings and definitions, and what steers it.
var kinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Namespace"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
	{Group: "apps", Version: "v1", Kind: "DaemonSet"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "batch", Version: "v1", Kind: "CronJob"},
	{Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
}

// catalogKinds are what the catalog in a runtime consists of.
var catalogKinds = []schema.GroupVersionKind{
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleTemplate),
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta),
}

// sourceOf returns an empty object of the kind that an entry of a catalog comes from; nil for an entry that is not in the catalog's place.
func sourceOf(f *apply.ObjectMetadata) client.Object {
	switch {
	case f.Namespace != v1beta2.RuntimeNamespace:
		return nil
	case f.Kind == v1beta2.KindModuleTemplate:
		return &v1beta2.ModuleTemplate{}
	default:
		return &v1beta2.ModuleReleaseMeta{}
	}
}

// slot returns the next moment after now at which the named runtime is looked at. It depends on nothing else, so that a restart
// neither puts it off nor looks at the fleet at once.
func slot(now time.Time, interval time.Duration, name string) time.Time {
	const parts = 1 << 16
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	next := now.Truncate(interval).Add(interval / parts * time.Duration(h.Sum32()%parts))
	for !next.After(now) {
		next = next.Add(interval)
	}
	return next
}

// ownerOf returns the Manifest that an object in a runtime says it belongs to; false if it does not say, or another control plane, with another
// namespace, made it.
func ownerOf(f *apply.ObjectMetadata, namespace string) (types.NamespacedName, bool) {
	of, name, ok := strings.Cut(f.Annotation(v1beta2.AnnotationOwnedBy), "/")
	return types.NamespacedName{Namespace: of, Name: name}, ok && of == namespace && name != ""
}

// isRemovable tells whether a Manifest without Kyma may be deleted: nobody but Kymas owns it, and it is not being deleted already.
func isRemovable(m *v1beta2.Manifest) bool {
	return m.DeletionTimestamp.IsZero() && !slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool {
		gv, _ := schema.ParseGroupVersion(o.APIVersion)
		return gv.Group != v1beta2.GroupVersion.Group || o.Kind != v1beta2.KindKyma
	})
}

// removable returns what of the orphaned objects may be deleted: in a namespace may live others, with a definition would go what users
// made, and what a module keeps is not ours any more.
func removable(found []apply.Ref) []apply.Ref {
	return slices.DeleteFunc(slices.Clone(found), func(r apply.Ref) bool {
		return r.Keep || r.Group == "" && r.Kind == "Namespace" || r.Kind == "CustomResourceDefinition"
	})
}

// listed names objects for people, as many as fit into the text of an event.
func listed(refs []apply.Ref) string {
	const most = 700
	var b strings.Builder
	for i, r := range refs {
		if b.Len() > most {
			return fmt.Sprintf("%s and %d more", b.String(), len(refs)-i)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(r.String())
	}
	return b.String()
}
