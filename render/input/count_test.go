package input

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestManyValues checks an artefact of a few MiB whose values would need gigabytes: it is refused before its values are
// decoded.
func TestManyValues(t *testing.T) {
	const size = 4 << 20
	fill := func(start, repeated string) []byte {
		return []byte(start + strings.Repeat(repeated, size/len(repeated)))
	}
	for name, data := range map[string][]byte{
		"YAML":          fill("a: [", "{},"),
		"YAMLSets":      fill("a: {", "b,"),
		"YAMLBlock":     fill("a:\n", "- \n"),
		"YAMLMap":       fill("", "a:\n"),
		"YAMLNested":    fill("", "- "),
		"YAMLUTF16":     fill("\xff\xfea\x00:\x00\n\x00", "-\x00\n\x00"),
		"JSON":          append(fill(`{"a":[`, "{},"), "{}]}"...),
		"JSONKeys":      append(fill(`{"a":[0`, `,{"b":0}`), "]}"...),
		"Documents":     fill("", "---\n"),
		"EmptyMaps":     fill("", "--- {}\n"),
		"JSONDocuments": fill("", "{}\n"),
		"KeyLikeMarker": fill("", "---é: ["+strings.Repeat("0,", 100_000)+"]\n"),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(data)
			runtime.ReadMemStats(&after)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Code != ArchiveTooLarge && e.Code != InvalidObject {
				t.Fatalf("got %v", err)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 200 {
				t.Errorf("%d MiB were allocated", used)
			}
			if _, err := DecodeAll(data); err == nil {
				t.Error("decoded as values")
			}
		})
	}
}

// TestAliasedBytes checks that a long text which aliases repeat is refused before the text is copied: a document of a
// few hundred KiB would become an object of 200 MB.
func TestAliasedBytes(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	long := strings.Repeat("x", 10_000)
	lines := func(count int, format string) string {
		var b strings.Builder
		for i := range count {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	few := object + "data:\n  a: &a " + long + "\n" + lines(1_000, "  b%d: *a\n")
	for name, data := range map[string]string{
		"Values":    object + "data:\n  a: &a " + long + "\n" + lines(20_000, "  b%d: *a\n"),
		"Keys":      object + "data:\n- &a " + long + "\n" + lines(20_000, "- {*a : %d}\n"),
		"Maps":      object + "data:\n  a: &a {? " + long + " : 1}\n" + lines(20_000, "  b%d: *a\n"),
		"Merges":    object + "data:\n- &a {b: " + long + "}\n" + lines(9_000, "- {<<: *a, c: %d}\n"),
		"Documents": few + "---\n" + few,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(data))
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != ArchiveTooLarge {
				t.Errorf("got %v", err)
			}
			if _, err := DecodeAll([]byte(data)); err == nil {
				t.Error("decoded as values")
			}
		})
	}
	if _, err := Parse([]byte(few)); err != nil {
		t.Errorf("1,000 aliases are refused: %v", err)
	}
}

// TestCheckAliases checks the number of bytes that CheckAliases counts.
func TestCheckAliases(t *testing.T) {
	for text, repeated := range map[string]int{
		"": 0, "a: b": 0, "{": 0, "a: 5 * 3 & 4": 0,
		"a: &x abc\nb: *x\nc: [*x, *x]":           9,
		"a: &x {k: abc}\nb: {<<: *x}":             4,
		"&x abc: *x":                              3,
		"a: &x [abc, abc]\nb: &y [*x, *x]\nc: *y": 24,
		"a: &x abc\n---\nb: [*x]":                 0, // only the first document counts
	} {
		if err := CheckAliases([]byte(text), repeated); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if err := CheckAliases([]byte(text), repeated-1); repeated > 0 && err == nil {
			t.Errorf("%q repeats %d bytes, which exceeds the limit", text, repeated)
		}
	}
	for _, text := range []string{
		"a: &x [*x]", // repeats itself without end
		"a: &x {}\nb: [" + strings.Repeat("*x,", 50_001) + "]", // too many values
		"a: &x [*x", // invalid
	} {
		if CheckAliases([]byte(text), 1<<30) == nil {
			t.Errorf("%.20q is accepted", text)
		}
	}
}

