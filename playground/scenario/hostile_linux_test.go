package scenario

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// hostileEdits is the number of edits of the honest runtime in each phase of TestHostileRuntime. To measure latencies,
// use 100 edits or more:
//
//	go test -count=1 ./scenario -run 'TestHostileRuntime$' -v -args -hostile-edits=100
//
// The test also prints the use of cores in each phase. If the manager and the other processes together use all cores of
// the machine, the attacker causes the latencies; in practice the attacker runs on another machine.
var hostileEdits = flag.Int("hostile-edits", 3, "edits of the honest runtime during each attack of TestHostileRuntime")

const (
	// maxResident is the maximum resident memory of the manager during an attack, in MiB.
	maxResident = 600
	// dataLimit limits the memory of the manager's process, in bytes.
	dataLimit = 2 << 30
)

// attack is a way in which a hostile API server answers.
type attack struct {
	name string
	// answer answers a request, or returns false to pass it to the real API server.
	answer func(w http.ResponseWriter, r *http.Request) bool
	// The field says is a part of the message with which the status of the hostile runtime's Kyma reports the attack.
	// The field is empty for an attack that affects only watches, because the status does not report such attacks.
	says string
}

// isWatch and isList report the kind of a request.
func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }
func isList(r *http.Request) bool  { return !isWatch(r) && r.URL.Query().Get("limit") != "" }

// write sends the same text repeatedly, as long as the client reads it. The parameter times is the maximum number of
// repetitions.
func write(w http.ResponseWriter, text string, times int) {
	for ; times > 0; times-- {
		if _, err := w.Write([]byte(text)); err != nil {
			return
		}
	}
}

const listHead = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`

// attacks are all attacks, in the order in which they happen.
func attacks() []attack {
	values, text := strings.Repeat("{},", 1<<20/3), strings.Repeat("x", 1<<20)
	var page atomic.Int64
	return []attack{
		{"27 MiB of {}, in managedFields", func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || isWatch(r) {
				return false
			}
			_, _ = fmt.Fprint(w, `{"kind":"Kyma","metadata":{"managedFields":[`)
			write(w, values, 27)
			_, _ = fmt.Fprint(w, `{}]}}`)
			return true
		}, "larger than what an API server sends"},
		{"list with endless continue", func(w http.ResponseWriter, r *http.Request) bool {
			if !isList(r) {
				return false
			}
			_, _ = fmt.Fprintf(w, `%s"metadata":{"resourceVersion":"1","continue":"%d"},"items":[]}`, listHead, page.Add(1))
			return true
		}, ""},
		{"watch event without end", func(w http.ResponseWriter, r *http.Request) bool {
			if !isWatch(r) {
				return false
			}
			_, _ = fmt.Fprint(w, `{"type":"ADDED","object":{"metadata":{"annotations":{"a":"`)
			write(w, text, 4<<10)
			return true
		}, ""},
		{"list of a watch without end", func(w http.ResponseWriter, r *http.Request) bool {
			if !isList(r) {
				return false
			}
			_, _ = fmt.Fprintf(w, `%s"metadata":{"resourceVersion":"1"},"items":[`, listHead)
			for range 4 << 10 {
				write(w, `{"metadata":{"name":"a","annotations":{"a":"`+text+`"}}},`, 1)
				if r.Context().Err() != nil {
					break
				}
			}
			return true
		}, ""},
		{"pages of 10 MiB with endless continue", func(w http.ResponseWriter, r *http.Request) bool {
			if !isList(r) {
				return false
			}
			_, _ = fmt.Fprintf(w, `%s"metadata":{"resourceVersion":"1","continue":"%d"},"items":[`, listHead, page.Add(1))
			for n := range 10 {
				_, _ = fmt.Fprintf(w, `{"metadata":{"name":"a%d","annotations":{"a":%q}}},`, n, text)
			}
			_, _ = fmt.Fprint(w, `{"metadata":{"name":"b"}}]}`)
			return true
		}, ""},
		{"{} with status 200", func(w http.ResponseWriter, r *http.Request) bool {
			if isWatch(r) {
				return false
			}
			_, _ = fmt.Fprint(w, `{}`)
			return true
		}, "not valid for a Kubernetes API server"},
	}
}

// measured is the result of a phase.
type measured struct {
	peak     int // resident memory in MiB
	answers  int64
	p50, p99 time.Duration
	// The fields manager and rest are processor time, as a share of one core. manager is the time of the manager
	// process. rest is the time of this process, which includes all API servers and the attacker.
	manager, rest float64
}

func (m measured) String() string {
	return fmt.Sprintf("%4d MiB  p50 %6s  p99 %6s  cores: manager %.2f, API servers and attacker %.2f", m.peak, m.p50,
		m.p99, m.manager, m.rest)
}

