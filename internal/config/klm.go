package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Formats of klm, values of --output.
const (
	// FormatTable is a table for people.
	FormatTable = "table"
	// FormatWide is FormatTable with more columns and without clipped texts.
	FormatWide = "wide"
	// FormatJSON and FormatYAML are for programs.
	FormatJSON = "json"
	FormatYAML = "yaml"
	// FormatName prints one name on each line.
	FormatName = "name"
)

// Formats are all formats of klm.
var Formats = []string{FormatTable, FormatWide, FormatJSON, FormatYAML, FormatName}

// Klm is the configuration that all commands of cmd/klm have in common. The first three flags are those of kubectl.
type Klm struct {
	// Kubeconfig is the file with the clusters. Default: the files of $KUBECONFIG, else ~/.kube/config.
	Kubeconfig string
	// Context is the context of the kubeconfig. Default: its current-context.
	Context string
	// Namespace is the namespace of Kymas and catalog. Default: kcp-system in a control plane, kyma-system in a
	// runtime. The namespace of the context is ignored, because it is rarely that of Kymas.
	Namespace string
	// Output is one of Formats. Default FormatTable.
	Output string
	// NoColor switches colours off. They are only used on terminals. Default: true if $NO_COLOR is set.
	NoColor bool
	// RequestTimeout is the deadline of one request. Default 30 s.
	RequestTimeout time.Duration
}

// NewKlm returns the defaults, one of which is from the environment.
func NewKlm() *Klm {
	return &Klm{Output: FormatTable, NoColor: os.Getenv("NO_COLOR") != "", RequestTimeout: 30 * time.Second}
}

// Register adds a flag for every field.
func (k *Klm) Register(f *pflag.FlagSet) {
	f.StringVar(&k.Kubeconfig, "kubeconfig", k.Kubeconfig,
		"file with the clusters; empty: $KUBECONFIG, else ~/.kube/config")
	f.StringVar(&k.Context, "context", k.Context, "context of the kubeconfig; empty: the current one")
	f.StringVarP(&k.Namespace, "namespace", "n", k.Namespace,
		"namespace of Kymas and catalog; empty: kcp-system, in a runtime kyma-system")
	f.StringVarP(&k.Output, "output", "o", k.Output, "format: "+strings.Join(Formats, ", "))
	f.BoolVar(&k.NoColor, "no-color", k.NoColor, "print no colours, which are only used on terminals ($NO_COLOR)")
	f.DurationVar(&k.RequestTimeout, "request-timeout", k.RequestTimeout, "deadline of one request")
}

// Validate returns the first error, with the name of its flag.
func (k *Klm) Validate() error {
	switch {
	case !slices.Contains(Formats, k.Output):
		return fmt.Errorf("--output: %q is none of %s", k.Output, strings.Join(Formats, ", "))
	case k.Namespace != "" && !dnsLabel.MatchString(k.Namespace):
		return fmt.Errorf("--namespace: %q is not a valid name of a namespace", k.Namespace)
	case k.RequestTimeout < time.Millisecond:
		return fmt.Errorf("--request-timeout: must be more than 0")
	}
	return nil
}
