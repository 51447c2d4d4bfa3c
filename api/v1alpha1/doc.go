// Package v1alpha1 contains the kinds Kyma, Manifest and ModuleTemplate in the form of 2022, and their conversion to
// v1beta2 and back.
//
// Use it to read or write such objects from Go:
//
//	var now v1beta2.Kyma
//	err := old.ConvertTo(&now)   // and old.ConvertFrom(&now)
//
// Write new objects in v1beta2, which is the stored version. v1alpha1 is served only if the manager runs with the flag
// --enable-webhooks.
//
// The conversion copies fields that have the same meaning in both versions (project.go). If a value has no field in the
// other version, it is stored in the annotation AnnotationConversion, which is a list of losses (loss.go). A loss has a
// path, the value that the conversion of the copied fields gives at this path, and the original value. The conversion
// back restores the original value only if the copied fields still give the same value, so edits by users have
// precedence. If a conversion loses nothing, it adds no annotation. Nothing is lost silently: if the losses of an
// object exceed the size of the annotation, the object can be read, but not written back.
//
// The package contains no control logic and no validation; the API server validates the objects. The package imports
// only apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kyma-project.io
package v1alpha1
