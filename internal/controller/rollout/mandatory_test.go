package rollout

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
)

// mandatoryObjects returns a release with a version of the mandatory module keda, three Kymas whose Manifests have this
// version, and the ModuleTemplate of version 1.0.0.
func mandatoryObjects(version string) []client.Object {
	all := objects(3)
	all[0].(*v1beta2.ModuleReleaseMeta).Spec.Channels = nil
	all[0].(*v1beta2.ModuleReleaseMeta).Spec.Mandatory = &v1beta2.MandatoryVersion{Version: version}
	for _, o := range all[1:] {
		if m, ok := o.(*v1beta2.Manifest); ok {
			delete(m.Labels, v1beta2.LabelChannel)
			m.Labels[v1beta2.LabelMandatoryModule] = v1beta2.ValueTrue
			m.Spec.Version, m.Status = version, manifestStatus(version, v1beta2.StateReady)
		}
	}
	return append(all, &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keda-1.0.0"},
		Spec: v1beta2.ModuleTemplateSpec{ModuleName: "keda", Version: "1.0.0"}})
}

// mandatoryTurns returns how many of the given runtimes get each version of the mandatory module keda. Every runtime
// has version 2.0.0, and its request allows the downgrade, as with the annotation of the release.
func (f *fleet) mandatoryTurns(kymas ...string) map[string]int {
	f.Helper()
	turns := admission.NewTurnFunc(admission.Lookups{
		Rollout:   func(name string) *v1beta2.ModuleRollout { return f.rollout(name) },
		HasPolicy: func(string, string) bool { return true }})
	got := map[string]int{}
	for _, kyma := range kymas {
		is := turns(f.release(f.Context()), channel.Request{Kyma: kyma, Module: "keda", Mandatory: true,
			ManifestVersion: "2.0.0", Installed: "2.0.0", AllowDowngrade: true})
		got[is.Version]++
	}
	return got
}

// TestModuleBecomesMandatory checks that a module that becomes mandatory, or is no longer mandatory, in the same edit
// as it gets another version is updated in a rollout in stages, although the labels of its Manifests have not changed
// yet.
func TestModuleBecomesMandatory(t *testing.T) {
	t.Run("Becomes", func(t *testing.T) {
		all := objects(3)
		all[0].(*v1beta2.ModuleReleaseMeta).Spec.Channels = nil
		all[0].(*v1beta2.ModuleReleaseMeta).Spec.Mandatory = &v1beta2.MandatoryVersion{Version: "2.0.0"}
		f := newFleet(t, append(all, onePolicy())...)
		f.pass()
		f.checkOneOf(f.release(t.Context()).ChannelStatus(v1beta2.MandatoryChannel), 3)
	})
	t.Run("NoLonger", func(t *testing.T) {
		all := mandatoryObjects("1.0.0")
		all[0].(*v1beta2.ModuleReleaseMeta).Spec.Mandatory = nil
		all[0].(*v1beta2.ModuleReleaseMeta).Spec.Channels = []v1beta2.ChannelVersion{{Channel: "regular",
			Version: "2.0.0"}}
		all[1].(*v1beta2.Kyma).Spec.Modules = nil // its Manifest is deleted
		f := newFleet(t, append(all, onePolicy())...)
		f.pass()
		s := f.status()
		f.checkOneOf(&s, 2)
	})
}

// checkOneOf checks that a channel moves from 1.0.0 to 2.0.0 in stages, and that one of n runtimes may begin.
func (f *fleet) checkOneOf(s *v1beta2.ChannelStatus, n int32) {
	f.Helper()
	if s == nil || s.Version != "1.0.0" || s.Target != "2.0.0" || s.Policy != "standard" {
		f.Fatalf("the channel does not move in stages: %+v", s)
	}
	if c := f.rollout(s.Rollout).Status.Runtimes; c.InScope != n || c.Updating != 1 {
		f.Errorf("one of %d may begin: %+v", n, c)
	}
}

