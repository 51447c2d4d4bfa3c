package helm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	syntax "text/template/parse"

	"github.com/Masterminds/sprig/v3"
)

// functions replaces three kinds of template functions: those that have another result each time, those that read other
// sources than the chart, and those that may need unlimited memory. functions records which of them a template has
// called. Each rendering of a chart uses its own value of the type functions. The value needs no lock, because a
// rendering runs in one goroutine.
type functions struct {
	ctx     context.Context //nolint:containedctx // one rendering, and template functions take no context
	draw    draw            // which results functions return that differ for each call
	drawn   []string        // names of the called functions whose result differs for each call
	calls   int
	refusal string   // why the last function was refused
	lookups []string // what lookup was called for, in order
}

// maxItems is the maximum number of items that one call of a counting function such as until returns. maxRepeat is the
// maximum number of bytes that one call of repeat returns.
const (
	maxItems  = 100_000
	maxRepeat = 1 << 20
)

// templateFunctions returns, by name, the template functions of this package that replace the functions of Helm and
// Sprig.
func (f *functions) templateFunctions() template.FuncMap {
	original := sprig.TxtFuncMap()
	table := template.FuncMap{
		checkContextName: f.checkContext,
		"lookup":         f.recordEmptyLookup,
		"getHostByName": func(string) (string, error) {
			return "", f.recordRefusal(
				"getHostByName is refused, because rendering does not use the network: pass the address as a value")
		},
		"keys": func(dicts ...map[string]any) []string {
			var keys []string
			for _, dict := range dicts {
				keys = append(keys, slices.Sorted(maps.Keys(dict))...)
			}
			return keys
		},
		"values": func(dict map[string]any) []any {
			values := []any{}
			for _, key := range slices.Sorted(maps.Keys(dict)) {
				values = append(values, dict[key])
			}
			return values
		},
		"repeat": func(count int, text string) (string, error) {
			if count < 0 || count > maxRepeat || count*len(text) > maxRepeat {
				return "",
					f.recordRefusal(fmt.Sprintf("repeat is refused, because its result would have more than %d bytes",
						maxRepeat))
			}
			return original["repeat"].(func(int, string) string)(count, text), nil
		},
		"indent": func(spaces int, text string) (string, error) {
			if spaces < 0 || spaces > 1000 {
				return "", f.recordRefusal("indent by more than 1000 spaces is refused")
			}
			return original["indent"].(func(int, string) string)(spaces, text), nil
		},
		"nindent": func(spaces int, text string) (string, error) {
			if spaces < 0 || spaces > 1000 {
				return "", f.recordRefusal("nindent by more than 1000 spaces is refused")
			}
			return original["nindent"].(func(int, string) string)(spaces, text), nil
		},
		"until": func(count int) ([]int, error) {
			if count < 0 {
				return f.untilStep(0, count, -1)
			}
			return f.untilStep(0, count, 1)
		},
		"untilStep": f.untilStep,
		"seq": func(params ...int) (string, error) {
			for _, p := range params {
				if p > maxItems || p < -maxItems {
					return "", f.recordRefusal(fmt.Sprintf("seq is refused beyond %d", maxItems))
				}
			}
			return original["seq"].(func(...int) string)(params...), nil
		},
	}
	maps.Copy(table, f.fixedRandomFunctions(original))
	return table
}

// untilStep implements the template function untilStep. untilStep returns the numbers start, start+step, start+2·step
// and so on, up to and without stop. If the parameter step is negative, the numbers decrease.
func (f *functions) untilStep(start, stop, step int) ([]int, error) {
	out := []int{}
	if step == 0 {
		return out, nil
	}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if out = append(out, i); len(out) > maxItems {
			return nil, f.recordRefusal(fmt.Sprintf("counting beyond %d is refused", maxItems))
		}
	}
	return out, nil
}

// recordEmptyLookup implements the template function lookup: it returns an empty map, as "helm template" does, and
// records the call.
func (f *functions) recordEmptyLookup(apiVersion, kind, namespace, name string) map[string]any {
	call := fmt.Sprintf("lookup of %s %s %s/%s found nothing: one rendering is for all clusters",
		apiVersion, kind, namespace, name)
	if !slices.Contains(f.lookups, call) && len(f.lookups) < 100 {
		f.lookups = append(f.lookups, call)
	}
	return map[string]any{}
}

func (f *functions) recordRefusal(why string) error {
	f.refusal = why
	return errors.New(why)
}

// checkContextName is the name under which templates call checkContext. interruptible adds calls of checkContext to a
// template.
const checkContextName = "interruptible__"

// checkContext is a function that templates call. If the context of the rendering was cancelled or has timed out,
// checkContext ends the rendering with an error.
func (f *functions) checkContext() (string, error) {
	if f.calls++; f.calls%256 == 0 && f.ctx.Err() != nil {
		return "", f.ctx.Err()
	}
	return "", nil
}

// interruptible returns the text of a template with added calls of checkContext, so that the template cannot run
// forever. interruptible adds calls of checkContext to the body of each loop and to the start of each template that the
// text defines. With the added calls of checkContext, the output of the template and its line numbers are the same as
// before. If a text cannot be parsed, it is returned unchanged.
func interruptible(text string) string {
	defined := map[string]*syntax.Tree{}
	parsed := syntax.New("template")
	parsed.Mode = syntax.SkipFuncCheck
	if _, err := parsed.Parse(text, "", "", defined); err != nil {
		return text
	}
	var places []int
	for _, t := range defined {
		if t.Root != nil {
			places = appendRangeBodyPositions(t.Root, append(places, int(t.Root.Pos)))
		}
	}
	slices.Sort(places)
	for _, at := range slices.Backward(slices.Compact(places)) {
		call := "{{" + checkContextName + "}}"
		if strings.HasPrefix(text[at:], "{{-") {
			call = "{{- " + checkContextName + "}}" // the added call must trim the same space
		}
		text = text[:at] + call + text[at:]
	}
	return text
}

// appendRangeBodyPositions appends the positions at which interruptible has to add calls to the loops of a template:
// the first byte of the body of each range action.
func appendRangeBodyPositions(list *syntax.ListNode, places []int) []int {
	if list == nil {
		return places
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *syntax.RangeNode:
			places = append(places, int(node.List.Pos))
			places = appendRangeBodyPositions(node.ElseList, appendRangeBodyPositions(node.List, places))
		case *syntax.IfNode:
			places = appendRangeBodyPositions(node.ElseList, appendRangeBodyPositions(node.List, places))
		case *syntax.WithNode:
			places = appendRangeBodyPositions(node.ElseList, appendRangeBodyPositions(node.List, places))
		}
	}
	return places
}
