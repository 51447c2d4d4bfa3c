// Package v1beta2 defines the kinds Kyma, Manifest, ModuleTemplate, ModuleReleaseMeta, RolloutPolicy, ModuleRollout and
// Watcher of the API group operator.kyma-project.io. v1beta2 is the API version in which these kinds are stored.
//
// Go programs use the package to read and write objects of these kinds. AddToScheme registers the kinds; the constants
// define every label, annotation, finalizer, state, condition and reason; the methods return values that are derived
// from one object, and accept a nil receiver.
//
// The structs are the only source of the CRDs: controller-gen reads the field comments and markers and writes the
// folder crds. The Go types define the defaults and the validation, so the API server rejects an invalid object with a
// message that names the field. A field is required only if an object without it could never be used, so objects that
// were written for earlier releases stay valid.
//
// The package contains no control logic: states are computed by the controllers, versions are resolved by package
// channel. The package imports only apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kyma-project.io
package v1beta2
