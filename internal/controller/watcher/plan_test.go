package watcher

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// aWatcher returns a Watcher that requests a VirtualService and an HTTPRoute. The functions in the parameter change
// edit the Watcher before aWatcher returns it.
func aWatcher(change ...func(*v1beta2.Watcher)) *v1beta2.Watcher {
	w := &v1beta2.Watcher{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "w", UID: "1"},
		Spec: v1beta2.WatcherSpec{
			Manager: "lifecycle-manager", ServiceInfo: v1beta2.Service{Name: "events",
				Namespace: "kcp-system", Port: 8082},
			ResourceToWatch: v1beta2.WatchableGVR{Group: "apps", Version: "v1", Resource: "deployments"},
			Gateway: &v1beta2.Gateway{
				LabelSelector: v1beta2.Selector{MatchLabels: map[string]string{"use": "events"}}},
			Route: &v1beta2.Route{ParentRefs: []v1beta2.RouteParent{{Name: "public", Namespace: "edge"},
				{Name: "own", SectionName: "https"}}},
		},
	}
	for _, c := range change {
		c(w)
	}
	return w
}

func TestCheck(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*v1beta2.Watcher)
		wrong  bool
	}{
		"Fine": {"it is valid", func(*v1beta2.Watcher) {}, false},
		"Path": {"agents refuse a manager with more than one segment",
			func(w *v1beta2.Watcher) { w.Spec.Manager = "a/b" }, true},
		"Tilde":     {"the listener refuses it", func(w *v1beta2.Watcher) { w.Spec.Manager = "a~b" }, true},
		"UpperCase": {"a manager may have it", func(w *v1beta2.Watcher) { w.Spec.Manager = "Cron_X" }, false},
		"Resource": {"agents refuse a kind",
			func(w *v1beta2.Watcher) { w.Spec.ResourceToWatch.Resource = "Pods" }, true},
		"Subresource": {"agents watch no subresource",
			func(w *v1beta2.Watcher) { w.Spec.ResourceToWatch.Resource = "pods/status" }, true},
		"Version": {"a version has no capital letters",
			func(w *v1beta2.Watcher) { w.Spec.ResourceToWatch.Version = "V1" }, true},
		"WebhookPath": {"a webhook allows more than one segment", func(w *v1beta2.Watcher) {
			w.Spec.Mode, w.Spec.Manager = v1beta2.WatcherModeWebhook, "a/b.c-d"
		}, false},
		"WebhookUpperCase": {"the API server refuses it in the path of a webhook", func(w *v1beta2.Watcher) {
			w.Spec.Mode, w.Spec.Manager = v1beta2.WatcherModeWebhook, "Cron_X"
		}, true},
		"WebhookLabel": {"the API server refuses it, too", func(w *v1beta2.Watcher) {
			w.Spec.Mode, w.Spec.LabelsToWatch = v1beta2.WatcherModeWebhook, map[string]string{"a": "b c"}
		}, true},
		"NoManager":   {"a manager is required", func(w *v1beta2.Watcher) { w.Spec.Manager = "" }, true},
		"Space":       {"a path has no spaces", func(w *v1beta2.Watcher) { w.Spec.Manager = "a b" }, true},
		"Up":          {"a path must not contain ..", func(w *v1beta2.Watcher) { w.Spec.Manager = "a/../b" }, true},
		"OnlyUp":      {"also not alone", func(w *v1beta2.Watcher) { w.Spec.Manager = ".." }, true},
		"Slashes":     {"no segment is empty", func(w *v1beta2.Watcher) { w.Spec.Manager = "a//b" }, true},
		"NoService":   {"a Service has a name", func(w *v1beta2.Watcher) { w.Spec.ServiceInfo.Name = "" }, true},
		"NoNamespace": {"and a namespace", func(w *v1beta2.Watcher) { w.Spec.ServiceInfo.Namespace = "" }, true},
		"PortZero":    {"former CRDs allowed it", func(w *v1beta2.Watcher) { w.Spec.ServiceInfo.Port = 0 }, true},
		"PortLarge":   {"as above", func(w *v1beta2.Watcher) { w.Spec.ServiceInfo.Port = 65536 }, true},
		"Label": {"the agent could not parse it",
			func(w *v1beta2.Watcher) { w.Spec.LabelsToWatch = map[string]string{"a": "b c"} }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if why := validate(aWatcher(c.change)); (why != "") != c.wrong {
				t.Errorf("%s: what is wrong is %q", c.reason, why)
			}
		})
	}
}