// TestHostileRuntime runs the manager as a process with limited memory, for an honest runtime and a runtime whose API
// server attacks the manager in every way. The manager stays below its limit and serves the honest runtime during the
// attacks. After each attack, the hostile runtime has exactly the same objects as before.
func TestHostileRuntime(t *testing.T) {
	s := bringUpWith(t, landscape.Options{Runtimes: []string{"runtime-a", "runtime-b"},
		// The measured memory must not include garbage. On a busy machine, the garbage collector gets processor time
		// too late to keep to --memory-target, but allocations wait for it when GOMEMLIMIT is reached. The process
		// needs up to 100 MiB that GOMEMLIMIT does not count, so this limit is less than maxResident by more than that.
		ManagerArgs: []string{"--leader-elect=false", "--memory-target=0"},
		ManagerEnv:  []string{"GOMEMLIMIT=448MiB"}})
	limit := &unix.Rlimit{Cur: dataLimit, Max: dataLimit}
	if err := unix.Prlimit(s.land.Manager.PID(), unix.RLIMIT_DATA, limit, nil); err != nil {
		t.Fatal(err)
	}
	h := hostile{scenario: s, t: t, pid: s.land.Manager.PID()}
	if err := h.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	quiet, err := h.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%-40s %v", "quiet", quiet)
	for _, a := range attacks() {
		m, err := h.attack(t.Context(), a)
		if err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
		t.Logf("%-40s %v  p99 %.2f of quiet  %d answers", a.name, m, float64(m.p99)/float64(quiet.p99), m.answers)
		if m.peak >= maxResident {
			t.Errorf("%s: the manager had %d MiB", a.name, m.peak)
		}
	}
}

// hostile is the state of TestHostileRuntime.
type hostile struct {
	*scenario
	t    *testing.T
	gate *landscape.Gate
	pid  int

	access []byte    // the kubeconfig of runtime-b
	uid    types.UID // of the ConfigMap of the module in runtime-b
}

// configMap is the key of the ConfigMap of the module.
var configMap = client.ObjectKey{Namespace: "kyma-system", Name: "small"}

// prepare installs the module in two runtimes.
func (h *hostile) prepare(ctx context.Context) error {
	m := landscape.Module{Name: "small", Version: "1.0.0", Component: "kyma-project.io/module/small",
		Manifest: []byte(small)}
	if err := h.land.PushAndCreateModuleTemplate(ctx, m); err != nil {
		return err
	}
	channels := map[string]string{v1beta2.DefaultChannel: m.Version}
	if err := h.land.SetChannels(ctx, m.Name, m.Component, channels); err != nil {
		return err
	}
	var err error
	if h.gate, err = h.land.Gate("runtime-b"); err != nil {
		return err
	}
	if h.access, err = h.gate.Kubeconfig(); err != nil {
		return err
	}
	if err := h.land.SetAccessSecret(ctx, "runtime-b", h.access); err != nil {
		return err
	}
	if err := h.land.CreateKyma(ctx, "runtime-b", v1beta2.DefaultChannel); err != nil {
		return err
	}
	if err := h.land.Register(ctx, "runtime-a", v1beta2.DefaultChannel); err != nil {
		return err
	}
	for _, name := range []string{"runtime-a", "runtime-b"} {
		if err := h.see(name, v1beta2.StateReady, ""); err != nil {
			return err
		}
		if err := h.land.PatchDesiredKymaSpec(ctx, name, func(k *v1beta2.KymaSpec) {
			k.Modules = []v1beta2.Module{{Name: m.Name}}
		}); err != nil {
			return err
		}
		if err := h.poll(func(ctx context.Context) (bool, string) {
			uid, err := h.uidIn(ctx, name)
			return err == nil, fmt.Sprint(uid, err)
		}); err != nil {
			return err
		}
		if err := h.see(name, v1beta2.StateReady, ""); err != nil {
			return err
		}
	}
	h.uid, err = h.uidIn(ctx, "runtime-b")
	return err
}

// uidIn returns the UID of the module's ConfigMap in a runtime.
func (h *hostile) uidIn(ctx context.Context, runtime string) (types.UID, error) {
	m := &corev1.ConfigMap{}
	err := h.land.Clients[runtime].Get(ctx, configMap, m)
	return m.UID, err
}

// see waits until the Kyma in the control plane has a certain state, and a condition whose message contains a text.
func (h *hostile) see(name string, state v1beta2.State, message string) error {
	return h.poll(func(ctx context.Context) (bool, string) {
		k := &v1beta2.Kyma{}
		key := client.ObjectKey{Namespace: h.land.Namespace(), Name: name}
		if err := h.land.Clients[landscape.ControlPlane].Get(ctx, key, k); err != nil {
			return false, err.Error()
		}
		all := text(k.Status)
		return k.Status.State == state && strings.Contains(all, message), all
	})
}

