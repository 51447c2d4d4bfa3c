package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clientOf returns a client with the present credentials of a cluster.
func clientOf(t *testing.T, c *Cluster) *http.Client {
	t.Helper()
	cfg, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// answerTimeout is the timeout of a request that is answered.
const answerTimeout = 5 * time.Minute

// get sends a GET for a path to a cluster and returns the status code. The code is 0 if there is no answer.
func get(client *http.Client, c *Cluster, path string, timeout time.Duration) (
	code int, header http.Header, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header, nil
}

func TestFault(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		fault  Fault
		check  func(t *testing.T, codes map[int]int, errs []error, took time.Duration)
	}{
		"Refused": {"every connection ends at once, the open ones too", Fault{Dead: Refused},
			func(t *testing.T, codes map[int]int, errs []error, _ time.Duration) {
				if codes[0] != 20 || !errors.Is(errs[0], syscall.ECONNRESET) &&
					!errors.Is(errs[0], syscall.ECONNREFUSED) && !errors.Is(errs[len(errs)-1], syscall.ECONNRESET) {
					t.Errorf("answers %v, errors %v", codes, errs[:2])
				}
			}},
		"BlackHole": {"nothing is ever answered", Fault{Dead: BlackHole},
			func(t *testing.T, codes map[int]int, errs []error, _ time.Duration) {
				if codes[0] != 20 || !errors.Is(errs[0], context.DeadlineExceeded) {
					t.Errorf("answers %v, errors %v", codes, errs[:2])
				}
			}},
		"Slow": {"every answer is late", Fault{Delay: 20 * time.Millisecond},
			func(t *testing.T, codes map[int]int, _ []error, took time.Duration) {
				if codes[200] != 20 || took < 20*20*time.Millisecond {
					t.Errorf("answers %v in %s", codes, took)
				}
			}},
		"TooMany": {"a share is throttled", Fault{TooMany: 0.5, RetryAfter: 3 * time.Second},
			func(t *testing.T, codes map[int]int, _ []error, _ time.Duration) {
				if codes[429] < 4 || codes[200] < 4 {
					t.Errorf("answers %v", codes)
				}
			}},
		"Errors": {"a share fails", Fault{Errors: 0.5, Code: 503},
			func(t *testing.T, codes map[int]int, _ []error, _ time.Duration) {
				if codes[503] < 4 || codes[200] < 4 {
					t.Errorf("answers %v", codes)
				}
			}},
		"Cut": {"a share ends its connection; the next one makes another", Fault{Cut: 0.5},
			func(t *testing.T, codes map[int]int, _ []error, _ time.Duration) {
				if codes[0] < 4 || codes[200] < 4 {
					t.Errorf("answers %v", codes)
				}
			}},
		"Expired": {"credentials are refused", Fault{Expired: true},
			func(t *testing.T, codes map[int]int, _ []error, _ time.Duration) {
				if codes[401] != 20 {
					t.Errorf("answers %v", codes)
				}
			}},
		"Flapping": {"it is there half of the time", Fault{Dead: Refused, Up: 2 * time.Second,
			Down: 500 * time.Millisecond, Delay: 20 * time.Millisecond},
			func(t *testing.T, codes map[int]int, _ []error, _ time.Duration) {
				if codes[0] == 0 || codes[200] == 0 {
					t.Errorf("answers %v", codes)
				}
			}},
	}
	for _, own := range []bool{false, true} {
		for name, tc := range cases {
			t.Run(fmt.Sprintf("%s/%t", name, own), func(t *testing.T) {
				f := open(t, Options{Clusters: 2, OwnPorts: own, Seed: 1})
				sick, well := f.Cluster(0), f.Cluster(1)
				client := clientOf(t, sick)
				if code, _, err := get(client, sick, "/api/v1/namespaces", answerTimeout); code != 200 {
					t.Fatal(code, err)
				}
				sick.Fault(tc.fault)
				codes := map[int]int{}
				var errs []error
				start := time.Now()
				timeout := answerTimeout
				if tc.fault.Dead == BlackHole {
					timeout = 30 * time.Millisecond
				}
				ask := func() {
					code, header, err := get(client, sick, "/api/v1/namespaces", timeout)
					codes[code]++
					if err != nil {
						errs = append(errs, err)
					}
					if code == 429 && header.Get("Retry-After") != "3" {
						t.Errorf("Retry-After is %q", header.Get("Retry-After"))
					}
				}
				for range 20 {
					ask()
				}
				if tc.fault.Down > 0 { // the 20 requests may all be sent while the cluster is unreachable, or reachable
					waitFor(t, func() bool {
						ask()
						return codes[0] > 0 && codes[200] > 0
					})
				}
				tc.check(t, codes, errs, time.Since(start))
				if code, _, err := get(clientOf(t, well), well, "/api/v1/namespaces", answerTimeout); code != 200 {
					t.Errorf("the other cluster: %d, %v", code, err)
				}
				sick.Heal()
				waitFor(t, func() bool {
					code, _, _ := get(client, sick, "/api/v1/namespaces", answerTimeout)
					return code == 200
				})
			})
		}
	}
}

