package console

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/trial"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func TestColours(t *testing.T) {
	p := &Page{colours: true}
	p.Table([]string{"NAME", "STATE", "+MORE"}, [][]string{{"a", "Ready", "x"}, {"bcd", "Error", "y"}})
	want := "NAME   STATE\na      \x1b[32mReady\x1b[0m\nbcd    \x1b[31mError\x1b[0m\n"
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestControls checks that texts of other people cannot control the terminal, and that the colours of klm stay.
func TestControls(t *testing.T) {
	const hostile = "a\x1b[2K\x1b]0;x\x07\u009b31mb"
	const clean = "a[2K]0;x31mb"
	p := &Page{colours: true}
	p.Line("%s", hostile)
	p.Wrap("", hostile)
	p.Line("%s", p.Clip(hostile, 100))
	p.Rows([][]string{{hostile, "Ready"}, {"c", p.Red("late")}})
	want := strings.Repeat(clean+"\n", 3) + clean + "   \x1b[32mReady\x1b[0m\n" +
		"c" + strings.Repeat(" ", len(clean)+2) + "\x1b[31mlate\x1b[0m\n"
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var b strings.Builder
	if n, err := WithoutControls(&b).Write([]byte(hostile)); n != len(hostile) || err != nil || b.String() != clean {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 objects", 1: "1 object", 2: "2 objects"} {
		if got := Count(n, "object"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		wide         bool
		want         string
	}{
		"Short":  {"a short text is not changed", "Ready", false, "Ready"},
		"Exact":  {"as long as the limit", "1234567890", false, "1234567890"},
		"Long":   {"cut, with a sign for what is missing", "12345678901", false, "123456789…"},
		"Wide":   {"not cut with -o wide", "12345678901", true, "12345678901"},
		"Lines":  {"in one line in any case", "a\n  b\t c", true, "a b c"},
		"Letter": {"letters, not bytes", "ääääääääää", false, "ääääääääää"},
	}
	for name, c := range cases {
		if got := (&Page{Wide: c.wide}).Clip(c.text, 10); got != c.want {
			t.Errorf("%s: %s: %q, want %q", name, c.reason, got, c.want)
		}
	}
}

// TestClipPair checks that the first difference of two long values is visible.
func TestClipPair(t *testing.T) {
	long := strings.Repeat("0123456789", 20)
	cases := map[string]struct {
		reason, a, b string
		wide         bool
		wantA, wantB string
	}{
		"Short": {"", "1", "2", false, "1", "2"},
		"Early": {"the difference is at the beginning", "a" + long, "b" + long, false, "a0123456789012345678…",
			"b0123456789012345678…"},
		"Late": {"the beginning is left out", long + "a", long + "b", false, "…567890123456789a", "…567890123456789b"},
		"Longer": {"one value continues", long, long + "and more", false, "…567890123456789",
			"…567890123456789and …"},
		"Wide": {"all is shown", long + "a", long + "b", true, long + "a", long + "b"},
	}
	for name, c := range cases {
		a, b := (&Page{Wide: c.wide}).clipToDifference(c.a, c.b, 21)
		if a != c.wantA || b != c.wantB {
			t.Errorf("%s: %s: got %q and %q, want %q and %q", name, c.reason, a, b, c.wantA, c.wantB)
		}
	}
}

func TestTimes(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason     string
		at         time.Time
		ago, since string
	}{
		"Minutes": {"", now.Add(-5 * time.Minute), "5m", ", for 5m"},
		"Zero":    {"the time is unknown", time.Time{}, "-", ""},
		"Future":  {"clocks differ", now.Add(time.Minute), "0s", ", for 0s"},
	}
	for name, c := range cases {
		p := &Page{Now: now}
		if ago, since := p.Age(c.at), p.Since(c.at); ago != c.ago || since != c.since {
			t.Errorf("%s: %s: %q and %q, want %q and %q", name, c.reason, ago, since, c.ago, c.since)
		}
	}
}

func TestWrap(t *testing.T) {
	p := &Page{}
	p.Wrap("  ", strings.Repeat("twelve chars ", 12))
	lines := strings.Split(strings.TrimSuffix(p.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2:\n%s", len(lines), p)
	}
	for _, l := range lines {
		if len(l) > 120 || !strings.HasPrefix(l, "  twelve") && !strings.HasPrefix(l, "  chars") {
			t.Errorf("line %q", l)
		}
	}
	p = &Page{}
	if p.Wrap("- ", strings.Repeat("x", 200)); p.String() != "- "+strings.Repeat("x", 200)+"\n" {
		t.Errorf("a word that is longer than a line: %q", p.String())
	}
}

func TestChanges(t *testing.T) {
	fields := make([]trial.FieldChange, 22)
	for i := range fields {
		fields[i] = trial.FieldChange{Path: fmt.Sprintf("f%d", i), Before: "a"}
	}
	cases := map[string]struct {
		reason    string
		changes   []trial.Change
		unchanged int
		wide      bool
		lines     int
		want      string
	}{
		"None": {
			reason:    "nothing changes, one object exists",
			unchanged: 1,
			lines:     2,
			want:      "nothing would change\n1 object unchanged\n",
		},
		"Fields": {
			reason:    "20 fields, and how many more",
			changes:   []trial.Change{{Action: "change", Object: "ConfigMap a", Fields: fields}},
			unchanged: 3,
			lines:     23,
			want:      "           and 2 fields more; -o wide shows all\n3 objects unchanged\n",
		},
		"Wide": {
			reason:  "all fields",
			changes: []trial.Change{{Action: "change", Object: "ConfigMap a", Fields: fields}},
			wide:    true,
			lines:   24,
			want:    "           f21: a → -\n0 objects unchanged\n",
		},
		"Error": {
			reason:  "an object that cannot be applied has a message",
			changes: []trial.Change{{Action: "refuse", Object: "ConfigMap a", Message: "forbidden"}},
			lines:   3,
			want:    "refuse   ConfigMap a\n           forbidden\n0 objects unchanged\n",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := &Page{Wide: c.wide}
			p.Changes(c.changes, c.unchanged)
			if got := strings.Count(p.String(), "\n"); got != c.lines || !strings.HasSuffix(p.String(), c.want) {
				t.Errorf("%s: %d lines:\n%s", c.reason, got, p)
			}
		})
	}
}

// TestPrint checks every format, and the error for an output that cannot be written.
func TestPrint(t *testing.T) {
	want := map[string]string{
		config.FormatTable: "it is done\n", config.FormatWide: "it is done\n", config.FormatName: "kyma/a\n",
		config.FormatJSON: "{\n  \"object\": \"kyma/a\",\n  \"result\": \"it is done\"\n}\n",
		config.FormatYAML: "object: kyma/a\nresult: it is done\n",
	}
	for _, format := range config.Formats {
		var out strings.Builder
		a := &App{Streams: Streams{Out: &out}, Config: &config.Klm{Output: format}, Now: time.Now}
		if err := a.Print(Outcome{Object: "kyma/a", Result: "it is done"}); err != nil || out.String() != want[format] {
			t.Errorf("%s: %v, %q", format, err, out.String())
		}
	}
	a := &App{Streams: Streams{Out: full{}}, Config: &config.Klm{}, Now: time.Now}
	if err := a.Print(Outcome{}); err == nil || !strings.Contains(err.Error(), "writing the report") {
		t.Errorf("an output that is full: %v", err)
	}
}

// full is a writer that returns an error for every write.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }
