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
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// The kinds of others.
const (
	groupIstio         = "networking.istio.io"
	groupGatewayAPI    = "gateway.networking.k8s.io"
	kindVirtualService = "VirtualService"
	kindGateway        = "Gateway"
	kindHTTPRoute      = "HTTPRoute"
)

// plan is what there should be of one kind of route.
type plan struct {
	kind      string
	condition string         // the type of its condition
	asked     bool           // the Watcher asks for it
	spec      map[string]any // what it should say; nil if there should be none, or nobody knows
	leave     bool           // it is not known what there should be: what is there stays
	harmless  bool           // that there is none is no fault
	reason    string         // why there is none
	message   string
}

// none returns the plan with the reason why there is no route.
func (p plan) none(reason, format string, args ...any) plan {
	p.reason, p.message = reason, fmt.Sprintf(format, args...)
	return p
}

// unknown returns the plan with the reason why nobody knows what the route should be.
func (p plan) unknown(reason, format string, args ...any) plan {
	p.leave = true
	return p.none(reason, format, args...)
}

// gateway is what matters of an Istio Gateway.
type gateway struct {
	namespace, name string
	labels          map[string]string
	hosts           []string // of all its servers
}

// istio is what there is of Istio.
type istio struct {
	installed bool
	namespace string // where gateways are looked for
	gateways  []gateway
}

// gateways reads Istio gateways, and returns them in the order of their names.
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
	slices.SortFunc(all, func(a, b gateway) int { return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name) })
	return all
}

// segments is a path that means the same to all who read it.
var segments = regexp.MustCompile(`^[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*$`)

// check returns what is wrong with the Watcher itself and what to do about it, "" if nothing is. Most of it the API server refuses today, but
// has not always.
func check(w *v1beta2.Watcher) string {
	s, name := w.Spec.ServiceInfo, w.ManagerName()
	switch {
	case name == "":
		return fmt.Sprintf("nobody is told about changes: set spec.manager or the label %s", v1beta2.LabelManagedBy)
	case !segments.MatchString(name) || path.Clean(name) != name || slices.Contains(strings.Split(name, "/"), ".."):
		return fmt.Sprintf("the manager %q cannot be part of a path: use letters, digits and - . _ ~", name)
	case s.Name == "" || s.Namespace == "":
		return "spec.serviceInfo names no Service: set its name and namespace"
	case s.Port < 1 || s.Port > 65535:
		return fmt.Sprintf("spec.serviceInfo.port is %d: set a port from 1 to 65535", s.Port)
	}
	if _, err := w.LabelSelector(); err != nil {
		return err.Error() + ": correct it"
	}
	return ""
}

// paths are what is posted to the manager of a Watcher.
func paths(w *v1beta2.Watcher) []string {
	name := w.ManagerName()
	if name == protocol.ManagerName {
		return []string{protocol.EventPath(name), protocol.HeartbeatPath(name)}
	}
	return []string{protocol.EventPath(name)} // nobody else knows a heartbeat
}

// planVirtualService says what VirtualService there should be. The first row that fits wins:
//
//	1  the Watcher selects no gateways            none
//	2  Istio is not installed                     none, and no harm
//	3  the Watcher is not valid                   what is there stays
//	4  the selector is not valid                  what is there stays
//	5  no gateway is selected                     none: without a gateway it would be about traffic in the mesh
//	6  a selected gateway has no hosts            what is there stays
//	7  else                                       all hosts of all gateways, to the Service
func planVirtualService(w *v1beta2.Watcher, invalid string, with istio) plan {
	p := plan{kind: kindVirtualService, condition: v1beta2.ConditionVirtualService, asked: w.Spec.Gateway != nil}
	if !p.asked {
		return p
	}
	if !with.installed {
		p.harmless = true
		return p.none(v1beta2.ReasonIstioNotInstalled, "Istio is not installed")
	}
	if invalid != "" {
		return p.unknown(v1beta2.ReasonInvalidWatcher, "%s", invalid)
	}
	selector, err := w.Spec.Gateway.LabelSelector.Compile()
	if err != nil {
		return p.unknown(v1beta2.ReasonInvalidWatcher, "reading spec.gateway.selector: %v: correct it", err)
	}
	var names, hosts []any
	for _, g := range with.gateways {
		if !selector.Matches(labels.Set(g.labels)) {
			continue
		}
		if len(g.hosts) == 0 {
			return p.unknown(v1beta2.ReasonGatewayWithoutHosts, "Gateway %s/%s has no hosts: add some to its servers, or select another", g.namespace, g.name)
		}
		names = append(names, g.namespace+"/"+g.name)
		for _, h := range g.hosts {
			hosts = append(hosts, h[strings.Index(h, "/")+1:]) // a gateway may say in which namespaces a host may be used
		}
	}
	if names == nil {
		return p.none(v1beta2.ReasonGatewayNotFound, "spec.gateway.selector selects no Gateway in namespace %s: create one there with the labels %q, or correct the selector", with.namespace, selector)
	}
	p.spec = virtualService(w, names, sortedOnce(hosts))
	return p
}

