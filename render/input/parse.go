package input

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	maxDepth   = 500    // maximum nesting depth of maps and lists in one document
	maxAliased = 50_000 // maximum number of values that the YAML aliases of one document repeat
)

// Parse decodes a stream of YAML or JSON documents into objects. A list (kind List, or kind …List with items) is
// replaced by its items, also inside of other lists. Documents that are empty or contain only comments are skipped.
//
// Scalars have the same values as in kubectl. kubectl uses YAML 1.1: a plain yes, on or y is true, 0644 is octal, and a
// date is a string. Parse differs from kubectl in two cases: Parse does not convert a plain key such as yes, and keeps
// all digits of an integer that does not fit into 64 bits.
//
// Errors are of type *Error with reason InvalidYAML, InvalidObject or ArchiveTooLarge (see MaxValues). The error
// describes the first invalid document.
func Parse(data []byte) ([]*unstructured.Unstructured, error) { return NewQuota().Parse(data) }

// Parse decodes one file of an artefact in the same way as the function [Parse]. All files of the artefact count
// towards the Quota, which limits the number of documents and values, and the bytes that aliases repeat.
func (q *Quota) Parse(data []byte) ([]*unstructured.Unstructured, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\n\ufeff"), []byte("\n")) // each concatenated file may have a BOM
	if objects, ok, err := parseJSON(data, q); ok {
		return objects, err
	}
	if err := CheckValueCount(data, MaxDocumentValues); err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	stream := yaml.NewDecoder(bytes.NewReader(data))
	for number := 1; ; number++ {
		var document yaml.Node
		err := stream.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, &Error{Code: InvalidYAML, Document: number, Problem: "it is not valid YAML, correct it",
				Cause: syntaxError{err}}
		}
		if err := q.takeDocument(); err != nil {
			return nil, err
		}
		tree, err := (&converter{quota: q}).value(&document, 0)
		if err == nil {
			objects, err = appendObjects(objects, tree)
		}
		if err != nil {
			return nil, withLocation(err, number, document.Content[0].Line, tree)
		}
	}
}

// syntaxError rewrites the text of an error of the YAML parser. The text has "near line" instead of "line", because the
// YAML parser may report the line on which an invalid value begins, or the line before.
type syntaxError struct{ error }

func (e syntaxError) Error() string {
	return strings.TrimPrefix(strings.Replace(e.error.Error(), "yaml: line", "near line", 1), "yaml: ")
}

// Unwrap returns the error of the YAML parser.
func (e syntaxError) Unwrap() error { return e.error }

// withLocation adds the document, the line and the object to an error. If the error already has a line or an object,
// withLocation does not change that field.
func withLocation(err error, document, line int, tree any) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Document = document
		if e.Line == 0 {
			e.Line = line
		}
		if e.Object == "" {
			object, _ := tree.(map[string]any)
			e.Object = Describe(object)
		}
	}
	return err
}

// appendObjects appends the objects of one document.
func appendObjects(objects []*unstructured.Unstructured, value any) ([]*unstructured.Unstructured, error) {
	if value == nil {
		return objects, nil
	}
	tree, ok := value.(map[string]any)
	if !ok {
		return nil, &Error{Code: InvalidObject,
			Problem: "the document is not a map: every document must be a Kubernetes object"}
	}
	kind, _ := tree["kind"].(string)
	items, isList := tree["items"].([]any)
	if itemKind, ok := strings.CutSuffix(kind, "List"); ok && (isList || tree["items"] == nil && itemKind == "") {
		for _, item := range items {
			if object, ok := item.(map[string]any); ok && itemKind != "" && object["kind"] == nil {
				// In a list of one kind, such as a ConfigMapList, the items may lack apiVersion and kind.
				object["apiVersion"], object["kind"] = tree["apiVersion"], itemKind
			}
			var err error
			if objects, err = appendObjects(objects, item); err != nil {
				return nil, err
			}
		}
		return objects, nil
	}
	if err := ValidateObject(tree); err != nil {
		return nil, err
	}
	return append(objects, &unstructured.Unstructured{Object: tree}), nil
}

// converter converts a YAML document to a JSON value. The fields of the converter count values and followed aliases, to
// limit their number and size.
type converter struct {
	quota   *Quota
	aliased int // number of values that aliases have repeated until now
	inside  int // number of aliases being followed
}

