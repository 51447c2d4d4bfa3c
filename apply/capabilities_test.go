package apply

import (
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

// jsonScript returns a handler with which the test server sends body as a successful JSON response.
func jsonScript(body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}
