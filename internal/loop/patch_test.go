package loop

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

func TestMergePatch(t *testing.T) {
	cases := map[string]struct {
		reason        string
		before, after string
		want          string // "" for nothing
	}{
		"Same":    {"no difference", `{"a":1}`, `{"a":1}`, ``},
		"Order":   {"the order of keys is no difference", `{"o":{"a":1,"b":2}}`, `{"o":{"b":2,"a":1}}`, ``},
		"Nothing": {"null becomes an object", `null`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"Empty":   {"an empty object gets all members", `{}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"Value":   {"only what differs is sent", `{"a":1,"b":2}`, `{"a":1,"b":3}`, `{"b":3}`},
		"Nested":  {"the same in a nested object", `{"s":{"a":1,"b":2}}`, `{"s":{"a":1,"b":3}}`, `{"s":{"b":3}}`},
		"Removed": {"null removes a member", `{"s":{"a":1,"b":2}}`, `{"s":{"b":2}}`, `{"s":{"a":null}}`},
		"List": {"a list is replaced as a whole", `{"l":[{"a":1},{"a":2}]}`, `{"l":[{"a":1},{"a":3}]}`,
			`{"l":[{"a":1},{"a":3}]}`},
		"OtherKind": {"an object replaces a list", `{"x":[1]}`, `{"x":{"a":1}}`, `{"x":{"a":1}}`},
		"NoObject":  {"a text replaces an object", `{"x":{"a":1}}`, `{"x":"a"}`, `{"x":"a"}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := MergePatch("status", json.RawMessage(c.before), json.RawMessage(c.after))
			if c.want != "" {
				c.want = `{"status":` + c.want + `}`
			}
			if err != nil || string(got) != c.want {
				t.Errorf("%s: got %s, %v", c.reason, got, err)
			}
		})
	}
	for _, bad := range []any{[]int{1}, func() {}} {
		if got, err := MergePatch("status", bad, map[string]int{"a": 1}); err == nil {
			t.Errorf("from %T: got %s", bad, got)
		}
		if got, err := MergePatch("status", map[string]int{"a": 1}, bad); err == nil {
			t.Errorf("to %T: got %s", bad, got)
		}
	}
}

// FuzzMergePatch checks that a patch of MergePatch has the same effect as the patch of a library.
func FuzzMergePatch(f *testing.F) {
	f.Add(`{"a":{"b":1,"c":[1,{"d":2}]},"e":"f"}`, `{"a":{"b":2,"c":[1,{"d":3}]},"g":null}`)
	f.Add(`{"a":[1]}`, `{"a":{"b":{"c":1}}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		var was, is map[string]any
		if json.Unmarshal([]byte(before), &was) != nil || json.Unmarshal([]byte(after), &is) != nil || was == nil ||
			is == nil {
			return
		}
		patch, err := MergePatch("status", was, is)
		if err != nil {
			t.Fatal(err)
		}
		beforeJSON, _ := json.Marshal(map[string]any{"status": was})
		afterJSON, _ := json.Marshal(map[string]any{"status": is})
		theirs, err := jsonpatch.CreateMergePatch(beforeJSON, afterJSON)
		if err != nil {
			return
		}
		if patch == nil {
			patch = []byte("{}")
		}
		apply := func(patch []byte) any {
			out, err := jsonpatch.MergePatch(beforeJSON, patch)
			if err != nil {
				t.Fatalf("%s: %v", patch, err)
			}
			var v any
			if err := json.Unmarshal(out, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
		if got, want := apply(patch), apply(theirs); !Equal(&got, &want) {
			t.Errorf("%s by %s is %v, by %s %v", beforeJSON, patch, got, theirs, want)
		}
	})
}
