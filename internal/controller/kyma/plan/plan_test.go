package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"
	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// manifestIn returns a Manifest of module keda in the given state, as if it was already reconciled.
func manifestIn(state v1beta2.State, operation string) *v1beta2.Manifest {
	return &v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a-keda-1", Generation: 3},
		Spec:       v1beta2.ManifestSpec{Version: "2.0.0"},
		Status: v1beta2.ManifestStatus{
			State: state, Version: "1.0.0", ObservedGeneration: 3,
			LastOperation: v1beta2.LastOperation{Operation: operation},
			Conditions: []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse,
				Reason: "WorkloadFailed"}},
		},
	}
}

// decided is a decision to install version 2.0.0 of module keda.
func decided() channel.Decision {
	return channel.Decision{Channel: "fast", Version: "2.0.0", Component: "kyma-project.io/module/keda",
		Template: &v1beta2.ModuleTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "keda-2.0.0", Generation: 1},
		}}
}

func TestEntry(t *testing.T) {
	former := &v1beta2.ModuleStatus{
		Name: "keda", Channel: "regular", Version: "1.0.0", State: v1beta2.StateReady,
		Manifest: newReference("v", "Manifest", "kcp-system", "a-keda-1", 2),
		Template: newReference("v", "ModuleTemplate", "kcp-system", "keda-1.0.0", 1),
	}
	blocked := channel.Decision{Channel: "slow", Blocker: &channel.Blocker{Code: "ChannelNotFound",
		Message: "no such channel", KeepInstalled: true}}
	unknown := channel.Decision{Blocker: &channel.Blocker{Code: "ModuleNotFound", Message: "no such module",
		KeepInstalled: true}}
	unseen := manifestIn(v1beta2.StateReady, "")
	unseen.Generation = 4
	leaving := manifestIn(v1beta2.StateDeleting, "waiting for ConfigMap x")
	leaving.DeletionTimestamp = new(metav1.Now())
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	busy := func(since time.Duration) *v1beta2.Manifest {
		m := manifestIn(v1beta2.StateProcessing, "1 of 3")
		m.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-since))
		return m
	}
	type want struct {
		State                             v1beta2.State
		Version, Channel, Reason, Message string
		Manifest, Template                string
	}
	cases := map[string]struct {
		reason string
		module Module
		want   want
	}{
		"New": {"nothing is there yet", Module{Decision: decided()},
			want{State: "Processing", Channel: "fast", Template: "keda-2.0.0"}},
		"Ready": {"state and version are those of the same moment",
			Module{Decision: decided(), Manifest: manifestIn("Ready", "")},
			want{State: "Ready", Version: "1.0.0", Channel: "fast", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Outdated": {"the status of a Manifest before its change does not count",
			Module{Decision: decided(), Manifest: unseen}, want{State: "Processing", Version: "1.0.0", Channel: "fast",
				Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Failing": {"the reason is the Manifest's",
			Module{Decision: decided(), Manifest: manifestIn("Error", "crash")},
			want{State: "Error", Version: "1.0.0", Channel: "fast", Reason: "WorkloadFailed", Message: "crash",
				Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Busy": {"a module that is not slow is not explained",
			Module{Decision: decided(), Manifest: busy(SlowModuleDelay - 1)},
			want{State: "Processing", Version: "1.0.0", Channel: "fast", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Slow": {"a slow module is explained", Module{Decision: decided(), Manifest: busy(SlowModuleDelay)},
			want{State: "Processing", Version: "1.0.0", Channel: "fast", Reason: "WorkloadFailed", Message: "1 of 3",
				Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Blocked": {"references are kept when a lookup fails",
			Module{Decision: blocked, Former: former, Manifest: manifestIn("Ready", "")},
			want{State: "Warning", Version: "1.0.0", Channel: "slow", Reason: "ChannelNotFound",
				Message: "no such channel", Manifest: "a-keda-1", Template: "keda-1.0.0"}},
		"Pinned": {"a pinned module follows no channel",
			Module{Decision: channel.Decision{Module: "keda", Template: decided().Template}, Former: former,
				Spec: v1beta2.Module{Version: "2.0.0"}, Manifest: manifestIn("Ready", "")},
			want{State: "Ready", Version: "1.0.0", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"BlockedAtOnce": {"a module that never ran is an error", Module{Decision: blocked},
			want{State: "Error", Channel: "slow", Reason: "ChannelNotFound", Message: "no such channel"}},
		"UnknownModule": {"clients of Kyma expect a Warning", Module{Decision: unknown},
			want{State: "Warning", Reason: "ModuleNotFound", Message: "no such module"}},
		"RegistryDown": {"a failed update is an error, with the installed version",
			Module{Decision: decided(), Former: former, Manifest: manifestIn("Ready", ""),
				Err: errors.New("registry is down")}, want{State: "Error", Version: "1.0.0", Channel: "fast",
				Message: "registry is down", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Leaving": {"the blocker is reported", Module{Manifest: leaving, Former: former},
			want{State: "Deleting", Version: "2.0.0", Channel: "regular", Reason: "WorkloadFailed",
				Message: "waiting for ConfigMap x", Manifest: "a-keda-1", Template: "keda-1.0.0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.module.Spec.Name = "keda"
			e := entryOf(&c.module, now)
			got := want{State: e.State, Version: e.Version, Channel: e.Channel, Reason: e.Reason, Message: e.Message}
			if e.Manifest != nil {
				got.Manifest = e.Manifest.Metadata.Name
			}
			if e.Template != nil {
				got.Template = e.Template.Metadata.Name
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestDesiredManifest(t *testing.T) {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "kyma-a", Namespace: "kcp-system", UID: "u"}}
	m := &Module{Spec: v1beta2.Module{Name: "template-operator"}, Decision: decided()}
	m.Decision.Component = "kyma-project.io/module/template-operator"
	m.Decision.Template.Spec.Data = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
		"kind": "Sample"}}
	a, err := ArtefactIn(&registry.Component{Images: []string{"i:1"}, Order: []string{"readme", "raw-manifest",
		"config", "default-cr"}, Layers: map[string]registry.Layer{
		"raw-manifest": {Repo: "r", Component: "n", Ref: "sha256:x", Type: registry.OCIDir},
		"config":       {Repo: "r", Component: "n", Ref: "sha256:c", Type: registry.OCIRef},
		"default-cr":   {Repo: "r", Component: "n", Ref: "sha256:d", Type: registry.OCIRef},
		"readme":       {Repo: "r", Component: "n", Ref: "sha256:e", Type: registry.OCIRef},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := DesiredManifest(k, m, a, time.Time{})
	if want.Spec.Install.Name != "raw-manifest" || want.Spec.Installs != nil ||
		want.Spec.Config.Ref != "sha256:c" || want.Spec.CRDs != nil {
		t.Errorf("installs %+v and %+v with config %+v and crds %+v, want raw-manifest with its config alone",
			want.Spec.Install, want.Spec.Installs, want.Spec.Config, want.Spec.CRDs)
	}
	if want.Name != "kyma-a-template-operator-2235966007" {
		t.Errorf("name is %s, want the one that clients compute", want.Name)
	}
	if cr := want.Spec.Resource; cr.GetName() != want.Name || cr.GetNamespace() != "kyma-system" {
		t.Errorf("an unnamed custom resource becomes %s/%s, want kyma-system and the Manifest's name",
			cr.GetNamespace(), cr.GetName())
	}
	if m.Decision.Template.Spec.Data.GetName() != "" {
		t.Error("the template of the cache was changed")
	}
	if again := WithDesired(want, want.DeepCopy()); again != nil {
		t.Error("a Manifest that says what it should is patched")
	}
	edited := want.DeepCopy()
	edited.Spec.Version = "9.9.9"
	if healed := WithDesired(edited, want); healed == nil || healed.Spec.Version != "2.0.0" {
		t.Error("an edited version is not put right")
	}
	m.Manifest = want.DeepCopy()
	m.Manifest.Labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByLifecycleManager
	m.Decision.Component = "example.com/renamed"
	if renamed := DesiredManifest(k, m, a, time.Time{}); renamed.Name != want.Name ||
		renamed.Spec.Resource.GetName() != want.Name ||
		renamed.Annotations[v1beta2.AnnotationFQDN] != "example.com/renamed" {
		t.Errorf("with another component it is %s with %s, want the Manifest that is there", renamed.Name,
			renamed.Spec.Resource.GetName())
	}
	m.Manifest.OwnerReferences, m.Manifest.Labels = nil, nil
	if theirs := DesiredManifest(k, m, a, time.Time{}); theirs.Name == want.Name {
		t.Error("a Manifest that a person has written is taken over")
	}
	reordered := want.DeepCopy()
	reordered.Spec.Install.Source.Raw = []byte(`{"type":"oci-dir","ref":"sha256:x","name":"n","repo":"r"}`)
	if WithDesired(reordered, want) != nil {
		t.Error("another order of keys in raw JSON counts as a change")
	}
}

// TestManifestOnControlPlane checks that each Kyma has its own custom resource on the control plane, whatever name and
// namespace the template has.
func TestManifestOnControlPlane(t *testing.T) {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "kyma-a", Namespace: "kcp-system"}}
	m := &Module{Spec: v1beta2.Module{Name: "panel"}, Decision: decided()}
	m.Decision.Component, m.Decision.Target = "example.com/panel", v1beta2.TargetControlPlane
	m.Decision.Template.Spec.Data = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
		"kind": "Panel", "metadata": map[string]any{"name": "default", "namespace": "kyma-system"}}}
	here := DesiredManifest(k, m, Artefact{}, time.Time{})
	if here.Spec.Target != v1beta2.TargetControlPlane || here.Labels[v1beta2.LabelTarget] != "control-plane" {
		t.Errorf("target %q, labels %v", here.Spec.Target, here.Labels)
	}
	if cr := here.Spec.Resource; cr.GetName() != here.Name || cr.GetNamespace() != "kcp-system" {
		t.Errorf("the custom resource is %s/%s", cr.GetNamespace(), cr.GetName())
	}
	m.Decision.Target = ""
	remote := WithDesired(here, DesiredManifest(k, m, Artefact{}, time.Time{}))
	if remote == nil || remote.Spec.Target != "" || remote.Labels[v1beta2.LabelTarget] != "" {
		t.Errorf("without the target it is %+v", remote)
	}
	recorded := here.DeepCopy()
	recorded.Status.Target, recorded.Status.AppliedDigest = v1beta2.TargetControlPlane, "sha256:a"
	for reason, tc := range map[string]struct {
		manifest *v1beta2.Manifest
		want     v1beta2.Target
	}{
		"no Manifest":       {nil, ""},
		"nothing installed": {here, ""},
		"installed":         {recorded, v1beta2.TargetControlPlane},
	} {
		if is := targetIfInstalled(tc.manifest); is != tc.want {
			t.Errorf("%s: %q, want %q", reason, is, tc.want)
		}
	}
}

// TestEditedSources checks that the digest in the annotation covers each field that comes from the component
// descriptor.
func TestEditedSources(t *testing.T) {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "kcp-system", UID: "u"}}
	layer := registry.Layer{Repo: "r", Component: "n", Ref: "sha256:x", Type: registry.OCIDir}
	artefact, err := ArtefactIn(&registry.Component{Images: []string{"i:1"},
		Order:  []string{"raw-manifest", "config", "crds"},
		Layers: map[string]registry.Layer{"raw-manifest": layer, "config": layer, "crds": layer}})
	if err != nil {
		t.Fatal(err)
	}
	want := DesiredManifest(k, &Module{Spec: v1beta2.Module{Name: "keda"}, Decision: decided()}, artefact,
		time.Time{})
	cases := map[string]struct {
		reason string
		edit   func(m *v1beta2.Manifest)
		edited bool
	}{
		"Same": {reason: "nothing is edited", edit: func(*v1beta2.Manifest) {}},
		"OrderOfKeys": {reason: "the API server sorts raw JSON", edit: func(m *v1beta2.Manifest) {
			m.Spec.Install.Source.Raw = []byte(`{"type":"oci-dir","ref":"sha256:x","name":"n","repo":"r"}`)
		}},
		"Resource": {reason: "it comes from the template", edit: func(m *v1beta2.Manifest) {
			m.Spec.StateExpression = "true"
		}},
		"Ref": {reason: "another layer", edited: true, edit: func(m *v1beta2.Manifest) {
			m.Spec.Install.Source.Raw = []byte(`{"type":"oci-dir","ref":"sha256:y","name":"n","repo":"r"}`)
		}},
		"Credentials": {reason: "another login", edited: true, edit: func(m *v1beta2.Manifest) {
			m.Spec.Install.Source.Raw = []byte(`{"type":"oci-dir","ref":"sha256:x","name":"n","repo":"r",` +
				`"credSecretSelector":{"matchLabels":{"a":"b"}}}`)
		}},
		"Installs": {reason: "another source", edited: true, edit: func(m *v1beta2.Manifest) {
			m.Spec.Installs, m.Spec.Install = []v1beta2.InstallInfo{m.Spec.Install}, v1beta2.InstallInfo{}
		}},
		"Images": {reason: "no image", edited: true, edit: func(m *v1beta2.Manifest) {
			m.Spec.LocalizedImages = nil
		}},
		"Config": {reason: "no config", edited: true, edit: func(m *v1beta2.Manifest) { m.Spec.Config = nil }},
		"CRDs":   {reason: "other CRDs", edited: true, edit: func(m *v1beta2.Manifest) { m.Spec.CRDs.Ref = "2" }},
		"Version": {reason: "another version", edited: true, edit: func(m *v1beta2.Manifest) {
			m.Spec.Version = "9.9.9"
		}},
		"NoDigest": {reason: "a Manifest of an earlier release", edit: func(m *v1beta2.Manifest) {
			delete(m.Annotations, v1beta2.AnnotationRequestedSources)
			m.Spec.LocalizedImages = nil
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			is := want.DeepCopy()
			c.edit(is)
			if got := HasEditedVersionOrSources(is); got != c.edited {
				t.Errorf("%s: edited is %v, want %v", c.reason, got, c.edited)
			}
		})
	}
	earlier := want.DeepCopy()
	delete(earlier.Annotations, v1beta2.AnnotationRequestedSources)
	if WithDesired(earlier, want) != nil {
		t.Error("a Manifest of an earlier release is written only to get the annotation")
	}
	earlier.Spec.LocalizedImages = nil
	if updated := WithDesired(earlier, want); updated == nil ||
		updated.Annotations[v1beta2.AnnotationRequestedSources] == "" {
		t.Error("the first change of a Manifest of an earlier release does not add the annotation")
	}
}

func TestVersions(t *testing.T) {
	cases := map[string]struct {
		reason                  string
		spec, status, annotated string
		installed, ordered      string
		deleting                bool
	}{
		"New": {
			reason:    "it was not reconciled yet",
			spec:      "1.0.0",
			annotated: "1.0.0",
			installed: "1.0.0",
			ordered:   "1.0.0",
		},
		"Installed": {
			reason:    "all is well",
			spec:      "1.0.0",
			status:    "1.0.0",
			annotated: "1.0.0",
			installed: "1.0.0",
			ordered:   "1.0.0",
		},
		"UnderWay": {
			reason:    "an update",
			spec:      "2.0.0",
			status:    "1.0.0",
			annotated: "2.0.0",
			installed: "1.0.0",
			ordered:   "2.0.0",
		},
		"Edited": {
			reason:    "what somebody writes is no order",
			spec:      "9.9.9",
			status:    "1.0.0",
			annotated: "1.0.0",
			installed: "1.0.0",
			ordered:   "1.0.0",
		},
		"TakenAtWord": {
			reason:    "nor what is installed",
			spec:      "9.9.9",
			status:    "9.9.9",
			annotated: "1.0.0",
			installed: "1.0.0",
			ordered:   "1.0.0",
		},
		"OfOthers": {
			reason:    "of a Manifest of another manager its spec is all that is known",
			spec:      "2.0.0",
			status:    "1.0.0",
			installed: "1.0.0",
			ordered:   "2.0.0",
		},
		"Leaving": {
			reason:    "nothing is left to compare with",
			spec:      "1.0.0",
			status:    "1.0.0",
			annotated: "1.0.0",
			deleting:  true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1beta2.Manifest{Spec: v1beta2.ManifestSpec{Version: c.spec},
				Status: v1beta2.ManifestStatus{Version: c.status}}
			if c.annotated != "" {
				m.Annotations = map[string]string{v1beta2.AnnotationRequestedVersion: c.annotated}
			}
			if c.deleting {
				m.DeletionTimestamp = new(metav1.Now())
			}
			if installed, ordered := InstalledOrRequestedVersion(m),
				VersionWrittenByController(m); installed != c.installed ||
				ordered != c.ordered {
				t.Errorf("%s: installed is %q and ordered %q, want %q and %q", c.reason, installed,
					ordered, c.installed, c.ordered)
			}
		})
	}
	if InstalledOrRequestedVersion(nil) != "" || VersionWrittenByController(nil) != "" {
		t.Error("what is not there has a version")
	}
}

// TestVersionWithEmptyInventory checks that a Manifest with no object in the runtime counts as not installed, unless
// the runtime was taken over: the former owner may have installed the module under a name that is not known.
func TestVersionWithEmptyInventory(t *testing.T) {
	m := &v1beta2.Manifest{Status: v1beta2.ManifestStatus{AppliedDigest: v1beta2.DigestUnknown}}
	m.Annotations = map[string]string{v1beta2.AnnotationRuntimeVersion: "2.0.0"}
	if got := InstalledOrRequestedVersion(m); got != "" {
		t.Errorf("the module was removed: got version %q, want none", got)
	}
	m.Annotations[ownership.AnnotationFormerInstallation] = "kcp-system/runtime-a-keda-1"
	if got := InstalledOrRequestedVersion(m); got != "2.0.0" || AwaitsInventory(m) {
		t.Errorf("the runtime was taken over: got version %q, want that in the runtime", got)
	}
}

// TestSameSpecOfInvalidJSON checks that specs that cannot be encoded are not equal.
func TestSameSpecOfInvalidJSON(t *testing.T) {
	spec := func(source, version string) *v1beta2.ManifestSpec {
		s := &v1beta2.ManifestSpec{Version: version}
		s.Install.Source.Raw = []byte(source)
		return s
	}
	cases := map[string]struct {
		reason string
		a, b   *v1beta2.ManifestSpec
		want   bool
	}{
		"Same":   {"the same text", spec("{", "1.0.0"), spec("{", "1.0.0"), true},
		"Both":   {"both are invalid and different", spec("{", "1.0.0"), spec("[", "2.0.0"), false},
		"First":  {"the first is invalid", spec("{", "1.0.0"), spec("{}", "1.0.0"), false},
		"Second": {"the second is invalid", spec("{}", "1.0.0"), spec("{", "1.0.0"), false},
		"Ordered": {"the order of keys has no meaning", spec(`{"a":1,"b":2}`, "1.0.0"),
			spec(`{"b":2,"a":1}`, "1.0.0"), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := SameSpec(c.a, c.b); got != c.want {
				t.Errorf("%s: got %t, want %t", c.reason, got, c.want)
			}
		})
	}
}

func TestArtefactInEarlyModules(t *testing.T) {
	layer := registry.Layer{Repo: "r", Component: "n", Ref: "sha256:x", Type: registry.OCIRef}
	a, err := ArtefactIn(&registry.Component{Order: []string{"b-chart", "default-cr", "crds", "a-chart"},
		Layers: map[string]registry.Layer{"crds": layer, "b-chart": layer, "a-chart": layer, "default-cr": layer}})
	if err != nil || len(a.Installs) != 2 || a.Installs[0].Name != "b-chart" || a.Installs[1].Name != "a-chart" ||
		a.CRDs == nil || a.Install.Name != "" {
		t.Errorf("got %+v, %v; want both charts in the order of the descriptor, and the definitions", a, err)
	}
	if _, err = ArtefactIn(&registry.Component{Name: "n", Version: "1.0.0", Order: []string{"crds"},
		Layers: map[string]registry.Layer{"crds": layer}}); loop.Reason(err) != v1beta2.ReasonInvalidDescriptor {
		t.Errorf("nothing to install: got %v, want InvalidDescriptor", err)
	}
}

// TestArtefactInWithChart checks a component with the resource raw-manifest and with a chart in a chart repository:
// both are installed, and the other layers of the component are not.
func TestArtefactInWithChart(t *testing.T) {
	layer := registry.Layer{Repo: "r", Component: "n", Ref: "sha256:x", Type: registry.OCIRef}
	chart := registry.Chart{URL: "https://charts.example.com", Name: "shop", Version: "1.0.0"}
	a, err := ArtefactIn(&registry.Component{Order: []string{"docs", "shop", "raw-manifest", "config"},
		Layers: map[string]registry.Layer{"docs": layer, "raw-manifest": layer, "config": layer},
		Charts: map[string]registry.Chart{"shop": chart}})
	if err != nil || len(a.Installs) != 2 || a.Installs[0].Name != "shop" || a.Installs[1].Name != "raw-manifest" ||
		a.Install.Name != "" || a.Config == nil {
		t.Fatalf("got %+v, %v; want the chart and raw-manifest", a, err)
	}
	const want = `{"url":"https://charts.example.com","chartName":"shop","version":"1.0.0","type":"helm-chart"}`
	if got := string(a.Installs[0].Source.Raw); got != want {
		t.Errorf("the source of the chart is %s, want %s", got, want)
	}
}

func TestWorstIsBounded(t *testing.T) {
	var many []v1beta2.ModuleStatus
	for range 50 {
		many = append(many, v1beta2.ModuleStatus{Name: "m", State: v1beta2.StateError, Reason: "X", Message: "y"})
	}
	reason, line := SummarizeNotReady(many)
	if reason != "X" || !strings.HasSuffix(line, "and 40 more") {
		t.Errorf("worst of 50 is %q, %q", reason, line)
	}
}

func TestEntryWithBlocker(t *testing.T) {
	blocked := func(code string) channel.Decision {
		return channel.Decision{Channel: "fast", Version: "2.0.0", Installed: "1.0.0",
			Blocker: &channel.Blocker{Code: code, Message: "because", KeepInstalled: true}}
	}
	same := blocked(v1beta2.ReasonModulePaused)
	same.Version = "1.0.0"
	left := false
	cases := map[string]struct {
		reason string
		module Module
		want   v1beta2.ModuleStatus
	}{
		"Window": {"the installed version is Ready, and an update waits",
			Module{Decision: blocked("WaitingForWindow"), Manifest: manifestIn("Ready", "")},
			v1beta2.ModuleStatus{State: "Ready", Reason: "WaitingForWindow", Message: "because",
				Channel: "regular", Maintenance: true}},
		"WindowBroken": {"if it is not Ready, both are reported", Module{Decision: blocked("WaitingForWindow"),
			Manifest: manifestIn("Error", "crashes")}, v1beta2.ModuleStatus{State: "Error", Reason: "WaitingForWindow",
			Message: "because; crashes", Channel: "regular", Maintenance: true}},
		"NoWindow": {"the policy has to be corrected",
			Module{Decision: blocked("WindowUnknown"), Manifest: manifestIn("Ready", "")},
			v1beta2.ModuleStatus{State: "Error", Reason: "WindowUnknown", Message: "because", Channel: "regular"}},
		"Downgrade": {"the channel is that of the installed version", Module{Decision: blocked("DowngradeRefused"),
			Manifest: manifestIn("Ready", "")}, v1beta2.ModuleStatus{State: "Warning", Reason: "DowngradeRefused",
			Message: "because", Channel: "regular"}},
		"Paused": {"the requested version is installed",
			Module{Decision: same, Manifest: manifestIn("Ready", "")},
			v1beta2.ModuleStatus{State: "Ready", Reason: "ModulePaused", Message: "because", Channel: "fast"}},
		"PausedPending": {"another version is requested",
			Module{Decision: blocked("KymaPaused"), Manifest: manifestIn("Ready", "")},
			v1beta2.ModuleStatus{State: "Warning", Reason: "KymaPaused", Message: "because", Channel: "fast"}},
		"PausedNew": {"it was never installed", Module{Decision: same},
			v1beta2.ModuleStatus{State: "Warning", Reason: "ModulePaused", Message: "because", Channel: "fast"}},
		"Unmanaged": {"the user manages it", Module{Decision: decided(), IsRequested: true,
			Spec: v1beta2.Module{Managed: &left}, Manifest: manifestIn("Ready", "")},
			v1beta2.ModuleStatus{State: "Unmanaged", Channel: "fast"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.module.Former = &v1beta2.ModuleStatus{Channel: "regular", Version: "1.0.0"}
			e := entryOf(&c.module, time.Now())
			got := v1beta2.ModuleStatus{State: e.State, Reason: e.Reason, Message: e.Message, Channel: e.Channel,
				Maintenance: e.Maintenance}
			if diff := cmp.Diff(c.want, got); diff != "" || e.Version != "1.0.0" {
				t.Errorf("%s: version %s (-want +got):\n%s", c.reason, e.Version, diff)
			}
			if e.State == v1beta2.StateUnmanaged && (e.Manifest != nil || e.Template != nil || e.Resource != nil) {
				t.Error("an unmanaged module has references")
			}
		})
	}
}

func TestWithDesiredRemovesOurs(t *testing.T) {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "kcp-system", UID: "u"}}
	m := &Module{Spec: v1beta2.Module{Name: "keda"}, Decision: decided(), IsMandatory: true}
	mandatory := DesiredManifest(k, m, Artefact{}, time.Time{})
	mandatory.Annotations[v1beta2.AnnotationPaused] = "because"
	mandatory.Annotations["example.com/mine"] = "yes"
	mandatory.Annotations[ownership.AnnotationFormerInstallation] = "kcp-system/b-keda-1"
	m.IsMandatory, m.Decision.Channel = false, ""
	pinned := DesiredManifest(k, m, Artefact{}, time.Time{})
	updated := WithDesired(mandatory, pinned)
	if updated == nil {
		t.Fatal("nothing is changed")
	}
	for _, key := range []string{v1beta2.LabelMandatoryModule, v1beta2.LabelChannel} {
		if value, there := updated.Labels[key]; there {
			t.Errorf("label %s=%s is still there", key, value)
		}
	}
	if updated.Annotations[v1beta2.AnnotationPaused] != "" || updated.Annotations["example.com/mine"] != "yes" ||
		updated.Annotations[ownership.AnnotationFormerInstallation] != "" {
		t.Errorf("annotations are %v, want those of others alone", updated.Annotations)
	}
	if WithDesired(updated, pinned) != nil {
		t.Error("a Manifest that says what it should is patched")
	}
}

// TestManifestOf checks which Manifest a module has if there are several.
func TestManifestOf(t *testing.T) {
	named := func(name string, ours, mandatory, deleting bool) *v1beta2.Manifest {
		m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{v1beta2.LabelModuleName: "keda"}}}
		if ours {
			m.Labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByLifecycleManager
		}
		if mandatory {
			m.Labels[v1beta2.LabelMandatoryModule] = v1beta2.ValueTrue
		}
		if deleting {
			m.DeletionTimestamp = new(metav1.Now())
		}
		return m
	}
	for name, c := range map[string]struct {
		reason string
		a, b   *v1beta2.Manifest
		want   string
	}{
		"First":     {"both are ours", named("a", true, false, false), named("b", true, false, false), "a"},
		"Living":    {"the other is being deleted", named("a", true, false, true), named("b", true, false, false), "b"},
		"Mandatory": {"the other is mandatory", named("a", true, true, false), named("b", true, false, false), "b"},
		"OfUser":    {"a user has created a", named("a", false, false, false), named("b", true, false, false), "b"},
		"Later": {"ours is created again when it is deleted", named("a", false, false, false),
			named("b", true, false, true), "b"},
	} {
		if m := manifestOf(map[string]*v1beta2.Manifest{"a": c.a, "b": c.b}, "keda", false); m.Name != c.want {
			t.Errorf("%s: %s: got %s", name, c.reason, m.Name)
		}
	}
}

