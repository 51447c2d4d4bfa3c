package runtimeadmin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestPause checks the annotation of the Kyma after klm module pause and after klm module resume. The commands pause
// and resume must not change the list of requested modules.
func TestPause(t *testing.T) {
	const key = v1beta2.AnnotationPausedModulePrefix + "sample"
	cases := map[string]struct {
		fixture.Case
		before map[string]string
		reason string // that the control plane reports for the module
		want   map[string]string
	}{
		"Pause": {Case: fixture.Case{Reason: "with a reason", Args: "pause sample --reason disks",
			Want: []string{"module sample is paused"}}, want: map[string]string{key: "disks"}},
		"Again": {Case: fixture.Case{Reason: "another reason", Args: "pause sample --reason Kim --yes",
			Want: []string{"module sample is paused"}}, before: map[string]string{key: "disks", "a": "b"},
			want: map[string]string{key: "Kim", "a": "b"}},
		"NoReason": {Case: fixture.Case{Reason: "others want to know", Args: "pause sample",
			Code: console.ExitUsage, Want: []string{"--reason is required"}}},
		"Other": {Case: fixture.Case{Reason: "it is not enabled", Args: "pause smaple --reason x",
			Code: console.ExitNotFound, Want: []string{`module "smaple" is not enabled`, "did you mean sample?"}}},
		"DryRun": {Case: fixture.Case{Reason: "nothing changes", Args: "pause sample --reason x --dry-run",
			Want: []string{"module sample would be paused"}}},
		"Resume": {Case: fixture.Case{Reason: "only this pause ends", Args: "resume sample --yes",
			Want: []string{"module sample is resumed"}}, before: map[string]string{key: "disks", "a": "b"},
			want: map[string]string{"a": "b"}},
		"NotPaused": {Case: fixture.Case{Reason: "nothing to do", Args: "resume sample",
			Want: []string{"module sample is not paused"}}},
		"ByTheFleet": {Case: fixture.Case{Reason: "it cannot be ended here", Args: "resume sample",
			Code: console.ExitNotReady, Want: []string{"not paused in this runtime, but in the control plane"}},
			reason: v1beta2.ReasonKymaPaused},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newRuntime(t, v1beta2.Module{Name: "sample"})
			s.Reconcile = nil
			o := s.Object(kyma)
			o.SetAnnotations(c.before)
			if c.reason != "" {
				status := []any{map[string]any{"name": "sample", "state": "Warning", "version": "1.0.0",
					"reason": c.reason, "message": "a change freeze"}}
				if err := unstructured.SetNestedSlice(o.Object, status, "status", "modules"); err != nil {
					t.Fatal(err)
				}
			}
			s.Put(o)
			modules, _, _ := unstructured.NestedSlice(o.Object, "spec", "modules")
			c.Check(t, Commands, s.Kubeconfig)
			now := s.Object(kyma)
			want := c.want
			if want == nil {
				want = c.before
			}
			if diff := cmp.Diff(want, now.GetAnnotations()); diff != "" {
				t.Errorf("%s: annotations -want +got\n%s", c.Reason, diff)
			}
			after, _, _ := unstructured.NestedSlice(now.Object, "spec", "modules")
			if diff := cmp.Diff(modules, after); diff != "" {
				t.Errorf("%s: modules -before +after\n%s", c.Reason, diff)
			}
		})
	}
}

// TestResumeProgress checks when klm module resume is done: when the status of the module no longer shows the pause.
func TestResumeProgress(t *testing.T) {
	status := func(reason, message string) *v1beta2.Kyma {
		return &v1beta2.Kyma{Status: v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{
			{Name: "sample", Reason: reason, Message: message}}}}
	}
	before := &status(v1beta2.ReasonModulePaused, "disks").Status.Modules[0]
	cases := map[string]struct {
		reason        string
		now           *v1beta2.Kyma
		done, blocked bool
	}{
		"Same":    {"the control plane has not seen it yet", status(v1beta2.ReasonModulePaused, "disks"), false, false},
		"Ready":   {"nothing is in the way", status("", ""), true, false},
		"Other":   {"another blocker, which is not that pause", status(v1beta2.ReasonDowngradeRefused, "no"), true, false},
		"Fleet":   {"the control plane pauses it, too", status(v1beta2.ReasonKymaPaused, "freeze"), false, true},
		"Another": {"the control plane pauses this module", status(v1beta2.ReasonModulePaused, "Kim"), false, true},
		"Gone":    {"the module was disabled in the meantime", &v1beta2.Kyma{}, true, false},
		"NoKyma":  {"the Kyma was deleted in the meantime", nil, true, false},
	}
	for name, c := range cases {
		if got := pauseEndProgress(c.now, "sample", before); got.Done != c.done || (got.Blocked != nil) != c.blocked {
			t.Errorf("%s: %s: %+v, want done %v, blocked %v", name, c.reason, got, c.done, c.blocked)
		}
	}
}
