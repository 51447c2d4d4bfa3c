package apply

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// fieldPath is a path from the root of an object to one of its fields.
type fieldPath []step

// step is one element of a fieldPath. step selects a member of a map or an item of a list.
type step struct {
	key     string            // key of the member
	quoted  bool              // key is in brackets, so the step may also select an item of a list of plain values
	members map[string]string // keys of the item and their values as text; nil for a member
}

// splitOutsideBrackets splits a text at each separator and yields the parts. Separators between [ and ] do not split
// the text.
func splitOutsideBrackets(text string, separator byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, inside := 0, false
		for i := range len(text) {
			switch {
			case text[i] == '[':
				inside = true
			case text[i] == ']':
				inside = false
			case text[i] == separator && !inside:
				if !yield(text[start:i]) {
					return
				}
				start = i + 1
			}
		}
		yield(text[start:])
	}
}

// parsePath parses one path, for example "spec.template.spec.containers[name=x].image". problem states why the path is
// invalid.
func parsePath(text string) (path fieldPath, problem string) {
	for part := range splitOutsideBrackets(text, '.') {
		key, rest, _ := strings.Cut(part, "[")
		if key == "" || strings.ContainsAny(key, "] \t\n") {
			return nil, "a key is empty or contains spaces or brackets"
		}
		path = append(path, step{key: key})
		for len(rest) > 0 {
			inner, after, closed := strings.Cut(rest, "]")
			switch {
			case !closed || inner == "" || strings.Contains(inner, "["):
				return nil, "brackets must not be empty and must be closed"
			case after != "" && after[0] != '[':
				return nil, "a bracket must be followed by a dot, another bracket or the end"
			}
			one, wrong := parseBracket(inner)
			if wrong != "" {
				return nil, wrong
			}
			path, rest = append(path, one), strings.TrimPrefix(after, "[")
			if after != "" && rest == "" {
				return nil, "brackets must not be empty and must be closed"
			}
		}
		if len(path) > maxSteps {
			return nil, fmt.Sprintf("it has more than %d steps", maxSteps)
		}
	}
	return path, ""
}

func parseBracket(inner string) (s step, problem string) {
	if !strings.Contains(inner, "=") {
		return step{key: inner, quoted: true}, ""
	}
	s = step{members: map[string]string{}}
	for pair := range strings.SplitSeq(inner, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return step{}, "the keys of a list item must be written as [key=value] or [key=value,key=value]"
		}
		s.members[key] = value
	}
	return s, ""
}

// matchesItem reports whether the step of a field path selects the given item of a list.
func (s step) matchesItem(item any) bool {
	m, isMap := item.(map[string]any)
	if s.members == nil {
		return s.quoted && !isMap && fmt.Sprint(item) == s.key
	}
	for key, value := range s.members {
		if have, ok := m[key]; !ok || fmt.Sprint(have) != value {
			return false
		}
	}
	return true
}

// covers reports whether two field paths are equal, or the field path p is the path of a parent of the other field. For
// example, the path "spec" covers the paths "spec" and "spec.replicas".
func (p fieldPath) covers(other fieldPath) bool {
	if len(other) < len(p) {
		return false
	}
	for i, s := range p {
		o := other[i]
		if s.members == nil && (o.members != nil || s.key != o.key) {
			return false
		}
		for key, value := range s.members {
			if o.members[key] != value {
				return false
			}
		}
	}
	return true
}

// removeFrom removes the field from a tree and returns the resulting tree. removeFrom may change the given tree.
func (p fieldPath) removeFrom(tree any) any {
	switch t := tree.(type) {
	case map[string]any:
		child, ok := t[p[0].key]
		switch {
		case p[0].members != nil || !ok:
		case len(p) == 1:
			delete(t, p[0].key)
		default:
			t[p[0].key] = p[1:].removeFrom(child)
		}
	case []any:
		if len(p) == 1 {
			return slices.DeleteFunc(t, p[0].matchesItem)
		}
		for i := range t {
			if p[0].matchesItem(t[i]) {
				t[i] = p[1:].removeFrom(t[i])
			}
		}
	}
	return tree
}

// ownedChild finds the child that the step of a field path selects in an ownership tree. ownedChild returns the key of
// the child in the tree, and whether the tree contains the child. The parameter "object" is the part of the object that
// the ownership tree describes. ownedChild needs this part to find a list item that the step selects by members that
// are not keys of the list. The parameter "object" may be nil.
func (s step) ownedChild(own owned, object any) (pathElement string, found bool) {
	if _, ok := own["f:"+s.key]; ok && s.members == nil {
		return "f:" + s.key, true
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if keys, ok := itemKeys(name); ok && s.members != nil && s.matchesItem(keys) {
			return name, true
		}
	}
	items, _ := object.([]any)
	for _, item := range items {
		if s.matchesItem(item) {
			return matchOwnedItem(item, own, false)
		}
	}
	return "", false
}

