package watcher

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// Groups and kinds of Istio and Gateway API.
const (
	groupIstio         = "networking.istio.io"
	groupGatewayAPI    = "gateway.networking.k8s.io"
	kindVirtualService = "VirtualService"
	kindGateway        = "Gateway"
	kindHTTPRoute      = "HTTPRoute"
)

// plan is the desired state of one kind of route: VirtualService or HTTPRoute.
type plan struct {
	kind      string
	condition string         // the type of its condition
	requested bool           // the Watcher requests this kind of route
	spec      map[string]any // the desired spec; nil if no route is desired, or if the desired state is unknown
	unknown   bool           // the desired state is unknown, so an existing route stays as it is
	harmless  bool           // a missing route is not an error
	reason    string         // the reason why no route is desired
	message   string
}

// withoutRoute returns a plan without a route, with the reason why no route is desired.
func (p plan) withoutRoute(reason, format string, args ...any) plan {
	p.reason, p.message = reason, fmt.Sprintf(format, args...)
	return p
}

// withUnknownRoute returns a plan for a route whose desired state is not known, so that an existing route stays as it
// is. The plan has the reason why the desired state is not known.
func (p plan) withUnknownRoute(reason, format string, args ...any) plan {
	p.unknown = true
	return p.withoutRoute(reason, format, args...)
}

// gateway has the fields of an Istio Gateway that routes need.
type gateway struct {
	namespace, name string
	labels          map[string]string
	hosts           []string // hosts of all servers of the gateway
}

// istio is what is known about Istio in the control plane.
type istio struct {
	installed bool
	namespace string // namespace of the gateways
	gateways  []gateway
}

