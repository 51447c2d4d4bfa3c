package agent

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/playground/program"
)

// BenchmarkMemory runs the agent as a process of its own, with 5,000 objects, and changes each object once.
// BenchmarkMemory prints the maximum memory of the agent in three phases: after the agent has received the objects,
// during the changes, and while the listener is down. The agent should need less than 30 MB in each phase.
//
//	go test ./agent -run '^$' -bench Memory -benchtime 1x
func BenchmarkMemory(b *testing.B) {
	const name, objects = "memory", 5000
	for b.Loop() {
		list := protocol.Watchlist{HeartbeatInterval: metav1.Duration{Duration: time.Second}, Watches: []protocol.Watch{
			configMaps(name, ""), {Version: "v1", Resource: "secrets"},
			{Group: "apps", Version: "*", Resource: "deployments"},
		}}
		w := newWorld(b, api, name, list, readRule("", "configmaps", "secrets"), readRule("apps", "deployments"))
		change := func(value string) {
			var wg sync.WaitGroup
			for worker := range 16 {
				wg.Go(func() {
					for n := worker; n < objects; n += 16 {
						w.putConfigMap(b, fmt.Sprint("object-with-a-long-name-", n), value,
							map[string]string{"app.kubernetes.io/name": "benchmark", "number": strconv.Itoa(n)})
					}
				})
			}
			wg.Wait()
		}
		change("1")
		process := w.startProcess(b)
		w.awaitWatchlist(b, list)
		w.awaitEvents(b, 0, "lifecycle-manager ConfigMap began", "lifecycle-manager Secret began",
			"lifecycle-manager Deployment began")
		eventually(b, func() string {
			if n := process.metric(b, "watcher_watched_objects"); n < objects {
				return fmt.Sprintf("%v objects are watched", n)
			}
			return ""
		})
		b.ReportMetric(process.peak(b), "MB-listed")
		change("2")
		w.settle(b)
		b.ReportMetric(process.peak(b), "MB-changed")
		w.down()
		change("3")
		b.ReportMetric(process.peak(b), "MB-unheard")
		w.up(b)
		w.settle(b)
		b.ReportMetric(process.peak(b), "MB-peak")
		b.ReportMetric(process.current(b), "MB")
		b.ReportMetric(process.memory(b, "RssAnon"), "MB-anonymous")
		process.stop()
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLatency measures the delay of 500 reports. A delay begins when the API server has confirmed a change of an
// object. A delay ends when the listener has received the report of the change.
//
//	go test ./agent -run '^$' -bench Latency -benchtime 1x
func BenchmarkLatency(b *testing.B) {
	const name, changes = "latency", 500
	for b.Loop() {
		list := protocol.Watchlist{Watches: []protocol.Watch{configMaps(name, "")}}
		w := newWorld(b, api, name, list, readRule("", "configmaps"))
		process := w.startProcess(b)
		w.awaitEvents(b, 0, "lifecycle-manager ConfigMap began")
		at := map[string]time.Time{}
		for n := range changes {
			object := fmt.Sprint("o", n)
			w.putConfigMap(b, object, "1", nil)
			at[object] = time.Now()
		}
		w.awaitEvents(b, 0, fmt.Sprintf("lifecycle-manager ConfigMap latency/o%d", changes-1))
		var took []time.Duration
		for _, e := range w.since(0, nil) {
			if began, known := at[e.Watched.Name]; known {
				took = append(took, max(0, e.at.Sub(began)))
			}
		}
		slices.Sort(took)
		if len(took) < changes {
			b.Errorf("%d of %d changes were told", len(took), changes)
		}
		b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-p50")
		b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "ms-p99")
		process.stop()
	}
	b.ReportMetric(0, "ns/op")
}

// settle waits until a new heartbeat of the agent reports no pending events and no problem.
func (w *world) settle(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	known := len(w.beats)
	w.mu.Unlock()
	eventually(t, func() string {
		w.mu.Lock()
		news := len(w.beats) > known+1
		w.mu.Unlock()
		if h := w.lastHeartbeat(); !news || h.Pending > 0 || h.Problem != "" {
			return fmt.Sprintf("the last heartbeat is %+v", h)
		}
		return ""
	})
}

// process is an agent that runs as a separate process, as in a runtime.
type process struct {
	command *exec.Cmd
	metrics string // address
	stop    func()
}

// startProcess builds and starts the agent, and waits until it is ready.
func (w *world) startProcess(b testing.TB) *process {
	b.Helper()
	bin := b.TempDir()
	if err := program.Build("../..", bin, program.Agent); err != nil {
		b.Fatal(err)
	}
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, w.kubeconfig, 0o600); err != nil {
		b.Fatal(err)
	}
	webhook, metrics := freePort(b), freePort(b)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	command := exec.CommandContext(ctx, filepath.Join(bin, program.Agent), "--bind-address=127.0.0.1", "--watchlist="+w.namespace+"/watches")
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.Env = append(os.Environ(),
		"CA_CERT="+w.options.CA, "TLS_CERT="+w.options.Certificate, "TLS_KEY="+w.options.Key,
		"KCP_ADDR="+w.address, "KCP_CONTRACT=v2",
		"WEBHOOK_PORT="+webhook, "METRICS_PORT="+metrics, "POD_NAME=agent-0", "KUBECONFIG="+kubeconfig)
	var log strings.Builder
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	p := &process{command: command, metrics: "127.0.0.1:" + metrics}
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := command.Wait(); err != nil && ctx.Err() == nil || b.Failed() {
			b.Logf("the agent ended with %v: %s", err, log.String())
		}
	})
	b.Cleanup(p.stop)
	eventually(b, func() string {
		answer, err := http.Get("http://" + p.metrics + "/readyz")
		if err != nil {
			return err.Error()
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return answer.Status
		}
		return ""
	})
	return p
}

func freePort(b testing.TB) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// memory returns a field about memory from the status of the agent's process, in MB.
func (p *process) memory(b testing.TB, field string) float64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); words[0] == field+":" {
			kB, _ := strconv.ParseFloat(words[1], 64)
			return kB / 1000
		}
	}
	b.Fatalf("there is no %s", field)
	return 0
}

func (p *process) peak(b testing.TB) float64    { return p.memory(b, "VmHWM") }
func (p *process) current(b testing.TB) float64 { return p.memory(b, "VmRSS") }

// metric returns the value of a metric of the agent that has no labels.
func (p *process) metric(b testing.TB, name string) float64 {
	b.Helper()
	answer, err := http.Get("http://" + p.metrics + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	var value float64
	scanner := bufio.NewScanner(answer.Body)
	for scanner.Scan() {
		if text, found := strings.CutPrefix(scanner.Text(), name+" "); found {
			value, _ = strconv.ParseFloat(text, 64)
		}
	}
	return value
}
