package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MergePatch returns the JSON merge patch (RFC 7386) that changes one member of an object, for example its status, from
// before to after. MergePatch returns nil if before and after are equal. The two parameters must be values that
// encoding/json encodes as a JSON object or as null. A merge patch replaces a list as a whole, even if only the order
// of keys within its items differs.
//
// To save memory, MergePatch decodes only the JSON objects in which the values before and after differ. A status
// consists mostly of lists. Decoding both values completely took one sixth of all memory that a manager allocated.
func MergePatch(member string, before, after any) ([]byte, error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encoding the former value: %w", err)
	}
	is, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encoding the new value: %w", err)
	}
	patch, err := difference(was, is)
	if err != nil || len(patch) == 0 {
		return nil, err
	}
	return json.Marshal(map[string]any{member: patch})
}

// difference returns the members of the merge patch that changes the JSON object in the parameter before into the JSON
// object in the parameter after.
func difference(before, after json.RawMessage) (map[string]json.RawMessage, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	var was, is map[string]json.RawMessage
	if err := json.Unmarshal(before, &was); err != nil {
		return nil, fmt.Errorf("decoding the former value: %w", err)
	}
	if err := json.Unmarshal(after, &is); err != nil {
		return nil, fmt.Errorf("decoding the new value: %w", err)
	}
	patch := map[string]json.RawMessage{}
	for key, value := range is {
		old, exists := was[key]
		switch {
		case exists && bytes.Equal(old, value):
		case exists && isObject(old) && isObject(value):
			inner, err := difference(old, value)
			if err != nil {
				return nil, err
			}
			if len(inner) == 0 {
				continue
			}
			if patch[key], err = json.Marshal(inner); err != nil {
				return nil, fmt.Errorf("encoding the change of %s: %w", key, err)
			}
		default:
			patch[key] = value
		}
	}
	for key := range was {
		if _, exists := is[key]; !exists {
			patch[key] = json.RawMessage("null")
		}
	}
	return patch, nil
}

// isObject reports whether a value that encoding/json has written is a JSON object.
func isObject(value json.RawMessage) bool { return len(value) > 0 && value[0] == '{' }
