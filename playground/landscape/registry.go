package landscape

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"

	ociregistry "github.com/google/go-containerregistry/pkg/registry"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// counter stands in front of the registry: it notes requests and plays faults.
type counter struct {
	next http.Handler

	mu       sync.Mutex // guards what follows
	requests []string
	down     bool
	swapped  map[string][]byte // by digest: what is served in place of the blob
}

// ServeHTTP notes a request and answers it, unless the registry is to be down or to lie.
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests = append(c.requests, r.Method+" "+r.URL.Path)
	down, lie := c.down, c.swapped[path.Base(r.URL.Path)]
	c.mu.Unlock()
	switch {
	case down:
		http.Error(w, "down for a test", http.StatusServiceUnavailable)
	case lie != nil && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/"):
		_, _ = w.Write(lie)
	default:
		c.next.ServeHTTP(w, r)
	}
}

// startRegistry serves a registry on loopback.
func (l *Landscape) startRegistry() error {
	l.counter = counter{next: ociregistry.New(ociregistry.Logger(discard)), swapped: map[string][]byte{}}
	l.server = httptest.NewServer(&l.counter)
	l.RegistryHost = l.server.URL
	var err error
	if l.Registry, err = registry.New(registry.Options{Host: l.RegistryHost}); err != nil {
		return fmt.Errorf("opening the registry of the landscape: %w", err)
	}
	l.Say("registry       %s", l.RegistryHost)
	return nil
}

// RegistryRequests returns the requests that reached the registry, each as method and path, without the first n. Those of [Landscape.Publish]
// are among them.
func (l *Landscape) RegistryRequests(n int) []string {
	l.counter.mu.Lock()
	defer l.counter.mu.Unlock()
	return slices.Clone(l.counter.requests[min(n, len(l.counter.requests)):])
}

// BreakRegistry lets the registry answer every request with 503 Service Unavailable, until it is called with false.
func (l *Landscape) BreakRegistry(down bool) {
	l.counter.mu.Lock()
	defer l.counter.mu.Unlock()
	l.counter.down = down
}

// SwapBlob lets the registry serve other bytes for the blob with the digest, as a registry that was broken into would. nil ends it.
func (l *Landscape) SwapBlob(digest string, data []byte) {
	l.counter.mu.Lock()
	defer l.counter.mu.Unlock()
	if data == nil {
		delete(l.counter.swapped, digest)
		return
	}
	l.counter.swapped[digest] = data
}
