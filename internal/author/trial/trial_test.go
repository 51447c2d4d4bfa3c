package trial

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestCreatedByCluster checks that an object that the cluster creates in each namespace does not count as a leftover of
// a module. An object that the cluster does not create by itself counts as a leftover, even if it has the kind or the
// name of one that the cluster creates.
func TestCreatedByCluster(t *testing.T) {
	cases := map[string]struct {
		group, kind, name string
		want              bool
	}{
		"Certificate":    {"", "ConfigMap", "kube-root-ca.crt", true},
		"Account":        {"", "ServiceAccount", "default", true},
		"OtherConfigMap": {"", "ConfigMap", "default", false},
		"OtherAccount":   {"", "ServiceAccount", "operator", false},
		"SameNameSecret": {"", "Secret", "kube-root-ca.crt", false},
		"OtherGroup":     {"example.com", "ConfigMap", "kube-root-ca.crt", false},
	}
	for name, c := range cases {
		ref := apply.Ref{Group: c.group, Version: "v1", Kind: c.kind, Namespace: "a", Name: c.name}
		if got := createdByCluster(ref); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// TestPreviewOfAdoptedObjects checks that the preview shows no removal of the annotation of adopted objects, and no
// deletion of objects that the manager leaves to others.
func TestPreviewOfAdoptedObjects(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{}}
	want := live.DeepCopy()
	want.SetAnnotations(map[string]string{"a": "b"})
	if got := withAdoptionOf(live, want).GetAnnotations(); len(got) != 1 {
		t.Errorf("an object that is not adopted gets the annotations %v", got)
	}
	live.SetAnnotations(map[string]string{apply.AnnotationAdopted: "true", "c": "d"})
	if got := withAdoptionOf(live, want).GetAnnotations(); len(got) != 2 || got[apply.AnnotationAdopted] != "true" {
		t.Errorf("an adopted object gets the annotations %v", got)
	}
	if len(want.GetAnnotations()) != 1 {
		t.Error("the desired object was changed")
	}
	for operation, want := range map[metav1.ManagedFieldsOperationType]bool{
		metav1.ManagedFieldsOperationApply: true, metav1.ManagedFieldsOperationUpdate: false} {
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "a", Operation: operation}})
		if isAppliedBy(live, "a") != want || isAppliedBy(live, "b") {
			t.Errorf("%s: the object is applied by its field manager: %t, want %t", operation, !want, want)
		}
	}
	m := &v1beta2.Manifest{}
	for _, name := range []string{"own", "kept", "adopted", "shared"} {
		m.Status.Synced = append(m.Status.Synced, v1beta2.Resource{Version: "v1", Kind: "ConfigMap", Name: name,
			Keep: name == "kept", Adopted: name == "adopted", Shared: name == "shared"})
	}
	p := &preview{}
	if p.addDeletionsUnlessKept(inventoryOf(m)); len(p.changes) != 1 || !strings.HasSuffix(p.changes[0].Object, "own") {
		t.Errorf("the preview shows the deletions %v, want that of own", p.changes)
	}
}
