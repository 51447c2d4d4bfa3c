package rollout

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
)

func (m *memory) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	m.add(o.DeepCopyObject().(client.Object))
	m.writes["create"]++
	return nil
}

// goneBad returns a fleet of n runtimes whose rollout was halted. The rollout has set version 2.0.0 in the Manifest of
// every tenth runtime. Of the runtimes with version 2.0.0, every twentieth has failed. The version declares that a
// downgrade is possible, and a person has set the channel back to 1.0.0.
func goneBad(n int) *memory {
	m := &memory{objects: map[reflect.Type]map[string]client.Object{}, lists: largeFleet(n).lists,
		writes: map[string]int{}}
	const name = "keda-regular-r2"
	at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	release := objects(0)[0].(*v1beta2.ModuleReleaseMeta)
	release.Status.Channels = []v1beta2.ChannelStatus{{Channel: "regular", Version: "1.0.0", Target: "2.0.0",
		Rollout: name, Revision: 2, Policy: "standard"}}
	m.add(release)
	policy := onePolicy()
	policy.Spec.MaxUpdating = 400
	policy.Spec.Stages = []v1beta2.RolloutStage{{Name: "canary", Percent: 10},
		{Name: "rest", MaxConcurrency: new(intstr.FromString("5%"))}}
	m.add(policy)
	halted := rollout.New(rollout.Move{Namespace: namespace, Module: "keda", Channel: "regular", From: "1.0.0",
		To: "2.0.0", Revision: 2, Policy: policy, Fleet: n})
	halted.CreationTimestamp = at
	halted.Status.Phase, halted.Status.HaltedAt = v1beta2.RolloutHalted, at
	m.add(halted)
	for _, version := range []string{"1.0.0", "2.0.0"} {
		m.add(&v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keda-" + version},
			Spec: v1beta2.ModuleTemplateSpec{ModuleName: "keda", Version: version,
				Upgrade: &v1beta2.ModuleUpgrade{Back: "1.0.0"}}})
	}
	for i, o := range m.lists[reflect.TypeFor[*v1beta2.Manifest]()] {
		o := o.(*v1beta2.Manifest)
		o.Spec.Version, o.Annotations, o.Status = "1.0.0", nil, manifestStatus("1.0.0", v1beta2.StateReady)
		if i%10 == 0 {
			bad(o, i%200 == 0)
			o.Annotations = map[string]string{v1beta2.AnnotationRequestedVersion: "2.0.0",
				v1beta2.AnnotationRollout:        name + "/canary",
				v1beta2.AnnotationRolloutStarted: at.UTC().Format(time.RFC3339)}
		}
	}
	return m
}

func bad(o *v1beta2.Manifest, fails bool) {
	o.Spec.Version, o.Status = "2.0.0", manifestStatus("2.0.0", v1beta2.StateReady)
	if fails {
		o.Status = manifestStatus("1.0.0", v1beta2.StateError) // 2.0.0 was never installed completely
	}
}

// BenchmarkTakeBack measures how runtimes with a bad version are taken back, without API servers. Between two
// reconciles of the coordinator, simulated controllers complete the updates of the admitted runtimes. The benchmark
// fails if a runtime without the bad version gets another version, or if a runtime that works is admitted before the
// runtimes that fail.
func BenchmarkTakeBack(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("%d-of-%d", n/10, n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				m := goneBad(n)
				b.StartTimer()
				takeBack(b, m, n/10)
			}
		})
	}
}

// takeBack reconciles until no runtime has the bad version, and reports the number of reconciles and of writes.
func takeBack(b *testing.B, m *memory, holders int) {
	b.Helper()
	read := func(name string, into client.Object) bool {
		return m.Get(b.Context(), client.ObjectKey{Name: name}, into) == nil
	}
	release := func() *v1beta2.ModuleReleaseMeta {
		is := &v1beta2.ModuleReleaseMeta{}
		read("keda", is)
		return is
	}
	catalog := channel.Catalog{
		Release: func(string) *v1beta2.ModuleReleaseMeta { return release() },
		Template: func(name string) *v1beta2.ModuleTemplate {
			is := &v1beta2.ModuleTemplate{}
			read(name, is)
			return is
		}}
	r, err := New(Options{Client: m, Fleet: fleetCache{reader: m}, Namespace: namespace, SettleDelay: time.Nanosecond,
		Catalog: func(context.Context) (channel.Catalog, func() error) { return catalog, func() error { return nil } }})
	if err != nil {
		b.Fatal(err)
	}
	const rolloutBack = "keda-regular-r3"
	manifests := m.lists[reflect.TypeFor[*v1beta2.Manifest]()]
	passes, ordered, failing := 0, 0, holders/20
	began := processorTime(b)
	for ; ; passes++ {
		clear(r.lastPass)
		if _, err := r.Reconcile(b.Context(), r.requestFor("keda")); err != nil {
			b.Fatal(err)
		}
		back := &v1beta2.ModuleRollout{}
		if read(rolloutBack, back); back.Status.Phase == v1beta2.RolloutCompleted || passes > 100 {
			break
		}
		b.StopTimer()
		turns := admission.NewTurnFunc(admission.Lookups{
			Rollout:   func(string) *v1beta2.ModuleRollout { return back },
			HasPolicy: func(string, string) bool { return true }})
		is, fixed := release(), 0
		for i, o := range manifests {
			o := o.(*v1beta2.Manifest)
			version := o.Spec.Version
			turn := turns(is, channel.Request{Kyma: o.KymaName(), Module: "keda", Channel: "regular",
				ManifestVersion: version, Installed: o.Status.Version})
			switch {
			case turn.Version == version:
			case version != "2.0.0" || turn.Version != "1.0.0" || !turn.IsBack:
				b.Fatalf("%s has %s and gets %+v", o.KymaName(), version, turn)
			case o.Status.State != v1beta2.StateError && failing > 0:
				b.Fatalf("%s works, and goes back before %d that fail", o.KymaName(), failing)
			default:
				ordered++
				o.Spec.Version, o.Status = "1.0.0", manifestStatus("1.0.0", v1beta2.StateReady)
				o.Annotations = map[string]string{v1beta2.AnnotationRequestedVersion: "1.0.0",
					v1beta2.AnnotationRollout:        turn.Rollout,
					v1beta2.AnnotationRolloutStarted: time.Now().UTC().Format(time.RFC3339)}
				if i%200 == 0 {
					fixed++
				}
			}
		}
		failing -= fixed
		b.StartTimer()
	}
	spent := processorTime(b) - began
	if ordered != holders {
		b.Fatalf("%d runtimes went back in %d passes, want %d", ordered, passes, holders)
	}
	b.ReportMetric(float64(passes), "passes")
	b.ReportMetric(float64(m.writes["status"]+m.writes["create"]), "coordinator-writes")
	b.ReportMetric(float64(ordered), "manifest-writes")
	b.ReportMetric(float64(spent.Microseconds())/1000/float64(passes), "cpu-ms/pass")
}
