package apply

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// installed applies the objects of the test module to a fresh server and returns their inventory.
func installed(t *testing.T) (*server, *Cluster, []Ref) {
	t.Helper()
	s := newServer(t)
	s.serveKind(thingKind)
	c := s.cluster(ClusterOptions{})
	set := Set{Bundle: bundleOf(t, module)}
	refs, err := c.DesiredInventory(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := c.Apply(t.Context(), set, nil); err != nil || !result.AllApplied() {
		t.Fatalf("applying: %v, %+v", err, result)
	}
	s.takeRequests()
	return s, c, refs
}

func deletes(paths ...string) []string {
	lines := make([]string, len(paths))
	for i, p := range paths {
		lines[i] = "DELETE " + p
	}
	return lines
}

func TestDeleteOrder(t *testing.T) {
	s, c, refs := installed(t)
	var asked DeletionProgress
	teardown, err := c.Delete(t.Context(), refs, &asked)
	if err != nil || !teardown.Done() || len(teardown.Deleted) != len(refs) {
		t.Fatalf("deleting: %v, %+v", err, teardown)
	}
	checkPhases(t, [][]string{deletes(thingPath), deletes(hookPath), deletes(managerPath, servicePath),
		deletes(accountPath, bindingPath, configPath, rolePath), deletes(definitionPath), deletes(namespacePath)},
		s.takeRequests())

	if teardown, err = c.Delete(t.Context(), refs, &asked); err != nil || !teardown.Done() ||
		len(teardown.Deleted) != len(refs) {
		t.Errorf("deleting what is gone: %v, %+v", err, teardown)
	}
	if sent := s.takeRequests(); len(sent) > 0 {
		t.Errorf("what is gone is not asked for again: %v", sent)
	}
	if left := s.paths(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDeleteVersion checks that an object is deleted only if nobody has changed it since the given version.
func TestDeleteVersion(t *testing.T) {
	s, c, _ := installed(t)
	config := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"}
	u, err := c.Get(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	s.change(configPath, func(o map[string]any) { o["data"] = map[string]any{"a": "of somebody else"} })
	for _, version := range []string{"", u.GetResourceVersion()} {
		err := c.DeleteVersion(t.Context(), config, version)
		if err == nil || reasonIs(err, ObjectConflict) != (version != "") {
			t.Errorf("version %q: got %v", version, err)
		}
	}
	if u, err = c.Get(t.Context(), config); err != nil {
		t.Fatalf("the object of somebody else: %v", err)
	}
	for range 2 { // the second time, the object does not exist
		if err := c.DeleteVersion(t.Context(), config, u.GetResourceVersion()); err != nil {
			t.Error(err)
		}
	}
	if slices.Contains(s.paths(), configPath) {
		t.Error("the object still exists")
	}
}

// TestDeleteBlocked tests a deletion that finalizers block: messages contain the finalizers, later phases wait, and no
// object gets a second DELETE.
func TestDeleteBlocked(t *testing.T) {
	s, c, refs := installed(t)
	hold := func(path string, finalizers ...any) {
		s.change(path, func(o map[string]any) {
			if o["metadata"].(map[string]any)["finalizers"] = finalizers; len(finalizers) == 0 {
				delete(o["metadata"].(map[string]any), "finalizers")
			}
		})
	}
	hold(thingPath, "z.example.com/b", "a.example.com/a")
	hold(configPath, "example.com/hold")
	var asked DeletionProgress
	step := func(reason string, want []string, remaining int) Teardown {
		t.Helper()
		teardown, err := c.Delete(t.Context(), refs, &asked)
		if err != nil || len(teardown.Remaining) != remaining || len(teardown.Deleted)+remaining != len(refs) {
			t.Fatalf("%s: %v, %+v", reason, err, teardown)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)),
			slices.Sorted(slices.Values(s.takeRequests()))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
		return teardown
	}

	blocked := step("custom resources go first, alone", deletes(thingPath), 10).Remaining
	if diff := cmp.Diff([]string{"a.example.com/a", "z.example.com/b"}, blocked[0].Finalizers); diff != "" ||
		!strings.Contains(blocked[0].Message, "a.example.com/a") {
		t.Errorf("finalizers (-want +got):\n%s%s", diff, blocked[0].Message)
	}
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !blocked[0].Since.Equal(want) ||
		blocked[0].Ref.Kind != "Thing" {
		t.Errorf("got %+v, want the custom resource since %v", blocked[0], want)
	}
	if blocked[1].Message != "waits until all custom resources are deleted" || !blocked[1].Since.IsZero() {
		t.Errorf("got %+v, want the phase that it waits for", blocked[1])
	}
	step("later passes only look", []string{"GET " + thingPath}, 10)

	s.mu.Lock()
	delete(s.stored, thingPath)
	s.mu.Unlock()
	blocked = step("then everything up to the next blocker",
		append(deletes(hookPath, managerPath, servicePath, accountPath, bindingPath, configPath, rolePath),
			"GET "+thingPath), 3).Remaining
	if blocked[0].Ref.Kind != "ConfigMap" {
		t.Errorf("got %+v, want the ConfigMap first", blocked[0])
	}

	// After the DELETE, another client creates a ConfigMap with the same name. Delete must send one more DELETE,
	// because the inventory still contains a ConfigMap with this name.
	s.change(configPath, func(o map[string]any) {
		delete(o["metadata"].(map[string]any), "deletionTimestamp")
		delete(o["metadata"].(map[string]any), "finalizers")
	})
	step("created again", append(deletes(configPath, definitionPath, namespacePath), "GET "+configPath), 0)
}

func TestDeleteRefused(t *testing.T) {
	s, c, refs := installed(t)
	s.setScript("DELETE "+managerPath, errorScript(http.StatusForbidden, "Forbidden",
		`admission webhook "w" denied the request: in use`))
	var asked DeletionProgress
	teardown, err := c.Delete(t.Context(), refs, &asked)
	if err != nil || len(teardown.Remaining) == 0 {
		t.Fatalf("deleting: %v, %+v", err, teardown)
	}
	i := slices.IndexFunc(teardown.Remaining, func(r Remaining) bool { return r.Err != nil })
	if i < 0 || teardown.Remaining[i].Ref.Kind != "Deployment" ||
		teardown.Remaining[i].Err.Reason() != AdmissionRefused ||
		!strings.Contains(teardown.Remaining[i].Message, "in use") {
		t.Errorf("got %+v, want the refusal of the Deployment", teardown.Remaining)
	}
	if slices.Contains(s.takeRequests(), "DELETE "+servicePath) == false {
		t.Error("others of the phase are deleted")
	}
	s.setScript("DELETE "+managerPath, nil)
	if text := teardown.WaitMessage(); !strings.Contains(text, "in use") || !strings.HasSuffix(text, "(and 4 more)") {
		t.Errorf("got %q, want the first of what remains", text)
	}
	if teardown, err = c.Delete(t.Context(), refs, &asked); err != nil || !teardown.Done() {
		t.Errorf("healing: %v, %+v", err, teardown)
	}
}

func TestDeleteStops(t *testing.T) {
	s, c, refs := installed(t)
	s.setScript("DELETE "+hookPath, errorScript(http.StatusUnauthorized, "Unauthorized", "Unauthorized"))
	var asked DeletionProgress
	teardown, err := c.Delete(t.Context(), refs, &asked)
	if ClassOf(err) != Unauthorized || len(teardown.Deleted) != 1 || len(teardown.Remaining) != 9 {
		t.Errorf("got error %v, %+v, want only the custom resource gone", err, teardown)
	}
	if diff := cmp.Diff(deletes(thingPath, hookPath), s.takeRequests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestDeleteKeepsNamespaces(t *testing.T) {
	s := newServer(t)
	refs := []Ref{{Version: "v1", Kind: "Namespace", Name: "kyma-system"},
		{Version: "v1", Kind: "Namespace", Name: "kube-system"}, {Version: "v1", Kind: "Namespace", Name: "mine"}}
	tests := map[string]struct {
		reason string
		keep   []string
		want   int
	}{
		"Default": {"kyma-system is kept by default", nil, 2},
		"None":    {"those of Kubernetes are kept in any case", []string{}, 1},
		"Own":     {"a list replaces the default", []string{"mine"}, 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			teardown, err := s.cluster(ClusterOptions{KeepNamespaces: tc.keep}).Delete(t.Context(), refs, nil)
			if err != nil || len(teardown.Kept) != tc.want || len(s.takeRequests()) != len(refs)-tc.want {
				t.Errorf("%s: got %v, %+v", tc.reason, err, teardown)
			}
		})
	}
}

// TestDeleteWithoutKind tests that an object is considered deleted if its kind is not served in any version. If the
// kind is served in another version, Delete finds the object in that version.
func TestDeleteWithoutKind(t *testing.T) {
	s, c, _ := installed(t)
	old := Ref{Group: "example.com", Version: "v1beta1", Kind: "Thing", Namespace: "default", Name: "default"}
	other := old
	other.Name = "another"
	teardown, err := c.Delete(t.Context(), []Ref{old}, nil)
	if err != nil || !teardown.Done() || slices.Contains(s.paths(), thingPath) {
		t.Errorf("another version: got %v, %+v, left %v", err, teardown, s.paths())
	}
	if sent := s.takeRequests(); sent[len(sent)-1] != "DELETE "+thingPath {
		t.Errorf("got requests %v, want a DELETE in the served version", sent)
	}
	unserved := []Ref{{Group: "foo.example.com", Version: "v1", Kind: "Foo", Name: "a"},
		{Group: "policy", Version: "v1beta1", Kind: "PodSecurityPolicy", Name: "b"}}
	if teardown, err = c.Delete(t.Context(), unserved, nil); err != nil || !teardown.Done() ||
		len(teardown.Deleted) != 2 {
		t.Errorf("no version: got %v, %+v", err, teardown)
	}
	s.setScript("GET /apis/bar.example.com/v1", errorScript(http.StatusServiceUnavailable, "ServiceUnavailable",
		"the API service is down"))
	if teardown, err = c.Delete(t.Context(), []Ref{{Group: "bar.example.com", Version: "v1", Kind: "Bar", Name: "a"}},
		nil); err != nil || teardown.Done() {
		t.Errorf("not known whether it is served: got %v, %+v, want it to remain", err, teardown)
	}
}

// TestDeleteAfterScopeChange checks objects in an inventory that was recorded while the CRD of their kind had another
// scope. These objects do not exist any more. An object with the same name that the installation has applied since then
// is not deleted in their place.
func TestDeleteAfterScopeChange(t *testing.T) {
	const clusterScoped, clusterPath = thingKind + " Cluster", "/apis/example.com/v1/things/x"
	const namespacedPath = "/apis/example.com/v1/namespaces/mod/things/x"
	ref := func(version, namespace string) Ref {
		return Ref{Group: "example.com", Version: version, Kind: "Thing", Namespace: namespace, Name: "x"}
	}
	cases := map[string]struct {
		reason    string
		kind      string // as the cluster serves it
		path      string // of the object that the installation has applied
		ref       Ref
		cachesCRD bool // the bundle has a cluster-scoped CRD, which the API server has rejected
		deleted   bool
	}{
		"NowClusterScoped": {"the namespace is not part of the path", clusterScoped, clusterPath, ref("v1", "mod"),
			false, false},
		"OtherVersion": {"the recorded version is not served", clusterScoped, clusterPath, ref("v1beta1", "mod"), false,
			false},
		"NowNamespaced": {"no object is without namespace", thingKind, namespacedPath, ref("v1", ""), false, false},
		"RejectedCRD":   {"the scope is as before", thingKind, namespacedPath, ref("v1", "mod"), true, true},
		"SameScope":     {"the usual case", clusterScoped, clusterPath, ref("v1", ""), false, true},
	}
	for name, tc := range cases {
		for _, own := range []*Ownership{nil, {Name: "n/m", Title: "module m"}} {
			s := newServer(t)
			s.serveKind(tc.kind)
			c := s.cluster(ClusterOptions{})
			set := Set{Namespace: "mod", Ownership: own,
				Bundle: bundleOf(t, `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}}`)}
			set.Overlay.Annotations = map[string]string{AnnotationOwnedBy: "n/m"}
			if s.apply(c, set, nil); !slices.Equal(s.paths(), []string{tc.path}) {
				t.Fatalf("%s: applied %v", name, s.paths())
			}
			if tc.cachesCRD {
				c.rememberCRD(render.CRD{Group: "example.com", Kind: "Thing", Plural: "things",
					Versions: []string{"v1"}})
			}
			teardown, err := c.DeleteOwned(t.Context(), []Ref{tc.ref}, nil, own)
			isLeft := slices.Contains(s.paths(), tc.path)
			if err != nil || len(teardown.Deleted) != 1 || isLeft == tc.deleted ||
				slices.Contains(s.takeRequests(), "DELETE "+tc.path) != tc.deleted {
				t.Errorf("%s: %s: got %+v, %v, left %v", name, tc.reason, teardown, err, s.paths())
			}
		}
	}
}

func TestDeleteNamesRemaining(t *testing.T) {
	s, c, refs := installed(t)
	second := strings.Replace(thingPath, "/default/things/default", "/other/things/mine", 1)
	s.mu.Lock()
	s.stored[second] = map[string]any{"kind": "Thing", "metadata": map[string]any{"name": "mine", "namespace": "other",
		"finalizers": []any{"example.com/keep"}}}
	s.mu.Unlock()
	s.change(definitionPath, func(o map[string]any) {
		o["metadata"].(map[string]any)["finalizers"] = []any{instanceCleanupFinalizer}
	})
	var asked DeletionProgress
	for range 2 {
		if _, err := c.Delete(t.Context(), refs, &asked); err != nil {
			t.Fatal(err)
		}
	}
	teardown, err := c.Delete(t.Context(), refs, &asked)
	if err != nil || len(teardown.Remaining) != 2 || !strings.Contains(teardown.Remaining[0].Message,
		"other/mine (finalizers example.com/keep)") {
		t.Errorf("got %v, %+v, want the custom resource that is in the way", err, teardown.Remaining)
	}

	s.mu.Lock()
	delete(s.stored, definitionPath)
	s.mu.Unlock()
	s.change(namespacePath, func(o map[string]any) {
		o["metadata"].(map[string]any)["finalizers"] = []any{"kubernetes"}
		o["status"] = map[string]any{"conditions": []any{
			map[string]any{"type": "NamespaceContentRemaining", "status": "True",
				"message": "Some resources are remaining: configmaps. has 1 resource instances"},
			map[string]any{"type": "NamespaceDeletionDiscoveryFailure", "status": "False",
				"message": "All resources successfully discovered"},
		}}
	})
	for range 2 {
		if teardown, err = c.Delete(t.Context(), refs, &asked); err != nil {
			t.Fatal(err)
		}
	}
	if len(teardown.Remaining) != 1 || !strings.Contains(teardown.Remaining[0].Message, "configmaps. has 1") ||
		strings.Contains(teardown.Remaining[0].Message, "successfully") {
		t.Errorf("got %+v, want what remains in the namespace", teardown.Remaining)
	}
}

func TestCreateGetList(t *testing.T) {
	s, c, _ := installed(t)
	thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "own"}, "spec": map[string]any{"size": int64(3)}}}
	made, err := c.Create(t.Context(), thing, "someone")
	ref := made.Ref
	if err != nil || ref.Namespace != "default" || made.UID == "" || made.Generation != 1 ||
		made.ResourceVersion == "" {
		t.Fatalf("creating: %v, %v", made, err)
	}
	if _, err := c.Create(t.Context(), thing, "someone"); !reasonIs(err, ObjectExists) {
		t.Errorf("creating again: got %v, want ObjectExists", err)
	}
	u, err := c.Get(t.Context(), ref)
	if err != nil || u.GetName() != "own" {
		t.Errorf("reading: %v, %v", u, err)
	}
	if size, _, _ := unstructured.NestedInt64(u.Object, "spec", "size"); size != 3 {
		t.Errorf("got size %d, want the integer 3", size)
	}
	missing := ref
	missing.Name = "missing"
	if _, err := c.Get(t.Context(), missing); !reasonIs(err, ObjectNotFound) {
		t.Errorf("reading what is not there: got %v", err)
	}
	missing.Kind = "Nothing"
	if _, err := c.Get(t.Context(), missing); !reasonIs(err, KindUnknown) {
		t.Errorf("reading an unknown kind: got %v", err)
	}
	found, err := c.List(t.Context(), ref.GVK(), "")
	if err != nil || len(found) != 2 || found[0].String() != "Thing.example.com default/default" || found[1].UID == "" {
		t.Errorf("listing: %v, %v", found, err)
	}
	if _, err := c.List(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Nothing"},
		""); !reasonIs(err, KindUnknown) {
		t.Errorf("listing an unknown kind: got %v", err)
	}

	// The cluster, and not the bundle, determines the scope of a kind.
	role := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1",
		"kind": "ClusterRole", "metadata": map[string]any{"name": "r", "namespace": "stray"}}}
	if ref, err := c.Create(t.Context(), role, "someone"); err != nil || ref.Namespace != "" ||
		role.GetNamespace() != "stray" {
		t.Errorf("creating a cluster-scoped object: %v, %v; the caller's object: %v", ref, err, role)
	}

	where, namespaced, err := c.Resource(t.Context(), ref)
	if err != nil || !namespaced || where.Resource != "things" {
		t.Errorf("resource: %v, %t, %v", where, namespaced, err)
	}
	if _, err := c.Patch(t.Context(), ref, types.MergePatchType, "",
		[]byte(`{"metadata":{"name":"own"},"spec":{"size":4}}`), "someone"); err != nil {
		t.Errorf("patching: %v", err)
	}
	s.takeRequests()
}

