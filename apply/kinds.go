package apply

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// role is the purpose of an object. role determines in which phase the object is applied and deleted.
type role uint8

const (
	roleCustom        role = iota // all kinds that are not built in
	roleNamespace                 // contains other objects
	roleCRD                       // CustomResourceDefinition
	roleConfiguration             // workloads read it, or it is the identity of workloads
	roleBinding                   // needs the roles of roleConfiguration to exist
	roleTraffic                   // routes traffic to workloads; can be created before the workloads
	roleWorkload                  // runs pods, or controls what runs pods
	roleAdmission                 // configures the API server to call a workload or to check other objects
)

// The constants are the phases of Apply, in their order. A phase starts when the API server has responded to all
// requests of the previous phase.
const (
	phaseFoundation = iota
	phaseConfiguration
	phaseBindings
	phaseWorkloads
	phaseAdmission
	phaseCustom
	phaseCount
)

// phase returns the phase in which Apply sends objects of this role.
func (r role) phase() int {
	switch r {
	case roleNamespace, roleCRD:
		return phaseFoundation
	case roleConfiguration, roleTraffic:
		return phaseConfiguration
	case roleBinding:
		return phaseBindings
	case roleWorkload:
		return phaseWorkloads
	case roleAdmission:
		return phaseAdmission
	default:
		return phaseCustom
	}
}

// deletePhases lists the phases of Delete in order. Each phase has a name, used in messages, for the objects that the
// phase deletes. Custom resources are deleted while their operator still runs. Webhooks are deleted before the
// workloads that they call.
var deletePhases = []struct {
	name  string
	roles []role
}{
	{"custom resources", []role{roleCustom}},
	{"webhooks and API services", []role{roleAdmission}},
	{"workloads and services", []role{roleWorkload, roleTraffic}},
	{"configuration and access rights", []role{roleConfiguration, roleBinding}},
	{"custom resource definitions", []role{roleCRD}},
	{"namespaces", []role{roleNamespace}},
}

// resource is the plural and the scope with which an API server serves a kind.
type resource struct {
	plural     string
	namespaced bool
}

// urlPath returns the URL path of an object, or of the collection if name is "".
func (r resource) urlPath(version schema.GroupVersion, namespace, name string) string {
	var b strings.Builder
	b.Grow(len(version.Group) + len(version.Version) + len(r.plural) + len(namespace) + len(name) + 24)
	if version.Group == "" {
		b.WriteString("/api/")
	} else {
		b.WriteString("/apis/")
		b.WriteString(version.Group)
		b.WriteByte('/')
	}
	b.WriteString(version.Version)
	if r.namespaced && namespace != "" {
		b.WriteString("/namespaces/")
		b.WriteString(namespace)
	}
	b.WriteByte('/')
	b.WriteString(r.plural)
	if name != "" {
		b.WriteByte('/')
		b.WriteString(name)
	}
	return b.String()
}

// fits reports whether an object with the namespace of ref can exist: an object of a namespaced kind has a namespace,
// and an object of a cluster-scoped kind has none.
func (r resource) fits(ref Ref) bool { return r.namespaced == (ref.Namespace != "") }

// onlyIfScopeFits returns a function that calls the function in the parameter use if the namespace of the Ref fits the
// scope of its kind, and otherwise returns an error with reason ObjectNotFound. An inventory may have been recorded
// while the CRD of a kind had another scope. A URL path leaves out the namespace of a cluster-scoped kind, so the path
// of the former object would be the path of another object: of the new object with the same name.
func (c *Cluster) onlyIfScopeFits(ctx context.Context, use func(Ref, resource) error) func(Ref, resource) error {
	return func(ref Ref, res resource) error {
		if !res.fits(ref) {
			// The cached scope may be that of a CRD in a bundle that the API server has not accepted.
			var err error
			if res, err = c.discover(ctx, ref.GVK()); err != nil {
				return err
			}
		}
		if !res.fits(ref) {
			return &Error{Operation: "addressing", Ref: ref, reason: ObjectNotFound,
				Message: "the scope of its kind has changed since it was recorded"}
		}
		return use(ref, res)
	}
}

// builtin is a kind that every Kubernetes API server has.
type builtin struct {
	resource
	role
}

const (
	clusterScope = false
	inNamespace  = true
)