// TestMandatoryBackAllowed checks that a downgrade of a mandatory module that the annotation of the release allows in
// all runtimes is a rollout back with the limits of the policy, whether the annotation or the version is set first. If
// a person aborts this rollout, the other runtimes keep their version.
func TestMandatoryBackAllowed(t *testing.T) {
	kymas := []string{"runtime-0", "runtime-1", "runtime-2"}
	for _, isAllowedFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("isAllowedFirst=%t", isAllowedFirst), func(t *testing.T) {
			f := newFleet(t, append(mandatoryObjects("2.0.0"), onePolicy())...)
			change := func(change func(*v1beta2.ModuleReleaseMeta)) {
				t.Helper()
				r := f.release(t.Context())
				change(r)
				if err := f.control.Update(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			allow := func() {
				change(func(r *v1beta2.ModuleReleaseMeta) {
					r.Annotations = map[string]string{v1beta2.AnnotationAllowDowngrade: v1beta2.ValueTrue}
				})
			}
			move := func() {
				change(func(r *v1beta2.ModuleReleaseMeta) { r.Spec.Mandatory.Version = "1.0.0" })
			}
			status := func() *v1beta2.ChannelStatus {
				return f.release(t.Context()).ChannelStatus(v1beta2.MandatoryChannel)
			}
			f.pass()
			if isAllowedFirst {
				allow()
				move()
			} else {
				move()
				f.pass()
				ended := f.rollout("keda-" + v1beta2.MandatoryChannel + "-r2")
				if !strings.Contains(ended.Status.Message, "all 3 runtimes keep a higher version") {
					t.Errorf("the rollout without a runtime in scope has the message %q", ended.Status.Message)
				}
				allow()
			}
			if diff := cmp.Diff(map[string]int{"2.0.0": 3}, f.mandatoryTurns(kymas...)); diff != "" {
				t.Errorf("before the rollout is made (-want +got):\n%s", diff)
			}
			f.pass()
			s := status()
			if s.TakingBack != "2.0.0" || s.Version != "1.0.0" || s.Rollout == "" {
				t.Fatalf("no rollout back: %+v", s)
			}
			moves := 3 // the first version, the move that was not allowed yet, and the rollout back
			if isAllowedFirst {
				moves = 2
			}
			if len(s.History) != moves {
				t.Errorf("the history has %d moves, want %d: %+v", len(s.History), moves, s.History)
			}
			back := f.rollout(s.Rollout)
			if c := &back.Status.Runtimes; !back.Spec.IsRollback() || c.InScope != 3 || c.Updating != 1 {
				t.Errorf("one of three may begin: %+v %+v", back.Spec, back.Status)
			}
			if diff := cmp.Diff(map[string]int{"1.0.0": 1, "2.0.0": 2}, f.mandatoryTurns(kymas...)); diff != "" {
				t.Errorf("during the rollout (-want +got):\n%s", diff)
			}
			back.Spec.State = v1beta2.RolloutAborted
			if err := f.control.Update(t.Context(), back); err != nil {
				t.Fatal(err)
			}
			f.pass()
			f.pass()
			if s := status(); s.Rollout != "" || s.TakingBack != "" {
				t.Errorf("the rollout is not over: %+v", s)
			}
			if diff := cmp.Diff(map[string]int{"2.0.0": 3}, f.mandatoryTurns(kymas...)); diff != "" {
				t.Errorf("after the abort (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMandatoryBack checks that a mandatory module is moved back to a lower version by the same rules as a channel. The
// rollout to the lower version admits only runtimes with the newer version, and only if the newer version declares that
// a downgrade is safe.
func TestMandatoryBack(t *testing.T) {
	for name, c := range map[string]struct {
		reason     string
		back       string
		isDeclared bool
	}{
		"Declared":    {"it is safe", "1.0.0", true},
		"NotDeclared": {"nobody knows whether it is safe", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, append(mandatoryObjects("1.0.0"), onePolicy())...)
			catalog := f.Catalog
			f.Catalog = func(ctx context.Context) (channel.Catalog, func() error) {
				is, failed := catalog(ctx)
				template := is.Template
				is.Template = func(name string) *v1beta2.ModuleTemplate {
					t := template(name)
					t.Spec.Upgrade = &v1beta2.ModuleUpgrade{Back: c.back}
					return t
				}
				return is, failed
			}
			move := func(version string) {
				t.Helper()
				r := f.release(t.Context())
				r.Spec.Mandatory.Version = version
				if err := f.control.Update(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				f.pass()
			}
			move("1.0.0")
			move("2.0.0")
			f.order("runtime-1", "2.0.0", v1beta2.StateError)
			f.pass()
			move("1.0.0")
			s := f.release(t.Context()).ChannelStatus(v1beta2.MandatoryChannel)
			if !c.isDeclared {
				if s.Rollout != "" || s.TakingBack != "" || s.Version != "1.0.0" {
					t.Errorf("%s: %+v", c.reason, s)
				}
				return
			}
			back := &v1beta2.ModuleRollout{}
			key := client.ObjectKey{Namespace: namespace, Name: s.Rollout}
			if err := f.control.Get(t.Context(), key, back); err != nil {
				t.Fatalf("%s: %+v: %v", c.reason, s, err)
			}
			if !back.Spec.IsRollback() || back.Status.Runtimes.InScope != 1 || back.Status.Runtimes.Updating != 1 {
				t.Errorf("%s: %+v %+v", c.reason, back.Spec, back.Status)
			}
			turns := admission.NewTurnFunc(admission.Lookups{Rollout: func(
				string) *v1beta2.ModuleRollout {
				return back
			},
				HasPolicy: func(string, string) bool { return true }})
			for kyma, has := range map[string]string{"runtime-0": "1.0.0", "runtime-1": "2.0.0"} {
				is := turns(f.release(t.Context()), channel.Request{Kyma: kyma, Module: "keda", Mandatory: true,
					ManifestVersion: has, Installed: has})
				if is.Version != "1.0.0" || is.IsBack != (has == "2.0.0") {
					t.Errorf("%s has %s and gets %+v", kyma, has, is)
				}
			}
		})
	}
}
