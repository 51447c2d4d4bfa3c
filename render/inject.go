package render

import (
	"encoding/base64"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// Reasons of an Error about the injection of data into Secrets.
const (
	// InjectionFailed: a Secret of the artefact needs data that Injection does not have.
	InjectionFailed = "InjectionFailed"
)

// Injection replaces the data of those Secrets in an artefact that an annotation marks for this purpose.
type Injection struct {
	// Annotation is the key of the annotation that marks a Secret whose data must be replaced. The value of the
	// annotation must be "true".
	Annotation string
	// Version identifies the content of Data. Version is a part of the digest of the bundle, so that new data results
	// in a new bundle. If Version is empty, the module is not allowed to receive data. Then the data of marked Secrets
	// is not replaced, and Bundle.LeftOut lists these Secrets.
	Version string
	// Data contains the new data of each Secret that has the annotation, by the name of the Secret.
	Data map[string]map[string][]byte
	// Source describes where Data comes from. The message of an Error with reason InjectionFailed contains Source, in
	// the form "there is no data for it among <Source>".
	Source string
}

// isMarkedSecret reports whether an object is a Secret whose data must be replaced because it has the annotation
// Injection.Annotation.
func (i *Injection) isMarkedSecret(o *unstructured.Unstructured) bool {
	return i != nil && o.GetAPIVersion() == "v1" && o.GetKind() == "Secret" &&
		o.GetAnnotations()[i.Annotation] == "true"
}

// replaceMarkedSecretData replaces the data of a marked Secret by the data of Injection, and returns every other object
// unchanged. If a Secret is marked, but the module is not allowed to receive data, replaceMarkedSecretData returns the
// unchanged Secret and a sentence for Bundle.LeftOut.
func (i *Injection) replaceMarkedSecretData(o *unstructured.Unstructured) (
	out *unstructured.Unstructured, leftOut string, err error) {
	if !i.isMarkedSecret(o) {
		return o, "", nil
	}
	if i.Version == "" {
		return o, fmt.Sprintf("annotation %s of %s: this module may not receive data of the control plane",
			i.Annotation, input.Describe(o.Object)), nil
	}
	data, ok := i.Data[o.GetName()]
	if !ok {
		return nil, "", &Error{Code: InjectionFailed, Object: input.Describe(o.Object),
			Problem: fmt.Sprintf("its annotation %s requests data, and there is no data for it among %s", i.Annotation,
				i.Source)}
	}
	encoded := make(map[string]any, len(data))
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString(value)
	}
	tree := maps.Clone(o.Object)
	delete(tree, "stringData")
	tree["data"] = encoded
	return &unstructured.Unstructured{Object: tree}, "", nil
}

// digestInputs returns the values of an Injection on which the digest of the Options depends. If the Injection is nil,
// or its Version is empty, the digest does not depend on it, and digestInputs returns nil.
func (i *Injection) digestInputs() []string {
	if i == nil || i.Version == "" {
		return nil
	}
	return []string{"injection", i.Annotation, i.Version}
}
