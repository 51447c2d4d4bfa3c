package evidence

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// IsWell reports whether a module with this state works.
func IsWell(s v1beta2.State) bool { return s == v1beta2.StateReady || s == v1beta2.StateWarning }

// IsNeitherReadyNorWarning reports whether a module does not work.
func IsNeitherReadyNorWarning(m *v1beta2.Manifest) bool { return m != nil && !IsWell(m.Status.State) }

// HasBeenUnreadyFor reports whether a module has not been Ready for at least the time in the parameter atLeast, which
// is the time that a runtime has for an update. If so, an update would have missed its deadline. The update of a broken
// module is no evidence about the new version.
func HasBeenUnreadyFor(m *v1beta2.Manifest, atLeast time.Duration, now time.Time) bool {
	if m == nil || IsWell(m.Status.State) {
		return false
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady)
	return c != nil && c.Status != metav1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) >= atLeast
}
