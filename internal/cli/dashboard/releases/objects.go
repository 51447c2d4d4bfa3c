package releases

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// StateOf returns the state of one object according to its Manifest. The state is that of the first row whose condition
// is met:
//
//	1  the Manifest is being deleted, and the object is kept  stays
//	2  the Manifest is being deleted                          being deleted
//	3  not all objects were applied                           being applied
//	4  the condition Ready names the object                   differs, failed or not ready
//	5  otherwise                                              applied
func StateOf(m *v1beta2.Manifest, o *v1beta2.Resource) string {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady)
	switch isNamed := ready != nil && ready.Status != metav1.ConditionTrue && mentionsObject(ready.Message, o); {
	case !m.DeletionTimestamp.IsZero() && (o.Keep || o.Adopted):
		return "stays"
	case !m.DeletionTimestamp.IsZero():
		return "being deleted"
	case o.Pending:
		return "being applied"
	case isNamed && ready.Reason == v1beta2.ReasonDriftDetected:
		return "differs"
	case isNamed && m.Status.State == v1beta2.StateError:
		return "failed"
	case isNamed:
		return "not ready"
	}
	return "applied"
}

// mentionsObject is a function that reports whether a message of the manager contains the name of an object. Messages
// contain the name of an object in the format of [apply.Ref].
func mentionsObject(message string, o *v1beta2.Resource) bool {
	name := apply.Ref{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}.String()
	for rest := message; ; {
		before, after, found := strings.Cut(rest, name)
		if !found {
			return false
		}
		// the name may have been found within the longer name of another object; names can contain full stops
		end := after + " "
		isBegin := before == "" || strings.ContainsRune(" (", rune(before[len(before)-1]))
		isEnd := strings.ContainsRune(" :;,)", rune(end[0])) || strings.HasPrefix(end, ". ")
		if isBegin && isEnd {
			return true
		}
		rest = after
	}
}

// OwnershipRemarkOf returns a remark about an object that existed before its module, that another module contains too,
// or that is kept when the module is removed. For any other object, OwnershipRemarkOf returns "".
func OwnershipRemarkOf(o *v1beta2.Resource) string {
	var all []string
	for _, is := range []struct {
		is   bool
		text string
	}{{o.Adopted, "was there before the module: it stays when the module is removed"},
		{o.Shared, "belongs to another module, too"}, {o.Keep, "is kept when the module is removed"}} {
		if is.is {
			all = append(all, is.text)
		}
	}
	return strings.Join(all, "; ")
}
