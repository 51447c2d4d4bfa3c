package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failureReply returns a reply with a Status.
func failureReply(s metav1.Status) *reply {
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	s.Status = metav1.StatusFailure
	data, err := json.Marshal(s)
	if err != nil {
		data = nil // plain data always encodes
	}
	return &reply{code: int(s.Code), raw: data}
}

// editStatus decodes the Status in a failure reply, lets the function change() modify the Status, and encodes it again.
func (r *reply) editStatus(change func(*metav1.Status)) {
	var s metav1.Status
	if json.Unmarshal(r.raw, &s) == nil {
		change(&s)
		*r = *failureReply(s)
	}
}

func forbiddenReply(k *kind, name, why string) *reply {
	return failureReply(metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("%s %q is forbidden: %s", k.groupResource(), name, why),
		Details: &metav1.StatusDetails{Name: name, Group: k.group, Kind: k.plural}})
}

func notFound(k *kind, name string) *reply {
	return failureReply(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("%s %q not found", k.groupResource(), name),
		Details: &metav1.StatusDetails{Name: name, Group: k.group, Kind: k.plural}})
}

func badRequest(message string) *reply {
	return failureReply(metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest,
		Message: message})
}

// expiredStatus returns the Status for a resourceVersion whose later changes are no longer in the log.
func expiredStatus(message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: message}
}
