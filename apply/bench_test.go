package apply

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// answer50 is the response of an API server to a PATCH that requests only metadata. In the benchmarks, the transport
// responds with answer50 to the PATCH of each of 50 objects.
const answer50 = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"c","namespace":"default","uid":"0c0c4ef3-6d07-4a4e-8c1e-2f0a6f1f4a57","resourceVersion":"1234567","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app.kubernetes.io/component":"x","operator.kyma-project.io/managed-by":"kyma"},"annotations":{"operator.kyma-project.io/owned-by":"kcp-system/x"},"managedFields":[{"manager":"declarative.kyma-project.io/applier","operation":"Apply","apiVersion":"apps/v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:operator.kyma-project.io/owned-by":{}},"f:labels":{"f:app.kubernetes.io/component":{},"f:operator.kyma-project.io/managed-by":{}}},"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"manager\"}":{".":{},"f:args":{},"f:image":{},"f:name":{},"f:resources":{"f:limits":{"f:cpu":{},"f:memory":{}}}}}}}}}}]}}`

// wire is a transport that responds to every request at once and without a network, so a benchmark measures only the
// cost of this package.
type wire struct{ requests int }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.requests++
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer50)),
		Request: r}, nil
}

func bundle50(b *testing.B) Set {
	var yaml strings.Builder
	for i := range 50 {
		fmt.Fprintf(&yaml, "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: c%d, labels: {a: b}}, "+
			"spec: {replicas: 1, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: "+
			"{containers: [{name: manager, image: example.com/x, args: [%q], resources: {limits: {cpu: 1, memory: "+
			"1Gi}}}]}}}}\n",
			i, strings.Repeat("x", 1000))
	}
	return Set{Bundle: bundleOf(b, yaml.String())}
}

// BenchmarkApply applies 50 objects in three variants: "engine" without a network, "http" over a loopback connection to
// a server in this process, "unchanged" with objects that were all applied before.
func BenchmarkApply(b *testing.B) {
	b.Run("engine", func(b *testing.B) {
		set := bundle50(b)
		c, err := New(&rest.Config{Host: "http://wire"}, &http.Client{Transport: &wire{}},
			ClusterOptions{MaxConcurrentRequests: 1})
		if err != nil {
			b.Fatal(err)
		}
		applyAll(b, c, set)
	})
	b.Run("http", func(b *testing.B) {
		set := bundle50(b)
		s := newServer(b)
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, answer50)
		})
		applyAll(b, s.cluster(ClusterOptions{}), set)
	})
	b.Run("unchanged", func(b *testing.B) {
		set := bundle50(b)
		c, err := New(&rest.Config{Host: "http://wire"}, &http.Client{Transport: &wire{}},
			ClusterOptions{MaxConcurrentRequests: 1})
		if err != nil {
			b.Fatal(err)
		}
		var done Progress
		if _, err := c.Apply(b.Context(), set, &done); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if result, err := c.Apply(b.Context(), set, &done); err != nil || len(result.Unchanged) != 50 {
				b.Fatal(err, result)
			}
		}
	})
}

func applyAll(b *testing.B, c *Cluster, set Set) {
	b.ReportAllocs()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		var done Progress
		if result, err := c.Apply(b.Context(), set, &done); err != nil || len(result.Applied) != 50 {
			b.Fatal(err, result)
		}
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N)/50, "allocs/object")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50, "ns/object")
}

// TestProgressSize checks that a Progress needs as much memory as its documentation states. The size of a Progress
// matters because the manager keeps one Progress in memory for each module in each runtime.
func TestProgressSize(t *testing.T) {
	const installations, objects = 200, 25
	refs := make([]Ref, objects)
	for i := range refs {
		refs[i] = Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "kyma-system",
			Name: fmt.Sprint("object-", i)}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := make([]*Progress, installations)
	for i := range kept {
		kept[i] = new(Progress)
		for _, r := range refs {
			kept[i].beginWrite(r)
			kept[i].recordApplied(r, 1, &metadata{UID: "u", ResourceVersion: "1", Generation: 1}, 1, true)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	size := (after.HeapAlloc - before.HeapAlloc) / installations / objects
	t.Logf("%d bytes an object", size)
	if size > 350 {
		t.Errorf("got %d bytes an object, want at most 350", size)
	}
	runtime.KeepAlive(kept)
}
