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

// The kinds of orphans are the values of the label "kind" of the metric.
const (
	manifestOrphan = "manifest"
	secretOrphan   = "access_secret"
	objectOrphan   = "runtime_object"
	catalogOrphan  = "catalog_object"
)

// kinds are the kinds of objects that modules usually have: those of an operator with its permissions, configuration
// and CRDs.
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

// catalogKinds are the kinds of the objects in a catalog copy.
var catalogKinds = []schema.GroupVersionKind{
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleTemplate),
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta),
}

// emptyCatalogSource returns an empty object of the same kind as the object in the control plane that a catalog entry
// was copied from. If the catalog entry is not in the namespace of the catalog copy, emptyCatalogSource returns nil.
func emptyCatalogSource(f *apply.ObjectMetadata) client.Object {
	switch {
	case f.Namespace != v1beta2.RuntimeNamespace:
		return nil
	case f.Kind == v1beta2.KindModuleTemplate:
		return &v1beta2.ModuleTemplate{}
	default:
		return &v1beta2.ModuleReleaseMeta{}
	}
}

// nextSlot returns the next time after now at which the runtime with the given name is searched. The time of the search
// within the interval depends only on the name of the runtime. Therefore a restart neither delays a search nor makes
// the manager search all runtimes at the same time.
func nextSlot(now time.Time, interval time.Duration, name string) time.Time {
	const parts = 1 << 16
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	next := now.Truncate(interval).Add(interval / parts * time.Duration(h.Sum32()%parts))
	for !next.After(now) {
		next = next.Add(interval)
	}
	return next
}

// manifestNamed returns the Manifest that the owner annotation, or an entry of the list of co-owners, names on an
// object in a runtime. manifestNamed returns false if the text is "". manifestNamed also returns false if the Manifest
// is in another namespace, because that namespace belongs to another control plane.
func manifestNamed(text, namespace string) (key types.NamespacedName, isInNamespace bool) {
	of, name, ok := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: of, Name: name}, ok && of == namespace && name != ""
}

// mayDelete reports whether a Manifest without a Kyma may be deleted. mayDelete returns true if the Manifest is not
// being deleted yet, and all its owner references point to Kymas.
func mayDelete(m *v1beta2.Manifest) bool {
	return m.DeletionTimestamp.IsZero() && !slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool {
		gv, _ := schema.ParseGroupVersion(o.APIVersion)
		return gv.Group != v1beta2.GroupVersion.Group || o.Kind != v1beta2.KindKyma
	})
}

// deletable returns those of the orphaned objects that may be deleted. deletable leaves out Namespaces, because a
// Namespace may contain other objects. deletable leaves out CRDs, because the deletion of a CRD deletes all custom
// resources of users. deletable leaves out kept objects, because a kept object does not belong to us any more, and
// adopted objects, which existed before the module.
func deletable(found []apply.ObjectMetadata) []apply.ObjectMetadata {
	return slices.DeleteFunc(slices.Clone(found), func(o apply.ObjectMetadata) bool {
		return o.Keep || o.Annotation(apply.AnnotationAdopted) == v1beta2.ValueTrue ||
			o.Group == "" && o.Kind == "Namespace" || o.Kind == "CustomResourceDefinition"
	})
}

// appliedByModule returns those of the orphaned objects that the field manager of the modules has applied. The other
// objects have our label and annotation only because somebody has copied an object of a module.
func appliedByModule(found []apply.ObjectMetadata) []apply.ObjectMetadata {
	return slices.DeleteFunc(slices.Clone(found), func(o apply.ObjectMetadata) bool {
		return !o.IsAppliedBy(v1beta2.FieldOwnerApplier)
	})
}

// refsOf returns the references to objects.
func refsOf(objects []apply.ObjectMetadata) []apply.Ref {
	var refs []apply.Ref
	for i := range objects {
		refs = append(refs, objects[i].Ref)
	}
	return refs
}

// joinObjects joins as many names of objects as fit into the text of an event. joinObjects appends the number of
// omitted objects.
func joinObjects(refs []apply.Ref) string {
	const limit = 700
	var b strings.Builder
	for i, r := range refs {
		if b.Len() > limit {
			return fmt.Sprintf("%s and %d more", b.String(), len(refs)-i)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(r.String())
	}
	return b.String()
}
