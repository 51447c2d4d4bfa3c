package apply

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

func TestFindDrift(t *testing.T) {
	s, c, _ := installed(t)
	set := Set{Bundle: bundleOf(t, module)}
	var done Progress
	// After a restart of the manager, Progress is empty. FindDrift compares the objects by value, and records the
	// objects without drift in Progress.
	for pass, accept := range []string{jsonType, metadataType} {
		drifted, err := c.FindDrift(t.Context(), set, &done)
		if err != nil || len(drifted) != 0 {
			t.Fatalf("pass %d: %v, %v", pass, drifted, err)
		}
		sent := s.takeRequests()
		for _, line := range sent {
			if !strings.HasPrefix(line, "GET ") {
				t.Errorf("pass %d wrote: %s", pass, line)
			}
			if s.accepts[line] != accept {
				t.Errorf("pass %d asked for %q, want %q", pass, s.accepts[line], accept)
			}
		}
		if len(sent) != 10 {
			t.Errorf("pass %d: got %d requests, want 10", pass, len(sent))
		}
	}
	if result, err := c.Apply(t.Context(), set, &done); err != nil || len(result.Unchanged) != 10 {
		t.Errorf("what was found to be right is not applied again: %v, %+v", err, result)
	}
	s.takeRequests()

	// Other clients change and delete objects.
	s.change(configPath, func(o map[string]any) {
		o["data"] = map[string]any{"a": "changed"}
		o["metadata"].(map[string]any)["managedFields"] = []any{
			map[string]any{"manager": DefaultOwner, "operation": "Apply", "fieldsV1": map[string]any{}},
			map[string]any{"manager": "kubectl-edit", "operation": "Update",
				"fieldsV1": map[string]any{"f:data": map[string]any{"f:a": map[string]any{}}}},
		}
	})
	s.change(managerPath, func(o map[string]any) { o["status"] = map[string]any{"replicas": 1} })
	s.mu.Lock()
	delete(s.stored, accountPath)
	s.mu.Unlock()
	s.change(rolePath, func(o map[string]any) {
		o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T03:04:05Z"
	})
	want := []Drifted{
		{
			Ref:      Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"},
			Fields:   []string{"data"},
			Managers: []string{"kubectl-edit"},
		},
		{Ref: Ref{Version: "v1", Kind: "ServiceAccount", Namespace: "default", Name: "account"}, Missing: true},
		{Ref: Ref{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "role"}, Missing: true},
	}
	one, err := c.FindDrift(t.Context(), set, &done, want[0].Ref)
	if diff := cmp.Diff(want[:1], one); diff != "" || err != nil {
		t.Errorf("one object (-want +got):\n%s%v", diff, err)
	}
	if sent := s.takeRequests(); len(sent) != 1 {
		t.Errorf("got requests %v, want one", sent)
	}
	drifted, err := c.FindDrift(t.Context(), set, &done)
	if diff := cmp.Diff(want, drifted); diff != "" || err != nil {
		t.Errorf("drifted (-want +got):\n%s%v", diff, err)
	}
	if text := drifted[0].String(); text != "ConfigMap mod/config differs in data, changed by kubectl-edit" {
		t.Errorf("got %q", text)
	}
	if text := drifted[1].String(); text != "ServiceAccount default/account is missing" {
		t.Errorf("got %q", text)
	}

	s.mu.Lock()
	delete(s.stored, rolePath)
	s.mu.Unlock()
	s.takeRequests()
	if result, err := c.Apply(t.Context(), set, &done); err != nil || !result.AllApplied() {
		t.Errorf("healing: %v, %+v", err, result)
	}
	checkPhases(t, [][]string{patches(accountPath, configPath, rolePath)}, s.takeRequests())
	if drifted, err := c.FindDrift(t.Context(), set, &done); err != nil || len(drifted) != 0 {
		t.Errorf("after healing: %v, %v", drifted, err)
	}
}

func TestFindDriftErrors(t *testing.T) {
	s, c, _ := installed(t)
	set := Set{Bundle: bundleOf(t, module)}
	s.setScript("GET "+configPath, errorScript(http.StatusForbidden, "Forbidden",
		`configmaps "config" is forbidden: User "x" cannot get`))
	s.mu.Lock()
	delete(s.stored, rolePath)
	s.mu.Unlock()
	drifted, err := c.FindDrift(t.Context(), set, nil)
	if !reasonIs(err, RuntimeForbidden) || len(drifted) != 1 {
		t.Errorf("got %v and %v, want what could be seen and an error", drifted, err)
	}
	s.setScript("GET "+configPath, errorScript(http.StatusUnauthorized, "Unauthorized", "Unauthorized"))
	if drifted, err = c.FindDrift(t.Context(), set, nil); ClassOf(err) != Unauthorized || drifted != nil {
		t.Errorf("got %v and %v, want only the error", drifted, err)
	}
}

