package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// server is the API server of a runtime: it stores the objects of the catalog copy, and counts the requests.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	objects map[string]map[string]any // by plural name and name: "moduletemplates/keda-1.0.0"; guarded by mu
	refused string                    // the server refuses to apply this object; guarded by mu
	version int                       // resourceVersion of the last write; guarded by mu
	serves  []metav1.APIResource      // kinds of our group that the server serves in addition; guarded by mu
	lookups int                       // discovery requests; guarded by mu
	count   map[string]int            // requests by operation: "apply", "patch", "get", "list", "delete"; guarded by mu
}

func newServer(t *testing.T) *server {
	s := &server{objects: map[string]map[string]any{}, count: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	root := "/apis/" + v1beta2.GroupVersion.String()
	path := strings.TrimPrefix(r.URL.Path, root+"/namespaces/"+v1beta2.RuntimeNamespace+"/")
	object := s.objects[path]
	switch isApply := r.Header.Get("Content-Type") == string(types.ApplyPatchType); {
	case r.URL.Path == root:
		s.lookups++
		answer(w, http.StatusOK, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"},
			APIResources: append([]metav1.APIResource{
				{Name: "moduletemplates", Kind: v1beta2.KindModuleTemplate, Namespaced: true},
				{Name: "modulereleasemetas", Kind: v1beta2.KindModuleReleaseMeta, Namespaced: true}}, s.serves...)})
	case !strings.Contains(path, "/"):
		s.count["list"]++
		items := []any{}
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			if strings.HasPrefix(key, path+"/") {
				items = append(items, s.objects[key])
			}
		}
		answer(w, http.StatusOK, map[string]any{"kind": "List", "items": items,
			"metadata": map[string]any{"resourceVersion": "1"}})
	case r.Method == http.MethodPatch && isApply:
		s.count["apply"]++
		if path == s.refused {
			answer(w, http.StatusUnprocessableEntity, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"},
				Reason: metav1.StatusReasonInvalid, Message: "a policy refuses it"})
			return
		}
		applied := map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&applied); err != nil {
			answer(w, http.StatusBadRequest, err.Error())
			return
		}
		m := applied["metadata"].(map[string]any)
		s.version++
		m["uid"], m["resourceVersion"] = path, fmt.Sprint(s.version)
		m["managedFields"] = []any{map[string]any{"manager": v1beta2.FieldOwnerCatalog, "operation": "Apply"}}
		s.objects[path] = applied
		code := http.StatusOK
		if object == nil {
			code = http.StatusCreated
		}
		answer(w, code, applied)
	case object == nil:
		answer(w, http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"},
			Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Name: "x", Kind: "y"}})
	case r.Method == http.MethodPatch:
		s.count["patch"]++
		answer(w, http.StatusOK, object)
	case r.Method == http.MethodDelete:
		s.count["delete"]++
		options := metav1.DeleteOptions{}
		if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
			answer(w, http.StatusBadRequest, err.Error())
			return
		}
		if is := object["metadata"].(map[string]any)["resourceVersion"]; options.Preconditions == nil ||
			options.Preconditions.ResourceVersion == nil || *options.Preconditions.ResourceVersion != is {
			answer(w, http.StatusConflict, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"},
				Reason: metav1.StatusReasonConflict, Message: "it was changed"})
			return
		}
		delete(s.objects, path)
		answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"},
			Status: metav1.StatusSuccess})
	default:
		s.count["get"]++
		answer(w, http.StatusOK, object)
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// refuse lets the server refuse to apply an object from now on. If the path is "", the server refuses no object.
func (s *server) refuse(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = path
}

// serveAsControlPlane lets the server serve the kind Manifest, or not.
func (s *server) serveAsControlPlane(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serves = nil
	if is {
		s.serves = []metav1.APIResource{{Name: "manifests", Kind: v1beta2.KindManifest, Namespaced: true}}
	}
}

// takeLookups returns the number of discovery requests since the last call.
func (s *server) takeLookups() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.lookups
	s.lookups = 0
	return taken
}

// takeCount returns the number of requests since the last call.
func (s *server) takeCount() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.count
	s.count = map[string]int{}
	return taken
}

