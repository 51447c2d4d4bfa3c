package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// summarize returns state, reason and message of a Manifest. The first row that matches decides:
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

// setConditions sets the conditions that the reference implementation also has, and the condition Ready with reason and
// message.
func setConditions(m *v1beta2.Manifest, state v1beta2.State, reason, message string, signatures []signature) {
	s := &m.Status
	set := func(kind, reason string, ok bool, yes, no string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: no,
			ObservedGeneration: m.Generation}
		if ok {
			c.Status, c.Message = metav1.ConditionTrue, yes
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
	applied := s.AppliedDigest != ""
	set(v1beta2.ConditionResources, v1beta2.ReasonResourcesAvailable, applied || len(s.Synced) > 0,
		v1beta2.MessageResourcesTrue, v1beta2.MessageResourcesFalse)
	set(v1beta2.ConditionInstallation, v1beta2.ReasonReady, state == v1beta2.StateReady ||
		state == v1beta2.StateWarning,
		v1beta2.MessageInstallationTrue, v1beta2.MessageInstallationFalse)
	if m.Spec.Resource != nil && m.Spec.CustomResourcePolicy != v1beta2.Ignore {
		set(v1beta2.ConditionModuleCR, v1beta2.ReasonModuleCRCreated, applied, v1beta2.MessageModuleCRTrue,
			v1beta2.MessageModuleCRFalse)
	}
	setSignatureCondition(m, signatures)
	set(v1beta2.ConditionReady, reason, state == v1beta2.StateReady, v1beta2.OperationManifestReady, message)
}

// setSignatureCondition sets the condition about signatures. If signatures is nil, the condition stays unchanged. If
// the trust policy requires no signature, the condition is removed.
func setSignatureCondition(m *v1beta2.Manifest, signatures []signature) {
	if signatures == nil {
		return
	}
	c := metav1.Condition{
		Type: v1beta2.ConditionSignature, Status: metav1.ConditionTrue, Reason: v1beta2.ReasonSignatureVerified,
		ObservedGeneration: m.Generation,
	}
	var verified []string
	for _, s := range signatures {
		switch {
		case s.Problem != "":
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1beta2.ReasonSignatureMissing,
				loop.Clip(s.source+": "+s.Problem)
		case s.Verified:
			verified = append(verified, fmt.Sprintf("%s is signed with key %s (%s)", s.source, s.Key, s.Kind))
		}
	}
	if c.Status == metav1.ConditionTrue && len(verified) == 0 {
		meta.RemoveStatusCondition(&m.Status.Conditions, v1beta2.ConditionSignature)
		return
	}
	if c.Status == metav1.ConditionTrue {
		c.Message = loop.Clip(strings.Join(verified, "; "))
	}
	meta.SetStatusCondition(&m.Status.Conditions, c)
}

// reportSuspended sets the reason why a Manifest is not reconciled. The rest of the status stays unchanged, including
// the observed generation.
func reportSuspended(m *v1beta2.Manifest, reason, message string) {
	s := &m.Status
	if s.State == "" {
		s.State = v1beta2.StateProcessing
	}
	c := metav1.Condition{
		Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: s.ObservedGeneration,
	}
	if old := meta.FindStatusCondition(s.Conditions, v1beta2.ConditionReady); old != nil {
		c.Status = old.Status
	}
	meta.SetStatusCondition(&s.Conditions, c)
}

// quietPeriod is the time after the start of an installation or a deletion in which progress is not saved in the
// status. The Kyma controller uses the same period. An installation that ends within this period costs two writes of
// the status. A deletion that ends within this period costs one write.
const quietPeriod = 10 * time.Second

// isMinor reports whether the status s need not be saved, because it differs only in the progress of a new installation
// or a deletion. It returns false after quietPeriod.
func isMinor(s, saved *v1beta2.ManifestStatus, notReadyFor time.Duration) bool {
	if s.State != saved.State || s.ObservedGeneration != saved.ObservedGeneration || notReadyFor > quietPeriod {
		return false
	}
	switch s.State {
	case v1beta2.StateProcessing:
		signature := func(s *v1beta2.ManifestStatus) *metav1.Condition {
			return meta.FindStatusCondition(s.Conditions, v1beta2.ConditionSignature)
		}
		return saved.Version == "" && len(saved.Synced) > 0 && slices.Equal(s.Synced, saved.Synced) &&
			equality.Semantic.DeepEqual(signature(s), signature(saved))
	case v1beta2.StateDeleting:
		return readyReason(s) == readyReason(saved)
	default:
		return false
	}
}

// readyReason returns the reason of the condition Ready, or "" without that condition.
func readyReason(s *v1beta2.ManifestStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1beta2.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}
