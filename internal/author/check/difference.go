package check

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
)

// Difference is the difference between the objects of two versions of a module.
type Difference struct {
	// Added, Changed and Removed are the kinds and names of objects, in the order of the artefact.
	Added   []string `json:"added,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Unchanged is the number of objects that are equal in both versions.
	Unchanged int `json:"unchanged"`
	// Findings describe what an upgrade to the new version would break, and the permissions that only the new version
	// requests.
	Findings []content.Finding `json:"findings,omitempty"`
}

// Compare returns the difference between the objects of two versions. The parameters "from" and "to" are the names of
// the two versions.
func Compare(from, to string, before, after []*unstructured.Unstructured) Difference {
	d := Difference{Findings: CompareObjects(from, to, before, after)}
	old := map[string]*unstructured.Unstructured{}
	for _, o := range before {
		old[ID(o)] = o
	}
	for _, o := range after {
		switch was := old[ID(o)]; {
		case was == nil:
			d.Added = append(d.Added, content.KindAndNameOf(o))
		case reflect.DeepEqual(was.Object, o.Object):
			d.Unchanged++
		default:
			d.Changed = append(d.Changed, content.KindAndNameOf(o))
		}
		delete(old, ID(o))
	}
	for _, o := range before {
		if old[ID(o)] != nil {
			d.Removed = append(d.Removed, content.KindAndNameOf(o))
			delete(old, ID(o))
		}
	}
	return d
}

// CompareObjects returns the findings about an upgrade of a module. The parameter "from" is the old version of the
// module, and "before" has its objects. The parameter "to" is the new version, and "after" has its objects.
func CompareObjects(from, to string, before, after []*unstructured.Unstructured) []content.Finding {
	now := map[string]*unstructured.Unstructured{}
	for _, o := range after {
		now[ID(o)] = o
	}
	findings := BreakingCRDChanges(CRDsByGroupKind(before), CRDsByGroupKind(after))
	for _, old := range before {
		if o := now[ID(old)]; o != nil {
			findings = append(findings, CompareImmutable(old, o)...)
			continue
		}
		findings = append(findings, findingForRemovedObject(old))
	}
	if _, left := LostWriteRights(before, after); len(left) > 0 {
		findings = append(findings, content.NewFinding(content.Warning, from+" to "+to, fmt.Sprintf(
			"%s may create objects that %s may not delete: %s: if the operator has created some, nobody removes them; keep the "+
				"verb delete for a release, and remove them there", from, to,
			content.JoinFirst(left, ", "))))
	}
	return append(findings, AddedRights(before, after)...)
}

// findingForRemovedObject returns the finding about an object that is missing in the new version.
func findingForRemovedObject(o *unstructured.Unstructured) content.Finding {
	where := content.KindAndNameOf(o)
	switch {
	case o.GetAnnotations()[apply.AnnotationPrune] == "keep":
		return content.NewFinding(content.Info, where,
			"it is not in the new version, and stays because of its annotation")
	case o.GetKind() == "CustomResourceDefinition":
		return content.NewFinding(content.Error, where,
			fmt.Sprintf("the upgrade deletes it, and with it every such custom resource of users: keep it, or let it "+
				"stay in the cluster (annotation %s: keep)", apply.AnnotationPrune))
	case o.GetKind() == "Namespace":
		return content.NewFinding(content.Warning, where, "the upgrade deletes it, with all objects in it")
	case o.GetKind() == "PersistentVolumeClaim":
		return content.NewFinding(content.Warning, where, "the upgrade deletes it, with its data")
	}
	return content.NewFinding(content.Info, where, "the upgrade deletes it")
}

// ID returns a text that identifies an object without its API version.
func ID(o *unstructured.Unstructured) string {
	gvk := o.GroupVersionKind()
	return strings.Join([]string{gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName()}, "/")
}
