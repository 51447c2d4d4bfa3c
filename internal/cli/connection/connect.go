package connection

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
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
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
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Cluster is the cluster to which klm sends its requests.
type Cluster struct {
	client.WithWatch
	Config  *rest.Config
	Context string   // name of the context in the kubeconfig
	URL     *url.URL // address of the API server
	http    *http.Client
	watches *http.Client // for watches, which may be open for longer than the deadline of a request
	// Namespace is the namespace of the Kymas and the catalog.
	Namespace string
	// OwnKyma is the name of the Kyma in which the admin of this cluster requests modules. OwnKyma is set only by the
	// function Runtime.
	OwnKyma string
	// Serves contains the resources of our API group that the cluster serves, such as kymas.
	Serves map[string]bool
}

// String returns a name of the cluster for messages.
func (c *Cluster) String() string {
	return fmt.Sprintf("%s (context %q)", c.Config.Host, c.Context)
}

// IsControlPlane reports whether the cluster is a control plane. Only control planes serve Manifests.
func (c *Cluster) IsControlPlane() bool { return c.Serves["manifests"] }

// ServesKind reports whether the cluster serves a kind of our API group.
func (c *Cluster) ServesKind(kind string) bool { return c.Serves[v1beta2.ResourceOf(kind)] }

// ControlPlane connects to a control plane.
func ControlPlane(ctx context.Context, a *console.App) (*Cluster, error) {
	c, err := connect(ctx, a)
	if err != nil {
		return nil, err
	}
	if !c.IsControlPlane() {
		return nil, console.Fail(console.ExitCluster,
			"%s is a runtime, but this command needs a control plane: choose another --context", c)
	}
	if c.Namespace == "" {
		c.Namespace = c.DetectKymaNamespace(ctx)
	}
	return c, nil
}

// DetectKymaNamespace returns the namespace of the Kymas in a control plane. If a control plane manages only itself,
// its Kyma is in the namespace kyma-system, as in a runtime.
func (c *Cluster) DetectKymaNamespace(ctx context.Context) string {
	for _, namespace := range []string{v1beta2.ControlPlaneNamespace, v1beta2.RuntimeNamespace} {
		if list := (&metav1.PartialObjectMetadataList{}); c.listMetadata(ctx, "Kyma", namespace, 1, list) == nil &&
			len(list.Items) > 0 {
			return namespace
		}
	}
	return v1beta2.ControlPlaneNamespace
}

// listMetadata lists the metadata of at most limit objects of a kind of our API group.
func (c *Cluster) listMetadata(ctx context.Context, kind, namespace string, limit int64,
	into *metav1.PartialObjectMetadataList) error {
	into.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(kind + "List"))
	return c.List(ctx, into, client.InNamespace(namespace), client.Limit(limit))
}

// Runtime connects to a runtime. The runtime may be a control plane that manages only itself.
func Runtime(ctx context.Context, a *console.App) (*Cluster, error) {
	c, err := connect(ctx, a)
	if err != nil {
		return nil, err
	}
	if c.Namespace == "" {
		c.Namespace = v1beta2.RuntimeNamespace
	}
	c.OwnKyma = v1beta2.RuntimeKymaName
	if !c.IsControlPlane() {
		return c, nil
	}
	here := &metav1.PartialObjectMetadataList{}
	if err := c.listMetadata(ctx, "Kyma", c.Namespace, 2, here); err != nil {
		return nil, c.Explain(err, "looking for the Kyma of this cluster")
	}
	if len(here.Items) != 1 {
		return nil, console.Fail(console.ExitCluster,
			"%s is a control plane, but this command is for the admin of a runtime: choose the --context of a "+
				"runtime; in a control plane, use klm why RUNTIME", c)
	}
	c.OwnKyma = here.Items[0].Name
	return c, nil
}

// ControlPlaneOrRuntime connects to a cluster that is a control plane or a runtime.
func ControlPlaneOrRuntime(ctx context.Context, a *console.App) (*Cluster, error) {
	c, err := connect(ctx, a)
	if err != nil || c.Namespace != "" {
		return c, err
	}
	c.Namespace = v1beta2.RuntimeNamespace
	if c.IsControlPlane() {
		c.Namespace = c.DetectKymaNamespace(ctx)
	}
	return c, nil
}

// connect opens the cluster and detects which kinds of our API group it serves.
func connect(ctx context.Context, a *console.App) (*Cluster, error) {
	c, err := Open(a)
	if err != nil {
		return nil, err
	}
	return c, c.DetectKinds(ctx)
}

// unreadableKubeconfigError returns the error for a kubeconfig that cannot be read.
func unreadableKubeconfigError(err error) error {
	return console.Fail(console.ExitCluster, "reading the kubeconfig: %v: give a valid file with --kubeconfig or "+
		"KUBECONFIG", err)
}

