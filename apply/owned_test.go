package apply

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestListOwned checks which objects belong to an installation, and that kinds that may not be listed are
// returned.
func TestListOwned(t *testing.T) {
	s := newServer(t)
	answer := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		}
	}
	kind := func(plural, kind, scope string, verbs ...string) string {
		return fmt.Sprintf(`{"resource":%q,"scope":%q,"verbs":["%s"],"responseKind":{"kind":%q}}`, plural, scope,
			strings.Join(verbs, `","`), kind)
	}
	all := []string{"list", "patch", "delete"}
	s.setScript("GET /api", answer(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{"version":"v1",
		"resources":[`+strings.Join([]string{kind("configmaps", "ConfigMap", "Namespaced", all...),
		kind("secrets", "Secret", "Namespaced", all...), kind("events", "Event", "Namespaced", all...),
		kind("bindings", "Binding", "Namespaced", "create")}, ",")+`]}]}]}`))
	s.setScript("GET /apis", answer(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"apps"},"versions":[
		{"version":"v1","resources":[`+kind("replicasets", "ReplicaSet", "Namespaced", all...)+`]},
		{"version":"v1beta1","resources":[`+kind("replicasets", "ReplicaSet", "Namespaced", all...)+`]}]}]}`))
	object := func(name, manager string, annotations ...string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"x","annotations":{%s},"managedFields":[
			{"manager":%q,"operation":"Apply"}]}}`, name, strings.Join(annotations, ","), manager)
	}
	ours, adopted, kept := `"`+AnnotationOwnedBy+`":"ns/m"`, `"`+AnnotationAdopted+`":"true"`,
		`"`+AnnotationPrune+`":"keep"`
	others, coOwned := `"`+AnnotationOwnedBy+`":"ns/other"`, `"`+AnnotationCoOwners+`":"ns/a,ns/m"`
	s.setScript("GET /api/v1/configmaps", answer(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`+
		`"metadata":{"resourceVersion":"1"},"items":[`+strings.Join([]string{object("own", "me", ours),
		object("adopted", "me", ours, adopted), object("kept", "me", ours, kept), object("other", "me", others),
		object("shared", "me", others, coOwned), object("copied", "somebody", ours), object("plain", "me")}, ",")+
		`]}`))
	s.setScript("GET /api/v1/secrets", func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	})
	s.setScript("GET /apis/apps/v1/replicasets", answer(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`+
		`"metadata":{"resourceVersion":"1"},"items":[]}`))
	got, refused, err := s.cluster(ClusterOptions{}).ListOwned(t.Context(), "ns/m", "me", "label=value")
	if err != nil {
		t.Fatal(err)
	}
	if len(refused) != 1 || refused[0].Kind.Kind != "Secret" || refused[0].Err.Code != http.StatusForbidden {
		t.Errorf("refused are %v, want Secret", refused)
	}
	ref := func(name string, flags Ref) Ref {
		flags.Version, flags.Kind, flags.Namespace, flags.Name = "v1", "ConfigMap", "x", name
		return flags
	}
	want := []Ref{ref("own", Ref{}), ref("adopted", Ref{Adopted: true}), ref("kept", Ref{Keep: true}),
		ref("shared", Ref{Shared: true})}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	requests := s.takeRequests()
	slices.Sort(requests)
	if diff := cmp.Diff([]string{"GET /api", "GET /api/v1/configmaps", "GET /api/v1/secrets", "GET /apis",
		"GET /apis/apps/v1/replicasets"}, requests); diff != "" {
		t.Errorf("requests -want +got:\n%s", diff)
	}
	s.setScript("GET /api/v1/configmaps",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	if _, _, err := s.cluster(ClusterOptions{}).ListOwned(t.Context(), "ns/m", "me", ""); err == nil {
		t.Error("a list that failed was not reported: the inventory would lack objects")
	}
}

// TestListOwnedLimits checks that the pages and the memory of all lists together are limited.
func TestListOwnedLimits(t *testing.T) {
	owned := fmt.Sprintf(`"name":%q,"uid":"u","annotations":{%q:"ns/m"},"managedFields":[{"manager":"me",`+
		`"operation":"Apply"}]`, strings.Repeat("x", 5<<10), AnnotationOwnedBy)
	cases := map[string]struct {
		reason     string
		last, n    int // see pagesScript
		want       string
		wantedSent int // requests in addition to the two of discovery
	}{
		"Endless": {"an endless list", -1, 0, RuntimeUnreachable, maxPages},
		// The first pages of two kinds, and 199 more.
		"Pages":  {"a list of 150 pages for each kind", 150, 0, RuntimeUnreachable, maxPages + 1},
		"Memory": {"500 objects of 5.1 KiB in each page", -1, listed, ServerFault, 13},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.setScript("GET /api", jsonScript(discoveryOf(3)))
			s.setScript("GET /apis", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[]}`))
			for i := range 3 {
				s.setScript(fmt.Sprintf("GET /api/v1/things%d", i), pagesScript(tc.last, tc.n, owned))
			}
			c := s.cluster(ClusterOptions{MaxConcurrentRequests: 1})
			_, _, err := c.ListOwned(t.Context(), "ns/m", "me", "of=us")
			if n := len(s.takeRequests()) - 2; !reasonIs(err, tc.want) || n != tc.wantedSent {
				t.Errorf("%s: got %v after %d requests, want %s after %d", tc.reason, err, n, tc.want, tc.wantedSent)
			}
		})
	}
}
