package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

var update = flag.Bool("update", false, "write what is shown into testdata")

// noon is now, and ago a time before it.
var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

// here is a control plane, and there a runtime.
var (
	here  = &cluster{context: "prod", namespace: v1beta2.ControlPlaneNamespace, config: &rest.Config{Host: "https://kcp"}, serves: map[string]bool{"manifests": true}}
	there = &cluster{context: "runtime-a", namespace: v1beta2.RuntimeNamespace, wish: "default", config: &rest.Config{Host: "https://skr"}}
)

// sampleStock has module sample with channels regular=1.0.0 and fast=2.0.0, of which the second needs a downtime.
func sampleStock() *stock {
	template := func(version string, downtime bool) v1beta2.ModuleTemplate {
		return v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "sample-" + version}, Spec: v1beta2.ModuleTemplateSpec{ModuleName: "sample", Version: version, RequiresDowntime: downtime}}
	}
	beta := template("3.0.0", false)
	beta.Labels = map[string]string{v1beta2.LabelBeta: v1beta2.ValueTrue}
	return stockOf([]v1beta2.ModuleReleaseMeta{
		{ObjectMeta: metav1.ObjectMeta{Name: "sample", ResourceVersion: "7"}, Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "sample", OCMComponentName: "kyma-project.io/module/sample", Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.0.0"}, {Channel: "fast", Version: "2.0.0"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "warden"}, Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "warden", OCMComponentName: "kyma-project.io/module/warden", Mandatory: &v1beta2.MandatoryVersion{Version: "0.9.0"}}},
	}, []v1beta2.ModuleTemplate{template("1.0.0", false), template("2.0.0", true), beta})
}

// kymaWith returns the Kyma runtime-a in a state, with one module.
func kymaWith(state v1beta2.State, wish v1beta2.Module, is v1beta2.ModuleStatus, conditions ...metav1.Condition) *v1beta2.Kyma {
	return &v1beta2.Kyma{
		ObjectMeta: metav1.ObjectMeta{Name: "runtime-a", Namespace: "kcp-system", UID: "1", Generation: 3, CreationTimestamp: ago(48 * time.Hour), Labels: map[string]string{"team": "blue"}, Finalizers: []string{v1beta2.FinalizerKyma}},
		Spec:       v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{wish}},
		Status: v1beta2.KymaStatus{
			State: state, ObservedGeneration: 3, ModulesReady: "0/1", Modules: []v1beta2.ModuleStatus{is}, Conditions: conditions,
			LastOperation: v1beta2.LastOperation{Operation: "something", LastUpdateTime: ago(5 * time.Minute)},
		},
	}
}

func condition(kind, status, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message, LastTransitionTime: ago(3 * time.Minute)}
}

// manifestOf returns the Manifest of module sample.
func manifestOf(ordered, installed string) v1beta2.Manifest {
	return v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{Name: "runtime-a-sample-1", Labels: map[string]string{v1beta2.LabelModuleName: "sample", v1beta2.LabelKymaName: "runtime-a"}},
		Spec:       v1beta2.ManifestSpec{Version: ordered, CustomResourcePolicy: v1beta2.Ignore},
		Status:     v1beta2.ManifestStatus{Version: installed, Synced: []v1beta2.Resource{{Name: "a"}, {Name: "b"}}, Conditions: []metav1.Condition{condition(v1beta2.ConditionReady, "False", v1beta2.ReasonWorkloadNotReady, "Deployment x waits")}},
	}
}

