package fleetlist

import (
	"bytes"
	"encoding/json"
	"errors"
)

// A list of ten thousand objects is 50 MB of JSON, of which a quarter is wanted. So a chunk is only cut into its objects first, which is quick,
// and what nobody wants is left out of them before they are decoded.

// listPage is one chunk of a list.
type listPage struct {
	items   [][]byte // the objects as JSON
	next    string   // the token that asks for what comes then; "" if that was all
	version string   // of the list
}

var errNoList = errors.New("the API server did not answer with a list in JSON")

// splitList cuts a list into its objects.
func splitList(data []byte) (s listPage, err error) {
	i := space(data, 0)
	if i == len(data) || data[i] != '{' {
		return s, errNoList
	}
	for i++; ; {
		key, at, ok := field(data, i)
		if !ok {
			return s, errNoList
		}
		if key == nil {
			return s, nil
		}
		end := skip(data, at)
		if end < 0 {
			return s, errNoList
		}
		switch string(key) {
		case `"items"`:
			if s.items, ok = elements(data[at:end]); !ok {
				return s, errNoList
			}
		case `"metadata"`:
			var meta struct {
				Continue        string `json:"continue"`
				ResourceVersion string `json:"resourceVersion"`
			}
			if err := json.Unmarshal(data[at:end], &meta); err != nil {
				return s, errNoList
			}
			s.next, s.version = meta.Continue, meta.ResourceVersion
		}
		i = end
	}
}

// field finds the next key of a JSON object after i, with its quotes, and where its value begins; nil at the end of the object.
func field(data []byte, i int) (key []byte, value int, ok bool) {
	if i = space(data, i); i < len(data) && data[i] == ',' {
		i = space(data, i+1)
	}
	if i < len(data) && data[i] == '}' {
		return nil, 0, true
	}
	end := skip(data, i)
	if end < 0 || data[i] != '"' {
		return nil, 0, false
	}
	colon := space(data, end)
	if colon == len(data) || data[colon] != ':' {
		return nil, 0, false
	}
	return data[i:end], space(data, colon+1), true
}

// elements cuts a JSON array, or null, into its elements.
func elements(data []byte) (all [][]byte, ok bool) {
	if data[0] != '[' {
		return nil, string(data) == "null"
	}
	for i := 1; ; {
		if i = space(data, i); i < len(data) && data[i] == ',' {
			i = space(data, i+1)
		}
		if i >= len(data) || data[i] == ']' {
			return all, i < len(data)
		}
		end := skip(data, i)
		if end < 0 {
			return nil, false
		}
		all = append(all, data[i:end])
		i = end
	}
}

// skip returns where the JSON value ends that begins at i, -1 if it does not end. It does not look into the value more than that takes.
func skip(data []byte, i int) int {
	depth := 0
	for ; i < len(data); i++ {
		switch data[i] {
		case '"':
			if i = quoted(data, i); i < 0 {
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

// quoted returns where the string that begins at i has its last quote, -1 if it has none.
func quoted(data []byte, i int) int {
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

// space returns the next place from i on that is no white space.
func space(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

var managedFields = []byte(`"managedFields":[`)

// withoutManagedFields returns an object without its managedFields, which are often half of it. It may change what it is given. Within a string the quotes of the
// key would have backslashes before them, so what is found is a key.
func withoutManagedFields(object []byte) []byte {
	at := bytes.Index(object, managedFields)
	if at < 0 {
		return object
	}
	begin := at + len(managedFields) - 1
	end := skip(object, begin)
	if end < 0 {
		return object
	}
	return append(append(object[:begin], "[]"...), object[end:]...)
}
