package v1alpha1

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// AnnotationConversion is an annotation of a converted object. The value of AnnotationConversion is a JSON document
// with the values for which the API version has no field; only the conversion reads and writes it.
const AnnotationConversion = "operator.kyma-project.io/conversion"

// MaxConversionBytes is the maximum size of AnnotationConversion. The API server accepts 256 KiB for all annotations of
// an object.
const MaxConversionBytes = 64 << 10

// lossRecord is the content of AnnotationConversion.
type lossRecord struct {
	// For is the API version of the object whose values were lost in the conversion.
	For string `json:"for"`
	// Losses are the values for which the API version of the object has no field, in the order of their paths.
	Losses []loss `json:"losses,omitempty"`
	// TooLarge is true if the record in the annotation has no Losses, because they would exceed MaxConversionBytes. An
	// object with TooLarge cannot be written back, because the values without a field would be lost.
	TooLarge bool `json:"tooLarge,omitempty"`
}

// loss is one value for which the other API version has no field.
type loss struct {
	// Path is the path of the value. A step of a path is the name of a field, or an object with one key and value,
	// which selects the list element with this key and value.
	Path []any `json:"path"`
	// Was is the value at Path after the object was converted to the other API version and back without the annotation.
	// If Was is empty, the object has no value at Path.
	Was json.RawMessage `json:"was,omitempty"`
	// Is is the value that the original object has at Path. If Is is empty, the original object has no value at Path.
	Is json.RawMessage `json:"is,omitempty"`
}