// Open finds the cluster in the kubeconfig, as kubectl does. Open sends no requests.
func Open(a *console.App) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Config.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		rules, &clientcmd.ConfigOverrides{CurrentContext: a.Config.Context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, unreadableKubeconfigError(err)
	}
	current := raw.CurrentContext
	if a.Config.Context != "" {
		current = a.Config.Context
		if raw.Contexts[current] == nil {
			return nil, console.Fail(console.ExitCluster, "the kubeconfig has no context %q: %s", current,
				console.SuggestionText(current, slices.Collect(maps.Keys(raw.Contexts))))
		}
	}
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, console.Fail(console.ExitCluster,
			"no cluster is configured: give --kubeconfig, set $KUBECONFIG, or choose a context with kubectl config "+
				"use-context")
	case err != nil:
		return nil, unreadableKubeconfigError(err)
	}
	config.Timeout, config.QPS, config.UserAgent = a.Config.RequestTimeout, -1, FieldOwner
	return New(config, current, a.Config.Namespace)
}

// New returns a cluster for a client configuration. New sends no requests, so Serves is empty.
func New(config *rest.Config, context, namespace string) (*Cluster, error) {
	config.WarningHandler = rest.NoWarnings{}
	c := &Cluster{Config: config, Context: context, Namespace: namespace}
	invalid := func(err error) error {
		return console.Fail(console.ExitCluster, "using context %q of the kubeconfig: %v", context, err)
	}
	var err error
	if c.URL, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, invalid(err)
	}
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, invalid(err)
	}
	c.watches = httpClientForWatches(c.http)
	kinds, mapper, err := clientKinds()
	if err != nil {
		return nil, err
	}
	objects, err := client.New(config, client.Options{Scheme: kinds, Mapper: mapper, HTTPClient: c.http})
	if err != nil {
		return nil, invalid(err)
	}
	watches, err := client.NewWithWatch(config, client.Options{Scheme: kinds, Mapper: mapper, HTTPClient: c.watches})
	if err != nil {
		return nil, invalid(err)
	}
	c.WithWatch = watchingClient{objects, watches}
	return c, nil
}

