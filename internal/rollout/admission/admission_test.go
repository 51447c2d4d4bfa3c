package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// TestBack checks which runtimes get the lower version while a channel is set back from 2.0.0 to 1.0.0.
func TestBack(t *testing.T) {
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "mod"},
		Spec: v1beta2.ModuleReleaseMetaSpec{Channels: []v1beta2.ChannelVersion{{Channel: "regular",
			Version: "1.0.0"}}},
		Status: v1beta2.ModuleReleaseMetaStatus{Channels: []v1beta2.ChannelStatus{{Channel: "regular", Version: "1.0.0",
			Target: "1.0.0", TakingBack: "2.0.0", Rollout: "mod-regular-r3", Policy: "p"}}}}
	rollout := func(change func(*v1beta2.ModuleRollout)) *v1beta2.ModuleRollout {
		r := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "mod-regular-r3"},
			Spec: v1beta2.ModuleRolloutSpec{Module: "mod", Channel: "regular", From: "2.0.0", To: "1.0.0",
				Direction: v1beta2.RolloutBack, State: v1beta2.RolloutRunning, Policy: "p", Lineage: "x",
				Stages: []v1beta2.ModuleRolloutStage{{Ranks: place.RankCount,
					RolloutStage: v1beta2.RolloutStage{Name: "back"}}}}}
		change(r)
		return r
	}
	waits := rollout(func(*v1beta2.ModuleRollout) {})
	places, err := place.New(waits)
	if err != nil {
		t.Fatal(err)
	}
	admits := rollout(func(r *v1beta2.ModuleRollout) {
		r.Status.Admitted = place.Admitted{places.Of("runtime", nil).Token: true}.Encode()
	})
	paused := rollout(func(r *v1beta2.ModuleRollout) {
		*r = *admits.DeepCopy()
		r.Spec.State = v1beta2.RolloutPaused
	})
	none := rollout(func(r *v1beta2.ModuleRollout) { r.Spec.Stages, r.Spec.Policy = nil, "" })
	noneFailed := rollout(func(r *v1beta2.ModuleRollout) {
		r.Spec.Stages, r.Spec.Policy, r.Spec.OnlyFailed = nil, "", true
	})
	type result struct {
		Version, Rollout string
		IsBack, Waits    bool
	}
	for name, c := range map[string]struct {
		reason  string
		rollout *v1beta2.ModuleRollout
		ordered string
		want    result
	}{
		"New":      {"it never had the newer one", waits, "", result{Version: "1.0.0"}},
		"Older":    {"it catches up", waits, "0.9.0", result{Version: "1.0.0"}},
		"Waits":    {"it is not admitted", waits, "2.0.0", result{Version: "2.0.0", Waits: true}},
		"Admitted": {"it is admitted", admits, "2.0.0", result{"1.0.0", "mod-regular-r3/back", true, false}},
		"Paused":   {"nobody begins", paused, "2.0.0", result{Version: "2.0.0", Waits: true}},
		"Other":    {"the rollout is for 2.0.0 only", admits, "3.0.0", result{Version: "3.0.0", Waits: true}},
		"Deleted":  {"the rollout is made again first", nil, "2.0.0", result{Version: "2.0.0", Waits: true}},
		"AtOnce":   {"there is no policy", none, "2.0.0", result{"1.0.0", "mod-regular-r3", true, false}},
		"Works":    {"only those that fail go back", noneFailed, "2.0.0", result{Version: "2.0.0", Waits: true}},
		"Fails":    {"it is one of them", noneFailed, "2.0.0", result{"1.0.0", "mod-regular-r3", true, false}},
	} {
		find := Lookups{Rollout: func(string) *v1beta2.ModuleRollout { return c.rollout },
			HasPolicy: func(string, string) bool { return true }}
		is := NewTurnFunc(find)(release, channel.Request{Kyma: "runtime", Module: "mod", Channel: "regular",
			ManifestVersion: c.ordered, Installed: c.ordered, IsFailing: name == "Fails"})
		got := result{is.Version, is.Rollout, is.IsBack, is.Waiting != nil}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
	// A runtime that has begun to go back from 2.0.0 to 1.0.0 keeps version 1.0.0, whether or not the rollout
	// continues.
	is := NewTurnFunc(Lookups{Rollout: func(string) *v1beta2.ModuleRollout { return paused },
		HasPolicy: func(string, string) bool { return true }})(release, channel.Request{Kyma: "runtime", Module: "mod",
		Channel: "regular", ManifestVersion: "1.0.0", Installed: "2.0.0"})
	if is.Version != "1.0.0" || !is.IsBack || is.Waiting != nil {
		t.Errorf("a runtime that goes back has %+v", is)
	}
}