// TestForgetsKinds tests that a kind that was found once may be removed and served again with another plural.
func TestForgetsKinds(t *testing.T) {
	s := newServer(t)
	s.serveKind(thingKind)
	c := s.cluster(ClusterOptions{})
	ref := Ref{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "default", Name: "a"}
	if _, err := c.Get(t.Context(), ref); !reasonIs(err, ObjectNotFound) {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.serves = map[string]bool{"example.com/v1 Thing thingies": true}
	s.mu.Unlock()
	if _, err := c.Get(t.Context(), ref); !reasonIs(err, KindUnknown) {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), ref); !reasonIs(err, ObjectNotFound) {
		t.Errorf("got %v, want the new plural to be found", err)
	}
}

// TestDeleteWithWrongScope checks that an object does not count as deleted because the cached scope of its kind is
// wrong: another version of the bundle has a CRD with another scope, and the API server has refused this CRD.
func TestDeleteWithWrongScope(t *testing.T) {
	ref := Ref{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "default", Name: "default"}
	clusterScoped := ref
	clusterScoped.Namespace = ""
	for name, tc := range map[string]struct {
		reason  string
		ref     Ref
		remains bool
	}{
		"Namespaced": {"it exists, and has a finalizer", ref, true},
		"OtherScope": {"an object without a namespace cannot exist", clusterScoped, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.serveKind(thingKind)
			c := s.cluster(ClusterOptions{Kinds: new(Kinds)})
			s.stored[thingPath] = map[string]any{"metadata": map[string]any{"name": "default", "namespace": "default",
				"uid": "u", "resourceVersion": "1", "finalizers": []any{"example.com/operator"}}}
			s.setScript("DELETE /apis/example.com/v1/things/default", func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "404 page not found", http.StatusNotFound)
			})
			c.rememberCRD(render.CRD{Group: "example.com", Kind: "Thing", Plural: "things", Versions: []string{"v1"}})
			teardown, err := c.Delete(t.Context(), []Ref{tc.ref}, nil)
			if err != nil || teardown.Done() == tc.remains {
				t.Errorf("%s: %v, %+v", tc.reason, err, teardown)
			}
			want := []string{"DELETE /apis/example.com/v1/things/default", "GET /apis/example.com",
				"GET /apis/example.com/v1"}
			if tc.remains { // its namespace does not fit the cached scope
				want = []string{"GET /apis/example.com/v1", "DELETE " + thingPath}
			}
			if diff := cmp.Diff(want, s.takeRequests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if got, err := c.ResolveNamespace(t.Context(), ref); err != nil || got != ref {
				t.Errorf("after the discovery: %v, %v, want %v", got, err, ref)
			}
			if sent := s.takeRequests(); len(sent) > 0 {
				t.Errorf("the scope is not cached: %v", sent)
			}
		})
	}
}
