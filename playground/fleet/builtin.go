package fleet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	disabled "k8s.io/apiserver/pkg/util/openapi"
	restclient "k8s.io/client-go/rest"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	aggregatorrest "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	mutatingstore "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration/storage"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	policystore "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy/storage"
	bindingstore "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding/storage"
	validatingstore "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration/storage"
	appsrest "k8s.io/kubernetes/pkg/registry/apps/rest"
	autoscalingrest "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batchrest "k8s.io/kubernetes/pkg/registry/batch/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	endpointsstore "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	limitrangestore "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	pvstore "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	pvcstore "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	podtemplatestore "k8s.io/kubernetes/pkg/registry/core/podtemplate/storage"
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	servicestore "k8s.io/kubernetes/pkg/registry/core/service/storage"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	networkingrest "k8s.io/kubernetes/pkg/registry/networking/rest"
	noderest "k8s.io/kubernetes/pkg/registry/node/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storagerest "k8s.io/kubernetes/pkg/registry/storage/rest"
)

// newBuiltinServer returns the API server's own handler of all built-in kinds, and the schemas to which
// CustomResourceDefinitions refer. The handler's storage holds one object for the duration of one request.
func newBuiltinServer() (*genericapiserver.GenericAPIServer, map[string]*spec.Schema, error) {
	s, err := newEmptyAPIServer()
	if err != nil {
		return nil, nil, fmt.Errorf("putting the API handlers together: %w", err)
	}
	resources := controlplane.DefaultAPIResourceConfigSource()
	allow := authorizerfactory.NewAlwaysAllowAuthorizer()
	core, err := coreGroup()
	if err != nil {
		return nil, nil, fmt.Errorf("putting the core group together: %w", err)
	}
	if err := s.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, core); err != nil {
		return nil, nil, fmt.Errorf("installing the core group: %w", err)
	}
	groups := []*genericapiserver.APIGroupInfo{}
	for _, provider := range []apiserver.RESTStorageProvider{
		appsrest.StorageProvider{}, eventsrest.RESTStorageProvider{}, autoscalingrest.RESTStorageProvider{},
		batchrest.RESTStorageProvider{},
		networkingrest.RESTStorageProvider{}, policyrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: allow},
		storagerest.RESTStorageProvider{}, schedulingrest.RESTStorageProvider{}, coordinationrest.RESTStorageProvider{},
		noderest.RESTStorageProvider{}, discoveryrest.StorageProvider{},
	} {
		group, err := provider.NewRESTStorage(resources, storageOptions{})
		if err != nil {
			return nil, nil, fmt.Errorf("putting group %s together: %w", provider.GroupName(), err)
		}
		groups = append(groups, &group)
	}
	admission, err := admissionGroup()
	if err != nil {
		return nil, nil, fmt.Errorf("putting group %s together: %w", "admissionregistration.k8s.io", err)
	}
	definitions, err := customResourceDefinitionGroup()
	if err != nil {
		return nil, nil, fmt.Errorf("putting the group of definitions together: %w", err)
	}
	services := aggregatorrest.NewRESTStorage(everything{}, storageOptions{}, false)
	if err := s.InstallAPIGroups(append(groups, admission, definitions, &services)...); err != nil {
		return nil, nil, fmt.Errorf("installing the groups: %w", err)
	}
	return s, definitions.StaticOpenAPISpec, nil
}