func (c *converter) value(n *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, yamlError(n, "nested deeper than %d levels", maxDepth)
	}
	if err := c.quota.takeValue(); err != nil {
		return nil, err
	}
	if c.inside > 0 {
		if c.aliased++; c.aliased > maxAliased {
			return nil, yamlError(n, "aliases repeat more than %d values: write them out", maxAliased)
		}
		if err := c.quota.takeAliasedText(n.Value); err != nil {
			return nil, err
		}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return c.value(n.Content[0], depth)
	case yaml.AliasNode:
		c.inside++
		defer func() { c.inside-- }()
		return c.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := c.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		return c.mapping(n, depth)
	default:
		return yamlScalar(n)
	}
}

func (c *converter) mapping(n *yaml.Node, depth int) (any, error) {
	out := make(map[string]any, len(n.Content)/2)
	lines := make(map[string]int, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		keyNode, valueNode := n.Content[i], n.Content[i+1]
		if keyNode.ShortTag() == "!!merge" {
			merges = append(merges, valueNode)
			continue
		}
		key, err := keyOf(keyNode)
		if err == nil {
			err = c.quota.takeValue()
		}
		if err == nil && (c.inside > 0 || keyNode.Kind == yaml.AliasNode) {
			err = c.quota.takeAliasedText(key)
		}
		if err != nil {
			return out, err
		}
		if first, ok := lines[key]; ok {
			return out, yamlError(keyNode, "key %q is repeated, first on line %d: remove one", key, first)
		}
		lines[key] = keyNode.Line
		if out[key], err = c.value(valueNode, depth+1); err != nil {
			return out, err // the part before the error contains the name of the object
		}
	}
	for _, m := range merges { // explicit keys take precedence over merges, and earlier merges over later merges
		v, err := c.value(m, depth+1)
		if err != nil {
			return out, err
		}
		sources, isList := v.([]any)
		if !isList {
			sources = []any{v}
		}
		for _, source := range sources {
			tree, ok := source.(map[string]any)
			if !ok {
				return out, yamlError(m, "a merge key << needs a map, or a list of maps")
			}
			for key, value := range tree {
				if _, ok := out[key]; !ok {
					out[key] = value
				}
			}
		}
	}
	return out, nil
}

// keyOf returns the key of a map as a string, because JSON allows only string keys. A plain key is not converted: the
// key on is "on" and the key 8080 is "8080".
func keyOf(n *yaml.Node) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return "", yamlError(n, "the key %q is not a string: put it in quotes", n.Value)
	}
	return n.Value, nil
}

// yamlScalar returns a YAML scalar as a JSON value.
func yamlScalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		if v, ok := boolOf(n.Value); ok {
			return v, nil
		}
		return nil, yamlError(n, "%q is not a bool", n.Value)
	case "!!str", "!!timestamp", "!!merge":
		if v, ok := boolOf(n.Value); ok && n.Style == 0 { // a plain scalar without a tag
			return v, nil
		}
		return n.Value, nil
	case "!!binary":
		text, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			return nil, yamlError(n, "the value of !!binary is not base64")
		}
		return string(text), nil
	case "!!int", "!!float":
		return yamlNumber(n)
	}
	return nil, yamlError(n, "tag %s is not supported in a Kubernetes object: remove it", n.Tag)
}