// versionIn returns the version of a module in channel regular in the catalog copy.
func (s *server) versionIn(t *testing.T, module string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(s.objects["modulereleasemetas/"+module])
	release := &v1beta2.ModuleReleaseMeta{}
	if err := errors.Join(err, json.Unmarshal(data, release)); err != nil {
		t.Fatal(err)
	}
	version, _ := release.SpecVersion("regular")
	return version
}

// runtimeCatalog is a control plane with modules m0, m1 and so on, and one runtime.
type runtimeCatalog struct {
	*testing.T
	*server
	control client.Client
	copies  *Copies
	target  Target
	// unrecorded keeps the digest out of the status of the Kyma in the runtime.
	unrecorded bool
}

// newRuntimeCatalog returns a runtime without a catalog copy. The catalog has n modules with version 1.0.0 in channel
// regular, and the versions 1.0.0 and 2.0.0.
func newRuntimeCatalog(t *testing.T, n int) *runtimeCatalog {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	for i := range n {
		name := fmt.Sprint("m", i)
		objects = append(objects, &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system",
			Name: name}, Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: name, Channels: []v1beta2.ChannelVersion{
			{Channel: "regular", Version: "1.0.0"}}}})
		for _, version := range []string{"1.0.0", "2.0.0"} {
			objects = append(objects, &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system",
				Name: name + "-" + version}, Spec: v1beta2.ModuleTemplateSpec{ModuleName: name, Version: version}})
		}
	}
	r := &runtimeCatalog{T: t, server: newServer(t),
		control: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: r.URL}, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Remove("a") })
	cluster, err := apply.New(&rest.Config{Host: r.URL}, nil,
		apply.ClusterOptions{RequestTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r.copies = New(Options{Client: r.control, Namespace: "kcp-system", Runtimes: pool, AuditInterval: time.Hour,
		Enqueue: func(string) {}})
	r.target = Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a"}},
		Runtime: &runtimes.Runtime{Cluster: cluster}, Now: time.Now()}
	return r
}

// move moves channel regular of every module to a version.
func (r *runtimeCatalog) move(version string) {
	r.Helper()
	var all v1beta2.ModuleReleaseMetaList
	if err := r.control.List(r.Context(), &all); err != nil {
		r.Fatal(err)
	}
	for i := range all.Items {
		all.Items[i].Spec.Channels[0].Version = version
		if err := r.control.Update(r.Context(), &all.Items[i]); err != nil {
			r.Fatal(err)
		}
	}
	r.copies.Invalidate()
}

// sync syncs the catalog copy and compares the requests.
func (r *runtimeCatalog) sync(step string, fails bool, want map[string]int) {
	r.Helper()
	r.takeCount()
	digest, err := r.copies.Sync(r.Context(), r.target)
	if (err != nil) != fails {
		r.Fatalf("%s: got %v, want an error: %t", step, err, fails)
	}
	if err == nil && !r.unrecorded {
		r.target.Digest = digest
	}
	if diff := cmp.Diff(want, r.takeCount()); diff != "" {
		r.Errorf("%s: requests (-want +got):\n%s", step, diff)
	}
}

// edit reports that another client has changed an object of the catalog copy.
func (r *runtimeCatalog) edit(kind, name string) {
	r.copies.noteEvent("a", runtimes.Event{Interest: runtimes.Interest{Kind: kind},
		Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}})
}

