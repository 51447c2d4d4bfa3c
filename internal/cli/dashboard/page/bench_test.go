package page

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
)

// benchmarkFleet is the size of the fleet of benchmarks; each runtime has seven modules.
const benchmarkFleet = 10_000

// BenchmarkPage measures the rendering of a page after a change of the fleet, when no rendered page is in memory.
func BenchmarkPage(b *testing.B) {
	now := time.Now()
	x := indexOf(benchmarkFleet, now)
	x.SetMaintenance(maintenanceOf(b))
	s := serverOf(b, x, &pageserver.Viewer{})
	for _, path := range []string{"/", "/?state=Error&sort=-since", "/?module=istio&group=version", "/versions",
		"/rollouts", "/catalog", "/calendar", "/fleet/cells"} {
		b.Run(strings.NewReplacer("/", "_", "?", "_").Replace(path), func(b *testing.B) {
			size, packed := 0, 0
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				m := memberAt(5, now)
				m.Metadata.ResourceVersion = fmt.Sprint("v", i)
				x.Put(m)
				x.Publish()
				b.StartTimer()
				w := send(s, http.MethodGet, path, "", "Accept-Encoding", "gzip")
				packed = w.Body.Len()
				b.StopTimer()
				size = send(s, http.MethodGet, path, "").Body.Len()
				b.StartTimer()
			}
			b.ReportMetric(float64(size), "bytes")
			b.ReportMetric(float64(packed), "bytes-packed")
		})
	}
}

// BenchmarkIndex measures the memory of the index.
func BenchmarkIndex(b *testing.B) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	now := time.Now()
	for b.Loop() {
		before := heap()
		x := indexOf(benchmarkFleet, now)
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
		runtime.KeepAlive(x)
	}
}

// BenchmarkViewers measures the processor time for 50 viewers with different names while the fleet changes every
// second. BenchmarkViewers also measures the time from a change to its event.
func BenchmarkViewers(b *testing.B) {
	const viewers = 50
	now := time.Now()
	x := indexOf(benchmarkFleet, now)
	s, err := New(Options{Index: x, Hosts: []string{host}, Viewer: named})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s)
	s.Hosts = append(s.Hosts, server.Listener.Addr().String())
	server.Start()
	defer server.Close()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	go x.Run(ctx, func(ctx context.Context) (*connection.Cluster, error) { <-ctx.Done(); return nil, ctx.Err() })
	received := make(chan time.Time, viewers)
	get := func(path, viewer string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			b.Error(err)
			return nil
		}
		r.Header.Set("Viewer", viewer)
		w, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return nil
		}
		return w
	}
	for i := range viewers {
		go func() {
			w := get("/events", fmt.Sprint("viewer-", i))
			if w == nil {
				return
			}
			defer w.Body.Close()
			in := bufio.NewScanner(w.Body)
			for in.Scan() {
				if !strings.HasPrefix(in.Text(), "data:") {
					continue
				}
				select {
				case received <- time.Now():
				default:
				}
				if page := get([]string{"/", "/?state=Error", "/versions"}[i%3],
					fmt.Sprint("viewer-", i)); page != nil {
					_, _ = bufio.NewReader(page.Body).WriteTo(discard{})
					page.Body.Close()
				}
			}
		}()
	}
	processor := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	time.Sleep(2 * time.Second) // the streams are open
	used, begin, delays, n := processor(), time.Now(), time.Duration(0), 0
	for i := 0; b.Loop(); i++ {
		m := memberAt(i%benchmarkFleet, now)
		m.Metadata.ResourceVersion, m.Status.State = fmt.Sprint("v", i), v1beta2.StateWarning
		changed := time.Now()
		for len(received) > 0 {
			<-received
		}
		x.Put(m)
		delays += (<-received).Sub(changed)
		n++
		time.Sleep(time.Second + 200*time.Millisecond - time.Since(changed))
	}
	b.ReportMetric(float64(delays.Milliseconds())/float64(n), "ms-to-event")
	b.ReportMetric(float64(processor()-used)/float64(time.Since(begin)), "cores")
}

// named returns a viewer with the name that the request contains.
func named(_ http.ResponseWriter, r *http.Request) *pageserver.Viewer {
	return &pageserver.Viewer{Name: r.Header.Get("Viewer")}
}

type discard struct{}

func (discard) Write(data []byte) (int, error) { return len(data), nil }
