package rollout

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
)

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
			all := objects(3)
			all[0].(*v1beta2.ModuleReleaseMeta).Spec.Channels = nil
			all[0].(*v1beta2.ModuleReleaseMeta).Spec.Mandatory = &v1beta2.MandatoryVersion{Version: "1.0.0"}
			for _, o := range all[1:] {
				if m, ok := o.(*v1beta2.Manifest); ok {
					delete(m.Labels, v1beta2.LabelChannel)
					m.Labels[v1beta2.LabelMandatoryModule] = v1beta2.ValueTrue
				}
			}
			older := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keda-1.0.0"},
				Spec: v1beta2.ModuleTemplateSpec{ModuleName: "keda", Version: "1.0.0"}}
			f := newFleet(t, append(all, onePolicy(), older)...)
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
