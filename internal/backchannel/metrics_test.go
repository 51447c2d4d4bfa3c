package backchannel

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// TestMetrics checks the values of all metrics of the listener.
func TestMetrics(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, func(o *Options) { o.RuntimeMetrics = true }, ca)
	e.add("a")
	registry := prometheus.NewRegistry()
	metrics.MustRegister(registry, metrics.Sources{MandatoryModules: func() float64 { return 0 }})
	gathered := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sums := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					if l.GetName() != "server_name" {
						name += " " + l.GetValue()
					} else if l.GetValue() != "listener" {
						t.Errorf("%s has server_name %q", name, l.GetValue())
					}
				}
				sums[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return sums
	}
	before := gathered()
	own := ca.issue(t, certRequest{name: "a", uid: "uid-a"})
	c := client(t, ca, own)
	call(t, c, "POST", e.url(heartbeatPath), `{"boot":"x"}`)
	call(t, c, "POST", e.url(heartbeatPath), `{"boot":"x","sequence":2}`)
	call(t, c, "POST", e.url(eventPath), recorded)
	call(t, c, "POST", e.url(eventPath), strings.Repeat(" ", protocol.MaxEventBytes+1))
	call(t, client(t, ca, nil), "POST", e.url(eventPath), recorded)
	call(t, client(t, ca, nil), "POST", e.url("/v2/whatever/event"), recorded)
	// A short HeartbeatTimeout could also pass between the two heartbeats. Therefore the last heartbeat is made old.
	r := e.tracker.getOrCreateLockedRecord("kyma-a")
	r.state.Last = r.state.Last.Add(-e.opts.HeartbeatTimeout)
	last := float64(r.state.Last.UnixMilli()) / 1000
	r.mu.Unlock()
	e.tracker.checkRuntime(r)
	if _, heard := e.State("kyma-a"); heard || len(e.notifiedChanged()) != 2 {
		t.Errorf("the runtime is silent: alive is %t, Changed was called for %q, want 2 calls", heard, e.notifiedChanged())
	}
	after := gathered()
	if got := after["lifecycle_mgr_watcher_last_heartbeat_timestamp_seconds kyma-a"]; got != last {
		t.Errorf("the last heartbeat came at %f, want %f", got, last)
	}
	want := map[string]float64{
		"watcher_listener_requests_total":                                  6,
		"watcher_listener_request_errors_total":                            3,
		"watcher_listener_exceeding_size_limit_requests_total":             1,
		"watcher_listener_failed_verification_requests_total " + eventPath: 1,
		"watcher_listener_failed_verification_requests_total other":        1,
		"lifecycle_mgr_watcher_heard_total event":                          1,
		"lifecycle_mgr_watcher_heard_total heartbeat":                      2,
		"lifecycle_mgr_watcher_refused_total body_size":                    1,
		"lifecycle_mgr_watcher_refused_total no_certificate":               2,
		"lifecycle_mgr_watcher_missed_total":                               1,
		"lifecycle_mgr_watcher_lost_runtimes":                              1,
	}
	got := map[string]float64{}
	for name, value := range after {
		ours := strings.HasPrefix(name, "watcher_listener_") || strings.HasPrefix(name, "lifecycle_mgr_watcher_")
		if ours && value != before[name] && !strings.Contains(name, "duration") &&
			!strings.Contains(name, "timestamp") {
			got[name] = value - before[name]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics changed (-want +got):\n%s", diff)
	}
	if after["watcher_listener_inflight_requests"] != 0 || after["watcher_listener_request_duration"] <= 0 {
		t.Errorf("in flight %v, last took %v s", after["watcher_listener_inflight_requests"],
			after["watcher_listener_request_duration"])
	}
	e.Forget("kyma-a")
	end := gathered()
	if _, left := end["lifecycle_mgr_watcher_last_heartbeat_timestamp_seconds kyma-a"]; left ||
		end["lifecycle_mgr_watcher_lost_runtimes"] != before["lifecycle_mgr_watcher_lost_runtimes"] {
		t.Error("a runtime that was forgotten is still counted")
	}
}
