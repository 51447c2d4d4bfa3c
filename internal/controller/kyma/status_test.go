package kyma

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// manifestIn returns a Manifest of module keda that was looked at and is in the given state.
func manifestIn(state v1beta2.State, operation string) *v1beta2.Manifest {
	return &v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a-keda-1", Generation: 3},
		Spec:       v1beta2.ManifestSpec{Version: "2.0.0"},
		Status: v1beta2.ManifestStatus{
			State: state, Version: "1.0.0", ObservedGeneration: 3, LastOperation: v1beta2.LastOperation{Operation: operation},
			Conditions: []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse, Reason: "WorkloadFailed"}},
		},
	}
}

// decided is a decision for version 2.0.0 of keda.
func decided() channel.Decision {
	return channel.Decision{Channel: "fast", Version: "2.0.0", Component: "kyma-project.io/module/keda", Template: &v1beta2.ModuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "keda-2.0.0", Generation: 1},
	}}
}

func TestEntry(t *testing.T) {
	former := &v1beta2.ModuleStatus{
		Name: "keda", Channel: "regular", Version: "1.0.0", State: v1beta2.StateReady,
		Manifest: tracking("v", "Manifest", "kcp-system", "a-keda-1", 2), Template: tracking("v", "ModuleTemplate", "kcp-system", "keda-1.0.0", 1),
	}
	blocked := channel.Decision{Channel: "slow", Blocker: &channel.Blocker{Code: "ChannelNotFound", Message: "no such channel", KeepInstalled: true}}
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
		module module
		want   want
	}{
		"New":           {"nothing is there yet", module{decision: decided()}, want{State: "Processing", Channel: "fast", Template: "keda-2.0.0"}},
		"Ready":         {"state and version are those of the same moment", module{decision: decided(), manifest: manifestIn("Ready", "")}, want{State: "Ready", Version: "1.0.0", Channel: "fast", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"NotLookedAt":   {"what a Manifest said before its change is not true of it any more", module{decision: decided(), manifest: unseen}, want{State: "Processing", Version: "1.0.0", Channel: "fast", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Failing":       {"the reason is the Manifest's", module{decision: decided(), manifest: manifestIn("Error", "crash")}, want{State: "Error", Version: "1.0.0", Channel: "fast", Reason: "WorkloadFailed", Message: "crash", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Busy":          {"what is quick needs no words", module{decision: decided(), manifest: busy(patience - 1)}, want{State: "Processing", Version: "1.0.0", Channel: "fast", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Slow":          {"what is slow says why", module{decision: decided(), manifest: busy(patience)}, want{State: "Processing", Version: "1.0.0", Channel: "fast", Reason: "WorkloadFailed", Message: "1 of 3", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Blocked":       {"references are not lost because a lookup failed", module{decision: blocked, former: former, manifest: manifestIn("Ready", "")}, want{State: "Warning", Version: "1.0.0", Channel: "slow", Reason: "ChannelNotFound", Message: "no such channel", Manifest: "a-keda-1", Template: "keda-1.0.0"}},
		"BlockedAtOnce": {"a module that never ran needs the user too", module{decision: blocked}, want{State: "Warning", Channel: "slow", Reason: "ChannelNotFound", Message: "no such channel"}},
		"RegistryDown":  {"a failure to update is an error, with what runs", module{decision: decided(), former: former, manifest: manifestIn("Ready", ""), err: errors.New("registry is down")}, want{State: "Error", Version: "1.0.0", Channel: "fast", Message: "registry is down", Manifest: "a-keda-1", Template: "keda-2.0.0"}},
		"Leaving":       {"what blocks is said", module{manifest: leaving, former: former}, want{State: "Deleting", Version: "2.0.0", Channel: "regular", Reason: "WorkloadFailed", Message: "waiting for ConfigMap x", Manifest: "a-keda-1", Template: "keda-1.0.0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.module.wish.Name = "keda"
			e := (&run{now: now}).entry(&c.module)
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

func TestState(t *testing.T) {
	down := &runtimes.Error{Code: "RuntimeUnreachable", Runtime: "a", Message: "does not answer"}
	entry := func(state v1beta2.State) v1beta2.ModuleStatus {
		return v1beta2.ModuleStatus{Name: strings.ToLower(string(state)), State: state}
	}
	cases := map[string]struct {
		reason   string
		modules  []v1beta2.ModuleStatus
		unknown  bool // the pass did not get as far as the modules
		deleting bool
		out      loop.Outcome
		want     v1beta2.State
		ready    string // reason of condition Ready
	}{
		"NoModules":       {"nothing wanted, nothing missing", nil, false, false, loop.Outcome{}, "Ready", "Ready"},
		"AllReady":        {"as it says", []v1beta2.ModuleStatus{entry("Ready"), entry("Unmanaged")}, false, false, loop.Outcome{}, "Ready", "Ready"},
		"OneBusy":         {"one module on its way", []v1beta2.ModuleStatus{entry("Ready"), entry("Processing")}, false, false, loop.Outcome{}, "Processing", "ModulesNotReady"},
		"OneLeaving":      {"one module on its way out", []v1beta2.ModuleStatus{entry("Deleting")}, false, false, loop.Outcome{}, "Processing", "ModulesNotReady"},
		"WarningOverBusy": {"people first", []v1beta2.ModuleStatus{entry("Processing"), entry("Warning")}, false, false, loop.Outcome{}, "Warning", "ModulesNotReady"},
		"ErrorOverAll":    {"the worst decides", []v1beta2.ModuleStatus{entry("Warning"), entry("Error"), entry("Ready")}, false, false, loop.Outcome{}, "Error", "ModulesNotReady"},
		"Unreachable":     {"nothing is known", []v1beta2.ModuleStatus{entry("Ready")}, true, false, loop.Outcome{Step: "connect", Err: down}, "Error", "RuntimeUnreachable"},
		"Waiting":         {"a step waits", nil, true, false, loop.Outcome{Step: "mirror", Waiting: "a kind"}, "Processing", "Applying"},
		"Deleting":        {"deletion outweighs all", []v1beta2.ModuleStatus{entry("Error")}, false, true, loop.Outcome{Err: down}, "Deleting", "RuntimeUnreachable"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 1}}
			if c.deleting {
				k.DeletionTimestamp = new(metav1.Now())
			}
			k.Status.Modules = c.modules
			n := &run{Reconciler: &Reconciler{}, kyma: k, remote: &v1beta2.Kyma{}, known: !c.unknown}
			for _, e := range c.modules {
				n.modules = append(n.modules, module{wish: v1beta2.Module{Name: e.Name}, former: &e, wanted: true, manifest: func() *v1beta2.Manifest {
					m := manifestIn(e.State, "")
					m.Status.Conditions = nil
					return m
				}()})
			}
			n.report(c.out)
			if k.Status.State != c.want {
				t.Errorf("%s: state is %s (%s), want %s", c.reason, k.Status.State, k.Status.LastOperation.Operation, c.want)
			}
			if r := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionReady); r.Reason != c.ready {
				t.Errorf("%s: reason of Ready is %s (%s), want %s", c.reason, r.Reason, r.Message, c.ready)
			}
			before := k.Status.DeepCopy()
			n.report(c.out)
			if diff := cmp.Diff(*before, k.Status); diff != "" {
				t.Errorf("a second report changes the status:\n%s", diff)
			}
		})
	}
}

func TestDesiredManifest(t *testing.T) {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "kyma-a", Namespace: "kcp-system", UID: "u"}}
	m := &module{wish: v1beta2.Module{Name: "template-operator"}, decision: decided()}
	m.decision.Component = "kyma-project.io/module/template-operator"
	m.decision.Template.Spec.Data = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Sample"}}
	a, err := artefactIn(&registry.Component{Images: []string{"i:1"}, Layers: map[string]registry.Layer{
		"raw-manifest": {Repo: "r", Component: "n", Ref: "sha256:x", Type: registry.OCIDir},
		"config":       {Repo: "r", Component: "n", Ref: "sha256:c", Type: registry.OCIRef},
		"default-cr":   {Repo: "r", Component: "n", Ref: "sha256:d", Type: registry.OCIRef},
		"readme":       {Repo: "r", Component: "n", Ref: "sha256:e", Type: registry.OCIRef},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := desiredManifest(k, m, a)
	if want.Spec.Install.Name != "raw-manifest" || want.Spec.Installs != nil || want.Spec.Config.Ref != "sha256:c" || want.Spec.CRDs != nil {
		t.Errorf("installs %+v and %+v with config %+v and crds %+v, want raw-manifest with its config alone", want.Spec.Install, want.Spec.Installs, want.Spec.Config, want.Spec.CRDs)
	}
	if want.Name != "kyma-a-template-operator-2235966007" {
		t.Errorf("name is %s, want the one that clients compute", want.Name)
	}
	if cr := want.Spec.Resource; cr.GetName() != want.Name || cr.GetNamespace() != "kyma-system" {
		t.Errorf("an unnamed custom resource becomes %s/%s, want kyma-system and the Manifest's name", cr.GetNamespace(), cr.GetName())
	}
	if m.decision.Template.Spec.Data.GetName() != "" {
		t.Error("the template of the cache was changed")
	}
	if again := withDesired(want, want.DeepCopy()); again != nil {
		t.Error("a Manifest that says what it should is patched")
	}
	edited := want.DeepCopy()
	edited.Spec.Version = "9.9.9"
	if healed := withDesired(edited, want); healed == nil || healed.Spec.Version != "2.0.0" {
		t.Error("an edited version is not put right")
	}
	m.manifest = want.DeepCopy()
	m.manifest.Labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByLifecycleManager
	m.decision.Component = "example.com/renamed"
	if renamed := desiredManifest(k, m, a); renamed.Name != want.Name || renamed.Spec.Resource.GetName() != want.Name || renamed.Annotations[v1beta2.AnnotationFQDN] != "example.com/renamed" {
		t.Errorf("with another component it is %s with %s, want the Manifest that is there", renamed.Name, renamed.Spec.Resource.GetName())
	}
	m.manifest.OwnerReferences, m.manifest.Labels = nil, nil
	if theirs := desiredManifest(k, m, a); theirs.Name == want.Name {
		t.Error("a Manifest that a person has written is taken over")
	}
	reordered := want.DeepCopy()
	reordered.Spec.Install.Source.Raw = []byte(`{"type":"oci-dir","ref":"sha256:x","name":"n","repo":"r"}`)
	if withDesired(reordered, want) != nil {
		t.Error("another order of keys in raw JSON counts as a change")
	}
}

func TestVersions(t *testing.T) {
	cases := map[string]struct {
		reason                  string
		spec, status, annotated string
		installed, ordered      string
		deleting                bool
	}{
		"New":         {reason: "nobody has looked at it", spec: "1.0.0", annotated: "1.0.0", installed: "1.0.0", ordered: "1.0.0"},
		"Installed":   {reason: "all is well", spec: "1.0.0", status: "1.0.0", annotated: "1.0.0", installed: "1.0.0", ordered: "1.0.0"},
		"UnderWay":    {reason: "an update", spec: "2.0.0", status: "1.0.0", annotated: "2.0.0", installed: "1.0.0", ordered: "2.0.0"},
		"Edited":      {reason: "what somebody writes is no order", spec: "9.9.9", status: "1.0.0", annotated: "1.0.0", installed: "1.0.0", ordered: "1.0.0"},
		"TakenAtWord": {reason: "nor what is installed", spec: "9.9.9", status: "9.9.9", annotated: "1.0.0", installed: "1.0.0", ordered: "1.0.0"},
		"OfOthers":    {reason: "of a Manifest of another manager its spec is all that is known", spec: "2.0.0", status: "1.0.0", installed: "1.0.0", ordered: "2.0.0"},
		"Leaving":     {reason: "nothing is left to compare with", spec: "1.0.0", status: "1.0.0", annotated: "1.0.0", deleting: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1beta2.Manifest{Spec: v1beta2.ManifestSpec{Version: c.spec}, Status: v1beta2.ManifestStatus{Version: c.status}}
			if c.annotated != "" {
				m.Annotations = map[string]string{v1beta2.AnnotationRequestedVersion: c.annotated}
			}
			if c.deleting {
				m.DeletionTimestamp = new(metav1.Now())
			}
			if installed, ordered := installedVersion(m), orderedVersion(m); installed != c.installed || ordered != c.ordered {
				t.Errorf("%s: installed is %q and ordered %q, want %q and %q", c.reason, installed, ordered, c.installed, c.ordered)
			}
		})
	}
	if installedVersion(nil) != "" || orderedVersion(nil) != "" {
		t.Error("what is not there has a version")
	}
}

func TestArtefactInEarlyModules(t *testing.T) {
	layer := registry.Layer{Repo: "r", Component: "n", Ref: "sha256:x", Type: registry.OCIRef}
	a, err := artefactIn(&registry.Component{Layers: map[string]registry.Layer{"crds": layer, "b-chart": layer, "a-chart": layer, "default-cr": layer}})
	if err != nil || len(a.installs) != 2 || a.installs[0].Name != "a-chart" || a.installs[1].Name != "b-chart" || a.crds == nil || a.install.Name != "" {
		t.Errorf("got %+v, %v; want both charts and the definitions", a, err)
	}
	if _, err = artefactIn(&registry.Component{Name: "n", Version: "1.0.0", Layers: map[string]registry.Layer{"crds": layer}}); loop.Reason(err) != v1beta2.ReasonInvalidDescriptor {
		t.Errorf("nothing to install: got %v, want InvalidDescriptor", err)
	}
}

func TestWorstIsBounded(t *testing.T) {
	var many []v1beta2.ModuleStatus
	for range 50 {
		many = append(many, v1beta2.ModuleStatus{Name: "m", State: v1beta2.StateError, Reason: "X", Message: "y"})
	}
	reason, line := worst(many)
	if reason != "X" || !strings.HasSuffix(line, "and 40 more") {
		t.Errorf("worst of 50 is %q, %q", reason, line)
	}
}
