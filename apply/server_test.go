package apply

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// server is a small API server for tests. server stores applied objects, records every request, and returns scripted
// errors.
type server struct {
	*httptest.Server
	t testing.TB

	mu sync.Mutex
	// requests are the received requests in their order, for example "PATCH /api/v1/namespaces/a/configmaps/b".
	requests []string
	stored   map[string]map[string]any                           // by path
	serves   map[string]bool                                     // "example.com/v1 Thing things": custom kinds
	scripts  map[string]func(http.ResponseWriter, *http.Request) // by "METHOD path"; answers instead of the server
	before   func(*http.Request)                                 // called without lock
	onMerge  func(body string)                                   // called for each merge patch
	version  int
	accepts  map[string]string // last Accept header by request line
	bodies   map[string]string // last body by request line
	// held has the name of the other field manager for each field that another field manager owns. The first key of
	// held is the URL path of the object, and the second key is the path of the field (".spec.replicas"). The server
	// rejects a PATCH without force if the PATCH contains a field that has an entry in held.
	held map[string]map[string]string
	// unserved are versions such as "example.com/v1". The server rejects an apply PATCH of an object whose managed
	// fields name one of them.
	unserved []string
}

func newServer(t testing.TB) *server {
	s := &server{t: t, stored: map[string]map[string]any{}, serves: map[string]bool{},
		scripts: map[string]func(http.ResponseWriter, *http.Request){},
		accepts: map[string]string{}, bodies: map[string]string{}, held: map[string]map[string]string{}, version: 100}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// cluster returns a Cluster that sends its requests to this server. The result of a test does not depend on the speed
// of the machine: the default of RequestTimeout is 10 minutes, and the clock of the Cluster stands still.
func (s *server) cluster(opts ClusterOptions) *Cluster {
	s.t.Helper()
	opts.RequestTimeout = cmp.Or(opts.RequestTimeout, 10*time.Minute)
	c, err := New(&rest.Config{Host: s.URL}, nil, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.http.CloseIdleConnections)
	now := time.Now()
	c.now = func() time.Time { return now } // what the Cluster has cached does not expire
	return c
}

// setScript sets the script that responds from now on to requests with this method and path. If the script is nil,
// setScript removes the current script.
func (s *server) setScript(line string, script func(http.ResponseWriter, *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if script == nil {
		delete(s.scripts, line)
		return
	}
	s.scripts[line] = script
}

// takeRequests returns the requests that the server has received since the previous call of takeRequests.
func (s *server) takeRequests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.requests
	s.requests = nil
	return taken
}

// serveKind makes the server serve a custom kind.
func (s *server) serveKind(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serves[kind] = true
}

// change changes a stored object as another field manager would.
func (s *server) change(path string, edit func(map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s.stored[path])
	s.version++
	s.stored[path]["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.version)
}

func (s *server) paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.stored))
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	line := r.Method + " " + r.URL.Path
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, line)
	s.accepts[line] = r.Header.Get("Accept")
	s.bodies[line] = string(body)
	script, before := s.scripts[line], s.before
	s.mu.Unlock()
	if before != nil {
		before(r)
	}
	if script != nil {
		script(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.discovery(w, r.URL.Path):
	case !s.isServed(r.URL.Path):
		http.Error(w, "404 page not found", http.StatusNotFound)
	case r.Method == http.MethodPatch:
		s.patch(w, r, body)
	case r.Method == http.MethodPost:
		var o map[string]any
		_ = json.Unmarshal(body, &o)
		path := r.URL.Path + "/" + o["metadata"].(map[string]any)["name"].(string)
		if s.stored[path] != nil {
			writeError(w, http.StatusConflict, "AlreadyExists", "it is there", "", "")
			return
		}
		s.store(path, o, "Update", r.URL.Query().Get("fieldManager"))
		s.writeObject(w, http.StatusCreated, r, s.stored[path])
	case r.Method == http.MethodDelete:
		s.remove(w, r)
	case s.stored[r.URL.Path] != nil:
		s.writeObject(w, http.StatusOK, r, s.stored[r.URL.Path])
	case s.isCollection(r.URL.Path):
		s.list(w, r)
	default:
		writeError(w, http.StatusNotFound, "NotFound", "not found", "x", r.URL.Path[strings.LastIndex(r.URL.Path,
			"/")+1:])
	}
}