// cases of what is known of a runtime.
func factsFor() map[string]*facts {
	healthy := kymaWith(v1beta2.StateReady, v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{Name: "sample", Channel: "regular", Version: "1.0.0", State: v1beta2.StateReady}, condition(v1beta2.ConditionReady, "True", "Ready", "kyma is ready"))
	healthy.Status.ModulesReady = "1/1"
	healthy.Status.Agent = &v1beta2.AgentStatus{Heard: true, Version: "0.1.0", Since: ago(time.Hour)}
	downgrade := kymaWith(v1beta2.StateWarning, v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{Name: "sample", Channel: "fast", Version: "2.0.0", State: v1beta2.StateWarning, Reason: v1beta2.ReasonDowngradeRefused, Message: "version 2.0.0 of module sample is installed and 1.0.0 would be a downgrade: choose a channel with a higher version"},
		condition(v1beta2.ConditionReady, "False", v1beta2.ReasonDowngradeRefused, "not ready: version 2.0.0 …"))
	unreachable := kymaWith(v1beta2.StateError, v1beta2.Module{Name: "sample", Channel: "fast"}, v1beta2.ModuleStatus{Name: "sample", Channel: "regular", Version: "1.0.0", State: v1beta2.StateError, Reason: v1beta2.ReasonRuntimeUnreachable, Message: "runtime-a does not answer"},
		condition(v1beta2.ConditionCRDsSync, "False", v1beta2.ReasonRuntimeUnreachable, "CRDs are not synchronized to the SKR: runtime-a does not answer"), condition(v1beta2.ConditionReady, "False", v1beta2.ReasonRuntimeUnreachable, "not ready: runtime-a does not answer"))
	paused := kymaWith(v1beta2.StateReady, v1beta2.Module{Name: "sample", Channel: "fast"}, v1beta2.ModuleStatus{Name: "sample", Channel: "fast", Version: "1.0.0", State: v1beta2.StateWarning, Reason: v1beta2.ReasonKymaPaused, Message: "Kyma runtime-a is paused (ask Kim): remove the annotation operator.kyma-project.io/paused from it to go on"})
	paused.Annotations = map[string]string{v1beta2.AnnotationPaused: "ask Kim"}
	deleting := kymaWith(v1beta2.StateDeleting, v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{Name: "sample", Version: "1.0.0", State: v1beta2.StateDeleting, Reason: v1beta2.ReasonCustomResourceBlocksDeletion, Message: "Sample default/mine has to be deleted first"})
	deleting.DeletionTimestamp = new(ago(time.Minute))
	deleting.Finalizers = append(deleting.Finalizers, "example.com/hold")
	unseen := kymaWith(v1beta2.StateReady, v1beta2.Module{Name: "sample", Version: "1.0.0"}, v1beta2.ModuleStatus{Name: "sample", Version: "1.0.0", State: v1beta2.StateReady})
	unseen.Generation = 4
	fresh := kymaWith("", v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{})
	fresh.Generation, fresh.Status = 1, v1beta2.KymaStatus{}
	elsewhere := kymaWith(v1beta2.StateProcessing, v1beta2.Module{Name: "other"}, v1beta2.ModuleStatus{Name: "sample", Channel: "regular", Version: "1.0.0", State: v1beta2.StateProcessing})
	elsewhere.Annotations = map[string]string{v1beta2.AnnotationLastWish: `{"channel":"fast","modules":[{"name":"sample"}]}`}
	mandatory := manifestOf("0.9.0", "0.8.0")
	mandatory.Labels = map[string]string{v1beta2.LabelModuleName: "warden", v1beta2.LabelMandatoryModule: v1beta2.ValueTrue}
	runtimeKyma := healthy.DeepCopy()
	runtimeKyma.Name, runtimeKyma.Status.Agent = "default", nil
	event := func(reason, uid string, before time.Duration) corev1.Event {
		return corev1.Event{Type: "Warning", Reason: reason, Message: "module sample: " + reason, LastTimestamp: ago(before), InvolvedObject: corev1.ObjectReference{Kind: "Kyma", Name: "runtime-a", UID: "1"}, Series: nil, Count: 1, ObjectMeta: metav1.ObjectMeta{Name: uid}}
	}
	before := event("OfOneBefore", "x", time.Hour)
	before.InvolvedObject.UID = "0"
	secret := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "runtime-a-access"}}}
	return map[string]*facts{
		"healthy":     {cluster: here, kyma: healthy, manifests: []v1beta2.Manifest{manifestOf("1.0.0", "1.0.0")}, secrets: secret},
		"downgrade":   {cluster: here, kyma: downgrade, manifests: []v1beta2.Manifest{manifestOf("2.0.0", "2.0.0")}, secrets: secret, events: []corev1.Event{before, event(v1beta2.ReasonDowngradeRefused, "a", 10*time.Minute), event("Other", "b", time.Minute)}},
		"unreachable": {cluster: here, kyma: unreachable, manifests: []v1beta2.Manifest{manifestOf("1.0.0", "1.0.0")}},
		"paused":      {cluster: here, kyma: paused, manifests: []v1beta2.Manifest{manifestOf("1.0.0", "1.0.0")}, secrets: secret},
		"deleting":    {cluster: here, kyma: deleting, manifests: []v1beta2.Manifest{manifestOf("1.0.0", "1.0.0")}, secrets: secret, notes: []string{"events cannot be read: permission missing"}},
		"unseen":      {cluster: here, kyma: unseen, manifests: []v1beta2.Manifest{manifestOf("1.0.0", "1.0.0")}, secrets: secret},
		"new":         {cluster: here, kyma: fresh, secrets: secret},
		"updating":    {cluster: here, kyma: elsewhere, manifests: []v1beta2.Manifest{manifestOf("2.0.0", "1.0.0"), mandatory}, secrets: secret},
		"runtime":     {cluster: there, kyma: runtimeKyma},
	}
}