// TestQuota checks that the files of one artefact share the limit of values, and that exactly the limit is accepted.
func TestQuota(t *testing.T) {
	const list = "apiVersion: v1\nkind: A\nmetadata: {name: a}\nitems: [" // 12 values and keys, with the document
	object := []byte(list + strings.Repeat("1,", 88) + "]\n")
	q := &Quota{values: 1000, documents: 100}
	for i := range 11 {
		_, err := q.Parse(object)
		if (err != nil) != (i == 10) {
			t.Errorf("file %d: %v", i, err)
		}
	}
	q = &Quota{values: 1000, documents: 2}
	if _, err := q.Parse([]byte("---\n---\n")); err != nil {
		t.Error(err)
	}
	if _, err := q.Parse(object); err == nil {
		t.Error("a third document is accepted")
	}
}

// TestEstimate checks that the estimate is never smaller than the number of values, whatever YAML syntax is used.
func TestEstimate(t *testing.T) {
	for _, text := range estimated {
		checkEstimate(t, []byte(text))
	}
}

// estimated is a list of YAML documents for which an estimate can be too low. estimateYAMLValues counts indicators,
// which are characters such as - and :, and these documents have many values, but few indicators.
var estimated = []string{
	"", "a", "a: b", "a:", "? a", "? a\n: b", "? ? ? a", "- - - a", "-\n-\n-", "- a: b\n  c: d\n-\n",
	"{}", "[]", "[[[]]]",
	"{a,b,c}", "{a: b, c}", "[a: b, c: d]", "[? , ? ]", "[? a : b]", `{"a":1,"b":2}`, `{"a":{"b":[1,2,{}]}}`, "{a: , b: }",
	"{'a':'b','c':[]}", "[{a},{a},{a}]", "[[a],[a]]",
	"{[a]:b,{c}:d}", "a: &x {b: c}\nd: *x\n<<: *x", "[&a b,*a,*a]",
	"a: !!map {? b}", "a:\n  - b\n  -\n  - - c\n", "---\na: b\n--- c\n...\n---\n- d\n", "{a: [b, c], ? d : e, f}", "- {}\n- []\n",
	"a:\t1\n", "a:\r\n  b:\r\n", "a:\u0085b:\u2028", "\"a\": 1\n'b': 2\n", "[a,]", "[,]", "{,}", "[: a]", "{: a, : b}",
	"[?0]", "[?0,?0,?0]", "{?a,?b}",
	"a: [0,0,0,0]\n---é: [0,0,0,0]\n---è: [0,0,0,0]\n", "a: [0,0]\n---\u2028b: [0,0,0]\n---\u2030c: [0,0]\n",
	// In UTF-16, the comments have the bytes of a line that begins a document.
	"\xff\xfe[\x00" + strings.Repeat("0\x00,\x000\x00,\x000\x00,\x000\x00,\x00\n\x00#\x00\x05\n---\n\n\x00", 3) + "]\x00",
}

// FuzzEstimate checks that no document has more values than estimateYAMLValues returns.
func FuzzEstimate(f *testing.F) {
	for _, text := range estimated {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkEstimate(t, data) })
}

func checkEstimate(t *testing.T, data []byte) {
	t.Helper()
	largest, documents := 0, 0
	for stream := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		if stream.Decode(&document) != nil {
			break
		}
		largest = max(largest, countNodes(&document))
		if documents++; documents > len(data)+1 {
			t.Fatalf("%q has documents without end", data) // of the library: Parse stops after MaxDocuments
		}
	}
	if got := estimateYAMLValues(data, 1<<30); got < largest {
		t.Errorf("estimated %d, but %q has %d values", got, data, largest)
	}
}

func countNodes(n *yaml.Node) int {
	count := 1
	for _, child := range n.Content {
		count += countNodes(child)
	}
	return count
}
