package apply

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestListInstances checks the number of requests for the custom resources of a CRD: one request if the kind of the CRD
// is cached. If the kind is not cached, two discovery requests, which find a served version, precede the list request.
func TestListInstances(t *testing.T) {
	const list = "GET /apis/example.com/v1/things"
	discovery := []string{"GET /apis/example.com", "GET /apis/example.com/v1"}
	crd := render.CRD{Group: "example.com", Kind: "Thing", Plural: "things", Namespaced: true}
	versions := func(all ...string) *render.CRD {
		c := crd
		c.Versions = all
		return &c
	}
	cases := map[string]struct {
		reason string
		crd    *render.CRD // known from a bundle
		serves string
		want   []string
		found  bool
	}{
		"Known":       {"the bundle names the kind", versions("v1beta1", "v1"), thingKind, []string{list}, true},
		"Unknown":     {"after a restart", nil, thingKind, append(slices.Clone(discovery), list), true},
		"OldVersion":  {"the cluster serves another version", versions("v2"), thingKind, append([]string{"GET /apis/example.com/v2/things"}, append(slices.Clone(discovery), list)...), true},
		"Absent":      {"the CRD does not exist", nil, "", discovery[:1], false},
		"OtherPlural": {"the group has other kinds", nil, "example.com/v1 Other others", discovery, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			cluster := s.cluster(ClusterOptions{Kinds: new(Kinds)})
			if c.serves != "" {
				s.serveKind(c.serves)
			}
			if c.crd != nil {
				cluster.shared.addCRD(*c.crd)
			}
			s.stored[thingPath] = map[string]any{"metadata": map[string]any{"name": "default", "namespace": "default",
				"ownerReferences": []any{map[string]any{"kind": "Owner"}}}}
			got, err := cluster.ListInstances(t.Context(), "things.example.com", 3, "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, s.takeRequests()); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", c.reason, diff)
			}
			if found := len(got.Items) == 1; found != c.found || found && (got.Items[0].Kind != "Thing" ||
				len(got.Items[0].Owners) != 1 || got.Kind.Version != "v1") {
				t.Errorf("%s: got %+v", c.reason, got)
			}
			if _, err := cluster.ListInstances(t.Context(), "things.example.com", 3, ""); err != nil ||
				len(s.takeRequests()) > 1 {
				t.Errorf("%s: the second call: %v, want at most one request", c.reason, err)
			}
		})
	}
}

// TestListInstancesPages checks that the count includes the objects that the API server did not return with the page.
func TestListInstancesPages(t *testing.T) {
	s := newServer(t)
	s.serveKind(thingKind)
	c := s.cluster(ClusterOptions{})
	queries := []string{}
	answer := func(metadata map[string]any) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			queries = append(queries, r.URL.Query().Get("limit")+" "+r.URL.Query().Get("continue"))
			metadata["resourceVersion"] = "9"
			writeJSON(w, http.StatusOK, map[string]any{"kind": "ThingList", "metadata": metadata, "items": []any{
				map[string]any{"metadata": map[string]any{"name": "a"}}}})
		}
	}
	s.setScript("GET /apis/example.com/v1/things", answer(map[string]any{"continue": "more", "remainingItemCount": 7}))
	first, err := c.ListInstances(t.Context(), "things.example.com", 1, "")
	if err != nil || first.More != 7 || first.Continue != "more" {
		t.Errorf("first page: %v, %+v", err, first)
	}
	s.setScript("GET /apis/example.com/v1/things", answer(map[string]any{"continue": "uncounted"}))
	if second, err := c.ListInstances(t.Context(), "things.example.com", 5, "more"); err != nil || second.More != 1 {
		t.Errorf("a page without a count: %v, %+v", err, second)
	}
	if diff := cmp.Diff([]string{"1 ", "5 more"}, queries); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
	got, err := c.ListInstances(t.Context(), "no name", 1, "")
	if err != nil || got.Kind != (schema.GroupVersionKind{}) {
		t.Errorf("an impossible name: %v, %+v", err, got)
	}
}

// TestLocate checks that the Ref that ResolveNamespace returns has a namespace if its kind is namespaced, and no
// namespace if its kind is cluster-scoped.
func TestLocate(t *testing.T) {
	s := newServer(t)
	s.serveKind("example.com/v1 Thing things")
	s.serveKind("example.com/v1 Whole wholes cluster")
	c := s.cluster(ClusterOptions{})
	of := func(kind, namespace string) Ref {
		return Ref{Group: "example.com", Version: "v1", Kind: kind, Namespace: namespace, Name: "a"}
	}
	for _, c2 := range []struct {
		reason    string
		ref, want Ref
	}{
		{"cluster-scoped", of("Whole", "kyma-system"), of("Whole", "")},
		{"namespaced", of("Thing", "kyma-system"), of("Thing", "kyma-system")},
		{"the default namespace", of("Thing", ""), of("Thing", "default")},
		{"not served", of("Nothing", "kyma-system"), of("Nothing", "kyma-system")},
	} {
		if got, err := c.ResolveNamespace(t.Context(), c2.ref); err != nil || got != c2.want {
			t.Errorf("%s: %v, %v, want %v", c2.reason, got, err, c2.want)
		}
	}
}

// TestTooManyVersions checks that a kind is searched in a limited number of versions, and that a kind that was not
// found in them does not count as unserved: its objects would count as deleted.
func TestTooManyVersions(t *testing.T) {
	for _, tc := range []struct {
		reason   string
		versions int
		want     string // reason of the error; "" for an unserved kind
	}{
		{"all versions are searched", maxVersions, ""},
		{"some versions are not searched", maxVersions + 1, ServerFault},
	} {
		s := newServer(t)
		c := s.cluster(ClusterOptions{})
		for i := range tc.versions {
			s.serveKind(fmt.Sprintf("example.com/v1beta%d Other others", i+1))
		}
		found, err := c.ListInstances(t.Context(), "things.example.com", 3, "")
		if got := reasonOf(err); got != tc.want || found.Kind.Kind != "" {
			t.Errorf("%s: got %+v, %v, want reason %q", tc.reason, found, err, tc.want)
		}
		if n := len(s.takeRequests()); n != 1+maxVersions {
			t.Errorf("%s: %d requests, want one for the group and %d for versions", tc.reason, n, maxVersions)
		}

		thing := Ref{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "default", Name: "default"}
		result, err := c.Delete(t.Context(), []Ref{thing}, nil)
		if done := err == nil && result.Done(); done != (tc.want == "") {
			t.Errorf("%s: got %+v, %v: the object counts as deleted: %t", tc.reason, result, err, done)
		}
	}
}

// reasonOf returns the reason of an Error, or "".
func reasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason()
	}
	return ""
}
