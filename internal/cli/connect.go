package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// cluster is the one that klm talks to.
type cluster struct {
	client.WithWatch
	config  *rest.Config
	context string   // of the kubeconfig
	url     *url.URL // of the API server
	http    *http.Client
	// namespace has the Kymas and the catalog.
	namespace string
	// wish is the name of the Kyma whose spec is the wish of this cluster's admin. Set by app.runtime.
	wish string
	// serves are the kinds of ours that it serves, by the name of their resource.
	serves map[string]bool
}

// String names the cluster in messages.
func (c *cluster) String() string {
	return fmt.Sprintf("%s (context %q)", c.config.Host, c.context)
}

// isControlPlane tells whether fleets are looked after from here; only there Manifests are known.
func (c *cluster) isControlPlane() bool { return c.serves["manifests"] }

// controlPlane connects to a control plane.
func (a *app) controlPlane(ctx context.Context) (*cluster, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	if !c.isControlPlane() {
		return nil, fail(exitCluster, "%s is a runtime, and this needs a control plane: choose another --context", c)
	}
	if c.namespace == "" {
		c.namespace = c.homeOfKymas(ctx)
	}
	return c, nil
}

// homeOfKymas returns the namespace of Kymas in a control plane: in one that looks after itself only, it is that of runtimes.
func (c *cluster) homeOfKymas(ctx context.Context) string {
	for _, namespace := range []string{v1beta2.ControlPlaneNamespace, v1beta2.RuntimeNamespace} {
		if list := (&metav1.PartialObjectMetadataList{}); c.listSome(ctx, "Kyma", namespace, 1, list) == nil && len(list.Items) > 0 {
			return namespace
		}
	}
	return v1beta2.ControlPlaneNamespace
}

// listSome lists metadata of at most so many objects of a kind of ours.
func (c *cluster) listSome(ctx context.Context, kind, namespace string, most int64, into *metav1.PartialObjectMetadataList) error {
	into.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(kind + "List"))
	return c.List(ctx, into, client.InNamespace(namespace), client.Limit(most))
}

// runtime connects to a runtime, which may be a control plane that looks after itself.
func (a *app) runtime(ctx context.Context) (*cluster, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	if c.namespace == "" {
		c.namespace = v1beta2.RuntimeNamespace
	}
	c.wish = v1beta2.RuntimeKymaName
	if !c.isControlPlane() {
		return c, nil
	}
	here := &metav1.PartialObjectMetadataList{}
	if err := c.listSome(ctx, "Kyma", c.namespace, 2, here); err != nil {
		return nil, c.explain(err, "looking for the Kyma of this cluster")
	}
	if len(here.Items) != 1 {
		return nil, fail(exitCluster, "%s is a control plane, and this is for the admin of a runtime: choose the --context of a runtime; from here, klm why RUNTIME says how its modules are", c)
	}
	c.wish = here.Items[0].Name
	return c, nil
}

// either connects to a control plane or a runtime.
func (a *app) either(ctx context.Context) (*cluster, error) {
	c, err := a.connect(ctx)
	if err != nil || c.namespace != "" {
		return c, err
	}
	c.namespace = v1beta2.RuntimeNamespace
	if c.isControlPlane() {
		c.namespace = c.homeOfKymas(ctx)
	}
	return c, nil
}

// connect finds the cluster as kubectl does, and which kinds of ours it serves.
func (a *app) connect(ctx context.Context) (*cluster, error) {
	c, err := a.open()
	if err != nil {
		return nil, err
	}
	return c, c.detect(ctx)
}

// open reads the kubeconfig; it asks nothing of the cluster.
func (a *app) open() (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.config.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.config.Context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fail(exitCluster, "reading the kubeconfig: %v", err)
	}
	current := raw.CurrentContext
	if a.config.Context != "" {
		current = a.config.Context
		if raw.Contexts[current] == nil {
			return nil, fail(exitCluster, "the kubeconfig has no context %q: %s", current, instead(current, slices.Collect(maps.Keys(raw.Contexts))))
		}
	}
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fail(exitCluster, "no cluster to talk to: give --kubeconfig, set $KUBECONFIG, or choose a context with kubectl config use-context")
	case err != nil:
		return nil, fail(exitCluster, "reading the kubeconfig: %v", err)
	}
	config.Timeout, config.QPS, config.UserAgent = a.config.RequestTimeout, -1, fieldOwner
	return clusterOf(config, current, a.config.Namespace)
}