// TestHasRecordedContent has one case for each row of the table at HasRecordedContent, in the same order.
func TestHasRecordedContent(t *testing.T) {
	cases := map[string]struct {
		reason                     string
		content                    string // of the Manifest
		recorded, found, accepts   string // of the ModuleTemplate
		wantRecorded, wantNotKnown bool
	}{
		"Accepted":      {reason: "accepted content has to be read", content: "a", recorded: "a", found: "b", accepts: "b"},
		"Early":         {reason: "a Manifest of an earlier release stays", recorded: "a", wantRecorded: true},
		"EarlyUnknown":  {reason: "also without a record", wantRecorded: true},
		"EarlyAccepted": {reason: "unless other content was accepted", recorded: "b", accepts: "b"},
		"NoRecord":      {reason: "the template was created again", content: "a", wantNotKnown: true},
		"Equal":         {reason: "the usual case", content: "a", recorded: "a", wantRecorded: true},
		"Outdated":      {reason: "other content was accepted and recorded", content: "a", recorded: "b", accepts: "b"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			template := &v1beta2.ModuleTemplate{}
			template.Annotations = map[string]string{v1beta2.AnnotationContentDigest: c.recorded,
				v1beta2.AnnotationReplacedBy: c.found, v1beta2.AnnotationAcceptContent: c.accepts}
			has, known := Artefact{Content: c.content}.HasRecordedContent(template)
			if has != c.wantRecorded || known == c.wantNotKnown {
				t.Errorf("%s: got %v, known %v", c.reason, has, known)
			}
		})
	}
}

