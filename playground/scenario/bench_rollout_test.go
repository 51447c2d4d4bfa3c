package scenario

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// halts is the number of halts in BenchmarkHalt.
const halts = 30

// BenchmarkHalt halts a rollout 30 times, and resumes it each time. A module that has the new version becomes Error
// while other changes keep the coordinator busy: a change of a Kyma, which causes a reconcile, comes up to two seconds
// before. BenchmarkHalt measures the time from the change of the custom resource until the API server receives two
// writes: the status of the Manifest, and the halt. All times are those of the audit logs.
//
//	go test ./scenario -run '^$' -bench Halt -benchtime 1x -timeout 30m
func BenchmarkHalt(b *testing.B) {
	s := bringUp(b, "--watch-mode=agent", "--orphan-sweep-interval=0")
	rollout := s.soak(b)
	for b.Loop() {
		var manifest, halt []time.Duration
		for i := range halts {
			m, h, err := s.halt(rollout, i)
			if err != nil {
				b.Fatalf("halt %d: %v", i, err)
			}
			manifest, halt = append(manifest, m), append(halt, h)
		}
		for of, times := range map[string][]time.Duration{"manifest": manifest, "halt": halt} {
			slices.Sort(times)
			for name, share := range map[string]int{"p50": 50, "p90": 90, "max": 100} {
				b.ReportMetric(times[(len(times)*share+99)/100-1].Seconds()*1000, of+"-"+name+"-ms")
			}
		}
		b.Logf("load: %s", load())
	}
}

// productState sets the state of the custom resource of the module in runtime-a.
func (s *scenario) productState(state v1beta2.State) error {
	o, err := s.object("runtime-a:Product.v1.alpha.example.com/alpha")
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"state":%q}}`, state))
	return o.client.Patch(s.ctx, o.empty(), patch)
}

// soak installs the module alpha in runtime-a, moves its channel, and returns the rollout when it soaks.
func (s *scenario) soak(b *testing.B) client.ObjectKey {
	b.Helper()
	s.offer(b, productOf("alpha", "1.0.0", 4, true))
	s.settleDown(b, "alpha")
	rollout := client.ObjectKey{Namespace: s.land.Namespace(), Name: "alpha-" + v1beta2.DefaultChannel + "-r2"}
	policy := &v1beta2.RolloutPolicy{Spec: v1beta2.RolloutPolicySpec{
		Modules: v1beta2.RolloutModules{Names: []string{"alpha"}}, Stages: []v1beta2.RolloutStage{{Name: "all"}}}}
	policy.Namespace, policy.Name = s.land.Namespace(), "standard"
	policy.Spec.Stages[0].Soak.Duration = 24 * time.Hour
	if err := s.land.Clients[landscape.ControlPlane].Create(s.ctx, policy); err != nil {
		b.Fatal(err)
	}
	if err := s.awaitFirst(); err != nil {
		b.Fatal(err)
	}
	s.offer(b, productOf("alpha", "2.0.0", 4, true))
	if err := s.awaitRollout(rollout, func(r *v1beta2.ModuleRollout) bool {
		return r.Status.Phase == v1beta2.RolloutSoaking
	}); err != nil {
		b.Fatal(err)
	}
	return rollout
}

// awaitFirst waits until the first version of the module alpha is recorded as the proven one.
func (s *scenario) awaitFirst() error {
	return s.poll(func(ctx context.Context) (bool, string) {
		release := &v1beta2.ModuleReleaseMeta{}
		err := s.land.Clients[landscape.ControlPlane].Get(ctx, client.ObjectKey{Namespace: s.land.Namespace(),
			Name: "alpha"}, release)
		c := release.ChannelStatus(v1beta2.DefaultChannel)
		return err == nil && c != nil && c.Version == "1.0.0", text(release.Status)
	})
}

// awaitRollout waits until a ModuleRollout is in a state.
func (s *scenario) awaitRollout(key client.ObjectKey, is func(*v1beta2.ModuleRollout) bool) error {
	return s.poll(func(ctx context.Context) (bool, string) {
		r := &v1beta2.ModuleRollout{}
		err := s.land.Clients[landscape.ControlPlane].Get(ctx, key, r)
		return err == nil && is(r), text(r.Status)
	})
}

// halt lets the module fail and waits until the rollout is halted. Then halt() repairs the module and resumes the
// rollout. halt returns the times from the failure until the status of the Manifest and the halt are written.
func (s *scenario) halt(rollout client.ObjectKey, i int) (manifest, halted time.Duration, err error) {
	kcp := s.land.Clients[landscape.ControlPlane]
	touch := &v1beta2.Kyma{}
	touch.Namespace, touch.Name = s.land.Namespace(), "runtime-a"
	if err := kcp.Patch(s.ctx, touch, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{"change":"%d"}}}`, i))); err != nil {
		return 0, 0, err
	}
	<-time.After(mathrand.N(2 * time.Second))
	here, there := s.land.Clusters[landscape.ControlPlane].Mark(), s.land.Clusters["runtime-a"].Mark()
	if err := s.productState(v1beta2.StateError); err != nil {
		return 0, 0, err
	}
	if err := s.awaitRollout(rollout, func(r *v1beta2.ModuleRollout) bool {
		return r.Status.Phase == v1beta2.RolloutHalted
	}); err != nil {
		return 0, 0, err
	}
	var failed, recorded, written time.Time
	if err := s.poll(func(context.Context) (bool, string) { // the audit log has a request after its effect is visible
		for _, r := range s.land.Clusters["runtime-a"].Requests(there) {
			if r.Resource == "alphas" && r.UserAgent == "landscape" && r.Verb == "patch" {
				failed = r.Time
			}
		}
		for _, r := range s.land.Clusters[landscape.ControlPlane].Requests(here) {
			switch r.Resource + "/" + r.Subresource {
			case "manifests/status":
				recorded = cmp.Or(recorded, r.Time)
			case "modulerollouts/status":
				written = cmp.Or(written, r.Time)
			}
		}
		return !failed.IsZero() && !recorded.IsZero() && !written.IsZero(), "a request is missing in the audit logs"
	}); err != nil {
		return 0, 0, err
	}
	if err := s.productState(v1beta2.StateReady); err != nil {
		return 0, 0, err
	}
	if err := s.awaitRollout(rollout, func(r *v1beta2.ModuleRollout) bool {
		return r.Status.Runtimes.Proven == 1
	}); err != nil {
		return 0, 0, err
	}
	r := &v1beta2.ModuleRollout{}
	if err := kcp.Get(s.ctx, rollout, r); err != nil {
		return 0, 0, err
	}
	before := r.DeepCopy()
	r.Spec.Resumptions = append(r.Spec.Resumptions, v1beta2.RolloutResumption{By: admin, Reason: "measured"})
	if err := kcp.Patch(s.ctx, r, client.MergeFrom(before)); err != nil {
		return 0, 0, err
	}
	return recorded.Sub(failed), written.Sub(failed), s.awaitRollout(rollout, func(r *v1beta2.ModuleRollout) bool {
		return r.Status.Phase == v1beta2.RolloutSoaking && r.Status.Runtimes.Proven == 1
	})
}

