package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MergePatch returns the JSON merge patch (RFC 7386) that makes the named member of an object another one, for example its status; nil if there is
// nothing to change. Both values have to be objects, or nothing, as encoding/json writes them. Lists are replaced as a whole, also where only the order of
// keys in them differs. Only objects that differ are decoded: a status is mostly lists, and to decode all of two of them was a sixth of all
// that a manager threw away.
func MergePatch(member string, before, after any) ([]byte, error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encoding what is to be changed: %w", err)
	}
	is, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encoding what it is to be: %w", err)
	}
	patch, err := difference(was, is)
	if err != nil || len(patch) == 0 {
		return nil, err
	}
	return json.Marshal(map[string]any{member: patch})
}

// difference returns the members of the merge patch that makes one object another.
func difference(before, after json.RawMessage) (map[string]json.RawMessage, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	var was, is map[string]json.RawMessage
	if err := json.Unmarshal(before, &was); err != nil {
		return nil, fmt.Errorf("comparing what is to be changed: %w", err)
	}
	if err := json.Unmarshal(after, &is); err != nil {
		return nil, fmt.Errorf("comparing what it is to be: %w", err)
	}
	patch := map[string]json.RawMessage{}
	for key, value := range is {
		old, there := was[key]
		switch {
		case there && bytes.Equal(old, value):
		case there && isObject(old) && isObject(value):
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
		if _, there := is[key]; !there {
			patch[key] = json.RawMessage("null")
		}
	}
	return patch, nil
}

// isObject tells whether a value as encoding/json writes it is an object.
func isObject(value json.RawMessage) bool { return len(value) > 0 && value[0] == '{' }
