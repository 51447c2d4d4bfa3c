package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
)

// schemaFile is the file with the JSON schema of a module-config, relative to the root of the repository.
const schemaFile = "docs/reference/module-config.schema.json"

// configKey is a key of a module-config.
type configKey struct {
	name, goType, doc string
	required          bool
}

// configTypes returns the keys of each struct of the module-config by the name of the struct, in the order of the file.
func configTypes(root string) (map[string][]configKey, error) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal/author/config.go"), nil,
		parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("reading the keys of a module-config: %w", err)
	}
	types := map[string][]configKey{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			return false
		}
		for _, f := range fields.Fields.List {
			if f.Tag == nil {
				continue
			}
			text, _ := strconv.Unquote(f.Tag.Value)
			tag := reflect.StructTag(text)
			name, option, _ := strings.Cut(tag.Get("yaml"), ",")
			if option == "inline" {
				types[spec.Name.Name] = append(types[spec.Name.Name], types[typeText(f.Type)]...)
				continue
			}
			_, doc, _ := strings.Cut(oneLine(f.Doc.Text()), " ")
			doc = strings.TrimPrefix(strings.TrimPrefix(doc, "is "), "are ")
			types[spec.Name.Name] = append(types[spec.Name.Name], configKey{name, typeText(f.Type), sentence(doc),
				tag.Get("doc") == "required"})
		}
		return false
	})
	return types, nil
}

// typeText returns the text of a type.
func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeText(e.X)
	case *ast.ArrayType:
		return "[]" + typeText(e.Elt)
	case *ast.MapType:
		return "map[" + typeText(e.Key) + "]" + typeText(e.Value)
	}
	return ""
}

// typeNames are the names of types that readers see.
var typeNames = map[string]string{"bool": "boolean", "[]Link": "list of links", "[]Kind": "list of kinds",
	"map[string]string": "map of strings", "Manager": "map", "ChartSettings": "map", "Upgrade": "map",
	"[]Risk": "list of risks"}

// moduleConfigPage returns the reference of the module-config.
func moduleConfigPage(root string) (string, error) {
	types, err := configTypes(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(head("Module-config", "internal/author/config.go"))
	b.WriteString("The file `module-config.yaml` describes a version of a module for `klm module build`, " +
		"[author.md](../guide/author.md) explains its use.\n" +
		"It is also the input of modulectl: files of that tool are accepted as they are.\n" +
		"Editors check the file with the [JSON schema](module-config.schema.json); a comment in the first line of the " +
		"file names it:\n\n" +
		"    # yaml-language-server: $schema=https://raw.githubusercontent.com/kyma-fleet/lifecycle-manager/main/" +
		schemaFile + "\n")
	for _, part := range []struct{ title, name string }{
		{"Keys", "Config"}, {"Keys of manager", "Manager"}, {"Keys of upgrade", "Upgrade"},
		{"Keys of a risk in upgrade", "Risk"}, {"Keys of chart", "ChartSettings"},
		{"Keys of a kind in associatedResources", "Kind"}, {"Keys of a link in icons and resources", "Link"},
	} {
		b.WriteString("\n## " + part.title + "\n\n| key | type | meaning |\n|---|---|---|\n")
		for _, k := range types[part.name] {
			text := k.doc
			if k.required {
				text = "Required. " + text
			}
			name, ok := typeNames[k.goType]
			if !ok {
				name = k.goType
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.name, name, cell(text))
		}
	}
	b.WriteString("\n## Keys without effect\n\n" +
		"These keys of modulectl are accepted with a warning.\n" +
		"Any other unknown key is accepted with a warning, too, unless it is similar to a key of the tables: then it is " +
		"an error.\n\n| key | reason |\n|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(author.ObsoleteKeys)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", key, cell(sentence(author.ObsoleteKeys[key])))
	}
	return b.String(), nil
}

// moduleConfigSchema returns the JSON schema of the module-config.
func moduleConfigSchema(root string) (string, error) {
	types, err := configTypes(root)
	if err != nil {
		return "", err
	}
	schema := objectSchema(types, "Config")
	properties := schema["properties"].(map[string]any)
	for key, why := range author.ObsoleteKeys {
		properties[key] = map[string]any{"deprecated": true, "description": "No effect: " + why + "."}
	}
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	schema["title"] = "module-config of klm and modulectl"
	data, err := json.MarshalIndent(schema, "", "  ")
	return string(data) + "\n", err
}

// objectSchema returns the schema of a struct.
func objectSchema(types map[string][]configKey, name string) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, k := range types[name] {
		property := schemaOf(types, k.goType)
		property["description"] = k.doc
		properties[k.name] = property
		if k.required {
			required = append(required, k.name)
		}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// schemaOf returns the schema of a type. Keys that are not required may be null.
func schemaOf(types map[string][]configKey, goType string) map[string]any {
	switch goType {
	case "string":
		return map[string]any{"type": "string"}
	case "bool":
		return map[string]any{"type": []string{"boolean", "null"}}
	case "map[string]string":
		return map[string]any{"type": []string{"object", "null"},
			"additionalProperties": map[string]any{"type": "string"}}
	case "[]Link":
		return map[string]any{"anyOf": []any{
			map[string]any{"type": "array", "items": objectSchema(types, "Link")},
			map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
			map[string]any{"type": "null"}}}
	}
	if item, ok := strings.CutPrefix(goType, "[]"); ok {
		return map[string]any{"type": []string{"array", "null"}, "items": objectSchema(types, item)}
	}
	schema := objectSchema(types, goType)
	schema["type"] = []string{"object", "null"}
	return schema
}
