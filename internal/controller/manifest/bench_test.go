package manifest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// statusMessageLimit is the maximum length of a condition's message according to the CRD of Manifests.
const statusMessageLimit = 32768

// bench is a Manifest controller with a fake control plane and a fake runtime. The Manifests that bench reconciles have
// folders as sources.
type bench struct {
	t       *testing.T
	control client.Client
	runtime *fakeRuntime
	r       *Reconciler
	sources string
	steps   []string // steps that ran in the last reconcile

	statusWrites int    // number of writes of the status of the Manifest, accepted or not
	beforePatch  func() // called once before the next patch of metadata; may be nil
	isPostponing bool   // requests to the runtime are postponed
}

// RoundTrip sends a request to the fake runtime, unless requests are postponed.
func (b *bench) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.isPostponing {
		return nil, &runtimes.UnansweredError{}
	}
	return http.DefaultTransport.RoundTrip(r)
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, runtime: newFakeRuntime(t), sources: t.TempDir()}
	b.control = fake.NewClientBuilder().WithScheme(kinds).WithObjects(
		objects...).WithStatusSubresource(&v1beta2.Manifest{}).
		WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex,
			func(o client.Object) []string { return []string{o.GetLabels()[v1beta2.LabelKymaName]} }).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: b.patchStatus, Patch: b.patch}).Build()
	urgent := queueing.NewUrgent()
	intervals := runtimes.PollIntervals{Watched: time.Hour, Unwatched: time.Hour}
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: b.runtime.URL}, Agents: true,
		PollIntervals: intervals, Urgent: urgent, Timeout: 5 * time.Minute,
		Wrap: func(http.RoundTripper) http.RoundTripper { return b }})
	if err != nil {
		t.Fatal(err)
	}
	pool.RecordAgentConnection("a", runtimes.AgentConnected)
	artefacts, err := registry.New(registry.Options{Host: "registry.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	b.r, err = New(Options{
		Client: b.control, Runtimes: pool, Registry: artefacts, Secrets: b.control,
		Urgent: urgent, AuditInterval: time.Hour,
		LocalSources: b.sources, After: func(step string) { b.steps = append(b.steps, step) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.r.bundles.LoadTimeout = 5 * time.Minute
	return b
}

// patch calls beforePatch, and after that patches the object.
func (b *bench) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
	opts ...client.PatchOption) error {
	if before := b.beforePatch; before != nil {
		b.beforePatch = nil
		before()
	}
	return c.Patch(ctx, o, p, opts...)
}

// patchStatus rejects a status with a message that is longer than the CRD allows, as an API server does.
func (b *bench) patchStatus(
	ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	b.statusWrites++
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	var sent struct {
		Status struct{ Conditions []metav1.Condition }
	}
	if err := json.Unmarshal(data, &sent); err != nil {
		return err
	}
	for _, condition := range sent.Status.Conditions {
		if len(condition.Message) > statusMessageLimit {
			return fmt.Errorf("status.conditions.message: Too long: may not be more than %d bytes", statusMessageLimit)
		}
	}
	return c.SubResource(sub).Patch(ctx, o, p, opts...)
}

// moduleOf returns a Manifest with a folder as its source. The Manifest has no status yet, as before its first
// reconcile.
func moduleOf(edit func(*v1beta2.Manifest)) *v1beta2.Manifest {
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kcp-system", Name: "m", UID: "m-1", Generation: 1,
		Labels: map[string]string{v1beta2.LabelKymaName: "a", v1beta2.LabelModuleName: "sample"},
	}}
	m.Spec.Version = "1.0.0"
	m.Spec.Installs = []v1beta2.InstallInfo{{Name: "sample",
		Source: runtime.RawExtension{Raw: []byte(`{"path":"sample","type":"kustomize"}`)}}}
	if edit != nil {
		edit(m)
	}
	return m
}

// configMap returns the YAML of a ConfigMap in the namespace default.
func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default}\ndata: {key: %s}\n",
		name, value)
}

