package delivery

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Names of the delivered objects. The Kyma project uses the same names for its objects, and its dashboards and alerts
// depend on these names.
const (
	name          = "skr-webhook"
	roleName      = "kyma-skr-webhook" // the prefix shows the owner, because cluster roles have no namespace
	configName    = "skr-webhook-watches"
	secretName    = "skr-webhook-tls"
	caKey         = "ca.crt"
	apiServerPort = "kyma-project.io--watcher-to-apiserver"
)

//go:embed objects.yaml
var objectsYAML []byte

// build returns all objects that are delivered to a runtime, except the Secret with the certificate.
func (d *Delivery) build(r Request, webhookCA []byte) (*render.Bundle, error) {
	objects, err := render.Parse(objectsYAML)
	if err != nil {
		return nil, fmt.Errorf("parsing the objects of the agent: %w", err)
	}
	list, err := json.Marshal(r.Watchlist)
	if err != nil {
		return nil, fmt.Errorf("encoding the watch list: %w", err)
	}
	for _, o := range objects {
		fill := map[string]func(map[string]any) error{
			"ConfigMap": func(o map[string]any) error {
				return setNestedField(o, map[string]any{protocol.WatchlistKey: string(list)}, "data")
			},
			"ClusterRole":   func(o map[string]any) error { return setNestedField(o, rulesFor(r.Watchlist), "rules") },
			"Deployment":    d.fillDeployment,
			"NetworkPolicy": func(o map[string]any) error { return d.fillNetworkPolicyPorts(o, r.Server) },
		}[o.GetKind()]
		if fill != nil {
			if err := fill(o.Object); err != nil {
				return nil, fmt.Errorf("filling in %s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
		if !isClusterScoped(o) {
			o.SetNamespace(v1beta2.RuntimeNamespace)
		}
	}
	if hooks := webhooksFor(r.Webhooks, webhookCA); len(hooks) > 0 {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
			"metadata": map[string]any{"name": name}, "webhooks": hooks,
		}})
	}
	bundle, err := render.Build(
		objects, render.Options{Labels: map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma}})
	if err != nil {
		return nil, fmt.Errorf("building the objects of the agent: %w", err)
	}
	return bundle, nil
}

// setNestedField sets a nested field of an object.
func setNestedField(o map[string]any, value any, path ...string) error {
	if err := unstructured.SetNestedField(o, value, path...); err != nil {
		return fmt.Errorf("setting %s: %w", strings.Join(path, "."), err)
	}
	return nil
}

func isClusterScoped(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "ClusterRole", "ClusterRoleBinding", "PriorityClass":
		return true
	}
	return false
}

// fillDeployment sets the image and the resource limits of the agent and the address of the listener in the Deployment.
func (d *Delivery) fillDeployment(o map[string]any) error {
	containers, _, err := unstructured.NestedSlice(o, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return fmt.Errorf("there must be one container, there are %d: %w", len(containers), err)
	}
	server := containers[0].(map[string]any)
	server["image"] = d.Image
	server["resources"].(map[string]any)["limits"] = map[string]any{"memory": d.MemoryLimit, "cpu": d.CPULimit}
	for _, e := range server["env"].([]any) {
		if e := e.(map[string]any); e["name"] == "KCP_ADDR" {
			e["value"] = d.Address
		}
	}
	if d.GoDebug != "" {
		server["env"] = append(server["env"].([]any), map[string]any{"name": "GODEBUG", "value": d.GoDebug})
	}
	if d.PullSecret != "" {
		if err := setNestedField(o, []any{map[string]any{"name": d.PullSecret}}, "spec", "template", "spec",
			"imagePullSecrets"); err != nil {
			return err
		}
	}
	return setNestedField(o, containers, "spec", "template", "spec", "containers")
}

