package dashboard

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// The benchmark uses a fleet of this size and this number of viewers.
const (
	fleetSize    = 10_000
	fleetModules = 7
	viewers      = 50
)

// BenchmarkFleet measures the dashboard of 10,000 runtimes with seven modules each, on a real API server and in a real
// browser. The benchmark needs some minutes to make the fleet.
//
//	go test -run '^$' -bench Fleet -benchtime 3x -timeout 30m ./dashboard
//
//	s-to-index      from the start of klm until the fleet is in the browser
//	ms-first-byte   from the request of the page of the fleet until its first byte
//	ms-to-paint     from the navigation until the first text, with an empty cache
//	ms-to-map       from the navigation until the heat map is drawn
//	KB-cells        bytes of the heat map, compressed
//	ms-to-change    from the change of a Kyma until it is in the page
//	MB-resident     memory of klm, all of it
//	cores-50        processor time of klm per second with 50 viewers who follow a change a second
func BenchmarkFleet(b *testing.B) {
	p := bigFleet(b)
	all := map[string]float64{}
	n := 0
	for b.Loop() {
		begin := time.Now()
		address, pid := serveFor(b, p.kubeconfig)
		base, _, _ := strings.Cut(address, "?")
		browser := open(b, address)
		browser.until("10,000 runtimes")
		all["s-to-index"] += time.Since(begin).Seconds()
		call(browser, network.ClearBrowserCache, cdp.Empty{})
		browser.do(chromedp.Navigate(base))
		all["ms-to-paint"] += browser.mark("first-contentful-paint")
		all["ms-to-map"] += browser.mark("heat-map")
		all["ms-first-byte"] += evaluate[float64](browser, `(t => t.responseStart - t.requestStart)(`+
			`performance.getEntriesByType("navigation")[0])`)
		all["KB-cells"] += evaluate[float64](browser, `performance.getEntriesByType("resource").filter(`+
			`e => e.name.includes("/fleet/cells")).reduce((n, e) => n + e.encodedBodySize, 0)`) / 1000
		n++
		begin = time.Now()
		p.fail(b, n)
		browser.until(fmt.Sprintf("Error %d", n))
		all["ms-to-change"] += float64(time.Since(begin).Milliseconds())
		all["MB-resident"] += resident(b, pid)
		all["cores-50"] += p.follow(b, browser, pid, n)
	}
	for unit, sum := range all {
		b.ReportMetric(sum/float64(n), unit)
	}
}

// mark waits for an entry of the performance timeline, and returns its time since the navigation in milliseconds.
func (b *tab) mark(name string) (at float64) {
	b.t.Helper()
	entry := fmt.Sprintf(`performance.getEntriesByName(%q)[0]?.startTime ?? 0`, name)
	waitFor(b.t, name, func() bool {
		at = evaluate[float64](b, entry)
		return at > 0
	})
	return at
}

// bigFleet starts a control plane without a manager, with the Kymas of a fleet. The fleet has no Manifests, because the
// in-memory index of the dashboard is built from Kymas only.
func bigFleet(b *testing.B) *plane {
	b.Helper()
	p := newPlane(b)
	var all errgroup.Group
	const parallel = 16
	all.SetLimit(parallel)
	for i := range fleetSize {
		all.Go(func() error { return p.addKyma(b, i) })
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
	return p
}

// kymaOf returns the metadata of a Kyma.
func kymaOf(i int) *v1beta2.Kyma {
	return &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("runtime-%05d", i),
		Namespace: v1beta2.ControlPlaneNamespace}}
}

// addKyma makes one Kyma with the status of a runtime whose modules are Ready.
func (p *plane) addKyma(b *testing.B, i int) error {
	regions := []string{"eu-central-1", "us-east-1", "ap-south-1", "eu-west-3", "us-west-2", "ca-central-1"}
	k := kymaOf(i)
	k.Labels, k.Spec.Channel = map[string]string{v1beta2.LabelRegion: regions[i%len(regions)]}, "regular"
	if err := p.Create(b.Context(), k); err != nil {
		return err
	}
	status := v1beta2.KymaStatus{State: v1beta2.StateReady, ModulesReady: fmt.Sprintf("%d/%[1]d", fleetModules),
		Agent: &v1beta2.AgentStatus{Connected: true}}
	var summary []string
	for n := range fleetModules {
		m := v1beta2.ModuleStatus{Name: fmt.Sprint("module-", n), Version: "1.4.0", Channel: "regular",
			State: v1beta2.StateReady}
		status.Modules = append(status.Modules, m)
		summary = append(summary, fmt.Sprintf("%s@%s (%s)", m.Name, m.Version, m.Channel))
	}
	status.Summary = strings.Join(summary, ", ")
	status.LastOperation.LastUpdateTime = metav1.Now()
	return p.setStatus(b, k, status)
}

// fail sets the state of a runtime to Error.
func (p *plane) fail(b *testing.B, i int) {
	b.Helper()
	if err := p.setStatus(b, kymaOf(i), map[string]any{"state": v1beta2.StateError}); err != nil {
		b.Fatal(err)
	}
}

// follow returns the processor time of klm per second while viewers have the page of the fleet open, and a runtime
// changes each second. A viewer loads the page again after each event, as the script of the page does.
func (p *plane) follow(b *testing.B, browser *tab, pid, round int) float64 {
	b.Helper()
	client := visitor(b, browser)
	client.Transport = &http.Transport{MaxIdleConnsPerHost: viewers}
	request := func(path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, browser.base+path, nil)
		if err != nil {
			return nil, err
		}
		return client.Do(r)
	}
	var streams []io.Closer
	var all errgroup.Group
	for range viewers {
		stream, err := request("/events")
		if err != nil {
			b.Fatal(err)
		}
		streams = append(streams, stream.Body)
		all.Go(func() error {
			for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
				if !strings.HasPrefix(lines.Text(), "data: ") {
					continue
				}
				page, err := request("/")
				if err != nil {
					return err
				}
				if _, err := io.Copy(io.Discard, page.Body); err != nil {
					return err
				}
				page.Body.Close()
			}
			return nil
		})
	}
	const changes = 10
	before, begin := processorTime(b, pid), time.Now()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for i := range changes {
		<-ticker.C
		p.fail(b, 1000*round+i)
		if err := p.setStatus(b, kymaOf(1000*round+i), map[string]any{"state": v1beta2.StateReady}); err != nil {
			b.Fatal(err)
		}
	}
	used := (processorTime(b, pid) - before) / time.Since(begin).Seconds()
	for _, s := range streams {
		_ = s.Close() // ends the stream
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
	return used
}

// processorTime returns the processor time that a process has used, in seconds.
func processorTime(b *testing.B, pid int) float64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(data, []byte(") ")) // the name of the program may have spaces
	fields := strings.Fields(string(rest))
	const user, system, ticksPerSecond = 11, 12, 100
	sum := 0.0
	for _, i := range []int{user, system} {
		n, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += n / ticksPerSecond
	}
	return sum
}

// resident returns the resident memory of a process in MB.
func resident(b *testing.B, pid int) float64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(data))[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * float64(os.Getpagesize()) / 1e6
}
