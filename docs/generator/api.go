package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kyma-fleet/lifecycle-manager/crds"
)

// apiPage returns the page of all fields of every kind, in the storage version.
func apiPage(string) (string, error) {
	var b strings.Builder
	b.WriteString(head("Kinds of operator.kyma-project.io/v1beta2", "crds"))
	b.WriteString("`v1alpha1` of Kyma, ModuleTemplate and Manifest is served with `--enable-webhooks`, see " +
		"[sources.md](../guide/sources.md).\n\n")
	all := crds.All()
	for _, crd := range all {
		names := crd.Spec.Names
		fmt.Fprintf(&b, "- [%s](#%s)", names.Kind, strings.ToLower(names.Kind))
		if len(names.ShortNames) > 0 {
			fmt.Fprintf(&b, ", for short `%s`", strings.Join(names.ShortNames, "`, `"))
		}
		b.WriteString("\n")
	}
	for _, crd := range all {
		for _, v := range crd.Spec.Versions {
			if !v.Storage {
				continue
			}
			schema := v.Schema.OpenAPIV3Schema
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", crd.Spec.Names.Kind, schema.Description)
			for _, part := range []string{"spec", "status"} {
				if p, found := schema.Properties[part]; found {
					fmt.Fprintf(&b, "\n| field | type | |\n|---|---|---|\n")
					writeFields(&b, part, p)
				}
			}
		}
	}
	return b.String(), nil
}

// writeFields writes a table row for each field of an object and of its nested objects.
func writeFields(b *strings.Builder, path string, of apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		p := of.Properties[name]
		field, inner := path+"."+name, p
		kind := typeOrEnumValues(p)
		switch {
		case p.Type == "array" && p.Items != nil && p.Items.Schema != nil:
			field, inner = field+"[]", *p.Items.Schema
			kind = "list of " + typeOrEnumValues(inner)
		case p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil:
			field, inner = field+".*", *p.AdditionalProperties.Schema
			kind = "map of " + typeOrEnumValues(inner)
		}
		about := p.Description + constraints(p, slices.Contains(of.Required, name))
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", field, kind, cell(about))
		if !strings.HasSuffix(path, "conditions") {
			writeFields(b, field, inner)
		}
	}
}

// typeOrEnumValues returns the type of a field as text for the page, such as "integer" or the list of allowed values.
func typeOrEnumValues(p apiextensionsv1.JSONSchemaProps) string {
	switch {
	case len(p.Enum) > 0:
		var values []string
		for _, v := range p.Enum {
			values = append(values, "`"+string(v.Raw)+"`")
		}
		return strings.Join(values, ", ")
	case p.XIntOrString:
		return "integer or string"
	case p.Format != "" && p.Type == "string":
		return p.Format
	case p.Type == "":
		return "any"
	}
	return p.Type
}

// constraints returns the constraints of the schema on a field, as a sentence in italics. constraints returns ""
// without constraints.
func constraints(p apiextensionsv1.JSONSchemaProps, required bool) string {
	var all []string
	if required {
		all = append(all, "Required")
	}
	if p.Default != nil {
		all = append(all, "default `"+string(p.Default.Raw)+"`")
	}
	if p.MaxLength != nil {
		all = append(all, fmt.Sprintf("at most %d characters", *p.MaxLength))
	}
	if p.MaxItems != nil {
		all = append(all, fmt.Sprintf("at most %d entries", *p.MaxItems))
	}
	if p.Pattern != "" && !strings.Contains(p.Pattern, "](") { // Markdown would interpret "](" as a link
		all = append(all, "pattern `"+p.Pattern+"`")
	}
	if len(all) == 0 {
		return ""
	}
	text := strings.Join(all, ", ")
	return " *" + strings.ToUpper(text[:1]) + text[1:] + ".*"
}
