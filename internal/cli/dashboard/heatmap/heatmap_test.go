package heatmap

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// runtime returns a runtime in a region, with a module from the channel regular. If the parameter version is "", the
// runtime does not have the module.
func runtime(name, region, version string, state v1beta2.State, agent *fleetlist.MemberAgent) *fleetlist.Member {
	m := &fleetlist.Member{}
	m.Metadata.Name, m.Metadata.ResourceVersion = name, "1"
	m.Metadata.Labels = map[string]string{v1beta2.LabelRegion: region}
	m.Spec.Channel, m.Status.State, m.Status.Agent = "regular", state, agent
	if version != "" {
		m.Status.Modules = []fleetlist.MemberModule{{Name: "istio", Version: version, Channel: "regular", State: state}}
	}
	return m
}

func silentFor(d time.Duration) *fleetlist.MemberAgent {
	return &fleetlist.MemberAgent{LastHeartbeat: fixture.Noon.Add(-d).UTC().Format(time.RFC3339)}
}

// fleet is a fleet in the middle of a rollout from 1.0.0 to 2.0.0, whose first stage are the runtimes in eu.
func fleet(t *testing.T) *fleetindex.Snapshot {
	t.Helper()
	rollout := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "istio-regular-r2"}}
	rollout.Spec = v1beta2.ModuleRolloutSpec{Module: "istio", Channel: "regular", From: "1.0.0", To: "2.0.0",
		Revision: 2, Stages: []v1beta2.ModuleRolloutStage{{RolloutStage: v1beta2.RolloutStage{Name: "own",
			Selector: &v1beta2.StageSelector{MatchLabels: map[string]string{v1beta2.LabelRegion: "eu"}}}},
			{RolloutStage: v1beta2.RolloutStage{Name: "all"}}}}
	former := rollout.DeepCopy()
	former.Name, former.Spec.Revision, former.Spec.From, former.Spec.To = "istio-regular-r1", 1, "0.9.0", "1.0.0"
	c := connection.NewCatalog(nil, nil)
	c.Rollouts = map[string]*v1beta2.ModuleRollout{rollout.Name: rollout, former.Name: former}
	x := fleetindex.New()
	x.SetCatalogAndManager(c, nil, fixture.ControlPlane)
	heard := &fleetlist.MemberAgent{Heard: true}
	x.Put(runtime("a", "eu", "2.0.0", v1beta2.StateReady, heard),
		runtime("b", "eu", "2.0.0", v1beta2.StateError, silentFor(time.Minute)),
		runtime("c", "us", "1.0.0", v1beta2.StateReady, silentFor(30*time.Minute)),
		runtime("d", "us", "1.0.0", v1beta2.StateProcessing, silentFor(3*time.Hour)),
		runtime("e", "us", "1.0.0", v1beta2.StateWarning, silentFor(50*time.Hour)),
		runtime("f", "", "0.9.0", v1beta2.StateReady, &fleetlist.MemberAgent{}),
		runtime("g", "ap", "", v1beta2.StateReady, nil))
	x.Publish()
	return x.Snapshot()
}

// TestViews checks every grouping and every colouring: the order of the groups, and the classes of the runtimes in each
// group.
func TestViews(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		choice Choice
		want   string
		note   string
	}{
		"Default": {"regions, sorted; who has none is last; the state is that of the runtime", Choice{},
			"ap Ready | eu Error Ready | us Processing Ready Warning | none Ready", ""},
		"State": {"with a module, the state is that of the module", Choice{Module: "istio"},
			"ap none | eu Error Ready | us Processing Ready Warning | none Ready", ""},
		"Stage": {"stages in the order of the rollout, and who takes no part last", Choice{Module: "istio", Group: "stage"},
			"own Error Ready | all Processing Ready Ready Warning | none none", ""},
		"Version": {"the highest version has the first class", Choice{Module: "istio", Group: "none", Colour: "version"},
			"all 0.9.0 1.0.0 1.0.0 1.0.0 2.0.0 2.0.0 none", ""},
		"ByVersion": {"groups by version", Choice{Module: "istio", Group: "version", Colour: "version"},
			"0.9.0 0.9.0 | 1.0.0 1.0.0 1.0.0 1.0.0 | 2.0.0 2.0.0 2.0.0 | none none", ""},
		"Age": {"how long the agent is silent", Choice{Group: "channel", Colour: "age"},
			"regular a_day_or_longer agent_connected less_than_a_day less_than_an_hour never_heard " +
				"polled,_without_an_agent silent_for_less_than_10_minutes", ""},
		"Progress": {"facts about version and state", Choice{Module: "istio", Colour: "progress"},
			"ap none | eu new_version,_Ready new_version,_not_Ready | us former_version former_version,_not_Ready " +
				"update_under_way | none another_version", ""},
		"NoModule": {"versions are those of a module", Choice{Group: "stage", Colour: "version"},
			"ap Ready | eu Error Ready | us Processing Ready Warning | none Ready",
			"Versions, stages and progress are those of one module: choose a module."},
		"NoRollout": {"a module that was never moved", Choice{Module: "keda", Colour: "progress"},
			"ap none | eu none none | us none none none | none none", "There is no rollout of keda"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fleet(t)
			v, note, err := New(s, c.choice, fixture.Noon)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range v.CountByGroupAndClass(s.Members) {
				words, total := []string{n.Name}, 0
				for i, k := range n.ByClass {
					class := "none"
					if i < len(v.Classes) {
						class = strings.ReplaceAll(v.Classes[i].Name, " ", "_")
					}
					for range k {
						words = append(words, class)
						total++
					}
				}
				if total != n.Runtimes {
					t.Errorf("group %s has %d runtimes, and %d in its classes", n.Name, n.Runtimes, total)
				}
				slices.Sort(words[1:])
				got = append(got, strings.Join(words, " "))
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " | ")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if (note == "") != (c.note == "") || !strings.Contains(note, c.note) {
				t.Errorf("%s: note %q, want %q", c.reason, note, c.note)
			}
			shapes := map[string]bool{}
			for _, class := range v.Classes {
				if shapes[class.Shape] {
					t.Errorf("two classes have the shape %s", class.Shape)
				}
				shapes[class.Shape] = true
			}
		})
	}
}

