package fleetlist

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	cases := map[string]struct {
		reason string
		list   string
		items  []string
		next   string
		fails  bool
	}{
		"Custom": {
			reason: "custom resources come with sorted keys",
			list:   `{"apiVersion":"v1","items":[{"a":1},{"b":"]}\""}],"kind":"L","metadata":{"continue":"c","resourceVersion":"7"}}`,
			items:  []string{`{"a":1}`, `{"b":"]}\""}`},
			next:   "c",
		},
		"Typed": {
			reason: "other lists have the metadata first",
			list:   `{"kind":"L","metadata":{"resourceVersion":"7"},"items":[]}`,
		},
		"Null": {reason: "an empty list may be null", list: `{"items":null,"metadata":{"resourceVersion":"7"}}`},
		"Spaces": {
			reason: "white space does not count",
			list:   " {\n \"items\" : [ { } , [1, 2] , null , 3 ] , \"metadata\" : { \"resourceVersion\" : \"7\" } }\n",
			items:  []string{`{ }`, `[1, 2]`, `null`, `3`},
		},
		"Backslash": {
			reason: "a backslash before a quote may have one before itself",
			list:   `{"items":["a\\","b\\\"c"],"metadata":{"resourceVersion":"7"}}`,
			items:  []string{`"a\\"`, `"b\\\"c"`},
		},
		"HTML":      {reason: "a proxy answers with a page", list: `<html>`, fails: true},
		"Empty":     {reason: "nothing is no list", list: ``, fails: true},
		"Cut":       {reason: "an answer that was cut off is no list", list: `{"items":[{"a":1},{"a"`, fails: true},
		"CutString": {reason: "within a string, too", list: `{"items":["abc`, fails: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := splitList([]byte(c.list))
			if (err != nil) != c.fails {
				t.Fatalf("%s: %v", c.reason, err)
			}
			var items []string
			for _, i := range s.items {
				items = append(items, string(i))
			}
			if diff := cmp.Diff(c.items, items); diff != "" && !c.fails {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if !c.fails && (s.next != c.next || s.version != "7") {
				t.Errorf("%s: next %q, version %q", c.reason, s.next, s.version)
			}
		})
	}
}

func TestLean(t *testing.T) {
	cases := map[string]struct{ reason, object, want string }{
		"Object": {"the usual case", `{"metadata":{"managedFields":[{"a":"]"}],"name":"x"}}`,
			`{"metadata":{"managedFields":[],"name":"x"}}`},
		"Text": {"what a string says is no key", `{"metadata":{"annotations":{"a":"\"managedFields\":[1]"}}}`,
			`{"metadata":{"annotations":{"a":"\"managedFields\":[1]"}}}`},
		"None": {"nothing to leave out", `{"a":1}`, `{"a":1}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := string(stripManagedFieldsInPlace([]byte(c.object))); got != c.want {
				t.Errorf("%s: got %s", c.reason, got)
			}
		})
	}
}

// FuzzSplit checks that splitList finds the same objects in a list as encoding/json, and that any other text is an
// error.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{`{"items":[{"a":"b"},[],1,null,"\\"],"metadata":{"continue":"x"}}`,
		`{"a":{"items":[1]},"items":null}`, `{"items":[{"managedFields":[{}]}]}`, `{"":0,"items":[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want struct {
			Items    []json.RawMessage `json:"items"`
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
		}
		valid := json.Unmarshal(data, &want) == nil
		s, err := splitList(append([]byte(nil), data...))
		if !valid || strings.Count(string(data), `"items"`) > 1 || strings.Count(string(data), `"metadata"`) > 1 ||
			strings.Contains(string(data), `\u`) ||
			strings.Contains(strings.ToLower(string(data)), `"continue"`) &&
				strings.Count(strings.ToLower(string(data)), `"continue"`) > 1 ||
			string(data) != strings.ToLower(string(data)) {
			return // no API server sends a key twice, or in other letter case
		}
		if err != nil && strings.HasPrefix(strings.TrimSpace(string(data)), "{") {
			t.Fatalf("valid and refused: %q", data)
		}
		if err != nil {
			return
		}
		if len(s.items) != len(want.Items) || s.next != want.Metadata.Continue {
			t.Fatalf("%q: %d items, next %q, want %d, %q", data, len(s.items), s.next,
				len(want.Items), want.Metadata.Continue)
		}
		for i := range s.items {
			if string(s.items[i]) != string(want.Items[i]) {
				t.Fatalf("item %d is %q, want %q", i, s.items[i], want.Items[i])
			}
			if got := stripManagedFieldsInPlace(s.items[i]); !json.Valid(got) {
				t.Fatalf("%q is not valid any more: %q", want.Items[i], got)
			}
		}
	})
}
