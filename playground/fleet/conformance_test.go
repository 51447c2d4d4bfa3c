package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

var verbose = flag.Bool("answers", false, "print the answers of the real API server")

// step is a request that the test sends to a simulated cluster and to a real API server.
type step struct {
	name string
	// The field do has the method and the path of the request, as METHOD PATH. The test replaces {uid NAME} and
	// {version NAME} in the fields do and send by the UID and the resourceVersion from the answer to an earlier step
	// whose field keep is NAME.
	do string
	// The field send is the body of the request, and kind is its format: "apply", "merge", "json-patch", "strategic",
	// or a content type. An empty kind is JSON.
	send, kind string
	// accept is the requested format. "" is JSON, and "metadata" is metadata only.
	accept string
	keep   string
	// The field until holds a text: the test repeats the request until the answer contains this text.
	until string
	// raw limits the comparison to status and content type. why gives the reason.
	raw bool
	why string
}

// server is the simulated cluster or the real API server.
type server struct {
	base   string
	client *http.Client
	kept   map[string][2]string
}

var contentTypes = map[string]string{
	"": "application/json", "apply": "application/apply-patch+yaml", "merge": "application/merge-patch+json",
	"json-patch": "application/json-patch+json", "strategic": "application/strategic-merge-patch+json",
}

var placeholder = regexp.MustCompile(`\{(uid|version) ([a-z0-9-]+)\}`)

func (s *server) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		parts := placeholder.FindStringSubmatch(m)
		if parts[1] == "uid" {
			return s.kept[parts[2]][0]
		}
		return s.kept[parts[2]][1]
	})
}

// ask sends the request of a step to the server once.
func (s *server) ask(ctx context.Context, one step) (a answer, data []byte, err error) {
	method, path, _ := strings.Cut(s.fill(one.do), " ")
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(s.fill(one.send)))
	if err != nil {
		return a, nil, err
	}
	if one.send != "" {
		contentType, ok := contentTypes[one.kind]
		if !ok {
			contentType = one.kind
		}
		req.Header.Set("Content-Type", contentType)
	}
	accept := one.accept
	switch accept {
	case "":
		accept = "application/json"
	case "metadata":
		accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	case "metadata-list":
		accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "conformance/1")
	resp, err := s.client.Do(req)
	if err != nil {
		return a, nil, err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(resp.Body)
	return answer{Code: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"),
		Warnings: resp.Header.Values("Warning")}, data, err
}

// answer holds the parts of an answer that are compared.
type answer struct {
	Code        int
	ContentType string
	Warnings    []string
	Body        any
}

// run sends the request of a step, and repeats it until the answer contains the text in the field step.until.
func (s *server) run(ctx context.Context, one step) (answer, error) {
	for {
		a, data, err := s.ask(ctx, one)
		if err != nil {
			return answer{}, err
		}
		reached := strings.Contains(string(data), one.until)
		if one.until == "404" { // which may also be a part of a UID
			reached = a.Code == http.StatusNotFound
		}
		if !reached {
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-ctx.Done():
				return answer{}, fmt.Errorf("waiting for %q: %s", one.until, data)
			}
		}
		if one.keep != "" {
			var o struct {
				Metadata struct{ UID, ResourceVersion string }
			}
			_ = json.Unmarshal(data, &o)
			s.kept[one.keep] = [2]string{o.Metadata.UID, o.Metadata.ResourceVersion}
		}
		if one.raw {
			return a, nil
		}
		if strings.Contains(one.do, "watch=") {
			a.Body = readEvents(data)
			return a, nil
		}
		if err := json.Unmarshal(data, &a.Body); err != nil {
			a.Body = string(data)
		}
		a.Body = normalise("", a.Body)
		return a, nil
	}
}

// readEvents reads the events of a watch.
func readEvents(data []byte) any {
	var all []any
	for line := range bytes.Lines(data) {
		var e map[string]any
		if json.Unmarshal(line, &e) == nil && e["type"] != "BOOKMARK" {
			all = append(all, normalise("", e))
		}
	}
	return all
}

// The following values may differ between the simulator and a real API server, so the test does not compare them. The
// simulator creates no ReplicaSets and pods for a Deployment, and lacks the objects that controllers of a real cluster
// create by themselves.
var (
	times      = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	uids       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	generated  = regexp.MustCompile(`\bgen-[a-z0-9]{5}\b`)
	etcdPrefix = regexp.MustCompile(`Key: /real/`)
	someTime   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	versions   = regexp.MustCompile(
		`(resourceVersion\\?":\\?"|ResourceVersion in the precondition \(|ResourceVersion in record \()\d+`)
	controller = []string{"kube-controller-manager", "kube-apiserver", "fleet.test"}
)

