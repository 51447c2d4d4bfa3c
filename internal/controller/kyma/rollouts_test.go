package kyma

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestOnReleaseStatus checks which Kymas a change in the status of a release enqueues. A runtime that has the proven
// version, or that waits until it is admitted, must not cause a request.
func TestOnReleaseStatus(t *testing.T) {
	const module = "guard"
	manifest := func(kyma, ordered, installed string) *v1beta2.Manifest {
		m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: kyma + "-guard",
			Labels: map[string]string{v1beta2.LabelKymaName: kyma, v1beta2.LabelModuleName: module}}}
		m.Spec.Version, m.Status.Version = ordered, installed
		return m
	}
	// runtime-0 has the former version, runtime-1 has the newer one, runtime-2 is between the two versions, and
	// runtime-3 does not have the module.
	manifests := []client.Object{manifest("runtime-0", "1.0.0", "1.0.0"), manifest("runtime-1", "2.0.0", "2.0.0"),
		manifest("runtime-2", "2.0.0", "1.0.0")}
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
				r := fleet(t, 4, manifests...)
				for i, version := range []string{"1.0.0", "2.0.0", "1.0.0"} {
					k := &v1beta2.Kyma{}
					key := r.requestFor([]string{"runtime-0", "runtime-1", "runtime-2"}[i]).NamespacedName
					if err := r.Client.Get(t.Context(), key, k); err != nil {
						t.Fatal(err)
					}
					if c.is.Channel != mandatory {
						k.Status.Modules = []v1beta2.ModuleStatus{{Name: module, Channel: c.is.Channel, Version: version}}
					}
					if err := r.Client.Update(t.Context(), k); err != nil {
						t.Fatal(err)
					}
				}
				q := queueOf(t, r)
				release := func(s v1beta2.ChannelStatus) *v1beta2.ModuleReleaseMeta {
					m := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: module}}
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