// discovery responds to the discovery paths /apis/group and /apis/group/version.
func (s *server) discovery(w http.ResponseWriter, path string) bool {
	parts := strings.Split(strings.TrimPrefix(path, "/apis/"), "/")
	if !strings.HasPrefix(path, "/apis/") || len(parts) > 2 {
		return false
	}
	versions := []any{}
	resources := []any{}
	for _, kind := range slices.Sorted(maps.Keys(s.serves)) {
		words := strings.Fields(kind)
		group, version, _ := strings.Cut(words[0], "/")
		if group == parts[0] {
			versions = append(versions, map[string]any{"version": version, "groupVersion": words[0]})
			if len(parts) == 2 && version == parts[1] {
				resources = append(resources, map[string]any{"name": words[2], "kind": words[1],
					"namespaced": len(words) < 4},
					map[string]any{"name": words[2] + "/status", "kind": words[1], "namespaced": len(words) < 4})
			}
		}
	}
	switch {
	case len(versions) == 0, len(parts) == 2 && len(resources) == 0:
		http.Error(w, "404 page not found", http.StatusNotFound)
	case len(parts) == 1:
		writeJSON(w, http.StatusOK, map[string]any{"kind": "APIGroup", "name": parts[0], "versions": versions,
			"preferredVersion": versions[0]})
	default:
		writeJSON(w, http.StatusOK, map[string]any{"kind": "APIResourceList", "groupVersion": parts[0] + "/" + parts[1],
			"resources": resources})
	}
	return true
}

// isServed reports whether a URL path addresses objects of a kind that the test server serves.
func (s *server) isServed(path string) bool {
	for gk, b := range builtins {
		prefix := "/api/"
		if gk.Group != "" {
			prefix = "/apis/" + gk.Group + "/"
		}
		if strings.HasPrefix(path, prefix) && slices.Contains(strings.Split(path, "/"), b.plural) {
			return true
		}
	}
	for kind := range s.serves {
		words := strings.Fields(kind)
		if strings.HasPrefix(path, "/apis/"+words[0]+"/") && slices.Contains(strings.Split(path, "/"), words[2]) {
			return true
		}
	}
	return false
}

func (s *server) isCollection(path string) bool {
	last := path[strings.LastIndex(path, "/")+1:]
	for _, b := range builtins {
		if b.plural == last {
			return true
		}
	}
	for kind := range s.serves {
		if strings.Fields(kind)[2] == last {
			return true
		}
	}
	return false
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	items := []any{}
	parts := strings.Split(r.URL.Path, "/")
	for _, path := range slices.Sorted(maps.Keys(s.stored)) {
		have := strings.Split(path, "/")
		sameKind := have[len(have)-2] == parts[len(parts)-1] && strings.Join(have[:4], "/") == strings.Join(
			append(slices.Clone(parts), "", "")[:4], "/")
		if strings.HasPrefix(path, r.URL.Path+"/") || sameKind {
			items = append(items, s.stored[path])
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"kind": "List", "items": items,
		"metadata": map[string]any{"resourceVersion": "1"}})
}

func (s *server) patch(w http.ResponseWriter, r *http.Request, body []byte) {
	var o map[string]any
	if err := json.Unmarshal(body, &o); err != nil {
		writeError(w, http.StatusBadRequest, "BadRequest", err.Error(), "", "")
		return
	}
	code := http.StatusOK
	if s.stored[r.URL.Path] == nil {
		code = http.StatusCreated
	}
	if !s.checkPatch(w, r, o) {
		return
	}
	if old := s.stored[r.URL.Path]; old != nil && o["kind"] == nil { // a merge patch
		o["kind"], o["apiVersion"] = old["kind"], old["apiVersion"]
		o["metadata"].(map[string]any)["name"] = old["metadata"].(map[string]any)["name"]
	}
	if s.onMerge != nil && r.Header.Get("Content-Type") == string(types.MergePatchType) {
		s.onMerge(string(body))
	}
	sent := o["metadata"].(map[string]any)["managedFields"]
	s.store(r.URL.Path, o, "Apply", r.URL.Query().Get("fieldManager"))
	if sent != nil {
		s.stored[r.URL.Path]["metadata"].(map[string]any)["managedFields"] = sent
	}
	s.writeObject(w, code, r, s.stored[r.URL.Path])
}

