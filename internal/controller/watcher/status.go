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

// report derives the whole status from what the steps saw. Nothing in it changes while nothing changes: a pass that was too early, or that
// somebody else has overtaken, leaves it as it is.
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
	v := n.verdict(out)
	if n.known && !deleting {
		for _, r := range n.routes {
			n.reportRoute(r)
		}
	}
	s.State = v.state
	n.set(v1beta2.ConditionReady, v.state == v1beta2.StateReady, v.reason, v.message)
	if v.reason == v1beta2.ReasonGatewayNotFound && (before == nil || before.Reason != v.reason) {
		n.Events.Eventf(n.watcher, nil, corev1.EventTypeWarning, v1beta2.EventGatewayNotFound, v1beta2.EventGatewayNotFound, "%s", v.message)
	}
}

// verdict is what a Watcher is, in one word and in a sentence.
type verdict struct {
	state           v1beta2.State
	reason, message string
}

// verdict sums up. The first row that fits wins:
//
//	1  it is being deleted                                         Deleting
//	2  the Watcher is not valid                                    Error
//	3  a step failed                                               Error
//	4  a route that is asked for cannot be, and that is harmful    Error
//	5  a Gateway refuses the HTTPRoute                             Warning
//	6  a Gateway has not accepted the HTTPRoute yet                Processing
//	7  else                                                        Ready
func (n *run) verdict(out loop.Outcome) verdict {
	switch {
	case !n.watcher.DeletionTimestamp.IsZero():
		return deletion(out)
	case n.invalid != "":
		return verdict{v1beta2.StateError, v1beta2.ReasonInvalidWatcher, n.invalid}
	case out.Err != nil:
		return verdict{v1beta2.StateError, cmp.Or(out.Reason(), v1beta2.ReasonInternalError), out.Err.Error()}
	}
	var open []string
	for _, r := range n.routes {
		if r.reason != "" && !r.harmless {
			return verdict{v1beta2.StateError, r.reason, r.message}
		}
		if r.done {
			open = append(open, n.identity(r))
		}
	}
	for _, r := range n.routes {
		if r.kind != kindHTTPRoute || !r.done {
			continue
		}
		if refused, why := acceptance(n.watcher, r.there); refused {
			return verdict{v1beta2.StateWarning, v1beta2.ReasonRouteNotAccepted, why}
		} else if why != "" {
			return verdict{v1beta2.StateProcessing, v1beta2.ReasonRouteNotAccepted, why}
		}
	}
	if open != nil {
		return verdict{v1beta2.StateReady, v1beta2.ReasonReady, "events come in through " + strings.Join(open, " and ")}
	}
	return verdict{v1beta2.StateReady, v1beta2.ReasonReady, "events come in at the listener's own address: " + n.whyDirect()}
}

// deletion is the verdict on a Watcher that is being deleted.
func deletion(out loop.Outcome) verdict {
	v := verdict{v1beta2.StateDeleting, v1beta2.ReasonObjectsRemaining, "the routes are being removed"}
	switch {
	case apierrors.IsConflict(out.Err):
	case out.Err != nil:
		v.reason, v.message = cmp.Or(out.Reason(), v1beta2.ReasonInternalError), out.Err.Error()
	case out.Waiting != "":
		v.message = "waiting for " + out.Waiting
	}
	return v
}

// whyDirect says why there is no route, where that is no fault.
func (n *run) whyDirect() string {
	var why []string
	for _, r := range n.routes {
		if r.reason != "" {
			why = append(why, r.message)
		}
	}
	if why == nil {
		return "neither spec.gateway nor spec.route is set"
	}
	return strings.Join(why, ", and ")
}

// reportRoute sets the condition of a route that is asked for, and drops that of one that is not.
func (n *run) reportRoute(r *route) {
	yes, no := v1beta2.MessageVirtualServiceTrue, v1beta2.MessageVirtualServiceFalse
	if r.kind == kindHTTPRoute {
		yes, no = v1beta2.MessageHTTPRouteTrue, v1beta2.MessageHTTPRouteFalse
	}
	refused, why := false, ""
	if r.kind == kindHTTPRoute && r.done {
		refused, why = acceptance(n.watcher, r.there)
	}
	switch {
	case !r.asked && r.err == nil:
		meta.RemoveStatusCondition(&n.watcher.Status.Conditions, r.condition)
	case r.err != nil:
		n.set(r.condition, false, cmp.Or(loop.Reason(r.err), v1beta2.ReasonInternalError), no+": "+r.err.Error())
	case !r.done:
		n.set(r.condition, false, r.reason, no+": "+r.message)
	case refused || why != "":
		n.set(r.condition, false, v1beta2.ReasonRouteNotAccepted, why)
	default:
		n.set(r.condition, true, v1beta2.ReasonReady, yes)
	}
}

// set sets a condition.
func (n *run) set(kind string, ok bool, reason, message string) {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: n.watcher.Generation}
	if ok {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&n.watcher.Status.Conditions, c)
}