const (
	// patches is the number of patches in BenchmarkRolloutStatus, and patchInterval the time between two of them. The
	// manager writes at most one in two seconds; the cost of each is the same.
	patches       = 500
	patchInterval = 200 * time.Millisecond
)

// BenchmarkRolloutStatus patches the status of a ModuleRollout 500 times, while three replicas of the manager watch it,
// which share the work. The rollout is paused, so that the patches have no consequences. BenchmarkRolloutStatus
// measures the processor time of the API server (which includes this client) and of each replica for each patch, the
// size of the object, the events that the API server sends, and the requests of the replicas. The processor time of an
// equal period without patches is subtracted.
//
//	go test ./scenario -run '^$' -bench RolloutStatus -benchtime 1x -timeout 30m
func BenchmarkRolloutStatus(b *testing.B) {
	s := bringUp(b, "--shards=64", "--orphan-sweep-interval=0", "--pod-name=one")
	for _, name := range []string{"two", "three"} {
		p, err := s.land.StartExtraReplica(s.ctx, name, "--pod-name="+name)
		if err != nil {
			b.Fatal(err)
		}
		if s.others == nil {
			s.others = map[string]*landscape.Process{}
		}
		s.others[name] = p
	}
	defer func() {
		if err := s.closeReplicas(); err != nil {
			b.Error(err)
		}
	}()
	if err := s.shared(3); err != nil {
		b.Fatal(err)
	}
	rollout := s.soak(b)
	pause := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"state":"Paused","reason":"measured"}}`))
	kcp, o := s.land.Clients[landscape.ControlPlane], &v1beta2.ModuleRollout{}
	o.Namespace, o.Name = rollout.Namespace, rollout.Name
	if err := kcp.Patch(s.ctx, o, pause); err != nil {
		b.Fatal(err)
	}
	if err := s.awaitRollout(rollout, func(r *v1beta2.ModuleRollout) bool {
		return r.Status.ObservedGeneration == r.Generation
	}); err != nil {
		b.Fatal(err)
	}
	processes := map[string]int{"server": os.Getpid(), "replica-1": s.land.Manager.PID(),
		"replica-2": s.others["two"].PID(), "replica-3": s.others["three"].PID()}
	for b.Loop() {
		<-time.After(10 * time.Second) // for what the pause causes
		idle, _, err := s.costOf(processes, func() error { <-time.After(patches * patchInterval); return nil })
		if err != nil {
			b.Fatal(err)
		}
		size := 0
		cost, sent, err := s.costOf(processes, func() (err error) { size, err = s.patchStatus(rollout); return err })
		if err != nil {
			b.Fatal(err)
		}
		for name := range processes {
			b.ReportMetric(float64((cost[name]-idle[name]).Microseconds())/1000/patches, name+"-ms/patch")
			b.Logf("%s: %s idle, %s with patches", name, idle[name], cost[name])
		}
		b.ReportMetric(float64(size), "object-bytes")
		b.ReportMetric(sent.events/patches, "events/patch")
		b.ReportMetric(sent.bytes/patches, "event-bytes/patch")
		b.ReportMetric(float64(sent.requests), "replica-requests")
		b.Logf("load: %s", load())
	}
}

// sent is what the API server sends to the clients that watch ModuleRollouts, and how many requests it receives from
// the replicas, without Leases.
type sent struct {
	events, bytes float64
	requests      int
}

// costOf returns the processor time of processes, and what the API server sends and receives, during an action.
func (s *scenario) costOf(processes map[string]int, do func() error) (map[string]time.Duration, sent, error) {
	before, beforeSent := map[string]time.Duration{}, sent{}
	var err error
	if beforeSent.events, beforeSent.bytes, err = s.watchEvents(); err != nil {
		return nil, sent{}, err
	}
	mark := s.land.Clusters[landscape.ControlPlane].Mark()
	for name, pid := range processes {
		if before[name], err = cpuOf(pid); err != nil {
			return nil, sent{}, err
		}
	}
	if err := do(); err != nil {
		return nil, sent{}, err
	}
	cost := map[string]time.Duration{}
	for name, pid := range processes {
		now, err := cpuOf(pid)
		if err != nil {
			return nil, sent{}, err
		}
		cost[name] = now - before[name]
	}
	var is sent
	if is.events, is.bytes, err = s.watchEvents(); err != nil {
		return nil, sent{}, err
	}
	is.events, is.bytes = is.events-beforeSent.events, is.bytes-beforeSent.bytes
	for _, r := range s.land.Clusters[landscape.ControlPlane].Requests(mark) {
		if strings.HasPrefix(r.UserAgent, agent) && r.Resource != "leases" && r.Resource != "events" {
			is.requests++
		}
	}
	return cost, is, nil
}

// patchStatus patches the status of a rollout again and again, as in a stage of a large fleet: with 500 admitted
// runtimes and 20 failures. patchStatus returns the size of the object.
func (s *scenario) patchStatus(rollout client.ObjectKey) (size int, err error) {
	kcp := s.land.Clients[landscape.ControlPlane]
	tick := time.NewTicker(patchInterval)
	defer tick.Stop()
	for i := range patches {
		<-tick.C
		r := &v1beta2.ModuleRollout{}
		if err := kcp.Get(s.ctx, rollout, r); err != nil {
			return 0, err
		}
		before := r.DeepCopy()
		tokens := make([]byte, 500*6)
		_, _ = rand.Read(tokens)
		r.Status.Admitted = base64.StdEncoding.EncodeToString(tokens)
		r.Status.Runtimes.Updating = int32(i)
		r.Status.Worst = nil
		for n := range 20 {
			r.Status.Worst = append(r.Status.Worst, v1beta2.RolloutRuntime{Runtime: fmt.Sprintf("runtime-%05d", i*20+n),
				Reason:  v1beta2.ReasonWorkloadFailed,
				Message: "Deployment kyma-system/alpha: 0 of 1 pods are available: the image cannot be pulled"})
		}
		if err := kcp.Status().Patch(s.ctx, r, client.MergeFromWithOptions(before,
			client.MergeFromWithOptimisticLock{})); err != nil {
			return 0, err
		}
		data, err := json.Marshal(r)
		if err != nil {
			return 0, err
		}
		size = max(size, len(data))
	}
	return size, nil
}

// watchEvents returns how many events about ModuleRollouts the API servers have sent to watches, and their bytes. All
// API servers of a test run in this process and share their metrics; only the control plane has ModuleRollouts.
func (s *scenario) watchEvents() (events, bytes float64, err error) {
	config := s.land.Clusters[landscape.ControlPlane].Config()
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, 0, err
	}
	defer plain.CloseIdleConnections()
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, config.Host+"/metrics", http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	response, err := plain.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, `resource="modulerollouts"`) {
			continue
		}
		n, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:len(line)-1], 64)
		switch {
		case err != nil:
			return 0, 0, err
		case strings.HasPrefix(line, "apiserver_watch_events_total{"):
			events += n
		case strings.HasPrefix(line, "apiserver_watch_events_sizes_sum{"):
			bytes += n
		}
	}
	return events, bytes, nil
}

// cpuOf returns the processor time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	if pid == os.Getpid() {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return 0, err
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The second field is a name that may contain spaces; the processor times are fields 14 and 15, in ticks of 10 ms.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q is not the stat of a process", stat)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, cmp.Or(err, err2)
}
