package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// The size of the fleet of the benchmark.
const (
	fleetSize    = 10_000
	fleetModules = 7
)

// BenchmarkFleet measures the dashboard of 10,000 runtimes with seven modules each, on a real API server and in a real
// browser: the time from the start of klm until the index is ready, and the time until the fleet is painted in a
// browser with an empty cache. The benchmark needs some minutes to make the fleet:
//
//	go test -run '^$' -bench Fleet -benchtime 3x -timeout 30m ./dashboard
func BenchmarkFleet(b *testing.B) {
	kubeconfig := bigFleet(b)
	var ready, painted, drawn time.Duration
	n := 0
	for b.Loop() {
		begin := time.Now()
		address := serveFor(b, kubeconfig)
		base, _, _ := strings.Cut(address, "?")
		browser := open(b, address)
		browser.until("10,000 runtimes")
		ready += time.Since(begin)
		call(browser, network.ClearBrowserCache, cdp.Empty{})
		browser.do(chromedp.Navigate(base))
		painted += browser.mark("first-contentful-paint")
		drawn += browser.mark("heat-map")
		n++
	}
	b.ReportMetric(ready.Seconds()/float64(n), "s-to-index")
	b.ReportMetric(float64(painted.Milliseconds())/float64(n), "ms-to-paint")
	b.ReportMetric(float64(drawn.Milliseconds())/float64(n), "ms-to-map")
}

// mark waits for an entry of the performance timeline, and returns its time since the navigation.
func (b *tab) mark(name string) time.Duration {
	b.t.Helper()
	entry := fmt.Sprintf(`performance.getEntriesByName(%q)[0]?.startTime ?? 0`, name)
	at := 0.0
	waitFor(b.t, name, func() bool {
		at = evaluate[float64](b, entry)
		return at > 0
	})
	return time.Duration(at * float64(time.Millisecond))
}

// bigFleet starts a control plane without a manager, with the Kymas of a fleet, and returns its kubeconfig.
func bigFleet(b *testing.B) string {
	b.Helper()
	host, err := cluster.Open(b.Context(), cluster.Options{Dir: filepath.Join(b.TempDir(), "data")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := host.Close(); err != nil {
			b.Error(err)
		}
	})
	cp, err := host.Start(b.Context(), "control-plane")
	if err != nil {
		b.Fatal(err)
	}
	config := rest.CopyConfig(cp.Config())
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		b.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	for _, crd := range crds.All() {
		if err := c.Create(b.Context(), crd); err != nil {
			b.Fatal(err)
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1beta2.ControlPlaneNamespace}}
	if err := c.Create(b.Context(), namespace); err != nil {
		b.Fatal(err)
	}
	waitFor(b, "the CRDs", func() bool { return c.List(b.Context(), kymaList()) == nil })
	var all errgroup.Group
	const parallel = 16
	all.SetLimit(parallel)
	for i := range fleetSize {
		all.Go(func() error { return addKyma(b, c, i) })
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, cp.Kubeconfig(), 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

func kymaList() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("KymaList"))
	return l
}

// addKyma makes one Kyma with the status of a runtime whose modules are Ready.
func addKyma(b *testing.B, c client.Client, i int) error {
	regions := []string{"eu-central-1", "us-east-1", "ap-south-1", "eu-west-3", "us-west-2", "ca-central-1"}
	k := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"channel": "regular"}}}
	k.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("Kyma"))
	k.SetNamespace(v1beta2.ControlPlaneNamespace)
	k.SetName(fmt.Sprintf("runtime-%05d", i))
	k.SetLabels(map[string]string{v1beta2.LabelRegion: regions[i%len(regions)]})
	if err := c.Create(b.Context(), k); err != nil {
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
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return c.Status().Patch(b.Context(), k, client.RawPatch("application/merge-patch+json", data))
}

// serveFor starts klm dashboard, and returns the address that it prints.
func serveFor(b *testing.B, kubeconfig string) string {
	b.Helper()
	command := exec.Command(filepath.Join(bin, "klm"), "dashboard", "--no-open", "--kubeconfig="+kubeconfig)
	var out bytes.Buffer
	read, write, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	command.Stdout = write
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // ended by the signal
	})
	buffer := make([]byte, 4096)
	for !strings.Contains(out.String(), "\n") {
		n, err := read.Read(buffer)
		if err != nil {
			b.Fatal(err)
		}
		out.Write(buffer[:n])
	}
	return printed.FindString(out.String())
}
