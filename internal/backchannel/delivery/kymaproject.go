package delivery

import "github.com/kyma-fleet/lifecycle-manager/api/v1beta2"

// KymaProjectObjects returns references to the objects that the lifecycle-manager of the Kyma project creates in a
// runtime for its watcher. The objects that this package delivers have the same names as the objects of the Kyma
// project. If the status of the agent lists the objects of the Kyma project, this package updates or deletes them like
// objects that it has delivered itself.
func KymaProjectObjects() []v1beta2.Resource {
	all := []v1beta2.Resource{
		secretRef(),
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration", Name: name},
		{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass", Name: name + "-priority"},
		{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: v1beta2.RuntimeNamespace, Name: name},
		{Version: "v1", Kind: "Service", Namespace: v1beta2.RuntimeNamespace, Name: name},
		{Version: "v1", Kind: "Service", Namespace: v1beta2.RuntimeNamespace, Name: name + "-metrics"},
	}
	for _, policy := range []string{"seed-to-watcher", "watcher-to-apiserver", "metrics-to-watcher", "watcher-to-dns"} {
		all = append(all, v1beta2.Resource{
			Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy", Namespace: v1beta2.RuntimeNamespace,
			Name: "kyma-project.io--" + policy,
		})
	}
	return all
}
