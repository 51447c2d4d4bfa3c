package manifest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-fleet/lifecycle-manager/internal/egress"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Repository is a source of charts. Repository is either a chart repository with an index (https://, http://) or a
// registry (oci://host/path). In a registry, each chart is the repository path/name, and its versions are tags. A
// Repository caches the index for MaxAge, so use one Repository for all charts of a chart repository. A Repository must
// not be copied after first use. Repository is safe for concurrent use.
type Repository struct {
	// URL is the address of the repository.
	URL string
	// Username and Password are sent only to the host of URL. If Username and Password are empty, the Repository uses
	// Keychain if set; otherwise requests are anonymous.
	Username, Password string
	// Keychain finds credentials for oci://. Nil means anonymous requests. The caller decides from where Keychain reads
	// credentials.
	Keychain authn.Keychain
	// Transport sends the requests. Nil means a transport that refuses loopback addresses, link-local addresses and the
	// addresses at which cloud providers serve metadata. The host in the field URL may have such an address.
	Transport http.RoundTripper
	// MaxBytes is the maximum size of a packaged chart. 0 means 32 MiB.
	MaxBytes int64
	// MaxAge is how long the index is cached. 0 means 5 minutes; a negative MaxAge means that the index is not cached.
	MaxAge time.Duration

	once      sync.Once
	byDefault http.RoundTripper // used if Transport is nil; set once

	mu    sync.Mutex
	index map[string][]ChartVersion // guarded by mu; versions by chart name, newest first
	read  time.Time                 // guarded by mu; the time index was read
}

// ChartVersion is one version of a chart in a repository.
type ChartVersion struct {
	Name, Version string
	// Digest is the digest of the packaged chart, sha256:<hex>. Digest is "" if the index contains no digest.
	Digest string
	// URL is the address of the packaged chart.
	URL string
}

const (
	defaultMaxBytes = 32 << 20
	maxIndexBytes   = 32 << 20
	// maxIndexValues is the maximum number of YAML values in the index of a repository. The limit is needed because
	// decoding needs up to 350 bytes for each YAML value. An index that lists 20,000 versions of charts has about
	// 600,000 YAML values.
	maxIndexValues = 1_000_000
	defaultMaxAge  = 5 * time.Minute
	// requestTimeout is the timeout of one request. requestTimeout includes the time to read the response.
	requestTimeout = time.Minute
)

// Find returns the newest version of a chart that satisfies the parameter constraint. The constraint is an exact
// version or a range such as "1.x" or ">=1.2 <2". "" means any version except pre-releases; ">0.0.0-0" includes
// pre-releases.
//
// If the URL of the repository begins with oci://, Find sends one small request for an exact version or a digest
// sha256:<hex>, and lists the tags for a range. If the URL begins with https:// or http://, Find requests the index of
// the repository unless the index is cached.
//
// Errors are of type *Error, or are errors of ctx.
func (r *Repository) Find(ctx context.Context, name, constraint string) (ChartVersion, error) {
	name = path.Base(name) // the helm command puts the name of the repository before the name of the chart
	if name == "." || name == "/" || name == ".." {
		return ChartVersion{}, invalidInfo("the chart has no name: set ChartInfo.Name")
	}
	if strings.HasPrefix(r.URL, "oci://") {
		return r.findImage(ctx, name, constraint)
	}
	index, err := r.readIndex(ctx)
	if err != nil {
		return ChartVersion{}, err
	}
	versions := index[name]
	if len(versions) == 0 {
		return ChartVersion{}, r.repositoryError(ChartNotFound,
			fmt.Sprintf("it has no chart %q: correct the name or the repository", name), nil)
	}
	i, err := r.chooseVersion(name, constraint, len(versions), func(i int) string { return versions[i].Version })
	if err != nil {
		return ChartVersion{}, err
	}
	return versions[i], nil
}

