package fleetlist

import (
	"bytes"
	"encoding/json"
	"errors"
)

// A list of 10,000 Kymas has 50 MB of JSON, and klm uses only a quarter of this JSON. Therefore klm first splits a page
// of a list into the JSON texts of its objects, which is fast. Then klm removes managedFields from the JSON text of
// each object, and decodes the rest.

// listPage is one page of a list.
type listPage struct {
	items   [][]byte // the objects as JSON
	next    string   // the continue token of the next page; "" if this page is the last one
	version string   // resource version of the list
}

func (p listPage) continueToken() string { return p.next }

var errNotAList = errors.New("the API server did not return a list in JSON")

// splitList splits a page of a list into its objects.
func splitList(data []byte) (s listPage, err error) {
	i := skipSpace(data, 0)
	if i == len(data) || data[i] != '{' {
		return s, errNotAList
	}
	for i++; ; {
		key, at, ok := nextField(data, i)
		if !ok {
			return s, errNotAList
		}
		if key == nil {
			return s, nil
		}
		end := endOfValue(data, at)
		if end < 0 {
			return s, errNotAList
		}
		switch string(key) {
		case `"items"`:
			if s.items, ok = splitArray(data[at:end]); !ok {
				return s, errNotAList
			}
		case `"metadata"`:
			var meta struct {
				Continue        string `json:"continue"`
				ResourceVersion string `json:"resourceVersion"`
			}
			if err := json.Unmarshal(data[at:end], &meta); err != nil {
				return s, errNotAList
			}
			s.next, s.version = meta.Continue, meta.ResourceVersion
		}
		i = end
	}
}

// nextField returns the next key of a JSON object after index i, and the index at which its value begins. The key
// includes its quotes. At the end of the JSON object, the returned key is nil.
func nextField(data []byte, i int) (key []byte, valueStart int, ok bool) {
	if i = skipSpace(data, i); i < len(data) && data[i] == ',' {
		i = skipSpace(data, i+1)
	}
	if i < len(data) && data[i] == '}' {
		return nil, 0, true
	}
	end := endOfValue(data, i)
	if end < 0 || data[i] != '"' {
		return nil, 0, false
	}
	colon := skipSpace(data, end)
	if colon == len(data) || data[colon] != ':' {
		return nil, 0, false
	}
	return data[i:end], skipSpace(data, colon+1), true
}

// splitArray splits a JSON array into its elements. The array may also be null.
func splitArray(data []byte) (all [][]byte, ok bool) {
	if data[0] != '[' {
		return nil, string(data) == "null"
	}
	for i := 1; ; {
		if i = skipSpace(data, i); i < len(data) && data[i] == ',' {
			i = skipSpace(data, i+1)
		}
		if i >= len(data) || data[i] == ']' {
			return all, i < len(data)
		}
		end := endOfValue(data, i)
		if end < 0 {
			return nil, false
		}
		all = append(all, data[i:end])
		i = end
	}
}

// endOfValue returns the index after the JSON value that begins at index i, or -1 if the value is not complete.
// endOfValue does not check the syntax within the value.
func endOfValue(data []byte, i int) int {
	depth := 0
	for ; i < len(data); i++ {
		switch data[i] {
		case '"':
			if i = closingQuote(data, i); i < 0 {
				return -1
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ' ', '\t', '\n', '\r', ',', ':':
			continue
		default: // a number, true, false, null
			for i+1 < len(data) && bytes.IndexByte([]byte(" \t\n\r,:]}"), data[i+1]) < 0 {
				i++
			}
		}
		if depth <= 0 {
			return i + 1
		}
	}
	return -1
}

// closingQuote returns the index of the closing quote of the string that begins at index i, or -1 if there is none.
func closingQuote(data []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for data[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

// skipSpace returns the index of the first character at or after index i that is not white space.
func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

var managedFields = []byte(`"managedFields":[`)

// stripManagedFieldsInPlace returns an object without its managedFields, which are often half of its size. The bytes of
// the argument may change. stripManagedFieldsInPlace searches for the key "managedFields" including its quotes. The
// search never finds the key in the text of a JSON string, because JSON writes a quote in a string with a backslash.
func stripManagedFieldsInPlace(object []byte) []byte {
	at := bytes.Index(object, managedFields)
	if at < 0 {
		return object
	}
	begin := at + len(managedFields) - 1
	end := endOfValue(object, begin)
	if end < 0 {
		return object
	}
	return append(append(object[:begin], "[]"...), object[end:]...)
}
