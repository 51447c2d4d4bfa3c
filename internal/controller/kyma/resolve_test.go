package kyma

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestResolveSorts(t *testing.T) {
	in := metav1.ObjectMeta{Namespace: "kcp-system"}
	named := func(name string) metav1.ObjectMeta {
		m := in
		m.Name = name
		return m
	}
	channels := &v1beta2.ModuleReleaseMeta{ObjectMeta: named("keda"), Spec: v1beta2.ModuleReleaseMetaSpec{
		OCMComponentName: "example.com/keda", Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.0.0"}},
	}}
	mandatory := &v1beta2.ModuleReleaseMeta{ObjectMeta: named("keda"), Spec: v1beta2.ModuleReleaseMetaSpec{
		OCMComponentName: "example.com/keda", Mandatory: &v1beta2.MandatoryVersion{Version: "1.0.0"},
	}}
	template := &v1beta2.ModuleTemplate{ObjectMeta: named("keda-1.0.0")}
	manifest := func(name string, labels map[string]string) *v1beta2.Manifest {
		m := &v1beta2.Manifest{ObjectMeta: named(name), Spec: v1beta2.ManifestSpec{Version: "1.0.0"}}
		m.Labels = map[string]string{v1beta2.LabelKymaName: "a", v1beta2.LabelModuleName: "keda", v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}
		maps.Copy(m.Labels, labels)
		return m
	}
	asMandatory := map[string]string{v1beta2.LabelMandatoryModule: "true"}
	keda := []v1beta2.Module{{Name: "keda"}}
	type got struct {
		Manifest, Blocker string
		Wanted, Mandatory bool
	}
	cases := map[string]struct {
		reason   string
		release  *v1beta2.ModuleReleaseMeta
		wish     []v1beta2.Module
		manifest *v1beta2.Manifest
		want     []got
	}{
		"Wished":          {"as it is", channels, keda, manifest("m", nil), []got{{"m", "", true, false}}},
		"Leaving":         {"nobody wants it", channels, nil, manifest("m", nil), []got{{"m", "", false, false}}},
		"Somebodys":       {"a Manifest that a person wrote is that person's", channels, nil, manifest("m", map[string]string{v1beta2.LabelManagedBy: "me"}), nil},
		"Mandatory":       {"the control plane wants it", mandatory, nil, manifest("m", asMandatory), []got{{"m", "", true, true}}},
		"BecameMandatory": {"it keeps its Manifest", mandatory, nil, manifest("m", nil), []got{{"m", "", true, true}}},
		"WishedToo":       {"the admin's wish is refused, and has no part in it", mandatory, keda, manifest("m", asMandatory), []got{{"", "ModuleNotAllowed", true, false}, {"m", "", true, true}}},
		"NoLonger":        {"it goes", channels, nil, manifest("m", asMandatory), []got{{"m", "", false, true}}},
		"NoLongerButWish": {"it keeps its Manifest", channels, keda, manifest("m", asMandatory), []got{{"m", "", true, false}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := &v1beta2.Kyma{ObjectMeta: named("a"), Spec: v1beta2.KymaSpec{Channel: "regular", Modules: c.wish}}
			n := &run{Reconciler: fleet(t, 0, c.release.DeepCopy(), template.DeepCopy(), c.manifest), kyma: k, remote: k, now: time.Now()}
			if err := n.resolve(t.Context()); err != nil {
				t.Fatal(err)
			}
			var all []got
			for _, m := range n.modules {
				g := got{Wanted: m.wanted, Mandatory: m.mandatory}
				if m.manifest != nil {
					g.Manifest = m.manifest.Name
				}
				if b := m.decision.Blocker; b != nil {
					g.Blocker = b.Code
				}
				all = append(all, g)
			}
			if diff := cmp.Diff(c.want, all); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestWithDesiredTakesOursOff(t *testing.T) {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "kcp-system", UID: "u"}}
	m := &module{wish: v1beta2.Module{Name: "keda"}, decision: decided(), mandatory: true}
	mandatory := desiredManifest(k, m, artefact{})
	mandatory.Annotations[v1beta2.AnnotationPaused] = "because"
	mandatory.Annotations["example.com/mine"] = "yes"
	m.mandatory, m.decision.Channel = false, ""
	pinned := desiredManifest(k, m, artefact{})
	updated := withDesired(mandatory, pinned)
	if updated == nil {
		t.Fatal("nothing is changed")
	}
	for _, key := range []string{v1beta2.LabelMandatoryModule, v1beta2.LabelChannel} {
		if value, there := updated.Labels[key]; there {
			t.Errorf("label %s=%s is still there", key, value)
		}
	}
	if updated.Annotations[v1beta2.AnnotationPaused] != "" || updated.Annotations["example.com/mine"] != "yes" {
		t.Errorf("annotations are %v, want those of others alone", updated.Annotations)
	}
	if withDesired(updated, pinned) != nil {
		t.Error("a Manifest that says what it should is patched")
	}
}
