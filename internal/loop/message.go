package loop

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// The limits of texts in conditions and events, in bytes. The CRDs allow 32,768 bytes for the text of a condition.
const (
	// MessageLimit is the limit for the text of one error.
	MessageLimit = 1024
	// SummaryLimit is the limit for a text that combines several texts.
	SummaryLimit = 4096
	// moduleMessages is the limit for the texts of all modules of a Kyma together. etcd stores at most 1.5 MiB for an
	// object.
	moduleMessages = 256 << 10
	// minModuleMessage is the limit for the text of a module of a Kyma with very many modules.
	minModuleMessage = 256
)

// Clip returns a text in the form for conditions and events: one line of at most [MessageLimit] bytes, without control
// characters and terminal escape sequences. This is needed because errors of runtimes and registries can contain any
// text.
func Clip(text string) string { return ClipTo(text, MessageLimit) }

// ClipTo is like [Clip] with another limit in bytes. A text that is cut ends in "…". The cut is never inside a
// character. A line break becomes "; ", or a space if it follows punctuation.
func ClipTo(text string, limit int) string {
	const mostPerByte = 16 // escape sequences are longer than what is left of them
	cut := ""
	if most := mostPerByte * limit; len(text) > most {
		text, cut = text[:most], "…" // the text may have any size, and cleaning costs more than cutting
	}
	if !isPlain(text) {
		text = oneLine(text)
	}
	text += cut
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
	end := max(0, limit-len(ellipsis))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimRight(text[:end], " ") + ellipsis
}

// isPlain reports whether a text contains only printable ASCII characters.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// escapes matches terminal escape sequences: CSI sequences such as colours, OSC sequences such as titles and links, and
// sequences of two bytes.
var escapes = regexp.MustCompile(
	"\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(\x07|\x1b\\\\)?|\x1b[ -~]?|\u009b[0-?]*[ -/]*[@-~]")

// oneLine returns a text without line breaks, control characters and escape sequences.
func oneLine(text string) string {
	text = escapes.ReplaceAllString(strings.ToValidUTF8(text, string(utf8.RuneError)), "")
	var b strings.Builder
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r == '\n' || r == '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
	}) {
		line = strings.TrimSpace(strings.Map(printable, line))
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

// printable maps a tab to a space. printable removes characters that are invisible or change how other characters are
// shown.
func printable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
		return -1
	}
	return r
}

// Message returns the text of an error for a condition or event, see [Clip]. If the error consists of joined errors,
// each error is clipped and listed once. The text lists as many errors as [SummaryLimit] allows, and ends with the
// number of the other errors.
func Message(err error) string {
	if err == nil {
		return ""
	}
	var texts []string
	for _, e := range joined(err) {
		if text := Clip(e.Error()); text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return Summarize(texts)
}

// Summarize joins texts with "; " into one line of at most [SummaryLimit] bytes. If the limit does not allow all texts,
// the line ends in "and N more".
func Summarize(texts []string) string {
	const room = len("; and 1000000 more")
	var b strings.Builder
	for i, text := range texts {
		if i > 0 && b.Len()+len("; ")+len(text) > SummaryLimit-room {
			fmt.Fprintf(&b, "; and %d more", len(texts)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(ClipTo(text, SummaryLimit-room))
	}
	return b.String()
}

// joined returns the errors that errors.Join has joined, also if errors were joined several times. If err is not a
// joined error, joined returns only err.
func joined(err error) []error {
	many, ok := err.(interface{ Unwrap() []error }) // a joined error that is wrapped has additional text
	if !ok || err.Error() != errors.Join(many.Unwrap()...).Error() {
		return []error{err}
	}
	var all []error
	for _, e := range many.Unwrap() {
		all = append(all, joined(e)...)
	}
	return all
}

// clipStatus clips the texts in the status of an object, so that the API server does not refuse the status for a text
// that is too long.
func clipStatus(o client.Object) {
	var conditions []metav1.Condition
	switch o := o.(type) {
	case *v1beta2.Kyma:
		conditions = o.Status.Conditions
		o.Status.LastOperation.Operation = ClipTo(o.Status.LastOperation.Operation, SummaryLimit)
		limit := min(SummaryLimit, max(minModuleMessage, moduleMessages/max(1, len(o.Status.Modules))))
		for i := range o.Status.Modules {
			o.Status.Modules[i].Message = ClipTo(o.Status.Modules[i].Message, limit)
		}
		if o.Status.Agent != nil {
			o.Status.Agent.Message = ClipTo(o.Status.Agent.Message, SummaryLimit)
		}
	case *v1beta2.Manifest:
		conditions = o.Status.Conditions
		o.Status.LastOperation.Operation = ClipTo(o.Status.LastOperation.Operation, SummaryLimit)
	case *v1beta2.Watcher:
		conditions = o.Status.Conditions
	}
	for i := range conditions {
		conditions[i].Message = ClipTo(conditions[i].Message, SummaryLimit)
	}
}
