package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	machinery "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// The type memory is a client that keeps all objects in memory. Like the cache of a manager, it returns copies of its
// objects, unless the caller of List passes client.UnsafeDisableDeepCopy. The type memory also stores each status that
// is written.
type memory struct {
	client.Client
	objects map[reflect.Type]map[string]client.Object
	lists   map[reflect.Type][]machinery.Object // of the fleet, in any order
	reads   int
	copies  int            // objects of lists that were copied
	writes  map[string]int // by create, status and patch; nil: they are not counted
}

func (m *memory) add(o client.Object) {
	of := reflect.TypeOf(o)
	if m.objects[of] == nil {
		m.objects[of] = map[string]client.Object{}
	}
	m.objects[of][o.GetName()] = o
}

func (m *memory) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	m.reads++
	found := m.objects[reflect.TypeOf(into)][key.Name]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

func (m *memory) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	m.reads++
	o := (&client.ListOptions{}).ApplyOptions(opts)
	var all []machinery.Object
	switch into.(type) {
	case *v1beta2.KymaList:
		all = m.lists[reflect.TypeFor[*v1beta2.Kyma]()]
	case *v1beta2.ManifestList:
		all = m.lists[reflect.TypeFor[*v1beta2.Manifest]()]
	case *v1beta2.ModuleRolloutList:
		for _, found := range m.objects[reflect.TypeFor[*v1beta2.ModuleRollout]()] {
			all = append(all, found)
		}
	case *v1beta2.RolloutPolicyList:
		for _, found := range m.objects[reflect.TypeFor[*v1beta2.RolloutPolicy]()] {
			all = append(all, found)
		}
	case *v1beta2.ModuleTemplateList:
		for _, found := range m.objects[reflect.TypeFor[*v1beta2.ModuleTemplate]()] {
			all = append(all, found)
		}
	}
	if o.UnsafeDisableDeepCopy == nil {
		copies := make([]machinery.Object, len(all))
		for i := range all {
			copies[i] = all[i].DeepCopyObject()
		}
		m.copies += len(all)
		all = copies
	}
	return meta.SetList(into, all)
}

func (m *memory) Status() client.SubResourceWriter { return statusOf{memory: m} }

type statusOf struct {
	client.SubResourceWriter
	memory *memory
}

func (s statusOf) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	s.memory.add(o.DeepCopyObject().(client.Object))
	if s.memory.writes != nil {
		s.memory.writes["status"]++
	}
	return nil
}

// largeFleet is a fleet in the middle of the last stage of a rollout: half of the runtimes have the new version. Each
// ModuleTemplate has a descriptor of the usual size.
func largeFleet(n int) *memory {
	m := &memory{objects: map[reflect.Type]map[string]client.Object{}, lists: map[reflect.Type][]machinery.Object{}}
	at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	name := "keda-regular-r2"
	release := objects(0)[0].(*v1beta2.ModuleReleaseMeta)
	release.Spec.Channels[0].Version = "2.0.0"
	release.Status.Channels = []v1beta2.ChannelStatus{{Channel: "regular", Version: "1.0.0", Target: "2.0.0",
		Rollout: name, Revision: 2, Policy: "standard"}}
	m.add(release)
	policy := onePolicy()
	policy.Spec.MaxUpdating = 400
	policy.Spec.Stages = []v1beta2.RolloutStage{{Name: "canary", Percent: 1}, {Name: "half", Percent: 50},
		{Name: "rest", MaxConcurrency: new(intstr.FromString("5%"))}}
	m.add(policy)
	r := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: at},
		Spec: v1beta2.ModuleRolloutSpec{Module: "keda", Channel: "regular", From: "1.0.0", To: "2.0.0", Revision: 2,
			Lineage: "keda/regular/2.0.0", State: v1beta2.RolloutRunning, Policy: "standard"},
		Status: v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutUpdating,
			Stage: v1beta2.RolloutStageStatus{Index: 2, Name: "rest", StartedAt: at}}}
	for i, s := range policy.Spec.Stages {
		r.Spec.Stages = append(r.Spec.Stages, v1beta2.ModuleRolloutStage{RolloutStage: s,
			Ranks: []int32{655, 32768, 65536}[i]})
	}
	m.add(r)
	for _, version := range []string{"1.0.0", "2.0.0"} {
		t := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keda-" + version},
			Spec: v1beta2.ModuleTemplateSpec{ModuleName: "keda", Version: version,
				Descriptor: machinery.RawExtension{Raw: []byte(`{"a":"` + strings.Repeat("x", 8<<10) + `"}`)}}}
		m.add(t)
	}
	kymas, manifests := reflect.TypeFor[*v1beta2.Kyma](), reflect.TypeFor[*v1beta2.Manifest]()
	for i, o := range objects(n)[1:] {
		switch o := o.(type) {
		case *v1beta2.Kyma:
			o.Annotations = map[string]string{v1beta2.AnnotationLastRequest: `{"channel":"regular","modules":[` +
				`{"name":"keda"},{"name":"btp-operator"},{"name":"telemetry","channel":"fast"}]}`}
			o.Labels = map[string]string{"kyma-project.io/region": "eu-1", "kyma-project.io/global-account-id": "a",
				"kyma-project.io/instance-id": fmt.Sprint("0d2b1a5e-", i), "kyma-project.io/shoot-name": o.Name}
			o.Status.Modules = []v1beta2.ModuleStatus{{Name: "keda", Channel: "regular", Version: "1.0.0"}}
			m.lists[kymas] = append(m.lists[kymas], o)
		case *v1beta2.Manifest:
			if i%4 == 1 {
				o.Spec.Version, o.Status.Version = "2.0.0", "2.0.0"
				o.Annotations = map[string]string{v1beta2.AnnotationRequestedVersion: "2.0.0",
					v1beta2.AnnotationRollout: name + "/half", v1beta2.AnnotationRolloutStarted: "2026-11-25T10:00:00Z"}
			}
			m.lists[manifests] = append(m.lists[manifests], o)
		}
	}
	return m
}

