package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// object returns a minimal object with the given YAML below it.
func object(name, more string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n" + more
}

func names(objects []*unstructured.Unstructured) string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetKind()+"/"+o.GetName())
	}
	return strings.Join(all, " ")
}

func TestParseDocuments(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   string
	}{
		"Empty":          {"no bytes are no objects", "", ""},
		"EmptyDocuments": {"separators alone hold nothing", "---\n---\n\n---\n", ""},
		"OnlyComments": {"a licence header before the first document is common",
			"# a\n---\n# b\n---\n" + object("a", ""), "ConfigMap/a"},
		"Null": {"a template that renders nothing may leave null", "null\n---\n~\n---\n" + object("a", ""),
			"ConfigMap/a"},
		"NoFirstSeparator": {"both forms are in use", object("a", "") + "---\n" + object("b", ""),
			"ConfigMap/a ConfigMap/b"},
		"SeparatorComment": {"helm writes the source after the separator",
			"--- # Source: x\n" + object("a", ""), "ConfigMap/a"},
		"DocumentEnd": {"... ends a document", object("a", "") + "...\n---\n" + object("b", "") + "...\n",
			"ConfigMap/a ConfigMap/b"},
		"Windows": {"files edited on Windows end lines with CR LF",
			strings.ReplaceAll(object("a", "")+"---\n"+object("b", ""), "\n", "\r\n"), "ConfigMap/a ConfigMap/b"},
		"ByteOrderMark": {"so do they begin with it, and again where files were put together",
			"\ufeff" + object("a", "") + "---\n\ufeff" + object("b", ""), "ConfigMap/a ConfigMap/b"},
		"NoNewlineAtEnd": {"the last line may lack its end", strings.TrimRight(object("a", ""), "\n"), "ConfigMap/a"},
		"JSON": {"JSON is accepted", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
			"ConfigMap/a"},
		"JSONStream": {"documents one after another, with tabs",
			"{\"apiVersion\":\"v1\",\n\t\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}} " +
				"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"b\"}}\n",
			"ConfigMap/a ConfigMap/b"},
		"JSONSeparated": {"JSON documents in a YAML stream",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}` + "\n---\n" +
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`, "ConfigMap/a ConfigMap/b"},
		"List": {"kubectl get -o yaml gives a List",
			"apiVersion: v1\nkind: List\nmetadata: {}\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: " +
				"a}}\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n", "ConfigMap/a Secret/b"},
		"NestedList": {"Lists of Lists",
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - {apiVersion: v1, " +
				"kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n",
			"ConfigMap/a Secret/b"},
		"TypedList": {"items of a typed list may leave out version and kind",
			"apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: a}\n- {apiVersion: v1, kind: ConfigMap, " +
				"metadata: {name: b}}\n", "ConfigMap/a ConfigMap/b"},
		"EmptyList": {"a List of nothing",
			"apiVersion: v1\nkind: List\nitems: []\n---\napiVersion: v1\nkind: List\n", ""},
		"KindEndsInList": {"an object whose kind only sounds like a list",
			"apiVersion: x.io/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {}\n", "AllowList/a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(tc.in))
			if err != nil || names(got) != tc.want {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, names(got), err, tc.want)
			}
		})
	}
}

