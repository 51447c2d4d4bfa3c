// Package condition derives the conditions of a Manifest from the findings of its controller.
//
// # Use
//
//	condition.SetAll(manifest, state, reason, message)
//	condition.SetSignatures(manifest, signatures)
//	condition.SetSourcesUnreadable(manifest, err, uncompared)
//
// # How it works
//
// Every function is pure: it changes only the status of the Manifest in its argument. If the status already shows
// what the function has to report, it changes nothing. The texts of the conditions are stable, so that an unchanged
// finding causes no write.
//
// # What it does not do
//
// The package does not decide about the state of a Manifest: package manifest decides that.
package condition

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// SetAll sets all conditions of a Manifest: the condition Ready with a reason and a message, and the conditions that
// the Kyma project's lifecycle-manager sets, too.
func SetAll(m *v1beta2.Manifest, state v1beta2.State, readyReason, readyMessage string) {
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
	set(v1beta2.ConditionReady, readyReason, state == v1beta2.StateReady, v1beta2.OperationManifestReady, readyMessage)
}

// Signature is the result of verifying the artefact of one source.
type Signature struct {
	Source string // the name of the source
	trust.Signature
}

// SetSignatures sets the condition about the signatures of the artefacts. If signatures is nil, SetSignatures leaves
// the condition unchanged. If the trust policy requires no signature, SetSignatures removes the condition.
func SetSignatures(m *v1beta2.Manifest, signatures []Signature) {
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
				loop.ClipLine(s.Source+": "+s.Problem)
		case s.Verified:
			verified = append(verified, fmt.Sprintf("%s is signed with key %s (%s)", s.Source, s.Key, s.Kind))
		}
	}
	if c.Status == metav1.ConditionTrue && len(verified) == 0 {
		meta.RemoveStatusCondition(&m.Status.Conditions, v1beta2.ConditionSignature)
		return
	}
	if c.Status == metav1.ConditionTrue {
		c.Message = loop.ClipLine(strings.Join(verified, "; "))
	}
	meta.SetStatusCondition(&m.Status.Conditions, c)
}

// SetSourcesUnreadable sets a condition: the sources of an installed version cannot be read, because of the error err.
// The parameter "uncompared" contains the objects that somebody has changed in the runtime. Until the sources can be
// read, these objects are neither compared nor corrected. While the reason of err stays the same, the condition keeps
// its first text, because the texts of network errors vary.
func SetSourcesUnreadable(m *v1beta2.Manifest, err error, uncompared []apply.Ref) {
	const end = ": version "
	reason, message := loop.Reason(err), loop.ClipLine(err.Error())
	if old := SourcesUnreadable(m); old != nil && old.Reason == reason {
		if kept, _, found := strings.Cut(old.Message, end+m.Status.Version+" stays"); found {
			message = kept
		}
	}
	message += end + m.Status.Version + " stays installed as it is"
	const limit = 3
	if len(uncompared) > 0 {
		var names []string
		for _, ref := range uncompared[:min(limit, len(uncompared))] {
			names = append(names, ref.String())
		}
		message += "; not compared with the module until then: " + loop.ClipLine(strings.Join(names, ", "))
	}
	if more := len(uncompared) - limit; more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta2.ConditionSourcesReadable,
		Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: m.Generation})
}

// RemoveSourcesUnreadable removes the condition that the sources cannot be read.
func RemoveSourcesUnreadable(m *v1beta2.Manifest) {
	meta.RemoveStatusCondition(&m.Status.Conditions, v1beta2.ConditionSourcesReadable)
}

// SourcesUnreadable returns the condition that the sources cannot be read, or nil if they can be read.
func SourcesUnreadable(m *v1beta2.Manifest) *metav1.Condition {
	return meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionSourcesReadable)
}

// SetSuspended sets the reason why a Manifest is not reconciled. SetSuspended leaves the rest of the status unchanged,
// including the observed generation.
func SetSuspended(m *v1beta2.Manifest, reason, message string) {
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
