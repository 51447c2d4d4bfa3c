package manifest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// recordInventory adds what is about to be applied to the inventory. What was there stays until it is known to be gone.
func (n *run) recordInventory() {
	s := &n.manifest.Status
	if s.State == "" { // all that there is to say until it is Ready, if that is soon
		s.State, s.ObservedGeneration = v1beta2.StateProcessing, n.manifest.Generation
		s.LastOperation = v1beta2.LastOperation{Operation: v1beta2.OperationManifestWaiting, LastUpdateTime: metav1.Now()}
		n.reportConditions(v1beta2.StateProcessing, v1beta2.ReasonApplying, v1beta2.OperationManifestWaiting)
	}
	union := slices.Clone(n.refs)
	for _, old := range refsOf(s.Synced) {
		if !slices.ContainsFunc(union, old.SameObject) {
			union = append(union, old)
		}
	}
	if known := refsOf(s.Synced); slices.ContainsFunc(union, func(r apply.Ref) bool { return !slices.Contains(known, r) }) {
		s.Synced = syncedOf(union)
	}
}

// report derives the whole status from what the steps saw. Nothing in it changes while nothing changes.
func (n *run) report(out loop.Outcome) {
	s := &n.manifest.Status
	if n.applied {
		s.Synced = syncedOf(append(slices.Clone(n.refs), n.kept...))
	}
	if n.applied || n.inst.unsaved.is(n.manifest, n.plan.digest) {
		s.AppliedDigest, s.Version = n.plan.digest, n.manifest.Spec.Version
	}
	if out.Step != "" { // what this pass took notice of and did not deal with is still news
		n.inst.giveBack(n.news, n.stirred, n.missed)
	}
	s.ObservedGeneration = n.manifest.Generation
	before, since := s.State, n.since()
	state, reason, operation := n.state(out)
	if s.State != state || s.LastOperation.Operation != operation {
		s.LastOperation = v1beta2.LastOperation{Operation: operation, LastUpdateTime: metav1.Now()}
	}
	s.State, n.inst.reported = state, state
	n.reportConditions(state, reason, operation)
	if state == v1beta2.StateReady && before == v1beta2.StateProcessing {
		metrics.Ready.WithLabelValues(n.manifest.Labels[v1beta2.LabelModuleName]).Observe(time.Since(since).Seconds())
	}
}

// brief is how long an installation or a deletion may take before its status says more than that it was begun; as long as a Kyma has patience. One
// that is quicker costs two writes of status, or one, whatever happens on the way.
const brief = 10 * time.Second

// isMinor tells whether the status need not be saved: what was begun a moment ago goes on without a problem.
func (n *run) isMinor() bool {
	s, was := &n.manifest.Status, &n.saved
	if s.State != was.State || s.ObservedGeneration != was.ObservedGeneration || time.Since(n.since()) > brief {
		return false
	}
	switch s.State {
	case v1beta2.StateProcessing:
		return n.isMinorInstall()
	case v1beta2.StateDeleting:
		return readyReason(s) == readyReason(was)
	default:
		return false
	}
}

// isMinorInstall is isMinor for an installation, which has to be a new one. What was applied is kept in mind until the status says it.
func (n *run) isMinorInstall() bool {
	s, was := &n.manifest.Status, &n.saved
	if was.Version != "" || len(was.Synced) == 0 || !slices.Equal(s.Synced, was.Synced) ||
		!equality.Semantic.DeepEqual(meta.FindStatusCondition(s.Conditions, v1beta2.ConditionSignature), meta.FindStatusCondition(was.Conditions, v1beta2.ConditionSignature)) {
		return false
	}
	n.inst.unsaved = unsaved{}
	if s.AppliedDigest != "" {
		n.inst.unsaved = unsaved{digest: s.AppliedDigest, resourceVersion: n.manifest.ResourceVersion}
	}
	return true
}

