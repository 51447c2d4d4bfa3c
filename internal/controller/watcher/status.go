package watcher

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// report sets the whole status after the last step. If the reconcile waits for a watch, or has a conflict with another
// writer, report leaves the status unchanged.
func (n *run) report(out loop.Outcome) {
	s := &n.watcher.Status
	before := meta.FindStatusCondition(s.Conditions, v1beta2.ConditionReady)
	deleting := !n.watcher.DeletionTimestamp.IsZero()
	if !deleting && (apierrors.IsConflict(out.Err) || out.Waiting != "") {
		if s.State == v1beta2.StateUnknown {
			s.State = v1beta2.StateProcessing
		}
		return
	}
	s.ObservedGeneration = n.watcher.Generation
	v := n.summarize(out)
	if n.surveyed && !deleting {
		for _, r := range n.desired {
			n.updateRouteCondition(r)
		}
	}
	s.State = v.state
	n.setCondition(v1beta2.ConditionReady, v.state == v1beta2.StateReady, v.reason, v.message)
	if v.reason == v1beta2.ReasonGatewayNotFound && (before == nil || before.Reason != v.reason) {
		n.Events.Eventf(n.watcher, nil, corev1.EventTypeWarning, v1beta2.EventGatewayNotFound,
			v1beta2.EventGatewayNotFound, "%s", v.message)
	}
}

// summary has the state, the reason and the message of a Watcher.
type summary struct {
	state           v1beta2.State
	reason, message string
}

// summarize returns the summary of a Watcher. The first matching row decides the summary of the Watcher:
//
//	1  the Watcher is being deleted                                  Deleting
//	2  the Watcher is not valid                                      Error
//	3  a step failed                                                 Error
//	4  a requested route does not exist, which is not harmless       Error
//	5  a Gateway rejects the HTTPRoute                               Warning
//	6  a Gateway has not accepted the HTTPRoute yet                  Processing
//	7  otherwise                                                     Ready
func (n *run) summarize(out loop.Outcome) summary {
	switch {
	case !n.watcher.DeletionTimestamp.IsZero():
		return summarizeDeletion(out)
	case n.invalid != "":
		return summary{v1beta2.StateError, v1beta2.ReasonInvalidWatcher, n.invalid}
	case out.Err != nil:
		return summary{v1beta2.StateError, cmp.Or(out.Reason(), v1beta2.ReasonInternalError), loop.Message(out.Err)}
	}
	var applied []string
	for _, r := range n.desired {
		if r.reason != "" && !r.harmless {
			return summary{v1beta2.StateError, r.reason, r.message}
		}
		if r.applied {
			applied = append(applied, n.nameOf(r))
		}
	}
	for _, r := range n.desired {
		if r.kind != kindHTTPRoute || !r.applied {
			continue
		}
		if rejected, why := acceptance(n.watcher, r.current); rejected {
			return summary{v1beta2.StateWarning, v1beta2.ReasonRouteNotAccepted, why}
		} else if why != "" {
			return summary{v1beta2.StateProcessing, v1beta2.ReasonRouteNotAccepted, why}
		}
	}
	if applied != nil {
		return summary{v1beta2.StateReady, v1beta2.ReasonReady,
			"events arrive through " + strings.Join(applied, " and ")}
	}
	return summary{v1beta2.StateReady, v1beta2.ReasonReady,
		"events arrive at the address of the listener: " + n.whyWithoutRoute()}
}

// summarizeDeletion returns the summary of a Watcher that is being deleted.
func summarizeDeletion(out loop.Outcome) summary {
	v := summary{v1beta2.StateDeleting, v1beta2.ReasonObjectsRemaining, "the routes are being deleted"}
	switch {
	case apierrors.IsConflict(out.Err):
	case out.Err != nil:
		v.reason, v.message = cmp.Or(out.Reason(), v1beta2.ReasonInternalError), loop.Message(out.Err)
	case out.Waiting != "":
		v.message = "waiting for " + out.Waiting
	}
	return v
}

// whyWithoutRoute returns the reason why a Watcher that is Ready has no route.
func (n *run) whyWithoutRoute() string {
	var why []string
	for _, r := range n.desired {
		if r.reason != "" {
			why = append(why, r.message)
		}
	}
	if why == nil {
		return "neither spec.gateway nor spec.route is set"
	}
	return strings.Join(why, ", and ")
}

// updateRouteCondition sets the condition of a route that is requested. updateRouteCondition removes the condition of a
// route that is not requested.
func (n *run) updateRouteCondition(r *route) {
	yes, no := v1beta2.MessageVirtualServiceTrue, v1beta2.MessageVirtualServiceFalse
	if r.kind == kindHTTPRoute {
		yes, no = v1beta2.MessageHTTPRouteTrue, v1beta2.MessageHTTPRouteFalse
	}
	rejected, why := false, ""
	if r.kind == kindHTTPRoute && r.applied {
		rejected, why = acceptance(n.watcher, r.current)
	}
	switch {
	case !r.requested && r.err == nil:
		meta.RemoveStatusCondition(&n.watcher.Status.Conditions, r.condition)
	case r.err != nil:
		n.setCondition(r.condition, false, cmp.Or(loop.Reason(r.err), v1beta2.ReasonInternalError),
			no+": "+loop.Message(r.err))
	case !r.applied:
		n.setCondition(r.condition, false, r.reason, no+": "+r.message)
	case rejected || why != "":
		n.setCondition(r.condition, false, v1beta2.ReasonRouteNotAccepted, why)
	default:
		n.setCondition(r.condition, true, v1beta2.ReasonReady, yes)
	}
}

// setCondition sets a condition to True if isTrue is true, otherwise to False.
func (n *run) setCondition(conditionType string, isTrue bool, reason, message string) {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: n.watcher.Generation}
	if isTrue {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&n.watcher.Status.Conditions, c)
}