// TestContentOfManifest checks that a Manifest has the digest of its content. A Manifest of an earlier release is not
// rewritten only to add the digest. A changed digest is written even if nothing else has changed.
func TestContentOfManifest(t *testing.T) {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "kcp-system", UID: "u"}}
	m := &Module{Spec: v1beta2.Module{Name: "keda"}, Decision: decided()}
	early := DesiredManifest(k, m, Artefact{}, time.Time{})
	first := DesiredManifest(k, m, Artefact{Content: "a"}, time.Time{})
	if got := ArtefactOf(first).Content; got != "a" {
		t.Errorf("the content of a Manifest is %q", got)
	}
	if WithDesired(early, first) != nil {
		t.Error("a Manifest of an earlier release is written for its digest alone")
	}
	if updated := WithDesired(first, DesiredManifest(k, m, Artefact{Content: "b"}, time.Time{})); updated == nil ||
		ArtefactOf(updated).Content != "b" {
		t.Error("a Manifest keeps the digest of other content")
	}
}

func TestVisibleState(t *testing.T) {
	cases := map[string]struct {
		reason               string
		state, want          v1beta2.State
		generation, observed int64
		refused              int64 // generation of the condition, 0 without the condition
	}{
		"Observed": {
			reason:     "the status is current",
			state:      v1beta2.StateReady,
			want:       v1beta2.StateReady,
			generation: 3,
			observed:   3,
		},
		"Outdated": {
			reason:     "the status is that before the change",
			state:      v1beta2.StateReady,
			want:       v1beta2.StateProcessing,
			generation: 4,
			observed:   3,
		},
		"New": {reason: "there is no status yet", want: v1beta2.StateProcessing, generation: 3, observed: 3},
		"Refused": {
			reason:     "the API server refuses the status of this change",
			state:      v1beta2.StateError,
			want:       v1beta2.StateError,
			generation: 4,
			observed:   3,
			refused:    4,
		},
		"RefusedBefore": {
			reason:     "the API server refused the status before the change",
			state:      v1beta2.StateError,
			want:       v1beta2.StateProcessing,
			generation: 4,
			observed:   2,
			refused:    3,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := manifestIn(c.state, "")
			m.Generation, m.Status.ObservedGeneration = c.generation, c.observed
			if c.refused > 0 {
				m.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReady, ObservedGeneration: c.refused,
					Status: metav1.ConditionFalse, Reason: v1beta2.ReasonStatusNotSaved, Message: "refused"}}
			}
			if got := VisibleState(m); got != c.want {
				t.Errorf("%s: got %s, want %s", c.reason, got, c.want)
			}
			if got := VisibleMessage(m); (got == "refused") != (c.refused > 0 && c.refused == c.generation) {
				t.Errorf("%s: the message is %q", c.reason, got)
			}
		})
	}
}

