package kyma

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// runtimesWithGuard are the Manifests of module guard: runtime-0 has the former version, runtime-1 has the newer one,
// runtime-2 is between the two versions, and runtime-3 does not have the module.
func runtimesWithGuard() []client.Object {
	var all []client.Object
	for kyma, versions := range map[string][2]string{"runtime-0": {"1.0.0", "1.0.0"}, "runtime-1": {"2.0.0", "2.0.0"},
		"runtime-2": {"2.0.0", "1.0.0"}} {
		m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: kyma + "-guard",
			Labels: map[string]string{v1beta2.LabelKymaName: kyma, v1beta2.LabelModuleName: "guard"}}}
		m.Spec.Version, m.Status.Version = versions[0], versions[1]
		all = append(all, m)
	}
	return all
}

// TestMandatoryTemplate checks which Kymas a changed or new ModuleTemplate of a mandatory module enqueues.
func TestMandatoryTemplate(t *testing.T) {
	settled := v1beta2.ChannelStatus{Channel: v1beta2.MandatoryChannel, Version: "1.0.0", Target: "1.0.0"}
	staged := v1beta2.ChannelStatus{Channel: v1beta2.MandatoryChannel, Version: "1.0.0", Target: "2.0.0",
		Policy: "standard", Rollout: "guard-mandatory-r2"}
	atOnce := staged
	atOnce.Policy = ""
	cases := map[string]struct {
		reason  string
		status  v1beta2.ChannelStatus
		spec    string // the version in spec of the release
		changed string // the version of the ModuleTemplate
		want    []string
	}{
		"Published": {"no runtime may get it", settled, "1.0.0", "3.0.0",
			[]string{"runtime-1", "runtime-2", "runtime-3"}},
		"Former": {"the runtimes that have it", settled, "1.0.0", "1.0.0",
			[]string{"runtime-0", "runtime-1", "runtime-2", "runtime-3"}},
		"Withdrawn": {"runtime-0 waits until it is admitted", staged, "2.0.0", "2.0.0",
			[]string{"runtime-1", "runtime-2", "runtime-3"}},
		"AtOnce": {"each runtime may get it now", atOnce, "2.0.0", "2.0.0",
			[]string{"runtime-0", "runtime-1", "runtime-2", "runtime-3"}},
		"NotRecorded": {"the proven version is not known", v1beta2.ChannelStatus{Channel: "none"}, "2.0.0", "3.0.0",
			[]string{"runtime-0", "runtime-1", "runtime-2", "runtime-3"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := metav1.ObjectMeta{Namespace: "kcp-system", Name: "guard"}
				release := &v1beta2.ModuleReleaseMeta{ObjectMeta: in}
				release.Spec.Mandatory = &v1beta2.MandatoryVersion{Version: c.spec}
				release.Status.Channels = []v1beta2.ChannelStatus{c.status}
				r := fleet(t, 4, append(runtimesWithGuard(), release)...)
				q := queueOf(t, r)
				in.Name += "-" + c.changed
				template := &v1beta2.ModuleTemplate{ObjectMeta: in,
					Spec: v1beta2.ModuleTemplateSpec{ModuleName: "guard", Version: c.changed}}
				r.enqueueKymasUsing(t.Context(), template, template)
				time.Sleep(time.Second)
				synctest.Wait()
				got := q.all()
				slices.Sort(got)
				if !slices.Equal(got, c.want) {
					t.Errorf("%s: %v are enqueued, want %v", c.reason, got, c.want)
				}
			})
		})
	}
}

