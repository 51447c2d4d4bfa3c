package docs

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector receives traces.
type collector struct {
	collectortrace.UnimplementedTraceServiceServer
	endpoint string
	server   *grpc.Server
	served   chan error

	mu    sync.Mutex // guards spans
	spans map[string]*trace.Span
}

// collect starts a collector on loopback.
func collect() (*collector, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for traces: %w", err)
	}
	c := &collector{endpoint: "http://" + l.Addr().String(), server: grpc.NewServer(), served: make(chan error, 1),
		spans: map[string]*trace.Span{}}
	collectortrace.RegisterTraceServiceServer(c.server, c)
	go func() { c.served <- c.server.Serve(l) }()
	return c, nil
}

func (c *collector) stop() {
	c.server.Stop()
	if err := <-c.served; err != nil {
		fmt.Fprintln(os.Stderr, "serving the collector of traces:", err)
	}
}

// Export keeps one span of each name.
func (c *collector) Export(_ context.Context, r *collectortrace.ExportTraceServiceRequest) (
	*collectortrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans[span.Name] = span
			}
		}
	}
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

// attributes returns the attributes of a span of this name, or nil if there is no such span yet.
func (c *collector) attributes(name string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spans[name] == nil {
		return nil
	}
	all := map[string]string{}
	for _, a := range c.spans[name].Attributes {
		all[a.Key] = a.Value.GetStringValue()
	}
	return all
}

// deadline bounds every wait.
const deadline = 20 * time.Minute

// TestTraces checks that the manager sends the spans that observe.md lists.
func TestTraces(t *testing.T) {
	l := theLandscape(t)
	for name, want := range map[string][]string{
		"kyma": {"runtime", "pass", "result"}, "manifest": {"runtime", "module", "version", "pass", "result"},
		"kyma/connect": {"result"}, "manifest/apply": {"result"},
	} {
		var got map[string]string
		for limit := time.Now().Add(deadline); got == nil && time.Now().Before(limit); {
			if got = l.spans.attributes(name); got == nil {
				<-time.After(100 * time.Millisecond)
			}
		}
		for _, attribute := range want {
			if got[attribute] == "" {
				t.Fatalf("span %s has no attribute %s: %v", name, attribute, got)
			}
		}
	}
}

// kubectl runs kubectl with the permissions of an operator of the control plane.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	k := exec.Command("bin/kubectl", append([]string{"--kubeconfig", ".landscape/control-plane.kubeconfig", "-n",
		"kcp-system"}, args...)...)
	k.Dir = folder
	out, err := k.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// scrape reads the metrics of the manager, like a Prometheus with the role for metrics.
func scrape(t *testing.T, accept string) string {
	t.Helper()
	if kubectl(t, "get", "serviceaccounts", "--ignore-not-found", "prometheus") == "" {
		kubectl(t, "create", "serviceaccount", "prometheus")
		kubectl(t, "create", "clusterrolebinding", "prometheus", "--clusterrole=lifecycle-manager-metrics-reader",
			"--serviceaccount=kcp-system:prometheus")
	}
	log, err := os.ReadFile(filepath.Join(folder, ".landscape/manager.log"))
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`"Serving metrics server".*"bindAddress":"([^"]+)"`).FindSubmatch(log)
	if at == nil {
		t.Fatal("the log does not say where metrics are")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://"+string(at[1])+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(kubectl(t, "create", "token", "prometheus")))
	request.Header.Set("Accept", accept)
	// on loopback
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for limit := time.Now().Add(deadline); ; {
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err == nil && answer.StatusCode == http.StatusOK {
			return string(data)
		}
		// the role is in force some time after its binding was created
		if err != nil || answer.StatusCode != http.StatusForbidden || time.Now().After(limit) {
			t.Fatalf("%s, %v: %s", answer.Status, err, data)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// TestForeignMetrics checks that the metrics of libraries that dashboards and alerts use are served.
func TestForeignMetrics(t *testing.T) {
	theLandscape(t)
	served, all := scrape(t, "text/plain"), ""
	files, err := filepath.Glob("../../deploy/chart/monitoring/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, file := range append(files, "../../deploy/chart/monitoring/alerts.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += string(data)
	}
	foreign := regexp.MustCompile(
		`\b(controller_runtime|workqueue|rest_client|go|process|leader_election)_[a-z_]+`).FindAllString(all, -1)
	if len(foreign) < 5 {
		t.Errorf("found %q: are dashboards still written as before?", foreign)
	}
	for _, name := range foreign {
		if !strings.Contains(served, "\n"+name+"{") && !strings.Contains(served, "\n"+name+" ") {
			t.Errorf("%s is not served", name)
		}
	}
}

// TestExemplars checks that the histogram of steps has the IDs of traces in the format OpenMetrics.
func TestExemplars(t *testing.T) {
	theLandscape(t)
	const step = `lifecycle_mgr_step_duration_seconds_bucket`
	for limit := time.Now().Add(deadline); ; {
		if regexp.MustCompile(step + `\{.*# \{trace_id="[0-9a-f]{32}"\}`).MatchString(
			scrape(t, "application/openmetrics-text; version=1.0.0")) {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("no step has an exemplar")
		}
		<-time.After(100 * time.Millisecond)
	}
}