// TestUpgradeDeleted checks which version a module gets while its Manifest is being deleted.
func TestUpgradeDeleted(t *testing.T) {
	leaving := func(change func(*v1beta2.Manifest)) *v1beta2.Manifest {
		m := manifestIn(v1beta2.StateDeleting, "")
		m.DeletionTimestamp = new(metav1.Now())
		m.Spec.Version = "1.0.0"
		m.Annotations = map[string]string{v1beta2.AnnotationOCMComponentName: "example.com/keda"}
		if change != nil {
			change(m)
		}
		return m
	}
	to := func(version string, change func(*channel.Decision)) channel.Decision {
		d := channel.Decision{Version: version, Component: "example.com/keda", Template: &v1beta2.ModuleTemplate{}}
		if change != nil {
			change(&d)
		}
		return d
	}
	cases := map[string]struct {
		reason   string
		manifest *v1beta2.Manifest
		decision channel.Decision
		want     bool
	}{
		"Higher": {"the new operator may finish the deletion", leaving(nil), to("1.0.1", nil), true},
		"Same":   {"nothing to do", leaving(nil), to("1.0.0", nil), false},
		"Lower":  {"never a downgrade", leaving(nil), to("0.9.0", nil), false},
		"NotDeleted": {"this is an ordinary upgrade",
			leaving(func(m *v1beta2.Manifest) { m.DeletionTimestamp = nil }), to("1.0.1", nil), false},
		"None": {"nothing is deleted", nil, to("1.0.1", nil), false},
		"Blocked": {"this version must not be installed", leaving(nil),
			to("1.0.1", func(d *channel.Decision) { d.Blocker = &channel.Blocker{Code: "WaitingForWindow"} }), false},
		"OtherComponent": {"another component has another operator", leaving(nil),
			to("1.0.1", func(d *channel.Decision) { d.Component = "example.com/other" }), false},
		"OtherCluster": {"the objects are on another cluster", leaving(nil),
			to("1.0.1", func(d *channel.Decision) { d.Target = v1beta2.TargetControlPlane }), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := upgradeDuringDeletion(c.manifest, c.decision); (got != nil) != c.want {
				t.Errorf("%s: got %v", c.reason, got)
			}
		})
	}
}

