package source

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	library "github.com/kyma-fleet/lifecycle-manager/manifest"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// downloadedChart is a chart that was downloaded and is not rendered yet.
type downloadedChart struct {
	content *render.Artefact
	expires time.Time
}

// findChart resolves a chart in a chart repository, or in an OCI registry.
func (f *Finder) findChart(
	ctx context.Context, of origin, spec *v1beta2.HelmChartSpec, config render.ClientConfig,
) (Artefact, error) {
	var c credentials
	if spec.CredSecretSelector != nil {
		var err error
		if c, err = f.credentialsOf(ctx, of.namespace, spec.CredSecretSelector); err != nil {
			return Artefact{}, err
		}
	}
	wanted := spec.Version
	if wanted == "" {
		wanted = config.Version
	}
	if wanted == "" && config.Devel {
		wanted = ">0.0.0-0"
	}
	repository := f.repository(spec.URL, c)
	key := strings.Join([]string{spec.URL, c.version, spec.ChartName, wanted}, " ")
	chart, err := f.findVersion(ctx, repository, key, spec.ChartName, wanted)
	if err != nil {
		return Artefact{}, err
	}
	artefact := Artefact{Digest: chart.Digest}
	if artefact.Digest == "" { // without a digest in the index, equal versions are assumed to have equal content
		artefact.Digest = digestOf(chart.URL + " " + chart.Name + " " + chart.Version)
	}
	artefact.Load = func(ctx context.Context) (*render.Artefact, error) {
		return f.downloadChart(ctx, repository, chart, "fetch "+c.version+chart.URL+" "+artefact.Digest)
	}
	artefact.Verify = func(context.Context) (trust.Signature, error) {
		_, location, _ := strings.Cut(withoutSecrets(spec.URL), "://")
		return f.opts.Registry.CheckUnsignedSource(location+"/"+spec.ChartName,
			"signatures of charts are not supported")
	}
	return artefact, nil
}

// findVersion returns the version of a chart in a repository that matches the requested version or range.
func (f *Finder) findVersion(
	ctx context.Context, from *library.Repository, key, chart, wanted string,
) (library.ChartVersion, error) {
	return fetchShared(ctx, f, key, fmt.Sprintf("the repository of chart %s to answer", chart),
		func(ctx context.Context) (library.ChartVersion, error) { return from.Find(ctx, chart, wanted) })
}

// downloadChart downloads and unpacks a chart. The reconcile that started the download may end before the download
// does. Therefore the chart is cached for chartCachePeriod, so that a later reconcile can use it.
func (f *Finder) downloadChart(
	ctx context.Context, from *library.Repository, chart library.ChartVersion, cacheKey string,
) (*render.Artefact, error) {
	if content := f.cachedChart(cacheKey); content != nil {
		return content, nil
	}
	return fetchShared(ctx, f, cacheKey, fmt.Sprintf("chart %s %s to be downloaded", chart.Name, chart.Version),
		func(ctx context.Context) (*render.Artefact, error) {
			if content := f.cachedChart(cacheKey); content != nil { // another download has ended since the first check
				return content, nil
			}
			data, err := from.Fetch(ctx, chart)
			if err != nil {
				return nil, err
			}
			content, err := render.Load(data, render.Limits{})
			if err == nil {
				f.keepChart(cacheKey, content)
			}
			return content, err
		})
}

// cachedChart returns a chart from the cache, or nil if the chart is not cached.
func (f *Finder) cachedChart(key string) *render.Artefact {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.charts[key]; time.Now().Before(c.expires) {
		return c.content
	}
	return nil
}

// keepChart caches a downloaded chart and removes expired charts from the cache.
func (f *Finder) keepChart(key string, content *render.Artefact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.charts, func(_ string, c downloadedChart) bool { return time.Now().After(c.expires) })
	if len(f.charts) >= cachedChartsLimit {
		f.charts = nil
	}
	putBounded(&f.charts, key, downloadedChart{content, time.Now().Add(chartCachePeriod)})
}

// repository returns the client for a chart repository. All Manifests with the same URL and credentials share one
// client.
func (f *Finder) repository(location string, c credentials) *library.Repository {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := location + " " + c.version
	if r := f.repositories[key]; r != nil {
		return r
	}
	r := &library.Repository{URL: location, Username: c.username, Password: c.password,
		Transport: f.opts.Registry.Transport()}
	if c.keychain != nil {
		r.Keychain = c.keychain
	}
	putBounded(&f.repositories, key, r)
	return r
}

// fetchShared runs a request only once for all callers with the same key. The request does not depend on the contexts
// of the callers. fetchShared waits at most answerTimeout for the result. If there is no result within answerTimeout,
// fetchShared returns a loop.Later error whose text is the parameter waitingFor. If the request fails, all callers get
// the same error for failureCachePeriod.
func fetchShared[T any](ctx context.Context, f *Finder, key, waitingFor string, request func(context.Context) (T,
	error)) (
	T, error) {
	var none T
	f.mu.Lock()
	failed := f.failures[key]
	f.mu.Unlock()
	if time.Now().Before(failed.expires) && !retry.IsOutdated(ctx, failed.expires.Add(-failureCachePeriod)) {
		return none, failed.err
	}
	answers := f.requests.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		answer, err := request(ctx)
		if err != nil {
			f.mu.Lock()
			putBounded(&f.failures, key, failure{err, time.Now().Add(failureCachePeriod)})
			f.mu.Unlock()
		}
		return answer, err
	})
	select {
	case answer := <-answers:
		if answer.Err != nil {
			return none, answer.Err
		}
		return answer.Val.(T), nil
	case <-time.After(answerTimeout):
		return none, loop.Later(answerPollDelay, waitingFor)
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
