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

// served is what the API server says of a resource.
type served struct {
	version string // for the watch
	kind    string
	// preferred is the version that the API server prefers, for events of entries that leave the version open.
	preferred string
	// split says that the status of the kind is a part of its own.
	split bool
}

// discovery asks the API server which kinds it serves. Answers are kept for a moment, because many ask at the same time.
type discovery struct {
	client rest.Interface

	mu      sync.Mutex // guards what follows, and is held while asking, so that one asks for all
	answers map[string]answer
}

type answer struct {
	at   time.Time
	body []byte
	err  error
}

// answerTime is how long an answer is good: a definition that has just been created is to be found soon.
const answerTime = time.Second

// get reads a path of the API server as JSON.
func (d *discovery) get(ctx context.Context, path string, into any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.answers[path]
	if !known || time.Since(a.at) > answerTime {
		for p, old := range d.answers {
			if time.Since(old.at) > answerTime {
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

// find returns how a resource is served. What is not served is an error that says not found.
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
		kind, split, err := d.lookUp(ctx, schema.GroupVersion{Group: q.group, Version: version}, q.resource)
		if err != nil && !apierrors.IsNotFound(err) {
			return served{}, err
		}
		if kind != "" {
			s.version, s.kind, s.split = version, kind, split
			if q.version == "*" {
				s.preferred = version
			}
			return s, nil
		}
	}
	return served{}, apierrors.NewNotFound(schema.GroupResource{Group: q.group, Resource: q.resource}, "")
}

// versions returns the versions of a group, the preferred one first.
func (d *discovery) versions(ctx context.Context, group string) ([]string, error) {
	if group == "" {
		return []string{"v1"}, nil
	}
	var answer struct {
		PreferredVersion struct{ Version string }
		Versions         []struct{ Version string }
	}
	if err := d.get(ctx, "/apis/"+group, &answer); err != nil {
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

// lookUp finds the resource in one version; kind is empty if it is not there.
func (d *discovery) lookUp(ctx context.Context, version schema.GroupVersion, resource string) (kind string, split bool, err error) {
	path := "/apis/" + version.String()
	if version.Group == "" {
		path = "/api/" + version.Version
	}
	var list struct {
		Resources []struct{ Name, Kind string }
	}
	if err := d.get(ctx, path, &list); err != nil {
		return "", false, err
	}
	for _, r := range list.Resources {
		switch r.Name {
		case resource:
			kind = r.Kind
		case resource + "/status":
			split = true
		}
	}
	return kind, split, nil
}
