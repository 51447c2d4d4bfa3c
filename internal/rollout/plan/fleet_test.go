package plan

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// TestFleetBlocked checks that a runtime has a blocker if its Kyma controller would not begin the update, so that a
// rollout does not admit the runtime.
func TestFleetBlocked(t *testing.T) {
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "mod"},
		Spec: v1beta2.ModuleReleaseMetaSpec{OCMComponentName: "example.com/mod",
			Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "2.0.0"}}}}
	catalog := channel.Catalog{
		Release: func(string) *v1beta2.ModuleReleaseMeta { return release },
		Template: func(name string) *v1beta2.ModuleTemplate {
			return &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1beta2.ModuleTemplateSpec{ModuleName: "mod", Version: strings.TrimPrefix(name, "mod-")}}
		},
	}
	for name, c := range map[string]struct {
		reason string
		change func(*v1beta2.Kyma, *v1beta2.Manifest)
		want   string
	}{
		"CanBegin": {"nothing is in the way", func(*v1beta2.Kyma, *v1beta2.Manifest) {}, ""},
		"Skipped": {"no controller works on the Kyma", func(k *v1beta2.Kyma, _ *v1beta2.Manifest) {
			k.Labels = map[string]string{v1beta2.LabelSkipReconciliation: v1beta2.ValueTrue}
		}, v1beta2.ReasonSkipReconciliation},
		"Target": {"a module cannot move to another cluster", func(_ *v1beta2.Kyma, m *v1beta2.Manifest) {
			m.Spec.Target = v1beta2.TargetControlPlane
		}, v1beta2.ReasonTargetChanged},
		"NotInstalled": {"nothing has to move", func(_ *v1beta2.Kyma, m *v1beta2.Manifest) {
			m.Spec.Target, m.Status.Version = v1beta2.TargetControlPlane, ""
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "runtime"},
				Spec: v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{{Name: "mod"}}}}
			m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
				v1beta2.LabelKymaName: "runtime", v1beta2.LabelModuleName: "mod", v1beta2.LabelChannel: "regular"}},
				Spec:   v1beta2.ManifestSpec{Version: "1.0.0"},
				Status: v1beta2.ManifestStatus{State: v1beta2.StateReady, Version: "1.0.0"}}
			c.change(k, m)
			f := Fleet{Release: release, Channel: "regular", Catalog: catalog, Now: now}
			r, takesPart := f.Runtime(k, m)
			if !takesPart {
				t.Fatal("the runtime takes no part")
			}
			got := ""
			if b := r.Blocked(); b != nil {
				got = b.Code
			}
			if got != c.want {
				t.Errorf("%s: blocker %q, want %q", c.reason, got, c.want)
			}
		})
	}
}
