package trial

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	live.SetAnnotations(nil)
	for operation, want := range map[metav1.ManagedFieldsOperationType]bool{
		metav1.ManagedFieldsOperationApply: true, metav1.ManagedFieldsOperationUpdate: false} {
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "a", Operation: operation}})
		if isCreatedBy(live, "a") != want || isCreatedBy(live, "b") {
			t.Errorf("%s: the object is created by its field manager: %t, want %t", operation, !want, want)
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

// rejectingClient returns the object in the field live, and rejects every change of it with err.
type rejectingClient struct {
	client.Client
	live *unstructured.Unstructured
	err  error
}

func (c rejectingClient) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.(*unstructured.Unstructured).Object = c.live.DeepCopy().Object
	return nil
}

func (c rejectingClient) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return c.err
}

// TestPreviewOfRecreation checks that the preview shows the action "recreate" only for an object that the manager would
// delete: an object that existed before the module is refused.
func TestPreviewOfRecreation(t *testing.T) {
	ref := apply.Ref{Version: "v1", Kind: "PersistentVolumeClaim", Namespace: "a", Name: "data"}
	immutable := apierrors.NewInvalid(schema.GroupKind{Kind: ref.Kind}, ref.Name,
		field.ErrorList{field.Forbidden(field.NewPath("spec"), "spec is immutable after creation")})
	want := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": ref.Kind}}
	want.SetAnnotations(map[string]string{apply.AnnotationOnImmutable: "recreate"})
	for adopted, action := range map[string]string{"": ChangeRecreate, "true": ChangeRefuse} {
		live := want.DeepCopy()
		live.SetAnnotations(map[string]string{apply.AnnotationAdopted: adopted})
		live.SetManagedFields([]metav1.ManagedFieldsEntry{
			{Manager: "a", Operation: metav1.ManagedFieldsOperationApply}})
		p := &preview{Client: rejectingClient{live: live, err: immutable}}
		change, err := p.changeOf(t.Context(), ref, want, "a", true)
		if err != nil || change == nil || change.Action != action {
			t.Errorf("annotation %q: got %+v, %v, want %s", adopted, change, err, action)
		}
	}
}