// chooseVersion selects one of n versions, which are sorted with the newest first, and returns the index of the
// selected version. If a version is equal to the parameter wanted, chooseVersion selects this version. If no version is
// equal, chooseVersion reads the parameter wanted as a range and selects the newest version in the range.
func (r *Repository) chooseVersion(chart, wanted string, n int, newestFirst func(int) string) (int, error) {
	for i := range n {
		if newestFirst(i) == wanted {
			return i, nil
		}
	}
	accepted, err := semver.NewConstraint(cmp.Or(wanted, "*"))
	if err != nil {
		return 0, r.repositoryError(ChartNotFound,
			fmt.Sprintf("%q is neither a version of chart %q nor a range: correct it", wanted, chart), nil)
	}
	for i := range n {
		if v, err := semver.NewVersion(newestFirst(i)); err == nil && accepted.Check(v) {
			return i, nil
		}
	}
	newest := ""
	if n > 0 {
		newest = fmt.Sprintf(" (the newest is %s)", newestFirst(0))
	}
	return 0, r.repositoryError(ChartNotFound, fmt.Sprintf("it has no version %q of chart %q%s: correct the version",
		cmp.Or(wanted, "*"), chart, newest), nil)
}

// Fetch downloads a chart that Find has returned, and verifies the digest of the chart.
//
// Errors are of type *Error, or are errors of ctx.
func (r *Repository) Fetch(ctx context.Context, chart ChartVersion) ([]byte, error) {
	limit := cmp.Or(r.MaxBytes, defaultMaxBytes)
	var data []byte
	var err error
	if strings.HasPrefix(chart.URL, "oci://") {
		data, err = r.fetchImage(ctx, chart, limit)
	} else {
		data, err = r.download(ctx, chart.URL, limit)
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	if have := "sha256:" + hex.EncodeToString(sum[:]); chart.Digest != "" && have != chart.Digest {
		return nil, r.repositoryError(DigestMismatch,
			fmt.Sprintf("chart %s %s has digest %s, but the index says %s: the repository is damaged or was tampered "+
				"with, ask its owner", chart.Name, chart.Version, have, chart.Digest), nil)
	}
	return data, nil
}

// readIndex returns the index from the cache, or requests it from the repository. Concurrent callers wait for the same
// request.
func (r *Repository) readIndex(ctx context.Context) (map[string][]ChartVersion, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil { // ctx may have ended while readIndex waited for mu
		return nil, err
	}
	if r.index != nil && time.Since(r.read) < cmp.Or(r.MaxAge, defaultMaxAge) {
		return r.index, nil
	}
	base, err := url.Parse(strings.TrimSuffix(r.URL, "/") + "/")
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return nil, invalidInfo("%q is not the URL of a repository: it must begin with https://, http:// or oci://",
			redactedURL(r.URL))
	}
	data, err := r.download(ctx, base.JoinPath("index.yaml").String(), maxIndexBytes)
	if err != nil {
		return nil, err
	}
	index, err := parseIndex(data, base)
	if err != nil {
		return nil, r.repositoryError(InvalidIndex, "its index.yaml is invalid: check the URL", err)
	}
	r.index, r.read = index, time.Now()
	return index, nil
}

// parseIndex parses the index file of a chart repository, in YAML or JSON. As in Helm, versions that are not valid are
// ignored.
func parseIndex(data []byte, base *url.URL) (map[string][]ChartVersion, error) {
	var raw struct {
		APIVersion string `json:"apiVersion" yaml:"apiVersion"`
		Entries    map[string][]*struct {
			Version string   `json:"version" yaml:"version"`
			Digest  string   `json:"digest" yaml:"digest"`
			URLs    []string `json:"urls" yaml:"urls"`
		} `json:"entries" yaml:"entries"`
	}
	if err := render.CheckValueCount(data, maxIndexValues); err != nil {
		return nil, fmt.Errorf("it has more than %d values: use a repository with fewer charts, or oci://",
			maxIndexValues)
	}
	decode := yaml.Unmarshal
	if json.Valid(data) {
		decode = json.Unmarshal
	}
	if err := decode(data, &raw); err != nil {
		return nil, err
	}
	if raw.APIVersion == "" {
		return nil, errors.New("it has no apiVersion")
	}
	index := make(map[string][]ChartVersion, len(raw.Entries))
	for name, entries := range raw.Entries {
		type dated struct {
			ChartVersion
			parsed *semver.Version
		}
		var versions []dated
		for _, e := range entries {
			if e == nil || len(e.URLs) == 0 {
				continue
			}
			parsed, err := semver.NewVersion(e.Version)
			if err != nil {
				continue
			}
			at, err := base.Parse(e.URLs[0])
			if err != nil {
				continue
			}
			digest := strings.TrimPrefix(e.Digest, "sha256:")
			if digest != "" {
				digest = "sha256:" + digest
			}
			versions = append(versions, dated{ChartVersion{Name: name, Version: e.Version, Digest: digest,
				URL: at.String()}, parsed})
		}
		slices.SortStableFunc(versions, func(a, b dated) int { return b.parsed.Compare(a.parsed) })
		for _, v := range versions {
			index[name] = append(index[name], v.ChartVersion)
		}
	}
	return index, nil
}

