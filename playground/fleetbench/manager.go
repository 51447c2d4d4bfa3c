package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// manager is a process of the manager.
type manager struct {
	*child

	metrics, health, profiles, listener string // addresses; listener is empty without agents
	name, log                           string
}

// startManager starts a process of the manager with the rights of its service account. name distinguishes the replicas.
func (r *rig) startManager(ctx context.Context, name string) (*manager, error) {
	kubeconfig, err := r.plane.managerKubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.dir, name+".kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return nil, fmt.Errorf("writing the manager's kubeconfig: %w", err)
	}
	m := &manager{name: name, log: filepath.Join(r.dir, name+".log")}
	for _, address := range []*string{&m.metrics, &m.health, &m.profiles, &m.listener} {
		if *address, err = cluster.FreeAddress(); err != nil {
			return nil, err
		}
	}
	args := []string{
		"--kubeconfig=" + path, "--oci-registry-host=" + r.store.URL, "--watch-mode=" + r.WatchMode,
		"--health-probe-bind-address=" + m.health, "--metrics-bind-address=" + m.metrics, "--metrics-secure=false",
		"--pprof-bind-address=" + m.profiles, "--pod-name=" + name,
	}
	if r.WatchMode == config.WatchAgent {
		args = append(args, "--listener-address="+listenerName+":8445", "--listener-bind-address="+m.listener)
	}
	if r.Replicas > 1 {
		args = append(args, fmt.Sprintf("--shards=%d", allShards))
	}
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the manager's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own copy
	if m.child, err = startChild(r.Manager, append(args, r.ManagerArgs...), nil, log, log); err != nil {
		return nil, err
	}
	go func() {
		<-m.done
		if !m.stopping.Load() {
			r.fail(m.exitError())
		}
	}()
	return m, nil
}

// listenerName is the server name that agents use for the listener. The agents connect to the listener by its address.
const listenerName = "listener.fleet.example.com"

// waitUntilReady waits until the manager's caches are synced and its readiness probe succeeds.
func (m *manager) waitUntilReady(ctx context.Context) error {
	return poll(ctx, startTimeout, "the manager to be ready", func() (bool, error) {
		if m.ended() {
			return false, m.exitError()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.health+"/readyz", http.NoBody)
		if err != nil {
			return false, fmt.Errorf("asking whether the manager is ready: %w", err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
}

// profileSeconds is the time of one processor profile of the manager.
const profileSeconds = 5

// writeCPUProfiles writes processor profiles of the manager to the files PATH-001.pprof, PATH-002.pprof and so on,
// until ctx or the process ends. The manager returns a profile when its time is over, so the last profile of a scenario
// is missing. The tool pprof adds the profiles of several files.
func (m *manager) writeCPUProfiles(ctx context.Context, path string) {
	for n := 1; ctx.Err() == nil && !m.ended(); n++ {
		profile, err := m.readCPUProfile(ctx)
		if err == nil {
			err = os.WriteFile(fmt.Sprintf("%s-%03d.pprof", path, n), profile, 0o600)
		}
		if err != nil {
			return // the figures do not depend on profiles
		}
	}
}

func (m *manager) readCPUProfile(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", m.profiles, profileSeconds), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking the manager for a profile: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the manager for a profile: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking the manager for a profile: %s", resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// inside has figures from the manager's own metrics.
type inside struct {
	Live       float64 // bytes of live heap after the last garbage collection
	Allocated  float64 // bytes of heap that were allocated since the start, whether they are in use or not
	Goroutines float64
	Depth      float64 // objects in all work queues
	Working    float64 // reconciles that run at present
	Passes     float64 // reconciles since the start
	Errors     float64 // reconciles with an error
	Series     int     // lines of metrics
}

// readMetrics reads the manager's metrics.
func (m *manager) readMetrics(ctx context.Context) (in inside, err error) {
	text, err := readMetrics(ctx, m.metrics)
	if err != nil {
		return in, err
	}
	one := func(name string) float64 { return sumOfSeries(parseMetrics(text, name), nil) }
	in = inside{
		Live: one("go_gc_heap_live_bytes"), Allocated: one("go_gc_heap_allocs_bytes_total"),
		Goroutines: one("go_goroutines"), Depth: one("workqueue_depth"),
		Working: one("controller_runtime_active_workers"), Passes: one("controller_runtime_reconcile_total"),
		Errors: one("controller_runtime_reconcile_errors_total"),
	}
	for _, c := range text {
		if c == '\n' {
			in.Series++
		}
	}
	return in, nil
}
