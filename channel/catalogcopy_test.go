package channel

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func shopStock() Contents {
	return Contents{
		Releases: slices.Collect(maps.Values(shopReleases())), Templates: slices.Collect(maps.Values(shopTemplates())),
		Restricted: shop().Restricted,
	}
}

func mustCopy(t testing.TB, g Access, s Contents) CatalogCopy {
	t.Helper()
	v, err := CatalogCopyFor(g, s, "kyma-system")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// channelsIn returns the channels in a catalog copy, each as module/channel.
func channelsIn(t testing.TB, v CatalogCopy) []string {
	t.Helper()
	var all []string
	for _, o := range v.Objects {
		if o.Kind != v1beta2.KindModuleReleaseMeta {
			continue
		}
		var r v1beta2.ModuleReleaseMeta
		if err := json.Unmarshal(o.JSON, &r); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Spec.Channels {
			all = append(all, r.Name+"/"+c.Channel)
		}
	}
	return all
}

func templatesIn(v CatalogCopy) []string {
	var all []string
	for _, o := range v.Objects {
		if o.Kind == v1beta2.KindModuleTemplate {
			all = append(all, o.Name)
		}
	}
	return all
}

func TestAccessOf(t *testing.T) {
	cases := map[string]struct {
		reason string
		labels map[string]string
		want   Access
	}{
		"None": {"no rights", nil, Access{}},
		"Beta": {"by label", map[string]string{v1beta2.LabelBeta: "True"}, Access{Beta: true}},
		"Internal": {"by label", map[string]string{v1beta2.LabelInternal: "true", v1beta2.LabelBeta: "false"},
			Access{Internal: true}},
		"Selected": {"by the selector of a restricted module; an invalid selector selects no Kyma",
			map[string]string{"tier": "gold", "else": "x"}, Access{Selected: "vip"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := AccessOf(shop(), kymaWith(c.labels, nil)); got != c.want {
				t.Errorf("%s: got %+v, want %+v", c.reason, got, c.want)
			}
		})
	}
}

func TestCatalogCopyFor(t *testing.T) {
	legacyNames := []string{"kyma-labelled", "modern-regular", "mute-regular", "numb-regular", "pair-fast",
		"pair-regular", "spoken-regular", "twin-a", "twin-b"}
	cases := map[string]struct {
		reason    string
		group     Access
		channels  []string
		templates []string
	}{
		"None": {
			"what all runtimes may have: no channel without template, no mandatory module, no restricted one", Access{},
			[]string{"keda/regular", "keda/fast", "keda/slow"}, []string{"keda-1.0.0", "keda-1.1.0-rc", "keda-5.0.0"},
		},
		"Beta": {
			"and beta", Access{Beta: true},
			[]string{"keda/regular", "keda/fast", "keda/beta", "keda/slow"},
			[]string{"keda-1.0.0", "keda-1.1.0-rc", "keda-2.0.0", "keda-5.0.0"},
		},
		"All": {
			"and internal, and restricted; mandatory for nobody", Access{Beta: true, Internal: true, Selected: "vip"},
			[]string{"keda/regular", "keda/fast", "keda/beta", "keda/internal", "keda/slow", "vip/regular"},
			[]string{"keda-1.0.0", "keda-1.1.0-rc", "keda-2.0.0", "keda-3.0.0", "keda-5.0.0",
				"pair-secret", "vip-1.0.0"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := mustCopy(t, c.group, shopStock())
			if diff := cmp.Diff(c.channels, channelsIn(t, v)); diff != "" {
				t.Errorf("%s: channels (-want +got):\n%s", c.reason, diff)
			}
			want := slices.Sorted(slices.Values(append(c.templates, legacyNames...)))
			if diff := cmp.Diff(want, templatesIn(v)); diff != "" {
				t.Errorf("%s: templates (-want +got):\n%s", c.reason, diff)
			}
			if len(v.Digest) != 64 {
				t.Errorf("digest is %q", v.Digest)
			}
		})
	}
}

// TestCopiedObjects tests that a copy contains the data that a user needs to choose a module, and no data about the
// control plane or other runtimes.
func TestCopiedObjects(t *testing.T) {
	r := shopReleases()["vip"]
	r.Namespace, r.UID, r.ResourceVersion, r.Generation, r.Finalizers = "kcp-system", "u", "7", 3, []string{"x"}
	r.Labels = map[string]string{"a": "b", v1beta2.LabelManagedBy: "me", "app.kubernetes.io/instance": "catalog",
		"kustomize.toolkit.fluxcd.io/name": "catalog"}
	r.Annotations = map[string]string{"c": "d", "argocd.argoproj.io/tracking-id": "catalog:x",
		corev1.LastAppliedConfigAnnotation: `{"spec":{"channels":"all of them"}}`}
	r.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	before := r.DeepCopy()
	v := mustCopy(t, Access{Selected: "vip"}, Contents{Releases: []*v1beta2.ModuleReleaseMeta{r},
		Templates: []*v1beta2.ModuleTemplate{shopTemplates()["vip-1.0.0"]}, Restricted: []string{"vip"}})
	want := []string{
		`{"kind":"ModuleTemplate","apiVersion":"operator.kyma-project.io/v1beta2","metadata":{"name":"vip-1.0.0","namespace":"kyma-system","labels":{"operator.kyma-project.io/managed-by":"kyma"}},"spec":{"descriptor":{}}}`,
		`{"kind":"ModuleReleaseMeta","apiVersion":"operator.kyma-project.io/v1beta2","metadata":{"name":"vip","namespace":"kyma-system","labels":{"a":"b","operator.kyma-project.io/managed-by":"kyma"},"annotations":{"c":"d"}},` +
			`"spec":{"moduleName":"vip","ocmComponentName":"kyma-project.io/module/vip","channels":[{"channel":"regular","version":"1.0.0"}]}}`,
	}
	var got []string
	for _, o := range v.Objects {
		got = append(got, string(o.JSON))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, r); diff != "" {
		t.Errorf("the release in the control plane was changed:\n%s", diff)
	}
	for kind, broken := range map[string]Contents{
		v1beta2.KindModuleTemplate: {Templates: []*v1beta2.ModuleTemplate{
			{Spec: v1beta2.ModuleTemplateSpec{Channel: "regular",
				Descriptor: runtime.RawExtension{Raw: []byte("{")}}}}},
	} {
		if _, err := CatalogCopyFor(Access{}, broken, "kyma-system"); err == nil ||
			!strings.Contains(err.Error(), "encoding "+kind) {
			t.Errorf("a broken %s: %v", kind, err)
		}
	}
}

// TestCatalogCopyEncodesOnce tests that a ModuleTemplate is encoded once for several catalog copies, and that the
// catalog copies are the same as without Contents.Encoded.
func TestCatalogCopyEncodesOnce(t *testing.T) {
	s := shopStock()
	s.Encoded = map[*v1beta2.ModuleTemplate][]byte{}
	of := map[string]*byte{} // where the encoded templates are in memory
	for _, g := range []Access{{}, {Beta: true, Internal: true}, {Beta: true}, {Selected: "vip"}, {}} {
		v := mustCopy(t, g, s)
		if diff := cmp.Diff(mustCopy(t, g, shopStock()), v); diff != "" {
			t.Errorf("%+v: the catalog copy (-without +with Encoded):\n%s", g, diff)
		}
		for _, o := range v.Objects {
			if o.Kind != v1beta2.KindModuleTemplate {
				continue
			}
			if was := of[o.Name]; was != nil && was != &o.JSON[0] {
				t.Errorf("%+v: ModuleTemplate %s was encoded again", g, o.Name)
			}
			of[o.Name] = &o.JSON[0]
		}
	}
	broken := Contents{Encoded: map[*v1beta2.ModuleTemplate][]byte{}, Templates: []*v1beta2.ModuleTemplate{
		{Spec: v1beta2.ModuleTemplateSpec{Channel: "regular", Descriptor: runtime.RawExtension{Raw: []byte("{")}}}}}
	for range 2 {
		if _, err := CatalogCopyFor(Access{}, broken, "kyma-system"); err == nil {
			t.Error("a broken ModuleTemplate is no error")
		}
	}
}

// TestCatalogCopyDigest tests that the digest changes only if a copied object changes.
func TestCatalogCopyDigest(t *testing.T) {
	before := mustCopy(t, Access{}, shopStock()).Digest
	cases := map[string]struct {
		reason  string
		change  func(*v1beta2.ModuleReleaseMeta, *v1beta2.ModuleTemplate)
		changes bool
	}{
		"Nothing": {"another order", func(*v1beta2.ModuleReleaseMeta, *v1beta2.ModuleTemplate) {}, false},
		"Metadata": {"a write that changes nothing", func(r *v1beta2.ModuleReleaseMeta, t *v1beta2.ModuleTemplate) {
			r.ResourceVersion, t.Generation = "9", 9
		}, false},
		"Unseen": {"a channel that the group does not see",
			func(r *v1beta2.ModuleReleaseMeta, _ *v1beta2.ModuleTemplate) { r.Spec.Channels[2].Version = "3.0.0" },
			false},
		"Channel": {"a channel that it sees", func(r *v1beta2.ModuleReleaseMeta,
			_ *v1beta2.ModuleTemplate) {
			r.Spec.Channels[0].Version = "1.1.0"
		}, true},
		"Template": {"a template", func(_ *v1beta2.ModuleReleaseMeta,
			t *v1beta2.ModuleTemplate) {
			t.Spec.RequiresDowntime = true
		}, true},
		"Label": {"a label", func(_ *v1beta2.ModuleReleaseMeta,
			t *v1beta2.ModuleTemplate) {
			t.Labels = map[string]string{"a": "b"}
		}, true},
		"Right": {"a template that becomes beta", func(_ *v1beta2.ModuleReleaseMeta, t *v1beta2.ModuleTemplate) {
			t.Labels = map[string]string{v1beta2.LabelBeta: "true"}
		}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			releases, templates := shopReleases(), shopTemplates()
			c.change(releases["keda"], templates["keda-1.0.0"])
			s := Contents{Releases: slices.Collect(maps.Values(releases)),
				Templates: slices.Collect(maps.Values(templates)), Restricted: shop().Restricted}
			rand.Shuffle(len(s.Templates), func(i, j int) {
				s.Templates[i],
					s.Templates[j] = s.Templates[j], s.Templates[i]
			})
			if after := mustCopy(t, Access{}, s).Digest; (after != before) != c.changes {
				t.Errorf("%s: the digest was %s and is %s", c.reason, before, after)
			}
		})
	}
}