// pathOfLargest returns the path of the largest value that was lost in the conversion, for use in messages.
func pathOfLargest(all []loss) string {
	size := func(l loss) int { return len(l.Was) + len(l.Is) }
	most := slices.MaxFunc(all, func(a, b loss) int { return cmp.Compare(size(a), size(b)) })
	var b strings.Builder
	for _, step := range most.Path {
		switch step := step.(type) {
		case string:
			b.WriteString("." + step)
		case map[string]any:
			for _, name := range step {
				fmt.Fprintf(&b, "[%v]", name)
			}
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}

// absent stands for a missing value, which is not the same as null.
type absent struct{}

// lossesBetween returns the differences between two JSON values: the value after a conversion there and back (parameter
// roundTripped) and the original value. Restoring all returned losses in roundTripped gives the original value.
func lossesBetween(roundTripped, original any) ([]loss, error) {
	var found []loss
	err := appendLosses(nil, roundTripped, original, &found)
	return found, err
}

func appendLosses(path []any, roundTripped, original any, found *[]loss) error {
	if reflect.DeepEqual(roundTripped, original) {
		return nil
	}
	wasFields, wasMap := roundTripped.(map[string]any)
	isFields, isMap := original.(map[string]any)
	if wasMap && isMap {
		names := maps.Clone(wasFields)
		maps.Copy(names, isFields)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if err := appendLosses(append(slices.Clip(path), name), fieldOrAbsent(wasFields, name),
				fieldOrAbsent(isFields, name), found); err != nil {
				return err
			}
		}
		return nil
	}
	wasList, wasSlice := roundTripped.([]any)
	isList, isSlice := original.([]any)
	if wasSlice && isSlice {
		if key := keyWithSameValues(wasList, isList); key != "" {
			for i, e := range isList {
				step := map[string]any{key: e.(map[string]any)[key]}
				if err := appendLosses(append(slices.Clip(path), step), wasList[i], e, found); err != nil {
					return err
				}
			}
			return nil
		}
	}
	l := loss{Path: path}
	var err error
	if l.Was, err = encodeOrEmpty(roundTripped); err != nil {
		return err
	}
	if l.Is, err = encodeOrEmpty(original); err != nil {
		return err
	}
	*found = append(*found, l)
	return nil
}

func fieldOrAbsent(fields map[string]any, name string) any {
	if v, ok := fields[name]; ok {
		return v
	}
	return absent{}
}

func encodeOrEmpty(v any) (json.RawMessage, error) {
	if v == (absent{}) {
		return nil, nil
	}
	return json.Marshal(v)
}

// keyWithSameValues returns the name of a field by which the elements of two lists can be matched: the values of this
// field are unique, and the same in both lists in the same order. If there is no such field, keyWithSameValues returns
// "".
func keyWithSameValues(a, b []any) string {
	for _, key := range []string{"name", "type"} {
		names := namesIfUnique(a, key)
		if names != nil && slices.Equal(names, namesIfUnique(b, key)) {
			return key
		}
	}
	return ""
}

// namesIfUnique returns the values of a field of all elements, or nil if a value is missing or occurs twice.
func namesIfUnique(list []any, key string) []string {
	var names []string
	for _, e := range list {
		fields, _ := e.(map[string]any)
		name, _ := fields[key].(string)
		if name == "" || slices.Contains(names, name) {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// restoreUnedited replaces values in tree by their original values; a value that was edited since the conversion is
// kept.
func restoreUnedited(tree map[string]any, all []loss) error {
	for _, l := range all {
		if err := restoreIfUnedited(tree, l); err != nil {
			return err
		}
	}
	return nil
}

func restoreIfUnedited(tree map[string]any, l loss) error {
	if len(l.Path) < 2 {
		return fmt.Errorf("a path of %d steps", len(l.Path))
	}
	var here any = tree
	for _, step := range l.Path[:len(l.Path)-1] {
		if here = childOrAbsent(here, step); here == (absent{}) {
			return nil // the parent was removed by an edit
		}
	}
	was, err := decodeOrAbsent(l.Was)
	if err != nil {
		return err
	}
	is, err := decodeOrAbsent(l.Is)
	if err != nil {
		return err
	}
	name, ok := l.Path[len(l.Path)-1].(string)
	fields, inMap := here.(map[string]any)
	if !ok || !inMap || !reflect.DeepEqual(fieldOrAbsent(fields, name), was) {
		return nil // the value was edited
	}
	if is == (absent{}) {
		delete(fields, name)
	} else {
		fields[name] = is
	}
	return nil
}

// childOrAbsent returns the child of a value at one step of a path, or absent{} if there is no such child.
func childOrAbsent(here, step any) any {
	switch step := step.(type) {
	case string:
		fields, _ := here.(map[string]any)
		return fieldOrAbsent(fields, step)
	case map[string]any:
		list, _ := here.([]any)
		for key, name := range step {
			for _, e := range list {
				if fields, ok := e.(map[string]any); ok && fields[key] == name {
					return e
				}
			}
		}
	}
	return absent{}
}

func decodeOrAbsent(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return absent{}, nil
	}
	var v any
	if err := utiljson.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return v, nil
}

// encodeLosses returns the value of AnnotationConversion for values that were lost in a conversion from the given API
// version, or "" if nothing was lost. If the lost values are too large, the result "fits" is false, and the annotation
// has TooLarge but no lost values.
func encodeLosses(version string, all []loss) (annotation string, fits bool, err error) {
	if len(all) == 0 {
		return "", true, nil
	}
	data, err := json.Marshal(lossRecord{For: version, Losses: all})
	if err == nil && len(data) > MaxConversionBytes {
		data, err = json.Marshal(lossRecord{For: version, TooLarge: true})
		return string(data), false, err
	}
	return string(data), true, err
}

// decodeLosses parses an AnnotationConversion with values that were lost in a conversion from the given API version. If
// the annotation is for another API version, decodeLosses ignores it.
func decodeLosses(version, annotation string) (lossRecord, error) {
	var b lossRecord
	if annotation == "" {
		return b, nil
	}
	if len(annotation) > MaxConversionBytes {
		return b, fmt.Errorf("it has %d bytes, at most %d are allowed", len(annotation), MaxConversionBytes)
	}
	if err := utiljson.Unmarshal([]byte(annotation), &b); err != nil {
		return lossRecord{}, err
	}
	if b.For != version {
		return lossRecord{}, nil
	}
	return b, nil
}