// TestDeletedWithPolicy checks that no runtime gets the new version if somebody deletes a rollout in stages and its
// policy.
func TestDeletedWithPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		change func(*v1beta2.ChannelStatus)
		want   string
	}{
		"Stages": {"the rollout is made again first", func(*v1beta2.ChannelStatus) {}, "1.0.0"},
		"AtOnce": {"the move never had a policy", func(s *v1beta2.ChannelStatus) { s.Policy = "" }, "2.0.0"},
		"Next":   {"the policy was for another move", func(s *v1beta2.ChannelStatus) { s.Target = "1.5.0" }, "2.0.0"},
	} {
		release := releaseInRollout("1.0.0", "2.0.0")
		c.change(&release.Status.Channels[0])
		find := Lookups{Rollout: func(string) *v1beta2.ModuleRollout { return nil },
			HasPolicy: func(string, string) bool { return false }}
		is := NewTurnFunc(find)(release, channel.Request{Kyma: "runtime", Module: "mod", Channel: "regular",
			ManifestVersion: "1.0.0", Installed: "1.0.0"})
		if is.Version != c.want || (is.Waiting != nil) != (c.want == "1.0.0") {
			t.Errorf("%s: %s: %+v, want %s", name, c.reason, is, c.want)
		}
	}
}

// releaseInRollout returns a module release whose channel moves from one version to another one in a rollout.
func releaseInRollout(from, to string) *v1beta2.ModuleReleaseMeta {
	return &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "mod"},
		Spec: v1beta2.ModuleReleaseMetaSpec{Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: to}}},
		Status: v1beta2.ModuleReleaseMetaStatus{Channels: []v1beta2.ChannelStatus{{Channel: "regular",
			Version: from, Target: to, Rollout: "mod-regular-r2", Policy: "p"}}}}
}

// TestNewInstallation checks that a new module gets the version of a rollout only after a stage has passed in which
// runtimes were proven. An empty stage passes, too, but proves nothing.
func TestNewInstallation(t *testing.T) {
	release := releaseInRollout("1.0.0", "2.0.0")
	for name, c := range map[string]struct {
		reason   string
		passed   bool
		provenAt metav1.Time
		want     string
	}{
		"First":  {"no stage has passed", false, metav1.Time{}, "1.0.0"},
		"Empty":  {"the first stage had no runtime", true, metav1.Time{}, "1.0.0"},
		"Proven": {"the first stage had proven runtimes", true, metav1.Unix(1, 0), "2.0.0"},
	} {
		r := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "mod-regular-r2"},
			Spec: v1beta2.ModuleRolloutSpec{Module: "mod", Channel: "regular", From: "1.0.0", To: "2.0.0",
				State: v1beta2.RolloutRunning, Policy: "p", Lineage: "x", Stages: []v1beta2.ModuleRolloutStage{
					{RolloutStage: v1beta2.RolloutStage{Name: "own"}},
					{Ranks: place.RankCount, RolloutStage: v1beta2.RolloutStage{Name: "rest"}}}},
			Status: v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutUpdating,
				Stages: []v1beta2.RolloutStageResult{{Name: "own", Passed: c.passed, ProvenAt: c.provenAt}}}}
		if c.passed {
			r.Status.Stage = v1beta2.RolloutStageStatus{Index: 1, Name: "rest"}
		}
		is := NewTurnFunc(Lookups{Rollout: func(string) *v1beta2.ModuleRollout { return r },
			HasPolicy: func(string, string) bool { return true }})(release, channel.Request{Kyma: "runtime",
			Module: "mod", Channel: "regular"})
		if is.Version != c.want || (is.Waiting != nil) != (c.want == "1.0.0") {
			t.Errorf("%s: %s: %+v, want %s", name, c.reason, is, c.want)
		}
	}
}

// TestLowerTarget checks that no runtime gets the proven version of a channel while the channel moves to a lower
// version without a declared way back: the runtime could not leave the version any more.
func TestLowerTarget(t *testing.T) {
	release := releaseInRollout("2.0.0", "1.8.0")
	rollout := func(change func(*v1beta2.ModuleRollout)) *v1beta2.ModuleRollout {
		r := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "mod-regular-r2"},
			Spec: v1beta2.ModuleRolloutSpec{Module: "mod", Channel: "regular", From: "2.0.0", To: "1.8.0",
				State: v1beta2.RolloutRunning, Policy: "p", Lineage: "x", Stages: []v1beta2.ModuleRolloutStage{
					{Ranks: place.RankCount, RolloutStage: v1beta2.RolloutStage{Name: "all"}}}}}
		change(r)
		return r
	}
	running := rollout(func(*v1beta2.ModuleRollout) {})
	halted := rollout(func(r *v1beta2.ModuleRollout) { r.Status.HaltedAt = metav1.Unix(1, 0) })
	for name, c := range map[string]struct {
		reason  string
		rollout *v1beta2.ModuleRollout
		want    map[string]string // the version that a runtime gets, by its version
	}{
		"Planning": {"the rollout is not made yet", nil,
			map[string]string{"": "1.8.0", "1.5.0": "1.5.0", "2.0.0": "2.0.0"}},
		"Running": {"nobody is admitted", running,
			map[string]string{"": "1.8.0", "1.5.0": "1.5.0", "2.0.0": "2.0.0"}},
		"Halted": {"the lower version fails, so a new module does not get it", halted,
			map[string]string{"": "2.0.0", "1.5.0": "1.5.0", "2.0.0": "2.0.0"}},
	} {
		turns := NewTurnFunc(Lookups{Rollout: func(string) *v1beta2.ModuleRollout { return c.rollout },
			HasPolicy: func(string, string) bool { return true }})
		got := map[string]string{}
		for has := range c.want {
			got[has] = turns(release, channel.Request{Kyma: "runtime", Module: "mod", Channel: "regular",
				ManifestVersion: has, Installed: has}).Version
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
}
