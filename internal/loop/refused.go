package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// reportIfRefused is called when saving the status of an object has failed with the error saveErr. If saveErr is a
// refusal by the API server, reportIfRefused writes the reason into the condition Ready, so that the object does not
// show the previous status as if it were current. The patch of reportIfRefused contains no part of the refused status.
// If saveErr is another error, such as a timeout, reportIfRefused sends no request. If the condition Ready already
// shows this refusal, reportIfRefused sends no request either.
func (r *runner) reportIfRefused(ctx context.Context, saveErr error) error {
	before := conditionsOf(r.saved)
	if !isRefusal(saveErr) || before == nil {
		return nil
	}
	after := slices.Clone(*before)
	meta.SetStatusCondition(&after, metav1.Condition{
		Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta2.ReasonStatusNotSaved,
		ObservedGeneration: r.Object.GetGeneration(),
		Message:            ClipLine("the API server refuses the status, and shows an earlier one: " + saveErr.Error()),
	})
	if equality.Semantic.DeepEqual(*before, after) {
		return nil
	}
	was := map[string]any{"conditions": *before}
	is := map[string]any{"conditions": after, "state": v1beta2.StateError}
	patch, err := MergePatch("status", was, is)
	if err != nil {
		return fmt.Errorf("encoding the refusal of the status of %s: %w", client.ObjectKeyFromObject(r.Object), err)
	}
	target := r.saved.DeepCopyObject().(client.Object)
	if err := r.Client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("reporting that the status of %s is refused: %w", client.ObjectKeyFromObject(r.Object), err)
	}
	return nil
}

// isRefusal reports whether the API server will refuse the same status again, because it is invalid or too large, or
// because a policy or a webhook forbids it. If the manager lacks the right to write the status, the API server also
// refuses the patch of reportIfRefused.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsForbidden(err) ||
		strings.Contains(err.Error(), "request is too large") || // etcd
		strings.Contains(err.Error(), "larger than max") // the client of etcd
}

// conditionsOf returns the conditions of an object, or nil if it has none.
func conditionsOf(o client.Object) *[]metav1.Condition {
	switch o := o.(type) {
	case *v1beta2.Kyma:
		return &o.Status.Conditions
	case *v1beta2.Manifest:
		return &o.Status.Conditions
	case *v1beta2.Watcher:
		return &o.Status.Conditions
	}
	return nil
}