// TestCompareOwned compares objects with the owned fields that real API servers have recorded.
func TestCompareOwned(t *testing.T) {
	const service = `{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:targetPort":{}},"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}},"f:selector":{}}}`
	const servicePorts = `spec: {ports: [{name: tcp, port: 53, targetPort: 53}, {name: udp, port: 53, protocol: UDP}], selector: {a: b}}`
	const servicePortsLive = `spec: {clusterIP: 10.0.0.1, ports: [{name: tcp, port: 53, protocol: TCP, targetPort: 53}, {name: udp, port: 53, protocol: UDP, targetPort: 53}], selector: {a: b}}`
	tests := map[string]struct {
		reason       string
		fields       string
		wanted, live string // live "": only the field ownership is compared
		zeros        bool
		want         []string
	}{
		"Defaults": {
			reason: "additions of the API server are no drift, defaulted keys are found",
			fields: service,
			wanted: servicePorts,
			live:   servicePortsLive,
		},
		"Value": {reason: "another value", fields: service, wanted: servicePorts,
			live: strings.Replace(servicePortsLive, "name: udp", "name: other", 1),
			want: []string{"spec.ports[port=53,protocol=UDP].name"}},
		"ItemRemoved": {reason: "an item that was removed", fields: service, wanted: servicePorts,
			live: `spec: {ports: [{name: udp, port: 53, protocol: UDP}], selector: {a: b}}`,
			want: []string{"spec.ports[port=53,protocol=TCP]"}},
		"ItemTaken": {reason: "an item that is owned by another manager now",
			fields: strings.Replace(
				service, `"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}`,
				`"v:1":{}`, 1), wanted: servicePorts,
			want: []string{"spec.ports", "spec.ports[1]"}},
		"FieldTaken": {
			reason: "a field that another manager has set",
			fields: strings.Replace(service, `,"f:selector":{}`, "", 1),
			wanted: servicePorts,
			want:   []string{"spec.selector"},
		},
		"FieldBefore": {
			reason: "a field that we had and do not want any more",
			fields: strings.Replace(service, `"f:selector"`, `"f:type":{},"f:selector"`, 1),
			wanted: servicePorts,
			live:   servicePortsLive,
			want:   []string{"spec.type"},
		},
		"NothingOurs": {
			reason: "an object that we never applied",
			fields: ``,
			wanted: `{metadata: {labels: {a: b}}, spec: {x: 1}}`,
			live:   `{metadata: {labels: {a: b}}, spec: {x: 1}}`,
			want:   []string{"metadata", "spec"},
		},
		"Quantity": {reason: "the same quantity in another form",
			fields: `{"f:spec":{"f:limits":{"f:cpu":{},"f:memory":{}}}}`,
			wanted: `spec: {limits: {cpu: 1000m, memory: 1024Mi}}`,
			live:   `spec: {limits: {cpu: "1", memory: 1Gi}}`},
		"Atomic": {
			reason: "a list owned as a whole",
			fields: `{"f:spec":{"f:args":{}}}`,
			wanted: `spec: {args: [a, b]}`,
			live:   `spec: {args: [b, a]}`,
			want:   []string{"spec.args"},
		},
		"AtomicDefaults": {
			reason: "a list owned as a whole whose items have got defaults",
			fields: `{"f:rules":{}}`,
			wanted: `rules: [{operations: [CREATE]}]`,
			live:   `rules: [{operations: [CREATE], scope: "*"}]`,
		},
		"Set": {
			reason: "a list whose items are owned by value",
			fields: `{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}`,
			wanted: `metadata: {finalizers: [a]}`,
			live:   `metadata: {finalizers: [b, a]}`,
		},
		"SetGone": {
			reason: "an item by value that is gone",
			fields: `{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}`,
			wanted: `metadata: {finalizers: [a]}`,
			live:   `metadata: {finalizers: [b]}`,
			want:   []string{`metadata.finalizers["a"]`},
		},
		"Nulls": {
			reason: "an empty value cannot drift",
			fields: `{"f:spec":{"f:a":{}}}`,
			wanted: `{metadata: {creationTimestamp: null, labels: {}}, spec: {a: 1, b: {}, c: [], d: null}}`,
			live:   `spec: {a: 1}`,
		},
		"Zero": {
			reason: "a desired zero value that is missing",
			fields: `{"f:spec":{"f:a":{}}}`,
			wanted: `spec: {a: 1, b: false, c: "", d: 0}`,
			live:   `spec: {a: 1}`,
		},
		"ZeroSet": {
			reason: "a desired zero value that is set",
			fields: `{"f:spec":{"f:a":{}}}`,
			wanted: `spec: {a: 1, b: false}`,
			live:   `spec: {a: 1, b: true}`,
			want:   []string{"spec.b"},
		},
		"ZeroTaken": {
			reason: "a change is known to be there",
			fields: `{"f:spec":{"f:a":{}}}`,
			wanted: `spec: {a: 1, b: false}`,
			zeros:  true,
			want:   []string{"spec.b"},
		},
		"Status": {
			reason: "status is not ours",
			fields: `{"f:spec":{"f:a":{}}}`,
			wanted: `{spec: {a: 1}, status: {x: 1}}`,
			live:   `{spec: {a: 1}, status: {x: 2}}`,
		},
		"StringData": {
			reason: "stringData is compared with the encoded data",
			fields: `{"f:stringData":{}}`,
			wanted: `{stringData: {a: hello}}`,
			live:   `{kind: Secret, data: {a: aGVsbG8=}}`,
		},
		"StringDataOff": {
			reason: "a Secret's text that was changed or removed",
			fields: `{"f:stringData":{}}`,
			wanted: `{stringData: {a: hello, b: x}}`,
			live:   `{kind: Secret, data: {a: eA==}}`,
			want:   []string{"stringData.a", "stringData.b"},
		},
		"NotAMap": {
			reason: "a value of another shape",
			fields: `{"f:spec":{"f:a":{"f:b":{}}}}`,
			wanted: `spec: {a: {b: 1}}`,
			live:   `spec: {a: x}`,
			want:   []string{"spec.a.b"},
		},
		"Many": {
			reason: "ten fields are enough",
			fields: `{}`,
			wanted: `{data: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1, i: 1, j: 1, k: 1, l: 1}`,
			want:   []string{"b", "c", "d", "data", "e", "f", "g", "h", "i", "j"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := unownedOrChangedFields(parseYAML(t, tc.wanted), parseYAML(t, tc.live), []byte(tc.fields), nil,
				tc.zeros)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOtherOwners(t *testing.T) {
	m := &metadata{ManagedFields: []managedFields{
		{Manager: "ours", Operation: "Apply", FieldsV1: []byte(`{"f:spec":{}}`)},
		{
			Manager:     "scaler",
			Operation:   "Update",
			Subresource: "scale",
			FieldsV1:    []byte(`{"f:spec":{"f:replicas":{}}}`),
		},
		{
			Manager:   "editor",
			Operation: "Update",
			FieldsV1:  []byte(`{"f:spec":{"f:template":{"f:containers":{"k:{\"name\":\"a.b\"}":{"f:image":{}}}}}}`),
		},
		{Manager: "other", Operation: "Update", FieldsV1: []byte(`{"f:status":{}}`)},
		{Manager: "broken", Operation: "Update", FieldsV1: []byte(`[`)},
	}}
	got := otherManagersOf([]string{"spec.replicas", "spec.template.containers[name=a.b].image"}, m, "ours")
	if diff := cmp.Diff([]string{"editor", "scaler"}, got); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// FuzzCompareOwned tests that no response of an API server makes the process panic.
func FuzzCompareOwned(f *testing.F) {
	f.Add(`{"f:spec":{"f:ports":{"k:{\"port\":53}":{".":{}},"v:1":{}}}}`,
		`{"spec":{"ports":[{"port":53},1]}}`, `{"spec":{"ports":null}}`)
	f.Add(`{"f:a":{"k:[":{},"k:null":{},"v:":{}}}`, `{"a":[{},[],null,"x"]}`, `{"a":{"b":[]}}`)
	f.Fuzz(func(t *testing.T, fields, wanted, live string) {
		var w, l map[string]any
		if utiljson.Unmarshal([]byte(wanted), &w) != nil || utiljson.Unmarshal([]byte(live), &l) != nil {
			return
		}
		unownedOrChangedFields(w, l, []byte(fields), nil, false)
		otherManagersOf(unownedOrChangedFields(w, nil, []byte(fields), nil, true),
			&metadata{ManagedFields: []managedFields{{FieldsV1: []byte(fields)}}}, "x")
	})
}

// parseYAML parses YAML to the same types as a response of an API server.
func parseYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFindDriftOfAnotherOwner applies one Set and calls FindDrift with another Set. FindDrift must report what differs
// from the Set of the call, not what differs from the applied Set.
func TestFindDriftOfAnotherOwner(t *testing.T) {
	s, c, _ := installed(t)
	var done Progress
	set := Set{Bundle: bundleOf(t, module)}
	if _, err := c.Apply(t.Context(), set, &done); err != nil {
		t.Fatal(err)
	}
	s.takeRequests()
	set.Bundle = bundleOf(t, strings.ReplaceAll(module, `a: "1"`, `a: "2"`))
	drifted, err := c.FindDrift(t.Context(), set, &done)
	if err != nil || len(drifted) != 1 || drifted[0].Fields[0] != "data.a" {
		t.Errorf("got %v, %v, want the changed field", drifted, err)
	}
	set.Overlay = render.Overlay{Labels: map[string]string{"new": "1"}}
	if drifted, err = c.FindDrift(t.Context(), set, &done); err != nil || len(drifted) != 10 {
		t.Errorf("got %d drifted, %v, want all", len(drifted), err)
	}
}
