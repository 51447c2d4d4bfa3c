package input

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// The number of values in an artefact is limited. Decoding needs up to 350 bytes of memory for a value of two bytes, so
// a limit on bytes is not enough.
const (
	// MaxValues is the maximum number of values in all documents of one artefact: maps, lists, keys and scalars.
	MaxValues = 1_000_000
	// MaxDocumentValues is the maximum number of values in one YAML document. The number of values is estimated from
	// the punctuation before the document is decoded. Because punctuation within strings counts, too, the estimate may
	// be too high but is never too low.
	MaxDocumentValues = 400_000
	// MaxDocuments is the maximum number of documents in one artefact, including empty documents.
	MaxDocuments = 10_000
	// MaxAliasedBytes is the maximum number of bytes that the YAML aliases of one artefact repeat. An alias of a text
	// needs no memory when it is decoded, but the text is written once for each alias when the objects are encoded.
	MaxAliasedBytes = 10 << 20
)

// Quota is what is left of MaxValues, MaxDocuments and MaxAliasedBytes for an artefact.
type Quota struct{ values, documents, aliasedBytes int }

// NewQuota returns the full quota for one artefact, as MaxValues, MaxDocuments and MaxAliasedBytes allow.
func NewQuota() *Quota { return &Quota{MaxValues, MaxDocuments, MaxAliasedBytes} }

// takeValue subtracts one value.
func (q *Quota) takeValue() error {
	if q.values--; q.values < 0 {
		return tooMany(MaxValues, "values")
	}
	return nil
}

// takeDocument subtracts one document from the quota.
func (q *Quota) takeDocument() error {
	if q.documents--; q.documents < 0 {
		return tooMany(MaxDocuments, "documents")
	}
	return nil
}

// takeAliasedText subtracts the bytes of a key or scalar that an alias repeats.
func (q *Quota) takeAliasedText(text string) error {
	if q.aliasedBytes -= len(text); q.aliasedBytes < 0 {
		return &Error{Code: ArchiveTooLarge, Problem: fmt.Sprintf(
			"aliases repeat more than %d bytes: use fewer aliases of long texts", MaxAliasedBytes)}
	}
	return nil
}

func tooMany(limit int, what string) error {
	return &Error{Code: ArchiveTooLarge, Problem: fmt.Sprintf("it has more than %d %s: split the module", limit, what)}
}

// CheckValueCount returns an error if a YAML or JSON document in data may have more than limit values. CheckValueCount
// only scans the text: it does not decode the documents and so needs no memory for them. CheckValueCount does not check
// whether the documents are valid YAML or JSON.
func CheckValueCount(data []byte, limit int) error {
	exceeds := false
	if len(data) <= limit { // each value has a byte
		return nil
	}
	if json.Valid(data) {
		exceeds = countJSONValues(data) > limit
	} else {
		exceeds = estimateYAMLValues(data, limit) > limit
	}
	if exceeds {
		return tooMany(limit, "values in one document")
	}
	return nil
}

// CheckAliases returns an error if the aliases of the first YAML document in data repeat more than maxBytes bytes of
// keys and scalars, or more values than Parse allows. CheckAliases is for callers that decode data with another library
// than Parse, because such a library may copy a text for each of its aliases. The caller calls CheckValueCount first.
// If data can contain aliases but is not valid YAML, CheckAliases returns an error, too.
func CheckAliases(data []byte, maxBytes int) error {
	if bytes.IndexByte(data, '&') < 0 || bytes.IndexByte(data, '*') < 0 { // it has no anchors, or no aliases
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return &Error{Code: InvalidYAML, Problem: "it is not valid YAML, correct it", Cause: syntaxError{err}}
	}
	if left := (&aliasQuota{values: maxAliased, bytes: maxBytes}); !left.take(&document, false) {
		return &Error{Code: ArchiveTooLarge, Problem: fmt.Sprintf(
			"aliases repeat more than %d values or %d bytes: write them out", maxAliased, maxBytes)}
	}
	return nil
}

// aliasQuota is the number of values and bytes that the aliases of a document may still repeat.
type aliasQuota struct{ values, bytes int }

// take subtracts the values that the aliases in n repeat. The parameter repeated is true if an alias repeats n itself.
// If the quota is exceeded, take returns false.
func (q *aliasQuota) take(n *yaml.Node, repeated bool) bool {
	if n.Kind == yaml.AliasNode {
		return q.take(n.Alias, true)
	}
	if repeated {
		q.values--
		q.bytes -= len(n.Value)
	}
	if q.values < 0 || q.bytes < 0 {
		return false
	}
	for _, child := range n.Content {
		if !q.take(child, repeated) {
			return false
		}
	}
	return true
}

// countJSONValues returns the number of values and keys of a valid JSON document.
func countJSONValues(data []byte) int {
	count, inText := 1, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case !inText && (c == '{' || c == '[' || c == ',' || c == ':'):
			count++
		}
	}
	return count
}

// estimateYAMLValues returns an upper limit of the number of values in the largest document of a YAML stream.
// estimateYAMLValues ends early when a document exceeds limit. estimateYAMLValues counts indicators, which are the
// characters of YAML that can stand before a value. The table lists the indicators and the values that each indicator
// can add.
//
//	{ , : ?   a key and a value, of which one can be empty
//	[         the first item
//	-         an item, if a space follows
//
// estimateYAMLValues does not count a colon inside of a word, as in a URL. In UTF-16, estimateYAMLValues counts all
// documents as one, because the bytes of a line that begins a document can also be part of other characters.
func estimateYAMLValues(data []byte, limit int) (atMost int) {
	const first = 2 // the document and an empty value
	largest, count := first, first
	isUTF16 := bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
	for i, c := range data {
		var previous, next byte = '\n', '\n'
		if i > 0 {
			previous = data[i-1]
		}
		if i+1 < len(data) {
			next = data[i+1]
		}
		switch c {
		case '[':
			count++
		case '{', ',':
			count += 2
		case '?': // in a flow, no space has to follow
			count += 2
		case ':':
			if mayBeBlank(next) || isFlow(next) || isFlow(previous) || previous == '"' || previous == '\'' ||
				mayBeBlank(previous) {
				count += 2
			}
		case '-':
			switch {
			case previous == '\n' && !isUTF16 && beginsDocument(data[i:]):
				count = first
			case mayBeBlank(next):
				count++
			}
		}
		if largest = max(largest, count); largest > limit {
			return largest
		}
	}
	return largest
}

// beginsDocument reports whether a line of a YAML stream begins a new document. The count of values begins again at
// such a line, so beginsDocument must never return true for a line that the YAML parser reads as a part of the document
// before. For example, ---é is the beginning of a key.
func beginsDocument(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	if !ok || len(rest) == 0 {
		return ok
	}
	switch rest[0] {
	case ' ', '\t', '\r', '\n':
		return true
	}
	for _, lineBreak := range []string{"\u0085", "\u2028", "\u2029"} {
		if bytes.HasPrefix(rest, []byte(lineBreak)) {
			return true
		}
	}
	return false
}

// mayBeBlank reports whether a character may separate YAML tokens. A zero byte may be part of a space in UTF-16, and a
// byte from 0x80 may be part of a Unicode line break, so mayBeBlank returns true for these bytes, too.
func mayBeBlank(c byte) bool {
	return c == 0 || c == ' ' || c == '\n' || c == '\r' || c == '\t' || c >= 0x80
}

func isFlow(c byte) bool { return c == ',' || c == '[' || c == ']' || c == '{' || c == '}' }
