package channeladmin

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func TestEffects(t *testing.T) {
	o := setOptions{module: "sample", channel: "regular", version: "2.0.0"}
	s := fixture.Catalog()
	w := preview{setOptions: o, after: withAssignment(s, o).ForResolve()}
	back := setOptions{module: "sample", channel: "fast", version: "1.0.0"}
	backwards := preview{setOptions: back, after: withAssignment(s, back).ForResolve()}
	lower, safe := setOptions{module: "sample", channel: "regular", version: "1.0.0"}, fixture.Catalog()
	safe.Templates["sample-2.0.0"].Spec.Upgrade = &v1beta2.ModuleUpgrade{Back: "1.0.0"}
	halfWay := preview{setOptions: lower, after: withAssignment(safe, lower).ForResolve()}
	beta := setOptions{module: "sample", channel: "regular", version: "3.0.0"}
	forBeta := preview{setOptions: beta, after: withAssignment(s, beta).ForResolve()}
	paused := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a",
		Annotations: map[string]string{v1beta2.AnnotationPaused: "x"}},
		Spec: v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{{Name: "sample"}}}}
	plain := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1beta2.KymaSpec{Channel: "regular", SkipMaintenanceWindows: true,
			Modules: []v1beta2.Module{{Name: "sample"}}}}
	waiting := plain.DeepCopy()
	waiting.Spec.SkipMaintenanceWindows = false
	unmanaged := plain.DeepCopy()
	unmanaged.Spec.Modules[0].Managed = new(false)
	fast := plain.DeepCopy()
	fast.Spec.Channel = "fast"
	cases := map[string]struct {
		reason string
		what   preview
		kyma   *v1beta2.Kyma
		has    version
		effect string
		code   string
	}{
		"Moves":    {reason: "an update", what: w, kyma: plain, has: version{"1.0.0", "1.0.0"}, effect: "moves"},
		"Installs": {reason: "it is not there yet", what: w, kyma: plain, has: version{}, effect: "moves"},
		"There": {
			reason: "it has the version already",
			what:   w,
			kyma:   plain,
			has:    version{"2.0.0", "2.0.0"},
			effect: "stays",
		},
		"OnItsWay": {
			reason: "it is being updated to it",
			what:   w,
			kyma:   plain,
			has:    version{"1.0.0", "2.0.0"},
			effect: "stays",
		},
		"HalfWay": {
			reason: "its update to another version was not completed",
			what:   halfWay,
			kyma:   plain,
			has:    version{"1.0.0", "2.0.0"},
			effect: "moves",
		},
		"Window": {
			reason: "2.0.0 needs a downtime",
			what:   w,
			kyma:   waiting,
			has:    version{"1.0.0", "1.0.0"},
			effect: "waits",
			code:   v1beta2.ReasonWaitingForWindow,
		},
		"Paused": {
			reason: "nothing moves",
			what:   w,
			kyma:   paused,
			has:    version{"1.0.0", "1.0.0"},
			effect: "blocked",
			code:   v1beta2.ReasonKymaPaused,
		},
		"Unmanaged": {
			reason: "it was handed over",
			what:   w,
			kyma:   unmanaged,
			has:    version{"1.0.0", "1.0.0"},
			effect: "stays",
			code:   v1beta2.ReasonUnmanaged,
		},
		"Downgrade": {
			reason: "back is refused",
			what:   backwards,
			kyma:   fast,
			has:    version{"2.0.0", "2.0.0"},
			effect: "blocked",
			code:   v1beta2.ReasonDowngradeRefused,
		},
		"Beta": {
			reason: "only for some",
			what:   forBeta,
			kyma:   plain,
			has:    version{"1.0.0", "1.0.0"},
			effect: "blocked",
			code:   v1beta2.ReasonModuleNotAllowed,
		},
	}
	a := &console.App{Now: func() time.Time { return fixture.Noon }}
	r := &Effects{Module: "sample", Channel: "regular", From: "1.0.0", Version: "2.0.0", DryRun: true}
	for _, name := range []string{"Beta", "Downgrade", "Paused", "Window", "Moves", "Installs",
		"There", "OnItsWay", "HalfWay", "Unmanaged"} {
		c := cases[name]
		e := c.what.effectOn(c.kyma, c.has, a)
		if e.Effect != c.effect || e.Reason != c.code {
			t.Errorf("%s: %s: got %+v", name, c.reason, e)
		}
		e.Runtime = strings.ToLower(name)
		r.Runtimes = append(r.Runtimes, e)
	}
	fixture.Golden(t, "channel_set.txt", fixture.Text(t, r, config.FormatTable))
	if version := s.AssignmentsOf("sample")[1].Version; version != "1.0.0" {
		t.Errorf("asking has changed the catalog: %s", version)
	}
}

// TestVersionProgress checks the text about the progress of a change. A runtime that is no longer in the fleet is not
// waited for.
func TestVersionProgress(t *testing.T) {
	member := func(modules ...fleetlist.MemberModule) *fleetlist.Member {
		m := &fleetlist.Member{}
		m.Status.Modules = modules
		return m
	}
	fleet := map[string]*fleetlist.Member{
		"done":   member(fleetlist.MemberModule{Name: "sample", Version: "2.0.0", State: v1beta2.StateReady}),
		"former": member(fleetlist.MemberModule{Name: "sample", Version: "1.0.0", State: v1beta2.StateReady}),
		"failed": member(fleetlist.MemberModule{Name: "sample", Version: "2.0.0", State: v1beta2.StateError}),
		"new":    member(fleetlist.MemberModule{Name: "other", Version: "2.0.0", State: v1beta2.StateReady}),
	}
	o := setOptions{module: "sample", version: "2.0.0"}
	for _, c := range []struct {
		runtimes map[string]bool
		text     string
		missing  int
	}{
		{map[string]bool{"former": true}, "0 of 1 runtime Ready with version 2.0.0, 1 Ready", 1},
		{map[string]bool{"done": true}, "1 of 1 runtime Ready with version 2.0.0", 0},
		{map[string]bool{"done": true, "former": true, "failed": true, "new": true, "gone": true},
			"2 of 5 runtimes Ready with version 2.0.0, 1 Error, 1 New, 1 Ready", 3},
	} {
		if text, missing := versionProgress(fleet, c.runtimes, o); text != c.text || missing != c.missing {
			t.Errorf("got %q and %d missing, want %q and %d", text, missing, c.text, c.missing)
		}
	}
}