// TestSyncBase checks that the sync of the base objects waits after it has created the CRDs of the catalog, and sends
// nothing more then. If it has changed CRDs that existed, it does not wait.
func TestSyncBase(t *testing.T) {
	var crds []*unstructured.Unstructured
	for plural, kind := range map[string]string{"moduletemplates": v1beta2.KindModuleTemplate,
		"modulereleasemetas": v1beta2.KindModuleReleaseMeta} {
		crds = append(crds, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + "." + v1beta2.GroupVersion.Group},
			"spec": map[string]any{"group": v1beta2.GroupVersion.Group, "scope": "Namespaced",
				"names":    map[string]any{"plural": plural, "kind": kind},
				"versions": []any{map[string]any{"name": "v1beta2", "served": true, "storage": true}}},
		}})
	}
	base, err := render.Build(crds, render.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, exist := range map[string]bool{"New": false, "Existing": true} {
		t.Run(name, func(t *testing.T) {
			r := newRuntimeCatalog(t, 0)
			for _, crd := range crds {
				if exist {
					r.objects["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+crd.GetName()] = crd.Object
				}
			}
			for step, want := range []int{2, 0} {
				r.takeCount()
				keepsCRDs, err := r.copies.SyncBase(t.Context(), r.target, base, false)
				if keepsCRDs {
					t.Errorf("step %d: the CRDs are not changed, but the runtime is no control plane", step)
				}
				_, waits := errors.AsType[*NotServedError](err)
				if waits != (step == 0 && !exist) || err != nil && !waits {
					t.Errorf("step %d: got %v", step, err)
				}
				if got := r.takeCount()["apply"]; got != want {
					t.Errorf("step %d: %d objects were applied, want %d", step, got, want)
				}
			}
		})
	}
}

// TestSyncBaseInControlPlane checks that the sync of the base objects does not change our CRDs in a runtime that is a
// control plane, too, but sends those that it lacks, and that it sends all CRDs after the control plane is gone.
func TestSyncBaseInControlPlane(t *testing.T) {
	object := func(version, kind, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind,
			"metadata": map[string]any{"name": name}}}
	}
	crd := func(plural string) *unstructured.Unstructured {
		return object("apiextensions.k8s.io/v1", "CustomResourceDefinition", plural+"."+v1beta2.GroupVersion.Group)
	}
	base, err := render.Build([]*unstructured.Unstructured{object("v1", "Namespace", v1beta2.RuntimeNamespace),
		crd("kymas"), crd("modulereleasemetas")}, render.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRuntimeCatalog(t, 0)
	theirs := crd("kymas")
	theirs.SetLabels(map[string]string{"version": "theirs"})
	theirs.SetUID("theirs")
	theirs.SetResourceVersion("1")
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + theirs.GetName()
	r.objects[path] = theirs.Object
	sync := func(step string, isControlPlane bool, applied, lookups int) {
		t.Helper()
		r.serveAsControlPlane(isControlPlane)
		r.takeCount()
		r.takeLookups()
		keepsCRDs, err := r.copies.SyncBase(t.Context(), r.target, base, false)
		if err != nil || keepsCRDs != isControlPlane {
			t.Errorf("%s: keepsCRDs is %t, %v", step, keepsCRDs, err)
		}
		if n, looked := r.takeCount()["apply"], r.takeLookups(); n != applied || looked != lookups {
			t.Errorf("%s: %d objects were applied after %d discovery requests, want %d and %d", step, n, looked, applied,
				lookups)
		}
		_, labelled, _ := unstructured.NestedString(r.objects[path], "metadata", "labels", "version")
		if labelled != isControlPlane {
			t.Errorf("%s: the CRD of Kymas is that of the control plane: %t", step, labelled)
		}
	}
	sync("control plane that lacks a CRD", true, 2, 1)
	sync("all objects that it lacks were sent", true, 0, 1)
	sync("no control plane any more", false, 1, 1)
	sync("all objects were sent", false, 0, 0)
	r.objects[path] = theirs.Object // klm install, for example
	r.copies.editRecord(r.target, func(r *record) { r.baseWrong = true })
	sync("became a control plane", true, 1, 1)
}

// TestRetry checks that a retry after a refused object sends only the refused object, however large the catalog is. An
// object that another client has changed stays a suspect until the catalog copy is complete.
func TestRetry(t *testing.T) {
	const n = 30
	r := newRuntimeCatalog(t, n)
	r.refuse("modulereleasemetas/m7")
	r.sync("new runtime", true, map[string]int{"list": 2, "apply": 2 * n})
	r.sync("retry", true, map[string]int{"list": 2, "apply": 1})
	r.edit(v1beta2.KindModuleTemplate, "m3-1.0.0")
	for _, step := range []string{"retry with a suspect", "suspect again"} {
		r.sync(step, true, map[string]int{"list": 2, "get": 1, "apply": 2})
	}
	r.refuse("")
	r.sync("not refused", false, map[string]int{"list": 2, "get": 1, "apply": 2})
	r.sync("complete", false, map[string]int{})

	r.move("2.0.0") // each ModuleReleaseMeta is changed, each ModuleTemplate is replaced
	r.refuse("modulereleasemetas/m7")
	r.sync("moved", true, map[string]int{"get": n - 1, "apply": 2 * n, "delete": n}) // knows one
	r.sync("retry of the move", true, map[string]int{"list": 2, "apply": 1})
}

