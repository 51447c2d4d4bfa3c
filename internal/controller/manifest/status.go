package manifest

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// summarize returns the state, the reason and the message of a Manifest. The first matching row decides the state of
// the Manifest:
//
//	1  the Manifest was handed over to the user   Unmanaged
//	2  the Manifest is being deleted              Deleting
//	3  a step failed                              Error
//	4  a step waits                               Processing
//	5  otherwise                                  the observed readiness
func summarize(m *v1beta2.Manifest, out loop.Outcome, o observed) (state v1beta2.State, reason, message string) {
	detail := out.Waiting
	if out.Err != nil {
		detail = loop.Message(out.Err)
	} else if detail != "" {
		detail = "waiting for " + detail
	}
	switch {
	case m.IsUnmanaged() && out.Err == nil:
		return v1beta2.StateUnmanaged, v1beta2.ReasonUnmanaged, "the module is handed over to the user"
	case !m.DeletionTimestamp.IsZero():
		return v1beta2.StateDeleting, cmp.Or(o.blocker, out.Reason(), v1beta2.ReasonObjectsRemaining),
			cmp.Or(detail, v1beta2.OperationDeleting)
	case out.Err != nil:
		return v1beta2.StateError, cmp.Or(out.Reason(), v1beta2.ReasonInternalError), detail
	case out.Waiting != "":
		return v1beta2.StateProcessing, cmp.Or(o.blocker, v1beta2.ReasonApplying), detail
	case o.readiness.state == v1beta2.StateReady:
		return v1beta2.StateReady, v1beta2.ReasonReady, v1beta2.OperationManifestReady
	default:
		return o.readiness.state, o.readiness.reason, o.readiness.message
	}
}

// An installation, an upgrade or a deletion saves its progress in the status only if it takes long. If the process ends
// in the meantime, only the progress is lost: the next process finds the recorded inventory and the former digest, and
// sends the objects again.
const (
	// quietPeriod is a period after the start of an installation, an upgrade or a deletion whose start is saved. Within
	// quietPeriod, its progress is not saved. The Kyma controller uses a period of the same length
	// (plan.SlowModuleDelay).
	quietPeriod = 10 * time.Second
	// processingSaveDelay is a period after the start of an upgrade. Within processingSaveDelay, the start is not
	// saved, either, unless new objects have to be recorded. In this time the status shows the former version, and its
	// observedGeneration shows that it does not cover the last change of spec. An upgrade that ends within
	// processingSaveDelay costs one write of the status. The Kyma controller uses a period of the same length.
	processingSaveDelay = 2 * time.Second
)

// saveDelay returns how long saving the status s may still be deferred, because s differs from the saved status only in
// the progress of an installation, an upgrade or a deletion. If s has to be saved now, saveDelay returns 0 or less. The
// first row that matches decides:
//
//	1  another state is reported, or other flags of objects   saved now: readers or a restart need it
//	   custom resources begin to block an upgrade             saved now: people have to act
//	2  Processing, and the saved state is Processing, too     until quietPeriod
//	3  Processing after a change of a spec that was applied   until processingSaveDelay
//	4  Deleting, as before, for the same reason               until quietPeriod
func saveDelay(s, saved *v1beta2.ManifestStatus, notReadyFor time.Duration) time.Duration {
	isSameSpec := s.ObservedGeneration == saved.ObservedGeneration
	blocks := readyConditionReason(s) == v1beta2.ReasonCustomResourceBlocksDeletion &&
		readyConditionReason(s) != readyConditionReason(saved)
	switch {
	case s.State == v1beta2.StateProcessing && blocks:
		return 0
	case s.State == v1beta2.StateProcessing && !inventory.IncludesIgnoringPending(saved.Synced, s.Synced):
		return 0
	case s.State == v1beta2.StateProcessing && saved.State == s.State && isSameSpec && len(saved.Synced) > 0 &&
		equality.Semantic.DeepEqual(signatureOf(s), signatureOf(saved)):
		return quietPeriod - notReadyFor
	case s.State == v1beta2.StateProcessing && isWell(saved.State) && !isSameSpec:
		return processingSaveDelay - notReadyFor
	case s.State == v1beta2.StateDeleting && saved.State == s.State && isSameSpec &&
		readyConditionReason(s) == readyConditionReason(saved):
		return quietPeriod - notReadyFor
	}
	return 0
}

// isWell reports whether a module with this state works.
func isWell(s v1beta2.State) bool { return s == v1beta2.StateReady || s == v1beta2.StateWarning }

// signatureOf returns the condition about the signatures of the artefacts, or nil if there is none.
func signatureOf(s *v1beta2.ManifestStatus) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, v1beta2.ConditionSignature)
}

// readyConditionReason returns the reason of the condition Ready, or "" if there is no such condition.
func readyConditionReason(s *v1beta2.ManifestStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1beta2.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}
