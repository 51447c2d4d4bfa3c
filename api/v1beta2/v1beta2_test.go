package v1beta2

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{KindKyma, KindManifest, KindModuleTemplate, KindModuleReleaseMeta, KindWatcher} {
		for _, name := range []string{kind, kind + "List"} {
			if !scheme.Recognizes(GroupVersion.WithKind(name)) {
				t.Errorf("%s is not registered", name)
			}
		}
	}
}

func TestManifestName(t *testing.T) {
	tests := map[string]struct {
		reason                  string
		kyma, component, module string
		want                    string
	}{
		"TemplateOperator": {
			reason:    "as the reference names it",
			kyma:      "kyma-a",
			component: "kyma-project.io/module/template-operator",
			module:    "template-operator",
			want:      "kyma-a-template-operator-2235966007",
		},
		"Simple": {
			reason:    "as the reference names it",
			kyma:      "kyma-a",
			component: "kyma-project.io/module/simple",
			module:    "simple",
			want:      "kyma-a-simple-2685341005",
		},
		"Warden": {
			reason:    "as the reference names it",
			kyma:      "kyma-a",
			component: "kyma-project.io/module/warden",
			module:    "warden",
			want:      "kyma-a-warden-641595061",
		},
		"NoPath": {
			reason:    "a component without a path is its own last segment",
			kyma:      "k",
			component: "warden",
			module:    "warden",
			want:      "k-warden-365743597",
		},
		"NoModule": {reason: "an empty component gives an empty segment", kyma: "k", want: "k--2166136261"},
		"Fits": {
			reason:    "62 characters stay",
			kyma:      strings.Repeat("k", 62-len("-warden-641595061")),
			component: "kyma-project.io/module/warden",
			module:    "warden",
			want:      strings.Repeat("k", 45) + "-warden-641595061",
		},
		"Cut": {
			reason:    "63 characters are cut to 62",
			kyma:      strings.Repeat("k", 63-len("-warden-641595061")),
			component: "kyma-project.io/module/warden",
			module:    "warden",
			want:      strings.Repeat("k", 46) + "-warden-64159506",
		},
		"CutAtDash": {
			reason:    "a trailing dash goes",
			kyma:      strings.Repeat("k", 54),
			component: "kyma-project.io/module/warden",
			module:    "warden",
			want:      strings.Repeat("k", 54) + "-warden",
		},
		"CutAtDot": {
			reason:    "a trailing dot would not be a name",
			kyma:      strings.Repeat("k", 60) + "a.b",
			component: "kyma-project.io/module/warden",
			module:    "warden",
			want:      strings.Repeat("k", 60) + "a",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := ManifestName(tc.kyma, tc.component, tc.module)
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func FuzzManifestName(f *testing.F) {
	f.Add("kyma-a", "kyma-project.io/module/simple", "simple")
	f.Add(strings.Repeat("a.", 31), "x.io/y", "module-name")
	f.Fuzz(func(t *testing.T, kyma, component, module string) {
		if len(validation.IsDNS1123Subdomain(kyma)) > 0 || len(validation.IsDNS1123Label(module)) > 0 {
			return
		}
		name := ManifestName(kyma, "kyma-project.io/module/"+module, module)
		if len(name) > 62 {
			t.Errorf("%q has %d characters, want at most 62", name, len(name))
		}
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("%q is no name: %q", name, errs)
		}
	})
}

func TestDecodeImageSpec(t *testing.T) {
	tests := map[string]struct {
		reason string
		raw    string
		want   ImageSpec
		field  string // of the error
		fails  bool
	}{
		"Layer": {
			reason: "as the reference writes it",
			raw:    `{"repo":"r/s","name":"n","ref":"sha256:a","type":"oci-ref"}`,
			want:   ImageSpec{Repo: "r/s", Name: "n", Ref: "sha256:a", Type: SourceOCIRef},
		},
		"Directory": {
			reason: "the other type",
			raw:    `{"repo":"r","name":"n","ref":"1.0.0","type":"oci-dir"}`,
			want:   ImageSpec{Repo: "r", Name: "n", Ref: "1.0.0", Type: SourceOCIDir},
		},
		"UnknownKey": {
			reason: "unknown fields are ignored",
			raw:    `{"repo":"r","name":"n","ref":"1","type":"oci-dir","more":{}}`,
			want:   ImageSpec{Repo: "r", Name: "n", Ref: "1", Type: SourceOCIDir},
		},
		"UnknownType": {
			reason: "the type says how to read the source",
			raw:    `{"repo":"r","name":"n","ref":"1","type":"helm-chart"}`,
			want:   ImageSpec{},
			field:  "type",
			fails:  true,
		},
		"NoType": {
			reason: "the type says how to read the source",
			raw:    `{"repo":"r","name":"n","ref":"1"}`,
			want:   ImageSpec{},
			field:  "type",
			fails:  true,
		},
		"NoRepo": {
			reason: "a registry is needed",
			raw:    `{"name":"n","ref":"1","type":"oci-ref"}`,
			want:   ImageSpec{},
			field:  "repo",
			fails:  true,
		},
		"NoName": {
			reason: "a component is needed",
			raw:    `{"repo":"r","ref":"1","type":"oci-ref"}`,
			want:   ImageSpec{},
			field:  "name",
			fails:  true,
		},
		"NoRef": {
			reason: "a digest or tag is needed",
			raw:    `{"repo":"r","name":"n","type":"oci-ref"}`,
			want:   ImageSpec{},
			field:  "ref",
			fails:  true,
		},
		"WrongJSON": {reason: "a field of a wrong type", raw: `{"repo":1}`, want: ImageSpec{}, fails: true},
		"NoObject":  {reason: "not an object", raw: `"oci-ref"`, want: ImageSpec{}, fails: true},
		"Null":      {reason: "nothing at all", raw: `null`, want: ImageSpec{}, field: "type", fails: true},
		"Empty":     {reason: "nothing at all", raw: ``, want: ImageSpec{}, fails: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeImageSpecLeniently(runtime.RawExtension{Raw: []byte(tc.raw)})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: source differs (-want +got):\n%s", tc.reason, diff)
			}
			if (err != nil) != tc.fails {
				t.Fatalf("%s: error is %v", tc.reason, err)
			}
			if source, ok := errors.AsType[*SourceError](err); tc.fails &&
				(!ok || source.Field != tc.field || source.Reason() != "InvalidReference") {
				t.Errorf("%s: error is %v, want one of field %q", tc.reason, err, tc.field)
			}
			if tc.fails && !strings.HasPrefix(err.Error(), "spec.install.source") {
				t.Errorf("error %q does not name the field", err)
			}
		})
	}
}

