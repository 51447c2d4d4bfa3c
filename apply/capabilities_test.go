package apply

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCapabilities(t *testing.T) {
	s, c, _ := installed(t)
	now := time.Now()
	c.now = func() time.Time { return now }
	s.takeRequests()
	s.setScript("GET /version", jsonScript(`{"gitVersion":"v1.37.1"}`))
	s.setScript("GET /api", jsonScript(
		`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"responseKind":{"kind":"Pod"}}]}]}]}`))
	s.setScript("GET /apis", jsonScript(
		`{"kind":"APIGroupList","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1"}]}]}`))

	if got, err := c.Capabilities(t.Context(), nil); err != nil || got.KubeVersion != "" || len(s.takeRequests()) != 0 {
		t.Errorf("no question: got %+v, %v, want nothing asked", got, err)
	}
	got, err := c.Capabilities(t.Context(), []string{"kubeVersion in >=1.30"})
	if sent := s.takeRequests(); err != nil || got.KubeVersion != "v1.37.1" || got.APIVersions != nil ||
		!slices.Equal(sent, []string{"GET /version"}) {
		t.Errorf("version: got %+v, %v by %q, want the version alone", got, err, sent)
	}
	queries := []string{"apiVersion example.com/v1/Thing"}
	got, err = c.Capabilities(t.Context(), queries)
	if err != nil || strings.Join(got.APIVersions, " ") != "example.com/v1 example.com/v1/Thing v1 v1/Pod" {
		t.Errorf("kinds: got %q, %v, want those of both ways to answer", got.APIVersions, err)
	}
	s.takeRequests()
	if again, err := c.Capabilities(t.Context(), queries); err != nil ||
		!slices.Equal(again.APIVersions, got.APIVersions) || len(s.takeRequests()) != 0 {
		t.Errorf("again: got %+v, %v, want it remembered", again, err)
	}
	now = now.Add(capabilitiesCachePeriod + time.Second)
	if _, err := c.Capabilities(t.Context(), queries); err != nil || len(s.takeRequests()) == 0 {
		t.Errorf("later: %v, want it asked again", err)
	}
}

// TestCapabilitiesLimits checks that the version and the APIs of a cluster, which stay in memory, are limited, and that
// too many APIs are an error: an API that was left out would seem not to exist.
func TestCapabilitiesLimits(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	queries := []string{"apiVersion example.com/v1"}
	s.setScript("GET /version", jsonScript(`{"gitVersion":"v1.37.1+`+strings.Repeat("x", 1<<20)+`"}`))
	got, err := c.Capabilities(t.Context(), []string{"kubeVersion in >=1.30"})
	if err != nil || len(got.KubeVersion) != maxVersionBytes || !strings.HasPrefix(got.KubeVersion, "v1.37.1+x") {
		t.Errorf("got a version of %d bytes, %v, want %d", len(got.KubeVersion), err, maxVersionBytes)
	}

	s.setScript("GET /apis", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[]}`))
	s.setScript("GET /api", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[`+
		`{"version":"v1","resources":[{"responseKind":{"kind":"`+strings.Repeat("x", maxAPIBytes)+`"}}]}]}]}`))
	if got, err := c.Capabilities(t.Context(), queries); !reasonIs(err, ServerFault) || len(got.APIVersions) > 0 ||
		len(c.cached.APIVersions) > 0 {
		t.Errorf("long names: got %d APIs, %v, want %s", len(got.APIVersions), err, ServerFault)
	}

	versions := make([]string, maxGroupVersions+1)
	for i := range versions {
		versions[i] = fmt.Sprintf(`{"groupVersion":"example.com/v%d"}`, i)
	}
	s.setScript("GET /api", jsonScript(`{"kind":"APIVersions","versions":[]}`))
	s.setScript("GET /apis", jsonScript(`{"kind":"APIGroupList","groups":[{"name":"example.com","versions":[`+
		strings.Join(versions, ",")+`]}]}`))
	s.takeRequests()
	if _, err := c.Capabilities(t.Context(), queries); !reasonIs(err, ServerFault) {
		t.Errorf("many versions: got %v, want %s", err, ServerFault)
	}
	if sent := s.takeRequests(); !slices.Equal(sent, []string{"GET /api", "GET /apis"}) {
		t.Errorf("many versions: %d requests, want no request for a version", len(sent))
	}
}

// jsonScript returns a handler with which the test server sends body as a successful JSON response.
func jsonScript(body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}
