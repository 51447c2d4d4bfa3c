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

// Injection replaces the data of Secrets that have an annotation.
type Injection struct {
	// Annotation is the key of an annotation; a Secret is marked if the value of this annotation is "true".
	Annotation string
	// Version identifies Data and is a part of the digest. If the field Version is empty, the module must not receive
	// data: marked Secrets stay as they are in the artefact, and Bundle.LeftOut lists them.
	Version string
	// Data has the data for each marked Secret, by the name of the Secret.
	Data map[string]map[string][]byte
	// Source describes where Data comes from. The message of an Error with reason InjectionFailed contains Source, in
	// the form "there is no data for it among <Source>".
	Source string
}

// isMarked reports whether an object is a Secret that has the annotation.
func (i *Injection) isMarked(o *unstructured.Unstructured) bool {
	return i != nil && o.GetAPIVersion() == "v1" && o.GetKind() == "Secret" &&
		o.GetAnnotations()[i.Annotation] == "true"
}

// inject returns an object with the data of Injection if the object is marked, and the unchanged object otherwise. If
// the object is marked and must not receive data, inject also returns a sentence for Bundle.LeftOut.
func (i *Injection) inject(o *unstructured.Unstructured) (*unstructured.Unstructured, string, error) {
	if !i.isMarked(o) {
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

// hashOf returns what Injection adds to the digest of the Options. If there is no Injection, or its Version is empty,
// hashOf returns nothing.
func (i *Injection) hashOf() []string {
	if i == nil || i.Version == "" {
		return nil
	}
	return []string{"injection", i.Annotation, i.Version}
}
