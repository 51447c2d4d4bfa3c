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

// quietPeriod is a period after the start of an installation or a deletion, in which progress is not saved in the
// status. The Kyma controller has an equal period, the constant plan.SlowModuleDelay. If an installation ends within
// quietPeriod, the status is written twice. If a deletion ends within quietPeriod, the status is written once.
const quietPeriod = 10 * time.Second

// isMinor reports whether the status s need not be saved, because it differs only in the progress of a new installation
// or a deletion. isMinor returns false if the module has not been Ready for longer than quietPeriod.
func isMinor(s, saved *v1beta2.ManifestStatus, notReadyFor time.Duration) bool {
	if s.State != saved.State || s.ObservedGeneration != saved.ObservedGeneration || notReadyFor > quietPeriod {
		return false
	}
	switch s.State {
	case v1beta2.StateProcessing:
		signature := func(s *v1beta2.ManifestStatus) *metav1.Condition {
			return meta.FindStatusCondition(s.Conditions, v1beta2.ConditionSignature)
		}
		return saved.Version == "" && len(saved.Synced) > 0 && inventory.EqualButPending(s.Synced, saved.Synced) &&
			equality.Semantic.DeepEqual(signature(s), signature(saved))
	case v1beta2.StateDeleting:
		return readyReason(s) == readyReason(saved)
	default:
		return false
	}
}

// readyReason returns the reason of the condition Ready, or "" if there is no such condition.
func readyReason(s *v1beta2.ManifestStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1beta2.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}
