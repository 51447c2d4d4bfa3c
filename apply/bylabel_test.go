package apply

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestListByLabel(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	var query string
	s.setScript("GET /api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.Query().Get("labelSelector") + " " + r.URL.Query().Get("limit")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(
			`{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9","continue":"next"},"items":[{"metadata":{"name":"a","namespace":"b","uid":"u",
"labels":{"of":"us"},"annotations":{"owner":"me","operator.kyma-project.io/adopted":"true","operator.kyma-project.io/prune":"keep"}}}]}`))
	})
	found, more, err := c.ListByLabel(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		"of=us,not!=them", 7)
	if err != nil || !more || len(found) != 1 {
		t.Fatalf("got %v, more %t, %v, want one and that there are more", found, more, err)
	}
	if query != "of=us,not!=them 7" {
		t.Errorf("asked for %q, want the selector and the limit", query)
	}
	want := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "b", Name: "a", Keep: true}
	if diff := cmp.Diff(want, found[0].Ref); diff != "" || found[0].Annotation(AnnotationAdopted) != "true" ||
		found[0].Annotation(AnnotationCoOwners) != "" || found[0].Annotation("owner") != "" {
		t.Errorf("got %+v (-want +got):\n%s", found[0], diff)
	}
	if got := s.takeRequests(); len(got) != 1 {
		t.Errorf("requests are %q, want one", got)
	}
	_, _, err = c.ListByLabel(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"},
		"", 7)
	if !reasonIs(err, KindUnknown) {
		t.Errorf("got %v, want %s", err, KindUnknown)
	}
}

// TestListObjectsByLabel checks that the objects of all pages are returned with their content.
func TestListObjectsByLabel(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	s.setScript("GET /api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
		page, next := "a", "next"
		if r.URL.Query().Get("continue") == next {
			page, next = "b", ""
		}
		writeJSON(w, http.StatusOK, map[string]any{"kind": "ConfigMapList",
			"metadata": map[string]any{"resourceVersion": "9", "continue": next},
			"items": []any{map[string]any{"metadata": map[string]any{"name": page},
				"data": map[string]any{"selector": r.URL.Query().Get("labelSelector")}}}})
	})
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	found, err := c.ListObjectsByLabel(t.Context(), kind, "of=us")
	if err != nil || len(found) != 2 {
		t.Fatalf("got %v, %v, want the objects of both pages", found, err)
	}
	for i, name := range []string{"a", "b"} {
		data, _ := found[i].Object["data"].(map[string]any)
		if found[i].GetName() != name || data["selector"] != "of=us" {
			t.Errorf("got %v, want %s with its data", found[i].Object, name)
		}
	}
	s.setScript("GET /api/v1/configmaps", errorScript(http.StatusForbidden, "Forbidden",
		`configmaps is forbidden: User "u" cannot list resource "configmaps" in API group ""`))
	if _, err := c.ListObjectsByLabel(t.Context(), kind, "of=us"); !reasonIs(err, RuntimeForbidden) {
		t.Errorf("got %v, want %s", err, RuntimeForbidden)
	}
}

