package landscape

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// LoginUser and LoginPassword are the login for the protected address of the registry and the protected path of the
// chart repository.
const (
	LoginUser     = "robot"
	LoginPassword = "open-sesame"
)

// front is a proxy in front of a server that records requests and injects faults.
type front struct {
	next http.Handler

	mu       sync.Mutex // guards what follows
	requests []string
	down     bool
	swapped  map[string][]byte // replaced content; the key is the last element of the path
}

// ServeHTTP records a request and forwards it, unless a fault is injected: the server is down or serves wrong data.
func (d *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.requests = append(d.requests, r.Method+" "+r.URL.Path)
	down, lie := d.down, d.swapped[path.Base(r.URL.Path)]
	d.mu.Unlock()
	switch {
	case down:
		http.Error(w, "down for a test", http.StatusServiceUnavailable)
	case lie != nil && r.Method == http.MethodGet:
		_, _ = w.Write(lie) //nolint:gosec // the reader is a program of ours
	default:
		d.next.ServeHTTP(w, r)
	}
}

// requestsAfter returns all recorded requests except the first n.
func (d *front) requestsAfter(n int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.requests[min(n, len(d.requests)):])
}

func (d *front) setDown(down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = down
}

func (d *front) swapFile(baseName string, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if data == nil {
		delete(d.swapped, baseName)
		return
	}
	if d.swapped == nil {
		d.swapped = map[string][]byte{}
	}
	d.swapped[baseName] = data
}

// requireLogin returns a handler that requires the login.
func requireLogin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != LoginUser || password != LoginPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="landscape"`)
			http.Error(w, "log in", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// startRegistry serves a registry on loopback. The address RegistryHost is public. The address LockedRegistryHost
// requires a user name and a password.
func (l *Landscape) startRegistry() error {
	l.images.next = ociregistry.New(ociregistry.Logger(discard))
	open, login := httptest.NewServer(&l.images), httptest.NewServer(requireLogin(&l.images))
	l.servers = append(l.servers, open, login)
	l.RegistryHost, l.LockedRegistryHost = open.URL, login.URL
	var err error
	if l.Registry, err = registry.New(registry.Options{Host: l.RegistryHost}); err != nil {
		return fmt.Errorf("opening the registry of the landscape: %w", err)
	}
	l.Say("registry       %s", l.RegistryHost)
	return nil
}

// PushLayer pushes bytes as a layer of a repository and returns the digest of the layer. If tag is not "", PushLayer
// also pushes an image with this one layer. If tag is "", the layer can be pulled only by its digest.
func (l *Landscape) PushLayer(ctx context.Context, repository, tag string, data []byte) (
	layerDigest string, err error) {
	return l.pushLayer(ctx, repository, tag, empty.Image, static.NewLayer(data, "application/octet-stream"))
}

// PushChart pushes a packaged chart as Helm does. The name of the chart is the last element of the repository. The
// version of the chart is the tag.
func (l *Landscape) PushChart(ctx context.Context, repository, version string, archive []byte) error {
	config := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		"application/vnd.cncf.helm.config.v1+json")
	layer := static.NewLayer(archive, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")
	_, err := l.pushLayer(ctx, repository, strings.ReplaceAll(version, "+", "_"), config, layer)
	return err
}

func (l *Landscape) pushLayer(ctx context.Context, repository, tag string, base v1.Image,
	layer v1.Layer) (string, error) {
	failed := func(err error) (string, error) {
		return "", fmt.Errorf("pushing to repository %s: %w", repository, err)
	}
	digest, err := layer.Digest()
	if err != nil {
		return failed(err)
	}
	repo, err := name.NewRepository(strings.TrimPrefix(l.RegistryHost, "http://") + "/" + repository)
	if err != nil {
		return failed(err)
	}
	if tag == "" {
		if err := remote.WriteLayer(repo, layer, remote.WithContext(ctx)); err != nil {
			return failed(err)
		}
		return digest.String(), nil
	}
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return failed(err)
	}
	if err := remote.Write(repo.Tag(tag), image, remote.WithContext(ctx)); err != nil {
		return failed(err)
	}
	return digest.String(), nil
}

// RegistryRequestsAfter returns all requests to the registry except the first n, as method and path.
// RegistryRequestsAfter includes the requests of [Landscape.PushAndCreateModuleTemplate]. Requests to
// LockedRegistryHost without a valid user name and password are not included.
func (l *Landscape) RegistryRequestsAfter(n int) []string { return l.images.requestsAfter(n) }

// SetRegistryDown makes the registry respond to every request with 503 Service Unavailable. SetRegistryDown(false)
// repairs the registry.
func (l *Landscape) SetRegistryDown(down bool) { l.images.setDown(down) }

// SwapBlob makes the registry serve other bytes for the blob with the digest, like a compromised registry. If data is
// nil, the registry serves the original bytes again.
func (l *Landscape) SwapBlob(digest string, data []byte) { l.images.swapFile(digest, data) }