// TestUnknownChoice checks that an unknown choice is an error that lists the known choices.
func TestUnknownChoice(t *testing.T) {
	for choice, want := range map[Choice]string{
		{Group: "colour"}: "region, plan, tenant, channel, version, stage or none",
		{Colour: "group"}: "state, version, age or progress",
	} {
		if _, _, err := New(fleet(t), choice, fixture.Noon); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", choice, err, want)
		}
	}
}

// TestAdmitted checks that a runtime that the rollout has admitted is shown as admitted.
func TestAdmitted(t *testing.T) {
	s := fleet(t)
	o := s.Catalog.Rollouts["istio-regular-r2"]
	v, _, err := New(s, Choice{Module: "istio", Colour: "progress"}, fixture.Noon)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := s.Member("c")
	if got := v.classOf(c); got != former {
		t.Fatalf("before its admission, the class is %d", got)
	}
	o.Status.Admitted = string(v.rollouts["regular"].places.Of("c", c.Metadata.Labels).Token)
	if v, _, err = New(s, Choice{Module: "istio", Colour: "progress"}, fixture.Noon); err != nil {
		t.Fatal(err)
	}
	if got := v.classOf(c); got != admittedNext {
		t.Errorf("after its admission, the class is %d, want %d", got, admittedNext)
	}
}

// TestManyVersions checks that, if a module has more versions than there are colours, the lowest versions share one
// class of cells.
func TestManyVersions(t *testing.T) {
	x := fleetindex.New()
	for i := range 12 {
		x.Put(runtime(fmt.Sprint("r", i), "eu", fmt.Sprintf("1.%d.0", i), v1beta2.StateReady, nil))
	}
	x.Publish()
	v, _, err := New(x.Snapshot(), Choice{Module: "istio", Colour: "version"}, fixture.Noon)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range v.Classes {
		names = append(names, c.Name)
	}
	if diff := cmp.Diff([]string{"1.11.0", "1.10.0", "1.9.0", "1.8.0", "1.7.0", "1.6.0", "lower"}, names); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if n := v.CountByGroupAndClass(x.Snapshot().Members)[0].ByClass; n[6] != 6 {
		t.Errorf("counts %v, want 6 lower versions", n)
	}
}

// TestEncode checks that the data has all lines and cells, and marks the runtimes that the filter excludes. A line
// break in a label of a Kyma must not add a line to the data.
func TestEncode(t *testing.T) {
	s := fleet(t)
	s.Members[0].Metadata.Labels[v1beta2.LabelRegion] = "eu\nfake"
	paused := "true"
	s.Members[2].Metadata.Annotations.Paused = &paused
	v, _, err := New(s, Choice{}, fixture.Noon)
	if err != nil {
		t.Fatal(err)
	}
	data := v.Encode(func(m *fleetlist.Member) bool { return m.Metadata.Name != "d" })
	const cellBytes = 3 * 7
	lines := strings.Split(string(data[:len(data)-cellBytes]), "\n")
	want := []string{fmt.Sprintf("%d 7 5 7", s.Revision), "square ready Ready", "ring processing Processing",
		"triangle warning Warning", "cross error Error", "corner deleting Deleting", "outline unmanaged Unmanaged",
		"dot new New", "ap", "eu", "eu fake", "us", "none", "a", "b", "c", "d", "e", "f", "g", ""}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	wanted := []byte{0, 2, 0, 3 | bitSilent, 1, 0, bitPaused | bitSilent, 3, 0, 1 | bitSilent | bitFiltered, 3, 0,
		2 | bitSilent, 3, 0, bitSilent, 4, 0, 0, 0, 0}
	if cells := data[len(data)-cellBytes:]; !bytes.Equal(cells, wanted) {
		t.Errorf("cells %v", cells)
	}
}
