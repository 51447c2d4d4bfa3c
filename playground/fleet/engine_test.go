package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

const module = `
apiVersion: v1
kind: Namespace
metadata: {name: engine}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: samples.engine.example.com}
spec:
  group: engine.example.com
  scope: Namespaced
  names: {kind: Sample, listKind: SampleList, plural: samples, singular: sample}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: engine}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: engine}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: engine}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: engine}
subjects: [{kind: ServiceAccount, name: robot, namespace: engine}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: engine}
data: {level: info, extra: "1"}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: engine}
spec: {selector: {app: web}, ports: [{name: http, port: 80, protocol: TCP}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: engine}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: "example.com/web:1"}]}
---
apiVersion: engine.example.com/v1
kind: Sample
metadata: {name: one, namespace: engine}
spec: {size: 1}
`

// recorder records the requests.
type recorder struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen map[string]bool
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.seen[req.Method+" "+req.URL.Path] = true
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}

// runEngine makes the apply engine install, check, heal and remove a module. runEngine returns the engine's results and
// its requests.
func runEngine(ctx context.Context, s *server) (story []string, requests []string, err error) {
	r := &recorder{next: s.client.Transport, seen: map[string]bool{}}
	c, err := apply.New(&rest.Config{Host: s.base}, &http.Client{Transport: r}, apply.ClusterOptions{})
	if err != nil {
		return nil, nil, err
	}
	objects, err := render.Parse([]byte(module))
	if err != nil {
		return nil, nil, err
	}
	bundle, err := render.Build(objects, render.Options{Labels: map[string]string{"made-by": "test"}})
	if err != nil {
		return nil, nil, err
	}
	set := apply.Set{Bundle: bundle, Owner: "engine",
		Overlay: render.Overlay{Labels: map[string]string{"app.kubernetes.io/component": "one"}}}
	say := func(format string, args ...any) { story = append(story, fmt.Sprintf(format, args...)) }
	refs, err := c.DesiredInventory(ctx, set)
	if err != nil {
		return nil, nil, err
	}
	done := &apply.Progress{}
	again := func(set apply.Set) error {
		for {
			result, err := c.Apply(ctx, set, done)
			if err != nil || result.AllApplied() {
				say("applied %v, took over %v", len(result.Applied)+len(result.Unchanged), result.TakenOver)
				return err
			}
			for _, f := range result.Failed {
				say("failed: %v", f)
			}
			if err := pause(ctx); err != nil {
				return err
			}
		}
	}
	if err := again(set); err != nil {
		return nil, nil, err
	}
	for {
		notReady, err := c.CheckReady(ctx, refs, done)
		if err != nil {
			return nil, nil, err
		}
		if len(notReady) == 0 {
			break
		}
		if err := pause(ctx); err != nil {
			return nil, nil, fmt.Errorf("%w: %v", err, notReady)
		}
	}
	drifted, err := c.FindDrift(ctx, set, done)
	if err != nil {
		return nil, nil, err
	}
	say("drifted: %v", drifted)
	config := refs[slices.IndexFunc(refs, func(r apply.Ref) bool { return r.Kind == "ConfigMap" })]
	if _, err := c.Patch(ctx, config, types.MergePatchType, "",
		[]byte(`{"data":{"level":"debug"}}`), "somebody"); err != nil {
		return nil, nil, err
	}
	if drifted, err = c.FindDrift(ctx, set, done); err != nil {
		return nil, nil, err
	}
	say("drifted: %v", drifted)
	done.Forget(config)
	if err := again(set); err != nil {
		return nil, nil, err
	}
	for asked := new(apply.DeletionProgress); ; {
		teardown, err := c.Delete(ctx, refs, asked)
		if err != nil {
			return nil, nil, err
		}
		if teardown.Done() {
			say("gone: %d", len(teardown.Deleted))
			break
		}
		if err := pause(ctx); err != nil {
			return nil, nil, fmt.Errorf("%w: %s", err, teardown.WaitMessage())
		}
	}
	return story, slices.Sorted(maps.Keys(r.seen)), nil
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// compareEngine runs the apply engine against a simulated and a real cluster, and compares the results and the
// requests.
func compareEngine(t *testing.T, simulated, actual *server) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	type reported struct{ Story, Requests []string }
	var got, want reported
	var gotErr, wantErr error
	var wg sync.WaitGroup
	wg.Go(func() { got.Story, got.Requests, gotErr = runEngine(ctx, simulated) })
	wg.Go(func() { want.Story, want.Requests, wantErr = runEngine(ctx, actual) })
	wg.Wait()
	if gotErr != nil || wantErr != nil {
		t.Fatalf("simulated: %v; real: %v", gotErr, wantErr)
	}
	// The number of reads is not compared, because it depends on the time until an object is ready or deleted.
	isRead := func(r string) bool { return strings.HasPrefix(r, "GET ") }
	got.Requests, want.Requests = slices.DeleteFunc(got.Requests, isRead), slices.DeleteFunc(want.Requests, isRead)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the engine tells and asks (-real +simulated):\n%s", diff)
	}
	t.Log(strings.Join(got.Story, "\n"))
}