func TestParseValues(t *testing.T) {
	cases := map[string]struct {
		reason string
		yaml   string
		want   any
	}{
		"Int":      {"integers stay integers", "9223372036854775807", int64(9223372036854775807)},
		"Negative": {"", "-9223372036854775808", int64(-9223372036854775808)},
		"Unsigned": {"larger than int64, and no digit is lost", "18446744073709551615",
			json.Number("18446744073709551615")},
		"Hex64": {"larger than int64, in another base", "0xFFFFFFFFFFFFFFFF",
			json.Number("18446744073709551615")},
		"Big": {"larger than any machine integer", "123456789012345678901234567890",
			json.Number("123456789012345678901234567890")},
		"BigNegative":    {"", "-123456789012345678901234567890", json.Number("-123456789012345678901234567890")},
		"Float":          {"", "0.1", 0.1},
		"FloatOfInteger": {"a float stays one", "1.0", 1.0},
		"Exponent":       {"", "1e3", 1000.0},
		"Octal":          {"file modes", "0644", int64(420)},
		"Octal12":        {"as YAML 1.2 writes them", "0o644", int64(420)},
		"Hex":            {"", "0x1F", int64(31)},
		"Underscore":     {"YAML 1.1 allows it", "1_000", int64(1000)},
		"Plus":           {"", "+5", int64(5)},
		"NumberInQuotes": {"quotes make a string", `"5"`, "5"},
		"TaggedString":   {"so does a tag", "!!str 5", "5"},
		"TaggedYes":      {"", "!!str yes", "yes"},
		"TaggedInt":      {"", `!!int "5"`, int64(5)},
		"TaggedBool":     {"", `!!bool "on"`, true},
		"Binary":         {"", "!!binary aGFsbG8=", "hallo"},
		"Yes":            {"YAML 1.1, as kubectl reads it", "yes", true},
		"Off":            {"", "off", false},
		"QuotedYes":      {"", `"yes"`, "yes"},
		"True":           {"", "true", true},
		"Null":           {"", "~", nil},
		"Nothing":        {"", "", nil},
		"Date":           {"a date is a string", "2024-01-01", "2024-01-01"},
		"Time":           {"", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"},
		"Version":        {"", "1.2.3", "1.2.3"},
		"Sexagesimal":    {"not a number of base 60", "1:30", "1:30"},
		"Merge":          {"a lonely merge sign", "'<<'", "<<"},
		"PlainMerge":     {"", "<<", "<<"},
		"Empty": {"an empty map and an empty list stay", "{a: {}, b: []}",
			map[string]any{"a": map[string]any{}, "b": []any{}}},
		"PlainKeys": {"keys stay as they are written", "{on: 1, 8080: 2, 1.10: 3, true: 4, y: 5}",
			map[string]any{"on": int64(1), "8080": int64(2), "1.10": int64(3), "true": int64(4), "y": int64(5)}},
		"SeparatorInText": {"--- in a block scalar separates nothing", "|\n    Example:\n    ---\n    a: b\n    --- \n",
			"Example:\n---\na: b\n--- \n"},
		"SeparatorFolded": {"", ">-\n    one\n    --- two\n", "one --- two"},
		"SeparatorQuoted": {"", "\"a\n  ---\n  b\"", "a --- b"},
		"Emoji":           {"", `"\U0001F600 ü"`, "😀 ü"},
		"HTML":            {"", `"<a&b>"`, "<a&b>"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(object("a", "x: "+tc.yaml+"\n")))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got[0].Object["x"]); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParseJSONValues(t *testing.T) {
	in := `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":[1,-2,1.5,1.0,1e2,18446744073709551616,true,null,"é\u0001",{},[]]}`
	got, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := []any{int64(1), int64(-2), 1.5, 1.0, 100.0, json.Number("18446744073709551616"), true, nil,
		"é\u0001", map[string]any{}, []any{}}
	if diff := cmp.Diff(want, got[0].Object["x"]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseAnchors(t *testing.T) {
	in := object("a", `base: &base {a: 1, b: 2}
other: &other {b: 3, c: 4}
copy: *base
merged: {<<: *base, b: 9}
both:
  <<: [*base, *other]
  d: 5
*k : v
`)
	in = strings.Replace(in, "name: a", "name: &k a", 1)
	got, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	object := got[0].Object
	want := map[string]any{
		"copy":   map[string]any{"a": int64(1), "b": int64(2)},
		"merged": map[string]any{"a": int64(1), "b": int64(9)},
		"both":   map[string]any{"a": int64(1), "b": int64(2), "c": int64(4), "d": int64(5)},
		"a":      "v",
	}
	for key, value := range want {
		if diff := cmp.Diff(value, object[key]); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", key, diff)
		}
	}
	object["base"].(map[string]any)["a"] = "changed"
	if object["copy"].(map[string]any)["a"] != int64(1) {
		t.Error("an alias shares its value: changing one changes the other")
	}
}

func TestParseErrors(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i,
			strings.TrimRight(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	cases := map[string]struct {
		why      string
		in       string
		reason   string
		document int
		line     int
		object   string
		text     string
	}{
		"NotYAML": {
			why:      "the document is named",
			in:       object("a", "") + "---\na: b: c\n",
			reason:   InvalidYAML,
			document: 2,
			text:     "near line 6",
		},
		"Tabs":          {in: "a:\n\t- b\n", reason: InvalidYAML, document: 1, text: "near line 2"},
		"NotUTF8":       {in: "a: \xff\n", reason: InvalidYAML, document: 1, text: "UTF-8"},
		"UnknownAnchor": {in: "a: *b\n", reason: InvalidYAML, document: 1, text: "unknown anchor"},
		"DuplicateKey": {
			why:      "otherwise the last one would be used",
			in:       object("a", "data: 1\nx: 2\ndata: 3\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     7,
			object:   "ConfigMap a",
			text:     `"data" is repeated, first on line 5`,
		},
		"DuplicateDeep": {
			in:       object("a", "x:\n  y: {z: 1, z: 2}\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     6,
			object:   "ConfigMap a",
			text:     `"z"`,
		},
		"DuplicateJSON": {
			in:       "\n\n{\"apiVersion\":\"v1\",\"kind\":\"A\",\n\"metadata\":{\"name\":\"a\"},\n\"x\":1,\n\"x\":2}",
			reason:   InvalidYAML,
			document: 1,
			line:     6,
			object:   "A a",
			text:     `"x" is repeated`,
		},
		"MapAsKey": {
			in:       object("a", "? {b: c}\n: d\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "put it in quotes",
		},
		"NullKey": {
			in:       object("a", "~: d\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "put it in quotes",
		},
		"Infinity": {
			why:      "JSON has no such number",
			in:       object("a", "x: .inf\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "JSON",
		},
		"NotANumber": {
			in:       object("a", "x: [.nan]\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "JSON",
		},
		"NoInt": {
			in:       object("a", "x: !!int abc\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "not a number",
		},
		"NoBool": {
			in:       object("a", "x: !!bool abc\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "not a bool",
		},
		"NoBinary": {
			in:       object("a", "x: !!binary '%'\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "base64",
		},
		"Tag": {
			in:       object("a", "x: !Ref y\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "remove it",
		},
		"MergeOfText": {
			in:       object("a", "x: {<<: y}\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "merge",
		},
		"MergeOfInvalid": {
			in:       object("a", "x: {<<: {y: .inf}}\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "JSON",
		},
		"Laughs": {
			why:      "a small document must not grow without end",
			in:       object("a", laughs.String()),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "write them out",
		},
		"Cycle": {
			in:       object("a", "x: &x [*x, *x]\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "nested deeper",
		},
		"MergeCycle": {
			in:       object("a", "x: &x {<<: *x}\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "nested deeper",
		},
		"Deep": {
			in:       object("a", "x: "+strings.Repeat("[", 600)+strings.Repeat("]", 600)+"\n"),
			reason:   InvalidYAML,
			document: 1,
			line:     5,
			object:   "ConfigMap a",
			text:     "nested deeper",
		},
		"DeepJSON": {
			in:       `{"apiVersion":"v1","x":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + "}",
			reason:   InvalidYAML,
			document: 1,
			line:     1,
			text:     "nested deeper",
		},
		"HugeFloatJSON": {
			in:       `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":1e999}`,
			reason:   InvalidYAML,
			document: 1,
			line:     1,
			object:   "A a",
			text:     "too large",
		},
		"Text": {
			why:      "a document of text",
			in:       "hello\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			text:     "not a map",
		},
		"Sequence": {in: "- a\n", reason: InvalidObject, document: 1, line: 1, text: "not a map"},
		"NoKind": {
			in:       "apiVersion: v1\nmetadata: {name: a}\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "object a",
			text:     "kind is missing",
		},
		"NoAPIVersion": {
			in:       object("a", "") + "---\n\n\nkind: A\nmetadata: {name: a}\n",
			reason:   InvalidObject,
			document: 2,
			line:     8,
			object:   "A a",
			text:     "apiVersion is missing",
		},
		"BadAPIVersion": {
			in:       "apiVersion: a/b/c\nkind: A\nmetadata: {name: a}\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "A a",
			text:     "group/version",
		},
		"NoMetadata": {
			in:       "apiVersion: v1\nkind: A\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "A without name",
			text:     "metadata is missing",
		},
		"NoName": {
			in:       "apiVersion: v1\nkind: A\nmetadata: {generateName: a-}\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "A without name",
			text:     "generateName",
		},
		"NumberAsName": {
			in:       "apiVersion: v1\nkind: A\nmetadata: {name: 1}\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "A without name",
			text:     "name",
		},
		"NumberAsSpace": {
			in:       "apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: 1}\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "A a",
			text:     "quotes",
		},
		"NumberAsLabel": {
			in:       "apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: b, labels: {c: d, x: 1.10}}\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "A b/a",
			text:     `labels["x"]`,
		},
		"BoolAsAnno": {
			in:       "apiVersion: v1\nkind: A\nmetadata: {name: a, annotations: {x: yes}}\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "A a",
			text:     `annotations["x"]`,
		},
		"LabelsAsList": {
			in:       "apiVersion: v1\nkind: A\nmetadata: {name: a, labels: [a]}\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "A a",
			text:     "not a map",
		},
		"InList": {
			why:      "the item is named",
			in:       "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, metadata: {}}\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "A without name",
			text:     "name",
		},
		"NoObjectInList": {
			in:       "apiVersion: v1\nkind: List\nitems: [a]\n",
			reason:   InvalidObject,
			document: 1,
			line:     1,
			object:   "List without name",
			text:     "not a map",
		},
		"NoObjectInJSON": {
			why:      "the second document, on its line",
			in:       "{\"apiVersion\":\"v1\",\"kind\":\"A\",\"metadata\":{\"name\":\"a\"}}\n{\"kind\":\"B\"}",
			reason:   InvalidObject,
			document: 2,
			line:     2,
			object:   "B without name",
			text:     "apiVersion",
		},
		"BrokenJSON": {
			why:      "the error is that of the YAML parser",
			in:       `{"a": [1}`,
			reason:   InvalidYAML,
			document: 1,
			text:     "not valid YAML",
		},
		"DuplicateInside": {
			in:       `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":[{"y":1,"y":2}]}`,
			reason:   InvalidYAML,
			document: 1,
			line:     1,
			object:   "A a",
			text:     `"y"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.in))
			e, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("%s: got %v", tc.why, err)
			}
			if e.Reason() != tc.reason || e.Document != tc.document || e.Line != tc.line || e.Object != tc.object ||
				!strings.Contains(e.Error(), tc.text) {
				t.Errorf("%s: got %s, document %d, line %d, object %q: %v", tc.why, e.Reason(),
					e.Document, e.Line, e.Object, err)
			}
			if strings.ContainsAny(e.Error(), "\n\r") {
				t.Errorf("more than one line: %q", e.Error())
			}
		})
	}
}

func TestErrorIsOneLine(t *testing.T) {
	_, err := Parse([]byte(`{"apiVersion":"v1","kind":"A\nB","metadata":{"name":"` + strings.Repeat(
		"ü", 2000) + `","labels":1}}`))
	if err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 1010 || !utf8.ValidString(err.Error()) {
		t.Errorf("got %q", err)
	}
}

func TestSyntaxErrorUnwraps(t *testing.T) {
	_, err := Parse([]byte("a: b: c"))
	e, _ := errors.AsType[*Error](err)
	if errors.Unwrap(errors.Unwrap(e)) == nil {
		t.Error("the reader's own error is lost")
	}
}

// compatible reports whether the YAML parser of kubectl decodes a document to the same object as Parse. If the parser
// of kubectl refuses the document, there is nothing to compare, and compatible returns true.
func compatible(document []byte, got any) (string, bool) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return "", true
	}
	theirs, err1 := decodeLoosely(text)
	mine, err := json.Marshal(got)
	ours, err2 := decodeLoosely(mine)
	if err != nil || err1 != nil || err2 != nil {
		return fmt.Sprint(err, err1, err2), false
	}
	return cmp.Diff(theirs, ours), reflect.DeepEqual(theirs, ours)
}

// decodeLoosely decodes JSON and rounds numbers to 15 digits. Numbers are rounded so that a test can compare the
// outputs of two encoders that write different numbers of digits.
func decodeLoosely(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for key := range v {
				v[key] = walk(v[key])
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case json.Number:
			f, _ := v.Float64() // beyond 64 bits kubectl loses digits
			return strconv.FormatFloat(f, 'g', 15, 64)
		}
		return v
	}
	return walk(v), nil
}

func FuzzParse(f *testing.F) {
	f.Add("a: yes\nb: 0644\nc: 1e3\nd: 2020-01-01\ne: |\n  ---\n  x\n")
	f.Add("x: &a {b: 1}\ny: {<<: *a, c: 0x10}\nz: [~, 1.0, .5, -0, +3, 1_0]\n")
	f.Add("---\n# c\n--- !!map\nx: !!str 1\n...\n")
	f.Add("\"a\\tb\": 'it''s'\n? k\n: >-\n  folded\n  text\n")
	f.Fuzz(func(t *testing.T, document string) {
		in := object("a", "x:\n  "+strings.ReplaceAll(document, "\n", "\n  ")+"\n")
		for _, text := range []string{document, in} {
			objects, err := Parse([]byte(text))
			if err != nil {
				if e, ok := errors.AsType[*Error](err); !ok || e.Reason() == "" || strings.Contains(e.Error(), "\n") {
					t.Fatalf("not a proper error: %v", err)
				}
				continue
			}
			for _, o := range objects {
				if o.GetKind() == "" || o.GetName() == "" {
					t.Fatalf("an object without identity: %v", o)
				}
				if len(objects) > 1 || strings.Contains(text, "List") || strings.Contains(text, "!") ||
					strings.Contains(text, "<<") || strings.Contains(text, "\ufeff") {
					continue // streams, lists, tags and merge keys are where we differ by intent
				}
				if diff, same := compatible([]byte(text), o.Object); !same && !plainKey(o.Object) {
					t.Errorf("kubectl reads %q differently (-kubectl +ours):\n%s", text, diff)
				}
			}
		}
	})
}

// plainKey reports whether an object has a key, such as yes or 1, that kubectl converts to another key if the key was
// written without quotes.
func plainKey(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			var is any
			if err := yaml.Unmarshal([]byte(key), &is); err != nil || is != key || plainKey(value) {
				return true
			}
		}
	case []any:
		if slices.ContainsFunc(v, plainKey) {
			return true
		}
	}
	return false
}
