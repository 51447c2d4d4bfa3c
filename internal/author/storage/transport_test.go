package storage

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/kyma-fleet/lifecycle-manager/internal/egress"
)

// TestTransportTo checks that only a place on this machine allows images in registries on this machine.
func TestTransportTo(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	ref, err := name.NewTag(host + "/team/widget:2.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for place, isAllowed := range map[string]bool{
		s.URL + "/modules": true, "http://127.0.0.1:1": true, "registry.localhost:5000": true, "./a.ctf": true,
		"registry.example.com": false, "http://10.0.0.1:5000": false, "localhost.example.com": false,
	} {
		p, err := Open(place, Access{}, true)
		if err != nil {
			t.Fatal(err)
		}
		requests.Store(0)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		transport := p.transportTo(ref.Context())
		response, err := transport.RoundTrip(request)
		if err == nil {
			_ = response.Body.Close()
		}
		if isAllowed && err != nil || !isAllowed && !egress.IsRefused(err) || requests.Load() > 0 != isAllowed {
			t.Errorf("%s: got %v after %d requests", place, err, requests.Load())
		}
		if p.transportTo(ref.Context()) != transport {
			t.Errorf("%s: the second transport cannot use the connections of the first one", place)
		}
	}
}

// TestLoopbackNames checks which hosts are on this machine.
func TestLoopbackNames(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:5000": true, "Registry.localhost:5000": true, "127.0.0.1:5000": true,
		"127.8.8.8": true, "[::1]:5000": true, "[::ffff:127.0.0.1]:5000": true,
		"localhost.example.com": false, "127.0.0.1.example.com": false, "10.0.0.1:5000": false, "mylocalhost": false,
		"169.254.169.254": false, "archive.invalid": false, "": false,
	} {
		if got := isLoopbackName(host); got != want {
			t.Errorf("%q: got %t", host, got)
		}
	}
}
