package input

import (
	"encoding/json"
	"fmt"
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
)

// Quota is what is left of MaxValues and MaxDocuments for an artefact.
type Quota struct{ values, documents int }

// NewQuota returns the full quota for one artefact, as MaxValues and MaxDocuments allow.
func NewQuota() *Quota { return &Quota{MaxValues, MaxDocuments} }

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
// estimateYAMLValues does not count a colon inside of a word, as in a URL.
func estimateYAMLValues(data []byte, limit int) (atMost int) {
	const first = 2 // the document and an empty value
	largest, count := first, first
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
			case previous == '\n' && i+2 < len(data) && next == '-' && data[i+2] == '-' &&
				(i+3 == len(data) || mayBeBlank(data[i+3])):
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

// mayBeBlank reports whether a character may separate YAML tokens. A zero byte may be part of a space in UTF-16, and a
// byte from 0x80 may be part of a Unicode line break, so mayBeBlank returns true for these bytes, too.
func mayBeBlank(c byte) bool {
	return c == 0 || c == ' ' || c == '\n' || c == '\r' || c == '\t' || c >= 0x80
}

func isFlow(c byte) bool { return c == ',' || c == '[' || c == ']' || c == '{' || c == '}' }
