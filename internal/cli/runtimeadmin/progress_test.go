package runtimeadmin

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

func TestModuleProgress(t *testing.T) {
	with := func(e v1beta2.ModuleStatus, m v1beta2.Module) *v1beta2.Kyma {
		e.Name, m.Name = "sample", "sample"
		return fixture.Kyma(v1beta2.StateProcessing, m, e)
	}
	none := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "other"}, v1beta2.ModuleStatus{Name: "other"})
	old := with(v1beta2.ModuleStatus{State: v1beta2.StateReady}, v1beta2.Module{})
	old.Status.ObservedGeneration = 2
	foreign := with(v1beta2.ModuleStatus{State: v1beta2.StateReady, Version: "1.0.0"}, v1beta2.Module{})
	foreign.Status.ObservedGeneration = 0
	cases := map[string]struct {
		reason        string
		kyma          *v1beta2.Kyma
		enable, leave string // done, blocked, or what it waits for
	}{
		"Gone":    {"a Kyma that is gone has no modules", nil, "blocked", "done"},
		"Taken":   {"somebody else has taken it out", none, "blocked", "done"},
		"Unseen":  {"the status is of before", old, "waiting for the control plane", "blocked"},
		"Foreign": {"other managers do not say what they have seen", foreign, "done", "blocked"},
		"Ready": {"", with(v1beta2.ModuleStatus{State: v1beta2.StateReady, Version: "1.0.0"}, v1beta2.Module{}),
			"done", "blocked"},
		"OtherOne": {"another version is Ready", with(
			v1beta2.ModuleStatus{State: v1beta2.StateReady, Version: "0.9.0"}, v1beta2.Module{}),
			"sample: Ready", "blocked"},
		"Working": {"what it waits for is said",
			with(v1beta2.ModuleStatus{State: v1beta2.StateProcessing, Message: "Deployment x"}, v1beta2.Module{}),
			"Deployment x", "blocked"},
		"Error": {"it is tried again", with(v1beta2.ModuleStatus{State: v1beta2.StateError,
			Reason: v1beta2.ReasonRegistryUnreachable, Message: "no answer"}, v1beta2.Module{}),
			"sample: Error: no answer", "blocked"},
		"Refused": {"waiting does not help", with(
			v1beta2.ModuleStatus{State: v1beta2.StateWarning, Reason: v1beta2.ReasonDowngradeRefused},
			v1beta2.Module{}), "blocked", "blocked"},
		"Unmanaged": {"as requested", with(v1beta2.ModuleStatus{State: v1beta2.StateUnmanaged},
			v1beta2.Module{Managed: new(false)}), "done", "blocked"},
		"NotYet": {"it shall be handed over, and is not",
			with(v1beta2.ModuleStatus{State: v1beta2.StateReady, Version: "1.0.0"},
				v1beta2.Module{Managed: new(false)}), "sample: Ready", "blocked"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fixture.CheckProgress(t, c.reason, c.enable, moduleProgress(c.kyma, "sample", "1.0.0", 3))
			fixture.CheckProgress(t, c.reason, c.leave, disableProgress(c.kyma, "sample", 3))
		})
	}
	leaving := none.DeepCopy()
	leaving.Status.Modules = []v1beta2.ModuleStatus{{Name: "sample", State: v1beta2.StateDeleting,
		Message: "Sample x blocks"}}
	fixture.CheckProgress(t, "on its way out", "sample: Deleting: Sample x blocks",
		disableProgress(leaving, "sample", 3))
	leaving.Status.Modules[0].Reason = v1beta2.ReasonKymaPaused
	fixture.CheckProgress(t, "nothing goes while it is paused", "blocked", disableProgress(leaving, "sample", 3))
}