func TestFaultsAreSeeded(t *testing.T) {
	roll := func(seed uint64) (all []int) {
		f := open(t, Options{Clusters: 200, Seed: seed})
		for _, c := range f.Afflict(0.1, 0, Fault{Errors: 0.5}) {
			all = append(all, c.index)
		}
		client := clientOf(t, f.Cluster(all[0]))
		for range 10 {
			code, _, _ := get(client, f.Cluster(all[0]), "/healthz", answerTimeout)
			all = append(all, code)
		}
		return all
	}
	first, again, other := roll(7), roll(7), roll(8)
	if fmt.Sprint(first) != fmt.Sprint(again) {
		t.Errorf("equal seeds: %v and %v", first, again)
	}
	if fmt.Sprint(first) == fmt.Sprint(other) {
		t.Errorf("other seed, same faults: %v", first)
	}
}

func TestRotate(t *testing.T) {
	f := open(t, Options{Clusters: 2})
	c := f.Cluster(1)
	before := clientOf(t, c)
	if code, _, err := get(before, c, "/api", answerTimeout); code != 200 {
		t.Fatal(code, err)
	}
	c.RotateCredentials()
	if code, _, _ := get(before, c, "/api", answerTimeout); code != 401 {
		t.Errorf("old credentials: %d, want 401", code)
	}
	if code, _, _ := get(clientOf(t, c), c, "/api", answerTimeout); code != 200 {
		t.Errorf("new credentials: %d, want 200", code)
	}
	if code, _, _ := get(clientOf(t, f.Cluster(0)), c, "/api", answerTimeout); code != 401 {
		t.Errorf("credentials of another cluster: %d, want 401", code)
	}
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func configMap(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": "default"}}}
}

func TestClustersAreSeparate(t *testing.T) {
	f := open(t, Options{Clusters: 3})
	if err := f.Cluster(1).Apply(configMap("mine"), "test"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{404, 200, 404} {
		c := f.Cluster(i)
		if code, _, err := get(clientOf(t, c), c, "/api/v1/namespaces/default/configmaps/mine",
			answerTimeout); code != want {
			t.Errorf("cluster %d answers %d, %v, want %d", i, code, err, want)
		}
		if n := c.Counts().Requests["get configmaps"]; n != 1 {
			t.Errorf("cluster %d counts %v", i, c.Counts())
		}
		if c.Counts().In == 0 || c.Counts().Out == 0 {
			t.Errorf("cluster %d counts no bytes", i)
		}
	}
	if n := f.Counts().Requests["get configmaps"]; n != 3 {
		t.Errorf("the fleet counts %v", f.Counts())
	}
	f.MarkFleetTotals()
	if n := f.Since().Total(); n != 0 {
		t.Errorf("after Mark: %d", n)
	}
}

func TestOperator(t *testing.T) {
	f := open(t, Options{Clusters: 1,
		Operators: []Operator{{Kind: schema.GroupKind{Group: "example.com", Kind: "Thing"}, Namespace: "default",
			Deployment: "manager", After: time.Millisecond}}})
	c := f.Cluster(0)
	apply := func(text string) {
		t.Helper()
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(o, "test"); err != nil {
			t.Fatal(err)
		}
	}
	apply(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
		"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	things := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	waitFor(t, func() bool { return c.kindOf(kindKey{"example.com", "v1", "things"}) != nil })
	apply(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one","namespace":"default"}}`)
	state := func() string {
		u, err := c.Get(things, "default", "one")
		if err != nil || u == nil {
			t.Fatal(u, err)
		}
		s, _, _ := unstructured.NestedString(u.Object, "status", "state")
		return s
	}
	if s := state(); s != "" {
		t.Errorf("state is %q without a Deployment", s)
	}
	apply(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"manager","namespace":"default"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"d"}]}}}}`)
	waitFor(t, func() bool { return state() == "Ready" })

	kind := schema.GroupKind{Group: "example.com", Kind: "Thing"}
	c.OverrideOperatorState(kind, "Error")
	if s := state(); s != "Error" {
		t.Errorf("state is %q, and the operator fails", s)
	}
	apply(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one","namespace":"default"},"spec":{"a":"b"}}`)
	version := c.Version()
	waitFor(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.tasks) == 0 })
	if s := state(); s != "Error" || c.Version() != version {
		t.Errorf("after a change the state is %q, and %d changes more", s, c.Version()-version)
	}
	c.OverrideOperatorState(kind, "")
	if s := state(); s != "Ready" {
		t.Errorf("state is %q, and the operator works again", s)
	}
}

