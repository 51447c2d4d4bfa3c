package apply

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// fieldPath leads from the root of an object to one of its fields.
type fieldPath []step

// step is a member of a map, or an item of a list.
type step struct {
	key     string            // of a member
	quoted  bool              // written in brackets: it may be an item of a list of plain values as well
	members map[string]string // of the item, as text; nil for a member
}

// splitOutside yields the parts of text between separators that are not in brackets.
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

// parsePath reads one path, "spec.template.spec.containers[name=x].image". problem says what is wrong with it.
func parsePath(text string) (path fieldPath, problem string) {
	for part := range splitOutsideBrackets(text, '.') {
		key, rest, _ := strings.Cut(part, "[")
		if key == "" || strings.ContainsAny(key, "] \t\n") {
			return nil, "a key is missing or holds spaces or brackets"
		}
		path = append(path, step{key: key})
		for len(rest) > 0 {
			inner, after, closed := strings.Cut(rest, "]")
			switch {
			case !closed || inner == "" || strings.Contains(inner, "["):
				return nil, "brackets must hold something and be closed"
			case after != "" && after[0] != '[':
				return nil, "after a bracket comes a dot, another bracket or the end"
			}
			one, wrong := parseBracket(inner)
			if wrong != "" {
				return nil, wrong
			}
			path, rest = append(path, one), strings.TrimPrefix(after, "[")
			if after != "" && rest == "" {
				return nil, "brackets must hold something and be closed"
			}
		}
		if len(path) > maxSteps {
			return nil, fmt.Sprintf("it goes deeper than %d fields", maxSteps)
		}
	}
	return path, ""
}

func parseBracket(inner string) (step, string) {
	if !strings.Contains(inner, "=") {
		return step{key: inner, quoted: true}, ""
	}
	s := step{members: map[string]string{}}
	for pair := range strings.SplitSeq(inner, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return step{}, "the keys of a list item are written as [key=value] or [key=value,key=value]"
		}
		s.members[key] = value
	}
	return s, ""
}

// fits reports whether an item of a list is the one that the step means.
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

// covers reports whether a path is p or below it.
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

// without takes the field out of a tree and returns what is left of it; the tree itself may be changed.
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

// childOf returns the name under which own has what the step means, and whether it has. at is the same place in a tree that knows
// more than the keys of list items; it may be nil.
func (s step) ownedChild(own owned, at any) (string, bool) {
	if _, ok := own["f:"+s.key]; ok && s.members == nil {
		return "f:" + s.key, true
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if keys, ok := itemKeys(name); ok && s.members != nil && s.matchesItem(keys) {
			return name, true
		}
	}
	items, _ := at.([]any)
	for _, item := range items {
		if s.matchesItem(item) {
			return matchOwnedItem(item, own, false)
		}
	}
	return "", false
}

// disown takes the field out of what is owned. A node that loses its last child does not become a leaf by that: a leaf
// is owned as a whole.
func (p fieldPath) removeFromOwned(own owned, at any) {
	name, ok := p[0].ownedChild(own, at)
	switch {
	case !ok:
	case len(p) == 1:
		delete(own, name)
		own["."] = owned{}
	default:
		p[1:].removeFromOwned(own[name], p[0].childIn(at))
	}
}

// leaves yields what is owned as a whole, each with its path. A node that has lost all it had yields nothing.
func (own owned) leaves(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, child := range own {
			at := path + "\x00" + name
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

// in returns the child of a tree that the step means, nil if it has none.
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

// carry puts into a wanted tree, at the field, what the live tree has there as far as it is ours, and takes the rest out. To leave out
// a field that is ours would delete it: an API server takes that for our wish. Trees may be changed; the new one is returned.
func (p fieldPath) keepOwnedLive(wanted, live any, own owned) any {
	s := p[0]
	name, ours := s.ownedChild(own, live)
	if !ours {
		return p.removeFrom(wanted)
	}
	below := s.childIn(wanted)
	if below == nil && s.members != nil && len(p) > 1 {
		return wanted // the item has left the list, and what is ignored in it goes with it
	}
	var value any
	switch here, child := s.childIn(live), own[name]; {
	case len(p) == 1:
		value = addItemKeys(ownedPart(here, child), name)
	case len(child) == 0: // owned as a whole: every part of it is ours
		value = p[1:].copyLive(below, here)
	default:
		value = p[1:].keepOwnedLive(below, here, child)
	}
	return s.setChild(wanted, live, value)
}

// transplant puts what live has at the field into wanted, or takes it out if live has nothing there.
func (p fieldPath) copyLive(wanted, live any) any {
	s := p[0]
	here, below := s.childIn(live), s.childIn(wanted)
	switch {
	case here == nil:
		return p.removeFrom(wanted)
	case len(p) == 1:
		return s.setChild(wanted, live, here)
	case below == nil && s.members != nil:
		return wanted
	}
	return s.setChild(wanted, live, p[1:].copyLive(below, here))
}

// put makes value the child of a tree that the step means; nil removes it. Where there is no tree yet, one like live is made.
func (s step) setChild(tree, live, value any) any {
	if value == nil {
		return fieldPath{s}.removeFrom(tree)
	}
	if tree == nil {
		switch live.(type) {
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

// withKeys adds the keys by which an item of a list is known; they cannot be left out.
func addItemKeys(item any, name string) any {
	if m, ok := item.(map[string]any); ok {
		keys, _ := itemKeys(name)
		maps.Copy(m, keys)
	}
	return item
}

// part returns what of a live tree is owned.
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