// newEmptyAPIServer returns an API server without handlers. The server never listens.
func newEmptyAPIServer() (*genericapiserver.GenericAPIServer, error) {
	config := genericapiserver.NewConfig(legacyscheme.Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.ExternalAddress = "127.0.0.1:443"
	config.LoopbackClientConfig = &restclient.Config{Host: "127.0.0.1:1"} // no code uses this address
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	config.BuildHandlerChainFunc = func(h http.Handler, _ *genericapiserver.Config) http.Handler { return h }
	config.EnableIndex, config.EnableMetrics, config.EnableProfiling, config.SkipOpenAPIInstallation = false, false,
		false, true
	definitions := disabled.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	namer := openapi.NewDefinitionNamer(legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	return config.Complete(nil).New("fleet", genericapiserver.NewEmptyDelegate())
}

// coreGroup returns the core group as the API server builds it, without the parts that need kubelets or a proxy.
func coreGroup() (*genericapiserver.APIGroupInfo, error) {
	group, err := (&corerest.GenericConfig{}).NewRESTStorage(
		controlplane.DefaultAPIResourceConfigSource(), storageOptions{})
	if err != nil {
		return nil, err
	}
	var o storageOptions
	kinds := group.VersionedResourcesStorageMap["v1"]
	pods, err := podstore.NewStorage(o, nil, nil, nil, authorizerfactory.NewAlwaysAllowAuthorizer())
	if err != nil {
		return nil, err
	}
	kinds["pods"], kinds["pods/status"] = pods.Pod, pods.Status
	services, serviceStatus, _, err := servicestore.NewREST(o, api.IPv4Protocol,
		map[api.IPFamily]ipallocator.Interface{api.IPv4Protocol: &addresses{}}, &ports{}, nil, pods.Pod, nil)
	if err != nil {
		return nil, err
	}
	kinds["services"], kinds["services/status"] = services, serviceStatus
	volumes, volumeStatus, err := pvstore.NewREST(o)
	if err != nil {
		return nil, err
	}
	kinds["persistentvolumes"], kinds["persistentvolumes/status"] = volumes, volumeStatus
	claims, claimStatus, err := pvcstore.NewREST(o)
	if err != nil {
		return nil, err
	}
	kinds["persistentvolumeclaims"], kinds["persistentvolumeclaims/status"] = claims, claimStatus
	if kinds["endpoints"], err = endpointsstore.NewREST(o); err != nil {
		return nil, err
	}
	if kinds["limitranges"], err = limitrangestore.NewREST(o); err != nil {
		return nil, err
	}
	kinds["podtemplates"], err = podtemplatestore.NewREST(o)
	return &group, err
}

// admissionGroup returns the group of webhook configurations and admission policies. The fleet stores objects of this
// group, but does not call or enforce them.
func admissionGroup() (*genericapiserver.APIGroupInfo, error) {
	group := genericapiserver.NewDefaultAPIGroupInfo("admissionregistration.k8s.io", legacyscheme.Scheme,
		legacyscheme.ParameterCodec, legacyscheme.Codecs)
	var o storageOptions
	kinds := map[string]rest.Storage{}
	group.VersionedResourcesStorageMap["v1"] = kinds
	var err error
	if kinds["validatingwebhookconfigurations"], err = validatingstore.NewREST(o); err != nil {
		return nil, err
	}
	if kinds["mutatingwebhookconfigurations"], err = mutatingstore.NewREST(o); err != nil {
		return nil, err
	}
	unknown := resolver.ResourceResolverFunc(func(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		return schema.GroupVersionResource{}, fmt.Errorf("kind %s is not looked up", gvk)
	})
	allow := authorizerfactory.NewAlwaysAllowAuthorizer()
	policies, policyStatus, err := policystore.NewREST(o, allow, unknown)
	if err != nil {
		return nil, err
	}
	kinds["validatingadmissionpolicies"], kinds["validatingadmissionpolicies/status"] = policies, policyStatus
	kinds["validatingadmissionpolicybindings"], err = bindingstore.NewREST(
		o, allow, &bindingstore.DefaultPolicyGetter{Getter: policies}, unknown)
	return &group, err
}

// customResourceDefinitionGroup returns the group of CustomResourceDefinitions.
func customResourceDefinitionGroup() (*genericapiserver.APIGroupInfo, error) {
	group := genericapiserver.NewDefaultAPIGroupInfo("apiextensions.k8s.io", apiextensionsapiserver.Scheme,
		metav1.ParameterCodec, apiextensionsapiserver.Codecs)
	definitions, err := customresourcedefinition.NewREST(apiextensionsapiserver.Scheme, storageOptions{})
	if err != nil {
		return nil, err
	}
	group.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{
		"customresourcedefinitions": definitions,
		"customresourcedefinitions/status": customresourcedefinition.NewStatusREST(
			apiextensionsapiserver.Scheme, definitions),
	}
	return &group, nil
}

// everything is an API server configuration that enables every resource of a group.
type everything struct{}

// ResourceEnabled implements the API server's interface for resource configuration.
func (everything) ResourceEnabled(schema.GroupVersionResource) bool { return true }

// AnyResourceForGroupEnabled implements the API server's interface for resource configuration.
func (everything) AnyResourceForGroupEnabled(string) bool { return true }

// ResourceExplicitlyEnabled implements the API server's interface for resource configuration.
func (everything) ResourceExplicitlyEnabled(schema.GroupVersionResource) bool { return false }

// VersionExplicitlyEnabled implements the API server's interface for resource configuration.
func (everything) VersionExplicitlyEnabled(schema.GroupVersion) bool { return false }

// addresses allocates addresses from 10.96.0.0/12 for Services. All clusters of a fleet share the sequence of
// addresses. addresses does not record which addresses are in use.
type addresses struct{ last atomic.Uint32 }

// Allocate accepts every address.
func (*addresses) Allocate(net.IP) error { return nil }

// AllocateNext returns the next address.
func (a *addresses) AllocateNext() (net.IP, error) {
	return binary.BigEndian.AppendUint32(nil, 10<<24|96<<16|(a.last.Add(1)+10)&0xfffff), nil
}

// Release does nothing.
func (*addresses) Release(net.IP) error { return nil }

// ForEach has nothing to visit.
func (*addresses) ForEach(func(net.IP)) {}

// CIDR returns the range of the addresses.
func (*addresses) CIDR() net.IPNet {
	return net.IPNet{IP: net.IPv4(10, 96, 0, 0).To4(), Mask: net.CIDRMask(12, 32)}
}

// IPFamily returns IPv4.
func (*addresses) IPFamily() api.IPFamily { return api.IPv4Protocol }

// Has returns false for every address.
func (*addresses) Has(net.IP) bool { return false }

// Destroy does nothing.
func (*addresses) Destroy() {}

// EnableMetrics does nothing.
func (*addresses) EnableMetrics() {}

// DryRun returns the allocator itself, because the allocator records nothing.
func (a *addresses) DryRun() ipallocator.Interface { return a }

// ports allocates node ports, in the same way as addresses allocates IP addresses.
type ports struct{ last atomic.Uint32 }

// Allocate accepts every port.
func (*ports) Allocate(int) error { return nil }

// AllocateNext returns the next port of the range 30000 to 32767.
func (p *ports) AllocateNext() (int, error) { return 30000 + int(p.last.Add(1)%2768), nil }

// Release does nothing.
func (*ports) Release(int) error { return nil }

// ForEach has nothing to visit.
func (*ports) ForEach(func(int)) {}

// Has returns false for every port.
func (*ports) Has(int) bool { return false }

// Destroy does nothing.
func (*ports) Destroy() {}

// EnableMetrics does nothing.
func (*ports) EnableMetrics() {}

var (
	_ ipallocator.Interface   = &addresses{}
	_ portallocator.Interface = &ports{}
)