func FuzzImageSpec(f *testing.F) {
	f.Add("registry.example.com/modules", "kyma-project.io/module/keda", "sha256:0123", true)
	f.Add("", "n", "1.0.0", false)
	f.Add("r", "n\x00", "\"", false)
	f.Fuzz(func(t *testing.T, repo, name, ref string, directory bool) {
		if !utf8.ValidString(repo) || !utf8.ValidString(name) || !utf8.ValidString(ref) {
			return // JSON holds nothing else
		}
		want := ImageSpec{Repo: repo, Name: name, Ref: ref, Type: SourceOCIRef}
		if directory {
			want.Type = SourceOCIDir
		}
		raw, err := want.Encode()
		if err != nil {
			if repo != "" && name != "" && ref != "" {
				t.Fatalf("encoding %+v: %v", want, err)
			}
			return
		}
		got, err := DecodeImageSpecLeniently(raw)
		if err != nil {
			t.Fatalf("decoding %s: %v", raw.Raw, err)
		}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestZeroObjects checks that an object without status is encoded without status, and that required fields are encoded
// even if they are empty.
func TestZeroObjects(t *testing.T) {
	tests := map[string]struct {
		reason string
		object any
		want   string
	}{
		"Kyma": {"no status, no times", Kyma{Spec: KymaSpec{Channel: "fast", Modules: []Module{{Name: "a"}}}},
			`{"metadata":{},"spec":{"channel":"fast","modules":[{"name":"a"}]}}`},
		"Status": {"no operation, no references", KymaStatus{Modules: []ModuleStatus{{Name: "a"}}},
			`{"modules":[{"name":"a","state":""}]}`},
		"Unmanage": {"false is written", Module{Name: "a", Managed: new(false)}, `{"name":"a","managed":false}`},
		"Manifest": {"remote is written", ManifestSpec{Install: InstallInfo{Name: RawManifest,
			Source: runtime.RawExtension{Raw: []byte(`{}`)}}},
			`{"remote":false,"install":{"name":"raw-manifest","source":{}}}`},
		"Resource": {"empty fields of the inventory are written", Resource{Name: "n", Version: "v1", Kind: "Namespace"},
			`{"name":"n","namespace":"","group":"","version":"v1","kind":"Namespace"}`},
		"Template": {"the API server turns null into {}", ModuleTemplateSpec{ModuleName: "keda"},
			`{"moduleName":"keda","descriptor":null}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(tc.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s: JSON differs (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestKyma(t *testing.T) {
	kyma := &Kyma{
		Spec: KymaSpec{Channel: "fast", Modules: []Module{
			{Name: "own", Channel: "experimental"},
			{Name: "left", Managed: new(false), CustomResourcePolicy: Ignore},
			{Name: "kept", Managed: new(true)},
		}},
		Status: KymaStatus{
			Modules: []ModuleStatus{{Name: "own", State: StateReady}, {Name: "left", State: StateUnmanaged},
				{Name: "bad", State: StateError}},
		},
	}
	var none *Kyma
	type facts struct {
		Channel, None, Empty string
		Managed, Settled     bool
		Policy               CustomResourcePolicy
		Requested, Known     bool
	}
	want := map[string]facts{
		"own": {
			Channel:   "experimental",
			None:      DefaultChannel,
			Empty:     DefaultChannel,
			Managed:   true,
			Settled:   true,
			Policy:    CreateAndDelete,
			Requested: true,
			Known:     true,
		},
		"left": {
			Channel:   "fast",
			None:      DefaultChannel,
			Empty:     DefaultChannel,
			Settled:   true,
			Policy:    Ignore,
			Requested: true,
			Known:     true,
		},
		"kept": {
			Channel:   "fast",
			None:      DefaultChannel,
			Empty:     DefaultChannel,
			Managed:   true,
			Policy:    CreateAndDelete,
			Requested: true,
		},
		"bad": {
			Channel: "fast",
			None:    DefaultChannel,
			Empty:   DefaultChannel,
			Managed: true,
			Policy:  CreateAndDelete,
			Known:   true,
		},
	}
	got := map[string]facts{}
	for name := range want {
		request, status := kyma.Module(name), kyma.ModuleStatus(name)
		got[name] = facts{
			Channel: kyma.ModuleChannelOrDefault(name), None: none.ModuleChannelOrDefault(name),
			Empty:   (&Kyma{}).ModuleChannelOrDefault(name),
			Managed: request.IsManaged(), Settled: status.IsReadyOrUnmanaged(), Policy: request.Policy(),
			Requested: request != nil, Known: status != nil,
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts differ (-want +got):\n%s", diff)
	}
	if none.Module("own") != nil || none.ModuleStatus("own") != nil {
		t.Error("a nil Kyma has modules")
	}
}

// TestMarks checks the boolean labels and annotations. On a Manifest, and in annotations, only the exact value "true"
// means true.
func TestMarks(t *testing.T) {
	marked := func(key, value string) metav1.ObjectMeta {
		pair := map[string]string{key: value}
		return metav1.ObjectMeta{Labels: pair, Annotations: pair}
	}
	tests := map[string]struct {
		key   string
		ask   func(metav1.ObjectMeta) bool
		zero  bool // answer for a nil object
		exact bool
	}{
		"KymaBeta": {LabelBeta, func(m metav1.ObjectMeta) bool { return (&Kyma{ObjectMeta: m}).AllowsBeta() },
			(*Kyma)(nil).AllowsBeta(), false},
		"KymaInternal": {LabelInternal, func(m metav1.ObjectMeta) bool {
			return (&Kyma{ObjectMeta: m}).AllowsInternal()
		}, (*Kyma)(nil).AllowsInternal(), false},
		"KymaSkip": {LabelSkipReconciliation,
			func(m metav1.ObjectMeta) bool { return (&Kyma{ObjectMeta: m}).SkipsReconciliation() },
			(*Kyma)(nil).SkipsReconciliation(), false},
		"TemplateBeta": {LabelBeta, func(m metav1.ObjectMeta) bool {
			return (&ModuleTemplate{ObjectMeta: m}).IsBeta()
		}, (*ModuleTemplate)(nil).IsBeta(), false},
		"TemplateInternal": {LabelInternal, func(m metav1.ObjectMeta) bool {
			return (&ModuleTemplate{ObjectMeta: m}).IsInternal()
		}, (*ModuleTemplate)(nil).IsInternal(), false},
		"TemplateScope": {AnnotationIsClusterScoped,
			func(m metav1.ObjectMeta) bool { return (&ModuleTemplate{ObjectMeta: m}).HasClusterScopedDefaultCR() },
			(*ModuleTemplate)(nil).HasClusterScopedDefaultCR(), true},
		"ManifestSkip": {LabelSkipReconciliation, func(
			m metav1.ObjectMeta) bool {
			return (&Manifest{ObjectMeta: m}).SkipsReconciliation()
		}, (*Manifest)(nil).SkipsReconciliation(), true},
		"ManifestFree": {AnnotationIsUnmanaged, func(
			m metav1.ObjectMeta) bool {
			return (&Manifest{ObjectMeta: m}).IsUnmanaged()
		}, (*Manifest)(nil).IsUnmanaged(), true},
		"ManifestMust": {LabelMandatoryModule, func(
			m metav1.ObjectMeta) bool {
			return (&Manifest{ObjectMeta: m}).IsMandatory()
		}, (*Manifest)(nil).IsMandatory(), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.zero {
				t.Error("a nil object says yes")
			}
			for value, want := range map[string]bool{"true": true, "True": !tc.exact, "TRUE": !tc.exact, "false": false,
				"": false, "yes": false, "1": false, "true ": false} {
				if got := tc.ask(marked(tc.key, value)); got != want {
					t.Errorf("value %q: got %t, want %t", value, got, want)
				}
			}
			if tc.ask(metav1.ObjectMeta{}) {
				t.Error("an object without the key says yes")
			}
		})
	}
}

func TestManifestAccessors(t *testing.T) {
	var none *Manifest
	manifest := &Manifest{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{LabelKymaName: "runtime-a", LabelModuleName: "keda", LabelChannel: "fast"},
		Annotations: map[string]string{AnnotationFQDN: "old/name"},
	}}
	current := &Manifest{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationFQDN: "old/name",
		AnnotationOCMComponentName: "new/name"}},
		Spec: ManifestSpec{CustomResourcePolicy: Ignore}}
	got := []string{
		manifest.KymaName(), manifest.ModuleName(), manifest.Channel(), manifest.OCMComponentName(),
		current.OCMComponentName(),
		none.KymaName(), none.OCMComponentName(), string(manifest.Policy()),
		string(current.Policy()), string(none.Policy()),
	}
	want := []string{"runtime-a", "keda", "fast", "old/name", "new/name", "", "", "CreateAndDelete",
		"Ignore", "CreateAndDelete"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers differ (-want +got):\n%s", diff)
	}
}

func TestModuleReleaseMeta(t *testing.T) {
	var none *ModuleReleaseMeta
	channels := &ModuleReleaseMeta{Spec: ModuleReleaseMetaSpec{Channels: []ChannelVersion{{"regular", "1.0.0"},
		{"fast", "1.1.0"}}}}
	mandatory := &ModuleReleaseMeta{Spec: ModuleReleaseMetaSpec{Mandatory: &MandatoryVersion{Version: "1.0.0"}}}
	if version, found := channels.ChannelVersion("fast"); version != "1.1.0" || !found {
		t.Errorf("fast is %q, %t", version, found)
	}
	for name, m := range map[string]*ModuleReleaseMeta{"nil": none, "channels": channels, "mandatory": mandatory} {
		if version, found := m.ChannelVersion("experimental"); version != "" || found {
			t.Errorf("%s: a channel that is not there is %q, %t", name, version, found)
		}
	}
	if none.IsMandatory() || channels.IsMandatory() || !mandatory.IsMandatory() {
		t.Error("mandatory is wrong")
	}
	if got := ModuleTemplateName("keda", "1.1.0"); got != "keda-1.1.0" {
		t.Errorf("template is %q", got)
	}
}

func TestSelector(t *testing.T) {
	tests := map[string]struct {
		reason   string
		selector *Selector
		labels   labels.Set
		matches  bool
		empty    bool
		fails    bool
	}{
		"Nil": {reason: "nobody is selected", labels: labels.Set{"a": "b"}, empty: true},
		"Empty": {
			reason:   "everybody is selected",
			selector: &Selector{},
			labels:   labels.Set{"a": "b"},
			matches:  true,
			empty:    true,
		},
		"Label": {
			reason:   "the value is equal",
			selector: &Selector{MatchLabels: map[string]string{"a": "b"}},
			labels:   labels.Set{"a": "b"},
			matches:  true,
		},
		"OtherLabel": {
			reason:   "the value differs",
			selector: &Selector{MatchLabels: map[string]string{"a": "b"}},
			labels:   labels.Set{"a": "c"},
		},
		"In": {
			reason: "one of the values",
			selector: &Selector{MatchExpressions: []SelectorRequirement{{"a",
				metav1.LabelSelectorOpIn, []string{"b", "c"}}}},
			labels:  labels.Set{"a": "c"},
			matches: true,
		},
		"BadKey": {
			reason:   "a key that no label can have",
			selector: &Selector{MatchExpressions: []SelectorRequirement{{"a b", metav1.LabelSelectorOpExists, nil}}},
			fails:    true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.selector.IsEmpty(); got != tc.empty {
				t.Errorf("%s: empty is %t, want %t", tc.reason, got, tc.empty)
			}
			compiled, err := tc.selector.Compile()
			if (err != nil) != tc.fails {
				t.Fatalf("%s: error is %v", tc.reason, err)
			}
			if err == nil && compiled.Matches(tc.labels) != tc.matches {
				t.Errorf("%s: matches is %t, want %t", tc.reason, !tc.matches, tc.matches)
			}
		})
	}
}

func TestManagerName(t *testing.T) {
	var none *Watcher
	labelled := metav1.ObjectMeta{Labels: map[string]string{LabelManagedBy: "from-label"}}
	got := []string{
		(&Watcher{ObjectMeta: labelled, Spec: WatcherSpec{Manager: "from-spec"}}).NotifiedManagerName(),
		(&Watcher{ObjectMeta: labelled}).NotifiedManagerName(),
		(&Watcher{}).NotifiedManagerName(),
		none.NotifiedManagerName(),
	}
	if diff := cmp.Diff([]string{"from-spec", "from-label", "", ""}, got); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
}

func TestWatcherAsksFor(t *testing.T) {
	type answers struct {
		Mode              WatcherMode
		Selector, Webhook string
		Failed            bool
	}
	cases := map[string]struct {
		reason  string
		watcher *Watcher
		want    answers
	}{
		"None": {"nothing is a Watcher of all", nil, answers{Mode: WatcherModeWatch}},
		"Empty": {"defaults", &Watcher{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w"}},
			answers{Mode: WatcherModeWatch, Webhook: "ns.w.operator.kyma-project.io"}},
		"Full": {"labels are in order", &Watcher{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w"},
			Spec: WatcherSpec{
				Mode: WatcherModeWebhook, LabelsToWatch: map[string]string{"b": "2", "a/x": "1"},
			}}, answers{Mode: WatcherModeWebhook, Selector: "a/x=1,b=2", Webhook: "ns.w.operator.kyma-project.io"}},
		"BadLabel": {"an agent could not read it",
			&Watcher{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w"}, Spec: WatcherSpec{
				LabelsToWatch: map[string]string{"a b": "1"},
			}}, answers{Mode: WatcherModeWatch, Webhook: "ns.w.operator.kyma-project.io", Failed: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			selector, err := c.watcher.LabelSelector()
			got := answers{Mode: c.watcher.ChangeDetectionMode(), Selector: selector,
				Webhook: c.watcher.WebhookName(), Failed: err != nil}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}