// TestWithOperatorOf checks that the deletion of a Manifest waits for the custom resource of the former version.
func TestWithOperatorOf(t *testing.T) {
	resource := func(name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetName(name)
		return u
	}
	is, want := manifestIn(v1beta2.StateDeleting, ""), manifestIn("", "")
	is.Finalizers = []string{"somebody"}
	is.Annotations = map[string]string{"theirs": "kept", v1beta2.AnnotationContentDigest: "old"}
	is.Spec = v1beta2.ManifestSpec{Version: "1.0.0", Resource: resource("old"), CustomResourcePolicy: v1beta2.Ignore}
	want.Annotations = map[string]string{v1beta2.AnnotationRequestedVersion: "2.0.0"}
	want.Spec = v1beta2.ManifestSpec{Version: "2.0.0", Resource: resource("new"),
		CustomResourcePolicy: v1beta2.CreateAndDelete}
	got := WithSpecKeepingResource(is, want)
	if got.Spec.Version != "2.0.0" || got.Spec.Resource.GetName() != "old" ||
		got.Spec.CustomResourcePolicy != v1beta2.Ignore {
		t.Errorf("got spec %+v", got.Spec)
	}
	if diff := cmp.Diff(map[string]string{"theirs": "kept", v1beta2.AnnotationRequestedVersion: "2.0.0"},
		got.Annotations); diff != "" || is.Spec.Version != "1.0.0" {
		t.Errorf("annotations differ, or the Manifest was changed (-want +got):\n%s", diff)
	}
}