// TestDeleteExtra checks which objects are deleted when the catalog copy no longer has them: those that are as this
// package has written them, without a read, and those that others have only changed. An object that a user has created
// in place of ours stays.
func TestDeleteExtra(t *testing.T) {
	const n = 4
	managers := func(names ...string) (fields []any) {
		for _, name := range names {
			fields = append(fields, map[string]any{"manager": name, "operation": "Apply"})
		}
		return fields
	}
	r := newRuntimeCatalog(t, n)
	r.sync("new runtime", false, map[string]int{"list": 2, "apply": 2 * n})
	for name, fields := range map[string][]any{"m1-1.0.0": managers(v1beta2.FieldOwnerCatalog, "kubectl"),
		"m2-1.0.0": managers("kubectl")} {
		m := r.objects["moduletemplates/"+name]["metadata"].(map[string]any)
		m["resourceVersion"], m["managedFields"] = "changed", fields
	}
	delete(r.objects, "moduletemplates/m3-1.0.0")
	r.move("2.0.0")
	r.sync("moved", false, map[string]int{"apply": 2 * n, "delete": 1 + 2 + 1, "get": 2})
	var left []string
	for key := range r.objects {
		if strings.HasSuffix(key, "-1.0.0") {
			left = append(left, key)
		}
	}
	if diff := cmp.Diff([]string{"moduletemplates/m2-1.0.0"}, left); diff != "" {
		t.Errorf("objects that are left (-want +got):\n%s", diff)
	}
}

// TestUnrecordedDigest checks that a catalog copy is not sent again while the status of the runtime's Kyma does not
// have its digest yet, and that the digest in the status counts as soon as another process has changed it.
func TestUnrecordedDigest(t *testing.T) {
	const n = 3
	r := newRuntimeCatalog(t, n)
	r.unrecorded = true
	r.sync("new runtime", false, map[string]int{"list": 2, "apply": 2 * n})
	r.sync("nothing has changed", false, map[string]int{})
	r.move("2.0.0")
	moved := map[string]int{"apply": 2 * n, "delete": n}
	r.sync("moved", false, moved)
	r.sync("nothing has changed since the move", false, map[string]int{})
	r.unrecorded = false
	r.sync("the status is written", false, map[string]int{})
	r.sync("recorded", false, map[string]int{})
	r.target.Digest = ""
	r.sync("the status is lost", false, map[string]int{"list": 2})
	r.target.Digest = "sha256:another"
	r.sync("another process has written a copy", false, map[string]int{"list": 2})
	r.unrecorded = true
	r.move("1.0.0")
	r.sync("moved again", false, moved)
	r.move("2.0.0")
	r.sync("moved back before the digest was recorded", false, moved)
}

// TestMoveBackAfterRefusal checks the catalog copy if a move was sent only in part, and the channels are then moved
// back: the runtime has the digest of the desired catalog copy, but not all its objects.
func TestMoveBackAfterRefusal(t *testing.T) {
	const n = 10
	r := newRuntimeCatalog(t, n)
	r.sync("new runtime", false, map[string]int{"list": 2, "apply": 2 * n})
	r.move("2.0.0")
	r.refuse("modulereleasemetas/m7")
	r.sync("moved", true, map[string]int{"apply": 2 * n, "delete": n})
	r.move("1.0.0")
	r.sync("moved back", false, map[string]int{"list": 2, "get": n, "apply": 2*n - 1, "delete": n})
	for i := range n {
		if version := r.versionIn(t, fmt.Sprint("m", i)); version != "1.0.0" {
			t.Errorf("module m%d has version %s in the catalog copy", i, version)
		}
	}
}
