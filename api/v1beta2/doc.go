// Package v1beta2 holds the kinds of the API group operator.kyma-project.io that Lifecycle Manager serves and stores:
// Kyma, Manifest, ModuleTemplate, ModuleReleaseMeta and Watcher.
//
// Use it to read and write these objects from Go. AddToScheme registers the kinds; the constants give every label,
// annotation, finalizer, state, condition and reason that has a meaning; the methods answer small questions about one
// object and accept a nil receiver.
//
// The structs are the only source of the custom resource definitions: controller-gen reads the field comments and
// markers and writes the folder crds. Defaults and validation live there, so the API server refuses a bad object with a
// message that names the field. A field is required here only where an object without it never had a meaning, so objects
// written for earlier releases stay valid.
//
// The package decides nothing: states are computed by the controllers, versions are resolved by package channel. It
// imports nothing but apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kyma-project.io
package v1beta2
