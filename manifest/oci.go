package manifest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// chartLayerTypes are the media types that the layer with a packaged chart can have in an image. The first media type
// is the current one, and the second one is from early versions of Helm.
var chartLayerTypes = []string{"application/vnd.cncf.helm.chart.content.v1.tar+gzip", "application/tar+gzip"}

// findImage finds a chart in a registry. A tag cannot contain a plus sign, so Helm replaces the plus sign of a version
// by an underscore.
func (r *Repository) findImage(ctx context.Context, chart, version string) (ChartVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	repository, err := name.NewRepository(strings.TrimSuffix(strings.TrimPrefix(r.URL, "oci://"), "/") + "/" + chart)
	if err != nil {
		return ChartVersion{}, invalidInfo("%q and chart %q do not make a repository of a registry: correct them",
			redactedURL(r.URL), chart)
	}
	var ref name.Reference
	switch _, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v")); {
	case strings.HasPrefix(version, "sha256:"):
		ref = repository.Digest(version)
	case err == nil:
		ref = repository.Tag(strings.ReplaceAll(version, "+", "_"))
	default:
		if version, err = r.newestVersion(ctx, repository, chart, version); err != nil {
			return ChartVersion{}, err
		}
		ref = repository.Tag(strings.ReplaceAll(version, "+", "_"))
	}
	descriptor, err := r.chartLayerOf(ctx, ref)
	if err != nil {
		return ChartVersion{}, err
	}
	// The URL contains the digest of the layer. With the digest, a later Fetch downloads the same layer even if the tag
	// has been moved to another image in the meantime.
	return ChartVersion{Name: chart, Version: version, Digest: descriptor.Digest.String(),
		URL: "oci://" + repository.Name() + "@" + descriptor.Digest.String()}, nil
}

// newestVersion lists the versions of a chart and returns the newest version that satisfies the parameter constraint.
func (r *Repository) newestVersion(ctx context.Context, repository name.Repository, chart, constraint string) (
	string, error) {
	tags, err := remote.List(repository, append(r.remoteOptions(ctx),
		remote.WithTransport(&listLimit{next: r.transport()}))...)
	if len(tags) > maxTags || errors.Is(err, errListTooLong) {
		return "", r.repositoryError(ChartTooLarge, fmt.Sprintf("the list of tags of chart %s exceeds %d tags, %d "+
			"bytes or %d pages: set an exact version, or remove tags", chart, maxTags, maxTagBytes, maxTagPages), nil)
	}
	if err != nil {
		return "", r.registryError(ctx, err, "chart "+chart)
	}
	var versions []*semver.Version
	for _, tag := range tags {
		text := strings.ReplaceAll(tag, "_", "+")
		_, notExact := semver.StrictNewVersion(strings.TrimPrefix(text, "v")) // for example latest
		if v, err := semver.NewVersion(text); err == nil && notExact == nil {
			versions = append(versions, v)
		}
	}
	slices.SortFunc(versions, func(a, b *semver.Version) int {
		return cmp.Or(b.Compare(a), strings.Compare(b.Original(), a.Original())) // for a stable order
	})
	i, err := r.chooseVersion(chart, constraint, len(versions), func(i int) string { return versions[i].Original() })
	if err != nil {
		return "", err
	}
	return versions[i].Original(), nil
}

// These constants limit the list of tags of a chart, with all its pages. Some registries add 500 bytes to each tag.
const maxTags, maxTagBytes, maxTagPages = 300_000, 16 << 20, 1000

var errListTooLong = errors.New("the list of tags is too long")

// listLimit is a transport for one list of tags. The package remote reads pages without a limit, and follows links to
// the next page without end. net/http unpacks compressed pages.
type listLimit struct {
	next            http.RoundTripper
	requests, bytes atomic.Int64 // the package remote may send requests concurrently
}

func (l *listLimit) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxTagBytes+1))
	_ = response.Body.Close()
	if l.requests.Add(1) > maxTagPages || l.bytes.Add(int64(len(data))) > maxTagBytes ||
		render.CheckValueCount(data, maxIndexValues) != nil {
		err = errListTooLong
	}
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(data))
	return response, nil
}

