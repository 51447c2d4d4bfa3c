package manifest

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestIsMinor: a new installation that goes well costs two writes of its status; whatever somebody may wait for, or a restart needs, is saved.
func TestIsMinor(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   func(now, saved *v1beta2.ManifestStatus)
		want   bool
	}{
		"Goes on":   {"it says that it was begun, and that holds", func(*v1beta2.ManifestStatus, *v1beta2.ManifestStatus) {}, true},
		"Operation": {"what it waits for is told when it takes long", func(now, _ *v1beta2.ManifestStatus) { now.LastOperation.Operation = "2 of 3" }, true},
		"Applied":   {"that everything was applied is kept in mind", func(now, _ *v1beta2.ManifestStatus) { now.AppliedDigest = "d" }, true},
		"Ready":     {"the end of it", func(now, _ *v1beta2.ManifestStatus) { now.State = v1beta2.StateReady }, false},
		"Error":     {"a problem", func(now, _ *v1beta2.ManifestStatus) { now.State = v1beta2.StateError }, false},
		"New":       {"that it was begun has to be said once", func(_, saved *v1beta2.ManifestStatus) { saved.State = "" }, false},
		"Was ready": {"it is no new installation", func(_, saved *v1beta2.ManifestStatus) { saved.State = v1beta2.StateReady }, false},
		"Upgrade":   {"another version is there", func(_, saved *v1beta2.ManifestStatus) { saved.Version = "0.9.0" }, false},
		"Slow":      {"people begin to ask", func(now, _ *v1beta2.ManifestStatus) { since(now, quietPeriod+time.Second) }, false},
		"Edited":    {"it was changed meanwhile", func(now, _ *v1beta2.ManifestStatus) { now.ObservedGeneration++ }, false},
		"Inventory": {"what is installed is written down first", func(now, _ *v1beta2.ManifestStatus) {
			now.Synced = append(now.Synced, v1beta2.Resource{Version: "v1", Kind: "Secret", Name: "b"})
		}, false},
		"Nothing":   {"without an inventory nothing was begun", func(now, saved *v1beta2.ManifestStatus) { now.Synced, saved.Synced = nil, nil }, false},
		"Signature": {"who has signed is for auditors", func(now, _ *v1beta2.ManifestStatus) { condition(now, v1beta2.ConditionSignature, time.Now()) }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			status := v1beta2.ManifestStatus{
				State: v1beta2.StateProcessing, ObservedGeneration: 1, Synced: []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Name: "a"}},
			}
			since(&status, 0)
			m := manifestWith(func(m *v1beta2.Manifest) { m.ResourceVersion, m.Status = "7", *status.DeepCopy() })
			n := &run{manifest: m, saved: status, memory: &memory{unsaved: unsaved{"before", "6"}}}
			c.edit(&m.Status, &n.saved)
			if got := n.deferSave(); got != c.want {
				t.Errorf("%s: got %t, want %t", c.reason, got, c.want)
			}
			want := unsaved{"before", "6"} // what is saved is none of its business
			if c.want {
				want = unsaved{}
				if m.Status.AppliedDigest != "" {
					want = unsaved{m.Status.AppliedDigest, "7"}
				}
			}
			if n.memory.unsaved != want {
				t.Errorf("%s: kept in mind is %+v, want %+v", c.reason, n.memory.unsaved, want)
			}
		})
	}
}

