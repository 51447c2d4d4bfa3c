package manifest

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// TestIsMinor checks which changes of the status are minor, so that they need not be saved at once. During an
// installation without problems, all changes of the status are minor except the first and the last. A change of the
// status that users may wait for, or that the manager needs after a restart, is never minor.
func TestIsMinor(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   func(now, saved *v1beta2.ManifestStatus)
		want   bool
	}{
		"Goes on": {"nothing has changed", func(*v1beta2.ManifestStatus, *v1beta2.ManifestStatus) {}, true},
		"Operation": {"the message is saved only if it takes long",
			func(now, _ *v1beta2.ManifestStatus) { now.LastOperation.Operation = "2 of 3" }, true},
		"Applied": {"the applied digest is remembered",
			func(now, _ *v1beta2.ManifestStatus) { now.AppliedDigest = "d" }, true},
		"Ready": {"the installation is complete",
			func(now, _ *v1beta2.ManifestStatus) { now.State = v1beta2.StateReady }, false},
		"Error": {"a problem", func(now, _ *v1beta2.ManifestStatus) { now.State = v1beta2.StateError }, false},
		"New":   {"the start has to be saved", func(_, saved *v1beta2.ManifestStatus) { saved.State = "" }, false},
		"Was ready": {"it is not a new installation",
			func(_, saved *v1beta2.ManifestStatus) { saved.State = v1beta2.StateReady }, false},
		"Upgrade": {"another version is installed", func(_, saved *v1beta2.ManifestStatus) { saved.Version = "0.9.0" },
			false},
		"Upgrades": {"nobody takes the state of the former version for that of the new one",
			func(now, saved *v1beta2.ManifestStatus) {
				saved.State, saved.Version, saved.AppliedDigest = v1beta2.StateReady, "0.9.0", "c"
				now.ObservedGeneration++
			}, false},
		"Slow": {"it takes long", func(now, _ *v1beta2.ManifestStatus) { since(now, quietPeriod+time.Second) },
			false},
		"Edited": {"the spec has changed", func(now, _ *v1beta2.ManifestStatus) { now.ObservedGeneration++ }, false},
		"Inventory": {"the inventory has to be saved", func(now, _ *v1beta2.ManifestStatus) {
			now.Synced = append(now.Synced, v1beta2.Resource{Version: "v1", Kind: "Secret", Name: "b"})
		}, false},
		"Nothing": {"without an inventory the start is not saved",
			func(now, saved *v1beta2.ManifestStatus) { now.Synced, saved.Synced = nil, nil }, false},
		"Signature": {"the signature has to be saved",
			func(now, _ *v1beta2.ManifestStatus) { conditionOf(now, v1beta2.ConditionSignature, time.Now()) }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			status := v1beta2.ManifestStatus{
				State: v1beta2.StateProcessing, ObservedGeneration: 1,
				Synced: []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Name: "a"}},
			}
			since(&status, 0)
			m := manifestWith(func(m *v1beta2.Manifest) { m.ResourceVersion, m.Status = "7", *status.DeepCopy() })
			n := &run{manifest: m, saved: status, memory: &memory{}}
			c.edit(&m.Status, &n.saved)
			if got := n.deferSave(); got != c.want {
				t.Errorf("%s: got %t, want %t", c.reason, got, c.want)
			}
			if got := n.memory.takeDeferred(m); (got != nil) != c.want || c.want && !loop.Equal(got, &m.Status) {
				t.Errorf("%s: remembered is %+v", c.reason, got)
			}
		})
	}
}

// TestIsMinorDeletion checks which changes of the status are minor during a deletion, so that they need not be saved at
// once. If a deletion ends within quietPeriod, only the first change of the status is saved. If the deletion is
// blocked, the status is saved at once.
func TestIsMinorDeletion(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   func(now, saved *v1beta2.ManifestStatus)
		want   bool
	}{
		"Goes on": {"fewer objects are left", func(
			now, _ *v1beta2.ManifestStatus) {
			now.LastOperation.Operation = "waiting for 2 objects"
		}, true},
		"Begun": {"the start has to be saved", func(
			_, saved *v1beta2.ManifestStatus) {
			saved.State = v1beta2.StateReady
		}, false},
		"Blocked": {"the user has to act", func(now, _ *v1beta2.ManifestStatus) {
			now.Conditions[0].Reason = v1beta2.ReasonCustomResourceBlocksDeletion
		}, false},
		"Freed": {"the user need not act any more", func(_, saved *v1beta2.ManifestStatus) {
			saved.Conditions[0].Reason = v1beta2.ReasonCustomResourceBlocksDeletion
		}, false},
		"Slow": {"it takes long", func(now, _ *v1beta2.ManifestStatus) { since(now, quietPeriod+time.Second) },
			false},
		"Edited": {"the spec has changed", func(now, _ *v1beta2.ManifestStatus) { now.ObservedGeneration++ }, false},
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

// since sets the condition Ready in a status. The condition Ready has been False for the duration in the parameter d.
func since(s *v1beta2.ManifestStatus, d time.Duration) {
	s.Conditions = nil
	conditionOf(s, v1beta2.ConditionReady, time.Now().Add(-d))
}

func conditionOf(s *v1beta2.ManifestStatus, kind string, at time.Time) {
	s.Conditions = append(s.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "R",
		LastTransitionTime: metav1.NewTime(at)})
}

// TestTakeDeferred checks that a deferred status is used once, and only while the Manifest has not changed.
func TestTakeDeferred(t *testing.T) {
	m := manifestWith(func(m *v1beta2.Manifest) { m.ResourceVersion = "7" })
	status := &v1beta2.ManifestStatus{AppliedDigest: "d"}
	memory := &memory{deferred: deferred{status, "7"}}
	if got := memory.takeDeferred(m); got != status {
		t.Errorf("nothing has happened since: got %v", got)
	}
	if got := memory.takeDeferred(m); got != nil {
		t.Errorf("it was taken before: got %v", got)
	}
	memory.deferred = deferred{status, "6"}
	if got := memory.takeDeferred(m); got != nil {
		t.Errorf("the Manifest has changed: got %v", got)
	}
}

func TestIsQuiet(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*run)
		want   bool
	}{
		"Nothing": {"nothing has happened", func(*run) {}, true},
		"Restarted": {"the status is trusted", func(n *run) { n.memory.readinessRules, n.memory.reported = "", "" },
			true},
		"Unsaved": {"the last reconcile reported an error that was not saved",
			func(n *run) { n.memory.reported = v1beta2.StateError }, false},
		"NotReady": {"the status is not Ready", func(n *run) { n.manifest.Status.State = v1beta2.StateWarning },
			false},
		"Event": {"an event was received", func(n *run) { n.changes.readiness = true }, false},
		"Changed": {"an object changed",
			func(n *run) { n.changes.objects = map[apply.Ref]objectEvent{{Kind: "Pod"}: {}} }, false},
		"Rendered":   {"objects were sent", func(n *run) { n.rendered = &rendered{} }, false},
		"Generation": {"the spec changed", func(n *run) { n.manifest.Generation++ }, false},
		"Rules":      {"the rules have changed", func(n *run) { n.memory.readinessRules = "others" }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := &run{manifest: &v1beta2.Manifest{},
				memory: &memory{readinessRules: "rules", reported: v1beta2.StateReady}}
			n.manifest.Status.State = v1beta2.StateReady
			c.change(n)
			if got := n.isQuiet("rules"); got != c.want {
				t.Errorf("%s: isQuiet() = %t, want %t", c.reason, got, c.want)
			}
		})
	}
}
