package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// served contains the version and the kind under which the API server serves a resource.
type served struct {
	version string // version that the watch uses
	kind    string
	// preferred is the version that the API server prefers; events contain it if the watch list has the version "*".
	preferred string
	// hasStatus is true if the kind has a status subresource.
	hasStatus bool
}

// discovery requests from the API server which kinds it serves. Streams share the answers for cacheTTL.
type discovery struct {
	client rest.Interface

	mu      sync.Mutex // guards answers; held during a request, so that concurrent callers share one request
	answers map[string]answer
}

// answer is a cached answer of the API server.
type answer struct {
	at   time.Time
	body []byte
	err  error
}

// cacheTTL is the time for which discovery is cached. cacheTTL is short, so that the kinds of a new CRD are found soon.
const cacheTTL = time.Second

// getCached reads JSON from a path of the API server. Answers and errors are cached for cacheTTL.
func (d *discovery) getCached(ctx context.Context, path string, into any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.answers[path]
	if !known || time.Since(a.at) > cacheTTL {
		for p, old := range d.answers {
			if time.Since(old.at) > cacheTTL {
				delete(d.answers, p)
			}
		}
		a.body, a.err = d.client.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
		a.at = time.Now()
		d.answers[path] = a
	}
	if a.err != nil {
		return a.err
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("reading %s of the API server: %w", path, err)
	}
	return nil
}

// find returns the version and the kind under which a resource is served, or else a NotFound error.
func (d *discovery) find(ctx context.Context, q query) (served, error) {
	versions, err := d.versions(ctx, q.group)
	if err != nil {
		return served{}, err
	}
	s := served{preferred: versions[0]}
	if q.version != "*" {
		versions = []string{q.version}
	}
	for _, version := range versions {
		kind, hasStatus, err := d.findKind(ctx, schema.GroupVersion{Group: q.group, Version: version}, q.resource)
		if err != nil && !apierrors.IsNotFound(err) {
			return served{}, err
		}
		if kind != "" {
			s.version, s.kind, s.hasStatus = version, kind, hasStatus
			if q.version == "*" {
				s.preferred = version
			}
			return s, nil
		}
	}
	return served{}, apierrors.NewNotFound(schema.GroupResource{Group: q.group, Resource: q.resource}, "")
}

// versions returns the versions of an API group, beginning with the preferred version.
func (d *discovery) versions(ctx context.Context, group string) ([]string, error) {
	if group == "" {
		return []string{"v1"}, nil
	}
	var answer struct {
		PreferredVersion struct{ Version string }
		Versions         []struct{ Version string }
	}
	if err := d.getCached(ctx, "/apis/"+group, &answer); err != nil {
		return nil, err
	}
	all := []string{answer.PreferredVersion.Version}
	for _, v := range answer.Versions {
		if v.Version != all[0] {
			all = append(all, v.Version)
		}
	}
	return all, nil
}

// findKind returns the kind of a resource in one version. The kind is empty if the version has no such resource.
func (d *discovery) findKind(ctx context.Context, version schema.GroupVersion, resource string) (
	kind string, hasStatus bool, err error) {
	path := "/apis/" + version.String()
	if version.Group == "" {
		path = "/api/" + version.Version
	}
	var list struct {
		Resources []struct{ Name, Kind string }
	}
	if err := d.getCached(ctx, path, &list); err != nil {
		return "", false, err
	}
	for _, r := range list.Resources {
		switch r.Name {
		case resource:
			kind = r.Kind
		case resource + "/status":
			hasStatus = true
		}
	}
	return kind, hasStatus, nil
}
