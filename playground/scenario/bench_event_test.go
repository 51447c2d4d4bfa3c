package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// edits is the number of changes of the Kyma in BenchmarkEvent.
const edits = 500

// listened is the time for which BenchmarkHeartbeat counts.
const listened = time.Minute

// BenchmarkEvent changes an annotation of the Kyma in a runtime 500 times, one after the other, while its agent reports
// to the manager. BenchmarkEvent measures the time until the API server receives the manager's read of the Kyma, which
// begins a reconcile. The time is measured in two ways. One measurement begins when the benchmark gets the answer to
// its change. The second measurement begins when the API server receives the change according to its audit log, which
// is a little too early. The measured time includes the agent's watch, the event, the listener, and the queue. Between
// two changes the benchmark waits for more than half a second, because an agent reports an object at most once in half
// a second.
//
//	go test ./scenario -run '^$' -bench Event -benchtime 1x -timeout 30m
func BenchmarkEvent(b *testing.B) {
	s := bringUp(b, "--watch-mode=agent", "--orphan-sweep-interval=0")
	s.hearRuntime(b)
	where, key := s.land.DesiredKymaKey("runtime-a")
	for b.Loop() {
		var answered, arrived []time.Duration
		for i := range edits {
			fromAnswer, fromArrival, err := s.edit(where, key, i)
			if err != nil {
				b.Fatalf("change %d: %v", i, err)
			}
			answered, arrived = append(answered, fromAnswer), append(arrived, fromArrival)
			<-time.After(550*time.Millisecond + rand.N(100*time.Millisecond))
		}
		for from, times := range map[string][]time.Duration{"answer": answered, "arrival": arrived} {
			slices.Sort(times)
			for name, share := range map[string]int{"p50": 50, "p90": 90, "p99": 99, "max": 100} {
				b.ReportMetric(times[edits*share/100-1].Seconds()*1000, from+"-"+name+"-ms")
			}
		}
		b.Logf("the slowest: %v; load: %s", arrived[edits-10:], load())
		if p99 := arrived[edits*99/100-1]; p99 >= 500*time.Millisecond {
			b.Errorf("the 99th percentile is %s, less than 500 ms is right", p99)
		}
	}
}

// hearRuntime registers runtime-a. hearRuntime waits until the agent is connected and the manager has no more work.
func (s *scenario) hearRuntime(b *testing.B) {
	b.Helper()
	if err := s.land.Register(s.ctx, "runtime-a", v1beta2.DefaultChannel); err != nil {
		b.Fatal(err)
	}
	if err := s.seeReady("0/0"); err != nil {
		b.Fatal(err)
	}
	kcp, key := s.land.Clients[landscape.ControlPlane],
		client.ObjectKey{Namespace: s.land.Namespace(), Name: "runtime-a"}
	if err := s.poll(func(ctx context.Context) (bool, string) {
		k := &v1beta2.Kyma{}
		err := kcp.Get(ctx, key, k)
		return err == nil && k.Status.Agent != nil && k.Status.Agent.Connected &&
			k.Status.Agent.Digest != "", text(k.Status.Agent)
	}); err != nil {
		b.Fatal(err)
	}
	<-time.After(5 * time.Second) // for reports about the first delivery
	if err := s.mark(&call{}); err != nil {
		b.Fatal(err)
	}
}

// edit changes the Kyma in the runtime. edit returns two times until the manager reads the Kyma: from the answer to the
// change, and from the time at which the API server received the change.
func (s *scenario) edit(where string, key types.NamespacedName, i int) (
	fromAnswer, fromArrival time.Duration, err error) {
	mark := s.land.Clusters[where].Mark()
	k := &v1beta2.Kyma{}
	k.Namespace, k.Name = key.Namespace, key.Name
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"change":"%d"}}}`, i))
	if err := s.land.Clients[where].Patch(s.ctx, k, patch); err != nil {
		return 0, 0, err
	}
	answer := time.Now()
	err = s.poll(func(context.Context) (bool, string) {
		var changed, read time.Time
		for _, r := range s.land.Clusters[where].Requests(mark) {
			switch {
			case r.Resource != "kymas":
			case r.Verb == "patch" && r.UserAgent == "landscape":
				changed = r.Time
			case r.Verb == "get" && strings.HasPrefix(r.UserAgent, agent) && read.IsZero():
				read = r.Time
			}
		}
		fromAnswer, fromArrival = read.Sub(answer), read.Sub(changed)
		return !changed.IsZero() && !read.IsZero(), "the manager has not read the Kyma"
	})
	return fromAnswer, fromArrival, err
}

// load returns the load averages of the system for one, five and fifteen minutes. load returns "" if the system
// provides none.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text))[:min(3, len(strings.Fields(string(text))))], " ")
}

// BenchmarkHeartbeat lets the agent of a runtime without changes send a heartbeat each second for a minute.
// BenchmarkHeartbeat counts the heartbeats that the manager has received, the bytes between agent and manager, and the
// requests of the manager. BenchmarkHeartbeat fails if there is a request to the runtime, a write to the control plane,
// or if a heartbeat costs a kilobyte.
//
//	go test ./scenario -run '^$' -bench Heartbeat -benchtime 1x
func BenchmarkHeartbeat(b *testing.B) {
	s := bringUp(b, "--watch-mode=agent", "--heartbeat-interval=1s", "--orphan-sweep-interval=0")
	s.hearRuntime(b)
	for b.Loop() {
		if err := s.mark(&call{}); err != nil {
			b.Fatal(err)
		}
		heartbeats, up, down, err := s.heard()
		if err != nil {
			b.Fatal(err)
		}
		<-time.After(listened)
		heartbeatsNow, upNow, downNow, err := s.heard()
		if err != nil {
			b.Fatal(err)
		}
		n := heartbeatsNow - heartbeats
		runtime, control := s.count("runtime-a"), s.count(landscape.ControlPlane)
		b.ReportMetric(n, "heartbeats")
		b.ReportMetric(float64(upNow-up)/n, "bytes-up/heartbeat")
		b.ReportMetric(float64(downNow-down)/n, "bytes-down/heartbeat")
		b.ReportMetric(float64(len(runtime.reads)+len(runtime.writes)), "runtime-requests")
		b.ReportMetric(float64(len(control.reads)), "control-reads")
		b.ReportMetric(float64(len(control.writes)), "control-writes")
		b.ReportMetric(float64(len(control.leases)), "control-leases")
		if n < listened.Seconds()/2 {
			b.Errorf("%g heartbeats in %s, one a second is right", n, listened)
		}
		if lines := slices.Concat(runtime.reads, runtime.writes, control.writes); len(lines) > 0 {
			b.Errorf("%d requests to the runtime or writes to the control plane, none is right:\n%s",
				len(lines), strings.Join(lines, "\n"))
		}
		if cost := float64(upNow-up+downNow-down) / n; cost >= 1000 {
			b.Errorf("a heartbeat costs %.0f bytes on the way, less than 1000 is right", cost)
		}
	}
}

// heard returns the number of heartbeats that the manager has received, and the bytes to and from its listener.
func (s *scenario) heard() (heartbeats float64, up, down int64, err error) {
	heartbeats, err = s.land.Metric(s.ctx, "lifecycle_mgr_watcher_heard_total", `what="heartbeat"`)
	up, down = s.land.RelayedAgentBytes()
	return heartbeats, up, down, err
}