// fillNetworkPolicyPorts sets the ports of the API server and of the listener in the network policy, so that the agent
// can connect to both servers. The network policy does not restrict the IP addresses of these servers, because the
// manager does not know the IP addresses.
func (d *Delivery) fillNetworkPolicyPorts(o map[string]any, apiServerURL string) error {
	if o["metadata"].(map[string]any)["name"] != apiServerPort {
		return nil
	}
	ports := []int{443, 6443}
	if p, err := strconv.Atoi(explicitPortOf(apiServerURL)); err == nil {
		ports = append(ports, p)
	}
	if _, p, err := net.SplitHostPort(d.Address); err == nil {
		if p, err := strconv.Atoi(p); err == nil {
			ports = append(ports, p)
		}
	}
	slices.Sort(ports)
	var allowed []any
	for _, p := range slices.Compact(ports) {
		allowed = append(allowed, map[string]any{"protocol": "TCP", "port": int64(p)})
	}
	return setNestedField(o, []any{map[string]any{"ports": allowed}}, "spec", "egress")
}

// explicitPortOf returns the port of a URL, or "" if the URL has no port.
func explicitPortOf(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Port()
}

// rulesFor returns the rules of a role that allows only two things: to list and watch the resources on the watch list,
// and to get the objects whose state is reported.
func rulesFor(list protocol.Watchlist) []any {
	watched, read := map[string][]string{}, map[string][]string{}
	for _, w := range list.Watches {
		watched[w.Group] = append(watched[w.Group], w.Resource)
		if w.State {
			read[w.Group] = append(read[w.Group], w.Resource)
		}
	}
	return append(rulesWith(watched, "list", "watch"), rulesWith(read, "get")...)
}

// rulesWith returns one rule of a role for each API group, with the resources of the group and the given verbs.
func rulesWith(byGroup map[string][]string, verbs ...string) []any {
	rules := []any{}
	for _, group := range sortedKeys(byGroup) {
		resources := byGroup[group]
		slices.Sort(resources)
		rules = append(rules, map[string]any{
			"apiGroups": []any{group}, "resources": asAnySlice(slices.Compact(resources)), "verbs": asAnySlice(verbs),
		})
	}
	return rules
}

// Webhook describes a webhook of the agent. The API server of the runtime calls the webhook when objects of one
// resource change. The agent does not watch this resource in addition, because the webhook already reports its changes.
type Webhook struct {
	// Name is the name of the webhook. Each webhook has its own name, with at least two dots.
	Name string
	// Manager is the name of the manager that receives the events.
	Manager string
	// Group, Version and Resource identify the resource. Version * means any version.
	Group, Version, Resource string
	// If the field Status is true, only changes of the status of an object cause events.
	Status bool
	// Labels select the objects whose changes cause events: an object must have all these labels. If Labels is empty,
	// changes of all objects cause events.
	Labels map[string]string
}

// webhooksFor returns the webhook configurations for the API server of the runtime. No webhook refuses a request, even
// if the agent is not available.
func webhooksFor(hooks []Webhook, ca []byte) []any {
	var all []any
	for _, h := range hooks {
		resource := h.Resource
		if h.Status {
			resource += "/status"
		}
		selector := map[string]any{}
		if len(h.Labels) > 0 {
			labels := map[string]any{}
			for k, v := range h.Labels {
				labels[k] = v
			}
			selector["matchLabels"] = labels
		}
		all = append(all, map[string]any{
			"name": h.Name, "admissionReviewVersions": []any{"v1"},
			"clientConfig": map[string]any{
				"caBundle": ca64(ca),
				"service": map[string]any{"name": name, "namespace": v1beta2.RuntimeNamespace,
					"path": "/validate/" + h.Manager},
			},
			"rules": []any{map[string]any{
				"apiGroups": []any{h.Group}, "apiVersions": []any{h.Version}, "resources": []any{resource},
				"operations": []any{"CREATE", "UPDATE", "DELETE"},
			}},
			"objectSelector": selector, "sideEffects": "NoneOnDryRun",
			"timeoutSeconds": int64(15), "failurePolicy": "Ignore",
		})
	}
	return all
}
