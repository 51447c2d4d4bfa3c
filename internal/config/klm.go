package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// The following output formats of klm are the values of --output.
const (
	// FormatTable is a table for human readers.
	FormatTable = "table"
	// FormatWide is a table with additional columns and without truncated texts.
	FormatWide = "wide"
	// FormatJSON and FormatYAML are formats for programs.
	FormatJSON = "json"
	FormatYAML = "yaml"
	// FormatName prints one name on each line.
	FormatName = "name"
)

// Formats contains all output formats of klm that have no template.
var Formats = []string{FormatTable, FormatWide, FormatJSON, FormatYAML, FormatName}

// The following output formats have a template, which follows in the value of --output, as in kubectl.
const (
	// FormatJSONPath prints the fields of a JSONPath template.
	FormatJSONPath = "jsonpath="
	// FormatCustomColumns prints a table. In the value of --output, the columns follow after this prefix, as
	// TITLE:PATH, separated by commas.
	FormatCustomColumns = "custom-columns="
)

// templates contains the output formats with a template.
var templates = []string{FormatJSONPath, FormatCustomColumns}

// Klm is the configuration that all commands of cmd/klm share. Kubeconfig, Context and Namespace are the same flags as
// in kubectl.
type Klm struct {
	// Kubeconfig is the path of the kubeconfig. Default: the files of $KUBECONFIG, else ~/.kube/config.
	Kubeconfig string
	// Context is the name of a context in the kubeconfig. Default: the current-context of the kubeconfig.
	Context string
	// Namespace is the namespace of Kymas and of the catalog. Default: kcp-system in a control plane, kyma-system in a
	// runtime. The namespace in the kubeconfig context is ignored, because it rarely contains Kymas.
	Namespace string
	// Output is one of Formats, or FormatJSONPath or FormatCustomColumns with a template. Default FormatTable.
	Output string
	// NoColor disables colours. Colours are used only if the output is a terminal. NoColor is true by default if
	// $NO_COLOR is set.
	NoColor bool
	// RequestTimeout is the timeout of one request. Default 30 s.
	RequestTimeout time.Duration
}

// NewKlm returns the default configuration. The default of NoColor is read from the environment.
func NewKlm() *Klm {
	return &Klm{Output: FormatTable, NoColor: os.Getenv("NO_COLOR") != "", RequestTimeout: 30 * time.Second}
}

// Register adds a flag for every field of the configuration.
func (k *Klm) Register(f *pflag.FlagSet) {
	f.StringVar(&k.Kubeconfig, "kubeconfig", k.Kubeconfig,
		"file with the clusters; empty: $KUBECONFIG, else ~/.kube/config")
	f.StringVar(&k.Context, "context", k.Context, "context of the kubeconfig; empty: the current one")
	f.StringVarP(&k.Namespace, "namespace", "n", k.Namespace,
		"namespace of Kymas and catalog; empty: kcp-system, in a runtime kyma-system")
	f.StringVarP(&k.Output, "output", "o", k.Output, "format: "+strings.Join(Formats, ", ")+
		", jsonpath=TEMPLATE, custom-columns=TITLE:PATH,…")
	f.BoolVar(&k.NoColor, "no-color", k.NoColor, "print no colours, which are only used on terminals ($NO_COLOR)")
	f.DurationVar(&k.RequestTimeout, "request-timeout", k.RequestTimeout, "deadline of one request")
}

// Validate returns the first error of the configuration, with the name of its flag.
func (k *Klm) Validate() error {
	switch {
	case !slices.Contains(Formats, k.Output) && !slices.ContainsFunc(templates, k.isOutputWithTemplate):
		return fmt.Errorf("--output: %q is none of %s", k.Output,
			strings.Join(append(slices.Clone(Formats), "jsonpath=TEMPLATE", "custom-columns=TITLE:PATH,…"), ", "))
	case k.Namespace != "" && !dnsLabel.MatchString(k.Namespace):
		return fmt.Errorf("--namespace: %q is not a valid name of a namespace", k.Namespace)
	case k.RequestTimeout < time.Millisecond:
		return fmt.Errorf("--request-timeout: must be more than 0")
	}
	return nil
}

// isOutputWithTemplate reports whether Output consists of the parameter formatPrefix and a template.
func (k *Klm) isOutputWithTemplate(formatPrefix string) bool {
	template, is := strings.CutPrefix(k.Output, formatPrefix)
	return is && template != ""
}