// TestResolveLostRelease checks that a mandatory module stays in the runtime if a restored control plane has lost both
// its Manifest, which the Kyma controller has created again, and its ModuleReleaseMeta.
func TestResolveLostRelease(t *testing.T) {
	recreated := func(edit func(*v1beta2.Manifest)) *v1beta2.Manifest {
		m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kcp-system", Name: "a-guard-1",
			Labels: map[string]string{v1beta2.LabelModuleName: "guard", v1beta2.LabelMandatoryModule: v1beta2.ValueTrue,
				v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager},
			Annotations: map[string]string{v1beta2.AnnotationRuntimeVersion: "2.0.0"},
		}}
		if edit != nil {
			edit(m)
		}
		return m
	}
	cases := map[string]struct {
		reason   string
		manifest *v1beta2.Manifest
		stays    bool
	}{
		"NotReadYet": {"the inventory is not known yet", recreated(nil), true},
		"Installed": {"the runtime has its objects", recreated(func(m *v1beta2.Manifest) {
			m.Status.Synced = []v1beta2.Resource{{Kind: "ConfigMap", Name: "x"}}
			m.Status.AppliedDigest, m.Status.Version = v1beta2.DigestUnknown, "2.0.0"
		}), true},
		"Absent": {"it was removed just before the manager stopped", recreated(func(m *v1beta2.Manifest) {
			m.Status.AppliedDigest = v1beta2.DigestUnknown
		}), false},
		"Kept": {"it was removed just before the manager stopped, and one of its objects stays",
			recreated(func(m *v1beta2.Manifest) {
				m.Status.Synced = []v1beta2.Resource{{Kind: "ConfigMap", Name: "x", Keep: true}}
				m.Status.AppliedDigest, m.Status.Version = v1beta2.DigestUnknown, "2.0.0"
			}), false},
		"Deleted": {"a person removes it", recreated(func(m *v1beta2.Manifest) {
			m.DeletionTimestamp = new(metav1.Now())
		}), false},
		"Removed": {"the Manifest was not lost, so somebody has removed the ModuleReleaseMeta",
			recreated(func(m *v1beta2.Manifest) { m.Spec.Version = "2.0.0" }), false},
		"Disabled": {"the admin of the runtime disables a module that is not mandatory",
			recreated(func(m *v1beta2.Manifest) { delete(m.Labels, v1beta2.LabelMandatoryModule) }), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Resolve(Inputs{Kyma: &v1beta2.Kyma{}, Remote: &v1beta2.Kyma{},
				Manifests: map[string]*v1beta2.Manifest{c.manifest.Name: c.manifest}})
			if len(got) != 1 || got[0].Manifest != c.manifest || got[0].IsRequested != c.stays {
				t.Fatalf("%s: got %+v, want that it stays: %t", c.reason, got, c.stays)
			}
			b := got[0].Decision.Blocker
			if !c.stays {
				if b != nil {
					t.Errorf("%s: got %v, want no blocker", c.reason, b)
				}
				return
			}
			if b == nil || b.Code != v1beta2.ReasonRestoredOlder || !b.KeepInstalled ||
				!strings.Contains(b.Message, "version 2.0.0 of the mandatory module guard") ||
				!strings.Contains(b.Message, "kubectl delete -n kcp-system manifest a-guard-1") {
				t.Errorf("%s: got %v, want a blocker that keeps version 2.0.0", c.reason, b)
			}
			before := []v1beta2.MandatoryModuleStatus{{Name: "guard", Version: "2.0.0"}}
			if kept := InstalledMandatory(got, before); len(kept) != 1 {
				t.Errorf("%s: the status has %v, want the entry in the runtime", c.reason, kept)
			}
		})
	}
}
