package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// session reads from one repository, with the credentials from the keychain. A session is used for one pull.
type session struct {
	place
	client *http.Client
	scheme string
}

// openSession authenticates at the registry and returns a session for the repository.
func (r *Registry) openSession(ctx context.Context, p place) (*session, error) {
	auth, err := authn.Resolve(ctx, r.opts.Keychain, p.Repository)
	if err != nil {
		return nil, &ocm.Error{Ref: p.Name(), Code: ocm.RegistryUnauthorized, Cause: err,
			Problem: "finding the registry credentials failed: check the credential Secret: " +
				ocm.FirstLine(err.Error())}
	}
	signed, err := transport.NewWithContext(ctx, p.Registry, auth, r.transportWithoutAuthTo(p),
		[]string{p.Scope(transport.PullScope)})
	if err != nil {
		return nil, classifyError("pulling", p.Name(), err)
	}
	scheme := "https"
	if p.plain {
		scheme = "http"
	}
	return &session{place: p, scheme: scheme, client: &http.Client{Transport: signed,
			CheckRedirect: limitRedirectCount}},
		nil
}

// transportWithoutAuthTo returns the transport for requests to the repository p.
func (r *Registry) transportWithoutAuthTo(p place) http.RoundTripper {
	t := r.opts.Transport
	if p.plain {
		t = plainHTTP{host: p.RegistryStr(), next: t}
	}
	return transport.NewUserAgent(t, "lifecycle-manager")
}

// plainHTTP sends all requests to one host without TLS. Without plainHTTP, the library go-containerregistry would try
// TLS before plain HTTP.
type plainHTTP struct {
	host string
	next http.RoundTripper
}

func (p plainHTTP) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host == p.host && request.URL.Scheme == "https" {
		request = request.Clone(request.Context())
		request.URL.Scheme = "http"
	}
	return p.next.RoundTrip(request)
}

// limitRedirectCount allows at most five redirects, for example to the blob storage of a registry. The transport checks
// the address of each redirect.
func limitRedirectCount(_ *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("more than 5 redirects")
	}
	return nil
}

// Manifest reads the image manifest to which a tag or a digest points.
func (s *session) Manifest(ctx context.Context, tagOrDigest string) (*ocm.ImageManifest, error) {
	ref := s.refTo(tagOrDigest)
	data, err := s.ManifestBytes(ctx, ref, "manifests/"+tagOrDigest)
	if err != nil {
		return nil, err
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, ocm.NewError(ocm.InvalidDescriptor, ref, "the manifest is not JSON: %s: push the module again",
			ocm.FirstLine(err.Error()))
	}
	if manifest.Config.Digest.Hex == "" {
		return nil, ocm.NewError(ocm.InvalidDescriptor, ref,
			"not an image manifest but %q: push the module as a component version", manifest.MediaType)
	}
	return &ocm.ImageManifest{Manifest: manifest, Raw: data, Digest: ocm.DigestOf(data), Ref: ref}, nil
}

// refTo returns the full reference of a tag or a digest, for messages.
func (s *session) refTo(tagOrDigest string) string {
	if strings.Contains(tagOrDigest, ":") {
		return s.Name() + "@" + tagOrDigest
	}
	return s.Name() + ":" + tagOrDigest
}

// ManifestBytes reads a manifest or a list of manifests. ManifestBytes compares the bytes with the digest in the
// request. If the request has a tag, ManifestBytes compares the bytes with the digest in the header of the response.
func (s *session) ManifestBytes(ctx context.Context, ref, path string) ([]byte, error) {
	data, header, err := s.get(ctx, ref, path, maxManifest)
	if err != nil {
		return nil, err
	}
	stated := header.Get("Docker-Content-Digest")
	if _, asked, ok := strings.Cut(path, "manifests/sha256:"); ok {
		stated = "sha256:" + asked
	}
	if strings.HasPrefix(stated, "sha256:") && stated != ocm.DigestOf(data) {
		return nil, ocm.NewError(ocm.DigestMismatch, ref,
			"the registry states %s for the manifest but sends %s: push the module again, or check proxies between "+
				"registry and manager",
			stated, ocm.DigestOf(data))
	}
	return data, nil
}

// Blob reads a blob of at most limit bytes, and compares it with its digest.
func (s *session) Blob(ctx context.Context, digest string, limit int64) ([]byte, error) {
	ref := s.Name() + "@" + digest
	data, _, err := s.get(ctx, ref, "blobs/"+digest, limit)
	if err != nil {
		return nil, err
	}
	if got := ocm.DigestOf(data); got != digest {
		return nil, ocm.NewError(ocm.DigestMismatch, ref,
			"the registry sends bytes with digest %s: push the module again, or check proxies between registry and "+
				"manager", got)
	}
	return data, nil
}

func (s *session) get(ctx context.Context, ref, path string, limit int64) ([]byte, http.Header, error) {
	url := fmt.Sprintf("%s://%s/v2/%s/%s", s.scheme, s.RegistryStr(), s.RepositoryStr(), path)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, ocm.NewError(ocm.InvalidReference, ref,
			"it cannot be converted to a URL: check name and version")
	}
	request.Header.Set("Accept", strings.Join([]string{string(types.OCIManifestSchema1),
		string(types.DockerManifestSchema2), string(types.OCIImageIndex), "*/*"}, ", "))
	response, err := s.client.Do(request)
	if err != nil {
		return nil, nil, classifyError("pulling", ref, err)
	}
	defer response.Body.Close()
	if err := transport.CheckError(response, http.StatusOK); err != nil {
		return nil, nil, classifyError("pulling", ref, err)
	}
	tooLarge := ocm.NewError(ocm.ArtifactTooLarge, ref,
		"larger than %d bytes: make the module smaller", limit)
	if response.ContentLength > limit {
		return nil, nil, tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return nil, nil, classifyError("pulling", ref, err)
	}
	if int64(len(data)) > limit {
		return nil, nil, tooLarge
	}
	return data, response.Header, nil
}
