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

// AnnotationConversion holds, in an object that was converted, what its version has no field for: a JSON document made and
// read by the conversion only.
const AnnotationConversion = "operator.kyma-project.io/conversion"

// MaxConversionBytes bounds AnnotationConversion. The API server takes 256 KiB for all annotations of an object.
const MaxConversionBytes = 64 << 10

// baggage is what AnnotationConversion holds.
type baggage struct {
	// For is the API version that the losses are of.
	For string `json:"for"`
	// Losses are what the version of the object cannot hold, in the order of their paths.
	Losses []loss `json:"losses,omitempty"`
	// TooLarge says that the losses are not here, because there was no room for them. Such an object can be read only.
	TooLarge bool `json:"tooLarge,omitempty"`
}

// loss is one value that the other version cannot hold.
type loss struct {
	// Path leads to the value. A step is the name of a field, or an object with one key and value: the element of a list
	// that has them.
	Path []any `json:"path"`
	// Was is what is there after converting there and back. Empty: nothing.
	Was json.RawMessage `json:"was,omitempty"`
	// Is is what was there really. Empty: nothing.
	Is json.RawMessage `json:"is,omitempty"`
}

// largest returns the path of the largest loss, for people.
func largest(all []loss) string {
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

// absent stands for a value that is not there, which is not the same as null.
type absent struct{}

// losses returns what has to be said to make is out of was. Both are JSON values.
func losses(was, is any) ([]loss, error) {
	var found []loss
	err := compare(nil, was, is, &found)
	return found, err
}

func compare(path []any, was, is any, found *[]loss) error {
	if reflect.DeepEqual(was, is) {
		return nil
	}
	wasFields, wasMap := was.(map[string]any)
	isFields, isMap := is.(map[string]any)
	if wasMap && isMap {
		names := maps.Clone(wasFields)
		maps.Copy(names, isFields)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if err := compare(append(slices.Clip(path), name), at(wasFields, name), at(isFields, name), found); err != nil {
				return err
			}
		}
		return nil
	}
	wasList, wasSlice := was.([]any)
	isList, isSlice := is.([]any)
	if wasSlice && isSlice {
		if key := sameKeys(wasList, isList); key != "" {
			for i, e := range isList {
				step := map[string]any{key: e.(map[string]any)[key]}
				if err := compare(append(slices.Clip(path), step), wasList[i], e, found); err != nil {
					return err
				}
			}
			return nil
		}
	}
	l := loss{Path: path}
	var err error
	if l.Was, err = encode(was); err != nil {
		return err
	}
	if l.Is, err = encode(is); err != nil {
		return err
	}
	*found = append(*found, l)
	return nil
}

func at(fields map[string]any, name string) any {
	if v, ok := fields[name]; ok {
		return v
	}
	return absent{}
}

func encode(v any) (json.RawMessage, error) {
	if v == (absent{}) {
		return nil, nil
	}
	return json.Marshal(v)
}

// sameKeys returns the field that names the elements of both lists, if they have the same names in the same order, else "".
func sameKeys(a, b []any) string {
	for _, key := range []string{"name", "type"} {
		names := namesOf(a, key)
		if names != nil && slices.Equal(names, namesOf(b, key)) {
			return key
		}
	}
	return ""
}

// namesOf returns the values of a field of all elements, or nil if they do not name the elements: one has none, or two the same.
func namesOf(list []any, key string) []string {
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

// restore changes tree where it is still what it was, and leaves alone what was edited since.
func restore(tree map[string]any, all []loss) error {
	for _, l := range all {
		if err := restoreOne(tree, l); err != nil {
			return err
		}
	}
	return nil
}

func restoreOne(tree map[string]any, l loss) error {
	if len(l.Path) < 2 {
		return fmt.Errorf("a path of %d steps", len(l.Path))
	}
	var here any = tree
	for _, step := range l.Path[:len(l.Path)-1] {
		if here = follow(here, step); here == (absent{}) {
			return nil // its surroundings are gone
		}
	}
	was, err := decode(l.Was)
	if err != nil {
		return err
	}
	is, err := decode(l.Is)
	if err != nil {
		return err
	}
	name, ok := l.Path[len(l.Path)-1].(string)
	fields, inMap := here.(map[string]any)
	if !ok || !inMap || !reflect.DeepEqual(at(fields, name), was) {
		return nil // something else was put there
	}
	if is == (absent{}) {
		delete(fields, name)
	} else {
		fields[name] = is
	}
	return nil
}

// follow goes one step, to absent{} if there is nothing.
func follow(here, step any) any {
	switch step := step.(type) {
	case string:
		fields, _ := here.(map[string]any)
		return at(fields, step)
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

func decode(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return absent{}, nil
	}
	var v any
	if err := utiljson.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return v, nil
}

// pack returns the annotation for losses of an API version, "" for none, and whether they fit. If not, the annotation says
// so.
func pack(version string, all []loss) (annotation string, fits bool, err error) {
	if len(all) == 0 {
		return "", true, nil
	}
	data, err := json.Marshal(baggage{For: version, Losses: all})
	if err == nil && len(data) > MaxConversionBytes {
		data, err = json.Marshal(baggage{For: version, TooLarge: true})
		return string(data), false, err
	}
	return string(data), true, err
}

// unpack reads an annotation that was made for an API version. What was made for another one says nothing.
func unpack(version, annotation string) (baggage, error) {
	var b baggage
	if annotation == "" {
		return b, nil
	}
	if len(annotation) > MaxConversionBytes {
		return b, fmt.Errorf("it has %d bytes, at most %d are allowed", len(annotation), MaxConversionBytes)
	}
	if err := utiljson.Unmarshal([]byte(annotation), &b); err != nil {
		return baggage{}, err
	}
	if b.For != version {
		return baggage{}, nil
	}
	return b, nil
}
