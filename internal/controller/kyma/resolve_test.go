package kyma

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestResolveModules(t *testing.T) {
	in := metav1.ObjectMeta{Namespace: "kcp-system"}
	named := func(name string) metav1.ObjectMeta {
		m := in
		m.Name = name
		return m
	}
	channels := &v1beta2.ModuleReleaseMeta{ObjectMeta: named("keda"), Spec: v1beta2.ModuleReleaseMetaSpec{
		OCMComponentName: "example.com/keda",
		Channels:         []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.0.0"}},
	}}
	mandatory := &v1beta2.ModuleReleaseMeta{ObjectMeta: named("keda"), Spec: v1beta2.ModuleReleaseMetaSpec{
		OCMComponentName: "example.com/keda", Mandatory: &v1beta2.MandatoryVersion{Version: "1.0.0"},
	}}
	template := &v1beta2.ModuleTemplate{ObjectMeta: named("keda-1.0.0")}
	manifest := func(name string, labels map[string]string) *v1beta2.Manifest {
		m := &v1beta2.Manifest{ObjectMeta: named(name), Spec: v1beta2.ManifestSpec{Version: "1.0.0"}}
		m.Labels = map[string]string{v1beta2.LabelKymaName: "a", v1beta2.LabelModuleName: "keda",
			v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}
		maps.Copy(m.Labels, labels)
		return m
	}
	asMandatory := map[string]string{v1beta2.LabelMandatoryModule: "true"}
	keda := []v1beta2.Module{{Name: "keda"}}
	type got struct {
		Manifest, Blocker    string
		Requested, Mandatory bool
	}
	cases := map[string]struct {
		reason   string
		release  *v1beta2.ModuleReleaseMeta
		modules  []v1beta2.Module
		manifest *v1beta2.Manifest
		want     []got
	}{
		"Requested": {
			reason:   "it is requested",
			release:  channels,
			modules:  keda,
			manifest: manifest("m", nil),
			want:     []got{{"m", "", true, false}},
		},
		"Leaving": {
			reason:   "it is not requested",
			release:  channels,
			manifest: manifest("m", nil),
			want:     []got{{"m", "", false, false}},
		},
		"OfUser": {
			reason:   "a Manifest that a user has created stays",
			release:  channels,
			manifest: manifest("m", map[string]string{v1beta2.LabelManagedBy: "me"}),
		},
		"Mandatory": {
			reason:   "the control plane requests it",
			release:  mandatory,
			manifest: manifest("m", asMandatory),
			want:     []got{{"m", "", true, true}},
		},
		"BecameMandatory": {
			reason:   "it keeps its Manifest",
			release:  mandatory,
			manifest: manifest("m", nil),
			want:     []got{{"m", "", true, true}},
		},
		"RequestedToo": {
			reason:   "the request of the admin is refused",
			release:  mandatory,
			modules:  keda,
			manifest: manifest("m", asMandatory),
			want:     []got{{"", "ModuleNotAllowed", true, false}, {"m", "", true, true}},
		},
		"NoLonger": {
			reason:   "it is removed",
			release:  channels,
			manifest: manifest("m", asMandatory),
			want:     []got{{"m", "", false, true}},
		},
		"NoLongerButRequested": {
			reason:   "it keeps its Manifest",
			release:  channels,
			modules:  keda,
			manifest: manifest("m", asMandatory),
			want:     []got{{"m", "", true, false}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := &v1beta2.Kyma{ObjectMeta: named("a"), Spec: v1beta2.KymaSpec{Channel: "regular", Modules: c.modules}}
			n := &run{Reconciler: fleet(t, 0, c.release.DeepCopy(), template.DeepCopy(), c.manifest), kyma: k,
				remote: k, now: time.Now()}
			if err := n.listManifestsAndDecideModules(t.Context()); err != nil {
				t.Fatal(err)
			}
			var all []got
			for _, m := range n.modules {
				g := got{Requested: m.IsRequested, Mandatory: m.IsMandatory}
				if m.Manifest != nil {
					g.Manifest = m.Manifest.Name
				}
				if b := m.Decision.Blocker; b != nil {
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