// gateways converts Istio Gateway objects to gateways, sorted by name.
func gateways(objects []*unstructured.Unstructured) []gateway {
	var all []gateway
	for _, o := range objects {
		g := gateway{namespace: o.GetNamespace(), name: o.GetName(), labels: o.GetLabels()}
		servers, _, _ := unstructured.NestedSlice(o.Object, "spec", "servers")
		for _, s := range servers {
			if server, ok := s.(map[string]any); ok {
				hosts, _, _ := unstructured.NestedStringSlice(server, "hosts")
				g.hosts = append(g.hosts, hosts...)
			}
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b gateway) int {
		return strings.Compare(
			a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
	return all
}

// plainPath matches URL paths that Istio, Gateway API and the listener interpret in the same way.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

// validate returns the reason why a Watcher is not valid, and how to fix it. validate returns "" if the Watcher is
// valid. The API server rejects most invalid Watchers, but earlier versions of the CRD accepted them.
func validate(w *v1beta2.Watcher) string {
	s, name := w.Spec.ServiceInfo, w.NotifiedManagerName()
	switch {
	case name == "":
		return fmt.Sprintf("the Watcher has no manager, so no events are sent: set spec.manager or the label %s",
			v1beta2.LabelManagedBy)
	case !plainPath.MatchString(name) || path.Clean(name) != name || slices.Contains(strings.Split(name, "/"), ".."):
		return fmt.Sprintf("the manager %q cannot be part of a path: use letters, digits and - . _", name)
	case s.Name == "" || s.Namespace == "":
		return "spec.serviceInfo has no name or no namespace: set both"
	case s.Port < 1 || s.Port > 65535:
		return fmt.Sprintf("spec.serviceInfo.port is %d: set a port from 1 to 65535", s.Port)
	}
	if err := delivery.ValidateWatcher(w); err != nil {
		return err.Error() + ": correct it"
	}
	return ""
}

// paths returns the URL paths of the requests that runtimes send to the manager of a Watcher. The Watcher names this
// manager in its spec.
func paths(w *v1beta2.Watcher) []string {
	name := w.NotifiedManagerName()
	if name == protocol.ManagerName {
		return []string{protocol.EventPath(name), protocol.HeartbeatPath(name)}
	}
	return []string{protocol.EventPath(name)} // other managers have no heartbeats
}

// planVirtualService returns the desired state of the VirtualService. The first matching row of this table decides:
//
//	1  the Watcher requests no VirtualService   no route
//	2  Istio is not installed                   no route, which is harmless
//	3  the Watcher is not valid                 an existing route stays
//	4  the selector is not valid                an existing route stays
//	5  the selector matches no gateway          no route: without a gateway, it would affect traffic in the mesh
//	6  a matching gateway has no hosts          an existing route stays
//	7  otherwise                                a route from all hosts of all matching gateways to the Service
func planVirtualService(w *v1beta2.Watcher, invalid string, with istio) plan {
	p := plan{kind: kindVirtualService, condition: v1beta2.ConditionVirtualService, requested: w.Spec.Gateway != nil}
	if !p.requested {
		return p
	}
	if !with.installed {
		p.harmless = true
		return p.withoutRoute(v1beta2.ReasonIstioNotInstalled, "Istio is not installed")
	}
	if invalid != "" {
		return p.withUnknownRoute(v1beta2.ReasonInvalidWatcher, "%s", invalid)
	}
	selector, err := w.Spec.Gateway.LabelSelector.Compile()
	if err != nil {
		return p.withUnknownRoute(v1beta2.ReasonInvalidWatcher, "reading spec.gateway.selector: %v: correct it", err)
	}
	var names, hosts []any
	for _, g := range with.gateways {
		if !selector.Matches(labels.Set(g.labels)) {
			continue
		}
		if len(g.hosts) == 0 {
			return p.withUnknownRoute(v1beta2.ReasonGatewayWithoutHosts,
				"Gateway %s/%s has no hosts: add some to its servers, or select another", g.namespace, g.name)
		}
		names = append(names, g.namespace+"/"+g.name)
		for _, h := range g.hosts {
			// In a host of an Istio Gateway, the part before the slash restricts the namespaces that may use the host.
			hosts = append(hosts, h[strings.Index(h, "/")+1:])
		}
	}
	if names == nil {
		return p.withoutRoute(v1beta2.ReasonGatewayNotFound,
			"spec.gateway.selector selects no Gateway in namespace %s: create one there with the labels %q, or "+
				"correct the selector", with.namespace, selector)
	}
	p.spec = virtualServiceSpec(w, names, sortUnique(hosts))
	return p
}

// virtualServiceSpec returns the spec of a VirtualService, with one route for all paths.
func virtualServiceSpec(w *v1beta2.Watcher, gateways, hosts []any) map[string]any {
	var match []any
	for _, p := range paths(w) {
		match = append(match, map[string]any{"uri": map[string]any{"prefix": p}})
	}
	s := w.Spec.ServiceInfo
	return map[string]any{
		"gateways": gateways,
		"hosts":    hosts,
		"http": []any{map[string]any{
			"name":  w.Namespace + "/" + w.Name,
			"match": match,
			"route": []any{map[string]any{"destination": map[string]any{
				"host": s.Name + "." + s.Namespace + ".svc.cluster.local",
				"port": map[string]any{"number": s.Port},
			}}},
		}},
	}
}

// planHTTPRoute returns the desired state of the HTTPRoute. The first matching row of this table decides:
//
//	1  the Watcher requests no HTTPRoute   no route
//	2  Gateway API is not installed        no route, which is harmless
//	3  the Watcher is not valid            an existing route stays
//	4  otherwise                           a route from the listed Gateways to the Service
func planHTTPRoute(w *v1beta2.Watcher, invalid string, installed bool) plan {
	p := plan{kind: kindHTTPRoute, condition: v1beta2.ConditionHTTPRoute, requested: w.Spec.Route != nil}
	switch {
	case !p.requested:
		return p
	case !installed:
		p.harmless = true
		return p.withoutRoute(v1beta2.ReasonGatewayAPINotInstalled, "Gateway API is not installed")
	case invalid != "":
		return p.withUnknownRoute(v1beta2.ReasonInvalidWatcher, "%s", invalid)
	}
	p.spec = httpRouteSpec(w)
	return p
}

// httpRouteSpec returns the spec of an HTTPRoute. The spec contains the defaults of the API server, so that it equals
// the spec that the API server stores.
func httpRouteSpec(w *v1beta2.Watcher) map[string]any {
	var parents, match []any
	for _, p := range w.Spec.Route.ParentRefs {
		parents = append(parents, parentRef(p, w.Namespace))
	}
	for _, p := range paths(w) {
		match = append(match, map[string]any{"path": map[string]any{"type": "PathPrefix", "value": p}})
	}
	s := w.Spec.ServiceInfo
	backend := map[string]any{"group": "", "kind": "Service", "name": s.Name, "port": s.Port, "weight": int64(1)}
	if s.Namespace != w.Namespace {
		backend["namespace"] = s.Namespace
	}
	spec := map[string]any{
		"parentRefs": parents,
		"rules":      []any{map[string]any{"matches": match, "backendRefs": []any{backend}}},
	}
	if len(w.Spec.Route.Hostnames) > 0 {
		var names []any
		for _, h := range w.Spec.Route.Hostnames {
			names = append(names, h)
		}
		spec["hostnames"] = names
	}
	return spec
}

// parentRef returns the reference to a Gateway in an HTTPRoute.
func parentRef(p v1beta2.RouteParent, home string) map[string]any {
	ref := map[string]any{"group": groupGatewayAPI, "kind": kindGateway, "name": p.Name}
	if p.Namespace != "" && p.Namespace != home {
		ref["namespace"] = p.Namespace
	}
	if p.SectionName != "" {
		ref["sectionName"] = p.SectionName
	}
	return ref
}

// acceptance evaluates the status that Gateways have written to an HTTPRoute. acceptance reports whether a Gateway has
// rejected the HTTPRoute. acceptance also returns the reason why not all Gateways have accepted the HTTPRoute, or "" if
// all have.
func acceptance(w *v1beta2.Watcher, current *unstructured.Unstructured) (rejected bool, whyNotAccepted string) {
	parents, _, _ := unstructured.NestedSlice(current.Object, "status", "parents")
	for _, p := range w.Spec.Route.ParentRefs {
		about := fmt.Sprintf("Gateway %s/%s", cmp.Or(p.Namespace, w.Namespace), p.Name)
		if p.SectionName != "" {
			about += " (" + p.SectionName + ")"
		}
		accepted := false
		for _, s := range parents {
			parent, _ := s.(map[string]any)
			if !isParent(parent, p, w.Namespace) {
				continue
			}
			conditions, _, _ := unstructured.NestedSlice(parent, "conditions")
			for _, c := range conditions {
				condition, _ := c.(map[string]any)
				kind, status := condition["type"], condition["status"]
				if kind != "Accepted" && kind != "ResolvedRefs" {
					continue
				}
				if status == string(metav1.ConditionFalse) {
					return true, fmt.Sprintf("%s does not accept the route: %v: %v", about,
						condition["reason"], condition["message"])
				}
				accepted = accepted || kind == "Accepted" && status == string(metav1.ConditionTrue)
			}
		}
		if !accepted && whyNotAccepted == "" {
			whyNotAccepted = about + " has not accepted the route yet: check that it exists, and that its listeners allow " +
				"routes from namespace " + w.Namespace
		}
	}
	return false, whyNotAccepted
}

// isParent reports whether an entry in the status of an HTTPRoute comes from the given Gateway of the Watcher.
func isParent(entry map[string]any, p v1beta2.RouteParent, home string) bool {
	ref, _, _ := unstructured.NestedMap(entry, "parentRef")
	text := func(key, otherwise string) string {
		s, _ := ref[key].(string)
		return cmp.Or(s, otherwise)
	}
	return text("name", "") == p.Name && text("namespace", home) == cmp.Or(p.Namespace, home) &&
		text("sectionName", "") == p.SectionName &&
		text("kind", kindGateway) == kindGateway
}