// virtualService is the spec of a VirtualService. It has one route, however many paths lead there.
func virtualService(w *v1beta2.Watcher, gateways, hosts []any) map[string]any {
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

// planHTTPRoute says what HTTPRoute there should be. The first row that fits wins:
//
//	1  the Watcher asks for none        none
//	2  Gateway API is not installed     none, and no harm
//	3  the Watcher is not valid         what is there stays
//	4  else                             from the Gateways that are named to the Service
func planHTTPRoute(w *v1beta2.Watcher, invalid string, installed bool) plan {
	p := plan{kind: kindHTTPRoute, condition: v1beta2.ConditionHTTPRoute, asked: w.Spec.Route != nil}
	switch {
	case !p.asked:
		return p
	case !installed:
		p.harmless = true
		return p.none(v1beta2.ReasonGatewayAPINotInstalled, "Gateway API is not installed")
	case invalid != "":
		return p.unknown(v1beta2.ReasonInvalidWatcher, "%s", invalid)
	}
	p.spec = httpRoute(w)
	return p
}

// httpRoute is the spec of an HTTPRoute. It says what the API server would add, so that it reads the same afterwards.
func httpRoute(w *v1beta2.Watcher) map[string]any {
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

// parentRef names a Gateway as an HTTPRoute does.
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

// acceptance says what the Gateways of a Watcher think of its HTTPRoute: whether one has refused it, and why not all have accepted it, "" if
// they have.
func acceptance(w *v1beta2.Watcher, there *unstructured.Unstructured) (refused bool, why string) {
	said, _, _ := unstructured.NestedSlice(there.Object, "status", "parents")
	for _, p := range w.Spec.Route.ParentRefs {
		about := fmt.Sprintf("Gateway %s/%s", cmp.Or(p.Namespace, w.Namespace), p.Name)
		if p.SectionName != "" {
			about += " (" + p.SectionName + ")"
		}
		accepted := false
		for _, s := range said {
			answer, _ := s.(map[string]any)
			if !isAbout(answer, p, w.Namespace) {
				continue
			}
			conditions, _, _ := unstructured.NestedSlice(answer, "conditions")
			for _, c := range conditions {
				condition, _ := c.(map[string]any)
				kind, status := condition["type"], condition["status"]
				if kind != "Accepted" && kind != "ResolvedRefs" {
					continue
				}
				if status == string(metav1.ConditionFalse) {
					return true, fmt.Sprintf("%s does not take it: %v: %v", about, condition["reason"], condition["message"])
				}
				accepted = accepted || kind == "Accepted" && status == string(metav1.ConditionTrue)
			}
		}
		if !accepted && why == "" {
			why = about + " has not accepted it yet: see that it is there, and that its listeners allow routes from namespace " + w.Namespace
		}
	}
	return false, why
}

// isAbout tells whether an answer in the status of an HTTPRoute is about a Gateway of the Watcher.
func isAbout(answer map[string]any, p v1beta2.RouteParent, home string) bool {
	ref, _, _ := unstructured.NestedMap(answer, "parentRef")
	text := func(key, otherwise string) string {
		s, _ := ref[key].(string)
		return cmp.Or(s, otherwise)
	}
	return text("name", "") == p.Name && text("namespace", home) == cmp.Or(p.Namespace, home) && text("sectionName", "") == p.SectionName &&
		text("kind", kindGateway) == kindGateway
}