// boolOf returns the boolean value that a text has in YAML 1.1. ok is false if the text is not a boolean.
func boolOf(text string) (value, ok bool) {
	switch text {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE":
		return true, true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

func yamlNumber(n *yaml.Node) (any, error) {
	if isNonzeroDecimalInteger(n.Value) {
		v, _ := jsonNumber(n.Value)
		return v, nil
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, yamlError(n, "%q is not a number", n.Value)
	}
	switch v := v.(type) {
	case int:
		return int64(v), nil
	case uint64:
		return json.Number(strconv.FormatUint(v, 10)), nil
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v, nil
		}
	}
	return nil, yamlError(n, "%s cannot be written as a JSON number", n.Value)
}

func yamlError(n *yaml.Node, format string, args ...any) error {
	return &Error{Code: InvalidYAML, Line: n.Line, Problem: fmt.Sprintf(format, args...)}
}

// jsonNumber returns the value of a JSON number. The value is an int64 if an int64 is exact, a json.Number for a larger
// integer, and a float64 for every other number. The second result is false if text is not a JSON number.
func jsonNumber(text string) (any, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	if isNonzeroDecimalInteger(text) {
		return json.Number(text), true
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

// isNonzeroDecimalInteger reports whether text is a decimal integer in the syntax of JSON, that is, without a plus sign
// and a leading zero.
func isNonzeroDecimalInteger(text string) bool {
	if len(text) > 1 && text[0] == '-' {
		text = text[1:]
	}
	if text == "" || text[0] < '1' || text[0] > '9' {
		return false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// parseJSON decodes a stream of JSON documents. The result ok is false if data is not a stream of JSON documents. Most
// JSON is also YAML, but the YAML parser does not accept JSON that is indented with tabs, or several JSON documents
// without a separator.
func parseJSON(data []byte, q *Quota) (objects []*unstructured.Unstructured, ok bool, err error) {
	if text := bytes.TrimLeft(data, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return nil, false, nil
	}
	stream := json.NewDecoder(bytes.NewReader(data))
	var documents []json.RawMessage
	for {
		var document json.RawMessage
		if err := stream.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, false, nil // the error of the YAML parser is better
		}
		if err := q.takeDocument(); err != nil {
			return nil, true, err
		}
		documents = append(documents, document)
	}
	end := 0
	for i, document := range documents {
		end += bytes.Index(data[end:], document)
		line := 1 + bytes.Count(data[:end], []byte("\n"))
		if countJSONValues(document) > q.values { // before the first value is decoded
			return nil, true, tooMany(MaxValues, "values")
		}
		end += len(document)
		reader := &jsonReader{tokens: json.NewDecoder(bytes.NewReader(document)), text: document, line: line,
			quota: q}
		reader.tokens.UseNumber()
		tree, err := reader.value(0)
		if err == nil {
			objects, err = appendObjects(objects, tree)
		}
		if err != nil {
			return nil, true, withLocation(err, i+1, line, tree)
		}
	}
	return objects, true, nil
}

// jsonReader decodes one valid JSON document and refuses duplicate keys. encoding/json alone would accept duplicate
// keys.
type jsonReader struct {
	tokens *json.Decoder
	text   []byte
	line   int // line on which the document begins
	quota  *Quota
}

func (r *jsonReader) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, r.invalid("nested deeper than %d levels", maxDepth)
	}
	if err := r.quota.takeValue(); err != nil {
		return nil, err
	}
	switch token := r.nextTokenIgnoringError().(type) {
	case json.Number:
		v, ok := jsonNumber(token.String())
		if !ok {
			return nil, r.invalid("%s is too large a number", token)
		}
		return v, nil
	case json.Delim:
		if token == '[' {
			return r.list(depth)
		}
		return r.object(depth)
	default:
		return token, nil // string, bool or nil
	}
}

// nextTokenIgnoringError returns the next token of the JSON document. nextTokenIgnoringError ignores the error of the
// decoder, because parseJSON has checked that the document is valid.
func (r *jsonReader) nextTokenIgnoringError() json.Token {
	token, _ := r.tokens.Token()
	return token
}

func (r *jsonReader) list(depth int) (any, error) {
	list := []any{}
	for r.tokens.More() {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	r.nextTokenIgnoringError() // skips the closing bracket
	return list, nil
}

func (r *jsonReader) object(depth int) (any, error) {
	out := map[string]any{}
	for r.tokens.More() {
		key, _ := r.nextTokenIgnoringError().(string)
		if _, ok := out[key]; ok {
			return out, r.invalid("key %q is repeated: remove one", key)
		}
		if err := r.quota.takeValue(); err != nil {
			return out, err
		}
		v, err := r.value(depth + 1)
		if out[key] = v; err != nil {
			return out, err
		}
	}
	r.nextTokenIgnoringError() // skips the closing brace
	return out, nil
}

func (r *jsonReader) invalid(format string, args ...any) error {
	line := r.line + bytes.Count(r.text[:r.tokens.InputOffset()], []byte("\n"))
	return &Error{Code: InvalidYAML, Line: line, Problem: fmt.Sprintf(format, args...)}
}