// clientKinds returns a scheme and a REST mapper for the kinds that klm uses. A fixed list of kinds saves the discovery
// requests to the API server.
func clientKinds() (*runtime.Scheme, meta.RESTMapper, error) {
	kinds := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(kinds), authenticationv1.AddToScheme(kinds),
		authorizationv1.AddToScheme(kinds), v1beta2.AddToScheme(kinds))
	if err != nil {
		return nil, nil, fmt.Errorf("registering kinds: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for scope, all := range map[meta.RESTScope][]schema.GroupVersionKind{
		meta.RESTScopeNamespace: {
			v1beta2.GroupVersion.WithKind("Kyma"), v1beta2.GroupVersion.WithKind("Manifest"),
			v1beta2.GroupVersion.WithKind("Watcher"),
			v1beta2.GroupVersion.WithKind(v1beta2.KindModuleTemplate), v1beta2.GroupVersion.WithKind(
				v1beta2.KindModuleReleaseMeta),
			v1beta2.GroupVersion.WithKind(v1beta2.KindModuleRollout),
			v1beta2.GroupVersion.WithKind(v1beta2.KindRolloutPolicy),
			corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("Event"),
			corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			corev1.SchemeGroupVersion.WithKind("Pod"), {Group: "apps", Version: "v1", Kind: "Deployment"},
			{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
		},
		meta.RESTScopeRoot: {
			corev1.SchemeGroupVersion.WithKind("Namespace"),
			authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
			authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
			authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
			{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		},
	} {
		for _, gvk := range all {
			mapper.Add(gvk, scope)
		}
	}
	return kinds, mapper, nil
}

// DetectKinds requests the list of the kinds of our API group that the cluster serves. DetectKinds returns an error if
// kinds that klm needs are missing.
func (c *Cluster) DetectKinds(ctx context.Context) error {
	list := &metav1.APIResourceList{}
	err := c.GetJSON(ctx, "/apis/"+v1beta2.GroupVersion.String(), list)
	switch {
	case apierrors.IsNotFound(err):
		return c.explainMissingAPIVersion(ctx)
	case err != nil:
		return c.Explain(err, "detecting the served kinds")
	}
	c.Serves = map[string]bool{}
	for _, r := range list.APIResources {
		c.Serves[r.Name] = true
	}
	for _, needed := range []string{"kymas", "moduletemplates", "modulereleasemetas"} {
		if !c.Serves[needed] {
			return console.Fail(console.ExitCluster,
				"%s has no %s.%s: its CRDs are older than this klm, or incomplete: ask its platform team to install "+
					"them (make install)",
				c, needed, v1beta2.GroupVersion.Group)
		}
	}
	return nil
}

// explainMissingAPIVersion returns the error for a cluster that does not serve the version of our API group that klm
// needs.
func (c *Cluster) explainMissingAPIVersion(ctx context.Context) error {
	group := &metav1.APIGroup{}
	if err := c.GetJSON(ctx, "/apis/"+v1beta2.GroupVersion.Group, group); err == nil && len(group.Versions) > 0 {
		var versions []string
		for _, v := range group.Versions {
			versions = append(versions, v.Version)
		}
		return console.Fail(console.ExitCluster,
			"%s serves %s only as %s: its CRDs are older than this klm, which needs %s: ask its platform team to "+
				"update them",
			c, v1beta2.GroupVersion.Group, strings.Join(versions, ", "), v1beta2.GroupVersion.Version)
	}
	return console.Fail(console.ExitCluster,
		"%s has no CRDs of %s: it is neither a control plane nor a registered runtime: check --context; "+
			"for a new control plane, install them (make install); for a new runtime, register it (klm runtime add)", c,
		v1beta2.GroupVersion.Group)
}

// GetJSON requests a path of the API server and decodes the response.
func (c *Cluster) GetJSON(ctx context.Context, path string, into any) error {
	body, err := c.OpenPath(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(into)
}

// GetJSONDated does the same as GetJSON, and returns the time of the response by the clock of the API server, in
// seconds. GetJSONDated returns the time of this computer if the response has no time.
func (c *Cluster) GetJSONDated(ctx context.Context, path string, into any) (time.Time, error) {
	response, err := c.get(ctx, path, "application/json")
	if err != nil {
		return time.Time{}, err
	}
	defer response.Body.Close()
	at, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		at = time.Now()
	}
	return at, json.NewDecoder(response.Body).Decode(into)
}

// OpenPath requests a path of the API server and returns the body of the response. The caller must close the body.
// Errors of the API server have the types of package apierrors.
func (c *Cluster) OpenPath(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.openAs(ctx, path, "application/json")
}

// OpenTable requests the path of a list in the form of a Table of the API server, and returns the body of the response.
// If the API server knows no Tables, the body has the list in its usual form.
func (c *Cluster) OpenTable(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.openAs(ctx, path, "application/json;as=Table;g=meta.k8s.io;v=v1,application/json")
}

// OpenMetadata requests only the metadata of objects, for the path of a list or a watch, and returns the body of the
// response. If the API server does not support responses with metadata only, the body has whole objects.
func (c *Cluster) OpenMetadata(ctx context.Context, path string, isWatch bool) (io.ReadCloser, error) {
	kind := "PartialObjectMetadataList"
	if isWatch {
		kind = "PartialObjectMetadata"
	}
	return c.openAs(ctx, path, "application/json;as="+kind+";g=meta.k8s.io;v=v1,application/json")
}

func (c *Cluster) openAs(ctx context.Context, path, accept string) (io.ReadCloser, error) {
	response, err := c.get(ctx, path, accept)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// get requests a path of the API server and returns the response if its status is 200. The parameter accept has the
// accepted media types.
func (c *Cluster) get(ctx context.Context, path, accept string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL.String(), "/")+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	sender := c.http
	if request.URL.Query().Get("watch") != "" {
		sender = c.watches
	}
	response, err := sender.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	status := &metav1.Status{}
	if json.NewDecoder(response.Body).Decode(status) == nil && status.Kind == "Status" {
		return nil, apierrors.FromObject(status)
	}
	return nil, apierrors.NewGenericServerResponse(response.StatusCode, "get",
		schema.GroupResource{}, "", path, 0, true)
}

// AccessSecrets lists the metadata of the access Secrets of a runtime.
func (c *Cluster) AccessSecrets(ctx context.Context, kyma string) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	return list, c.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabels{v1beta2.LabelKymaName: kyma})
}

// FieldOwner is the field manager of all fields that klm writes. FieldOwner is also the user agent of klm.
const FieldOwner = v1beta2.FieldOwnerClient

// AnyKind returns a client for objects of all kinds. AnyKind sends no requests.
func (c *Cluster) AnyKind() (*apply.Cluster, error) {
	objects, err := apply.New(c.Config, c.http, apply.ClusterOptions{RequestTimeout: c.Config.Timeout})
	if err != nil {
		return nil, console.Fail(console.ExitCluster, "connecting to %s: %v", c, err)
	}
	return objects, nil
}

// UID returns the UID of namespace kube-system, which identifies a cluster.
func (c *Cluster) UID(ctx context.Context) (string, error) {
	n := &metav1.PartialObjectMetadata{}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, n)
	return string(n.UID), err
}