// checkPatch checks the preconditions of a PATCH and its conflicts with the fields of other managers. If checkPatch
// rejects the PATCH, it writes the error response of the API server to w.
func (s *server) checkPatch(w http.ResponseWriter, r *http.Request, o map[string]any) bool {
	m, old := o["metadata"].(map[string]any), s.stored[r.URL.Path]
	version, uid := m["resourceVersion"], m["uid"]
	delete(m, "resourceVersion")
	delete(m, "uid")
	switch {
	case old == nil && uid != nil, old != nil && version != nil &&
		version != old["metadata"].(map[string]any)["resourceVersion"]:
		writeError(w, http.StatusConflict, "Conflict", "the object has been modified", "x", "things")
		return false
	case old != nil && uid != nil && uid != old["metadata"].(map[string]any)["uid"]:
		refuseFor(w, "metadata.uid", "FieldValueInvalid", `Invalid value: "x": field is immutable`)
		return false
	}
	if version := s.unservedOf(old); version != "" && r.Header.Get("Content-Type") == applyType {
		writeError(w, http.StatusInternalServerError, "",
			"request to convert CR to an invalid group/version: "+version, "", "")
		return false
	}
	var causes []any
	for field, manager := range s.held[r.URL.Path] {
		path, _ := parsePath(strings.TrimPrefix(field, "."))
		at := any(o)
		for _, step := range path {
			at = step.childIn(at)
		}
		if at != nil {
			causes = append(causes, map[string]any{"reason": "FieldManagerConflict", "field": field,
				"message": fmt.Sprintf("conflict with %q using v1", manager)})
		}
	}
	if len(causes) > 0 && r.URL.Query().Get("force") != "true" {
		writeJSON(w, http.StatusConflict, map[string]any{"kind": "Status", "reason": "Conflict",
			"message": "Apply failed with 1 conflict", "details": map[string]any{"causes": causes}})
		return false
	}
	if len(causes) > 0 {
		delete(s.held, r.URL.Path)
	}
	return true
}

// unservedOf returns the first unserved version in the managed fields of an object, or "".
func (s *server) unservedOf(o map[string]any) string {
	m, _ := o["metadata"].(map[string]any)
	entries, _ := m["managedFields"].([]any)
	for _, entry := range entries {
		if version, _ := entry.(map[string]any)["apiVersion"].(string); slices.Contains(s.unserved, version) {
			return version
		}
	}
	return ""
}

// refuseFor rejects a request with 422 because of one field.
func refuseFor(w http.ResponseWriter, field, reason, message string) {
	writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"kind": "Status", "reason": "Invalid",
		"message": "it is invalid", "details": map[string]any{
			"name": "x", "causes": []any{map[string]any{"reason": reason, "field": field, "message": message}}}})
}

// store writes an object. If the object equals the stored object, nothing changes.
func (s *server) store(path string, o map[string]any, operation, manager string) {
	m := o["metadata"].(map[string]any)
	fields := fieldsOf(withoutUnownableFields(o))
	m["uid"], m["generation"] = fmt.Sprintf("uid-%d", s.version+1), float64(1)
	if old := s.stored[path]; old != nil {
		have := old["metadata"].(map[string]any)
		m["uid"], m["generation"], m["resourceVersion"] = have["uid"], have["generation"], have["resourceVersion"]
		for _, keep := range []string{"finalizers", "deletionTimestamp"} {
			if have[keep] != nil {
				m[keep] = have[keep]
			}
		}
		m["managedFields"] = []any{map[string]any{"manager": manager, "operation": operation, "fieldsV1": fields}}
		if fmt.Sprint(old) == fmt.Sprint(o) {
			return
		}
		m["generation"] = have["generation"].(float64) + 1
	}
	s.version++
	m["resourceVersion"] = strconv.Itoa(s.version)
	m["managedFields"] = []any{map[string]any{"manager": manager, "operation": operation, "fieldsV1": fields}}
	s.stored[path] = o
}

