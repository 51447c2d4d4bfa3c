package changelog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// atMinute returns a time that is the given number of minutes after the beginning of the tests.
func atMinute(minutes int) time.Time {
	return time.Date(2026, time.November, 23, 9, minutes, 0, 0, time.UTC)
}

func newChange(version, from string, started, ended int, outcome v1beta2.State, reason string) v1beta2.ModuleChange {
	c := v1beta2.ModuleChange{Version: version, From: from, Outcome: outcome, Reason: reason}
	if started > 0 {
		c.Started = metav1.NewTime(atMinute(started))
	}
	if ended > 0 {
		c.Ended = metav1.NewTime(atMinute(ended))
	}
	return c
}

// TestNext checks that a change begins once and ends once, and that an observation without news changes nothing.
func TestNext(t *testing.T) {
	installed := func(version string, state v1beta2.State, reason string) Observation {
		return Observation{Version: version, Installed: version, IsInstalled: true, State: state, Reason: reason}
	}
	upgrading := func(state v1beta2.State, reason string) Observation {
		return Observation{Version: "2.0.0", Installed: "1.0.0", IsInstalled: true, State: state, Reason: reason}
	}
	first := newChange("1.0.0", "", 1, 2, v1beta2.StateReady, "")
	type changes = []v1beta2.ModuleChange
	cases := map[string]struct {
		reason string
		before changes
		seen   Observation
		want   changes // after at(5)
	}{
		"InstallBegins": {"the version is not installed", nil,
			Observation{Version: "1.0.0", State: v1beta2.StateProcessing}, changes{newChange("1.0.0", "", 5, 0, "",
				"")}},
		"InstallGoesOn": {"it began before", changes{newChange("1.0.0", "", 1, 0, "", "")},
			Observation{Version: "1.0.0", State: v1beta2.StateProcessing}, changes{newChange("1.0.0", "", 1, 0, "",
				"")}},
		"InstallEnds": {"the module is Ready for the first time", changes{newChange("1.0.0", "", 1, 0, "", "")},
			installed("1.0.0", v1beta2.StateReady, ""), changes{newChange("1.0.0", "", 1, 5, v1beta2.StateReady, "")}},
		"InstallAtOnce": {"one reconcile was sufficient", nil,
			Observation{Version: "1.0.0", State: v1beta2.StateReady},
			changes{newChange("1.0.0", "", 5, 5, v1beta2.StateReady, "")}},
		"InstallEndsWithWarning": {"the module runs", changes{newChange("1.0.0", "", 1, 0, "", "")},
			installed("1.0.0", v1beta2.StateWarning, "X"),
			changes{newChange("1.0.0", "", 1, 5, v1beta2.StateWarning, "")}},
		"InstallFails": {"the end is open", changes{newChange("1.0.0", "", 1, 0, "", "")},
			Observation{Version: "1.0.0", State: v1beta2.StateError, Reason: "A"},
			changes{newChange("1.0.0", "", 1, 0, v1beta2.StateError, "A")}},
		"InstallFailsAtOnce": {"the artefact cannot be pulled", nil,
			Observation{Version: "1.0.0", State: v1beta2.StateError, Reason: "A"},
			changes{newChange("1.0.0", "", 5, 0, v1beta2.StateError, "A")}},
		"FailureStaysWhileRetried": {"the same failure is not new", changes{newChange("1.0.0", "", 1, 0,
			v1beta2.StateError, "A")}, Observation{Version: "1.0.0", State: v1beta2.StateProcessing},
			changes{newChange("1.0.0", "", 1, 0, v1beta2.StateError, "A")}},
		"Unchanged": {"Ready stays Ready", changes{first}, installed("1.0.0", v1beta2.StateReady, ""), changes{first}},
		"UpgradeBegins": {"another version", changes{first}, upgrading(v1beta2.StateProcessing, ""),
			changes{first, newChange("2.0.0", "1.0.0", 5, 0, "", "")}},
		"UpgradeEnds": {"the new version is Ready", changes{first, newChange("2.0.0", "1.0.0", 3, 0, "", "")},
			installed("2.0.0", v1beta2.StateReady, ""),
			changes{first, newChange("2.0.0", "1.0.0", 3, 5, v1beta2.StateReady, "")}},
		"FailsLater": {"the change has ended before", changes{first}, installed("1.0.0", v1beta2.StateError, "A"),
			changes{newChange("1.0.0", "", 1, 2, v1beta2.StateError, "A")}},
		"RecoversLater": {"the end is written once",
			changes{newChange("1.0.0", "", 1, 2, v1beta2.StateError, "A")}, installed("1.0.0", v1beta2.StateReady, ""),
			changes{first}},
		"GoesBack": {"the new version was never Ready", changes{first, newChange("2.0.0", "1.0.0", 3, 0,
			v1beta2.StateError, "A")}, installed("1.0.0", v1beta2.StateProcessing, ""),
			changes{first, newChange("2.0.0", "1.0.0", 3, 0, v1beta2.StateError, "A"),
				newChange("1.0.0", "1.0.0", 5, 0, "", "")}},
		"InstalledAgain": {"somebody has deleted the Manifest", changes{first},
			Observation{Version: "1.0.0", State: v1beta2.StateProcessing},
			changes{first, newChange("1.0.0", "", 5, 0, "", "")}},
		"OldObject":        {"an upgrade of the manager is no change", nil, installed("1.0.0", v1beta2.StateReady, ""), nil},
		"OldObjectApplied": {"nor is a restart", nil, installed("1.0.0", v1beta2.StateProcessing, ""), nil},
		"OldObjectFails": {"its beginning is not known", nil, installed("1.0.0", v1beta2.StateError, "A"),
			changes{newChange("1.0.0", "", 0, 0, v1beta2.StateError, "A")}},
		"OldObjectRecovers": {"likewise", changes{newChange("1.0.0", "", 0, 0, v1beta2.StateError, "A")},
			installed("1.0.0", v1beta2.StateReady, ""), changes{newChange("1.0.0", "", 0, 0, v1beta2.StateReady, "")}},
		"OldObjectUpgrades": {"its version is known", nil, upgrading(v1beta2.StateProcessing, ""),
			changes{newChange("2.0.0", "1.0.0", 5, 0, "", "")}},
		"WithoutVersion": {"a Manifest need not have one", nil, Observation{State: v1beta2.StateReady},
			changes{newChange("", "", 5, 5, v1beta2.StateReady, "")}},
		"WithoutVersionUnchanged": {"it is installed", nil, installed("", v1beta2.StateReady, ""), nil},
		"Unreachable": {"nothing is known about the module", changes{first},
			installed("1.0.0", v1beta2.StateError, v1beta2.ReasonRuntimeUnreachable), changes{first}},
		"Deleted":   {"it is no change of the version", changes{first}, installed("1.0.0", "Deleting", ""), changes{first}},
		"Unmanaged": {"the user maintains it", changes{first}, installed("1.0.0", "Unmanaged", ""), changes{first}},
		"Nothing":   {"the module has no Manifest", changes{first}, Observation{}, changes{first}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Next(c.before, c.seen, atMinute(5).Add(300*time.Millisecond))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(got, Next(got, c.seen, atMinute(9))); diff != "" && len(c.before) > 0 {
				t.Errorf("the same observation changes it again (-first +second):\n%s", diff)
			}
		})
	}
}