// TestOnReleaseStatus checks which Kymas a change in the status of a release enqueues. A runtime that has the proven
// version, or that waits until it is admitted, must not cause a request.
func TestOnReleaseStatus(t *testing.T) {
	const module = "guard"
	mandatory := v1beta2.MandatoryChannel
	cases := map[string]struct {
		reason  string
		was, is v1beta2.ChannelStatus
		want    []string
	}{
		"FirstRecord": {
			reason: "a runtime without the module may wait for the record",
			was:    v1beta2.ChannelStatus{Channel: "none"},
			is:     v1beta2.ChannelStatus{Channel: mandatory, Version: "2.0.0", Target: "2.0.0", Policy: "standard"},
			want:   []string{"runtime-0", "runtime-2", "runtime-3"},
		},
		"Begins": {
			reason: "no runtime is admitted yet, and no runtime gets the proven version again",
			was:    v1beta2.ChannelStatus{Channel: mandatory, Version: "1.0.0", Target: "1.0.0"},
			is: v1beta2.ChannelStatus{Channel: mandatory, Version: "1.0.0", Target: "2.0.0", Policy: "standard",
				Rollout: "guard-mandatory-r2"},
			want: []string{"runtime-1", "runtime-2", "runtime-3"},
		},
		"AtOnce": {
			reason: "the change of spec has enqueued all Kymas",
			was:    v1beta2.ChannelStatus{Channel: mandatory, Version: "1.0.0", Target: "1.0.0"},
			is: v1beta2.ChannelStatus{Channel: mandatory, Version: "1.0.0", Target: "2.0.0",
				Rollout: "guard-mandatory-r2"},
		},
		"Completed": {
			reason: "runtimes that were not updated get the proven version now",
			was: v1beta2.ChannelStatus{Channel: mandatory, Version: "1.0.0", Target: "2.0.0", Policy: "standard",
				Rollout: "guard-mandatory-r2"},
			is:   v1beta2.ChannelStatus{Channel: mandatory, Version: "2.0.0", Target: "2.0.0"},
			want: []string{"runtime-0", "runtime-2", "runtime-3"},
		},
		"TakenBackInStages": {
			reason: "the runtimes with the newer version wait until they are admitted",
			was: v1beta2.ChannelStatus{Channel: mandatory, Version: "1.0.0", Target: "2.0.0", Policy: "standard",
				Rollout: "guard-mandatory-r2"},
			is: v1beta2.ChannelStatus{Channel: mandatory, Version: "1.0.0", Target: "1.0.0", Policy: "standard",
				TakingBack: "2.0.0", Rollout: "guard-mandatory-r3"},
			want: []string{"runtime-3"},
		},
		"SetBack": {
			reason: "the runtimes with the newer version keep it, and state why",
			was: v1beta2.ChannelStatus{Channel: mandatory, Version: "1.0.0", Target: "2.0.0", Policy: "standard",
				Rollout: "guard-mandatory-r2"},
			is:   v1beta2.ChannelStatus{Channel: mandatory, Version: "1.0.0", Target: "1.0.0"},
			want: []string{"runtime-1", "runtime-2", "runtime-3"},
		},
		"Channel": {
			reason: "the runtimes with the newer version keep it, also one that does not have it completely",
			was: v1beta2.ChannelStatus{Channel: "regular", Version: "1.0.0", Target: "2.0.0", Policy: "standard",
				Rollout: "guard-regular-r2"},
			is:   v1beta2.ChannelStatus{Channel: "regular", Version: "1.0.0", Target: "1.0.0"},
			want: []string{"runtime-1", "runtime-2"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, 4, runtimesWithGuard()...)
				for i, version := range []string{"1.0.0", "2.0.0", "1.0.0"} {
					k := &v1beta2.Kyma{}
					key := r.requestFor([]string{"runtime-0", "runtime-1", "runtime-2"}[i]).NamespacedName
					if err := r.Client.Get(t.Context(), key, k); err != nil {
						t.Fatal(err)
					}
					if c.is.Channel != mandatory {
						k.Status.Modules = []v1beta2.ModuleStatus{{Name: module, Channel: c.is.Channel,
							Version: version}}
					}
					if err := r.Client.Update(t.Context(), k); err != nil {
						t.Fatal(err)
					}
				}
				q := queueOf(t, r)
				release := func(s v1beta2.ChannelStatus) *v1beta2.ModuleReleaseMeta {
					m := &v1beta2.ModuleReleaseMeta{}
					m.Namespace, m.Name = "kcp-system", module
					m.Status.Channels = []v1beta2.ChannelStatus{s}
					return m
				}
				r.onReleaseStatus().Update(t.Context(), event.UpdateEvent{ObjectOld: release(c.was),
					ObjectNew: release(c.is)}, nil)
				time.Sleep(time.Second)
				synctest.Wait()
				got := q.all()
				slices.Sort(got)
				if !slices.Equal(got, c.want) {
					t.Errorf("%s: %v are enqueued, want %v", c.reason, got, c.want)
				}
			})
		})
	}
}