func TestPlanVirtualService(t *testing.T) {
	use := map[string]string{"use": "events"}
	one := gateway{namespace: "kcp-system", name: "one", labels: use,
		hosts: []string{"b.example.com", "kcp-system/a.example.com"}}
	two := gateway{namespace: "kcp-system", name: "two", labels: use, hosts: []string{"b.example.com", "*"}}
	other := gateway{namespace: "kcp-system", name: "other", hosts: []string{"c.example.com"}}
	empty := gateway{namespace: "kcp-system", name: "empty", labels: use}
	type want struct {
		Requested, Unknown, Harmless bool
		Reason                       string
		Gateways, Hosts, Match       any
	}
	event := map[string]any{"uri": map[string]any{"prefix": "/v2/lifecycle-manager/event"}}
	heartbeat := map[string]any{"uri": map[string]any{"prefix": "/v2/lifecycle-manager/heartbeat"}}
	cases := map[string]struct {
		reason  string
		watcher *v1beta2.Watcher
		invalid string
		with    istio
		want    want
	}{
		"NotRequested": {
			reason:  "row 1",
			watcher: aWatcher(func(w *v1beta2.Watcher) { w.Spec.Gateway = nil }),
			with:    istio{installed: true, gateways: []gateway{one}},
			want:    want{},
		},
		"NotInstalled": {
			reason:  "row 2",
			watcher: aWatcher(),
			invalid: "bad",
			with:    istio{},
			want:    want{Requested: true, Harmless: true, Reason: v1beta2.ReasonIstioNotInstalled},
		},
		"Invalid": {
			reason:  "row 3",
			watcher: aWatcher(),
			invalid: "bad",
			with:    istio{installed: true, gateways: []gateway{one}},
			want:    want{Requested: true, Unknown: true, Reason: v1beta2.ReasonInvalidWatcher},
		},
		"Selector": {reason: "row 4", watcher: aWatcher(
			func(w *v1beta2.Watcher) { w.Spec.Gateway.LabelSelector.MatchLabels = map[string]string{"a b": ""} }),
			with: istio{installed: true, gateways: []gateway{one}},
			want: want{Requested: true, Unknown: true, Reason: v1beta2.ReasonInvalidWatcher}},
		"NoneSelected": {
			reason:  "row 5",
			watcher: aWatcher(),
			with:    istio{installed: true, gateways: []gateway{other}},
			want:    want{Requested: true, Reason: v1beta2.ReasonGatewayNotFound},
		},
		"NoHosts": {
			reason:  "row 6: also if another gateway has hosts",
			watcher: aWatcher(),
			with:    istio{installed: true, gateways: []gateway{empty, one}},
			want:    want{Requested: true, Unknown: true, Reason: v1beta2.ReasonGatewayWithoutHosts},
		},
		"Two": {reason: "row 7: hosts sorted, each once, without namespaces", watcher: aWatcher(),
			with: istio{installed: true, gateways: []gateway{one, other, two}}, want: want{
				Requested: true, Gateways: []any{"kcp-system/one", "kcp-system/two"},
				Hosts: []any{"*", "a.example.com", "b.example.com"}, Match: []any{event, heartbeat},
			}},
		"OtherManager": {reason: "other managers have no heartbeats",
			watcher: aWatcher(func(w *v1beta2.Watcher) { w.Spec.Manager = "other" }),
			with:    istio{installed: true, gateways: []gateway{other, two}}, want: want{
				Requested: true, Gateways: []any{"kcp-system/two"}, Hosts: []any{"*", "b.example.com"},
				Match: []any{map[string]any{"uri": map[string]any{"prefix": "/v2/other/event"}}},
			}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := planVirtualService(c.watcher, c.invalid, c.with)
			got := want{Requested: p.requested, Unknown: p.unknown, Harmless: p.harmless, Reason: p.reason}
			if p.spec != nil {
				got.Gateways, got.Hosts = p.spec["gateways"], p.spec["hosts"]
				got.Match = p.spec["http"].([]any)[0].(map[string]any)["match"]
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if (p.reason == "") != (p.message == "") {
				t.Errorf("reason %q goes with message %q", p.reason, p.message)
			}
		})
	}
}

