package render

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// bundleOf returns a bundle of n ConfigMaps, each with a value of size bytes.
func bundleOf(t testing.TB, n, size int) *Bundle {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d, labels: {app: c}}\ndata: "+
			"{v: %s}\n", i, strings.Repeat("x", size))
	}
	return build(t, text.String(), Options{Labels: map[string]string{"part-of": "test"}})
}

func TestCache(t *testing.T) {
	one := bundleOf(t, 1, 1000)
	c := &Cache{MaxBytes: 3 * one.memoryBytes()}
	made := 0
	get := func(digest string) {
		t.Helper()
		if _, err := c.Get(t.Context(), digest, func() (
			*Bundle, error) {
			made++
			return bundleOf(t, 1, 1000), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		digest string
		made   int
		reason string
	}{
		{"a", 1, "new"}, {"b", 2, "new"}, {"c", 3, "new"}, {"a", 3, "held"}, {"d", 4, "new, b goes"},
		{"a", 4, "asked for after b"}, {"b", 5, "made again, c goes"}, {"d", 5, "held"},
		{"", 6, "no digest"}, {"", 7, "never shared"},
	} {
		if get(step.digest); made != step.made {
			t.Fatalf("%q: made %d times, want %d: %s", step.digest, made, step.made, step.reason)
		}
	}
	if bundles, bytes := c.Usage(); bundles != 3 || bytes != c.MaxBytes {
		t.Errorf("holds %d bundles of %d bytes", bundles, bytes)
	}
	c.Forget("a")
	c.Forget("none")
	if bundles, bytes := c.Usage(); bundles != 2 || bytes != 2*one.memoryBytes() {
		t.Errorf("after Forget it holds %d bundles of %d bytes", bundles, bytes)
	}
	large, err := c.Get(t.Context(), "large", func() (*Bundle, error) { return bundleOf(t, 10, 1000), nil })
	if err != nil || len(large.Objects) != 10 {
		t.Errorf("too large a bundle: %v", err)
	}
	if bundles, _ := c.Usage(); bundles != 2 {
		t.Errorf("a bundle that is too large to be stored has replaced others: %d are left", bundles)
	}
}

func TestCacheErrors(t *testing.T) {
	var c Cache
	boom := errors.New("boom")
	if _, err := c.Get(t.Context(), "a", func() (*Bundle, error) { return nil, boom }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if b, err := c.Get(t.Context(), "a", func() (*Bundle, error) { return bundleOf(t, 1, 1), nil }); err != nil ||
		b == nil {
		t.Errorf("the error was kept: %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = c.Get(t.Context(), "b", func() (*Bundle, error) { panic("oops") })
	}()
	if b, err := c.Get(t.Context(), "b", func() (*Bundle, error) { return bundleOf(t, 1, 1), nil }); err != nil ||
		b == nil {
		t.Errorf("a panic was kept: %v", err)
	}
}

// TestCacheShares checks that one of many concurrent callers builds the bundle. If the context of the caller that
// builds the bundle ends, another caller builds the bundle.
func TestCacheShares(t *testing.T) {
	bundle := bundleOf(t, 1, 1)
	cases := map[string]struct {
		first error // the error of the first caller
		made  int32
		fail  bool
	}{
		"Good":      {nil, 1, false},
		"Failed":    {errors.New("boom"), 1, true},
		"Cancelled": {fmt.Errorf("giving up: %w", context.Canceled), 2, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c Cache
				var made atomic.Int32
				var wg sync.WaitGroup
				release := make(chan struct{})
				get := func() {
					got, err := c.Get(t.Context(), "a", func() (*Bundle, error) {
						if made.Add(1) > 1 {
							return bundle, nil
						}
						<-release
						return bundle, tc.first
					})
					if errors.Is(err, context.Canceled) {
						return // the error of the first caller
					}
					if tc.fail != (err != nil) || got == nil {
						t.Errorf("got %v, %v", got, err)
					}
				}
				wg.Go(get)
				synctest.Wait() // the first caller is building the bundle
				for range 50 {
					wg.Go(get)
				}
				gone, cancel := context.WithCancel(t.Context())
				wg.Go(func() {
					if _, err := c.Get(gone, "a", func() (*Bundle, error) { return bundle, nil }); !errors.Is(
						err, context.Canceled) {
						t.Errorf("a caller whose context has ended got %v", err)
					}
				})
				synctest.Wait()
				cancel()
				synctest.Wait()
				close(release)
				wg.Wait()
				if made.Load() != tc.made {
					t.Errorf("made %d times, want %d", made.Load(), tc.made)
				}
			})
		})
	}
}

// TestCacheMemory checks that 500 different bundles stay under the limit, both in measured memory and in Cache.Usage.
func TestCacheMemory(t *testing.T) {
	const limit = 8 << 20
	c := &Cache{MaxBytes: limit}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 500 {
		if _, err := c.Get(t.Context(), fmt.Sprint(i),
			func() (*Bundle, error) { return bundleOf(t, 10, 2000), nil }); err != nil {
			t.Fatal(err)
		}
	}
	used := int64(heap()) - int64(before)
	bundles, bytes := c.Usage()
	t.Logf("%d of 500 bundles held, %d bytes by its own account, %d in fact, limit %d", bundles, bytes, used, limit)
	if bytes > limit || used > limit {
		t.Errorf("over the limit of %d: %d bytes by its own account, %d in fact", limit, bytes, used)
	}
	runtime.KeepAlive(c)
}

// chart100 is a chart of 100 objects.
func chart100(t testing.TB) *Artefact {
	return chartOf(t, "values.yaml", "name: x\n", "templates/all.yaml",
		"{{ range until 50 }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ $.Values.name }}-{{ . "+
			"}}'}\ndata: {v: '{{ . }}'}\n---\n"+strings.ReplaceAll(deployment, "name: op",
			"name: op-{{ . }}")+"{{ end }}\n")
}

// BenchmarkChartFirst renders a chart of 100 objects for the first time.
func BenchmarkChartFirst(b *testing.B) {
	a := chart100(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Render(b.Context(), Settings{}, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// renderAgain returns a function that renders the artefact with a Cache. The first call of the returned function
// renders the artefact. Every further call only computes the digest and gets the bundle from the Cache.
func renderAgain(t testing.TB, a *Artefact) func() *Bundle {
	var c Cache
	settings := Settings{Release: "r", Set: []string{"name=y"}, Capabilities: Capabilities{KubeVersion: "v1.33.0"}}
	asks := a.CapabilityQueries(settings)
	return func() *Bundle {
		opts := Options{Digest: settings.Digest(a.Digest(), asks)}
		bundle, err := c.Get(t.Context(), opts.ResultingBundleDigest(),
			func() (*Bundle, error) { return a.Render(t.Context(), settings, opts) })
		if err != nil {
			t.Fatal(err)
		}
		return bundle
	}
}

// BenchmarkChartAgain renders a chart of 100 objects a second time.
func BenchmarkChartAgain(b *testing.B) {
	render := renderAgain(b, chart100(b))
	render()
	b.ReportAllocs()
	for b.Loop() {
		render()
	}
}

// TestChartAgain checks that a second rendering makes fewer allocations than it returns objects, so there are no
// allocations for each object. The time of a second rendering is only logged, because it depends on the load of the
// machine.
func TestChartAgain(t *testing.T) {
	render := renderAgain(t, chart100(t))
	if n := len(render().Objects); n != 100 {
		t.Fatalf("got %d objects", n)
	}
	allocated := testing.AllocsPerRun(100, func() { render() })
	begin := time.Now()
	for range 100 {
		render()
	}
	t.Logf("%v and %v allocations for 100 objects", time.Since(begin)/100, allocated)
	if allocated >= 100 {
		t.Errorf("it takes %v allocations", allocated)
	}
}
