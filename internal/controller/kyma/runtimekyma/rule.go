package runtimekyma

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// rule is the compiled form of a part of a schema.
type rule struct {
	kind       string // JSON type; "" allows all
	maxItems   *int64
	maxLength  *int64
	pattern    *regexp.Regexp
	enum       []string         // of a text; empty allows all
	items      *rule            // of each item of a list
	keys       []string         // properties that together identify an item; they differ between any two items
	names      []string         // the sorted keys of properties
	properties map[string]*rule // properties that are not listed have any value
}

// compile returns the rule of a schema.
func compile(s *apiextensionsv1.JSONSchemaProps) (r *rule, err error) {
	r = &rule{kind: s.Type, maxItems: s.MaxItems, maxLength: s.MaxLength, keys: s.XListMapKeys,
		properties: map[string]*rule{}}
	if s.Pattern != "" {
		if r.pattern, err = regexp.Compile(s.Pattern); err != nil {
			return nil, fmt.Errorf("compiling the schema of Kymas: %w", err)
		}
	}
	for _, value := range s.Enum {
		var text string
		if err := json.Unmarshal(value.Raw, &text); err != nil {
			return nil, fmt.Errorf("compiling the schema of Kymas: a value of an enum is not a text: %w", err)
		}
		r.enum = append(r.enum, text)
	}
	if s.Items != nil && s.Items.Schema != nil {
		if r.items, err = compile(s.Items.Schema); err != nil {
			return nil, err
		}
	}
	for name, p := range s.Properties {
		if r.properties[name], err = compile(&p); err != nil {
			return nil, err
		}
	}
	r.names = slices.Sorted(maps.Keys(s.Properties))
	return r, nil
}

// violation returns the path and the text of the first violation in a value, or "" if there is none. The text never
// contains the value of the field, because the value may have any size and content. A field that is missing or null is
// valid.
func (r *rule) violation(value any) string {
	if value == nil {
		return ""
	}
	if r.kind != "" && !isOf(value, r.kind) {
		return ": must be of type " + r.kind
	}
	switch value := value.(type) {
	case string:
		return r.textViolation(value)
	case []any:
		return r.listViolation(value)
	case map[string]any:
		for _, name := range r.names {
			if v := r.properties[name].violation(value[name]); v != "" {
				return "." + name + v
			}
		}
	}
	return ""
}

// textViolation is like violation, for a value that is a text. A pattern is matched only if the text is not too long.
func (r *rule) textViolation(text string) string {
	switch {
	case r.maxLength != nil && (int64(len(text)) > utf8.UTFMax**r.maxLength ||
		int64(utf8.RuneCountInString(text)) > *r.maxLength):
		return fmt.Sprintf(": must have at most %d characters", *r.maxLength)
	case r.pattern != nil && !r.pattern.MatchString(text):
		return ": must match " + r.pattern.String()
	case len(r.enum) > 0 && !slices.Contains(r.enum, text):
		return fmt.Sprintf(": must be one of %q", r.enum)
	}
	return ""
}

// listViolation returns the path and the text of the first violation in a list, or "" if there is none.
func (r *rule) listViolation(list []any) string {
	if r.maxItems != nil && int64(len(list)) > *r.maxItems {
		return fmt.Sprintf(": must have at most %d items", *r.maxItems)
	}
	seen := map[string]bool{}
	for i := range list {
		if r.items != nil {
			if v := r.items.violation(list[i]); v != "" {
				return fmt.Sprintf("[%d]%s", i, v)
			}
		}
		item, _ := list[i].(map[string]any)
		if len(r.keys) == 0 || item == nil {
			continue
		}
		var key strings.Builder
		for _, name := range r.keys {
			fmt.Fprintf(&key, "%q ", fmt.Sprint(item[name]))
		}
		if seen[key.String()] {
			return fmt.Sprintf("[%d]: must have another %s than the items before", i, strings.Join(r.keys, " and "))
		}
		seen[key.String()] = true
	}
	return ""
}

// isOf reports whether a decoded JSON value has the given JSON type.
func isOf(value any, kind string) bool {
	switch value.(type) {
	case string:
		return kind == "string"
	case bool:
		return kind == "boolean"
	case int64:
		return kind == "integer" || kind == "number"
	case float64:
		return kind == "number"
	case []any:
		return kind == "array"
	case map[string]any:
		return kind == "object"
	}
	return false
}