// removeFromOwned removes the field from the tree of owned fields. If removeFromOwned removes the last child of a node
// in the tree, it adds the child "." to the node. Without this child, the node would be a leaf, and a leaf means that
// the manager owns the field with all its content.
func (p fieldPath) removeFromOwned(own owned, object any) {
	name, ok := p[0].ownedChild(own, object)
	switch {
	case !ok:
	case len(p) == 1:
		delete(own, name)
		own["."] = owned{}
	default:
		p[1:].removeFromOwned(own[name], p[0].childIn(object))
	}
}

// leaves yields the path of each node of the ownership tree that has no children. leaves skips a node without children
// if it had children before ignored fields were removed from the tree.
func (own owned) leaves(prefix string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, child := range own {
			at := prefix + "\x00" + name
			if name == "." {
				continue
			}
			if len(child) == 0 {
				if !yield(at) {
					return
				}
				continue
			}
			for leaf := range child.leaves(at) {
				if !yield(leaf) {
					return
				}
			}
		}
	}
}

// childIn returns the child of a tree that the step selects. childIn returns nil if there is no such child.
func (s step) childIn(at any) any {
	switch t := at.(type) {
	case map[string]any:
		if s.members == nil {
			return t[s.key]
		}
	case []any:
		if i := slices.IndexFunc(t, s.matchesItem); i >= 0 {
			return t[i]
		}
	}
	return nil
}

// copyOwnedLiveOrRemove prepares the desired object (parameter wanted) for a PATCH that must not change the field at
// path p. In the desired object, parts of the field that our field manager owns get their values from the live object,
// and all other parts are removed. If a part that our field manager owns were missing in the PATCH, the API server
// would delete this part. copyOwnedLiveOrRemove returns the changed desired object, and may modify the parameters
// wanted and live.
func (p fieldPath) copyOwnedLiveOrRemove(wanted, live any, own owned) any {
	s := p[0]
	name, ours := s.ownedChild(own, live)
	if !ours {
		return p.removeFrom(wanted)
	}
	below := s.childIn(wanted)
	if below == nil && s.members != nil && len(p) > 1 {
		return wanted // the list item that contains the ignored field was removed
	}
	var value any
	switch here, child := s.childIn(live), own[name]; {
	case len(p) == 1:
		value = addItemKeys(ownedPart(here, child), name)
	case len(child) == 0: // owned as a whole, with all its parts
		value = p[1:].copyLiveOrRemove(below, here)
	default:
		value = p[1:].copyOwnedLiveOrRemove(below, here, child)
	}
	return s.setOrRemoveChild(wanted, live, value)
}

// copyLiveOrRemove copies the value of a field from the live object to the desired object. If the field does not exist
// in the live object, copyLiveOrRemove removes it from the desired object.
func (p fieldPath) copyLiveOrRemove(wanted, live any) any {
	s := p[0]
	here, below := s.childIn(live), s.childIn(wanted)
	switch {
	case here == nil:
		return p.removeFrom(wanted)
	case len(p) == 1:
		return s.setOrRemoveChild(wanted, live, here)
	case below == nil && s.members != nil:
		return wanted
	}
	return s.setOrRemoveChild(wanted, live, p[1:].copyLiveOrRemove(below, here))
}

// setOrRemoveChild gives a new value to the child that the step selects in a tree. If the value is nil,
// setOrRemoveChild removes the child. If the parameter tree is nil, setOrRemoveChild creates a map or a list, of the
// same type as the parameter like.
func (s step) setOrRemoveChild(tree, like, value any) any {
	if value == nil {
		return fieldPath{s}.removeFrom(tree)
	}
	if tree == nil {
		switch like.(type) {
		case map[string]any:
			tree = map[string]any{}
		case []any:
			tree = []any{}
		}
	}
	switch t := tree.(type) {
	case map[string]any:
		if s.members == nil {
			t[s.key] = value
		}
	case []any:
		if i := slices.IndexFunc(t, s.matchesItem); i >= 0 {
			t[i] = value
			return t
		}
		return append(t, value)
	}
	return tree
}

// addItemKeys adds to a list item the key fields that its path element in FieldsV1 (k:{…}) contains. A list item
// without its key fields would be invalid.
func addItemKeys(item any, pathElement string) any {
	if m, ok := item.(map[string]any); ok {
		keys, _ := itemKeys(pathElement)
		maps.Copy(m, keys)
	}
	return item
}

// ownedPart returns the part of a live tree that our field manager owns.
func ownedPart(live any, own owned) any {
	if len(own) == 0 {
		return live
	}
	switch l := live.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, child := range own {
			if key, ok := strings.CutPrefix(name, "f:"); ok && l[key] != nil {
				out[key] = ownedPart(l[key], child)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, item := range l {
			name, ok := matchOwnedItem(item, own, true)
			if !ok {
				continue
			}
			out = append(out, addItemKeys(ownedPart(item, own[name]), name))
		}
		return out
	}
	return live
}
