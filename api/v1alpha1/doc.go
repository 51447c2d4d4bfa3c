// Package v1alpha1 holds the early shapes of Kyma, Manifest and ModuleTemplate, as objects of 2022 have them, and their
// conversion to v1beta2 and back.
//
// Use it to read or write objects of that age from Go:
//
//	var now v1beta2.Kyma
//	err := old.ConvertTo(&now)   // and old.ConvertFrom(&now)
//
// New objects are better written in v1beta2, which is what is stored. v1alpha1 is served by a manager with
// --enable-webhooks; without, API servers do not offer it.
//
// How the conversion works: fields that mean the same are copied (project.go). What the other version has no field for
// travels in one annotation, AnnotationConversion, as a list of losses: where, what the copied fields make of it there, and
// what it really is (loss.go). On the way back a loss is made good only if the copied fields still say what they said, so
// whatever was edited in between wins. An object without losses has no annotation. Nothing is lost silently: what does not
// fit into the annotation can be read, but not written back.
//
// The package decides nothing about modules, and it does not validate: that is done by the API server. It imports nothing
// but apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kyma-project.io
package v1alpha1
