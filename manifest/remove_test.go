package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

var crdRef = apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	Name: "orders.shop.example.com"}

func TestHolderOf(t *testing.T) {
	newer := orderRef
	newer.Version = "v2"
	cases := map[string]struct {
		reason string
		ref    apply.Ref
		others map[string]*inventory
		want   string
	}{
		"Nobody": {"", configRef, nil, ""},
		"Object": {"in any version", orderRef, map[string]*inventory{"n/b": {Objects: []apply.Ref{newer}}}, "n/b"},
		"First": {"the message stays the same", configRef, map[string]*inventory{
			"n/c": {Objects: []apply.Ref{configRef}},
			"n/b": {Objects: []apply.Ref{homeRef, configRef}}}, "n/b"},
		"Other": {"", configRef, map[string]*inventory{"n/b": {Objects: []apply.Ref{homeRef, crdRef}}}, ""},
		"CustomResource": {"its CRD is needed, too", crdRef,
			map[string]*inventory{"n/b": {CustomResources: []apply.Ref{orderRef}}}, "n/b"},
		"OtherGroup": {"", crdRef, map[string]*inventory{"n/b": {Objects: []apply.Ref{configRef, homeRef}}}, ""},
	}
	for name, c := range cases {
		if got := holderOf(c.others, c.ref); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", name, c.reason, got, c.want)
		}
	}
}

