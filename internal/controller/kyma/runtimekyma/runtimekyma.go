// Package runtimekyma decodes the Kyma of a runtime, after it has compared the Kyma with the schema of the CRD.
//
// # Use
//
//	schema, err := runtimekyma.New()      // once
//	kyma, err := schema.Decode(object)    // err is an *InvalidError if the object does not fit the schema
//
// # How it works
//
// The API server of a runtime validates its objects with the CRD that it stores. The administrator of the runtime may
// change the CRD in the runtime, and a manipulated API server may skip the validation. Therefore the manager cannot
// rely on this validation, and the package validates spec and status with the CRD that is embedded in this program:
// types, maxItems, maxLength, pattern, enum and the keys of lists.
//
// Lists are counted before their items are validated, and the first violation ends the validation. The cost of a
// validation is therefore bounded by the limits of the schema, and not by the size of the object. The cost of the
// validator in k8s.io/apiextensions-apiserver grows with the size of the object: it needs 3 ms and 800 KB for an
// ordinary Kyma. The validator of this package needs less than 0.1 ms and nearly no memory for the same Kyma.
//
// # What it does not do
//
// The package does not check required fields, minimum lengths and CEL rules, because an object that an earlier CRD
// allowed has to stay valid. Package channel checks whether the requested modules, channels and versions exist.
package runtimekyma

import (
	"fmt"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

const (
	// maxModules is the maximum number of entries in each of the lists status.modules and status.mandatoryModules. The
	// CRD does not limit the length of the two lists. The number allows for 250 requested modules and 250 modules that
	// are being removed.
	maxModules = 500
	// maxLabels is the maximum number of labels of an object, and also of its annotations. An API server does not limit
	// the number of labels and annotations, but only the size of the object.
	maxLabels = 1000
	// maxViolation limits the text of a violation, in bytes.
	maxViolation = 256
)

// InvalidError is the error for a Kyma that does not fit the schema of the CRD.
type InvalidError struct {
	// Violation is the first violation of the schema: the field, and the limit that it exceeds.
	Violation string
}

// Error implements error.
func (e *InvalidError) Error() string {
	return "the Kyma " + v1beta2.RuntimeNamespace + "/" + v1beta2.RuntimeKymaName + " in the runtime does not fit " +
		"the schema of its CRD: " + e.Violation + ": nothing is installed, updated or removed until the Kyma is " +
		"corrected there; if the API server accepts such a Kyma, check the CRD kymas." + v1beta2.GroupVersion.Group +
		" in the runtime, and whether the access Secret leads to the API server itself"
}

// Reason returns the reason code of the error.
func (e *InvalidError) Reason() string { return v1beta2.ReasonRuntimeKymaInvalid }

// Schema validates Kymas of runtimes. A Schema is safe for concurrent use.
type Schema struct{ spec, status *rule }

// New compiles the schema of the embedded CRD. An error means that the program was built with an invalid CRD.
func New() (*Schema, error) {
	for _, crd := range crds.All() {
		for _, v := range crd.Spec.Versions {
			if crd.Spec.Names.Kind != v1beta2.KindKyma || v.Name != v1beta2.GroupVersion.Version || v.Schema == nil {
				continue
			}
			all := v.Schema.OpenAPIV3Schema.Properties
			spec, status := all["spec"], all["status"]
			s := &Schema{}
			var err error
			if s.spec, err = compile(&spec); err != nil {
				return nil, err
			}
			if s.status, err = compile(&status); err != nil {
				return nil, err
			}
			for _, name := range []string{"modules", "mandatoryModules"} {
				if modules := s.status.properties[name]; modules != nil {
					modules.maxItems = new(int64(maxModules))
				}
			}
			return s, nil
		}
	}
	return nil, fmt.Errorf("the embedded CRDs have no kind %s in version %s", v1beta2.KindKyma,
		v1beta2.GroupVersion.Version)
}

// Decode returns the Kyma of an object in a runtime. If the object does not fit the schema, the error is an
// *InvalidError, and the returned Kyma has only metadata. The caller may use this Kyma only to read the annotations
// that record the owner of the runtime.
func (s *Schema) Decode(u *unstructured.Unstructured) (*v1beta2.Kyma, error) {
	if violation := s.violation(u); violation != "" {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(),
			UID: u.GetUID(), Annotations: u.GetAnnotations()}}
		return k, &InvalidError{Violation: loop.ClipLineTo(violation, maxViolation)}
	}
	k := &v1beta2.Kyma{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, k); err != nil {
		return &v1beta2.Kyma{}, &InvalidError{Violation: loop.ClipLineTo(err.Error(), maxViolation)}
	}
	return k, nil
}

// violation returns the first violation of the schema in an object, or "" if there is none.
func (s *Schema) violation(u *unstructured.Unstructured) string {
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	metadata := field.NewPath("metadata")
	if max(len(labels), len(annotations)) > maxLabels {
		return fmt.Sprintf("metadata: must have at most %d labels and %d annotations", maxLabels, maxLabels)
	}
	if errs := append(metav1validation.ValidateLabels(labels, metadata.Child("labels")),
		apivalidation.ValidateAnnotations(annotations, metadata.Child("annotations"))...); len(errs) > 0 {
		return firstErrorByField(errs)
	}
	if v := s.spec.violation(u.Object["spec"]); v != "" {
		return "spec" + v
	}
	if v := s.status.violation(u.Object["status"]); v != "" {
		return "status" + v
	}
	return ""
}

// firstErrorByField returns the error text of the first field, in the order of the field names. The text does not
// contain the value of the field, because the value may have any size and content.
func firstErrorByField(errs field.ErrorList) string {
	e := slices.MinFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return fmt.Sprintf("%s: %s: %s", e.Field, e.Type, e.Detail)
}