// readyReason is the reason why a Manifest is not Ready, "" if that is not known.
func readyReason(s *v1beta2.ManifestStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1beta2.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// unsaved is the digest of what was applied completely to a runtime, and which version of the Manifest does not say so.
type unsaved struct{ digest, resourceVersion string }

func (u unsaved) is(m *v1beta2.Manifest, digest string) bool {
	return u.digest != "" && u.digest == digest && u.resourceVersion == m.ResourceVersion
}

// state is the one word for the Manifest, the reason, and the sentence next to it. The first row that fits wins:
//
//	1  it was handed over    Unmanaged
//	2  it is being deleted   Deleting
//	3  a step failed         Error
//	4  a step waits          Processing
//	5  else                  what was observed
func (n *run) state(out loop.Outcome) (state v1beta2.State, reason, operation string) {
	detail := out.Waiting
	if out.Err != nil {
		detail = out.Err.Error()
	} else if detail != "" {
		detail = "waiting for " + detail
	}
	switch {
	case n.manifest.IsUnmanaged() && out.Err == nil:
		return v1beta2.StateUnmanaged, v1beta2.ReasonUnmanaged, "the module is handed over to the user"
	case !n.manifest.DeletionTimestamp.IsZero():
		if detail == "" {
			detail = v1beta2.OperationDeleting
		}
		return v1beta2.StateDeleting, firstOf(n.blocker, out.Reason(), v1beta2.ReasonObjectsRemaining), detail
	case out.Err != nil:
		return v1beta2.StateError, firstOf(out.Reason(), v1beta2.ReasonInternalError), detail
	case out.Waiting != "":
		return v1beta2.StateProcessing, firstOf(n.blocker, v1beta2.ReasonApplying), detail
	case n.seen.state == v1beta2.StateReady:
		return v1beta2.StateReady, v1beta2.ReasonReady, v1beta2.OperationManifestReady
	default:
		return n.seen.state, n.seen.reason, n.seen.message
	}
}

// reportConditions sets the conditions that the reference has, and Ready, which carries the reason.
func (n *run) reportConditions(state v1beta2.State, reason, message string) {
	s := &n.manifest.Status
	set := func(kind, reason string, ok bool, yes, no string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: no, ObservedGeneration: n.manifest.Generation}
		if ok {
			c.Status, c.Message = metav1.ConditionTrue, yes
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
	installed := s.AppliedDigest != ""
	set(v1beta2.ConditionResources, v1beta2.ReasonResourcesAvailable, installed || len(s.Synced) > 0, v1beta2.MessageResourcesTrue, v1beta2.MessageResourcesFalse)
	set(v1beta2.ConditionInstallation, v1beta2.ReasonReady, state == v1beta2.StateReady || state == v1beta2.StateWarning, v1beta2.MessageInstallationTrue, v1beta2.MessageInstallationFalse)
	if n.manifest.Spec.Resource != nil && n.manifest.Spec.CustomResourcePolicy != v1beta2.Ignore {
		set(v1beta2.ConditionModuleCR, v1beta2.ReasonModuleCRCreated, installed, v1beta2.MessageModuleCRTrue, v1beta2.MessageModuleCRFalse)
	}
	n.reportSignatures()
	set(v1beta2.ConditionReady, reason, state == v1beta2.StateReady, v1beta2.OperationManifestReady, message)
}

// reportSignatures records what was found out about signatures, if this pass has looked.
func (n *run) reportSignatures() {
	if n.signatures == nil {
		return
	}
	c := metav1.Condition{Type: v1beta2.ConditionSignature, Status: metav1.ConditionTrue, Reason: v1beta2.ReasonSignatureVerified, ObservedGeneration: n.manifest.Generation}
	var by []string
	for _, s := range n.signatures {
		switch {
		case s.Problem != "":
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1beta2.ReasonSignatureMissing, clip(s.name+": "+s.Problem)
		case s.Verified:
			by = append(by, fmt.Sprintf("%s is signed with key %s (%s)", s.name, s.Key, s.Kind))
		}
	}
	if c.Status == metav1.ConditionTrue && len(by) == 0 {
		meta.RemoveStatusCondition(&n.manifest.Status.Conditions, v1beta2.ConditionSignature) // the policy asks for nothing
		return
	}
	if c.Status == metav1.ConditionTrue {
		c.Message = clip(strings.Join(by, "; "))
	}
	meta.SetStatusCondition(&n.manifest.Status.Conditions, c)
}

// since is when the present state began, which says how long something has been waited for.
func (n *run) since() time.Time {
	if c := meta.FindStatusCondition(n.manifest.Status.Conditions, v1beta2.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Now()
}

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}