// clusterOf returns a cluster of which nothing is known yet.
func clusterOf(config *rest.Config, context, namespace string) (*cluster, error) {
	config.WarningHandler = rest.NoWarnings{}
	c := &cluster{config: config, context: context, namespace: namespace}
	invalid := func(err error) error {
		return fail(exitCluster, "using context %q of the kubeconfig: %v", context, err)
	}
	var err error
	if c.url, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, invalid(err)
	}
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, invalid(err)
	}
	kinds, mapper, err := known()
	if err != nil {
		return nil, err
	}
	if c.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: kinds, Mapper: mapper, HTTPClient: c.http}); err != nil {
		return nil, invalid(err)
	}
	return c, nil
}

// known returns the kinds that klm uses, so that nobody has to be asked for them.
func known() (*runtime.Scheme, meta.RESTMapper, error) {
	kinds := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(kinds), authorizationv1.AddToScheme(kinds), v1beta2.AddToScheme(kinds))
	if err != nil {
		return nil, nil, fmt.Errorf("registering kinds: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for scope, all := range map[meta.RESTScope][]schema.GroupVersionKind{
		meta.RESTScopeNamespace: {
			v1beta2.GroupVersion.WithKind("Kyma"), v1beta2.GroupVersion.WithKind("Manifest"), v1beta2.GroupVersion.WithKind("Watcher"),
			v1beta2.GroupVersion.WithKind(v1beta2.KindModuleTemplate), v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta),
			corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("Event"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			corev1.SchemeGroupVersion.WithKind("Pod"), {Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
		},
		meta.RESTScopeRoot: {
			corev1.SchemeGroupVersion.WithKind("Namespace"), authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
			{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		},
	} {
		for _, gvk := range all {
			mapper.Add(gvk, scope)
		}
	}
	return kinds, mapper, nil
}

// detect asks which kinds of ours the cluster serves.
func (c *cluster) detect(ctx context.Context) error {
	list := &metav1.APIResourceList{}
	err := c.get(ctx, "/apis/"+v1beta2.GroupVersion.String(), list)
	switch {
	case apierrors.IsNotFound(err):
		return c.withoutKinds(ctx)
	case err != nil:
		return c.explain(err, "asking which kinds there are")
	}
	c.serves = map[string]bool{}
	for _, r := range list.APIResources {
		c.serves[r.Name] = true
	}
	for _, needed := range []string{"kymas", "moduletemplates", "modulereleasemetas"} {
		if !c.serves[needed] {
			return fail(exitCluster, "%s has no %s.%s: its definitions are older than this klm, or incomplete: have its operator install them (make install)",
				c, needed, v1beta2.GroupVersion.Group)
		}
	}
	return nil
}

// withoutKinds says why there are no kinds of ours.
func (c *cluster) withoutKinds(ctx context.Context) error {
	group := &metav1.APIGroup{}
	if err := c.get(ctx, "/apis/"+v1beta2.GroupVersion.Group, group); err == nil && len(group.Versions) > 0 {
		var versions []string
		for _, v := range group.Versions {
			versions = append(versions, v.Version)
		}
		return fail(exitCluster, "%s serves %s only as %s: its definitions are older than this klm, which needs %s: have its operator update them",
			c, v1beta2.GroupVersion.Group, strings.Join(versions, ", "), v1beta2.GroupVersion.Version)
	}
	return fail(exitCluster, "%s has no definitions of %s: it is neither a control plane nor a runtime that was registered: check --context; "+
		"for a new control plane, install them (make install); for a new runtime, register it (klm runtime add)", c, v1beta2.GroupVersion.Group)
}

// get reads a path as JSON.
func (c *cluster) get(ctx context.Context, path string, into any) error {
	body, err := c.stream(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(into)
}

// stream reads a path. Whoever gets the body closes it. An error of the API server is one of package apierrors.
func (c *cluster) stream(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.url.String(), "/")+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	status := &metav1.Status{}
	if json.NewDecoder(response.Body).Decode(status) == nil && status.Kind == "Status" {
		return nil, apierrors.FromObject(status)
	}
	return nil, apierrors.NewGenericServerResponse(response.StatusCode, "get", schema.GroupResource{}, "", path, 0, true)
}

// secretsOf lists the access Secrets of a runtime, by metadata alone.
func (c *cluster) secretsOf(ctx context.Context, name string) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	return list, c.List(ctx, list, client.InNamespace(c.namespace), client.MatchingLabels{v1beta2.LabelKymaName: name})
}
