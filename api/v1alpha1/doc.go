// Package v1alpha1 contains the kinds Kyma, Manifest and ModuleTemplate in the form of 2022, and their conversion to
// v1beta2 and back.
//
// Go programs use the package to read or write v1alpha1 objects:
//
//	var now v1beta2.Kyma
//	err := old.ConvertTo(&now)   // and old.ConvertFrom(&now)
//
// Write new objects in v1beta2, which is the stored version. v1alpha1 is served only if the manager runs with the flag
// --enable-webhooks.
//
// The conversion copies fields that have the same meaning in both versions (project.go). If a value has no field in the
// other version, the value is recorded as a loss in AnnotationConversion (loss.go). A loss consists of a path, the
// value that the object would have at this path after a conversion in both directions without the annotation, and the
// original value. The conversion back restores the original value only if users have not edited the value at this path,
// so edits by users have precedence. If a conversion loses nothing, it adds no annotation. Nothing is lost silently: if
// the values lost in the conversion of an object exceed the maximum size of AnnotationConversion, the object can be
// read, but not written back.
//
// The package contains no control logic and no validation; the API server validates the objects. The package imports
// only apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kyma-project.io
package v1alpha1