// fieldsOf writes the fields of an object in the format of managed fields (FieldsV1). fieldsOf records a list as one
// field, without its items.
func fieldsOf(o map[string]any) map[string]any {
	fields := map[string]any{}
	for key, value := range o {
		if isNilOrEmptyCollection(value) {
			continue
		}
		if m, ok := value.(map[string]any); ok {
			fields["f:"+key] = fieldsOf(m)
		} else {
			fields["f:"+key] = map[string]any{}
		}
	}
	return fields
}

func (s *server) remove(w http.ResponseWriter, r *http.Request) {
	o := s.stored[r.URL.Path]
	if o == nil {
		writeError(w, http.StatusNotFound, "NotFound", "not found", "x", "things")
		return
	}
	m := o["metadata"].(map[string]any)
	var options struct{ Preconditions preconditions }
	if err := json.Unmarshal([]byte(s.bodies["DELETE "+r.URL.Path]), &options); err != nil {
		writeError(w, http.StatusBadRequest, "BadRequest", err.Error(), "x", "things")
		return
	}
	if version := options.Preconditions.ResourceVersion; version != "" && version != m["resourceVersion"] {
		writeError(w, http.StatusConflict, "Conflict", "the object was changed", "x", "things")
		return
	}
	if m["finalizers"] != nil {
		m["deletionTimestamp"] = "2026-01-02T03:04:05Z"
		s.writeObject(w, http.StatusOK, r, o)
		return
	}
	delete(s.stored, r.URL.Path)
	writeJSON(w, http.StatusOK, map[string]any{"kind": "Status", "status": "Success"})
}

// writeObject writes an object. If the request is for metadata, writeObject writes only the metadata.
func (s *server) writeObject(w http.ResponseWriter, code int, r *http.Request, o map[string]any) {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata;") {
		o = map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
	}
	writeJSON(w, code, o)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// writeError writes an error response in the format of an API server.
func writeError(w http.ResponseWriter, code int, reason, message, name, kind string) {
	writeJSON(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
		"reason": reason, "message": message,
		"details": map[string]any{"name": name, "kind": kind}})
}

// errorScript returns a script that rejects every request with an error.
func errorScript(code int, reason, message string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { writeError(w, code, reason, message, "", "") }
}

// bundleOf renders YAML.
func bundleOf(t testing.TB, yaml string) *render.Bundle {
	t.Helper()
	objects, err := render.Parse([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := render.Build(objects, render.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// module is a bundle with objects of every phase. The objects in the bundle are not in the order in which Apply has to
// send them.
const module = `
{apiVersion: example.com/v1, kind: Thing, metadata: {name: default}, spec: {size: 1}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: hook}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: manager, namespace: mod}, spec: {replicas: 1}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: binding}, roleRef: {kind: ClusterRole, name: role}}
---
{apiVersion: v1, kind: Service, metadata: {name: service, namespace: mod}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: mod}, data: {a: "1"}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: account}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: role}, rules: []}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec: {group: example.com, scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true}]}
---
{apiVersion: v1, kind: Namespace, metadata: {name: mod}}
`

// The constants are the URL paths of the objects in the bundle above (the constant named module).
const (
	namespacePath  = "/api/v1/namespaces/mod"
	definitionPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
	accountPath    = "/api/v1/namespaces/default/serviceaccounts/account"
	rolePath       = "/apis/rbac.authorization.k8s.io/v1/clusterroles/role"
	configPath     = "/api/v1/namespaces/mod/configmaps/config"
	servicePath    = "/api/v1/namespaces/mod/services/service"
	bindingPath    = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/binding"
	managerPath    = "/apis/apps/v1/namespaces/mod/deployments/manager"
	hookPath       = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hook"
	thingPath      = "/apis/example.com/v1/namespaces/default/things/default"
)

const thingKind = "example.com/v1 Thing things"

func patches(paths ...string) []string {
	lines := make([]string, len(paths))
	for i, p := range paths {
		lines[i] = "PATCH " + p
	}
	return lines
}
