// Package text changes texts that come from outside, so that they can be shown safely.
//
// # Use
//
//	message := text.ClipLine(err.Error(), 1024)
//	last := text.ClipCollapsingSpaces(container.LastOutput, 1024)
//
// # How it works
//
// Runtimes, registries, charts and people can put any text into an error: of any size, with line breaks, invisible
// characters, and escape sequences that change a terminal. Every text from outside must pass through [ClipLine] or
// [ClipCollapsingSpaces] before it becomes a part of a condition, an event, a log line or the output of klm.
package text

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis is the end of a text that was shortened.
const ellipsis = "…"

// ClipLine returns a text as one line of at most maxBytes bytes, without control characters and terminal escape
// sequences. If a text was shortened, it ends in "…". A text is never cut inside of a character. A line break becomes
// "; ", or a space if it follows punctuation.
func ClipLine(text string, maxBytes int) string {
	text, isCut := cutBeforeCleaning(text, maxBytes)
	if !isPrintableASCII(text) {
		text = joinPrintableLines(text)
	}
	if isCut {
		text += ellipsis
	}
	if len(text) <= maxBytes {
		return text
	}
	end := max(0, maxBytes-len(ellipsis))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimRight(text[:end], " ") + ellipsis
}

// ClipCollapsingSpaces is like [ClipLine], but replaces any number of spaces and line breaks by one space.
// ClipCollapsingSpaces is for the output of programs, in which line breaks do not separate sentences.
func ClipCollapsingSpaces(text string, maxBytes int) string {
	text, isCut := cutBeforeCleaning(text, maxBytes)
	text = strings.Join(strings.Fields(text), " ")
	if isCut {
		text += ellipsis
	}
	return ClipLine(text, maxBytes)
}

// cutBeforeCleaning shortens a text before its control characters and escape sequences are removed, because the text
// may have any size, and the removal costs more than cutting. The result part is the beginning of the text. The result
// isCut is true if the text is longer than part. The result part may be longer than the parameter maxBytes, because the
// later removal of escape sequences makes the text shorter.
func cutBeforeCleaning(text string, maxBytes int) (part string, isCut bool) {
	const mostPerByte = 16
	if most := mostPerByte * maxBytes; len(text) > most {
		return text[:most], true
	}
	return text, false
}

// isPrintableASCII reports whether a text contains only printable ASCII characters.
func isPrintableASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// escapes matches terminal escape sequences. A terminal escape sequence is a CSI sequence such as a colour, an OSC
// sequence such as a title or a link, or a sequence of two bytes.
var escapes = regexp.MustCompile(
	"\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(\x07|\x1b\\\\)?|\x1b[ -~]?|\u009b[0-?]*[ -/]*[@-~]")

// joinPrintableLines returns a text without line breaks, control characters and escape sequences.
func joinPrintableLines(text string) string {
	text = escapes.ReplaceAllString(strings.ToValidUTF8(text, string(utf8.RuneError)), "")
	var b strings.Builder
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r == '\n' || r == '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
	}) {
		line = strings.TrimSpace(strings.Map(dropUnprintable, line))
		switch before := b.String(); {
		case line == "":
			continue
		case before == "":
		case strings.ContainsAny(before[len(before)-1:], ":;,.!?([{"):
			b.WriteByte(' ')
		default:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// dropUnprintable replaces a tab by a space. dropUnprintable removes characters that are invisible or change how other
// characters are shown.
func dropUnprintable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
		return -1
	}
	return r
}