// chartLayerOf returns that layer of an image which contains the chart.
func (r *Repository) chartLayerOf(ctx context.Context, ref name.Reference) (v1.Descriptor, error) {
	image, err := remote.Image(ref, r.remoteOptions(ctx)...)
	if err != nil {
		return v1.Descriptor{}, r.registryError(ctx, err, ref.Identifier())
	}
	manifest, err := image.Manifest()
	if err != nil {
		return v1.Descriptor{}, r.repositoryError(
			InvalidIndex, fmt.Sprintf("%s is not an image manifest: check name and version", ref.Identifier()), err)
	}
	for _, descriptor := range manifest.Layers {
		if slices.Contains(chartLayerTypes, string(descriptor.MediaType)) {
			return descriptor, nil
		}
	}
	return v1.Descriptor{}, r.repositoryError(InvalidIndex,
		fmt.Sprintf("%s is not a Helm chart: push it with helm push", ref.Identifier()), nil)
}

// fetchImage downloads the layer that findImage returned.
func (r *Repository) fetchImage(ctx context.Context, chart ChartVersion, limit int64) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ref, err := name.NewDigest(strings.TrimPrefix(chart.URL, "oci://"))
	if err != nil {
		if chart, err = r.pinURLToLayer(ctx, chart); err != nil {
			return nil, err
		}
		return r.fetchImage(ctx, chart, limit)
	}
	layer, err := remote.Layer(ref, r.remoteOptions(bounded)...)
	if err != nil {
		return nil, r.registryError(ctx, err, "chart "+chart.Name)
	}
	stream, err := layer.Compressed()
	if err != nil {
		return nil, r.registryError(ctx, err, "chart "+chart.Name)
	}
	defer func() { _ = stream.Close() }()
	data, err := io.ReadAll(io.LimitReader(stream, limit+1))
	if int64(len(data)) > limit {
		return nil, r.repositoryError(ChartTooLarge,
			fmt.Sprintf("chart %s %s has more than %d bytes: raise the limit or make it smaller", chart.Name,
				chart.Version, limit), nil)
	}
	if err != nil {
		return nil, r.registryError(ctx, err, "chart "+chart.Name)
	}
	return data, nil
}

// pinURLToLayer replaces the URL of a chart by a URL with the digest of its layer. Indexes may contain URLs with a tag,
// in the form oci://host/path/name:version.
func (r *Repository) pinURLToLayer(ctx context.Context, chart ChartVersion) (ChartVersion, error) {
	tag, err := name.NewTag(strings.TrimPrefix(chart.URL, "oci://"), name.StrictValidation)
	if err != nil {
		return ChartVersion{}, r.repositoryError(InvalidIndex,
			fmt.Sprintf("%q is not a chart in a registry: ask the owner of the repository", redactedURL(chart.URL)),
			nil)
	}
	descriptor, err := r.chartLayerOf(ctx, tag)
	if err != nil {
		return ChartVersion{}, err
	}
	chart.URL = "oci://" + tag.Repository.Name() + "@" + descriptor.Digest.String()
	return chart, nil
}

func (r *Repository) remoteOptions(ctx context.Context) []remote.Option {
	options := []remote.Option{remote.WithContext(ctx), remote.WithUserAgent("kyma-fleet-lifecycle-manager"),
		remote.WithTransport(r.transport())}
	own := strings.HasPrefix(r.URL, "oci://") // credentials of an index are sent to the host of the index only
	switch {
	case own && r.Username+r.Password != "":
		options = append(options, remote.WithAuth(&authn.Basic{Username: r.Username, Password: r.Password}))
	case r.Keychain != nil:
		options = append(options, remote.WithAuthFromKeychain(r.Keychain))
	}
	return options
}

// registryError converts an error of package registry to an Error of this package.
func (r *Repository) registryError(ctx context.Context, err error, what string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	answer, ok := errors.AsType[*transport.Error](err)
	switch {
	case !ok:
		return r.connectError(err)
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return r.repositoryError(RepositoryUnauthorized,
			fmt.Sprintf("it refuses access to %s: check the credentials", what), err)
	case answer.StatusCode == http.StatusNotFound:
		return r.repositoryError(ChartNotFound, fmt.Sprintf("it has no %s: correct name and version", what), nil)
	}
	return r.repositoryError(RepositoryUnreachable, "it returned an error: retry later", err)
}