// TestInventoryFlags checks the flags of objects in the inventory before and after they are applied.
func TestInventoryFlags(t *testing.T) {
	flagged := func(ref apply.Ref, pending, adopted bool) apply.Ref {
		ref.Pending, ref.Adopted = pending, adopted
		return ref
	}
	recorded := []apply.Ref{homeRef, flagged(extraRef, false, true)}
	before := recordedOrPending([]apply.Ref{homeRef, extraRef, configRef, crdRef, orderRef}, recorded)
	want := []apply.Ref{homeRef, flagged(extraRef, false, true), flagged(configRef, true, false),
		flagged(crdRef, true, false), flagged(orderRef, true, false)}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Fatalf("before (-want +got):\n%s", diff)
	}
	result := apply.Result{
		Applied: []apply.Ref{homeRef, extraRef, configRef, crdRef}, // and orderRef waits
		Created: []apply.Ref{extraRef, crdRef},
		Existing: []apply.Existing{{Ref: flagged(configRef, true, true), Met: apply.MetAdopted,
			Managers: []string{"kubectl"}}},
	}
	want = []apply.Ref{homeRef, extraRef, flagged(configRef, false, true), crdRef, flagged(orderRef, true, false)}
	if diff := cmp.Diff(want, withFlagsAfter(before, &result)); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	messages := []string{"ConfigMap n/a existed before the installation (field managers kubectl): " +
		"UninstallChart will not delete it"}
	if diff := cmp.Diff(messages, takenOverMessages(&result)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// TestLeftCustomResources checks that the inventory still has a custom resource that an upgrade has left in the
// cluster, if the release also has its CRD. Otherwise UninstallChart would delete the custom resource with its CRD.
func TestLeftCustomResources(t *testing.T) {
	now := inventory{Objects: []apply.Ref{crdRef, homeRef}}
	got := now.withLeftCustomResources([]apply.Ref{configRef, orderRef})
	want := orderRef
	want.Adopted = true
	if diff := cmp.Diff([]apply.Ref{want}, got.CustomResources); diff != "" {
		t.Error(diff)
	}
	if got := (inventory{}).withLeftCustomResources([]apply.Ref{orderRef}); len(got.CustomResources) > 0 {
		t.Errorf("without a CRD: %v", got.CustomResources)
	}
}

// configMaps is an API server that has only ConfigMaps. An apply request replaces the whole ConfigMap.
type configMaps struct {
	mu       sync.Mutex
	stored   map[string]map[string]any // by path; guarded by mu
	managers map[string]bool           // the field managers of all requests; guarded by mu
	writes   int                       // guarded by mu
}

func (s *configMaps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	path, name := r.URL.Path, filepath.Base(r.URL.Path)
	existing := s.stored[path]
	switch {
	case r.Method == http.MethodPatch:
		var o map[string]any
		_ = json.NewDecoder(r.Body).Decode(&o)
		version, _, _ := unstructured.NestedString(o, "metadata", "resourceVersion")
		if existing != nil && version == "1" { // the request may only create
			answer(http.StatusConflict, map[string]any{"kind": "Status", "reason": "Conflict"})
			return
		}
		manager := r.URL.Query().Get("fieldManager")
		s.managers[manager] = true
		s.store(path, o, manager)
		answer(http.StatusOK, o)
	case r.Method == http.MethodGet && name == "configmaps":
		answer(http.StatusOK, map[string]any{"kind": "List", "metadata": map[string]any{"resourceVersion": "1"}})
	case existing == nil:
		answer(http.StatusNotFound, map[string]any{"kind": "Status", "reason": "NotFound",
			"details": map[string]any{"kind": "configmaps", "name": name}})
	case r.Method == http.MethodDelete:
		delete(s.stored, path)
		answer(http.StatusOK, map[string]any{"kind": "Status", "status": "Success"})
	default:
		answer(http.StatusOK, existing)
	}
}

// store stores a ConfigMap that a field manager has applied.
func (s *configMaps) store(path string, o map[string]any, manager string) {
	s.writes++
	metadata := o["metadata"].(map[string]any)
	fields := map[string]any{"f:data": map[string]any{}} // a field without children is owned as a whole
	if annotations, ok := metadata["annotations"]; ok && annotations != nil {
		fields["f:metadata"] = map[string]any{"f:annotations": map[string]any{}}
	}
	metadata["uid"], metadata["resourceVersion"] = "uid-of-"+path, fmt.Sprint(100+s.writes)
	metadata["managedFields"] = []any{map[string]any{"manager": manager, "operation": "Apply", "fieldsV1": fields}}
	s.stored[path] = o
}

// TestFieldManager checks that all requests for a release have the field manager of this package, and that an object of
// a module, which another field manager has applied, existed before the release: the object is not deleted with the
// release. The release has the objects created, theirs and last, and last is a custom resource.
func TestFieldManager(t *testing.T) {
	configMap := func(name string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {a: b}}\n", name)
	}
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(configMap("created")+"---\n"+configMap("theirs")), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &configMaps{stored: map[string]map[string]any{}, managers: map[string]bool{}}
	const theirs = "/api/v1/namespaces/default/configmaps/theirs"
	s.store(theirs, map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "theirs", "namespace": "default"}}, apply.DefaultOwner)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	last := &unstructured.Unstructured{}
	last.SetAPIVersion("v1")
	last.SetKind("ConfigMap")
	last.SetName("last")
	info := InstallInfo{ChartInfo: ChartInfo{Path: file, ReleaseName: "r"},
		ResourceInfo: ResourceInfo{CustomResources: []*unstructured.Unstructured{last}},
		ClusterInfo:  ClusterInfo{Config: &rest.Config{Host: server.URL}}}

	status, err := InstallOrUpgradeChart(t.Context(), info)
	if err != nil || !status.Ready || len(status.TakenOver) != 1 ||
		!strings.Contains(status.TakenOver[0], "theirs existed before the installation") {
		t.Fatalf("install: got %+v, %v", status, err)
	}
	if got := len(s.stored); got != 4 { // with the inventory
		t.Errorf("install: %d objects are stored, want 4", got)
	}
	if status, err = ConsistencyCheck(t.Context(), info); err != nil || !status.Ready {
		t.Errorf("check: got %+v, %v", status, err)
	}
	if status, err = UninstallChart(t.Context(), info); err != nil || !status.Ready {
		t.Errorf("uninstall: got %+v, %v", status, err)
	}
	if got := slices.Collect(maps.Keys(s.stored)); !slices.Equal(got, []string{theirs}) {
		t.Errorf("uninstall: %v are left, want %s", got, theirs)
	}
	if got := slices.Sorted(maps.Keys(s.managers)); !slices.Equal(got, []string{FieldManager}) {
		t.Errorf("the field managers are %v, want %s", got, FieldManager)
	}
}
