package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// versionPath is the path of the version of the API server; the response for this path is the only one without a kind.
const versionPath = "/version"

// capabilitiesCachePeriod is how long the version and the APIs of a cluster are cached. capabilitiesCachePeriod is long
// enough for all charts of one reconcile. capabilitiesCachePeriod is so short that a kind is found soon after another
// module has installed it.
const capabilitiesCachePeriod = 10 * time.Second

// The capabilities of a cluster stay in memory as long as the connection, so their size is limited.
const (
	// maxVersionBytes is the maximum length of the version of a cluster, in bytes; a longer version is clipped. The
	// versions of cloud providers, such as "v1.34.2-gke.1234000", have up to 30 bytes.
	maxVersionBytes = 64
	// maxAPIBytes is the maximum memory of the APIs of a cluster, in bytes. A cluster with 4,000 kinds in two versions
	// each needs 1 MiB. More is an error: a chart must not be rendered as if an API did not exist.
	maxAPIBytes = 4 << 20
	// maxGroupVersions is the maximum number of groups and versions that an API server without aggregated discovery
	// may serve, because each of them needs a request. A cluster with many operators has up to 300; a cluster with the
	// whole Crossplane providers of three clouds has about 1,000.
	maxGroupVersions = 2000
)

// cachedCapabilities has the version and the APIs that an API server returned, and the time of the response.
type cachedCapabilities struct {
	render.Capabilities
	version, apis time.Time // time of the last read of each; zero if never read
}

// discoveryType requests all groups with all their kinds in one response.
const discoveryType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// Capabilities returns the data about the cluster that a chart needs; see [render.Artefact.CapabilityQueries]. The
// parameter queries is the result of CapabilityQueries. If queries is empty, Capabilities sends no request. If queries
// has any item, Capabilities sends a request for /version. If one of the queries is about an API version, Capabilities
// also sends a discovery request. Responses are cached for ten seconds.
func (c *Cluster) Capabilities(ctx context.Context, queries []string) (render.Capabilities, error) {
	c.mu.Lock()
	known := c.cached
	c.mu.Unlock()
	apis := slices.ContainsFunc(queries, func(q string) bool { return strings.HasPrefix(q, "apiVersion") })
	fresh := true
	if len(queries) > 0 && c.now().Sub(known.version) > capabilitiesCachePeriod {
		r := request{method: http.MethodGet, path: versionPath, operation: "reading the version of the cluster"}
		var answer struct{ GitVersion string }
		if err := c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
			return json.Unmarshal(body,
				&answer)
		}); err != nil {
			return render.Capabilities{}, err
		}
		version := answer.GitVersion[:min(len(answer.GitVersion), maxVersionBytes)]
		known.KubeVersion, known.version, fresh = strings.Clone(version), c.now(), false
	}
	if apis && c.now().Sub(known.apis) > capabilitiesCachePeriod {
		served, err := c.servedAPIs(ctx)
		if err != nil {
			return render.Capabilities{}, err
		}
		known.APIVersions, known.apis, fresh = served, c.now(), false
	}
	if !fresh {
		c.mu.Lock()
		c.cached = known
		c.mu.Unlock()
	}
	answer := known.Capabilities
	if !apis {
		answer.APIVersions = nil
	}
	return answer, nil
}

// servedAPIs returns the APIs that the cluster serves, as group/version and as group/version/Kind, sorted.
func (c *Cluster) servedAPIs(ctx context.Context) ([]string, error) {
	served := map[string]bool{}
	for _, path := range []string{"/api", "/apis"} {
		var all struct {
			Kind  string
			Items []struct {
				Metadata metav1.ObjectMeta
				Versions []struct {
					Version   string
					Resources []struct{ ResponseKind struct{ Kind string } }
				}
			}
			metav1.APIGroupList          // from an API server without aggregated discovery
			Versions            []string // from an API server without aggregated discovery, for the core group
		}
		r := request{method: http.MethodGet, path: path, accept: discoveryType,
			operation: "reading which APIs the cluster serves"}
		if err := c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
			return json.Unmarshal(body,
				&all)
		}); err != nil {
			return nil, err
		}
		for _, group := range all.Items {
			for _, v := range group.Versions {
				version := schema.GroupVersion{Group: group.Metadata.Name, Version: v.Version}.String()
				served[version] = true
				for _, res := range v.Resources {
					served[version+"/"+res.ResponseKind.Kind] = true
				}
			}
		}
		versions := all.Versions
		for _, group := range all.Groups {
			for _, v := range group.Versions {
				versions = append(versions, v.GroupVersion)
			}
		}
		if len(versions) > maxGroupVersions {
			return nil, tooManyAPIs(fmt.Sprintf("%d groups and versions", maxGroupVersions))
		}
		for _, version := range versions {
			if err := c.addServedAPIs(ctx, version, served); err != nil {
				return nil, err
			}
		}
	}
	bytes := 0
	for api := range served {
		bytes += stringBytes + len(api)
	}
	if bytes > maxAPIBytes {
		return nil, tooManyAPIs(fmt.Sprintf("%d MiB of names", maxAPIBytes>>20))
	}
	return slices.Sorted(maps.Keys(served)), nil
}

// tooManyAPIs returns the Error of a cluster that serves more APIs than the limit.
func tooManyAPIs(limit string) *Error {
	return &Error{Operation: "reading which APIs the cluster serves", reason: ServerFault,
		Message: "the cluster serves more than " + limit,
		advice:  "delete CustomResourceDefinitions and APIServices that are not needed; it is retried"}
}

// addServedAPIs adds the kinds of one group and version to the served APIs. An API service that is not available serves
// no kinds.
func (c *Cluster) addServedAPIs(ctx context.Context, version string, served map[string]bool) (clusterError error) {
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil //nolint:nilerr // no chart can query such a version
	}
	served[version] = true
	kinds, err := c.servedKinds(ctx, gv)
	if err != nil && concernsCluster(err) {
		return err
	}
	for kind := range kinds {
		served[version+"/"+kind] = true
	}
	return nil
}
