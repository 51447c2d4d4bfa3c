package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// claim is a condition that a script checks for an object, such as "state=Ready".
type claim struct {
	text string
	path []string // path to the value, see fieldPath
	want string
	like *regexp.Regexp // used in place of want if not nil
	not  bool
}

// shortcuts has short names for paths that scripts use often.
var shortcuts = map[string]string{
	"state":     "status.state",
	"ready":     "status.conditions[type=Ready].status",
	"reason":    "status.conditions[type=Ready].reason",
	"message":   "status.conditions[type=Ready].message",
	"operation": "status.lastOperation.operation",
	"heard":     "status.conditions[type=SKRWebhook].status",
	"unheard":   "status.conditions[type=SKRWebhook].reason",
	"because":   "status.conditions[type=SKRWebhook].message",
}

// moduleField is a field of a module's entry in the status of a Kyma, as in sample.version.
var moduleField = regexp.MustCompile(
	`^([a-z][a-z-]*)\.(name|state|reason|message|version|channel|fqdn|ocmComponentName|template\..*|manifest\..*|resource\..*)$`)

// parseClaim parses PATH=VALUE, PATH!=VALUE or PATH~REGEXP. A path has a name for each level, as in spec.replicas.
// [KEY] selects a key of a map that contains dots. [FIELD=VALUE] selects the element of a list whose field has the
// value. MODULE.FIELD is short for status.modules[name=MODULE].FIELD. [shortcuts] has further short forms.
func parseClaim(s string) (claim, error) {
	depth, at := 0, -1
	for i, r := range s {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		}
		if depth == 0 && (r == '=' || r == '~' || r == '!') {
			at = i
			break
		}
	}
	if at < 0 {
		return claim{}, fmt.Errorf("%q is no claim: write PATH=VALUE, PATH!=VALUE or PATH~REGEXP", s)
	}
	c := claim{text: s}
	var err error
	if c.path, err = fieldPath(s[:at]); err != nil {
		return claim{}, fmt.Errorf("%q: %w", s, err)
	}
	switch rest := s[at:]; {
	case strings.HasPrefix(rest, "!="):
		c.not, c.want = true, rest[2:]
	case rest[0] == '=':
		c.want = rest[1:]
	case rest[0] == '~':
		if c.like, err = regexp.Compile(rest[1:]); err != nil {
			return claim{}, fmt.Errorf("%q: %w", s, err)
		}
	default:
		return claim{}, fmt.Errorf("%q is no claim: write PATH=VALUE, PATH!=VALUE or PATH~REGEXP", s)
	}
	return c, nil
}

// fieldPath splits a path into steps: a name, or [FIELD=VALUE].
func fieldPath(s string) ([]string, error) {
	if long, ok := shortcuts[s]; ok {
		s = long
	} else if m := moduleField.FindStringSubmatch(s); m != nil &&
		!slices.Contains([]string{"metadata", "spec", "status", "data"}, m[1]) {
		s = fmt.Sprintf("status.modules[name=%s].%s", m[1], m[2])
	}
	var steps []string
	for s != "" {
		if s[0] == '[' {
			inside, rest, closed := strings.Cut(s[1:], "]")
			if !closed {
				return nil, fmt.Errorf("a bracket is not closed")
			}
			if strings.Contains(inside, "=") {
				inside = "[" + inside + "]"
			}
			steps, s = append(steps, inside), strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(s, ".[")
		if end < 0 {
			end = len(s)
		}
		steps, s = append(steps, s[:end]), strings.TrimPrefix(s[end:], ".")
	}
	return steps, nil
}

// holds reports whether the claim is true for an object. holds also returns the present value.
func (c claim) holds(object map[string]any) (bool, string) {
	got := value(object, c.path)
	switch {
	case c.like != nil:
		return c.like.MatchString(got), got
	case c.not:
		return got != c.want, got
	default:
		return got == c.want, got
	}
}

// value returns the value at the end of a path as text. value returns "" if there is no value. The elements of a list
// are separated by spaces.
func value(at any, path []string) string {
	for _, step := range path {
		switch is := at.(type) {
		case map[string]any:
			at = is[step]
		case []any:
			field, want, _ := strings.Cut(strings.Trim(step, "[]"), "=")
			i := slices.IndexFunc(is, func(e any) bool {
				m, ok := e.(map[string]any)
				return ok && fmt.Sprint(m[field]) == want
			})
			if i < 0 {
				return ""
			}
			at = is[i]
		default:
			return ""
		}
	}
	switch is := at.(type) {
	case nil:
		return ""
	case []any:
		words := make([]string, len(is))
		for i, e := range is {
			words[i] = fmt.Sprint(e)
		}
		return strings.Join(words, " ")
	default:
		return fmt.Sprint(at)
	}
}

func TestClaim(t *testing.T) {
	object := map[string]any{
		"metadata": map[string]any{
			"labels":     map[string]any{"a.b/c": "x", "plain": "y"},
			"finalizers": []any{"one", "two"},
		},
		"data": map[string]any{"message": "hello"},
		"status": map[string]any{
			"state": "Ready",
			"conditions": []any{map[string]any{"type": "Other", "reason": "No"},
				map[string]any{"type": "Ready", "reason": "Yes"}},
			"modules": []any{map[string]any{"name": "sample", "state": "Error",
				"resource": map[string]any{"kind": "Sample"}}},
			"count": int64(3),
		},
	}
	cases := map[string]struct {
		reason string
		claim  string
		want   bool
	}{
		"Shortcut":       {"state is short for status.state", "state=Ready", true},
		"Path":           {"the long form", "status.state=Ready", true},
		"Unequal":        {"another value", "status.state=Error", false},
		"Not":            {"!= turns it around", "status.state!=Error", true},
		"NotEqual":       {"and is false if equal", "status.state!=Ready", false},
		"Regexp":         {"~ looks for a match", "status.state~^Re", true},
		"Condition":      {"an element of a list by a field", "status.conditions[type=Other].reason=No", true},
		"ReadyCondition": {"reason is that of the condition Ready", "reason=Yes", true},
		"Label":          {"a key with dots", "metadata.labels[a.b/c]=x", true},
		"PlainLabel":     {"a key without", "metadata.labels.plain=y", true},
		"List":           {"the elements of a list", "metadata.finalizers=one two", true},
		"Number":         {"a number as text", "status.count=3", true},
		"Module":         {"an entry of status.modules", "sample.state=Error", true},
		"ModuleResource": {"deeper in the entry", "sample.resource.kind=Sample", true},
		"OtherModule":    {"a module that is not there", "other.state=", true},
		"Data":           {"data.message is a key of a ConfigMap, not a module", "data.message=hello", true},
		"Missing":        {"what is not there is empty", "status.nothing.at.all=", true},
		"MissingElement": {"no such element", "status.conditions[type=None].reason=", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, err := parseClaim(tc.claim)
			if err != nil {
				t.Fatal(err)
			}
			if got, is := c.holds(object); got != tc.want {
				t.Errorf("%s: %s is %v, the value is %q", tc.reason, tc.claim, got, is)
			}
		})
	}
	for _, wrong := range []string{"state", "a[b=c", "a~(", "a!b"} {
		if _, err := parseClaim(wrong); err == nil {
			t.Errorf("%q was taken for a claim", wrong)
		}
	}
}
