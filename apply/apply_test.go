package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

func TestInventory(t *testing.T) {
	s := newServer(t)
	s.serveKind("cert.example.org/v1 Issuer issuers cluster")
	c := s.cluster(ClusterOptions{})
	set := Set{Namespace: "home", Bundle: bundleOf(t, module+`
---
{apiVersion: cert.example.org/v1, kind: Issuer, metadata: {name: ca, namespace: stray}}
---
{apiVersion: other.example.org/v1, kind: Gone, metadata: {name: x}}
`)}
	for pass := range 2 {
		refs, err := c.DesiredInventory(t.Context(), set)
		if !reasonIs(err, KindUnknown) || ClassOf(err) != Transient {
			t.Fatalf("pass %d: got error %v, want one with reason KindUnknown", pass, err)
		}
		var got []string
		for _, r := range refs {
			got = append(got, r.String())
		}
		want := []string{"Thing.example.com home/default",
			"ValidatingWebhookConfiguration.admissionregistration.k8s.io hook", "Deployment.apps mod/manager",
			"ClusterRoleBinding.rbac.authorization.k8s.io binding", "Service mod/service", "ConfigMap mod/config",
			"ServiceAccount home/account",
			"ClusterRole.rbac.authorization.k8s.io role",
			"CustomResourceDefinition.apiextensions.k8s.io things.example.com", "Namespace mod",
			"Issuer.cert.example.org ca"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pass %d: refs (-want +got):\n%s", pass, diff)
		}
	}
	// No discovery request is sent for built-in kinds and for kinds whose CRD is in the bundle. For all remaining
	// kinds, one discovery request is sent for each group and version.
	if diff := cmp.Diff([]string{"GET /apis/cert.example.org/v1", "GET /apis/other.example.org/v1"},
		s.takeRequests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	c.now = func() time.Time { return time.Now().Add(unservedKindPeriod) }
	s.serveKind("other.example.org/v1 Gone gones")
	if refs, err := c.DesiredInventory(t.Context(), set); err != nil || len(refs) != 12 {
		t.Errorf("after the kind has come: got %d refs and error %v, want 12 and none", len(refs), err)
	}
}

// TestServes checks that Serves asks the cluster, whatever is cached, and that WasLastSeenUnserved sends no request.
func TestServes(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	gvk := schema.GroupVersionKind{Group: "other.example.org", Version: "v1", Kind: "Late"}
	for _, step := range []struct {
		change string
		serves bool
	}{{"", false}, {"other.example.org/v1 Late lates", true}} {
		if step.change != "" {
			s.serveKind(step.change)
		}
		serves, err := c.Serves(t.Context(), gvk)
		if err != nil || serves != step.serves || c.WasLastSeenUnserved(gvk) == step.serves {
			t.Errorf("served: %t, %v, last seen unserved: %t; want served: %t", serves, err, c.WasLastSeenUnserved(gvk),
				step.serves)
		}
		if diff := cmp.Diff([]string{"GET /apis/other.example.org/v1"}, s.takeRequests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}
}

func TestRemoved(t *testing.T) {
	a := Ref{Group: "apps", Version: "v1beta1", Kind: "Deployment", Namespace: "n", Name: "a"}
	moved := a
	moved.Version = "v1"
	other, elsewhere := a, a
	other.Name, elsewhere.Namespace = "b", "m"
	tests := map[string]struct {
		reason       string
		old, updated []Ref
		want         []Ref
	}{
		"VersionChanged": {"a change of apiVersion is not a removal", []Ref{a}, []Ref{moved}, nil},
		"Removed":        {"an object that is not in the new set is removed", []Ref{other, a}, []Ref{a}, []Ref{other}},
		"Moved":          {"another namespace is another object", []Ref{elsewhere}, []Ref{a}, []Ref{elsewhere}},
		"AllGone":        {"an empty set removes everything, in order", []Ref{other, a}, nil, []Ref{other, a}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Removed(tc.old, tc.updated)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if !a.SameObject(moved) || a.SameObject(other) {
		t.Error("SameObject must ignore the version, and nothing else")
	}
}

// TestApplyOrder tests one installation: phases are applied in order, each object gets one PATCH, the second call sends
// nothing, and an upgrade sends only the changed objects.
func TestApplyOrder(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	set := Set{Bundle: bundleOf(t, module), Overlay: render.Overlay{Annotations: map[string]string{"owned-by": "me"}}}
	var done Progress

	result, err := c.Apply(t.Context(), set, &done)
	if err != nil || len(result.Failed) != 0 {
		t.Fatalf("applying: %v, failed %v", err, result.Failed)
	}
	// The test server has stored the new CRD but does not serve its kind yet. With one discovery request, Apply finds
	// out that the kind is not served, and the custom resource has to wait.
	want := [][]string{
		patches(namespacePath, definitionPath), patches(accountPath, configPath, rolePath, servicePath),
		patches(bindingPath),
		patches(managerPath), patches(hookPath), {"GET /apis/example.com/v1"},
	}
	checkPhases(t, want, s.takeRequests())
	if len(result.Waiting) != 1 || result.Waiting[0].Reason != CRDNotEstablished ||
		result.Waiting[0].Ref.Kind != "Thing" || result.AllApplied() {
		t.Errorf("got waiting %v, want the custom resource alone", result.Waiting)
	}
	if len(result.Applied) != 9 {
		t.Errorf("got %d applied, want 9", len(result.Applied))
	}

	s.serveKind(thingKind)
	if result, err = c.Apply(t.Context(), set, &done); err != nil || !result.AllApplied() ||
		len(result.Unchanged) != 9 {
		t.Fatalf("second call: %v, %+v", err, result)
	}
	checkPhases(t, [][]string{{"GET /apis/example.com/v1"}, patches(thingPath)}, s.takeRequests())

	if result, err = c.Apply(t.Context(), set, &done); err != nil || !result.AllApplied() ||
		len(result.Unchanged) != 10 {
		t.Fatalf("third call: %v, %+v", err, result)
	}
	checkPhases(t, nil, s.takeRequests())

	set.Bundle = bundleOf(t, strings.ReplaceAll(strings.ReplaceAll(module, `a: "1"`, `a: "2"`), "size: 1", "size: 2"))
	if result, err = c.Apply(t.Context(), set, &done); err != nil || !result.AllApplied() || len(result.Applied) != 2 {
		t.Fatalf("upgrade: %v, %+v", err, result)
	}
	checkPhases(t, [][]string{patches(configPath), patches(thingPath)}, s.takeRequests())

	set.Overlay.Labels = map[string]string{"l": "v"}
	if result, err = c.Apply(t.Context(), set, &done); err != nil || len(result.Applied) != 10 {
		t.Fatalf("another overlay concerns every object: %v, %+v", err, result)
	}
	if labels := s.stored[thingPath]["metadata"].(map[string]any)["labels"]; fmt.Sprint(labels) != "map[l:v]" {
		t.Errorf("got labels %v, want those of the overlay", labels)
	}
	if accept := s.accepts["PATCH "+definitionPath]; accept != metadataType {
		t.Errorf("asked for %q, want metadata only", accept)
	}
}

// checkPhases checks that the sent requests (parameter got) are the requests of the expected phases (parameter want),
// in the order of the phases. Within a phase, requests may be in any order.
func checkPhases(t *testing.T, want [][]string, got []string) {
	t.Helper()
	for _, phase := range want {
		n := min(len(phase), len(got))
		have := slices.Sorted(slices.Values(got[:n]))
		if diff := cmp.Diff(slices.Sorted(slices.Values(phase)), have); diff != "" {
			t.Errorf("phase (-want +got):\n%s", diff)
		}
		got = got[n:]
	}
	if len(got) > 0 {
		t.Errorf("more requests than wanted: %v", got)
	}
}

func TestApplyParallel(t *testing.T) {
	const limit, objects = 4, 20
	s := newServer(t)
	var (
		mu             sync.Mutex
		underWay, most int
		waiting        int
		round          = make(chan struct{})
	)
	s.before = func(*http.Request) {
		mu.Lock()
		underWay++
		most = max(most, underWay)
		waiting++
		mine := round
		if waiting == limit { // the last request of a round releases all; with less concurrency, the test would block
			waiting, round = 0, make(chan struct{})
			close(mine)
		}
		mu.Unlock()
		<-mine
		mu.Lock()
		underWay--
		mu.Unlock()
	}
	var yaml strings.Builder
	for i := range objects {
		fmt.Fprintf(&yaml, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}}\n", i)
	}
	c := s.cluster(ClusterOptions{MaxConcurrentRequests: limit})
	set := Set{Bundle: bundleOf(t, yaml.String())}
	result, err := c.Apply(t.Context(), set, nil)
	if err != nil || len(result.Applied) != objects {
		t.Fatalf("applying: %v, %d applied", err, len(result.Applied))
	}
	if most != limit {
		t.Errorf("got %d requests at once, want %d", most, limit)
	}
	// The limit of concurrent requests is shared by all calls of one Cluster.
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if _, err := c.Apply(t.Context(), set, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if most != limit {
		t.Errorf("got %d requests at once with four callers, want %d", most, limit)
	}
}

// TestApplyFailures tests the effect of a rejected object on itself, on dependent objects, and on all other objects.
func TestApplyFailures(t *testing.T) {
	all := []string{accountPath, bindingPath, configPath, definitionPath, hookPath, managerPath, namespacePath,
		rolePath, servicePath, thingPath}
	denied := errorScript(http.StatusUnprocessableEntity, "Invalid", "spec.x: field is immutable")
	tests := map[string]struct {
		reason  string
		path    string
		script  func(http.ResponseWriter, *http.Request)
		want    string // reason of the failure
		class   Class
		waiting []string // paths
	}{
		"Workload": {
			reason:  "a failed workload holds up webhooks only",
			path:    managerPath,
			script:  denied,
			want:    ObjectRefused,
			class:   Terminal,
			waiting: []string{hookPath},
		},
		"Configuration": {reason: "workloads do not start with half of their configuration, others of the phase are " +
			"applied", path: configPath, script: denied,
			want: ObjectRefused, class: Terminal, waiting: []string{managerPath, hookPath}},
		"Binding": {
			reason:  "workloads do not start without rights",
			path:    bindingPath,
			script:  denied,
			want:    ObjectRefused,
			class:   Terminal,
			waiting: []string{managerPath, hookPath},
		},
		"Namespace": {
			reason:  "its objects wait, and what depends on them",
			path:    namespacePath,
			script:  denied,
			want:    ObjectRefused,
			class:   Terminal,
			waiting: []string{configPath, servicePath, managerPath, hookPath},
		},
		"Definition": {reason: "its custom resources wait, and so does the operator that needs it",
			path: definitionPath, script: denied, want: ObjectRefused, class: Terminal,
			waiting: []string{thingPath, managerPath, hookPath}},
		"DroppedVersion": {reason: "the former version of the module stays, with its configuration and rights",
			path: definitionPath, script: func(w http.ResponseWriter, _ *http.Request) {
				refuseFor(w, "status.storedVersions[0]", "FieldValueInvalid",
					`Invalid value: "v1": missing from spec.versions; v1 was previously a storage version`)
			}, want: StoredVersionDropped, class: Terminal,
			waiting: []string{accountPath, rolePath, configPath, servicePath, bindingPath, managerPath, hookPath,
				thingPath}},
		"CustomResource": {
			reason: "nothing depends on it",
			path:   thingPath,
			script: denied,
			want:   ObjectRefused,
			class:  Terminal,
		},
		"Malformed": {reason: "an object that does not fit its schema is answered with 500", path: managerPath,
			script: errorScript(http.StatusInternalServerError, "",
				"failed to create typed patch object (a/b; apps/v1, Kind=Deployment): .spec.x: field not declared "+
					"in schema"),
			want: ObjectRefused, class: Terminal, waiting: []string{hookPath}},
		"Webhook": {reason: "a webhook that cannot be called is the server's fault", path: thingPath,
			script: errorScript(http.StatusInternalServerError, "InternalError",
				`Internal error occurred: failed calling webhook "w": failed to call webhook: Post "https://w.mod.svc/?timeout=10s": context deadline exceeded`), want: WebhookFailed, class: Transient},
		"Denied": {
			reason:  "a webhook may change its mind",
			path:    configPath,
			script:  errorScript(http.StatusForbidden, "Forbidden", `admission webhook "w" denied the request: no`),
			want:    AdmissionRefused,
			class:   Transient,
			waiting: []string{managerPath, hookPath},
		},
		"DeniedAs401": {
			reason: "a webhook chooses the code, but cannot speak for the API server",
			path:   thingPath,
			script: errorScript(http.StatusUnauthorized, "Unauthorized", `admission webhook "w" denied the request: no`),
			want:   AdmissionRefused,
			class:  Transient,
		},
		"DeniedAs429": {
			reason: "nor can it throttle",
			path:   thingPath,
			script: errorScript(http.StatusTooManyRequests, "TooManyRequests",
				`admission webhook "w" denied the request: no`),
			want:  AdmissionRefused,
			class: Transient,
		},
		"Policy": {
			reason: "a policy of the cluster refuses",
			path:   thingPath,
			script: errorScript(http.StatusUnprocessableEntity, "Invalid",
				`things.example.com "default" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`),
			want:  AdmissionRefused,
			class: Transient,
		},
		"Conversion": {
			reason: "a conversion webhook cannot be called",
			path:   thingPath,
			script: errorScript(http.StatusInternalServerError, "",
				`conversion webhook for example.com/v1, Kind=Thing failed: Post "https://w": EOF`),
			want:  WebhookFailed,
			class: Transient,
		},
		"Storage": {
			reason: "slow storage is the server's fault",
			path:   thingPath,
			script: errorScript(http.StatusInternalServerError, "", "etcdserver: request timed out"),
			want:   ServerFault,
			class:  Transient,
		},
		"Timeout": {
			reason: "an object that takes too long is not a dead cluster",
			path:   thingPath,
			script: errorScript(http.StatusGatewayTimeout, "Timeout", "Timeout: request did not complete"),
			want:   ServerFault,
			class:  Transient,
		},
		"Conflict": {
			reason: "a conflict settles itself",
			path:   thingPath,
			script: errorScript(http.StatusConflict, "Conflict", "the object has been modified"),
			want:   ObjectConflict,
			class:  Transient,
		},
		"Forbidden": {reason: "a missing right names verb and resource", path: rolePath,
			script: errorScript(http.StatusForbidden, "Forbidden",
				`clusterroles "role" is forbidden: User "klm" cannot patch resource "clusterroles"`),
			want: RuntimeForbidden, class: Transient, waiting: []string{managerPath, hookPath}},
		"Escalation": {reason: "rights that we do not have cannot be granted", path: rolePath,
			script: errorScript(http.StatusForbidden, "Forbidden",
				`clusterroles "role" is forbidden: user "klm" (groups=[]) is attempting to grant RBAC permissions not currently held`), want: RuntimeForbidden, class: Transient, waiting: []string{managerPath, hookPath}},
		"Quota": {
			reason:  "admission is not authorisation",
			path:    configPath,
			script:  errorScript(http.StatusForbidden, "Forbidden", `configmaps "config" is forbidden: exceeded quota`),
			want:    ObjectRefused,
			class:   Terminal,
			waiting: []string{managerPath, hookPath},
		},
		"NoNamespace": {reason: "the namespace is missing", path: accountPath,
			script: func(w http.ResponseWriter, _ *http.Request) {
				writeError(w, 404, "NotFound", `namespaces "default" not found`, "default", "namespaces")
			}, want: NamespaceNotFound, class: Transient, waiting: []string{managerPath, hookPath}},
		"NamespaceGoes": {reason: "the namespace is being deleted", path: accountPath,
			script: func(w http.ResponseWriter, _ *http.Request) {
				writeJSON(w, 403, map[string]any{"kind": "Status", "reason": "Forbidden",
					"message": "because it is being terminated",
					"details": map[string]any{"causes": []any{map[string]any{"reason": "NamespaceTerminating"}}}})
			}, want: NamespaceTerminating, class: Transient, waiting: []string{managerPath, hookPath}},
		"KindUnknown": {
			reason:  "a version that the cluster does not have",
			path:    managerPath,
			script:  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", 404) },
			want:    KindUnknown,
			class:   Transient,
			waiting: []string{hookPath},
		},
		"Unavailable": {
			reason: "an API behind the API server is down",
			path:   thingPath,
			script: errorScript(http.StatusServiceUnavailable, "ServiceUnavailable", "the server is currently unable"),
			want:   ServerFault,
			class:  Transient,
		},
		"UnavailableAPIService": {
			reason: "the API server itself responds with a plain text",
			path:   thingPath,
			script: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "service unavailable", http.StatusServiceUnavailable)
			},
			want:  ServerFault,
			class: Transient,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.serveKind(thingKind)
			c := s.cluster(ClusterOptions{})
			set, done := Set{Bundle: bundleOf(t, module)}, Progress{}
			s.setScript("PATCH "+tc.path, tc.script)

			result, err := c.Apply(t.Context(), set, &done)
			if err != nil || len(result.Failed) != 1 {
				t.Fatalf("%s: got error %v and failures %v, want one failure", tc.reason, err, result.Failed)
			}
			failure := result.Failed[0]
			if failure.Reason() != tc.want || ClassOf(failure) != tc.class {
				t.Errorf("%s: got reason %s, class %d (%v)", tc.reason, failure.Reason(), ClassOf(failure), failure)
			}
			if !strings.Contains(failure.Error(), failure.Ref.String()) || failure.Message == "" ||
				advice[failure.Reason()] == "" {
				t.Errorf("message must name the object, the cause and what to do: %v", failure)
			}
			for _, w := range result.Waiting {
				if w.Reason != DependencyFailed || w.Message == "" {
					t.Errorf("got %+v, want a dependency that is named", w)
				}
			}
			if len(result.Waiting) != len(tc.waiting) {
				t.Errorf("%s: got waiting %v, want %v", tc.reason, result.Waiting, tc.waiting)
			}
			present := slices.DeleteFunc(slices.Clone(all),
				func(p string) bool { return p == tc.path || slices.Contains(tc.waiting, p) })
			if diff := cmp.Diff(slices.Sorted(slices.Values(present)), s.paths()); diff != "" {
				t.Errorf("%s: objects in the cluster (-want +got):\n%s", tc.reason, diff)
			}

			// The next Apply sends only the objects that have failed or are waiting.
			s.setScript("PATCH "+tc.path, nil)
			s.takeRequests()
			if result, err = c.Apply(t.Context(), set, &done); err != nil || !result.AllApplied() {
				t.Fatalf("healing: %v, %+v", err, result)
			}
			sent := slices.DeleteFunc(s.takeRequests(), func(line string) bool {
				return strings.HasPrefix(line,
					"GET ")
			})
			if diff := cmp.Diff(slices.Sorted(slices.Values(patches(append(tc.waiting, tc.path)...))),
				slices.Sorted(slices.Values(sent))); diff != "" {
				t.Errorf("healing sends (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAggregatedAPIDown checks that a plain 503 is a fault of one API only if the API server itself has sent it for a
// group that an APIService may serve.
func TestAggregatedAPIDown(t *testing.T) {
	for name, tc := range map[string]struct {
		path, body, want string
	}{
		"Aggregated":   {"/apis/metrics.example.com/v1/things/a", "service unavailable\n", ServerFault},
		"Discovery":    {"/apis/metrics.example.com/v1", "service unavailable\n", ServerFault},
		"BuiltinGroup": {"/apis/apps/v1/deployments/a", "service unavailable\n", RuntimeUnreachable},
		"CoreGroup":    {"/api/v1/nodes/a", "service unavailable\n", RuntimeUnreachable},
		"AllGroups":    {"/apis", "service unavailable\n", RuntimeUnreachable},
		"LoadBalancer": {"/apis/metrics.example.com/v1/things/a", "no healthy upstream", RuntimeUnreachable},
		"Proxy": {"/apis/metrics.example.com/v1/things/a", "<html>503 Service Temporarily Unavailable</html>",
			RuntimeUnreachable},
	} {
		r := request{path: tc.path}
		err := r.statusError(http.StatusServiceUnavailable, http.Header{}, []byte(tc.body))
		if err.Reason() != tc.want {
			t.Errorf("%s: got %s, want %s", name, err.Reason(), tc.want)
		}
	}
}

// TestApplyStops tests that errors that concern the whole cluster end the call at once.
func TestApplyStops(t *testing.T) {
	tests := map[string]struct {
		reason string
		script func(http.ResponseWriter, *http.Request)
		want   string
		class  Class
		after  time.Duration
	}{
		"Unauthorized": {
			reason: "the credential is not accepted",
			script: errorScript(401, "Unauthorized", "Unauthorized"),
			want:   RuntimeUnauthorized,
			class:  Unauthorized,
		},
		"Throttled": {reason: "429 is reported, not slept on", script: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			writeError(w, 429, "TooManyRequests", "too many requests", "", "")
		}, want: Throttled, class: Unreachable, after: 7 * time.Second},
		"ShuttingDown": {reason: "503 with Retry-After is a pause",
			script: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "1")
				writeError(w, 503, "ServiceUnavailable", "apiserver is shutting down", "", "")
			}, want: Throttled, class: Unreachable, after: time.Second},
		"LoadBalancer": {reason: "the answer is not from an API server",
			script: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "<html>bad gateway", http.StatusBadGateway)
			}, want: RuntimeUnreachable, class: Unreachable},
		"BuiltinGroup": {reason: "no aggregated API serves a built-in group",
			script: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "service unavailable", http.StatusServiceUnavailable)
			}, want: RuntimeUnreachable, class: Unreachable},
		"Redirect": {reason: "a redirect is not followed with our credential",
			script: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(307)
			}, want: RuntimeUnreachable, class: Unreachable},
		"NotJSON": {
			reason: "a success that is not JSON",
			script: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) },
			want:   RuntimeUnreachable,
			class:  Unreachable,
		},
		"Cut": {
			reason: "the connection is cut before the answer",
			script: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			want:   RuntimeUnreachable,
			class:  Unreachable,
		},
		"CutInAnswer": {reason: "the connection is cut in the middle of the answer",
			script: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = w.Write([]byte(`{"kind":`))
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}, want: RuntimeUnreachable, class: Unreachable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.serveKind(thingKind)
			c := s.cluster(ClusterOptions{MaxConcurrentRequests: 1})
			set, done := Set{Bundle: bundleOf(t, module)}, Progress{}
			s.setScript("PATCH "+configPath, tc.script)
			result, err := c.Apply(t.Context(), set, &done)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Reason() != tc.want || ClassOf(err) != tc.class || e.RetryAfter != tc.after {
				t.Fatalf("%s: got error %v, want reason %s", tc.reason, err, tc.want)
			}
			if e.Ref.Name != "config" {
				t.Errorf("error must name the object: %v", err)
			}
			sent := s.takeRequests()
			if sent[len(sent)-1] != "PATCH "+configPath {
				t.Errorf("%s: sent on after that: %v", tc.reason, sent)
			}
			s.setScript("PATCH "+configPath, nil)
			before := len(result.Applied)
			if result, err = c.Apply(t.Context(), set, &done); err != nil || !result.AllApplied() ||
				len(result.Unchanged) != before || len(result.Applied) != 10-before {
				t.Errorf("afterwards only what is left is sent: %v, %+v", err, result)
			}
		})
	}
}

