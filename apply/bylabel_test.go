package apply

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
"labels":{"of":"us"},"annotations":{"owner":"me","operator.kyma-project.io/prune":"keep"}}}]}`))
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
	if diff := cmp.Diff(want, found[0].Ref); diff != "" || found[0].Annotation("owner") != "me" ||
		found[0].Annotation("other") != "" {
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