// download downloads a file.
func (r *Repository) download(ctx context.Context, location string, limit int64) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(bounded, http.MethodGet, location, http.NoBody)
	if err != nil || request.URL.Scheme != "https" && request.URL.Scheme != "http" {
		return nil, r.repositoryError(InvalidIndex,
			fmt.Sprintf("%q is not a URL that can be read: ask the owner of the repository", redactedURL(location)),
			nil)
	}
	request.Header.Set("User-Agent", "kyma-fleet-lifecycle-manager")
	if own, err := url.Parse(r.URL); err == nil && r.Username+r.Password != "" && own.Host == request.URL.Host &&
		own.Scheme == request.URL.Scheme {
		request.SetBasicAuth(r.Username, r.Password)
	}
	if base, err := url.Parse(r.URL); err == nil {
		if err := checkScheme(base, request.URL); err != nil {
			return nil, r.repositoryError(InvalidIndex, fmt.Sprintf("%q is refused: ask the owner of the repository",
				redactedURL(location)), err)
		}
	}
	response, err := (&http.Client{Transport: r.transport(), CheckRedirect: checkRedirect}).Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the URL may contain credentials
		}
		return nil, r.connectError(err)
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return nil, r.repositoryError(RepositoryUnauthorized, fmt.Sprintf("it answers %s for %q: check the credentials",
			response.Status, redactedURL(location)), nil)
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone:
		return nil, r.repositoryError(ChartNotFound, fmt.Sprintf("it has no %q: check the URL", redactedURL(location)),
			nil)
	case response.StatusCode != http.StatusOK:
		return nil, r.repositoryError(RepositoryUnreachable, fmt.Sprintf("it answers %s for %q: retry later",
			response.Status, redactedURL(location)), nil)
	}
	var data bytes.Buffer
	if n, err := io.Copy(&data, io.LimitReader(response.Body, limit+1)); n > limit {
		return nil, r.repositoryError(ChartTooLarge,
			fmt.Sprintf("%q has more than %d bytes: raise the limit or make it smaller", redactedURL(location), limit),
			nil)
	} else if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, r.repositoryError(RepositoryUnreachable, fmt.Sprintf("%q ends early: retry", redactedURL(location)),
			err)
	}
	return data.Bytes(), nil
}

// maxRedirects is the maximum number of redirects of one request.
const maxRedirects = 5

// checkRedirect allows up to maxRedirects redirects, because a repository may redirect requests, for example to its
// storage. checkRedirect refuses a redirect from https to http. The credentials are sent only to the host, port and
// scheme of the first request; net/http would also send them to other ports of the same host.
func checkRedirect(request *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if request.URL.Host != first.Host || request.URL.Scheme != first.Scheme {
		request.Header.Del("Authorization")
	}
	return checkScheme(via[len(via)-1].URL, request.URL)
}

// checkScheme returns an error if an index or a redirect leads from TLS to plain HTTP.
func checkScheme(from, to *url.URL) error {
	if from.Scheme == "https" && to.Scheme != "https" {
		return fmt.Errorf("it leads from https to %s", to.Scheme)
	}
	return nil
}

// transport returns the transport with which all requests are sent.
func (r *Repository) transport() http.RoundTripper {
	if r.Transport != nil {
		return r.Transport
	}
	r.once.Do(func() { r.byDefault = egress.New(egress.Options{Configured: []string{r.URL}}) })
	return r.byDefault
}

// connectError converts the error of a request that got no answer.
func (r *Repository) connectError(err error) error {
	if refused, ok := errors.AsType[*egress.Error](err); ok {
		return r.repositoryError(EgressRefused, refused.Error(), nil)
	}
	return r.repositoryError(RepositoryUnreachable,
		"it does not answer: check the URL and the network, or retry later", err)
}

func (r *Repository) repositoryError(reason, problem string, err error) error {
	return &Error{reason: reason, doing: fmt.Sprintf("reading the chart repository %q", redactedURL(r.URL)),
		problem: problem, err: err}
}

// redactedURL returns a URL without the parts that may be secret.
func redactedURL(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return "(not a URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