// show returns what a report looks like in a format.
func show(t *testing.T, r report, format string) string {
	t.Helper()
	var out bytes.Buffer
	a := &app{Streams: Streams{Out: &out}, config: &config.Klm{Output: format}, now: func() time.Time { return noon }}
	if err := a.print(r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test -update accepts it):\n%s", file, diff)
	}
}

func TestWhy(t *testing.T) {
	for name, f := range factsFor() {
		t.Run(name, func(t *testing.T) {
			f.stock, f.now = sampleStock(), noon
			golden(t, "why_"+name+".txt", show(t, f.explain(""), config.FormatTable)+"\n--- with MODULE\n"+show(t, f.explain("sample"), config.FormatTable))
		})
	}
}

func TestShowAndRemove(t *testing.T) {
	for name, f := range factsFor() {
		t.Run(name, func(t *testing.T) {
			f.stock, f.now = sampleStock(), noon
			p := &page{now: noon}
			f.showRemoval(p, false)
			gone := &page{now: noon}
			f.showRemoval(gone, true)
			golden(t, "runtime_"+name+".txt", show(t, f.describe(), config.FormatTable)+"\n--- remove\n"+p.String()+"\n--- remove --cluster-is-gone\n"+gone.String())
		})
	}
}

// fleet is five runtimes, of which each is different.
func fleet() []*member {
	var all []*member
	for n, state := range []v1beta2.State{v1beta2.StateReady, v1beta2.StateError, v1beta2.StateWarning, v1beta2.StateUnknown, v1beta2.StateReady} {
		m := &member{}
		m.Metadata.Name, m.Metadata.CreationTimestamp = fmt.Sprintf("runtime-%d", n), ago(24*time.Hour).Format(time.RFC3339)
		m.Spec.Channel = "regular"
		m.Status.State, m.Status.LastOperation.Operation, m.Status.LastOperation.LastUpdateTime = state, "an operation", ago(time.Duration(n)*time.Minute).Format(time.RFC3339)
		if state != v1beta2.StateUnknown {
			m.Status.ModulesReady = "1/2"
			m.Status.Modules = []memberModule{{Name: "sample", Version: "1.0.0", Channel: "regular", State: state}, {Name: "keda", Version: fmt.Sprintf("1.%d.0", n), State: v1beta2.StateReady}}
		}
		all = append(all, m)
	}
	all[1].Status.Modules[0].Reason, all[1].Status.Modules[0].Message = v1beta2.ReasonWorkloadFailed, "Deployment kyma-system/sample cannot become ready: look at its pods, of which there are three that crash again and again"
	all[2].Status.Conditions = []memberCondition{{v1beta2.ConditionReady, "False", v1beta2.ReasonRuntimeUnreachable, "not ready: no answer"}}
	all[4].Status.Modules[0].Maintenance = true
	all[4].Metadata.Annotations.Paused = new("ask Kim")
	all[0].Status.Agent = &struct {
		Heard  bool   `json:"heard"`
		Reason string `json:"reason"`
	}{Heard: true}
	return all
}

func TestReports(t *testing.T) {
	var count tally
	list := runtimeList{}
	for _, m := range fleet() {
		count.add(m)
		list = append(list, rowOf(m))
	}
	empty := tally{}
	s := sampleStock()
	followers := map[moduleKey]int{{"sample", "1.0.0", "regular"}: 3, {"sample", "0.9.0", "regular"}: 1, {"sample", "2.0.0", ""}: 2}
	f := factsFor()
	cases := map[string]struct {
		reason string
		report report
	}{
		"status":       {"the worst first, and only columns that are used", count.report(here, 10)},
		"status_none":  {"nothing to count", empty.report(here, 10)},
		"runtime_list": {"one line each", list},
		"catalog":      {"channels, versions, and what is special about them", s.list()},
		"channel_show": {"those that are pinned follow no channel", s.describe("sample", followers)},
		"module_list":  {"one line each", moduleRows(f["downgrade"].kyma)},
		"module_none":  {"says how to get one", moduleList{}},
		"module_done":  {"for programs it is the module", moduleDone{moduleRowOf(f["healthy"].kyma, "sample"), "module sample 1.0.0 is Ready"}},
		"dump":         {"what could not be read is said", dumpReport{"x.tar.gz", map[string]int{"kymas": 3, "events": 2}, []string{"secrets"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := ""
			for _, format := range config.Formats {
				text += "--- " + format + "\n" + show(t, c.report, format)
			}
			golden(t, name+".txt", text)
		})
	}
}

func TestColours(t *testing.T) {
	p := &page{colours: true}
	p.table([]string{"NAME", "STATE", "+MORE"}, [][]string{{"a", "Ready", "x"}, {"bcd", "Error", "y"}})
	want := "NAME   STATE\na      \x1b[32mReady\x1b[0m\nbcd    \x1b[31mError\x1b[0m\n"
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
