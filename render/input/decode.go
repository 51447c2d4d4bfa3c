package input

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// Decode decodes a YAML stream that has at most one document. If the stream is empty, Decode returns nil.
func Decode(data []byte) (any, error) {
	documents, err := DecodeAll(data)
	if err != nil || len(documents) == 0 {
		return nil, err
	}
	if len(documents) > 1 {
		return nil, &Error{Code: InvalidYAML, Problem: "it has more than one document: only one is allowed"}
	}
	return documents[0], nil
}

// DecodeAll decodes all documents of a YAML stream, with any content. DecodeAll has the same limits as Parse.
func DecodeAll(data []byte) ([]any, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := CheckValueCount(data, MaxDocumentValues); err != nil {
		return nil, err
	}
	q := NewQuota()
	var documents []any
	stream := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := stream.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, &Error{Code: InvalidYAML, Problem: "it is not valid YAML, correct it", Cause: syntaxError{err}}
		}
		if err := q.takeDocument(); err != nil {
			return nil, err
		}
		tree, err := (&converter{quota: q}).value(&document, 0)
		if err != nil {
			return nil, err
		}
		if tree != nil {
			documents = append(documents, tree)
		}
	}
}

// CheckMap returns an error unless data is empty or is one YAML map.
func CheckMap(data []byte) error {
	tree, err := Decode(data)
	if err != nil {
		return err
	}
	if _, ok := tree.(map[string]any); !ok && tree != nil {
		return errors.New("it is not a map")
	}
	return nil
}
