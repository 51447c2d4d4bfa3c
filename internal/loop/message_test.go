package loop

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestClip(t *testing.T) {
	long := strings.Repeat("x", MessageLimit)
	cases := map[string]struct{ reason, text, want string }{
		"Empty":       {"nothing to clip", "", ""},
		"Plain":       {"unchanged", `creating a: "b"  c`, `creating a: "b"  c`},
		"Unicode":     {"unchanged", "größer als …", "größer als …"},
		"Fits":        {"the limit is allowed", long, long},
		"Long":        {"the end is cut", long + "y", long[:MessageLimit-3] + "…"},
		"Rune":        {"never within a character", long[:MessageLimit-4] + "€€", long[:MessageLimit-4] + "…"},
		"Lines":       {"one line", "a\nb\r\n\n  c\u2028d", "a; b; c; d"},
		"Punctuation": {"no second separator", "failed:\n\ta,\nb", "failed: a, b"},
		"Tab":         {"a space", "a\tb", "a b"},
		"Colour":      {"no escape sequences", "\x1b[1;31merror\x1b[0m: a", "error: a"},
		"Title":       {"nor others", "\x1b]0;evil\x07a\x1b]8;;http://x\x1b\\b\x1b", "ab"},
		"Control":     {"no control characters", "a\x00\x08\x7f\u0085b", "a; b"},
		"Direction":   {"nor those that reorder text", "a\u202eb\u2066c", "abc"},
		"Invalid":     {"what the API server would make of it", "a\xffb", "a\ufffdb"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Clip(c.text)
			if got != c.want {
				t.Errorf("%s: %q, want %q", c.reason, got, c.want)
			}
			if Clip(got) != got {
				t.Errorf("clipped again it is %q", Clip(got))
			}
		})
	}
}

func FuzzClip(f *testing.F) {
	f.Add("a\n\x1b[31mb\x9b€", 5)
	f.Add("\x1b]0;\x1b\x1b", 0)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = min(max(limit, 3), 100)
		got := ClipTo(text, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b\x00\u2028") {
			t.Errorf("%q is clipped to %q", text, got)
		}
	})
}

func TestMessage(t *testing.T) {
	var many []error
	for i := range 120 {
		many = append(many, fmt.Errorf("comparing ConfigMap default/a-%d: forbidden: %s", i, strings.Repeat("y", 300)))
	}
	huge := errors.New(strings.Repeat("z", 100000))
	cases := map[string]struct {
		reason     string
		err        error
		begin, end string
	}{
		"None": {"no error", nil, "", ""},
		"One":  {"its text", errors.New("a"), "a", "a"},
		"Joined": {"in one line", errors.Join(errors.New("a"), errors.Join(errors.New("b"), errors.New("c"))),
			"a; b; c", "c"},
		"Repeated": {"named once", errors.Join(errors.New("a"), errors.New("a")), "a", "a"},
		"Wrapped": {"the text around it stays", fmt.Errorf("outer: %w", errors.Join(errors.New("a"), errors.New("b"))),
			"outer: a; b", "b"},
		"Many": {"bounded, with the number of the others", errors.Join(many...),
			"comparing ConfigMap default/a-0: forbidden: y", "y; and 109 more"},
		"Huge": {"bounded", huge, "zzz", "z…"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Message(c.err)
			if !strings.HasPrefix(got, c.begin) || !strings.HasSuffix(got, c.end) || len(got) > SummaryLimit {
				t.Errorf("%s: %d bytes: %q", c.reason, len(got), got)
			}
		})
	}
	if got := Summarize([]string{strings.Repeat("€", SummaryLimit), "b"}); len(got) > SummaryLimit ||
		!strings.HasSuffix(got, "…; and 1 more") {
		t.Errorf("a long first text: %d bytes, %q", len(got), got[len(got)-20:])
	}
}

// TestStatusIsClipped checks that the CRD accepts every status, even if Report writes invalid or long texts into it.
func TestStatusIsClipped(t *testing.T) {
	b := newBench(t)
	text := strings.Repeat("forbidden\n", 5000)
	_, err := Run(t.Context(), Options{Client: b, Controller: "test", Object: b.kyma, Report: func(Outcome) {
		s := &b.kyma.Status
		s.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "No", Message: text}}
		s.LastOperation.Operation = text
		s.Modules = []v1beta2.ModuleStatus{{Name: "a", Message: text}}
		s.Agent = &v1beta2.AgentStatus{Message: text}
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := b.kyma.Status
	for _, got := range []string{s.Conditions[0].Message, s.LastOperation.Operation,
		s.Modules[0].Message, s.Agent.Message} {
		if len(got) > SummaryLimit || strings.Contains(got, "\n") || !strings.HasPrefix(got, "forbidden; forbidden") {
			t.Errorf("%d bytes: %.60q", len(got), got)
		}
	}
	for _, o := range []*v1beta2.Manifest{{Status: v1beta2.ManifestStatus{
		Conditions: []metav1.Condition{{Message: text}}, LastOperation: v1beta2.LastOperation{Operation: text}}}} {
		if clipStatus(o); len(o.Status.Conditions[0].Message) > SummaryLimit ||
			len(o.Status.LastOperation.Operation) > SummaryLimit {
			t.Error("the status of a Manifest is not clipped")
		}
	}
	w := &v1beta2.Watcher{Status: v1beta2.WatcherStatus{Conditions: []metav1.Condition{{Message: text}}}}
	if clipStatus(w); len(w.Status.Conditions[0].Message) > SummaryLimit {
		t.Error("the status of a Watcher is not clipped")
	}
}