// coordinator returns the coordinator of the fleet.
func (m *memory) coordinator(t testing.TB) *Reconciler {
	t.Helper()
	get := func(ctx context.Context, name string, into client.Object) bool {
		return m.Get(ctx, client.ObjectKey{Name: name}, into) == nil
	}
	r, err := New(Options{Client: m, Fleet: fleetCache{reader: m}, Namespace: namespace,
		Catalog: func(ctx context.Context) (channel.Catalog, func() error) {
			return channel.Catalog{
				Release: func(module string) *v1beta2.ModuleReleaseMeta {
					found := &v1beta2.ModuleReleaseMeta{}
					if !get(ctx, module, found) {
						return nil
					}
					return found
				},
				Template: func(name string) *v1beta2.ModuleTemplate {
					found := &v1beta2.ModuleTemplate{}
					if !get(ctx, name, found) {
						return nil
					}
					return found
				},
			}, func() error { return nil }
		}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// reconcileNow reconciles module keda, even if the last reconcile was a moment ago.
func (r *Reconciler) reconcileNow(t testing.TB) {
	clear(r.lastPass)
	if _, err := r.Reconcile(t.Context(), r.requestFor("keda")); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkPass measures a reconcile of the coordinator in the middle of a rollout, without the API server.
func BenchmarkPass(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := largeFleet(n)
			r := m.coordinator(b)
			b.ReportAllocs()
			passes := 0
			began := processorTime(b)
			for b.Loop() {
				r.reconcileNow(b)
				passes++
			}
			b.ReportMetric(float64((processorTime(b)-began).Microseconds())/1000/float64(passes), "cpu-ms/op")
			b.ReportMetric(float64(m.reads)/float64(passes), "reads/op")
			runtime.KeepAlive(m)
		})
	}
}

// addEndedRollouts adds as many rollouts of other modules as the coordinator keeps, for three channels of each module.
func (m *memory) addEndedRollouts(modules int) {
	at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	for i := range modules {
		for _, of := range []string{"regular", "fast", "rapid"} {
			for revision := range int64(keptRollouts) {
				r := rollout.New(rollout.Move{Namespace: namespace, Module: fmt.Sprint("other-", i), Channel: of,
					From: "1.0.0", To: "2.0.0", Revision: revision,
					Policy: m.objects[reflect.TypeFor[*v1beta2.RolloutPolicy]()]["standard"].(*v1beta2.RolloutPolicy)})
				r.Status = v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutCompleted, EndedAt: at,
					Message: "all runtimes have version 2.0.0"}
				for _, s := range r.Spec.Stages {
					r.Status.Stages = append(r.Status.Stages, v1beta2.RolloutStageResult{Name: s.Name, ProvenAt: at,
						Evidence: "100 of 100 runtimes are proven"})
				}
				rollout.SetConditions(&r.Status.Conditions, 1, r.Status.Phase, r.Status.Message, at.Time)
				m.add(r)
			}
		}
	}
}

// BenchmarkPassOfLargeCatalog measures a reconcile of one module, by the number of the other modules.
func BenchmarkPassOfLargeCatalog(b *testing.B) {
	for _, n := range []int{25, 250} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := largeFleet(10)
			m.addEndedRollouts(n)
			r := m.coordinator(b)
			b.ReportAllocs()
			for b.Loop() {
				r.reconcileNow(b)
			}
			runtime.KeepAlive(m)
		})
	}
}

// TestPassCopiesNoOtherRollouts checks that a reconcile of one module does not copy the rollouts of all other modules.
func TestPassCopiesNoOtherRollouts(t *testing.T) {
	m := largeFleet(10)
	m.addEndedRollouts(20)
	r := m.coordinator(t)
	r.reconcileNow(t)
	if m.copies > 0 {
		t.Errorf("the lists of one reconcile have copied %d objects of the cache", m.copies)
	}
}

// processorTime returns the processor time that the benchmark's process has used. Unlike the elapsed time, it does not
// depend on other programs on the machine.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkSlim measures how much memory one Kyma or Manifest needs in the coordinator's cache of the whole fleet. With
// shards, a replica has the coordinator's cache in addition to the cache of its own runtimes.
func BenchmarkSlim(b *testing.B) {
	for of, list := range largeFleet(100).lists {
		b.Run(of.Elem().Name(), func(b *testing.B) {
			const n = 10_000
			slim := Slim()
			all := make([]any, n)
			for b.Loop() {
				clear(all)
				before := liveHeap()
				for i := range n {
					all[i] = decoded(b, list[i%len(list)], i)
				}
				full := liveHeap() - before
				for i := range n {
					var err error
					if all[i], err = slim(all[i]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(full)/n, "full-B/object")
				b.ReportMetric(float64(liveHeap()-before)/n, "slim-B/object")
			}
			runtime.KeepAlive(all)
		})
	}
}

// decoded returns an object of a fleet as a watch decodes it: the object shares no memory with another object.
func decoded(b *testing.B, o machinery.Object, i int) client.Object {
	b.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		b.Fatal(err)
	}
	into := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(data, into); err != nil {
		b.Fatal(err)
	}
	into.SetName(fmt.Sprint("runtime-", i))
	into.SetUID(types.UID(fmt.Sprintf("%036d", i)))
	into.SetResourceVersion(fmt.Sprintf("%09d", i))
	return into
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
