package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// moduleObjects returns ten objects of about 2 kB, as a manager applies them, each with its path. %[1]s is the cluster,
// and %[2]d is the module.
func moduleObjects(cluster string, module int) []request {
	pad := strings.Repeat("configuration ", 100)
	meta := func(name string) string {
		return fmt.Sprintf(`"metadata":{"name":%q,"labels":{"app.kubernetes.io/component":"%[2]s-%[3]d","app.kubernetes.io/part-of":"x"},"annotations":{"deprecated-operator.kyma-project.io/owned-by":"kcp-system/%[2]s-%[3]d","pad":"yes"}}`,
			fmt.Sprintf("%s-%d", name, module), cluster, module)
	}
	var all []request
	add := func(path, format string) {
		name := "m" + fmt.Sprint(len(all))
		all = append(all, request{method: http.MethodPatch, uri: path + "/" + fmt.Sprintf("%s-%d", name, module) +
			"?fieldManager=lm&timeout=10s",
			contentType: contentTypeApply, body: fmt.Appendf(nil, format, meta(name), pad)})
	}
	for range 6 {
		add("/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap",%s,"data":{"config":%q}}`)
	}
	add("/api/v1/namespaces/default/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount",%s}`)
	add("/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole",%s,"rules":[{"apiGroups":[""],"resources":["pods","secrets"],"verbs":["get","list"]}]}`)
	add("/api/v1/namespaces/default/services",
		`{"apiVersion":"v1","kind":"Service",%s,"spec":{"ports":[{"port":80,"protocol":"TCP"}],"selector":{"app":"a"}}}`)
	add("/apis/apps/v1/namespaces/default/deployments",
		`{"apiVersion":"apps/v1","kind":"Deployment",%s,"spec":{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"example.com/i:1","args":["--a","--b"]}]}}}}`)
	for i := range all {
		all[i].body = bytes.Split(all[i].body, []byte("%!(EXTRA"))[0]
	}
	return all
}

const contentTypeApply = "application/apply-patch+yaml"

func installModules(tb testing.TB, c *Cluster, modules int) {
	tb.Helper()
	for m := range modules {
		for _, r := range moduleObjects(c.Name(), m) {
			if _, err := c.handleInProcess(c.fleet.life, r.method, r.uri, r.contentType, "lm", r.body); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) + int64(m.StackInuse)
}

func open(tb testing.TB, o Options) *Fleet {
	tb.Helper()
	f, err := Open(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

// BenchmarkApply measures server-side applies of 2 kB, with and without a change, in the handler and over the network.
func BenchmarkApply(b *testing.B) {
	f := open(b, Options{Clusters: 1000})
	requests := make([]request, len(f.clusters))
	for i, c := range f.clusters {
		requests[i] = moduleObjects(c.Name(), 0)[0]
	}
	handler := func(b *testing.B, body func(i int) []byte) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			c, r := f.clusters[n%1000], &requests[n%1000]
			req := httptest.NewRequest(r.method, r.uri, bytes.NewReader(body(n)))
			req.Header.Set("Content-Type", r.contentType)
			req.Header.Set("Accept", metadataAccept)
			req.Header.Set("Authorization", "Bearer "+c.token())
			w := httptest.NewRecorder()
			c.ServeHTTP(w, req)
			if w.Code >= 300 {
				b.Fatal(w.Body.String())
			}
			n++
		}
	}
	b.Run("handler/unchanged", func(b *testing.B) {
		handler(b, func(n int) []byte { return requests[n%1000].body })
	})
	b.Run("handler/changed", func(b *testing.B) {
		handler(b, func(n int) []byte {
			return bytes.Replace(requests[n%1000].body, []byte("configuration"),
				fmt.Appendf(nil, "setting-%d", n/1000%50), 1)
		})
	})
	b.Run("handler/never seen before", func(b *testing.B) {
		handler(b, func(n int) []byte {
			return bytes.Replace(requests[n%1000].body, []byte("configuration"),
				fmt.Appendf(nil, "once-%d-%d", n, b.N), 1)
		})
	})
	for _, method := range []string{http.MethodPatch, http.MethodGet} {
		b.Run("network/"+method, func(b *testing.B) { overNetwork(b, f, method, requests) })
	}
}

const metadataAccept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// overNetwork measures requests over TLS and HTTP/2 from 8 goroutines to 100 clusters, including the work of the
// client.
func overNetwork(b *testing.B, f *Fleet, method string, requests []request) {
	clients := make([]*http.Client, 100)
	for i := range clients {
		cfg, err := clientcmd.RESTConfigFromKubeConfig(f.clusters[i].Kubeconfig())
		if err != nil {
			b.Fatal(err)
		}
		if clients[i], err = rest.HTTPClientFor(cfg); err != nil {
			b.Fatal(err)
		}
	}
	var n atomic.Int64
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := int(n.Add(1)) % len(clients)
			r := &requests[i]
			uri, _, _ := strings.Cut(r.uri, "?")
			var body io.Reader
			if method == http.MethodPatch {
				uri, body = r.uri, bytes.NewReader(r.body)
			}
			req, err := http.NewRequest(method, f.clusters[i].URL()+uri, body)
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Content-Type", r.contentType)
			req.Header.Set("Accept", metadataAccept)
			resp, err := clients[i].Do(req)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode >= 300 {
				b.Fatal(resp.Status)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// TestMemory limits the memory per cluster, in bytes: for an empty cluster, for a cluster with 5 modules of 10 objects,
// and for an open connection with a watch.
func TestMemory(t *testing.T) {
	const many, n = 3000, 200
	// This call creates the values that a process creates only once, so that they are not measured.
	installModules(t, open(t, Options{Clusters: 1}).clusters[0], 5)
	start := heapBytes()
	open(t, Options{Clusters: 1})
	one := heapBytes()
	engine := one - start
	idle := open(t, Options{Clusters: many})
	empty := (heapBytes() - one - engine) / many
	runtime.KeepAlive(idle)
	f := open(t, Options{Clusters: n})
	before := heapBytes()
	for _, c := range f.clusters {
		installModules(t, c, 5)
	}
	waitFor(t, func() bool { return pendingTasks(f) == 0 })
	full := heapBytes()
	openWatches(t, f, 200)
	connected := heapBytes()
	t.Logf("a fleet itself %d kB; per cluster: empty %d bytes, with 5 × 10 objects %d bytes more; %s; a connection "+
		"with a watch, both ends and client: %d bytes",
		engine>>10, empty, (full-before)/n, fmt.Sprintf("%+v", f.Stats()), (connected-full)/200)
	if empty > 2<<10 {
		t.Errorf("an empty cluster takes %d bytes, want at most 2 kB", empty)
	}
	if per := (full - before) / n; per > 16<<10 {
		t.Errorf("a cluster with 5 × 10 objects takes %d bytes more, want at most 16 kB", per)
	}
}

func pendingTasks(f *Fleet) int {
	n := 0
	for _, c := range f.clusters {
		c.mu.Lock()
		n += len(c.tasks)
		c.mu.Unlock()
	}
	return n
}

// openWatches opens a watch on each of n clusters, over a connection of its own, until the test ends.
func openWatches(t *testing.T, f *Fleet, n int) {
	t.Helper()
	for i := range n {
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			f.clusters[i].URL()+"/api/v1/configmaps?watch=1&resourceVersion="+fmt.Sprint(f.clusters[i].Version()), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+f.clusters[i].token())
		resp, err := transport.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
}
