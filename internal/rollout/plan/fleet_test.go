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
		"Restored": {"the runtime has a higher version", func(_ *v1beta2.Kyma, m *v1beta2.Manifest) {
			m.Annotations = map[string]string{v1beta2.AnnotationRuntimeVersion: "2.5.0"}
		}, v1beta2.ReasonRestoredOlder},
		"RestoredLower": {"the runtime has a lower version", func(_ *v1beta2.Kyma, m *v1beta2.Manifest) {
			m.Annotations = map[string]string{v1beta2.AnnotationRuntimeVersion: "1.5.0"}
		}, ""},
		"BaseRefused": {"the runtime refuses the base objects", func(k *v1beta2.Kyma, _ *v1beta2.Manifest) {
			setReasons(k, v1beta2.ReasonAdmissionRefused, v1beta2.ReasonAdmissionRefused)
		}, v1beta2.ReasonAdmissionRefused},
		"OtherRefused": {"the runtime refuses an object of another module", func(k *v1beta2.Kyma, _ *v1beta2.Manifest) {
			setReasons(k, v1beta2.ReasonObjectRefused, "")
		}, ""},
		"ModuleRefused": {"the new version may correct the object", func(k *v1beta2.Kyma, m *v1beta2.Manifest) {
			setReasons(k, v1beta2.ReasonObjectRefused, v1beta2.ReasonObjectRefused)
			m.Status.State = v1beta2.StateError
		}, ""},
		"WaitsForRollout": {"that ends with the admission", func(k *v1beta2.Kyma, _ *v1beta2.Manifest) {
			setReasons(k, v1beta2.ReasonApplying, v1beta2.ReasonWaitingForRollout)
		}, ""},
		"PullSecret": {"the Kyma controller stops before it writes Manifests", func(k *v1beta2.Kyma,
			_ *v1beta2.Manifest) {
			setReasons(k, v1beta2.ReasonPullSecretNotFound, v1beta2.ReasonPullSecretNotFound)
		}, v1beta2.ReasonPullSecretNotFound},
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

// setReasons sets the status of a Kyma that is not Ready: the reason of the condition Ready, and the reason in the
// entry of module mod.
func setReasons(k *v1beta2.Kyma, ready, module string) {
	k.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse,
		Reason: ready}}
	k.Status.Modules = []v1beta2.ModuleStatus{{Name: "mod", Channel: "regular", Reason: module}}
}