func TestPlanHTTPRoute(t *testing.T) {
	cases := map[string]struct {
		reason    string
		watcher   *v1beta2.Watcher
		invalid   string
		installed bool
		want      plan
	}{
		"NotRequested": {
			reason:    "row 1",
			watcher:   aWatcher(func(w *v1beta2.Watcher) { w.Spec.Route = nil }),
			installed: true,
			want:      plan{},
		},
		"NotInstalled": {
			reason:  "row 2",
			watcher: aWatcher(),
			invalid: "bad",
			want: plan{
				requested: true,
				harmless:  true,
				reason:    v1beta2.ReasonGatewayAPINotInstalled,
				message:   "Gateway API is not installed",
			},
		},
		"Invalid": {
			reason:    "row 3",
			watcher:   aWatcher(),
			invalid:   "bad",
			installed: true,
			want:      plan{requested: true, unknown: true, reason: v1beta2.ReasonInvalidWatcher, message: "bad"},
		},
		"Requested": {reason: "row 4: with the defaults of the API server", watcher: aWatcher(func(w *v1beta2.Watcher) {
			w.Spec.Manager, w.Spec.ServiceInfo.Namespace, w.Spec.Route.Hostnames = "other",
				"elsewhere", []string{"a.example.com"}
		}), installed: true, want: plan{requested: true, spec: map[string]any{
			"parentRefs": []any{
				map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway",
					"name": "public", "namespace": "edge"},
				map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway",
					"name": "own", "sectionName": "https"},
			},
			"hostnames": []any{"a.example.com"},
			"rules": []any{map[string]any{
				"matches": []any{map[string]any{"path": map[string]any{"type": "PathPrefix",
					"value": "/v2/other/event"}}},
				"backendRefs": []any{map[string]any{"group": "", "kind": "Service", "name": "events",
					"namespace": "elsewhere", "port": int64(8082), "weight": int64(1)}},
			}},
		}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.want.kind, c.want.condition = kindHTTPRoute, v1beta2.ConditionHTTPRoute
			got := planHTTPRoute(c.watcher, c.invalid, c.installed)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(plan{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestAcceptance(t *testing.T) {
	parent := func(ref map[string]any, kind, status string) map[string]any {
		return map[string]any{"parentRef": ref, "conditions": []any{map[string]any{"type": kind, "status": status,
			"reason": "Because", "message": "of that"}}}
	}
	public, own := map[string]any{"name": "public", "namespace": "edge"},
		map[string]any{"name": "own", "sectionName": "https"}
	const missing = "Gateway kcp-system/own (https) has not accepted the route yet: check that it exists, and that " +
		"its listeners allow routes from namespace kcp-system"
	cases := map[string]struct {
		reason   string
		parents  []any
		rejected bool
		why      string
	}{
		"NoAnswer": {"the first one without an answer is named", nil, false,
			"Gateway edge/public has not accepted the route yet: check that it exists, and that its listeners allow " +
				"routes from namespace kcp-system"},
		"One": {"all have to accept", []any{parent(public, "Accepted", "True")}, false, missing},
		"All": {"all have accepted", []any{parent(public, "Accepted", "True"), parent(own, "Accepted", "True")},
			false, ""},
		"Unknown": {"Unknown does not count as accepted",
			[]any{parent(public, "Accepted", "True"), parent(own, "Accepted", "Unknown")}, false, missing},
		"Others": {"another listener has accepted",
			[]any{parent(public, "Accepted", "True"), parent(map[string]any{"name": "own"}, "Accepted", "True")}, false,
			missing},
		"Refused": {"a rejection counts before a missing answer", []any{parent(own, "Accepted", "False")}, true,
			"Gateway kcp-system/own (https) does not accept the route: Because: of that"},
		"NoRefs": {"the Service cannot be used",
			[]any{parent(public, "Accepted", "True"), parent(own, "ResolvedRefs", "False")}, true,
			"Gateway kcp-system/own (https) does not accept the route: Because: of that"},
		"Nonsense": {"entries that are not valid are ignored", []any{"x", map[string]any{"parentRef": int64(1)},
			map[string]any{"parentRef": public, "conditions": []any{int64(1)}}}, false,
			"Gateway edge/public has not accepted the route yet: check that it exists, and that its listeners allow " +
				"routes from namespace kcp-system"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			route := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"parents": c.parents}}}
			if rejected, why := acceptance(aWatcher(), route); rejected != c.rejected || why != c.why {
				t.Errorf("%s: rejected is %t, why is %q", c.reason, rejected, why)
			}
		})
	}
}

func TestGateways(t *testing.T) {
	object := func(name string, servers ...any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"servers": servers,
			"selector": map[string]any{"istio": "x"}}, "status": map[string]any{}}}
		u.SetNamespace("ns")
		u.SetName(name)
		u.SetLabels(map[string]string{"a": "b"})
		trimGateway(u)
		return u
	}
	got := gateways([]*unstructured.Unstructured{
		object("b", map[string]any{"hosts": []any{"one"}, "port": map[string]any{}},
			map[string]any{"hosts": []any{"two"}}),
		object("a", "nonsense", map[string]any{}),
	})
	want := []gateway{
		{namespace: "ns", name: "a", labels: map[string]string{"a": "b"}},
		{namespace: "ns", name: "b", labels: map[string]string{"a": "b"}, hosts: []string{"one", "two"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(gateway{})); diff != "" {
		t.Errorf("gateways (-want +got):\n%s", diff)
	}
}
