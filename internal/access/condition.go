package access

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Finding is what is known about the credential of an open connection to a runtime.
type Finding struct {
	// Secret is the name of the access Secret.
	Secret string
	// Lifetime is the time in which the credential is valid.
	Lifetime Lifetime
	// Had are all rights that the credential has had since the connection was opened, and Has are the rights that it
	// has now. If the rights of the credential were not reviewed, Had and Has are the zero value of Rights, which means
	// unknown.
	Had, Has Rights
	// IsFirst is true if this is the first connection to the runtime in this process. On the first connection, the
	// credential may have lost rights before this process started, without a trace in Had.
	IsFirst bool
	// Resources are the resources that the manager needs rights for.
	Resources []schema.GroupResource
}

// UnhealthyCredentialConditionOrNil returns the condition ConditionCredentialHealthy for a finding, without generation
// and time, or nil if nothing is wrong. saved is the condition in the status, or nil. The first row of this table that
// matches the finding decides the condition:
//
//	1  the credential has lost rights that are needed            RightsReduced
//	2  the saved condition has reason RightsReduced, the
//	   connection is the first one, and nothing shows that the
//	   credential has got rights since then                      saved
//	3  the credential expires soon, or has expired               CredentialExpires
//	4  any other                                                 nil
func UnhealthyCredentialConditionOrNil(saved *metav1.Condition, f Finding, now time.Time) *metav1.Condition {
	problem := func(reason, format string, args ...any) *metav1.Condition {
		return &metav1.Condition{Type: v1beta2.ConditionCredentialHealthy, Status: metav1.ConditionFalse,
			Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	lost := DescribeLostRights(f.Had, f.Has, f.Resources)
	warnAt := f.Lifetime.WarningTime()
	switch {
	case len(lost) > 0:
		return problem(v1beta2.ReasonRightsReduced, "the credential in access Secret %s has lost rights in the "+
			"runtime (%s): grant them again, or write another kubeconfig into the Secret", f.Secret,
			strings.Join(lost, "; "))
	case saved != nil && saved.Reason == v1beta2.ReasonRightsReduced && f.IsFirst && f.Had == f.Has &&
		!f.Has.IsUnlimited():
		return saved
	case !warnAt.IsZero() && !now.Before(warnAt):
		return problem(v1beta2.ReasonCredentialExpires, "the credential in access Secret %s expires at %s: write a "+
			"new kubeconfig into the Secret before", f.Secret, f.Lifetime.Ends.UTC().Format(time.RFC3339))
	}
	return nil
}
