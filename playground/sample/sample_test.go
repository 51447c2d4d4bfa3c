package sample

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	strictyaml "sigs.k8s.io/yaml"
)

func TestVersions(t *testing.T) {
	both := []string{
		"CustomResourceDefinition samples.sample.playground.kyma-project.io",
		"ServiceAccount sample-operator",
		"ClusterRole sample-operator",
		"ClusterRole sample-editor",
		"ClusterRole sample-viewer",
		"ClusterRoleBinding sample-operator",
		"Role sample-operator-leader-election",
		"RoleBinding sample-operator-leader-election",
	}
	cases := []struct {
		version string
		objects []string
		spec    []string // fields of spec in the CRD
		reason  string
	}{
		{"1.0.0", append(slices.Clone(both), "ConfigMap sample-v1-only", "Deployment sample-operator"),
			[]string{"fail", "message", "replicas"}, "what an upgrade starts from"},
		{"2.0.0", append(slices.Clone(both), "ConfigMap sample-v2-only", "Deployment sample-operator"),
			[]string{"fail", "image", "message", "replicas"}, "an object and a field are new, one object is gone"},
	}
	versions := Versions()
	if len(versions) != len(cases) {
		t.Fatalf("got %d versions, want %d", len(versions), len(cases))
	}
	for i, c := range cases {
		t.Run(c.version, func(t *testing.T) {
			v := versions[i]
			if v.Version != c.version {
				t.Fatalf("version %d is %s, want %s: oldest first", i, v.Version, c.version)
			}
			objects := parse(t, v.Manifest)
			var got []string
			for _, o := range objects {
				got = append(got, o.GetKind()+" "+o.GetName())
				if have := o.GetLabels()["app.kubernetes.io/version"]; have != c.version {
					t.Errorf("%s %s says that it is of version %q", o.GetKind(), o.GetName(), have)
				}
			}
			if diff := cmp.Diff(c.objects, got); diff != "" {
				t.Errorf("objects (%s), -want +got:\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(c.spec, specFields(t, objects[0])); diff != "" {
				t.Errorf("fields of spec (%s), -want +got:\n%s", c.reason, diff)
			}
			containers, _, err := unstructured.NestedSlice(objects[len(objects)-1].Object, "spec",
				"template", "spec", "containers")
			if err != nil || len(containers) != 1 {
				t.Fatalf("containers: %v, %v", containers, err)
			}
			if image := containers[0].(map[string]any)["image"]; !cmp.Equal([]any{image}, []any{v.Images[0]}) ||
				image != OperatorImage+":"+c.version {
				t.Errorf("the operator's image is %v, Images says %v", image, v.Images)
			}
			cr := &Sample{}
			if err := strictyaml.UnmarshalStrict(v.DefaultCR, cr); err != nil {
				t.Fatal(err)
			}
			if cr.Namespace != Namespace || cr.APIVersion != GroupVersion.String() ||
				cr.Kind != "Sample" || cr.Spec.Image != "" {
				t.Errorf("the default custom resource fits not every version: %+v", cr)
			}
		})
	}
}

// TestTypes checks that the Go types match the newest CRD.
func TestTypes(t *testing.T) {
	versions := Versions()
	objects := parse(t, versions[len(versions)-1].Manifest)
	if diff := cmp.Diff(jsonFields(reflect.TypeFor[Spec]()), specFields(t, objects[0])); diff != "" {
		t.Errorf("fields of spec, -Go +CRD:\n%s", diff)
	}
	status := schemaOf(t, objects[0]).Properties["status"]
	if diff := cmp.Diff(jsonFields(reflect.TypeFor[Status]()), keys(status)); diff != "" {
		t.Errorf("fields of status, -Go +CRD:\n%s", diff)
	}
	var states []State
	for _, v := range status.Properties["state"].Enum {
		var s State
		if err := json.Unmarshal(v.Raw, &s); err != nil {
			t.Fatal(err)
		}
		states = append(states, s)
	}
	if diff := cmp.Diff([]State{StateReady, StateProcessing, StateError, StateDeleting, StateWarning},
		states); diff != "" {
		t.Errorf("states, -Go +CRD:\n%s", diff)
	}
	if err := AddToScheme(runtime.NewScheme()); err != nil {
		t.Error(err)
	}
}

// TestPermissions checks that the operator has no permission that it does not need.
func TestPermissions(t *testing.T) {
	for _, v := range Versions() {
		for _, o := range parse(t, v.Manifest) {
			if !strings.HasSuffix(o.GetKind(), "Role") {
				continue
			}
			data, err := json.Marshal(o.Object["rules"])
			if err != nil {
				t.Fatal(err)
			}
			for _, forbidden := range []string{`"*"`, `"secrets"`, `"escalate"`, `"bind"`, `"impersonate"`} {
				if bytes.Contains(data, []byte(forbidden)) {
					t.Errorf("%s: %s %s has %s", v.Version, o.GetKind(), o.GetName(), forbidden)
				}
			}
		}
	}
}

func parse(t *testing.T, manifest []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(o); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
}

func schemaOf(t *testing.T, o *unstructured.Unstructured) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, crd, true); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

func specFields(t *testing.T, o *unstructured.Unstructured) []string {
	t.Helper()
	return keys(schemaOf(t, o).Properties["spec"])
}

func keys(p apiextensionsv1.JSONSchemaProps) []string {
	var names []string
	for name := range p.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func jsonFields(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
