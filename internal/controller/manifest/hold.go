package manifest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// hold returns why nothing is done about a Manifest until it is deleted, "" if something is.
func hold(m *v1beta2.Manifest) (reason, why string) {
	if m.SkipsReconciliation() {
		return v1beta2.ReasonSkipReconciliation, fmt.Sprintf("the state is of before the label %s: remove it to go on", v1beta2.LabelSkipReconciliation)
	}
	if why := m.Annotations[v1beta2.AnnotationPaused]; why != "" {
		return v1beta2.ReasonModulePaused, why
	}
	return "", ""
}

// reportHeld says that nothing is done; all else stays as it was, also which generation was looked at.
func (n *run) reportHeld(reason, why string) {
	s := &n.manifest.Status
	if s.State == "" {
		s.State = v1beta2.StateProcessing
	}
	c := metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: why, ObservedGeneration: s.ObservedGeneration}
	if was := meta.FindStatusCondition(s.Conditions, v1beta2.ConditionReady); was != nil {
		c.Status = was.Status
	}
	meta.SetStatusCondition(&s.Conditions, c)
}

// handOver takes what says that they are ours off the objects of the inventory, which are the user's from now on. What is gone is nobody's.
func (n *run) handOver(ctx context.Context) error {
	body := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:null,%q:null}}}`,
		v1beta2.LabelManagedBy, v1beta2.AnnotationOwnedBy, v1beta2.AnnotationDisclaimer)
	for _, ref := range n.refs {
		if _, err := n.runtime.Patch(ctx, ref, types.MergePatchType, "", body, v1beta2.FieldOwnerApplier); err != nil && !isGone(err) {
			return fmt.Errorf("handing %s over: %w", ref, err)
		}
	}
	return nil
}

// isGone tells whether err says that an object, its namespace or its kind is not there.
func isGone(err error) bool {
	switch loop.Reason(err) {
	case apply.ObjectNotFound, apply.NamespaceNotFound, apply.KindUnknown:
		return true
	}
	return false
}