func TestApplyNoAnswer(t *testing.T) {
	s := newServer(t)
	release := make(chan struct{})
	s.setScript("PATCH "+namespacePath, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	c := s.cluster(ClusterOptions{})
	c.timeout = 50*time.Millisecond - serverTimeoutGracePeriod
	_, err := c.Apply(t.Context(), Set{Bundle: bundleOf(t, module)}, nil)
	if !reasonIs(err, RuntimeUnreachable) || !strings.Contains(err.Error(), "no answer within") {
		t.Errorf("got %v, want RuntimeUnreachable that says how long it waited", err)
	}

	c, err = New(&rest.Config{Host: "http://127.0.0.1:1"}, nil, ClusterOptions{MaxConcurrentRequests: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Apply(t.Context(), Set{Bundle: bundleOf(t, module)}, nil); !reasonIs(err, RuntimeUnreachable) {
		t.Errorf("nobody listens: got %v", err)
	}
}

func TestApplyCanceled(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("shutting down")
	s.setScript("PATCH "+managerPath, func(_ http.ResponseWriter, r *http.Request) {
		cancel(why)
		<-r.Context().Done()
	})
	result, err := s.cluster(ClusterOptions{}).Apply(ctx, Set{Bundle: bundleOf(t, module)}, nil)
	if !errors.Is(err, why) || ClassOf(err) != Transient {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
	if len(result.Applied) != 7 {
		t.Errorf("got %d applied, want the 7 before it", len(result.Applied))
	}
}

// TestApplyIdleConnection tests that a server is not reported as unreachable if it closes an idle connection.
func TestApplyIdleConnection(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{MaxConcurrentRequests: 1})
	set := Set{Bundle: bundleOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")}
	for range 20 {
		if _, err := c.Apply(t.Context(), set, nil); err != nil {
			t.Fatal(err)
		}
		s.CloseClientConnections()
	}
}

func TestApplyExisting(t *testing.T) {
	s := newServer(t)
	s.serveKind(thingKind)
	c := s.cluster(ClusterOptions{})
	set := Set{Bundle: bundleOf(t, module)}
	if _, err := c.Apply(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	s.takeRequests()
	// The second Apply is called without Progress, as happens after a restart of the manager. The CRD already exists in
	// the cluster, so Apply must send no discovery request for the kind of its custom resource.
	result, err := c.Apply(t.Context(), set, nil)
	if err != nil || len(result.Applied) != 10 {
		t.Fatalf("applying again: %v, %+v", err, result)
	}
	if sent := s.takeRequests(); len(sent) != 10 {
		t.Errorf("got %d requests, want 10: %v", len(sent), sent)
	}
	// The test server does not serve version v2 of the CRD yet. After a PATCH of the custom resource has got 404, the
	// custom resource waits for its CRD, and Apply sends a discovery request before the next PATCH.
	set.Bundle = bundleOf(t, strings.ReplaceAll(strings.ReplaceAll(module, "example.com/v1", "example.com/v2"),
		"{name: v1,", "{name: v2,"))
	var done Progress
	for range 2 {
		if result, err = c.Apply(t.Context(), set, &done); err != nil || len(result.Waiting) != 1 ||
			result.Waiting[0].Reason != CRDNotEstablished {
			t.Fatalf("new version: %v, %+v", err, result)
		}
	}
	if sent := s.takeRequests(); !slices.Equal(sent[len(sent)-2:],
		[]string{"GET /apis/example.com/v2", "GET " + definitionPath}) {
		t.Errorf("got last requests %q, want discovery, and why it is not served", sent[len(sent)-2:])
	}
	s.change(definitionPath, func(o map[string]any) {
		o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "NamesAccepted", "status": "False",
			"reason": "PluralConflict", "message": `"things" is already in use`},
			map[string]any{"type": "Established", "status": "False"}}}
	})
	if result, err = c.Apply(t.Context(), set, &done); err != nil || len(result.Waiting) != 1 ||
		!strings.Contains(result.Waiting[0].Message, `its names are not accepted: "things" is already in use`) {
		t.Errorf("never established: %v, %+v", err, result.Waiting)
	}
}

func TestApplyOntoTerminating(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	set, done := Set{Bundle: bundleOf(t, module)}, Progress{}
	if _, err := c.Apply(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	s.change(namespacePath, func(o map[string]any) {
		o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T03:04:05Z"
		o["metadata"].(map[string]any)["finalizers"] = []any{"kubernetes"}
	})
	s.takeRequests()
	result, err := c.Apply(t.Context(), set, &done)
	if err != nil || len(result.Failed) != 0 {
		t.Fatalf("applying: %v, %+v", err, result)
	}
	i := slices.IndexFunc(result.Waiting, func(w Waiting) bool { return w.Ref.Kind == "Namespace" })
	if i < 0 || result.Waiting[i].Reason != ObjectTerminating ||
		!strings.Contains(result.Waiting[i].Message, "kubernetes") {
		t.Errorf("got %v, want the namespace with its finalizer", result.Waiting)
	}
	if sent := s.takeRequests(); slices.Contains(sent, "PATCH "+configPath) || slices.Contains(sent,
		"PATCH "+managerPath) {
		t.Errorf("nothing may go into a namespace that goes: %v", sent)
	}
}

func TestApplyBadIdentity(t *testing.T) {
	s := newServer(t)
	result, err := s.cluster(ClusterOptions{}).Apply(t.Context(), Set{Bundle: bundleOf(t, `
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ".."}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: default}}
`)}, nil)
	if err != nil || len(result.Failed) != 2 || result.Failed[0].Reason() != ObjectRefused ||
		result.Failed[1].Reason() != ObjectRefused {
		t.Fatalf("got %v, %+v, want two refusals", err, result)
	}
	if diff := cmp.Diff(patches("/api/v1/namespaces/default/configmaps/b"), s.takeRequests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestApplyVersionOfDefinition tests a custom resource in a version that its CRD does not define. Such a custom
// resource must be in Result.Failed at once, and must not wait for the CRD, because the CRD will never serve the
// version.
func TestApplyVersionOfDefinition(t *testing.T) {
	s := newServer(t)
	set := Set{Bundle: bundleOf(t, strings.ReplaceAll(module, "apiVersion: example.com/v1",
		"apiVersion: example.com/v3"))}
	result, err := s.cluster(ClusterOptions{}).Apply(t.Context(), set, nil)
	if err != nil || len(result.Failed) != 1 || result.Failed[0].Reason() != KindUnknown ||
		len(result.Waiting) != 0 || len(result.Applied) != 9 {
		t.Errorf("got %v, %+v, want the custom resource to fail alone", err, result)
	}
}

func TestObserve(t *testing.T) {
	s := newServer(t)
	var seen atomic.Int32
	c := s.cluster(ClusterOptions{Observe: func(method string, code int, took time.Duration) {
		if method == http.MethodPatch && code == http.StatusCreated && took > 0 {
			seen.Add(1)
		}
	}})
	if _, err := c.Apply(t.Context(), Set{Bundle: bundleOf(
		t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")}, nil); err != nil || seen.Load() != 1 {
		t.Errorf("got %d requests observed and error %v, want 1", seen.Load(), err)
	}
}
