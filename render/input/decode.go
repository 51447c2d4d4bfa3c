package input

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// decodeDocument reads the only document of a stream; nil if it is empty.
func Decode(data []byte) (any, error) {
	documents, err := DecodeAll(data)
	if err != nil || len(documents) == 0 {
		return nil, err
	}
	if len(documents) > 1 {
		return nil, &Error{Code: InvalidYAML, Problem: "it has more than one document: make it one"}
	}
	return documents[0], nil
}

// decodeDocuments reads documents of which nothing is known, under the same bounds as objects.
func DecodeAll(data []byte) ([]any, error) {
	var documents []any
	stream := yaml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	for {
		var document yaml.Node
		err := stream.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, &Error{Code: InvalidYAML, Problem: "it is not YAML, correct it", Cause: syntaxError{err}}
		}
		tree, err := (&converter{}).value(&document, 0)
		if err != nil {
			return nil, err
		}
		if tree != nil {
			documents = append(documents, tree)
		}
	}
}

// checkDocument refuses what is not one YAML map.
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