// TestNextKeepsTen checks the limits: ten changes, and at most 150 bytes for each change.
func TestNextKeepsTen(t *testing.T) {
	var all []v1beta2.ModuleChange
	for i := range 25 {
		o := Observation{Version: fmt.Sprintf("1.%d.0", i+1), Installed: fmt.Sprintf("1.%d.0", i), IsInstalled: true,
			State: v1beta2.StateProcessing}
		before := all
		all = Next(all, o, atMinute(1))
		o.Installed, o.State = o.Version, v1beta2.StateReady
		all = Next(all, o, atMinute(2))
		if len(before) > 0 && Last(before).Version != fmt.Sprintf("1.%d.0", i) {
			t.Fatal("an earlier list was changed")
		}
	}
	if len(all) != Limit || all[0].Version != "1.16.0" || Last(all).Version != "1.25.0" {
		t.Errorf("got %d changes from %s to %s", len(all), all[0].Version, Last(all).Version)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if size := len(text) / len(all); size > 120 {
		t.Errorf("a change has %d bytes: %s", size, text[:size])
	}
}

// TestEvents follows a module from its installation to its removal. In this test, each change of the status causes one
// event.
func TestEvents(t *testing.T) {
	first := newChange("1.0.0", "", 1, 2, v1beta2.StateReady, "")
	open := newChange("2.0.0", "1.0.0", 3, 0, "", "")
	failed := newChange("2.0.0", "1.0.0", 3, 0, v1beta2.StateError, "A")
	done := newChange("2.0.0", "1.0.0", 3, 4, v1beta2.StateReady, "")
	broken := newChange("2.0.0", "1.0.0", 3, 4, v1beta2.StateError, "A")
	entry := func(all ...v1beta2.ModuleChange) []v1beta2.ModuleStatus {
		return []v1beta2.ModuleStatus{{Name: "sample", Version: "1.0.0", State: v1beta2.StateReady, History: all,
			Message: "it is broken"}}
	}
	cases := map[string]struct {
		reason        string
		before, after []v1beta2.ModuleStatus
		want          string
	}{
		"Requested": {"nothing has happened yet", nil, entry(newChange("1.0.0", "", 1, 0, "", "")), ""},
		"Installed": {"Ready for the first time", entry(newChange("1.0.0", "", 1, 0, "", "")), entry(first),
			"Normal Installed module sample: version 1.0.0 is installed"},
		"InstalledAtOnce": {"between two saved statuses", nil, entry(first),
			"Normal Installed module sample: version 1.0.0 is installed"},
		"InstalledWithWarning": {"it runs", nil, entry(newChange("1.0.0", "", 1, 2, v1beta2.StateWarning, "")),
			"Normal Installed module sample: version 1.0.0 is installed"},
		"WarningEnds": {"it was installed before", entry(newChange("1.0.0", "", 1, 2, v1beta2.StateWarning, "")),
			entry(first), ""},
		"Unchanged":    {"no event", entry(first), entry(first), ""},
		"UpgradeBegun": {"no event yet", entry(first), entry(first, open), ""},
		"Upgraded": {"both versions are named", entry(first, open), entry(first, done),
			"Normal Upgraded module sample: upgraded from version 1.0.0 to 2.0.0"},
		"Failed": {"the reason comes first", entry(first, open), entry(first, failed),
			"Warning Failed A: module sample, version 2.0.0: it is broken"},
		"FailedAgain": {"the same reason", entry(first, failed), entry(first, failed), ""},
		"FailedOtherwise": {"another reason of the same failure", entry(first, failed),
			entry(first, newChange("2.0.0", "1.0.0", 3, 0, v1beta2.StateError, "B")), ""},
		"NextVersionFails": {"another change", entry(first, failed),
			entry(first, failed, newChange("3.0.0", "1.0.0", 5, 0, v1beta2.StateError, "A")),
			"Warning Failed A: module sample, version 3.0.0: it is broken"},
		"UpgradedAfterFailure": {"it never ran before", entry(first, failed), entry(first, done),
			"Normal Upgraded module sample: upgraded from version 1.0.0 to 2.0.0"},
		"BrokenLater": {"a version that ran", entry(first, done), entry(first, broken),
			"Warning Failed A: module sample, version 2.0.0: it is broken"},
		"Recovered": {"it ran before", entry(first, broken), entry(first, done),
			"Normal Recovered module sample: version 2.0.0 is Ready again"},
		"BackToOld": {"the old version runs again", entry(first, failed, newChange("1.0.0", "1.0.0", 5, 0, "", "")),
			entry(first, failed, newChange("1.0.0", "1.0.0", 5, 6, v1beta2.StateReady, "")),
			"Normal Recovered module sample: version 1.0.0 is Ready again"},
		"OldObjectFails": {"without a history", entry(),
			entry(newChange("1.0.0", "", 0, 0, v1beta2.StateError, "A")),
			"Warning Failed A: module sample, version 1.0.0: it is broken"},
		"OldObjectRecovers": {"it was installed before", entry(newChange("1.0.0", "", 0, 0, v1beta2.StateError, "A")),
			entry(newChange("1.0.0", "", 0, 0, v1beta2.StateReady, "")),
			"Normal Recovered module sample: version 1.0.0 is Ready again"},
		"Removed": {"the entry is gone", entry(first), nil, "Normal Removed module sample is removed"},
		"NeverInstalled": {"there was nothing to remove",
			[]v1beta2.ModuleStatus{{Name: "sample", State: v1beta2.StateWarning}}, nil, ""},
		"Unmanaged": {"its objects stay",
			[]v1beta2.ModuleStatus{{Name: "sample", Version: "1.0.0", State: v1beta2.StateUnmanaged}}, nil, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := eventsText(Events(c.before, c.after)); got != c.want {
				t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
			}
			if got := eventsText(Events(c.after, c.after)); got != "" {
				t.Errorf("a repeated reconcile has the event %q", got)
			}
			if len(c.before) == 0 || len(c.after) == 0 {
				return
			}
			var before, after v1beta2.ManifestStatus
			before.LastChange, after.LastChange = Last(c.before[0].History), Last(c.after[0].History)
			after.LastOperation.Operation = "it is broken"
			var got []Event
			if e := ManifestEvent("sample", &before, &after); e != nil {
				got = append(got, *e)
			}
			if got := eventsText(got); got != c.want {
				t.Errorf("%s: the Manifest has %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

// TestEventsOfStep checks the events of a reconcile whose status records two changes at once: one version has become
// Ready, and the change to the next version has begun.
func TestEventsOfStep(t *testing.T) {
	entry := func(all ...v1beta2.ModuleChange) []v1beta2.ModuleStatus {
		return []v1beta2.ModuleStatus{{Name: "sample", History: all}}
	}
	events := Events(entry(newChange("2.0.0", "1.0.0", 3, 0, "", "")),
		entry(newChange("2.0.0", "1.0.0", 3, 4, v1beta2.StateReady, ""), newChange("3.0.0", "2.0.0", 5, 0, "", "")))
	if len(events) != 1 || events[0].Note != "module sample: upgraded from version 1.0.0 to 2.0.0" {
		t.Errorf("got %v, want the upgrade to 2.0.0", events)
	}
}

// TestEventsOfUnsavedStep checks that a version between two others has its event, although the status was not saved
// when the change to this version began.
func TestEventsOfUnsavedStep(t *testing.T) {
	entry := func(all ...v1beta2.ModuleChange) []v1beta2.ModuleStatus {
		return []v1beta2.ModuleStatus{{Name: "sample", History: all}}
	}
	first := newChange("1.0.0", "", 1, 2, v1beta2.StateReady, "")
	step, last := newChange("2.0.0", "1.0.0", 3, 4, v1beta2.StateReady, ""), newChange("3.0.0", "2.0.0", 5, 0, "", "")
	events := Events(entry(first), entry(first, step, last))
	if len(events) != 1 || events[0].Note != "module sample: upgraded from version 1.0.0 to 2.0.0" {
		t.Errorf("got %v, want the upgrade to 2.0.0", events)
	}
	if events := Events(entry(first, step, last), entry(first, step, last)); len(events) > 0 {
		t.Errorf("got %v again", events)
	}
	if events := Events(entry(first), entry(step, last)); len(events) != 1 { // the first change is too old for the list
		t.Errorf("got %v, want the upgrade to 2.0.0", events)
	}
}

// TestReachabilityEvents checks that an outage causes two events.
func TestReachabilityEvents(t *testing.T) {
	status := func(ok metav1.ConditionStatus, reason string) *v1beta2.KymaStatus {
		return &v1beta2.KymaStatus{Conditions: []metav1.Condition{
			{Type: v1beta2.ConditionReady, Status: ok, Reason: reason}},
			LastOperation: v1beta2.LastOperation{Operation: "no answer"}}
	}
	ready := status(metav1.ConditionTrue, v1beta2.ReasonReady)
	lost := status(metav1.ConditionFalse, v1beta2.ReasonRuntimeUnreachable)
	cases := map[string]struct {
		reason        string
		before, after *v1beta2.KymaStatus
		want          string
	}{
		"New":   {"nothing is wrong", &v1beta2.KymaStatus{}, ready, ""},
		"Lost":  {"the reason comes first", ready, lost, "Warning RuntimeUnreachable RuntimeUnreachable: no answer"},
		"Still": {"one event", lost, status(metav1.ConditionFalse, v1beta2.ReasonRuntimeUnauthorized), ""},
		"Back": {"even if modules are not Ready", lost, status(metav1.ConditionFalse, v1beta2.ReasonModulesNotReady),
			"Normal RuntimeReachable the runtime can be used again"},
		"Never": {"no Secret at the beginning", &v1beta2.KymaStatus{},
			status(metav1.ConditionFalse, v1beta2.ReasonAccessSecretNotFound), "Warning RuntimeUnreachable AccessSecretNotFound: no answer"},
		"Modules": {"a module failed", ready, status(metav1.ConditionFalse, v1beta2.ReasonWorkloadFailed), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := eventsText(ReachabilityEvents(c.before, c.after)); got != c.want {
				t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

// eventsText returns several events as one line of text.
func eventsText(all []Event) string {
	s := ""
	for i, e := range all {
		if i > 0 {
			s += "; "
		}
		s += e.Type + " " + e.Reason + " " + e.Note
	}
	return s
}

// TestCredentialEvents checks that each problem of a credential causes one event.
func TestCredentialEvents(t *testing.T) {
	status := func(reason string) *v1beta2.KymaStatus {
		if reason == "" {
			return &v1beta2.KymaStatus{}
		}
		return &v1beta2.KymaStatus{Conditions: []metav1.Condition{{Type: v1beta2.ConditionCredentialHealthy,
			Status: metav1.ConditionFalse, Reason: reason, Message: "renew it"}}}
	}
	const expires, reduced = v1beta2.ReasonCredentialExpires, v1beta2.ReasonRightsReduced
	for name, c := range map[string]struct{ before, after, want string }{
		"Healthy": {"", "", ""},
		"Expires": {"", expires, "Warning CredentialExpires renew it"},
		"Still":   {expires, expires, ""},
		"Reduced": {expires, reduced, "Warning RightsReduced renew it"},
		"Renewed": {reduced, "", ""},
	} {
		if got := eventsText(CredentialProblemEvents(status(c.before), status(c.after))); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestCatchUp checks that a change of the Manifest that is missing in the status of the Kyma is added once.
func TestCatchUp(t *testing.T) {
	minute := func(n int) metav1.Time { return metav1.NewTime(atMinute(n)) }
	change := func(version string, started, ended metav1.Time) v1beta2.ModuleChange {
		return v1beta2.ModuleChange{Version: version, Started: started, Ended: ended, Outcome: v1beta2.StateReady}
	}
	first, second := change("1.0.0", minute(1), minute(2)), change("2.0.0", minute(3), minute(4))
	begun := v1beta2.ModuleChange{Version: "2.0.0", From: "1.0.0", Started: minute(3)}
	cases := map[string]struct {
		changes    []v1beta2.ModuleChange
		ofManifest *v1beta2.ModuleChange
		want       []v1beta2.ModuleChange
	}{
		"First":   {nil, &first, []v1beta2.ModuleChange{first}},
		"Upgrade": {[]v1beta2.ModuleChange{first}, &second, []v1beta2.ModuleChange{first, second}},
		"Known":   {[]v1beta2.ModuleChange{first}, &first, []v1beta2.ModuleChange{first}},
		"Older":   {[]v1beta2.ModuleChange{second}, &first, []v1beta2.ModuleChange{second}},
		"Ended": {[]v1beta2.ModuleChange{first, change("2.0.0", minute(3), metav1.Time{})}, &second,
			[]v1beta2.ModuleChange{first, second}},
		"EndedBefore": {[]v1beta2.ModuleChange{change("2.0.0", minute(5), metav1.Time{})}, &second,
			[]v1beta2.ModuleChange{change("2.0.0", minute(5), metav1.Time{})}},
		"Begun": {[]v1beta2.ModuleChange{first}, &begun, []v1beta2.ModuleChange{first, begun}},
		"BegunAndKnown": {[]v1beta2.ModuleChange{first, change("2.0.0", minute(2), metav1.Time{})}, &begun,
			[]v1beta2.ModuleChange{first, change("2.0.0", minute(2), metav1.Time{})}},
		"BegunBefore": {[]v1beta2.ModuleChange{first, change("3.0.0", minute(4), metav1.Time{})}, &begun,
			[]v1beta2.ModuleChange{first, change("3.0.0", minute(4), metav1.Time{})}},
		"None": {[]v1beta2.ModuleChange{first}, nil, []v1beta2.ModuleChange{first}},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, CatchUp(c.changes, c.ofManifest)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// TestFold checks that the events with the same reason about many modules become one event, and that its number
// includes every module.
func TestFold(t *testing.T) {
	events := func(reason string, n int) (all []Event) {
		for i := range n {
			name := fmt.Sprintf("%s-%d", reason, i+1)
			all = append(all, Event{Type: "Warning", Reason: reason, Module: name, Note: "module " + name})
		}
		return all
	}
	normal := func(all []Event) []Event {
		for i := range all {
			all[i].Type = "Normal"
		}
		return all
	}
	unreachable := Event{Type: "Warning", Reason: "A", Note: "not about a module"}
	cases := map[string]struct {
		reason string
		all    []Event
		want   []string // notes
	}{
		"None": {"nothing happened", nil, nil},
		"Few":  {"each has its event", events("A", 2), []string{"module A-1", "module A-2"}},
		"Most": {"the limit itself", append(events("A", 5)[4:], events("A", 4)...),
			[]string{"module A-5", "module A-1", "module A-2", "module A-3", "module A-4"}},
		"Many": {"all are named", events("A", 6), []string{"6 modules: A-1, A-2, A-3, A-4, A-5, A-6; the first one: module A-1"}},
		"Normal": {"one event has all notes", normal(append(events("A", 4), events("B", 1)...)),
			[]string{"module A-1; module A-2; module A-3; module A-4", "module B-1"}},
		"Long": {"no module is cut off", normal([]Event{{Reason: "A", Module: "x", Note: strings.Repeat("x", 600)},
			{Reason: "A", Module: "y", Note: strings.Repeat("y", 600)}}),
			[]string{"2 modules: x, y; the first one: " + strings.Repeat("x", 600)}},
		"ManyNormal": {"all are named", normal(events("A", 6)), []string{
			"6 modules: A-1, A-2, A-3, A-4, A-5, A-6; the first one: module A-1"}},
		"Flood": {"some are named", events("A", 250), []string{
			"250 modules: A-1, A-2, A-3, A-4, A-5, A-6, A-7, A-8, A-9, A-10 and 240 more; the first one: module A-1"}},
		"Two": {"by reason", append(append(events("B", 1), unreachable), events("A", 12)...), []string{"module B-1",
			"not about a module",
			"12 modules: A-1, A-2, A-3, A-4, A-5, A-6, A-7, A-8, A-9, A-10 and 2 more; the first one: module A-1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var notes []string
			for _, e := range FoldByReason(c.all) {
				notes = append(notes, e.Note)
			}
			if diff := cmp.Diff(c.want, notes); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}
