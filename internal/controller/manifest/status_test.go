package manifest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// TestSaveDelay checks how long saving a change of the status can be deferred. In an installation without problems,
// only the first and the last change are saved; in a fast upgrade, only the last one. A status that users may wait for,
// or that a restart needs, is saved at once.
func TestSaveDelay(t *testing.T) {
	config := v1beta2.Resource{Version: "v1", Kind: "ConfigMap", Name: "a"}
	secret := v1beta2.Resource{Version: "v1", Kind: "Secret", Name: "b"}
	upgrade := func(now, saved *v1beta2.ManifestStatus) {
		saved.State, saved.Version, saved.AppliedDigest = v1beta2.StateReady, "0.9.0", "c"
		now.ObservedGeneration++
	}
	cases := map[string]struct {
		reason string
		edit   func(now, saved *v1beta2.ManifestStatus)
		want   time.Duration
	}{
		"Goes on": {"nothing has changed", func(*v1beta2.ManifestStatus, *v1beta2.ManifestStatus) {}, quietPeriod},
		"Operation": {"the message is saved only if it takes long",
			func(now, _ *v1beta2.ManifestStatus) { now.LastOperation.Operation = "2 of 3" }, quietPeriod},
		"Applied": {"the applied digest is remembered",
			func(now, _ *v1beta2.ManifestStatus) { now.AppliedDigest = "d" }, quietPeriod},
		"Ready": {"the installation is complete",
			func(now, _ *v1beta2.ManifestStatus) { now.State = v1beta2.StateReady }, 0},
		"Error": {"a problem", func(now, _ *v1beta2.ManifestStatus) { now.State = v1beta2.StateError }, 0},
		"New":   {"the start has to be saved", func(_, saved *v1beta2.ManifestStatus) { saved.State = "" }, 0},
		"Was ready": {"the module has failed, which is no upgrade",
			func(_, saved *v1beta2.ManifestStatus) { saved.State = v1beta2.StateReady }, 0},
		"Upgrade goes on": {"its start is saved",
			func(now, saved *v1beta2.ManifestStatus) { now.Version, saved.Version = "1.0.0", "0.9.0" }, quietPeriod},
		"Upgrade begins": {"most upgrades take less time", upgrade, processingSaveDelay},
		"Upgrade of a Warning": {"likewise", func(now, saved *v1beta2.ManifestStatus) {
			upgrade(now, saved)
			saved.State = v1beta2.StateWarning
		}, processingSaveDelay},
		"Upgrade of an Error": {"people wait for the end of the error", func(now, saved *v1beta2.ManifestStatus) {
			upgrade(now, saved)
			saved.State = v1beta2.StateError
		}, 0},
		"Upgrade lasts": {"people want to see the state", func(now, saved *v1beta2.ManifestStatus) {
			since(now, processingSaveDelay+time.Second)
			upgrade(now, saved)
		}, 0},
		"Upgrade is blocked": {"people have to delete custom resources", func(now, saved *v1beta2.ManifestStatus) {
			upgrade(now, saved)
			saved.Conditions = slices.Clone(saved.Conditions)
			now.Conditions[0].Reason = v1beta2.ReasonCustomResourceBlocksDeletion
		}, 0},
		"Upgrade is blocked later": {"likewise", func(now, saved *v1beta2.ManifestStatus) {
			saved.Conditions = slices.Clone(saved.Conditions)
			now.Conditions[0].Reason = v1beta2.ReasonCustomResourceBlocksDeletion
		}, 0},
		"Upgrade prunes": {"the saved inventory has more objects", func(now, saved *v1beta2.ManifestStatus) {
			upgrade(now, saved)
			saved.Synced = []v1beta2.Resource{secret, config}
		}, processingSaveDelay},
		"Upgrade adds": {"the inventory has to be saved", func(now, saved *v1beta2.ManifestStatus) {
			upgrade(now, saved)
			now.Synced = append(now.Synced, secret)
		}, 0},
		"Slow": {"it takes long", func(now, _ *v1beta2.ManifestStatus) { since(now, quietPeriod+time.Second) }, 0},
		"Edited": {"the spec has changed during an installation",
			func(now, _ *v1beta2.ManifestStatus) { now.ObservedGeneration++ }, 0},
		"Inventory": {"the inventory has to be saved",
			func(now, _ *v1beta2.ManifestStatus) { now.Synced = append(now.Synced, secret) }, 0},
		"Existed": {"a deletion must leave the object", func(now, _ *v1beta2.ManifestStatus) {
			now.Synced = []v1beta2.Resource{config}
			now.Synced[0].Adopted = true
		}, 0},
		"Nothing": {"without an inventory the start is not saved",
			func(now, saved *v1beta2.ManifestStatus) { now.Synced, saved.Synced = nil, nil }, 0},
		"Signature": {"the signature has to be saved",
			func(now, _ *v1beta2.ManifestStatus) { conditionOf(now, v1beta2.ConditionSignature, time.Now()) }, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				status := v1beta2.ManifestStatus{State: v1beta2.StateProcessing, ObservedGeneration: 1,
					Synced: []v1beta2.Resource{config}}
				since(&status, 0)
				m := manifestWith(func(m *v1beta2.Manifest) { m.ResourceVersion, m.Status = "7", *status.DeepCopy() })
				n := &run{manifest: m, memory: &memory{}}
				saved := &v1beta2.Manifest{Status: status}
				c.edit(&m.Status, &saved.Status)
				got := n.deferSave(saved)
				if max(got, 0) != c.want {
					t.Errorf("%s: deferred for %s, want %s", c.reason, got, c.want)
				}
				if got := n.memory.takeDeferredIfUnchanged(m); (got != nil) != (c.want > 0) ||
					c.want > 0 && !loop.Equal(got, &m.Status) {
					t.Errorf("%s: remembered is %+v", c.reason, got)
				}
			})
		})
	}
}

// TestDeferralOfDeletion checks which changes of the status are saved later during a deletion. In a fast deletion, only
// the first change has to be saved at once. If the deletion is blocked, the status is saved at once.
func TestDeferralOfDeletion(t *testing.T) {
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
			synctest.Test(t, func(t *testing.T) {
				status := v1beta2.ManifestStatus{State: v1beta2.StateDeleting, ObservedGeneration: 1}
				since(&status, 0)
				m := manifestWith(func(m *v1beta2.Manifest) { m.Status = *status.DeepCopy() })
				n := &run{manifest: m, memory: &memory{}}
				saved := &v1beta2.Manifest{Status: status}
				c.edit(&m.Status, &saved.Status)
				if got := n.deferSave(saved); got > 0 != c.want {
					t.Errorf("%s: deferred for %s, want %t", c.reason, got, c.want)
				}
			})
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
	if got := memory.takeDeferredIfUnchanged(m); got != status {
		t.Errorf("nothing has happened since: got %v", got)
	}
	if got := memory.takeDeferredIfUnchanged(m); got != nil {
		t.Errorf("it was taken before: got %v", got)
	}
	memory.deferred = deferred{status, "6"}
	if got := memory.takeDeferredIfUnchanged(m); got != nil {
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
			if got := n.isReadyUnchanged("rules"); got != c.want {
				t.Errorf("%s: isReadyUnchanged() = %t, want %t", c.reason, got, c.want)
			}
		})
	}
}