// TestCatalogCopyMatchesResolve tests that Resolve allows a runtime exactly the versions in the catalog copy of the
// runtime, for every module, every channel, and every combination of rights (beta, internal, restricted modules).
func TestCatalogCopyMatchesResolve(t *testing.T) {
	refused := []string{v1beta2.ReasonModuleNotAllowed, v1beta2.ReasonModuleNotFound, v1beta2.ReasonChannelNotFound,
		v1beta2.ReasonTemplateNotFound}
	channels := []string{"regular", "fast", "beta", "internal", "lost", "must", "slow", "odd",
		"empty", "secret", "alpha"}
	for flags := range 8 {
		labels := map[string]string{v1beta2.LabelBeta: fmt.Sprint(flags&1 != 0),
			v1beta2.LabelInternal: fmt.Sprint(flags&2 != 0)}
		if flags&4 != 0 {
			labels["tier"] = "gold"
		}
		kyma := kymaWith(labels, nil)
		v := mustCopy(t, AccessOf(shop(), kyma), shopStock())
		seen := channelsIn(t, v)
		for module := range shopReleases() {
			for _, c := range channels {
				d := Resolve(shop(), RequestFor(kyma, kyma, &v1beta2.Module{Name: module, Channel: c}))
				isSeen := slices.Contains(seen, module+"/"+c)
				switch {
				case d.Blocker == nil && (!isSeen || !slices.Contains(templatesIn(v), d.Template.Name)):
					t.Errorf("%v may have %s/%s and does not see it", labels, module, c)
				case isSeen && d.Blocker != nil && slices.Contains(refused, d.Blocker.Code):
					t.Errorf("%v sees %s/%s and may not have it: %v", labels, module, c, d.Blocker)
				}
			}
		}
		for name, template := range shopTemplates() {
			module := ModuleOf(template)
			if template.Spec.Channel == "" || module == "twin" {
				continue
			}
			d := Resolve(shop(), RequestFor(kyma, kyma, &v1beta2.Module{Name: module, Channel: template.Spec.Channel}))
			isSeen := slices.Contains(templatesIn(v), name)
			if mayHave := d.Blocker == nil || d.Blocker.Code == v1beta2.ReasonInvalidRelease &&
				module != "locked"; mayHave != isSeen {
				t.Errorf("%v: template %s is seen %t, blocker %v", labels, name, isSeen, d.Blocker)
			}
		}
	}
}

// BenchmarkCatalogCopyFor measures the time of one call of CatalogCopyFor, with 50 ModuleTemplates and 20
// ModuleReleaseMetas. After each change of the catalog, the manager calls CatalogCopyFor once for each Access.
func BenchmarkCatalogCopyFor(b *testing.B) {
	var s Contents
	for i := range 20 {
		r := &v1beta2.ModuleReleaseMeta{}
		r.Name = fmt.Sprintf("module-%02d", i)
		for j := range 5 {
			version := fmt.Sprintf("1.%d.0", j)
			r.Spec.Channels = append(r.Spec.Channels, v1beta2.ChannelVersion{Channel: "c" + version, Version: version})
			if j > 2 || j == 2 && i >= 10 {
				continue
			}
			template := legacyTemplate(TemplateName(r.Name, version), r.Name, "", version)
			s.Templates = append(s.Templates, template)
		}
		s.Releases = append(s.Releases, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		if v := mustCopy(b, Access{}, s); len(v.Objects) != 70 {
			b.Fatal(len(v.Objects))
		}
	}
}
