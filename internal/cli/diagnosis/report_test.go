package diagnosis_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func TestWhy(t *testing.T) {
	for name, f := range fixture.FactsBySituation() {
		t.Run(name, func(t *testing.T) {
			f.Catalog, f.Now = fixture.Catalog(), fixture.Noon
			fixture.Golden(t, "why_"+name+".txt", fixture.Text(t, f.Report(""), config.FormatTable)+
				"\n--- with MODULE\n"+fixture.Text(t, f.Report("sample"), config.FormatTable))
		})
	}
}

// TestModuleList checks that the list has one line for each module, and that an empty list names the command that
// enables a module.
func TestModuleList(t *testing.T) {
	fixture.GoldenFormats(t, "module_list.txt", diagnosis.ListModules(fixture.FactsBySituation()["downgrade"].Kyma))
	fixture.GoldenFormats(t, "module_none.txt", diagnosis.ModuleList{})
}

// TestWithdrawn checks that klm why reports a withdrawn version in a runtime, and the version that replaces it.
func TestWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		change func(f *diagnosis.Facts)
		want   string // "" if nothing is said
	}{
		"Withdrawn": {"nothing replaces it", func(*diagnosis.Facts) {},
			"was withdrawn: it loses data. Nothing replaces it by itself"},
		"Template": {"in a runtime, the catalog copy has the annotation", func(f *diagnosis.Facts) {
			f.Catalog.Releases["sample"].Status.Withdrawn = nil
			f.Catalog.Templates["sample-1.0.0"].Annotations = map[string]string{v1beta2.AnnotationWithdrawn: "it leaks"}
		}, "was withdrawn: it leaks"},
		"Moves": {"its channel has moved on", func(f *diagnosis.Facts) {
			f.Catalog.Releases["sample"].Spec.Channels[0].Version = "2.0.0"
		}, "It is being replaced by 2.0.0."},
		"Pinned": {"only its admin can change that", func(f *diagnosis.Facts) {
			f.Kyma.Spec.Modules[0].Version, f.Kyma.Spec.Modules[0].Channel = "1.0.0", ""
		}, "The runtime has pinned it"},
		"Other": {"another version was withdrawn", func(f *diagnosis.Facts) {
			f.Catalog.Releases["sample"].Status.Withdrawn[0].Version = "0.9.0"
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FactsBySituation()["healthy"]
			f.Catalog, f.Now = fixture.Catalog(), fixture.Noon
			f.Catalog.Releases["sample"].Status.Withdrawn = []v1beta2.WithdrawnVersion{{Version: "1.0.0",
				Reason: "it loses data"}}
			c.change(f)
			is := f.Report("").Modules[0].Withdrawn
			if !strings.Contains(is, c.want) || (c.want == "") != (is == "") {
				t.Errorf("%s: %q", c.reason, is)
			}
			if text := fixture.Text(t, f.Report(""), config.FormatTable); !strings.Contains(
				strings.Join(strings.Fields(text), " "), is) {
				t.Errorf("klm why shows:\n%s", text)
			}
		})
	}
}