// TestSetBackBeforeRecorded checks which Kymas a new version of a channel with a RolloutPolicy enqueues. If the status
// of the release already has the version, the coordinator has not recorded the version in between, and makes no
// rollout. Without the request of the change, a Kyma that has followed the version in between would keep it.
func TestSetBackBeforeRecorded(t *testing.T) {
	cases := map[string]struct {
		reason string
		status []v1beta2.ChannelStatus
		want   []string
	}{
		"Moved": {reason: "the coordinator makes a rollout",
			status: []v1beta2.ChannelStatus{{Channel: "regular", Version: "1.0.0", Target: "1.0.0"}}},
		"NotRecorded": {reason: "the coordinator records the version first"},
		"SetBack": {reason: "no rollout is made",
			status: []v1beta2.ChannelStatus{{Channel: "regular", Version: "2.0.0", Target: "2.0.0"}},
			want:   []string{"runtime-0"}},
		"SetBackInRollout": {reason: "the rollout under way continues",
			status: []v1beta2.ChannelStatus{{Channel: "regular", Version: "1.0.0", Target: "2.0.0",
				Policy: "standard", Rollout: "keda-regular-r2"}},
			want: []string{"runtime-0"}},
		"OtherChannel": {reason: "another channel has the version",
			status: []v1beta2.ChannelStatus{{Channel: "fast", Version: "2.0.0", Target: "2.0.0"},
				{Channel: "regular", Version: "1.0.0", Target: "1.0.0"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := metav1.ObjectMeta{Namespace: "kcp-system", Name: "keda"}
				was := &v1beta2.ModuleReleaseMeta{ObjectMeta: in}
				was.Spec.Channels = []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.5.0"}}
				was.Status.Channels = c.status
				is := was.DeepCopy()
				is.Spec.Channels[0].Version = "2.0.0"
				policy := &v1beta2.RolloutPolicy{
					ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: "standard"},
					Spec:       v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{in.Name}}}}
				r := fleet(t, 4, is, policy)
				q := queueOf(t, r)
				r.onCatalog().Update(t.Context(), event.UpdateEvent{ObjectOld: was, ObjectNew: is}, nil)
				time.Sleep(time.Second)
				synctest.Wait()
				if got := q.all(); !slices.Equal(got, c.want) {
					t.Errorf("%s: %v are enqueued, want %v", c.reason, got, c.want)
				}
			})
		})
	}
}

// TestManifestsOfAModuleAreFoundByIndex checks that a change of a module reads only the Manifests of this module from
// the cache. A list by a label would compare all Manifests of the fleet, in the handler of an event.
func TestManifestsOfAModuleAreFoundByIndex(t *testing.T) {
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "guard",
		Finalizers: []string{v1beta2.FinalizerMandatoryModule}, DeletionTimestamp: new(metav1.Now())}}
	release.Spec.Mandatory = &v1beta2.MandatoryVersion{Version: "1.0.0"}
	objects := append(runtimesWithGuard(), release)
	objects[0].GetLabels()[v1beta2.LabelMandatoryModule] = v1beta2.ValueTrue
	r := fleet(t, 4, objects...)
	byIndex, byScan := 0, 0
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context,
		c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*v1beta2.ManifestList); ok {
			if (&client.ListOptions{}).ApplyOptions(opts).FieldSelector != nil {
				byIndex++
			} else {
				byScan++
			}
		}
		return c.List(ctx, list, opts...)
	}})
	_, manifests, err := r.kymasAndManifestsOf(t.Context(), "guard", v1beta2.MandatoryChannel)
	if err != nil || len(manifests) != 3 {
		t.Errorf("got %d Manifests, %v, want those of the three runtimes with the module", len(manifests), err)
	}
	if waits, err := r.removeMandatoryFinalizers(t.Context()); err != nil || !waits {
		t.Errorf("the finalizer waits: %t, %v, want true, because a runtime has the module", waits, err)
	}
	if byIndex != 2 || byScan != 0 {
		t.Errorf("%d lists by index and %d by scan, want 2 and 0", byIndex, byScan)
	}
}