// TestListAllByLabel checks that there is one list request for each kind that can be listed and deleted, and that the
// result names the kinds that the credential may not list.
func TestListAllByLabel(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	s.setScript("GET /api", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{"version":"v1",
"resources":[{"resource":"configmaps","scope":"Namespaced","verbs":["list","delete"],"responseKind":{"kind":"ConfigMap"}},
{"resource":"events","scope":"Namespaced","verbs":["list","delete"],"responseKind":{"kind":"Event"}},
{"resource":"bindings","scope":"Namespaced","verbs":["create"],"responseKind":{"kind":"Binding"}},
{"resource":"secrets","scope":"Namespaced","verbs":["list","delete"],"responseKind":{"kind":"Secret"}}]}]}]}`))
	s.setScript("GET /apis", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"example.com"},"versions":[
{"version":"v2","resources":[{"resource":"things","scope":"Cluster","verbs":["list","delete"],"responseKind":{"kind":"Thing"}}]},
{"version":"v1","resources":[{"resource":"things","scope":"Cluster","verbs":["list","delete"],"responseKind":{"kind":"Thing"}}]}]}]}`))
	s.setScript("GET /api/v1/configmaps", jsonScript(`{"kind":"PartialObjectMetadataList",
"metadata":{"resourceVersion":"9","continue":"next"},"items":[{"metadata":{"name":"a","uid":"u","namespace":"b","annotations":{"operator.kyma-project.io/prune":"keep"}}}]}`))
	s.setScript("GET /api/v1/secrets", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","reason":"Forbidden","code":403,"message":"secrets is forbidden: User \"u\" cannot list resource \"secrets\" in API group \"\""}`))
	})
	s.setScript("GET /apis/example.com/v2/things", jsonScript(`{"kind":"PartialObjectMetadataList",
"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"t","uid":"u"}}]}`))
	all, err := c.ListAllByLabel(t.Context(), "of=us", 7)
	if err != nil {
		t.Fatal(err)
	}
	var refs []Ref
	for _, o := range all.Items {
		refs = append(refs, o.Ref)
	}
	want := []Ref{{Version: "v1", Kind: "ConfigMap", Namespace: "b", Name: "a", Keep: true},
		{Group: "example.com", Version: "v2", Kind: "Thing", Name: "t"}}
	if diff := cmp.Diff(want, refs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]schema.GroupKind{{Kind: "ConfigMap"}}, all.More); diff != "" {
		t.Errorf("kinds with more objects: %s", diff)
	}
	if diff := cmp.Diff([]schema.GroupKind{{Kind: "Secret"}}, all.Refused); diff != "" {
		t.Errorf("kinds that may not be listed: %s", diff)
	}
	if sent := s.takeRequests(); len(sent) != 5 {
		t.Errorf("requests are %q, want two for discovery and three lists", sent)
	}
}

// pagesScript returns a script that sends an endless list, or a list that ends after the page with the number last.
// Each page has n objects with the given metadata.
func pagesScript(last, n int, metadata string) func(http.ResponseWriter, *http.Request) {
	items := strings.TrimSuffix(strings.Repeat(`{"metadata":{`+metadata+`}},`, n), ",")
	page := 0
	return func(w http.ResponseWriter, _ *http.Request) {
		page++
		next := "next"
		if page == last {
			next = ""
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w,
			`{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9","continue":%q},"items":[%s]}`,
			next, items)
	}
}