// TestWaitsForTurn checks the report of klm why while a channel moves in stages and the runtime keeps its version: the
// report states what the runtime waits for.
func TestWaitsForTurn(t *testing.T) {
	rollout := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "sample-regular-r2"},
		Spec: v1beta2.ModuleRolloutSpec{Module: "sample", Channel: "regular", From: "1.0.0", To: "2.0.0", Policy: "p",
			State: v1beta2.RolloutRunning, Lineage: "sample/regular/2.0.0", Stages: []v1beta2.ModuleRolloutStage{
				{RolloutStage: v1beta2.RolloutStage{Name: "own", Selector: &v1beta2.StageSelector{
					MatchLabels: map[string]string{"stage": "own"}}}},
				{RolloutStage: v1beta2.RolloutStage{Name: "rest"}, Ranks: 1 << 16},
			}},
		Status: v1beta2.ModuleRolloutStatus{Stage: v1beta2.RolloutStageStatus{Name: "own"}}}
	moved := func(catalog *connection.Catalog, target string) {
		r := catalog.Releases["sample"]
		r.Spec.Channels[0].Version = "2.0.0"
		r.Status.Channels = []v1beta2.ChannelStatus{{Channel: "regular", Version: "1.0.0", Target: target,
			Rollout: rollout.Name, Policy: "p"}}
	}
	policy := v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"*"}}}}
	cases := map[string]struct {
		reason        string
		prepare       func(f *diagnosis.Facts)
		desired, next string
		rollout       string // part of the text about what the runtime waits for
	}{
		"Waits": {"its stage has not begun", func(f *diagnosis.Facts) { moved(f.Catalog, "2.0.0") }, "1.0.0", "",
			"in stage rest of ModuleRollout sample-regular-r2"},
		"Urgent": {"how urgent it is, and why", func(f *diagnosis.Facts) {
			moved(f.Catalog, "2.0.0")
			urgent := rollout.DeepCopy()
			urgent.Spec.Urgency, urgent.Spec.UrgencyReason = v1beta2.UrgencyEmergency, "1.0.0 leaks"
			f.Catalog.Rollouts[rollout.Name] = urgent
		}, "1.0.0", "", "; it is an emergency: 1.0.0 leaks)"},
		"Settles": {"the rollout is not made yet", func(f *diagnosis.Facts) {
			moved(f.Catalog, "1.0.0")
			f.Catalog.Rollouts, f.Catalog.Policies = nil, []v1beta2.RolloutPolicy{policy}
		}, "1.0.0", "", "the manager is planning the rollout"},
		"Ordered": {"it was admitted", func(f *diagnosis.Facts) {
			moved(f.Catalog, "2.0.0")
			f.Manifests[0].Spec.Version = "2.0.0"
		}, "2.0.0", "2.0.0", ""},
		"NoPolicy": {"all follow at once", func(f *diagnosis.Facts) {
			moved(f.Catalog, "2.0.0")
			f.Catalog.Releases["sample"].Status.Channels[0].Policy = ""
			f.Catalog.Rollouts = nil
		}, "2.0.0", "2.0.0", ""},
		"Deleted": {"the rollout and its policy were deleted: the rollout is made again", func(f *diagnosis.Facts) {
			moved(f.Catalog, "2.0.0")
			f.Catalog.Rollouts = nil
		}, "1.0.0", "", "the manager is planning the rollout"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := fixture.FactsBySituation()["healthy"]
			f.Catalog, f.Now = fixture.Catalog(), fixture.Noon
			f.Catalog.Rollouts = map[string]*v1beta2.ModuleRollout{rollout.Name: rollout}
			c.prepare(f)
			m := f.Report("").Modules[0]
			if m.Desired != c.desired || m.Next != c.next || !strings.Contains(m.Rollout, c.rollout) ||
				(c.rollout == "") != (m.Rollout == "") {
				t.Errorf("%s: desired %s, next %q, rollout %q", c.reason, m.Desired, m.Next, m.Rollout)
			}
			if text := fixture.Text(t, f.Report(""), config.FormatTable); !strings.Contains(
				strings.Join(strings.Fields(text), " "), m.Rollout) {
				t.Errorf("klm why shows:\n%s", text)
			}
		})
	}
}

// TestLastEvents checks that an event about a Kyma and its Manifest is listed once, and that events of a former Kyma
// are left out.
func TestLastEvents(t *testing.T) {
	f := fixture.FactsBySituation()["unreachable"]
	f.Catalog, f.Now, f.Kyma.UID = fixture.Catalog(), fixture.Noon, "new"
	at := func(kind, uid, message string, minute int) corev1.Event {
		return corev1.Event{Reason: "Upgraded", Message: message,
			InvolvedObject: corev1.ObjectReference{Kind: kind, Name: "a", UID: types.UID(uid)},
			LastTimestamp:  metav1.NewTime(fixture.Noon.Add(time.Duration(minute) * time.Minute))}
	}
	f.Events = []corev1.Event{
		at("Kyma", "new", "to 2.0.0", -3), at("Kyma", "old", "to 1.0.0", -4), at("Kyma", "new", "to 3.0.0", -2),
		at("Manifest", "m", "to 2.0.0", -3), at("Manifest", "m", "to 3.0.0", -2), at("Kyma", "new", "to 2.0.0", -1)}
	var got []string
	for _, e := range f.Report("").Events {
		got = append(got, e.Object+": "+e.Message)
	}
	want := []string{"Kyma a: to 2.0.0", "Kyma a: to 3.0.0", "Kyma a: to 2.0.0"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestEventsOfOneSecond checks that events with the same time are in the order in which they were written, if that is
// known. Resource versions are compared as numbers.
func TestEventsOfOneSecond(t *testing.T) {
	event := func(reason, version string) corev1.Event {
		return corev1.Event{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Reason: reason,
			InvolvedObject: corev1.ObjectReference{Kind: "Manifest", Name: "a"},
			LastTimestamp:  fixture.BeforeNoon(time.Minute)}
	}
	cases := map[string]struct {
		reason string
		events []corev1.Event
		want   string
	}{
		"Numbers": {"the newest is first", []corev1.Event{event("Upgraded", "9"), event("Enabled", "8"),
			event("Failed", "10")}, "Failed Upgraded Enabled"},
		"Unknown": {"without versions, the order is always the same", []corev1.Event{event("Upgraded", ""),
			event("Enabled", "")}, "Enabled Upgraded"},
		"NoNumber": {"a server may have other versions", []corev1.Event{event("Upgraded", "b"), event("Enabled", "a")},
			"Enabled Upgraded"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := fixture.FactsBySituation()["unreachable"]
			f.Catalog, f.Now, f.Events = fixture.Catalog(), fixture.Noon, c.events
			var got []string
			for _, e := range f.Report("").Events {
				got = append(got, e.Reason)
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%s: %s, want %s", c.reason, text, c.want)
			}
		})
	}
}