// write writes YAML documents into one of the source folders.
func (b *bench) write(folder string, documents ...string) {
	b.t.Helper()
	dir := filepath.Join(b.sources, folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	for name, text := range map[string]string{"kustomization.yaml": "resources: [all.yaml]\n",
		"all.yaml": strings.Join(documents, "---\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// manifest reads the Manifest from the control plane, and returns nil if it does not exist.
func (b *bench) manifest() *v1beta2.Manifest {
	b.t.Helper()
	m := &v1beta2.Manifest{}
	if err := b.control.Get(b.t.Context(), client.ObjectKey{Namespace: "kcp-system", Name: "m"}, m); err != nil {
		if client.IgnoreNotFound(err) != nil {
			b.t.Fatal(err)
		}
		return nil
	}
	return m
}

// edit changes the Manifest as a user does.
func (b *bench) edit(change func(*v1beta2.Manifest)) {
	b.t.Helper()
	m := b.manifest()
	change(m)
	if err := b.control.Update(b.t.Context(), m); err != nil {
		b.t.Fatal(err)
	}
}

// editStatus changes the status of the Manifest.
func (b *bench) editStatus(change func(*v1beta2.Manifest)) {
	b.t.Helper()
	m := b.manifest()
	change(m)
	if err := b.control.Status().Update(b.t.Context(), m); err != nil {
		b.t.Fatal(err)
	}
}

// delete deletes the Manifest as a user does; the Manifest exists until its finalizers are removed.
func (b *bench) delete() {
	b.t.Helper()
	if err := b.control.Delete(b.t.Context(), b.manifest()); err != nil {
		b.t.Fatal(err)
	}
}

// ageSeen makes all states of objects that events have reported so old that the controller does not use them any more.
func (b *bench) ageSeen() {
	m := b.r.memoryOf(client.ObjectKey{Namespace: "kcp-system", Name: "m"}, b.manifest().UID)
	m.mu.Lock()
	defer m.mu.Unlock()
	for ref, s := range m.seen {
		s.at = s.at.Add(-time.Minute)
		m.seen[ref] = s
	}
}

// reconcile reconciles once.
func (b *bench) reconcile() (reconcile.Result, error) {
	b.steps = nil
	return b.r.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "kcp-system",
		Name: "m"}})
}

// settle reconciles until the Manifest has the given state. settle returns the requests to the runtime since the call.
func (b *bench) settle(state v1beta2.State) []string {
	b.t.Helper()
	b.runtime.take()
	for range 20 {
		if _, err := b.reconcile(); err != nil {
			b.t.Fatalf("reconcile: %v", err)
		}
		if m := b.manifest(); m != nil && m.Status.State == state {
			return b.runtime.take()
		}
	}
	b.t.Fatalf("the Manifest does not become %s: %+v", state, b.manifest().Status)
	return nil
}

// fakeRuntime is a small API server. fakeRuntime stores the applied objects, records all requests, and fails on demand.
type fakeRuntime struct {
	*httptest.Server

	mu       sync.Mutex
	requests []string
	stored   map[string]map[string]any
	kinds    map[string]string // custom kinds: "example.com/v1" and plural to kind
	fail     func(line string) (code int, reason string)
	version  int
}

func newFakeRuntime(t testing.TB) *fakeRuntime {
	f := &fakeRuntime{stored: map[string]map[string]any{}, kinds: map[string]string{}, version: 100}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// take returns the requests since the last call of take.
func (f *fakeRuntime) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.requests
	f.requests = nil
	return taken
}

// paths returns the paths of all stored objects, sorted.
func (f *fakeRuntime) paths() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.stored))
}