// TestIsMinorDeletion: a deletion that is quick costs one write of the status; what stands in its way is told at once.
func TestIsMinorDeletion(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   func(now, saved *v1beta2.ManifestStatus)
		want   bool
	}{
		"Goes on": {"less is left", func(now, _ *v1beta2.ManifestStatus) { now.LastOperation.Operation = "waiting for 2 objects" }, true},
		"Begun":   {"that it is being deleted has to be said", func(_, saved *v1beta2.ManifestStatus) { saved.State = v1beta2.StateReady }, false},
		"Blocked": {"somebody has to do something", func(now, _ *v1beta2.ManifestStatus) {
			now.Conditions[0].Reason = v1beta2.ReasonCustomResourceBlocksDeletion
		}, false},
		"Freed": {"nobody has to do anything any more", func(_, saved *v1beta2.ManifestStatus) {
			saved.Conditions[0].Reason = v1beta2.ReasonCustomResourceBlocksDeletion
		}, false},
		"Slow":   {"people begin to ask", func(now, _ *v1beta2.ManifestStatus) { since(now, quietPeriod+time.Second) }, false},
		"Edited": {"it was changed meanwhile", func(now, _ *v1beta2.ManifestStatus) { now.ObservedGeneration++ }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			status := v1beta2.ManifestStatus{State: v1beta2.StateDeleting, ObservedGeneration: 1}
			since(&status, 0)
			m := manifestWith(func(m *v1beta2.Manifest) { m.Status = *status.DeepCopy() })
			n := &run{manifest: m, saved: status, memory: &memory{}}
			c.edit(&m.Status, &n.saved)
			if got := n.deferSave(); got != c.want {
				t.Errorf("%s: got %t, want %t", c.reason, got, c.want)
			}
		})
	}
}

// since says that a status has not been Ready for so long.
func since(s *v1beta2.ManifestStatus, d time.Duration) {
	s.Conditions = nil
	condition(s, v1beta2.ConditionReady, time.Now().Add(-d))
}

func condition(s *v1beta2.ManifestStatus, kind string, at time.Time) {
	s.Conditions = append(s.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "R", LastTransitionTime: metav1.NewTime(at)})
}

// TestUnsaved: what is kept in mind holds for that digest of that state of the Manifest only.
func TestUnsaved(t *testing.T) {
	cases := map[string]struct {
		reason  string
		unsaved unsaved
		want    bool
	}{
		"Same":    {"nothing has happened since", unsaved{"d", "7"}, true},
		"Other":   {"something else is wanted now", unsaved{"c", "7"}, false},
		"Changed": {"somebody has written the Manifest", unsaved{"d", "6"}, false},
		"None":    {"nothing is kept in mind", unsaved{}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := manifestWith(func(m *v1beta2.Manifest) { m.ResourceVersion = "7" })
			if got := c.unsaved.isOf(m, "d"); got != c.want {
				t.Errorf("%s: got %t, want %t", c.reason, got, c.want)
			}
		})
	}
}

func TestIsQuiet(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*run)
		want   bool
	}{
		"Nothing":    {"nothing has happened", func(*run) {}, true},
		"Restarted":  {"what the status says is relied on", func(n *run) { n.memory.readinessRules, n.memory.reported = "", "" }, true},
		"Unsaved":    {"the last pass found an error, and could not say so", func(n *run) { n.memory.reported = v1beta2.StateError }, false},
		"NotReady":   {"it may have become Ready", func(n *run) { n.manifest.Status.State = v1beta2.StateWarning }, false},
		"Stirred":    {"something happened", func(n *run) { n.changes.readiness = true }, false},
		"News":       {"an object changed", func(n *run) { n.changes.objects = map[apply.Ref]objectEvent{{Kind: "Pod"}: {}} }, false},
		"Rendered":   {"objects were sent", func(n *run) { n.rendered = &rendered{} }, false},
		"Generation": {"the spec changed", func(n *run) { n.manifest.Generation++ }, false},
		"Rules":      {"it is judged in another way", func(n *run) { n.memory.readinessRules = "others" }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := &run{manifest: &v1beta2.Manifest{}, memory: &memory{readinessRules: "rules", reported: v1beta2.StateReady}}
			n.manifest.Status.State = v1beta2.StateReady
			c.change(n)
			if got := n.isQuiet("rules"); got != c.want {
				t.Errorf("%s: isQuiet() = %t, want %t", c.reason, got, c.want)
			}
		})
	}
}
