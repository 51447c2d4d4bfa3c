package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

var yamlBlock = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```")

// TestYAML: each object of our kinds in the guides has fields that exist, and each block with values of the chart is
// accepted by their schema.
func TestYAML(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	values, err := jsonschema.NewCompiler().Compile("../deploy/chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]int{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			block := regexp.MustCompile(`(?m)^`+m[1]).ReplaceAllString(m[2], "")
			for i, document := range regexp.MustCompile(`(?m)^---$`).Split(block, -1) {
				what, err := checkDocument(scheme, values, document)
				if err != nil {
					t.Errorf("%s, document %d of the block %.60q: %v", page, i+1, block, err)
				}
				checked[what]++
			}
		}
	}
	if checked["object"] < 5 || checked["values"] < 3 {
		t.Errorf("checked %v: are pages still written as before?", checked)
	}
}

// checkDocument checks an object of our kinds, or values of the chart. checkDocument returns what it is, or "" for
// anything else.
func checkDocument(scheme *runtime.Scheme, values *jsonschema.Schema, document string) (string, error) {
	var content map[string]any
	if err := yaml.Unmarshal([]byte(document), &content); err != nil {
		return "", fmt.Errorf("it is no YAML: %w", err)
	}
	version, _ := content["apiVersion"].(string)
	kind, _ := content["kind"].(string)
	switch {
	case version == v1beta2.GroupVersion.String():
		o, err := scheme.New(v1beta2.GroupVersion.WithKind(kind))
		if err != nil {
			return "object", err
		}
		return "object", yaml.UnmarshalStrict([]byte(document), o)
	case version == "" && isValues(content):
		data, err := json.Marshal(content)
		if err != nil {
			return "values", err
		}
		decoded, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
		if err != nil {
			return "values", err
		}
		return "values", values.Validate(decoded)
	}
	return "", nil
}

// isValues reports whether a document has a key that only values of the chart have.
func isValues(content map[string]any) bool {
	for _, key := range []string{"extraEnv", "extraArgs", "extraVolumes", "agents", "networkPolicy", "registry",
		"service", "metrics"} {
		if content[key] != nil {
			return true
		}
	}
	return false
}

// TestCheckDocument checks which mistakes checkDocument finds in a YAML document.
func TestCheckDocument(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	values, err := jsonschema.NewCompiler().Compile("../deploy/chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: operator.kyma-project.io/v1beta2\nkind: "
	for document, want := range map[string]string{
		head + "Kyma\nspec: {channel: a}\n":        "object true",
		head + "Kyma\nspec: {chanel: a}\n":         "object false",
		head + "Kymas\n":                           "object false",
		"extraArgs: [--log-level=1]\n":             "values true",
		"extraArgs: --log-level=1\n":               "values false",
		"apiVersion: v1\nkind: Secret\nspec: {}\n": " true",
	} {
		what, err := checkDocument(scheme, values, document)
		if got := fmt.Sprintf("%s %v", what, err == nil); got != want {
			t.Errorf("%q: %s, %v, want %s", document, got, err, want)
		}
	}
}
