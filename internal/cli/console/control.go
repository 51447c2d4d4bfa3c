package console

import (
	"io"
	"regexp"
	"strings"
	"unicode"
)

// ownSequence matches the escape sequences with which klm colours its output, and which it resets.
var ownSequence = regexp.MustCompile(`^\x1b\[(0|3[1-6]|90)m`)

// withoutControls returns a text without control characters, except line breaks, tabs and the colours of klm. Texts of
// other people, such as the messages of Events in a runtime, may contain escape sequences, with which they could hide
// or replace lines in the terminal of the user.
func withoutControls(text string) string {
	if strings.IndexFunc(text, isForbidden) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		if !isForbidden(r) || r == '\x1b' && ownSequence.MatchString(text[i:]) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isForbidden(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// WithoutControls returns a writer that writes texts to w without control characters, except line breaks, tabs and the
// colours of klm. Each call of Write should get a whole text: a text that is split within a character loses it.
func WithoutControls(w io.Writer) io.Writer { return controlFilter{w} }

type controlFilter struct{ to io.Writer }

// Write implements [io.Writer].
func (f controlFilter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(f.to, withoutControls(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}
