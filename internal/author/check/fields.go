package check

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// compareWithType returns the fields of an object that its Go type does not have, and the fields whose values have
// another type. The status is not compared, because the manager does not apply the status.
func compareWithType(o *unstructured.Unstructured, typed runtime.Object) []string {
	c := fieldComparison{}
	tree := maps.Clone(o.Object)
	delete(tree, "status")
	c.compare("", tree, reflect.TypeOf(typed).Elem())
	return c.mismatches
}

// fieldComparison contains the state of a comparison of a tree of values with a Go type.
type fieldComparison struct{ mismatches []string }

func (c *fieldComparison) add(path, format string, args ...any) {
	c.mismatches = append(c.mismatches, strings.TrimPrefix(path, ".")+" "+fmt.Sprintf(format, args...))
}

var decoderType = reflect.TypeFor[json.Unmarshaler]()

// compare compares a value in a tree with a Go type. A null value fits all types.
func (c *fieldComparison) compare(path string, value any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || t.Kind() == reflect.Interface {
		return
	}
	if reflect.PointerTo(t).Implements(decoderType) {
		data, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(data, reflect.New(t).Interface())
		}
		if err != nil {
			c.add(path, "cannot be %s: %v", data, err)
		}
		return
	}
	wanted, fits := "", false
	switch t.Kind() {
	case reflect.Struct:
		tree, ok := value.(map[string]any)
		if wanted, fits = "a map", ok; ok {
			c.compareFields(path, tree, t)
		}
	case reflect.Map:
		tree, ok := value.(map[string]any)
		wanted, fits = "a map", ok
		for _, key := range slices.Sorted(maps.Keys(tree)) {
			c.compare(path+"["+key+"]", tree[key], t.Elem())
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			text, ok := value.(string)
			_, err := base64.StdEncoding.DecodeString(text)
			wanted, fits = "a string in base64", ok && err == nil
			break
		}
		list, ok := value.([]any)
		wanted, fits = "a list", ok
		for i, item := range list {
			c.compare(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())
		}
	case reflect.String:
		_, fits = value.(string)
		wanted = "a string: put it in quotes"
	case reflect.Bool:
		_, fits = value.(bool)
		wanted = "true or false"
	case reflect.Float32, reflect.Float64:
		wanted, fits = "a number", isNumber(value)
	default:
		f, isFloat := value.(float64)
		wanted, fits = "an integer", isNumber(value) && (!isFloat || f == math.Trunc(f))
	}
	if !fits {
		c.add(path, "is %s, and must be %s", typeAndValueText(value), wanted)
	}
}

// compareFields compares the keys of a map with the fields of a Go struct.
func (c *fieldComparison) compareFields(path string, tree map[string]any, t reflect.Type) {
	fields := map[string]reflect.Type{}
	addFields(t, fields)
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		field, ok := fields[key]
		if ok {
			c.compare(path+"."+key, tree[key], field)
			continue
		}
		hint := ""
		for name := range fields {
			if strings.EqualFold(name, key) {
				hint = ": write " + name
			}
		}
		c.add(path+"."+key, "is no field of this kind%s", hint)
	}
}

// addFields adds the fields of a Go struct, including those of embedded structs, by their JSON names.
func addFields(t reflect.Type, fields map[string]reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			addFields(f.Type, fields)
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
}

func isNumber(value any) bool {
	switch value.(type) {
	case int64, float64, json.Number:
		return true
	}
	return false
}

// typeAndValueText returns a short form of a value for a message.
func typeAndValueText(value any) string {
	switch value := value.(type) {
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the string %q", value)
	case bool:
		return fmt.Sprintf("the boolean %v", value)
	}
	return fmt.Sprintf("the number %v", value)
}