// failWith sets a function that selects the requests that fail, and their status codes. If the parameter fail is nil,
// no request fails.
func (f *fakeRuntime) failWith(fail func(line string) (code int, reason string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// change edits an object in the runtime. After the edit, no field manager owns a field of the object, as if a client
// other than the manager had replaced it.
func (f *fakeRuntime) change(path string, edit func(map[string]any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	edit(f.stored[path])
	f.version++
	meta := f.stored[path]["metadata"].(map[string]any)
	meta["resourceVersion"], meta["managedFields"] = strconv.Itoa(f.version), nil
}

func (f *fakeRuntime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path, line := r.URL.Path, r.Method+" "+r.URL.Path
	f.requests = append(f.requests, line)
	if f.fail != nil {
		if code, reason := f.fail(line); code != 0 {
			f.answer(w, code, map[string]any{"kind": "Status", "status": "Failure", "code": code, "reason": reason,
				"message": "refused: " + path + ": " + reason})
			return
		}
	}
	old := f.stored[path]
	last := path[strings.LastIndex(path, "/")+1:]
	switch {
	case f.discover(w, path):
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json":
		f.merge(w, old, body)
	case r.Method == http.MethodPatch:
		f.store(w, path, body)
	case r.Method == http.MethodPost:
		var o struct{ Metadata struct{ Name string } }
		_ = json.Unmarshal(body, &o)
		f.store(w, path+"/"+o.Metadata.Name, body)
	case r.Method == http.MethodGet && (strings.HasSuffix(last, "s")) && old == nil && !strings.HasPrefix(last, "x"):
		f.list(w, path)
	case old == nil:
		f.answer(w, http.StatusNotFound, map[string]any{"kind": "Status", "status": "Failure", "code": 404,
			"reason": "NotFound", "message": "not found",
			"details": map[string]any{"name": last, "kind": path[:strings.LastIndex(path, "/")]}})
	case r.Method == http.MethodDelete:
		f.remove(w, path, old)
	default:
		f.answer(w, http.StatusOK, old)
	}
}

// discover answers discovery requests for custom kinds: /apis/group and /apis/group/version. The aggregated discovery
// of all kinds returns no kinds.
func (f *fakeRuntime) discover(w http.ResponseWriter, path string) bool {
	if path == "/api" || path == "/apis" {
		f.answer(w, http.StatusOK, map[string]any{"kind": "APIGroupDiscoveryList", "items": []any{}})
		return true
	}
	parts := strings.Split(strings.TrimPrefix(path, "/apis/"), "/")
	if !strings.HasPrefix(path, "/apis/") || len(parts) > 2 {
		return false
	}
	versions, resources := []any{}, []any{}
	for resource, kind := range f.kinds {
		group, version, plural := strings.Split(resource, "/")[0], strings.Split(resource, "/")[1],
			strings.Split(resource, "/")[2]
		if group == parts[0] {
			versions = append(versions, map[string]any{"version": version, "groupVersion": group + "/" + version})
			if len(parts) == 1 || parts[1] == version {
				resources = append(resources, map[string]any{"name": plural, "kind": kind, "namespaced": true})
			}
		}
	}
	switch {
	case len(resources) == 0:
		http.Error(w, "404 page not found", http.StatusNotFound)
	case len(parts) == 1:
		f.answer(w, http.StatusOK, map[string]any{"kind": "APIGroup", "name": parts[0], "versions": versions,
			"preferredVersion": versions[0]})
	default:
		f.answer(w, http.StatusOK, map[string]any{"kind": "APIResourceList", "groupVersion": parts[0] + "/" + parts[1],
			"resources": resources})
	}
	return true
}

func (f *fakeRuntime) store(w http.ResponseWriter, path string, body []byte) {
	var o map[string]any
	if err := json.Unmarshal(body, &o); err != nil {
		f.answer(w, http.StatusBadRequest, map[string]any{"kind": "Status",
			"reason": "BadRequest", "message": err.Error()})
		return
	}
	meta := o["metadata"].(map[string]any)
	fields := []any{map[string]any{"manager": v1beta2.FieldOwnerApplier, "operation": "Apply",
		"fieldsV1": fieldsOf(withoutUnownableFields(o))}}
	code := http.StatusCreated
	if old, wanted := f.stored[path], meta["resourceVersion"]; old != nil && wanted != nil &&
		wanted != old["metadata"].(map[string]any)["resourceVersion"] {
		f.answer(w, http.StatusConflict, map[string]any{"kind": "Status", "status": "Failure", "code": 409,
			"reason": "Conflict", "message": "the object has been modified"})
		return
	}
	f.version++
	meta["uid"], meta["generation"], meta["resourceVersion"] = fmt.Sprint("uid-", f.version),
		float64(1), strconv.Itoa(f.version)
	if old, exists := f.stored[path]; exists {
		code = http.StatusOK
		was := old["metadata"].(map[string]any)
		meta["uid"], meta["generation"] = was["uid"], was["generation"].(float64)+1
	}
	meta["managedFields"] = fields
	f.stored[path] = o
	f.answer(w, code, o)
}

// withoutUnownableFields returns the object without the fields that no field manager owns.
func withoutUnownableFields(o map[string]any) map[string]any {
	o, meta := maps.Clone(o), maps.Clone(o["metadata"].(map[string]any))
	for _, key := range []string{"name", "namespace", "uid", "resourceVersion"} {
		delete(meta, key)
	}
	delete(o, "apiVersion")
	delete(o, "kind")
	o["metadata"] = meta
	return o
}

// fieldsOf returns the fields of an object in the form of managedFields; a list is one field.
func fieldsOf(o map[string]any) map[string]any {
	fields := map[string]any{}
	for key, value := range o {
		fields["f:"+key] = map[string]any{}
		if m, ok := value.(map[string]any); ok {
			fields["f:"+key] = fieldsOf(m)
		}
	}
	return fields
}

// merge applies a merge patch to the labels and annotations of an object.
func (f *fakeRuntime) merge(w http.ResponseWriter, old map[string]any, body []byte) {
	if old == nil {
		f.answer(w, http.StatusNotFound, map[string]any{"kind": "Status", "reason": "NotFound", "message": "not found",
			"details": map[string]any{"name": "x"}})
		return
	}
	var patch struct {
		Metadata map[string]map[string]any
	}
	_ = json.Unmarshal(body, &patch)
	for field, values := range patch.Metadata {
		have, _ := old["metadata"].(map[string]any)[field].(map[string]any)
		for key, value := range values {
			if value == nil {
				delete(have, key)
			}
		}
	}
	f.answer(w, http.StatusOK, old)
}

func (f *fakeRuntime) remove(w http.ResponseWriter, path string, old map[string]any) {
	if meta := old["metadata"].(map[string]any); meta["finalizers"] != nil {
		meta["deletionTimestamp"] = "2026-01-02T03:04:05Z"
		f.answer(w, http.StatusOK, old)
		return
	}
	delete(f.stored, path)
	f.answer(w, http.StatusOK, map[string]any{"kind": "Status", "status": "Success"})
}

func (f *fakeRuntime) list(w http.ResponseWriter, path string) {
	plural := path[strings.LastIndex(path, "/")+1:]
	prefix := strings.TrimSuffix(path, plural)
	items := []any{}
	for _, stored := range slices.Sorted(maps.Keys(f.stored)) {
		if strings.HasPrefix(stored, prefix) && strings.Contains(stored, "/"+plural+"/") {
			items = append(items, f.stored[stored])
		}
	}
	f.answer(w, http.StatusOK, map[string]any{"kind": "List", "apiVersion": "v1",
		"metadata": map[string]any{"resourceVersion": "1"}, "items": items})
}

func (f *fakeRuntime) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// object returns a stored object, or nil if it does not exist.
func (f *fakeRuntime) object(path string) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stored[path]
}

// drop deletes an object in the runtime, as if a client other than the manager had deleted it.
func (f *fakeRuntime) drop(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.stored, path)
}

// put stores an object in the fake runtime, as if another client than the manager had written it.
func (f *fakeRuntime) put(path string, o map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	meta := o["metadata"].(map[string]any)
	meta["resourceVersion"], meta["generation"], meta["uid"] = strconv.Itoa(f.version), float64(1),
		fmt.Sprint("uid-", f.version)
	f.stored[path] = o
}