// watchEvents reads the wanted number of events from a watch. If no more events arrive, watchEvents returns those that
// it has received.
func watchEvents(t *testing.T, c *Cluster, query string, want int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/api/v1/configmaps?watch=1&"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := clientOf(t, c).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []string
	lines := bufio.NewScanner(resp.Body)
	for len(all) < want && lines.Scan() {
		var e struct {
			Type   string
			Object struct {
				Code     int
				Metadata struct{ Name string }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(e.Type+" "+e.Object.Metadata.Name))
		if e.Object.Code != 0 {
			all[len(all)-1] += fmt.Sprint(e.Object.Code)
		}
	}
	return all
}

func TestWatch(t *testing.T) {
	f := open(t, Options{Clusters: 1, History: 8, Bookmarks: 20 * time.Millisecond})
	c := f.Cluster(0)
	start := c.Version()
	for i := range 3 {
		if err := c.Apply(configMap(fmt.Sprint("c", i)), "test"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(configMaps, "default", "c0"); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		reason, query string
		want          string
	}{
		{"all since", fmt.Sprint("resourceVersion=", start), "[ADDED c0 ADDED c1 ADDED c2 DELETED c0]"},
		{"what is there", "resourceVersion=0", "[ADDED c1 ADDED c2]"},
		{"a bookmark tells where it stands", fmt.Sprint("allowWatchBookmarks=true&resourceVersion=", c.Version()),
			"[BOOKMARK]"},
		{"initial events end with a bookmark",
			"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
			"[ADDED c1 ADDED c2 BOOKMARK]"},
	}
	for _, tc := range cases {
		n := strings.Count(tc.want, "ADDED") + strings.Count(tc.want, "DELETED") + strings.Count(tc.want, "BOOKMARK")
		if got := fmt.Sprint(watchEvents(t, c, tc.query, n)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
	for i := range 20 {
		if err := c.Apply(configMap(fmt.Sprint("d", i)), "test"); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(watchEvents(t, c, fmt.Sprint("resourceVersion=", start), 1)); got != "[ERROR410]" {
		t.Errorf("too old: %s", got)
	}
}

// TestTogether writes to a few clusters from many goroutines while watches run, to find races and lost writes.
func TestTogether(t *testing.T) {
	f := open(t, Options{Clusters: 3, History: 10})
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			c := f.Cluster(i % 3)
			for n := range 20 {
				if err := c.Apply(configMap(fmt.Sprintf("c-%d-%d", i/3, n)), "test"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	openWatches(t, f, 3)
	wg.Wait()
	for i := range 3 {
		if n := len(f.Cluster(i).Names(schema.GroupResource{Resource: "configmaps"})); n != 160 {
			t.Errorf("cluster %d has %d objects, want 160", i, n)
		}
	}
	if s := f.Stats(); s.Bodies > 200 {
		t.Errorf("clusters share too little: %+v", s)
	}
}
