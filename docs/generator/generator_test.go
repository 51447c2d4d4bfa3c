package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

const root = "../.."

// TestUpToDate compares the generated files with those in the repository.
func TestUpToDate(t *testing.T) {
	for _, variable := range []string{"KUBECONFIG", "POD_IP", "POD_NAME", "CA_CERT", "TLS_CERT", "TLS_KEY", "KCP_ADDR",
		"KCP_CONTRACT", "WEBHOOK_PORT", "METRICS_PORT"} {
		t.Setenv(variable, "")
	}
	for name, write := range files() {
		want, err := write(root)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(strings.Split(string(got), "\n"), strings.Split(want, "\n")); diff != "" {
			t.Errorf("%s differs from the code: run `make references` and commit the changes (-file +code):\n%s",
				name, diff)
		}
	}
}

// registeredMetrics returns the labels of all registered metrics by name.
func registeredMetrics(t *testing.T) map[string][]string {
	t.Helper()
	seen := &describer{}
	metrics.MustRegister(seen, metrics.Sources{})
	form := regexp.MustCompile(
		`^Desc\{fqName: "([^"]+)", help: ".*", constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)
	names := regexp.MustCompile(`(\w+)=`)
	all := map[string][]string{}
	for _, d := range seen.described {
		parts := form.FindStringSubmatch(d)
		if parts == nil {
			t.Fatalf("the description %s does not have the expected form", d)
		}
		labels := []string{}
		for _, m := range names.FindAllStringSubmatch(parts[2], -1) {
			labels = append(labels, m[1])
		}
		if parts[3] != "" {
			labels = append(labels, strings.Split(parts[3], ",")...)
		}
		all[parts[1]] = labels
	}
	return all
}

// describer is a registry that only records the descriptions of its collectors.
type describer struct {
	prometheus.Registerer
	described []string
}

// MustRegister records the descriptions of the collectors.
func (d *describer) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = d.Register(c)
	}
}

// Register records the descriptions of the collector.
func (d *describer) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	for desc := range descs {
		d.described = append(d.described, desc.String())
	}
	return nil
}

// TestMetricsAreThoseOfTheRegistry checks that the metrics that are parsed from the source equal the registered
// metrics.
func TestMetricsAreThoseOfTheRegistry(t *testing.T) {
	all, err := declaredManagerMetrics(root)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string][]string{}
	for _, m := range all {
		if m.help == "" {
			t.Errorf("%s has no help", m.name)
		}
		declared[m.name] = append([]string{}, m.labels...)
	}
	if diff := cmp.Diff(registeredMetrics(t), declared); diff != "" {
		t.Errorf("metrics (-registered +declared):\n%s", diff)
	}
}

// TestReasonsHaveInstructions checks that the comment of each reason has a meaning and an instruction. The comment must
// not break a name with a hyphen, such as the key of an annotation, over two lines.
func TestReasonsHaveInstructions(t *testing.T) {
	broken := regexp.MustCompile(`[a-z]- [a-z]`)
	sections, err := constants(apiFile(root, "reasons.go"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range sections {
		for _, e := range s.entries {
			means, do := splitRemedy(e.doc)
			if means == "" || e.name != "Reason"+e.value || seen[e.value] {
				t.Errorf("%s = %q: has no comment, a name that differs from its value, or a duplicate", e.name, e.value)
			}
			if do == "" && !strings.Contains(e.note, "event") {
				t.Errorf("%s: its comment has no instruction: %q", e.name, e.doc)
			}
			if name := broken.FindString(e.doc); name != "" {
				t.Errorf("%s: a line break of its comment is within a name: %q", e.name, name)
			}
			seen[e.value] = true
		}
	}
	if len(seen) < 80 {
		t.Errorf("found %d reasons, want at least 80: is the form of the list unchanged?", len(seen))
	}
}

// TestPagesAreComplete checks a few entries of each page.
func TestPagesAreComplete(t *testing.T) {
	for name, least := range map[string][]string{
		"flags.md": {"`--otlp-endpoint`", "`--kcp-addr`", "| `--purge-grace-period` | `0s` |"},
		"api.md":   {"## Kyma\n", "## Watcher\n", "`spec.modules[].channel`"},
		"klm.md": {"## klm runtime add\n", "## klm status\n", "## klm completion\n", "`klm --version`",
			"| `--version` |  | pin this version instead of following a channel |"}, "conditions.md": {"`ModuleCatalog`", "`Warning`",
			"`DeletionGivenUp`"}, "reasons.md": {"### WaitingForWindow\n"},
		"module-config.md": {"| `chart` | map |", "| `createNamespace` | boolean |", "| `security` |"},
		"metrics.md":       {"`lifecycle_mgr_step_duration_seconds` | histogram | `controller`, `step`, `result`"},
	} {
		text, err := pages[name](root)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range least {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not have %s", name, want)
			}
		}
	}
	if names := slices.Sorted(maps.Keys(pages)); len(names) != 7 {
		t.Errorf("the pages are %q: add entries of the new page above", names)
	}
}

// TestModuleConfigSchema checks module-configs against the schema for editors.
func TestModuleConfigSchema(t *testing.T) {
	text, err := moduleConfigSchema(root)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	const good = "name: a.b/c\nversion: 1.0.0\nmanifest: m\nrepository: r\ndocumentation: d\n"
	cases := map[string]struct {
		reason, config string
		valid          bool
	}{
		"Full": {"", good + "icons: [{name: a, link: b}]\nchart: {release: a, createNamespace: true}\nmanager: {group: apps, " +
			"version: v1, kind: Deployment, name: a}\n", true},
		"Modulectl": {"empty keys, and links as a map", good + "icons: {a: b}\nmanager: null\nsecurity: ''\nlabels: null\n",
			true},
		"Misspelt": {"", good + "icons: {a: b}\ndefualtCR: a\n", false},
		"NoIcons":  {"required", good, false},
		"Type":     {"", good + "icons: {a: b}\nbeta: sometimes\n", false},
	}
	for name, tc := range cases {
		data, err := yaml.YAMLToJSON([]byte(tc.config))
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != tc.valid {
			t.Errorf("%s: %s: got %v", name, tc.reason, err)
		}
	}
}
