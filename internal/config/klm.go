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
	// FormatTable is for people.
	FormatTable = "table"
	// FormatWide is FormatTable with more columns, and nothing cut short.
	FormatWide = "wide"
	// FormatJSON and FormatYAML are for programs.
	FormatJSON = "json"
	FormatYAML = "yaml"
	// FormatName is one name a line.
	FormatName = "name"
)

// Formats are all formats of klm.
var Formats = []string{FormatTable, FormatWide, FormatJSON, FormatYAML, FormatName}

// Klm is what all verbs of cmd/klm have in common. The first three are those of kubectl.
type Klm struct {
	// Kubeconfig is the file with the clusters. Default: the files of $KUBECONFIG, else ~/.kube/config.
	Kubeconfig string
	// Context is the one of the kubeconfig that is used. Default: its current-context.
	Context string
	// Namespace is where Kymas and catalog are. Default: kcp-system in a control plane, kyma-system in a runtime. The namespace of the context
	// does not count: it is rarely meant for this.
	Namespace string
	// Output is one of Formats. Default FormatTable.
	Output string
	// NoColor switches colours off, which are only for terminals anyway. Default: whether $NO_COLOR is set.
	NoColor bool
	// RequestTimeout is the deadline of one request. Default 30 s.
	RequestTimeout time.Duration
}

// NewKlm returns the defaults, of which one is in the environment.
func NewKlm() *Klm {
	return &Klm{Output: FormatTable, NoColor: os.Getenv("NO_COLOR") != "", RequestTimeout: 30 * time.Second}
}

// Register adds a flag for every field.
func (k *Klm) Register(f *pflag.FlagSet) {
	f.StringVar(&k.Kubeconfig, "kubeconfig", k.Kubeconfig, "file with the clusters; empty: $KUBECONFIG, else ~/.kube/config")
	f.StringVar(&k.Context, "context", k.Context, "context of the kubeconfig; empty: the current one")
	f.StringVarP(&k.Namespace, "namespace", "n", k.Namespace, "where Kymas and catalog are; empty: kcp-system, in a runtime kyma-system")
	f.StringVarP(&k.Output, "output", "o", k.Output, "format: "+strings.Join(Formats, ", "))
	f.BoolVar(&k.NoColor, "no-color", k.NoColor, "no colours, which are only for terminals anyway ($NO_COLOR)")
	f.DurationVar(&k.RequestTimeout, "request-timeout", k.RequestTimeout, "deadline of one request")
}

// Validate returns the first mistake, which names its flag.
func (k *Klm) Validate() error {
	switch {
	case !slices.Contains(Formats, k.Output):
		return fmt.Errorf("--output: %q is none of %s", k.Output, strings.Join(Formats, ", "))
	case k.Namespace != "" && !dnsLabel.MatchString(k.Namespace):
		return fmt.Errorf("--namespace: %q is no name of a namespace", k.Namespace)
	case k.RequestTimeout < time.Millisecond:
		return fmt.Errorf("--request-timeout: must be more than 0")
	}
	return nil
}
