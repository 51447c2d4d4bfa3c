package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClip(t *testing.T) {
	const limit = 1024
	long := strings.Repeat("x", limit)
	cases := map[string]struct{ reason, in, want string }{
		"Empty":       {"nothing to clip", "", ""},
		"Plain":       {"unchanged", `creating a: "b"  c`, `creating a: "b"  c`},
		"Unicode":     {"unchanged", "größer als …", "größer als …"},
		"Fits":        {"the limit is allowed", long, long},
		"Long":        {"the end is cut", long + "y", long[:limit-3] + "…"},
		"Rune":        {"never within a character", long[:limit-4] + "€€", long[:limit-4] + "…"},
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
			got := ClipLine(c.in, limit)
			if got != c.want {
				t.Errorf("%s: %q, want %q", c.reason, got, c.want)
			}
			if ClipLine(got, limit) != got {
				t.Errorf("clipped again it is %q", ClipLine(got, limit))
			}
		})
	}
}

func TestFold(t *testing.T) {
	cases := map[string]struct{ reason, in, want string }{
		"Plain":  {"unchanged", "a b", "a b"},
		"Lines":  {"the output of a program is wrapped", "no\n  way\r\n", "no way"},
		"Colour": {"no escape sequences", "\x1b[31m a \x1b[0m", "a"},
		"Long":   {"cut before it is folded", strings.Repeat(" ", 100) + "x", "…"},
		"Limit":  {"the end is cut", "abcdefg", "abc…"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ClipCollapsingSpaces(c.in, 6); got != c.want {
				t.Errorf("%s: %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

func FuzzClip(f *testing.F) {
	f.Add("a\n\x1b[31mb\x9b€", 5)
	f.Add("\x1b]0;\x1b\x1b", 0)
	f.Fuzz(func(t *testing.T, in string, limit int) {
		limit = min(max(limit, 3), 100)
		got := ClipLine(in, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b\x00\u2028") {
			t.Errorf("%q is clipped to %q", in, got)
		}
	})
}