// builtins are the kinds whose plural, scope and role are known without discovery; the role decides in which phase an
// object is applied and deleted. All API versions of a kind have the same plural, scope and role. Two groups of kinds
// are missing in this table: kinds that are not stored objects (Scale, reviews), and kinds that only the control plane
// of the cluster writes (Binding).
var builtins = map[schema.GroupKind]builtin{
	{Kind: "ConfigMap"}:             {resource{"configmaps", inNamespace}, roleConfiguration},
	{Kind: "Endpoints"}:             {resource{"endpoints", inNamespace}, roleTraffic},
	{Kind: "Event"}:                 {resource{"events", inNamespace}, roleConfiguration},
	{Kind: "LimitRange"}:            {resource{"limitranges", inNamespace}, roleConfiguration},
	{Kind: "Namespace"}:             {resource{"namespaces", clusterScope}, roleNamespace},
	{Kind: "Node"}:                  {resource{"nodes", clusterScope}, roleConfiguration},
	{Kind: "PersistentVolume"}:      {resource{"persistentvolumes", clusterScope}, roleConfiguration},
	{Kind: "PersistentVolumeClaim"}: {resource{"persistentvolumeclaims", inNamespace}, roleConfiguration},
	{Kind: "Pod"}:                   {resource{"pods", inNamespace}, roleWorkload},
	{Kind: "PodTemplate"}:           {resource{"podtemplates", inNamespace}, roleConfiguration},
	{Kind: "ReplicationController"}: {resource{"replicationcontrollers", inNamespace}, roleWorkload},
	{Kind: "ResourceQuota"}:         {resource{"resourcequotas", inNamespace}, roleConfiguration},
	{Kind: "Secret"}:                {resource{"secrets", inNamespace}, roleConfiguration},
	{Kind: "Service"}:               {resource{"services", inNamespace}, roleTraffic},
	{Kind: "ServiceAccount"}:        {resource{"serviceaccounts", inNamespace}, roleConfiguration},

	{
		Group: "admissionregistration.k8s.io",
		Kind:  "MutatingAdmissionPolicy"}: {resource{"mutatingadmissionpolicies", clusterScope},
		roleAdmission,
	},
	{
		Group: "admissionregistration.k8s.io",
		Kind:  "MutatingAdmissionPolicyBinding"}: {resource{"mutatingadmissionpolicybindings", clusterScope},
		roleAdmission,
	},
	{
		Group: "admissionregistration.k8s.io",
		Kind:  "MutatingWebhookConfiguration"}: {resource{"mutatingwebhookconfigurations", clusterScope},
		roleAdmission,
	},
	{
		Group: "admissionregistration.k8s.io",
		Kind:  "ValidatingAdmissionPolicy"}: {resource{"validatingadmissionpolicies", clusterScope},
		roleAdmission,
	},
	{
		Group: "admissionregistration.k8s.io",
		Kind:  "ValidatingAdmissionPolicyBinding"}: {resource{"validatingadmissionpolicybindings", clusterScope},
		roleAdmission,
	},
	{
		Group: "admissionregistration.k8s.io",
		Kind:  "ValidatingWebhookConfiguration"}: {resource{"validatingwebhookconfigurations", clusterScope},
		roleAdmission,
	},
	{Group: "apiregistration.k8s.io", Kind: "APIService"}: {resource{"apiservices", clusterScope}, roleAdmission},

	{
		Group: "apiextensions.k8s.io",
		Kind:  "CustomResourceDefinition"}: {resource{"customresourcedefinitions", clusterScope},
		roleCRD,
	},

	{
		Group: "apps",
		Kind:  "ControllerRevision"}: {resource{"controllerrevisions", inNamespace},
		roleConfiguration,
	},
	{Group: "apps", Kind: "DaemonSet"}:   {resource{"daemonsets", inNamespace}, roleWorkload},
	{Group: "apps", Kind: "Deployment"}:  {resource{"deployments", inNamespace}, roleWorkload},
	{Group: "apps", Kind: "ReplicaSet"}:  {resource{"replicasets", inNamespace}, roleWorkload},
	{Group: "apps", Kind: "StatefulSet"}: {resource{"statefulsets", inNamespace}, roleWorkload},
	{
		Group: "autoscaling",
		Kind:  "HorizontalPodAutoscaler"}: {resource{"horizontalpodautoscalers", inNamespace},
		roleWorkload,
	},
	{Group: "batch", Kind: "CronJob"}:              {resource{"cronjobs", inNamespace}, roleWorkload},
	{Group: "batch", Kind: "Job"}:                  {resource{"jobs", inNamespace}, roleWorkload},
	{Group: "policy", Kind: "PodDisruptionBudget"}: {resource{"poddisruptionbudgets", inNamespace}, roleWorkload},

	{
		Group: "certificates.k8s.io",
		Kind:  "CertificateSigningRequest"}: {resource{"certificatesigningrequests", clusterScope},
		roleConfiguration,
	},
	{
		Group: "certificates.k8s.io",
		Kind:  "ClusterTrustBundle"}: {resource{"clustertrustbundles", clusterScope},
		roleConfiguration,
	},
	{
		Group: "coordination.k8s.io",
		Kind:  "Lease"}: {resource{"leases", inNamespace},
		roleConfiguration,
	},
	{
		Group: "flowcontrol.apiserver.k8s.io",
		Kind:  "FlowSchema"}: {resource{"flowschemas", clusterScope},
		roleConfiguration,
	},
	{
		Group: "flowcontrol.apiserver.k8s.io",
		Kind:  "PriorityLevelConfiguration"}: {resource{"prioritylevelconfigurations", clusterScope},
		roleConfiguration,
	},
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:        {resource{"runtimeclasses", clusterScope}, roleConfiguration},
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}: {resource{"priorityclasses", clusterScope}, roleConfiguration},

	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:  {resource{"endpointslices", inNamespace}, roleTraffic},
	{Group: "networking.k8s.io", Kind: "IPAddress"}:     {resource{"ipaddresses", clusterScope}, roleTraffic},
	{Group: "networking.k8s.io", Kind: "Ingress"}:       {resource{"ingresses", inNamespace}, roleTraffic},
	{Group: "networking.k8s.io", Kind: "IngressClass"}:  {resource{"ingressclasses", clusterScope}, roleConfiguration},
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: {resource{"networkpolicies", inNamespace}, roleTraffic},
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:   {resource{"servicecidrs", clusterScope}, roleTraffic},

	{
		Group: "rbac.authorization.k8s.io",
		Kind:  "ClusterRole"}: {resource{"clusterroles", clusterScope},
		roleConfiguration,
	},
	{
		Group: "rbac.authorization.k8s.io",
		Kind:  "ClusterRoleBinding"}: {resource{"clusterrolebindings", clusterScope},
		roleBinding,
	},
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:        {resource{"roles", inNamespace}, roleConfiguration},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}: {resource{"rolebindings", inNamespace}, roleBinding},

	{
		Group: "resource.k8s.io",
		Kind:  "DeviceClass"}: {resource{"deviceclasses", clusterScope},
		roleConfiguration,
	},
	{
		Group: "resource.k8s.io",
		Kind:  "ResourceClaim"}: {resource{"resourceclaims", inNamespace},
		roleConfiguration,
	},
	{
		Group: "resource.k8s.io",
		Kind:  "ResourceClaimTemplate"}: {resource{"resourceclaimtemplates", inNamespace},
		roleConfiguration,
	},
	{Group: "storage.k8s.io", Kind: "CSIDriver"}: {resource{"csidrivers", clusterScope}, roleConfiguration},
	{
		Group: "storage.k8s.io",
		Kind:  "StorageClass"}: {resource{"storageclasses", clusterScope},
		roleConfiguration,
	},
	{
		Group: "storage.k8s.io",
		Kind:  "VolumeAttributesClass"}: {resource{"volumeattributesclasses", clusterScope},
		roleConfiguration,
	},
}

// BuiltinScope reports whether a kind is namespaced. The result "known" is false if the kind is not built into
// Kubernetes.
func BuiltinScope(kind schema.GroupKind) (namespaced, known bool) {
	b, known := builtins[kind]
	return b.namespaced, known
}

// roleOf returns the role of a kind: the purpose that decides in which phase objects of the kind are applied and
// deleted. Kinds that are not built in are custom resources.
func roleOf(kind schema.GroupKind) role {
	return builtins[kind].role // the zero role is roleCustom
}

var (
	secretKind    = schema.GroupKind{Kind: "Secret"}
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
	crdKind       = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)