// TestListMemory checks that the metadata that one call keeps of all pages is limited, and that annotations that nobody
// reads do not count.
func TestListMemory(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	s := newServer(t)
	c := s.cluster(ClusterOptions{MaxConcurrentRequests: 1})
	answer := func(last, n int, metadata string) {
		s.setScript("GET /api/v1/configmaps", pagesScript(last, n, metadata))
	}

	answer(-1, listed, `"name":"a","uid":"u","labels":{"of":"`+strings.Repeat("x", 3<<10)+`"}`)
	_, err := c.List(t.Context(), kind, "")
	if !reasonIs(err, ServerFault) || !strings.Contains(err.Error(), "listing configmaps: ") ||
		!strings.Contains(err.Error(), "more than 32 MiB of memory: delete objects of this kind") {
		t.Errorf("an endless list: got %v, want the kind, the limit and what to do", err)
	}
	if n := len(s.takeRequests()); n != 20 { // 500 objects of 3.3 KiB in each page
		t.Errorf("an endless list: %d requests, want those for 32 MiB", n)
	}

	huge := `{"example.com/a":"` + strings.Repeat("x", maxPageBytes+2*maxPageBytesPerObject) + `"}`
	answer(1, 1, `"name":"a","uid":"u","annotations":`+huge)
	if found, _, err := c.ListByLabel(t.Context(), kind, "of", 1); err != nil || len(found) != 1 {
		t.Errorf("an annotation that is not kept: got %d objects, %v, want one", len(found), err)
	}
	answer(1, 1, `"name":"a","uid":"u","labels":`+huge)
	if _, _, err := c.ListByLabel(t.Context(), kind, "of", 1); !reasonIs(err, ServerFault) {
		t.Errorf("a page with a label of 2 MiB: got %v, want %s", err, ServerFault)
	}

	s.setScript("GET /api", jsonScript(discoveryOf(10)))
	s.setScript("GET /apis", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[]}`))
	for n := range 10 {
		s.setScript(fmt.Sprintf("GET /api/v1/things%d", n), pagesScript(1, 20_000, ``))
	}
	s.takeRequests()
	_, err = c.ListAllByLabel(t.Context(), "of", 10)
	if n := len(s.takeRequests()); !reasonIs(err, ServerFault) || n != 2+7 { // 20,000 objects of 256 bytes of each kind
		t.Errorf("all kinds: got %v after %d requests, want %s and no request after 32 MiB", err, n, ServerFault)
	}

	usual := ObjectMetadata{Ref: Ref{Namespace: strings.Repeat("n", 20), Name: strings.Repeat("n", 40)},
		UID: strings.Repeat("u", 36), ResourceVersion: "1234567890", Labels: map[string]string{},
		Finalizers: []string{"finalizer.operator.kyma-project.io"}, appliers: []string{"kubectl", "manager"},
		Owners: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: strings.Repeat("n", 40),
			UID: types.UID(strings.Repeat("u", 36))}}}
	for i := range 5 {
		usual.Labels[fmt.Sprintf("app.kubernetes.io/label-%d", i)] = strings.Repeat("v", 20)
	}
	if n := 30_000 * usual.bytes(); n > maxListBytes {
		t.Errorf("30,000 usual objects need %d bytes, more than the limit", n)
	}
}

// TestListedMoreThanRequested checks that a page with more objects than requested is an error, except for an aggregated
// API server, which may ignore the limit.
func TestListedMoreThanRequested(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	three := func() func(http.ResponseWriter, *http.Request) { return pagesScript(1, 3, `"name":"a","uid":"u"`) }
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	for limit, fits := range map[int]bool{2: false, 3: true} {
		s.setScript("GET /api/v1/configmaps", three())
		found, _, err := c.ListByLabel(t.Context(), kind, "of=us", limit)
		if fits && (err != nil || len(found) != 3) || !fits && !reasonIs(err, RuntimeUnreachable) {
			t.Errorf("limit %d: got %d objects, %v, want them: %t", limit, len(found), err, fits)
		}
	}

	s.setScript("GET /api", jsonScript(discoveryOf(1)))
	s.setScript("GET /apis", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[]}`))
	s.setScript("GET /api/v1/things0", three())
	all, err := c.ListAllByLabel(t.Context(), "of=us", 2)
	if err != nil || len(all.Items) != 2 || !slices.Equal(all.More, []schema.GroupKind{{Kind: "Thing0"}}) {
		t.Errorf("all kinds: got %d objects, more of %v, %v, want two and that there are more", len(all.Items),
			all.More, err)
	}
}

// discoveryOf returns the answer for /api of a cluster with n kinds, Thing0 and so on.
func discoveryOf(n int) string {
	kinds := make([]string, n)
	for i := range kinds {
		kinds[i] = fmt.Sprintf(`{"resource":"things%d","scope":"Namespaced","verbs":["list","delete"],`+
			`"responseKind":{"kind":"Thing%d"}}`, i, i)
	}
	return `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{"version":"v1","resources":[` +
		strings.Join(kinds, ",") + `]}]}]}`
}

// TestTooManyKinds checks that a cluster with too many kinds is an error before the first list, and that no kind counts
// as if it had no objects: a namespace that may contain objects is not deleted.
func TestTooManyKinds(t *testing.T) {
	s, c, _ := installed(t)
	s.setScript("GET /api", jsonScript(discoveryOf(maxKinds+1)))
	s.setScript("GET /apis", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[]}`))
	check := func(what string, err error) {
		t.Helper()
		if !reasonIs(err, ServerFault) || !strings.Contains(err.Error(), "more than 5000 kinds") {
			t.Errorf("%s: got %v, want too many kinds", what, err)
		}
		for _, sent := range s.takeRequests() {
			if strings.Contains(sent, "/things") {
				t.Fatalf("%s: sent %s, want no list", what, sent)
			}
		}
	}
	_, err := c.ListAllByLabel(t.Context(), "of=us", 7)
	check("all kinds", err)
	_, _, err = c.ListOwned(t.Context(), "n/m", "me", "of=us")
	check("owned objects", err)
	result, err := c.DeleteOwned(t.Context(), []Ref{{Version: "v1", Kind: "Namespace", Name: "mod"}}, nil,
		&Ownership{Name: "n/m", Title: "module m", RecordedAreOwn: true})
	if err == nil && len(result.Remaining) == 1 {
		err = result.Remaining[0].Err
	}
	check("a namespace", err)
	if !slices.Contains(s.paths(), namespacePath) {
		t.Error("the namespace was deleted although its content is unknown")
	}
}
