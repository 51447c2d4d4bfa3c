package input

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ValidateObject returns an error if tree cannot be a single Kubernetes object. ValidateObject does not check whether a
// cluster supports and accepts the object.
func ValidateObject(tree map[string]any) error {
	refuse := func(problem string) error {
		return &Error{Code: InvalidObject, Object: Describe(tree), Problem: problem}
	}
	for _, field := range []string{"apiVersion", "kind"} {
		if s, _ := tree[field].(string); s == "" {
			return refuse(field + " is missing or not a string: every document must be a Kubernetes object")
		}
	}
	if _, err := schema.ParseGroupVersion(tree["apiVersion"].(string)); err != nil {
		return refuse("apiVersion is not of the form group/version or version")
	}
	metadata, ok := tree["metadata"].(map[string]any)
	if !ok {
		return refuse("metadata is missing or not a map: give it one with a name")
	}
	if s, _ := metadata["name"].(string); s == "" {
		return refuse("metadata.name is missing or not a string (generateName cannot be applied): give it a name")
	}
	if ns, ok := metadata["namespace"]; ok && ns != nil {
		if _, ok := ns.(string); !ok {
			return refuse("metadata.namespace is not a string: put it in quotes")
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		switch set := metadata[field].(type) {
		case nil:
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(set)) {
				if _, ok := set[key].(string); !ok {
					return refuse("the value of metadata." + field + "[" + strconv.Quote(
						key) + "] is not a string: put it in quotes")
				}
			}
		default:
			return refuse("metadata." + field + " is not a map")
		}
	}
	return nil
}

// Describe returns a text for messages with the kind, the namespace and the name of an object. If the object has no
// namespace, the text contains none.
func Describe(tree map[string]any) string {
	text := func(m map[string]any, key string) string { s, _ := m[key].(string); return s }
	metadata, _ := tree["metadata"].(map[string]any)
	kind, namespace, name := text(tree, "kind"), text(metadata, "namespace"), text(metadata, "name")
	switch {
	case kind == "" && name == "":
		return ""
	case kind == "":
		kind = "object"
	}
	if name == "" {
		return kind + " without name"
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}
