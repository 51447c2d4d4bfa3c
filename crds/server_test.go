package crds

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/yaml"
)

// server does to objects of one kind what an API server does before it stores them: prune, default, validate. server
// uses the API server's own packages, in the API server's order.
type server struct {
	columns    []apiextensionsv1.CustomResourceColumnDefinition
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

// newServers checks the CRDs as an API server does when they are created, and returns a server for each version of each
// kind. The key is the kind for v1beta2, and kind/version for other versions.
func newServers(t *testing.T) map[string]*server {
	t.Helper()
	servers := map[string]*server{}
	for _, crd := range All() {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
			crd, internal, nil); err != nil {
			t.Fatalf("converting %s: %v", crd.Name, err)
		}
		internal.Status.StoredVersions = []string{"v1beta2"}
		if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), internal); len(errs) > 0 {
			t.Fatalf("the API server would refuse %s: %v", crd.Name, errs.ToAggregate())
		}

		for i, version := range internal.Spec.Versions {
			openAPI := internal.Spec.Validation // of all versions, if they have the same
			if openAPI == nil {
				openAPI = version.Schema
			}
			structural, err := schema.NewStructural(openAPI.OpenAPIV3Schema)
			if err != nil {
				t.Fatalf("reading the schema of %s %s: %v", crd.Name, version.Name, err)
			}
			schemaValidator, _, err := validation.NewSchemaValidator(openAPI.OpenAPIV3Schema)
			if err != nil {
				t.Fatalf("compiling the schema of %s %s: %v", crd.Name, version.Name, err)
			}
			name := crd.Spec.Names.Kind
			if version.Name != "v1beta2" {
				name += "/" + version.Name
			}
			servers[name] = &server{
				columns:    crd.Spec.Versions[i].AdditionalPrinterColumns,
				structural: structural,
				schema:     schemaValidator,
				cel:        cel.NewValidator(structural, true, celconfig.PerCallLimit),
			}
		}
	}
	return servers
}

// admit prunes the object and sets its defaults in place, as an API server does before it validates the object.
func (s *server) admit(obj *unstructured.Unstructured) {
	pruning.Prune(obj.Object, s.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(obj.Object, s.structural)
	defaulting.Default(obj.Object, s.structural)
}

// create changes the object as the API server does before validation (admit), and returns the errors with which the API
// server would refuse to create the object.
func (s *server) create(t *testing.T, obj *unstructured.Unstructured) field.ErrorList {
	s.admit(obj)
	errs := validation.ValidateCustomResource(nil, obj.Object, s.schema)
	errs = append(errs, objectmeta.Validate(t.Context(), nil, obj.Object, s.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, obj.Object)...)
	if blocking(errs) {
		return errs
	}
	rules, _ := s.cel.Validate(t.Context(), nil, s.structural, obj.Object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, rules...)
}

// update changes the object as the API server does before validation (admit), and returns the errors with which the API
// server would refuse an update from the parameter old to this object. The object in the parameter old is not
// validated.
func (s *server) update(t *testing.T, obj, old *unstructured.Unstructured) field.ErrorList {
	s.admit(obj)
	same := common.NewCorrelatedObject(obj.Object, old.Object, &model.Structural{Structural: s.structural})
	errs := validation.ValidateCustomResourceUpdate(nil, obj.Object, old.Object, s.schema,
		validation.WithRatcheting(same))
	errs = append(errs, objectmeta.Validate(t.Context(), nil, obj.Object, s.structural, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, s.structural, old.Object)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, obj.Object)...)
	}
	if blocking(errs) {
		return errs
	}
	rules, _ := s.cel.Validate(t.Context(), nil, s.structural, obj.Object, old.Object,
		celconfig.RuntimeCELCostBudget, cel.WithRatcheting(same))
	return append(errs, rules...)
}

// blocking reports whether the API server skips the CEL rules, because the object may be too large for them.
func blocking(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(err *field.Error) bool {
		return err.Type == field.ErrorTypeNotSupported || err.Type == field.ErrorTypeRequired ||
			err.Type == field.ErrorTypeTooLong || err.Type == field.ErrorTypeTooMany ||
			err.Type == field.ErrorTypeTypeInvalid
	})
}

// table returns what kubectl get shows for the object: the cells by the names of their columns.
func (s *server) table(t *testing.T, obj *unstructured.Unstructured) map[string]any {
	t.Helper()
	convertor, err := tableconvertor.New(s.columns)
	if err != nil {
		t.Fatalf("compiling the printer columns: %v", err)
	}
	table, err := convertor.ConvertToTable(t.Context(), obj, nil)
	if err != nil {
		t.Fatalf("printing the object: %v", err)
	}
	cells := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		cells[column.Name] = table.Rows[0].Cells[i]
	}
	return cells
}

// decode reads an object from YAML. decode sets the API version and the kind, and adds metadata if the object has none.
// The parameter kind is the kind of the object for API version v1beta2, and kind/version for another API version.
func decode(t *testing.T, kind, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "\t", "  ")))
	if err != nil {
		t.Fatalf("parsing the object: %v", err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatalf("parsing the object: %v", err)
	}
	kind, version, old := strings.Cut(kind, "/")
	if !old {
		version = "v1beta2"
	}
	fields["apiVersion"] = json.RawMessage(`"operator.kyma-project.io/` + version + `"`)
	fields["kind"] = json.RawMessage(`"` + kind + `"`)
	if fields["metadata"] == nil {
		fields["metadata"] = json.RawMessage(`{"name":"sample","namespace":"kcp-system"}`)
	}
	if data, err = json.Marshal(fields); err != nil {
		t.Fatalf("building the object: %v", err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(data); err != nil {
		t.Fatalf("building the object: %v", err)
	}
	return obj
}