// attack lets runtime-b attack the manager while the honest runtime is edited, and then checks the objects in
// runtime-b.
func (h *hostile) attack(ctx context.Context, a attack) (measured, error) {
	var answers atomic.Int64
	h.gate.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		if !a.answer(w, r) {
			w.Header().Del("Content-Type")
			return false
		}
		answers.Add(1)
		return true
	})
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- h.provoke(ctx, stop) }()
	m, err := h.measure(ctx)
	if err == nil {
		err = h.poll(func(context.Context) (bool, string) { return answers.Load() > 0, "no hostile answer was read" })
	}
	if err == nil && a.says != "" {
		err = h.see("runtime-b", v1beta2.StateError, a.says)
	}
	close(stop)
	if failed := <-done; err == nil {
		err = failed
	}
	h.gate.Intercept(nil)
	if err != nil {
		return m, err
	}
	m.answers = answers.Load()
	if m.peak, err = h.peak(); err != nil { // also of requests after the last edit
		return m, err
	}
	if err := h.retry(ctx, "after "+a.name); err != nil {
		return m, err
	}
	if err := h.see("runtime-b", v1beta2.StateReady, ""); err != nil {
		return m, fmt.Errorf("after the attack: %w", err)
	}
	if uid, err := h.uidIn(ctx, "runtime-b"); err != nil || uid != h.uid {
		return m, fmt.Errorf("the module's object was deleted: UID %s, it was %s, %w", uid, h.uid, err)
	}
	return m, nil
}

// provoke makes the manager read from runtime-b again and again. To do so, provoke requests reconciles, and renews the
// credential, because a new connection lists everything that is watched.
func (h *hostile) provoke(ctx context.Context, stop <-chan struct{}) error {
	often := time.NewTicker(500 * time.Millisecond)
	defer often.Stop()
	for n := 0; ; n++ {
		if n%4 == 0 {
			if err := h.land.SetAccessSecret(ctx, "runtime-b", fmt.Appendf(slices.Clip(h.access), "# %d\n",
				n)); err != nil {
				return err
			}
		}
		if err := h.retry(ctx, strconv.Itoa(n)); err != nil {
			return err
		}
		select {
		case <-often.C:
		case <-stop:
			return nil
		}
	}
}

// retry requests a reconcile of runtime-b and its modules.
func (h *hostile) retry(ctx context.Context, value string) error {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: h.land.Namespace(), Name: "runtime-b"}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1beta2.AnnotationRetry, value)
	return h.land.Clients[landscape.ControlPlane].Patch(ctx, k, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// measure deletes the module's ConfigMap in the honest runtime again and again, and measures how long the manager needs
// to restore it.
func (h *hostile) measure(ctx context.Context) (m measured, err error) {
	if err := os.WriteFile(h.proc("clear_refs"), []byte("5"), 0); err != nil { // resets the peak
		return m, err
	}
	manager, rest, begin := h.processorTime(strconv.Itoa(h.pid)), h.processorTime("self"), time.Now()
	defer func() {
		passed := time.Since(begin).Seconds()
		m.manager = (h.processorTime(strconv.Itoa(h.pid)) - manager) / passed
		m.rest = (h.processorTime("self") - rest) / passed
	}()
	often := time.NewTicker(10 * time.Millisecond) // the resolution of the latencies
	defer often.Stop()
	var took []time.Duration
	for range *hostileEdits {
		before, err := h.uidIn(ctx, "runtime-a")
		if err != nil {
			return m, err
		}
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: configMap.Namespace, Name: configMap.Name}}
		start := time.Now()
		if err := h.land.Clients["runtime-a"].Delete(ctx, o); err != nil {
			return m, err
		}
		for now := types.UID(""); now == "" || now == before; {
			<-often.C
			if now, err = h.uidIn(ctx, "runtime-a"); time.Since(start) > waitTimeout {
				return m, fmt.Errorf("the ConfigMap was not restored in %s: %w", waitTimeout, err)
			}
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	m.p50, m.p99 = took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond)
	m.peak, err = h.peak()
	return m, err
}

// processorTime returns the processor time of a process, without its children, in seconds.
func (h *hostile) processorTime(pid string) float64 {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		h.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	ticks := 0.0
	for _, field := range fields[11:13] { // in user mode, in the kernel
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			h.t.Fatal(err)
		}
		ticks += n
	}
	return ticks / 100 // the clock ticks of Linux
}

// proc returns the path of a file about the manager's process.
func (h *hostile) proc(file string) string { return filepath.Join("/proc", strconv.Itoa(h.pid), file) }

// peak returns the largest resident memory of the manager since measure has begun, in MiB.
func (h *hostile) peak() (int, error) {
	status, err := os.ReadFile(h.proc("status"))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	kib := 0
	if _, err := fmt.Sscan(rest, &kib); !found || err != nil {
		return 0, fmt.Errorf("reading VmHWM: %w", err)
	}
	return kib >> 10, nil
}
