package target

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func TestOf(t *testing.T) {
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: "https://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	const remote, here = v1beta2.TargetRemote, v1beta2.TargetControlPlane
	allowed := ControlPlane{Pool: pool, Reserved: []string{"kcp-system"}}
	manifest := func(wanted, recorded v1beta2.Target, installed, deleted bool) *v1beta2.Manifest {
		m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1beta2.LabelKymaName: "a"}}}
		m.Spec.Target, m.Status.Target = wanted, recorded
		if installed {
			m.Status.Synced = []v1beta2.Resource{{Kind: "ConfigMap", Name: "a"}}
		}
		if deleted {
			m.DeletionTimestamp = new(metav1.Now())
		}
		return m
	}
	tests := map[string]struct {
		reason   string
		manifest *v1beta2.Manifest
		here     ControlPlane
		name     string
		target   v1beta2.Target
		blocked  string
	}{
		"Usual": {"nothing is said", manifest("", "", true, false), ControlPlane{}, "a", remote, ""},
		"Here":  {"a new Manifest", manifest(here, "", false, false), allowed, "control-plane", here, ""},
		"NotAllowed": {"nobody has allowed it", manifest(here, "", false, false), ControlPlane{}, "control-plane", here,
			v1beta2.ReasonControlPlaneNotAllowed},
		"DeleteNotAllowed": {"its objects stay until somebody allows it again", manifest(here, here, true, true),
			ControlPlane{}, "control-plane", here, v1beta2.ReasonControlPlaneNotAllowed},
		"EditedToHere": {"its objects are in the runtime", manifest(here, "", true, false), allowed, "a", remote,
			v1beta2.ReasonTargetChanged},
		"EditedAway": {"its objects are here", manifest(remote, here, true, false), allowed, "control-plane", here,
			v1beta2.ReasonTargetChanged},
		"DeleteEdited": {"its objects are deleted where they are", manifest(remote, here, true, true), allowed,
			"control-plane", here, ""},
		"InCluster": {"there is one cluster only", manifest(here, "", true, false), ControlPlane{IsRuntime: true}, "a", "",
			""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := Of(tc.manifest, pool, &tc.here)
			if c.name != tc.name || c.Target != tc.target {
				t.Errorf("%s: connection %q, target %q; want %q, %q", tc.reason, c.name, c.Target, tc.name, tc.target)
			}
			if is := loop.Reason(c.CheckTarget(tc.manifest)); is != tc.blocked {
				t.Errorf("%s: blocked by %q, want %q", tc.reason, is, tc.blocked)
			}
		})
	}
}

func TestCheckObjects(t *testing.T) {
	const group = "operator.kyma-project.io"
	custom := func(version, kind string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(version)
		u.SetKind(kind)
		u.SetName("a")
		u.SetNamespace("kcp-system")
		return u
	}
	tests := map[string]struct {
		reason string
		ref    apply.Ref
		cr     *unstructured.Unstructured
		want   string
	}{
		"Usual":        {"an object of the module", apply.Ref{Kind: "Secret", Namespace: "b", Name: "s"}, nil, ""},
		"OurNamespace": {"all of ours is in it", apply.Ref{Kind: "Namespace", Name: "kcp-system"}, nil, "the manager"},
		"AccessSecret": {"it would be a runtime", apply.Ref{Kind: "Secret", Namespace: "kcp-system", Name: "s"}, nil,
			"the manager"},
		"Kyma": {"it would be a runtime", apply.Ref{Group: group, Kind: "Kyma", Namespace: "b", Name: "k"}, nil,
			"the API"},
		"OtherCRD": {"a module may use the group", apply.Ref{Kind: "CustomResourceDefinition", Name: "a." + group}, nil, ""},
		"Default":  {"in the namespace of the Kyma", apply.Ref{}, custom(group+"/v1alpha1", "Sample"), ""},
		"DefaultSecret": {"a Secret is no custom resource", apply.Ref{}, custom("v1", "Secret"),
			"no custom resource"},
		"DefaultBinding": {"nor is a binding", apply.Ref{}, custom("rbac.authorization.k8s.io/v1", "RoleBinding"),
			"no custom resource"},
		"DefaultKyma": {"it would be a runtime", apply.Ref{}, custom(group+"/v1beta2", "Kyma"), "the API"},
	}
	c := Cluster{Target: v1beta2.TargetControlPlane, reserved: &[]string{"kcp-system"}}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := c.CheckObjects([]apply.Ref{tc.ref}, tc.cr)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s: refused: %v", tc.reason, err)
			case tc.want != "" && (err == nil || loop.Reason(err) != v1beta2.ReasonReservedObject ||
				!strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s: got %v, want a message with %q", tc.reason, err, tc.want)
			}
			if err := (&Cluster{Target: v1beta2.TargetRemote}).CheckObjects([]apply.Ref{tc.ref}, tc.cr); err != nil {
				t.Errorf("%s: refused in a runtime: %v", tc.reason, err)
			}
		})
	}
}

// TestEveryCRDIsReserved checks that a module for the control plane is refused if it contains a CRD of this project, or
// an object whose kind such a CRD defines.
func TestEveryCRDIsReserved(t *testing.T) {
	c := Cluster{Target: v1beta2.TargetControlPlane, reserved: &[]string{"kcp-system"}}
	for _, crd := range crds.All() {
		ref := apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Name: crd.Name}
		if err := c.CheckObjects([]apply.Ref{ref}, nil); loop.Reason(err) != v1beta2.ReasonReservedObject {
			t.Errorf("a module may contain CRD %s: %v", crd.Name, err)
		}
		object := apply.Ref{Group: crd.Spec.Group, Version: "v1beta2", Kind: crd.Spec.Names.Kind, Namespace: "b",
			Name: "a"}
		if err := c.CheckObjects([]apply.Ref{object}, nil); loop.Reason(err) != v1beta2.ReasonReservedObject {
			t.Errorf("a module may contain a %s: %v", crd.Spec.Names.Kind, err)
		}
	}
}
