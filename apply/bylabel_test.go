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
	s.on("GET /api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
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
	if got := s.take(); len(got) != 1 {
		t.Errorf("requests are %q, want one", got)
	}
	_, _, err = c.ListByLabel(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"},
		"", 7)
	if !reasonIs(err, KindUnknown) {
		t.Errorf("got %v, want %s", err, KindUnknown)
	}
}
