package releases

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestStateOf checks what a page shows about an object: only what the Manifest has recorded.
func TestStateOf(t *testing.T) {
	object := v1beta2.Resource{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "kyma-system", Name: "mod"}
	for name, c := range map[string]struct {
		reason     string
		state      v1beta2.State
		code       string // reason of the condition Ready
		message    string
		isDeleting bool
		change     func(*v1beta2.Resource)
		want       string
	}{
		"Applied": {reason: "nothing names the object", state: v1beta2.StateReady, want: "applied"},
		"Waits": {reason: "the message names it", state: v1beta2.StateProcessing, code: v1beta2.ReasonWorkloadNotReady,
			message: "Deployment.apps kyma-system/mod: 0 of 1 replicas", want: "not ready"},
		"Failed": {reason: "the message names it, and the module has failed", state: v1beta2.StateError,
			code: v1beta2.ReasonApplying, message: "applying Deployment.apps kyma-system/mod: invalid", want: "failed"},
		"Differs": {reason: "drift that is reported and not corrected", state: v1beta2.StateWarning,
			code: v1beta2.ReasonDriftDetected, message: "Deployment.apps kyma-system/mod differs in spec.replicas",
			want: "differs"},
		"Second": {reason: "it is named after another one", state: v1beta2.StateProcessing,
			message: "Service kyma-system/mod: waits; Deployment.apps kyma-system/mod.", want: "not ready"},
		"OtherName": {reason: "the name of another object begins with its name", state: v1beta2.StateError,
			message: "Deployment.apps kyma-system/mod-webhook: invalid", want: "applied"},
		"OtherPart": {reason: "the name of another object begins with its name and a full stop",
			state: v1beta2.StateError, message: "Deployment.apps kyma-system/mod.v2: invalid", want: "applied"},
		"OtherKind": {reason: "an object of another kind has the same name", state: v1beta2.StateError,
			message: "MyDeployment.apps kyma-system/mod: invalid", want: "applied"},
		"Pending": {reason: "it is not known whether it was applied", state: v1beta2.StateProcessing,
			change: func(o *v1beta2.Resource) { o.Pending = true }, want: "being applied"},
		"Deleting": {reason: "the module is removed", state: v1beta2.StateDeleting, isDeleting: true,
			want: "being deleted"},
		"Kept": {reason: "the module is removed, and the object is not", state: v1beta2.StateDeleting,
			isDeleting: true, change: func(o *v1beta2.Resource) { o.Keep = true }, want: "stays"},
		"Adopted": {reason: "it was there before the module", state: v1beta2.StateDeleting,
			isDeleting: true, change: func(o *v1beta2.Resource) { o.Adopted = true }, want: "stays"},
	} {
		t.Run(name, func(t *testing.T) {
			m, o := &v1beta2.Manifest{}, object
			if c.isDeleting {
				m.DeletionTimestamp = new(metav1.Now())
			}
			if c.change != nil {
				c.change(&o)
			}
			m.Status.State = c.state
			m.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse,
				Reason: c.code, Message: c.message}}
			if got := StateOf(m, &o); got != c.want {
				t.Errorf("%q, want %q: %s", got, c.want, c.reason)
			}
			m.Status.Conditions[0].Status = metav1.ConditionTrue
			if got := StateOf(m, &o); got == "not ready" || got == "failed" || got == "differs" {
				t.Errorf("%q, although the module is Ready", got)
			}
		})
	}
}