// normalise removes fields that differ between any two API servers.
func normalise(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, value := range v {
			switch k {
			case "uid", "resourceVersion", "continue", "clusterIP":
				if text, _ := value.(string); text != "" && text != "None" {
					value = strings.ToUpper(k)
				}
			case "clusterIPs":
				value = "CLUSTERIPS"
			case "remainingItemCount":
				continue // controllers put objects into every namespace
			case "deployment.kubernetes.io/revision":
				continue // set by the controller of Deployments
			}
			out[uids.ReplaceAllString(k, "UID")] = normalise(k, value)
		}
		if annotations, ok := out["annotations"].(map[string]any); ok && len(annotations) == 0 {
			delete(out, "annotations")
		}
		if out["kind"] == "Deployment" {
			delete(out, "status") // the controllers of the two servers differ in speed
		}
		return out
	case []any:
		var out []any
		for _, one := range v {
			if m, ok := one.(map[string]any); ok {
				if key == "managedFields" && slices.Contains(controller, fmt.Sprint(m["manager"])) {
					continue
				}
				if meta, ok := m["metadata"].(map[string]any); ok &&
					(meta["name"] == "kube-root-ca.crt" || meta["name"] == "default" &&
						m["apiVersion"] == nil && m["spec"] == nil) {
					continue // made by controllers in every namespace
				}
			}
			out = append(out, normalise(key, one))
		}
		if key == "resources" || // of custom resources, in the order of a cache
			key == "managedFields" { // by time and manager: whether two writes fell into one second is up to the clock
			slices.SortFunc(out, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return out
	case string:
		if times.MatchString(v) {
			return "TIME"
		}
		v = versions.ReplaceAllString(someTime.ReplaceAllString(etcdPrefix.ReplaceAllString(v, "Key: /"), "TIME"),
			"${1}VERSION")
		return generated.ReplaceAllString(uids.ReplaceAllString(v, "UID"), "gen-*")
	}
	return v
}

// TestConformance sends the same requests to a simulated cluster and to a real API server, and compares the answers.
func TestConformance(t *testing.T) {
	t.Parallel() // it mostly waits
	simulated, actual := servers(t)
	for i, one := range script {
		t.Run(fmt.Sprintf("%03d_%s", i+1, one.name), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			got, want := runBoth(ctx, t, simulated, actual, one)
			const brief, long = "timeoutSeconds=1&", "timeoutSeconds=60&"
			if strings.Contains(one.do, brief) && !cmp.Equal(want, got) {
				// On a busy machine, a watch of one second may end before all its events are sent. A watch changes
				// nothing, so the answers to a longer watch are compared instead.
				one.do = strings.Replace(one.do, brief, long, 1)
				got, want = runBoth(ctx, t, simulated, actual, one)
			}
			if *verbose {
				data, _ := json.Marshal(want)
				t.Logf("%s", data)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-real +simulated):\n%s", one.do, diff)
			}
		})
	}
	t.Run("engine", func(t *testing.T) { compareEngine(t, simulated, actual) })
}

// runBoth sends the request of a step to both servers at the same time, and returns their answers.
func runBoth(ctx context.Context, t *testing.T, simulated, actual *server, one step) (got, want answer) {
	t.Helper()
	var gotErr, wantErr error
	var wg sync.WaitGroup
	wg.Go(func() { got, gotErr = simulated.run(ctx, one) })
	wg.Go(func() { want, wantErr = actual.run(ctx, one) })
	wg.Wait()
	if gotErr != nil || wantErr != nil {
		t.Fatalf("simulated: %v; real: %v", gotErr, wantErr)
	}
	return got, want
}

// servers starts the simulated cluster and the real API server.
func servers(t *testing.T) (simulated, actual *server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	host, err := cluster.Open(ctx, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	one, err := host.Start(ctx, "real")
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.Open(t.Context(), fleet.Options{Clusters: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	cfg, err := clientcmd.RESTConfigFromKubeConfig(f.Cluster(1).Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return newServer(t, cfg), newServer(t, one.Config())
}

func newServer(t *testing.T, cfg *rest.Config) *server {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &server{base: cfg.Host, client: client, kept: map[string][2]string{}}
}
