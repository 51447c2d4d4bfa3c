package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{v1beta2.KindKyma, v1beta2.KindManifest, v1beta2.KindModuleTemplate} {
		for _, name := range []string{kind, kind + "List"} {
			if !scheme.Recognizes(GroupVersion.WithKind(name)) {
				t.Errorf("%s is not registered", name)
			}
		}
	}
}

// TestSamples checks the conversion of objects as users wrote them in 2022.
func TestSamples(t *testing.T) {
	tests := map[string]struct {
		reason string
		old    string
		want   string // spec
	}{
		"Components": {
			"the first release: components are modules",
			`{kind: Kyma, metadata: {name: k}, spec: {components: [{name: istio}, {name: serverless}]}}`,
			`{channel: regular, modules: [{name: istio, customResourcePolicy: CreateAndDelete, managed: true}, {name: serverless, customResourcePolicy: CreateAndDelete, managed: true}]}`,
		},
		"Settings": {
			"settings never had an effect",
			`{kind: Kyma, metadata: {name: k}, spec: {components: [{name: istio, settings: {a: b}}]}}`,
			`{channel: regular, modules: [{name: istio, customResourcePolicy: CreateAndDelete, managed: true}]}`,
		},
		"NoChannel": {
			"the sample that its own CRD refused",
			`{kind: Kyma, metadata: {name: k}, spec: {modules: [{name: istio}]}}`,
			`{channel: regular, modules: [{name: istio, customResourcePolicy: CreateAndDelete, managed: true}]}`,
		},
		"Sync": {
			"a Kyma for a runtime",
			`{kind: Kyma, metadata: {name: kyma-sample}, spec: {channel: stable, sync: {enabled: true, strategy: local-secret, noModuleCopy: false}, modules: [{name: skr-module, controller: manifest, channel: rapid}]}}`,
			`{channel: stable, modules: [{name: skr-module, controller: manifest, channel: rapid, customResourcePolicy: CreateAndDelete, managed: true}]}`,
		},
		"Both": {
			"a name that is in both lists is a module",
			`{kind: Kyma, metadata: {name: k}, spec: {components: [{name: a}, {name: b}], modules: [{name: a, channel: fast}]}}`,
			`{channel: regular, modules: [{name: b, customResourcePolicy: CreateAndDelete, managed: true}, {name: a, channel: fast, customResourcePolicy: CreateAndDelete, managed: true}]}`,
		},
		"Manifest": {
			"the sample of the module manager, with the key that does not belong there",
			`{kind: Manifest, metadata: {name: m}, spec: {remote: true, resource: {apiVersion: operator.kyma-project.io/v1alpha1, kind: SampleCRD, resource: samplecrds, metadata: {name: s}, spec: {a: b}},
				crds: {repo: r, name: nm, ref: "sha256:a", type: oci-ref}, config: {repo: r, name: nm, ref: "sha256:b", type: oci-ref},
				installs: [{name: redis, source: {url: u, chartName: redis, type: helm-chart}}, {name: nginx, source: {repo: r, name: nm, ref: "sha256:c", type: oci-ref}}]}}`,
			`{remote: true, resource: {apiVersion: operator.kyma-project.io/v1alpha1, kind: SampleCRD, resource: samplecrds, metadata: {name: s}, spec: {a: b}},
				crds: {repo: r, name: nm, ref: "sha256:a", type: oci-ref}, config: {repo: r, name: nm, ref: "sha256:b", type: oci-ref},
				installs: [{name: redis, source: {url: u, chartName: redis, type: helm-chart}}, {name: nginx, source: {repo: r, name: nm, ref: "sha256:c", type: oci-ref}}]}`,
		},
		"ManifestOnControlPlane": {
			"the objects are in the control plane",
			`{kind: Manifest, metadata: {name: m}, spec: {remote: false}}`,
			`{remote: false, target: control-plane}`,
		},
		"ManifestRemote": {
			"remote is true unless it is false",
			`{kind: Manifest, metadata: {name: m}, spec: {installs: []}}`,
			`{remote: true}`,
		},
		"Template": {
			"module and version are in labels and annotations",
			`{kind: ModuleTemplate, metadata: {name: moduletemplate-keda, labels: {operator.kyma-project.io/module-name: keda}, annotations: {operator.kyma-project.io/module-version: 1.2.3}},
				spec: {channel: stable, target: remote, data: {apiVersion: v1, kind: Keda}, descriptor: {component: {version: 9.9.9}}}}`,
			`{channel: stable, moduleName: keda, version: 1.2.3, data: {apiVersion: v1, kind: Keda}, descriptor: {component: {version: 9.9.9}}}`,
		},
		"TemplateDescriptor": {
			"the version of the descriptor, and a name that v1beta2 does not accept",
			`{kind: ModuleTemplate, metadata: {name: t, labels: {operator.kyma-project.io/module-name: skr-module2}}, spec: {target: control-plane, descriptor: {component: {version: 0.1.0}}}}`,
			`{version: 0.1.0, target: control-plane, descriptor: {component: {version: 0.1.0}}}`,
		},
		"TemplateOddVersion": {
			"versions that v1beta2 does not accept",
			`{kind: ModuleTemplate, metadata: {name: t, annotations: {operator.kyma-project.io/module-version: v1}}, spec: {target: remote, descriptor: {component: {version: 1}}}}`,
			`{descriptor: {component: {version: 1}}}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, now, back := roundTrip(t, tc.old)
			if diff := cmp.Diff(fromYAML(t, tc.want), asJSON(t, now)["spec"]); diff != "" {
				t.Errorf("%s: spec differs (-want +got):\n%s", tc.reason, diff)
			}
			want, got := fromYAML(t, tc.old).(map[string]any), asJSON(t, back)
			normalise(want)
			normalise(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: the object came back with a difference (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// roundTrip decodes an object in v1alpha1, converts it to v1beta2 and converts the result back.
func roundTrip(t *testing.T, text string) (old, now, back any) {
	t.Helper()
	var head metav1.TypeMeta
	text = strings.ReplaceAll(text, "\t", " ")
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		t.Fatal(err)
	}
	var errs [3]error
	switch head.Kind {
	case v1beta2.KindKyma:
		a, b, c := &Kyma{}, &v1beta2.Kyma{}, &Kyma{}
		errs = [3]error{yaml.UnmarshalStrict([]byte(text), a), a.ConvertTo(b), c.ConvertFrom(b)}
		old, now, back = a, b, c
	case v1beta2.KindManifest:
		a, b, c := &Manifest{}, &v1beta2.Manifest{}, &Manifest{}
		errs = [3]error{yaml.UnmarshalStrict([]byte(text), a), a.ConvertTo(b), c.ConvertFrom(b)}
		old, now, back = a, b, c
	case v1beta2.KindModuleTemplate:
		a, b, c := &ModuleTemplate{}, &v1beta2.ModuleTemplate{}, &ModuleTemplate{}
		errs = [3]error{yaml.UnmarshalStrict([]byte(text), a), a.ConvertTo(b), c.ConvertFrom(b)}
		old, now, back = a, b, c
	}
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return old, now, back
}

func fromYAML(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func asJSON(t *testing.T, v any) map[string]any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// normalise removes fields that a decoded object need not have.
func normalise(object map[string]any) {
	delete(object, "apiVersion")
	spec, _ := object["spec"].(map[string]any)
	if list, ok := spec["installs"].([]any); ok && len(list) == 0 {
		delete(spec, "installs")
	}
	if len(spec) == 0 {
		delete(object, "spec")
	}
}

// TestEdits checks that values without a field in the other API version are restored, and that an edit of the user has
// precedence over a restored value.
func TestEdits(t *testing.T) {
	stored := &v1beta2.Kyma{Spec: v1beta2.KymaSpec{Channel: "fast",
		SkipMaintenanceWindows: true, Modules: []v1beta2.Module{
			{
				Name:    "keda",
				Version: "1.0.0",
				Managed: new(false)}, {Name: "istio",
				Channel:                 "regular",
				RemoteModuleTemplateRef: "x",
			},
		}}}
	tests := map[string]struct {
		reason string
		edit   func(*KymaSpec)
		want   func(*v1beta2.KymaSpec)
	}{
		"Nothing": {"all comes back", func(*KymaSpec) {}, func(*v1beta2.KymaSpec) {}},
		"Channel": {"the rest stays", func(s *KymaSpec) { s.Channel = "regular" },
			func(s *v1beta2.KymaSpec) { s.Channel = "regular" }},
		"Add": {"what is known of the others stays",
			func(s *KymaSpec) { s.Modules = append([]Module{{Name: "btp"}}, s.Modules...) },
			func(s *v1beta2.KymaSpec) {
				s.Modules = append([]v1beta2.Module{{Name: "btp", CustomResourcePolicy: v1beta2.CreateAndDelete,
					Managed: new(true)}}, s.Modules...)
			}},
		"Remove": {"nothing of a removed module comes back",
			func(s *KymaSpec) { s.Modules = s.Modules[1:] },
			func(s *v1beta2.KymaSpec) { s.Modules = s.Modules[1:] }},
		"Pin": {"a channel replaces a pinned version",
			func(s *KymaSpec) { s.Modules[0].Channel = "fast" },
			func(s *v1beta2.KymaSpec) { s.Modules[0].Channel, s.Modules[0].Version = "fast", "" }},
		"Component": {"a module that is called component is still the module",
			func(s *KymaSpec) { s.Modules, s.Components = s.Modules[1:], []Component{{Name: "keda"}} },
			func(*v1beta2.KymaSpec) {}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old, got, want := &Kyma{}, &v1beta2.Kyma{}, stored.DeepCopy()
			if err := old.ConvertFrom(stored); err != nil {
				t.Fatal(err)
			}
			tc.edit(&old.Spec)
			tc.want(&want.Spec)
			if err := old.ConvertTo(got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
				t.Errorf("%s: spec differs (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestEditsOfStored edits stored objects, which are in v1beta2, and checks that values lost in the conversion are
// restored, and that the edits have precedence over restored values.
func TestEditsOfStored(t *testing.T) {
	old := &Kyma{Spec: KymaSpec{
		Components: []Component{{Name: "istio", Settings: map[string]string{"a": "b"}}, {Name: "serverless"}},
		Modules:    []Module{{Name: "keda"}},
		Sync:       &Sync{Enabled: true},
	}}
	tests := map[string]struct {
		reason string
		edit   func(*v1beta2.KymaSpec)
		want   func(*KymaSpec)
	}{
		"Nothing": {"all comes back", func(*v1beta2.KymaSpec) {}, func(*KymaSpec) {}},
		"Remove": {"a component that was removed does not come back",
			func(s *v1beta2.KymaSpec) { s.Modules = s.Modules[1:] },
			func(s *KymaSpec) { s.Components, s.Channel = s.Components[1:], "" }},
		"Add": {"a new module is a module",
			func(s *v1beta2.KymaSpec) { s.Modules = append(s.Modules, v1beta2.Module{Name: "btp"}) },
			func(s *KymaSpec) { s.Modules = append(s.Modules, Module{Name: "btp"}) }},
		"Channel": {"it was not given, now it is",
			func(s *v1beta2.KymaSpec) { s.Channel = "fast" },
			func(s *KymaSpec) { s.Channel = "fast" }},
		"ModuleChannel": {"a component has no channel, so it has to be a module",
			func(s *v1beta2.KymaSpec) { s.Modules[1].Channel = "fast" },
			func(s *KymaSpec) {
				s.Components, s.Modules = s.Components[:1],
					[]Module{{Name: "serverless", Channel: "fast"}, {Name: "keda"}}
			}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, got, want := &v1beta2.Kyma{}, &Kyma{}, old.DeepCopy()
			if err := old.ConvertTo(stored); err != nil {
				t.Fatal(err)
			}
			tc.edit(&stored.Spec)
			tc.want(&want.Spec)
			if err := got.ConvertFrom(stored); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Spec, got.Spec, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: spec differs (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestInstall checks that a Manifest with one source has it in spec.install, and that the source moves to spec.installs
// when another source is added.
func TestInstall(t *testing.T) {
	raw := func(text string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(text)} }
	stored := &v1beta2.Manifest{Spec: v1beta2.ManifestSpec{Version: "1.0.0",
		Install: v1beta2.InstallInfo{Name: v1beta2.RawManifest, Source: raw(`{"ref":"a"}`)}}}
	old := &Manifest{}
	if err := old.ConvertFrom(stored); err != nil {
		t.Fatal(err)
	}
	changed, added := old.DeepCopy(), old.DeepCopy()
	changed.Spec.Installs[0].Source = raw(`{"ref":"b"}`)
	added.Spec.Installs = append(added.Spec.Installs, v1beta2.InstallInfo{Name: "redis", Source: raw(`{}`)})
	wantChanged, wantAdded := stored.DeepCopy(), stored.DeepCopy()
	wantChanged.Spec.Install.Source = raw(`{"ref":"b"}`)
	wantAdded.Spec.Install, wantAdded.Spec.Installs = v1beta2.InstallInfo{}, added.Spec.Installs
	for name, c := range map[string]struct {
		old  *Manifest
		want *v1beta2.Manifest
	}{"Same": {old, stored}, "Changed": {changed, wantChanged}, "Added": {added, wantAdded}} {
		got := &v1beta2.Manifest{}
		if err := c.old.ConvertTo(got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want.Spec, got.Spec); diff != "" {
			t.Errorf("%s: spec differs (-want +got):\n%s", name, diff)
		}
	}
}

// TestModuleInfos checks the status fields that early clients read.
func TestModuleInfos(t *testing.T) {
	stored := &v1beta2.Kyma{Status: v1beta2.KymaStatus{State: v1beta2.StateReady, Modules: []v1beta2.ModuleStatus{
		{Name: "waiting", State: v1beta2.StateWarning},
		{Name: "keda", Channel: "fast", State: v1beta2.StateReady,
			Manifest: &v1beta2.ObjectReference{Metadata: v1beta2.ObjectReferenceMeta{Name: "k-keda",
				Namespace: "kcp-system"}},
			Template: &v1beta2.ObjectReference{Metadata: v1beta2.ObjectReferenceMeta{Generation: 3}},
			Resource: &v1beta2.ObjectReference{APIVersion: "operator.kyma-project.io/v1alpha1", Kind: "Keda"}},
	}}}
	old := &Kyma{}
	if err := old.ConvertFrom(stored); err != nil {
		t.Fatal(err)
	}
	want := KymaStatus{KymaStatus: stored.Status, ModuleInfos: []ModuleInfo{{
		Name: "k-keda", Namespace: "kcp-system", ModuleName: "keda", State: v1beta2.StateReady,
		TemplateInfo: TemplateInfo{
			Generation: 3,
			Channel:    "fast",
			GVK:        GroupVersionKind{Group: "operator.kyma-project.io", Version: "v1alpha1", Kind: "Keda"},
		},
	}}}
	if diff := cmp.Diff(want, old.Status); diff != "" {
		t.Errorf("status differs (-want +got):\n%s", diff)
	}
}

// TestHistory checks that the largest history that the manager writes is converted in both directions without an
// annotation.
func TestHistory(t *testing.T) {
	at := func(n int) metav1.Time { return metav1.NewTime(time.Date(2026, 11, 23, 9, n, 0, 0, time.UTC)) }
	stored := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "k"}, Spec: v1beta2.KymaSpec{Channel: "fast"}}
	for m := range 20 {
		entry := v1beta2.ModuleStatus{Name: fmt.Sprintf("module-%d", m), Version: "1.10.0", State: v1beta2.StateError}
		for n := range 10 {
			entry.History = append(entry.History, v1beta2.ModuleChange{From: fmt.Sprintf("1.%d.0", n),
				Version: fmt.Sprintf("1.%d.0", n+1), Started: at(2 * n), Ended: at(2*n + 1),
				Outcome: v1beta2.StateError, Reason: v1beta2.ReasonWorkloadFailed})
		}
		stored.Status.Modules = append(stored.Status.Modules, entry)
	}
	manifest := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec: v1beta2.ManifestSpec{Remote: true}, Status: v1beta2.ManifestStatus{
			LastChange: &stored.Status.Modules[0].History[9]}}
	oldKyma, kyma, oldManifest, back := &Kyma{}, &v1beta2.Kyma{}, &Manifest{}, &v1beta2.Manifest{}
	for _, err := range []error{oldKyma.ConvertFrom(stored), json.Unmarshal(mustJSON(t, oldKyma), oldKyma),
		oldKyma.ConvertTo(kyma), oldManifest.ConvertFrom(manifest), oldManifest.ConvertTo(back)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(stored.Status, kyma.Status); diff != "" {
		t.Errorf("status differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(manifest.Status, back.Status); diff != "" {
		t.Errorf("status of the Manifest differs (-want +got):\n%s", diff)
	}
	if len(oldKyma.Annotations[AnnotationConversion])+len(kyma.Annotations[AnnotationConversion]) > 0 {
		t.Errorf("the history is in an annotation: %v, %v", oldKyma.Annotations, kyma.Annotations)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTooLarge checks that nothing is lost silently: if the values lost in the conversion do not fit into the
// annotation, the object can be read, but not written back.
func TestTooLarge(t *testing.T) {
	stored := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: v1beta2.ManifestSpec{
		Install: v1beta2.InstallInfo{Name: v1beta2.RawManifest, Source: runtime.RawExtension{Raw: []byte(`{}`)}},
	}}
	for i := range 3000 {
		stored.Spec.LocalizedImages = append(stored.Spec.LocalizedImages,
			fmt.Sprintf("registry.example.com/image-%d:1", i))
	}
	old := &Manifest{}
	if err := old.ConvertFrom(stored); err != nil {
		t.Fatalf("a large object cannot be read: %v", err)
	}
	if len(old.Annotations[AnnotationConversion]) > MaxConversionBytes {
		t.Errorf("the annotation has %d bytes", len(old.Annotations[AnnotationConversion]))
	}
	if err := old.ConvertTo(&v1beta2.Manifest{}); err == nil || !strings.Contains(err.Error(), "v1beta2") {
		t.Errorf("written back with error %v", err)
	}
	kyma := &Kyma{Spec: KymaSpec{Components: []Component{{Name: "a",
		Settings: map[string]string{"large": strings.Repeat("x", MaxConversionBytes)}}}}}
	if err := kyma.ConvertTo(&v1beta2.Kyma{}); err == nil ||
		!strings.Contains(err.Error(), "spec.modules[a].component") {
		t.Errorf("error %v does not say what is too large", err)
	}
}

// TestAnnotation checks annotations that the conversion did not write. Objects with invalid conversion annotations can
// be read, but not written.
func TestAnnotation(t *testing.T) {
	tests := map[string]struct {
		reason  string
		value   string
		refused bool
	}{
		"NoJSON":    {"not ours", "hello", true},
		"Large":     {"not ours", strings.Repeat("x", MaxConversionBytes+1), true},
		"ShortPath": {"spec as a whole cannot be lost", `{"for":"%s","losses":[{"path":["spec"],"is":{}}]}`, true},
		"NoPath":    {"nowhere", `{"for":"%s","losses":[{"is":{}}]}`, true},
		"WrongType": {"a channel is a text",
			`{"for":"%s","losses":[{"path":["spec","channel"],"was":"fast","is":[1]}]}`, true},
		"OtherObject": {"nothing fits",
			`{"for":"%s","losses":[{"path":["spec","modules",{"name":"x"},"version"],"is":"1.0.0"},{"path":["spec","modules",{"name":"x"}],"is":"1"},{"path":["spec","modules",7,"a"],"is":"1"},{"path":["spec","channel","a"],"is":"1"}]}`, false},
		"OtherWay": {"made for another version",
			`{"for":"v1","losses":[{"path":["spec","channel"],"was":"fast","is":"regular"}]}`, false},
		"Empty": {"nothing", `{}`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			value := func(version string) map[string]string {
				return map[string]string{AnnotationConversion: strings.ReplaceAll(tc.value, "%s", version),
					"other": "stays"}
			}
			stored := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "k", Annotations: value(Version)},
				Spec: v1beta2.KymaSpec{Channel: "fast"}}
			got := &Kyma{}
			if err := got.ConvertFrom(stored); err != nil {
				t.Errorf("%s: reading fails: %v", tc.reason, err)
			}
			if diff := cmp.Diff(map[string]string{"other": "stays"}, got.Annotations); diff != "" ||
				got.Spec.Channel != "fast" {
				t.Errorf("%s: channel is %s, annotations differ (-want +got):\n%s", tc.reason, got.Spec.Channel, diff)
			}
			old := &Kyma{ObjectMeta: metav1.ObjectMeta{Name: "k", Annotations: value(v1beta2.Version)},
				Spec: KymaSpec{Channel: "fast"}}
			if err := old.ConvertTo(&v1beta2.Kyma{}); (err != nil) != tc.refused || err != nil &&
				!strings.Contains(err.Error(), AnnotationConversion) {
				t.Errorf("%s: writing gives error %v, refused should be %t", tc.reason, err, tc.refused)
			}
		})
	}
}

// These tests convert random objects in both directions: the result must be equal to the original object. An object
// that is edited after its conversion, and still has the annotation of the original object, must also be unchanged
// after a conversion in both directions.

func FuzzKyma(f *testing.F) {
	fuzzBoth(f, (*Kyma).ConvertTo, (*Kyma).ConvertFrom,
		func(a, b *Kyma) { a.Spec, a.Status = b.Spec, b.Status },
		func(a, b *v1beta2.Kyma) { a.Spec, a.Status = b.Spec, b.Status },
		func(k *v1beta2.Kyma) {
			for i := range k.Spec.Modules {
				if k.Spec.Modules[i].Channel != "" {
					k.Spec.Modules[i].Version = "" // the API server accepts only one
				}
			}
		})
}

func FuzzManifest(f *testing.F) {
	fuzzBoth(f, (*Manifest).ConvertTo, (*Manifest).ConvertFrom,
		func(a, b *Manifest) { a.Spec, a.Status = b.Spec, b.Status },
		func(a, b *v1beta2.Manifest) { a.Spec, a.Status = b.Spec, b.Status },
		func(m *v1beta2.Manifest) {
			if len(m.Spec.Installs) > 0 {
				m.Spec.Install = v1beta2.InstallInfo{} // the API server accepts only one
			}
		})
}

func FuzzModuleTemplate(f *testing.F) {
	fuzzBoth(f, (*ModuleTemplate).ConvertTo, (*ModuleTemplate).ConvertFrom,
		func(a, b *ModuleTemplate) { a.Spec = b.Spec },
		func(a, b *v1beta2.ModuleTemplate) { a.Spec = b.Spec }, func(*v1beta2.ModuleTemplate) {})
}

func fuzzBoth[Old, Stored any](f *testing.F, to func(*Old, *Stored) error, from func(*Old, *Stored) error,
	editOld func(a, b *Old), editStored func(a, b *Stored), valid func(*Stored)) {
	for seed := range int64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		fill := newFiller(seed)
		old, otherOld, stored, otherStored := new(Old), new(Old), new(Stored), new(Stored)
		fill.Fill(old)
		fill.Fill(stored)
		fill.Fill(otherOld)
		fill.Fill(otherStored)
		valid(stored)
		valid(otherStored)

		roundOld := func(o *Old) *Old {
			s, back := new(Stored), new(Old)
			if err := to(o, s); err != nil {
				t.Fatalf("to v1beta2: %v\n%s", err, text(o))
			}
			if err := from(back, s); err != nil {
				t.Fatalf("to v1alpha1: %v\n%s", err, text(s))
			}
			return back
		}
		roundStored := func(s *Stored) *Stored {
			o, back := new(Old), new(Stored)
			if err := from(o, s); err != nil {
				t.Fatalf("to v1alpha1: %v\n%s", err, text(s))
			}
			if err := to(o, back); err != nil {
				t.Fatalf("to v1beta2: %v\n%s", err, text(o))
			}
			return back
		}
		check(t, "v1alpha1 to v1beta2 and back", old, roundOld(old))
		check(t, "v1beta2 to v1alpha1 and back", stored, roundStored(stored))

		edited := new(Old) // with the annotation of stored
		if err := from(edited, stored); err != nil {
			t.Fatal(err)
		}
		editOld(edited, otherOld)
		check(t, "edited v1alpha1 to v1beta2 and back", edited, roundOld(edited))

		editedStored := new(Stored) // with the annotation of old
		if err := to(old, editedStored); err != nil {
			t.Fatal(err)
		}
		editStored(editedStored, otherStored)
		check(t, "edited v1beta2 to v1alpha1 and back", editedStored, roundStored(editedStored))
	})
}

// check compares two objects, except for the API version, the kind and the annotation of the conversion. An absent list
// and an empty list are equal.
func check(t *testing.T, what string, want, got any) {
	t.Helper()
	strip := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".TypeMeta" }, cmp.Ignore())
	annotation := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".ObjectMeta" },
		cmp.Transformer("others", func(m metav1.ObjectMeta) metav1.ObjectMeta {
			return withConversionAnnotation(m,
				"")
		}))
	if diff := cmp.Diff(want, got, strip, annotation, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: differs (-want +got):\n%s\nwant %s", what, diff, text(want))
	}
}

func text(v any) string {
	data, err := json.Marshal(v)
	return fmt.Sprintf("%s %v", data, err)
}

// newFiller fills objects with random values that an API server accepts. The random values are from a small set, so
// that lists have elements with the same name, and edits change existing elements.
func newFiller(seed int64) *randfill.Filler {
	words := []string{"", "a", "b", "keda", "regular", "1.0.0", "é\"<"}
	object := func(c randfill.Continue) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "K" + words[c.Intn(len(words))], "n": int64(c.Intn(3)),
			"null": nil, "list": []any{words[c.Intn(len(words))], 1.5}}
	}
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 4).Funcs(
		func(s *string, c randfill.Continue) { *s = words[c.Intn(len(words))] },
		func(u *unstructured.Unstructured, c randfill.Continue) { u.Object = object(c) },
		func(r *runtime.RawExtension, c randfill.Continue) {
			r.Raw, _ = json.Marshal(map[string]any{"component": map[string]any{"version": words[c.Intn(len(words))]},
				"o": object(c)})
		},
		func(m *metav1.Time, c randfill.Continue) {
			*m = metav1.Time{}
			if n := c.Intn(3); n > 0 {
				*m = metav1.Unix(int64(1_600_000_000+n), 0)
				m.Time = m.In(time.Local) //nolint:gosmopolitan // the decoder makes it local too
			}
		},
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			*m = metav1.ObjectMeta{Name: "n", Namespace: "ns", Generation: int64(c.Intn(9))}
			if c.Bool() {
				m.Labels = map[string]string{v1beta2.LabelModuleName: words[c.Intn(len(words))]}
			}
			if c.Bool() {
				m.Annotations = map[string]string{annotationModuleVersion: words[c.Intn(len(words))]}
			}
		},
		func(m *v1beta2.InstallInfo, c randfill.Continue) {
			c.FillNoCustom(m)
			if m.Name == "" {
				m.Name = v1beta2.RawManifest // an entry without a name is refused
			}
		},
	)
}

// TestTargetOfStoredManifest checks that a Manifest keeps its target cluster if a client reads the Manifest in v1alpha1
// and writes it back. The field remote of v1alpha1 is true for every stored Manifest that does not have the target
// control-plane.
func TestTargetOfStoredManifest(t *testing.T) {
	for target, remote := range map[v1beta2.Target]bool{
		"": true, v1beta2.TargetRemote: true, v1beta2.TargetControlPlane: false,
	} {
		stored := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		stored.Spec.Target = target
		old := fromStoredManifest(stored)
		if is := *old.Spec.Remote; is != remote {
			t.Errorf("target %q: remote is %t, want %t", target, is, remote)
		}
		want := v1beta2.TargetControlPlane
		if remote {
			want = ""
		}
		if is := toStoredManifest(old).Spec.Target; is != want {
			t.Errorf("target %q came back as %q, want %q", target, is, want)
		}
	}
}
