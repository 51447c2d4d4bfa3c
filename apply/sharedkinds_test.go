package apply

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

func TestKindsAreShared(t *testing.T) {
	thing := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	ref := Ref{Group: thing.Group, Version: thing.Version, Kind: thing.Kind, Namespace: "n", Name: "a"}
	s := newServer(t)
	k := &Kinds{}
	k.addCRD(render.CRD{Group: thing.Group, Versions: []string{thing.Version}, Kind: thing.Kind,
		Plural: "things", Namespaced: true})
	if res, ok := k.Resource(ref); !ok || res.Resource != "things" {
		t.Errorf("got %v, %v, want what the bundle says", res, ok)
	}
	if res, ok := k.Resource(Ref{Group: "apps", Version: "v1", Kind: "Deployment"}); !ok ||
		res.Resource != "deployments" {
		t.Errorf("got %v, %v, want what is built in", res, ok)
	}
	if res, ok := k.Resource(Ref{Group: "example.com", Version: "v1", Kind: "Other"}); ok {
		t.Errorf("got %v of a kind that nobody defines", res)
	}
	c := s.cluster(ClusterOptions{Kinds: k})
	if res, namespaced, err := c.Resource(t.Context(), ref); err != nil || res.Resource != "things" || !namespaced {
		t.Errorf("got %v, namespaced %v, %v, want what the bundle says", res, namespaced, err)
	}
	if got := s.takeRequests(); len(got) > 0 {
		t.Errorf("the cluster was asked %q, want nothing", got)
	}

	// The test server serves the kind with the plural name thingies, which differs from the plural name in the bundle.
	// The Cluster of the test server must use the name thingies, and other Clusters with the same Kinds must use the
	// name in the bundle.
	s.setScript("GET /apis/example.com/v1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(
			`{"kind":"APIResourceList","resources":[{"name":"thingies","kind":"Thing","namespaced":true}]}`))
	})
	c.forgetKind(thing)
	if res, _, err := c.Resource(t.Context(), ref); err != nil || res.Resource != "thingies" {
		t.Errorf("got %v, %v, want what the cluster says", res, err)
	}
	if got := s.takeRequests(); len(got) != 1 {
		t.Errorf("requests are %q, want one", got)
	}
	if res, _, err := c.Resource(t.Context(), ref); err != nil || res.Resource != "thingies" ||
		len(s.takeRequests()) > 0 {
		t.Errorf("got %v, %v, want that remembered", res, err)
	}
	if res, _, err := s.cluster(ClusterOptions{Kinds: k}).Resource(t.Context(), ref); err != nil ||
		res.Resource != "things" {
		t.Errorf("another cluster has %v, %v: nobody decides for others", res, err)
	}
}
