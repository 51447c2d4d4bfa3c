package installer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	documents "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func migrateCommand(a *console.App) *cobra.Command {
	check := a.Command("check FILE", "which flags of Kyma's lifecycle-manager stay, change or are removed", `
klm reads the Deployment of Kyma's lifecycle-manager, YAML or JSON, from a file or, with -, from standard input. It shows each flag and variable
that needs a decision, with the reason, and the values for klm install. No request is sent to a cluster. Exit code 3 means that a value is not
valid for this manager.`, `
kubectl -n kcp-system get deployment klm-controller-manager -o yaml | klm migrate check -
klm migrate check deployment.yaml -o json | jq -r .values`,
		console.Arguments("FILE"), func(_ *cobra.Command, args []string) error {
			data, err := a.ReadInput("FILE", args[0])
			if err != nil {
				return err
			}
			container, err := formerManager(data)
			if err != nil {
				return console.Fail(console.ExitUsage, "%s: %v", args[0], err)
			}
			r := checkMigration(container)
			if err := a.Print(r); err != nil {
				return err
			}
			if r.Invalid > 0 {
				return console.Fail(console.ExitNotReady, "%s not valid for this manager: correct it first",
					console.Count(r.Invalid, "value")+isOrAre(r.Invalid))
			}
			return nil
		})
	return a.Group("migrate", "move from Kyma's lifecycle-manager to this manager",
		"The steps are in docs/guide/migration.md.", "klm migrate check deployment.yaml", check)
}

func isOrAre(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// migrationReport is the report of klm migrate check.
type migrationReport struct {
	Flags []migratedFlag `json:"flags"`
	// Values are the values for klm install --values, as YAML.
	Values string `json:"values"`
	// Invalid is the number of flags whose value this manager refuses.
	Invalid int `json:"invalid"`
}

// A migration reports one of these results for each flag of the former manager.
const (
	flagKept    = "kept"
	flagRemoved = "removed"
	flagCheck   = "check"   // the flag has another meaning: a person has to decide
	flagInvalid = "invalid" // this manager refuses the value
)

// migratedFlag is one flag or environment variable of Kyma's lifecycle-manager.
type migratedFlag struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	Result string `json:"result"`
	Reason string `json:"reason,omitempty"`
}

func (r *migrationReport) Names() []string {
	var names []string
	for _, f := range r.Flags {
		names = append(names, f.Name)
	}
	return names
}

func (r *migrationReport) Show(p *console.Page) {
	var rows [][]string
	for _, f := range r.Flags {
		rows = append(rows, []string{f.Name, console.OrDash(p.Clip(f.Value, 40)), f.Result, f.Reason})
	}
	p.Table([]string{"FLAG", "VALUE", "RESULT", "REASON"}, rows)
	p.Line("")
	p.Line("Values for klm install --values=FILE:")
	p.Line("")
	p.Line("%s", strings.TrimSuffix(r.Values, "\n"))
}

// formerManager finds the container of Kyma's lifecycle-manager in a file with one or several objects. If there are
// several containers, formerManager returns the container that has the most flags of Kyma's lifecycle-manager.
func formerManager(data []byte) (*corev1.Container, error) {
	var best *corev1.Container
	most := 0
	decoder := documents.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		d := &appsv1.Deployment{}
		err := decoder.Decode(d)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading a Deployment: %w", err)
		}
		for i := range d.Spec.Template.Spec.Containers {
			c := &d.Spec.Template.Spec.Containers[i]
			if n := len(parseFlags(c)); d.Kind == "Deployment" && n > most {
				best, most = c, n
			}
		}
	}
	if best == nil {
		return nil, errors.New("it has no Deployment with a container that has flags")
	}
	return best, nil
}

// parseFlags returns the flags in the command and the arguments of a container, in their order. Flags may have one dash
// or two, and their value after = or as the next argument.
func parseFlags(c *corev1.Container) []migratedFlag {
	var flags []migratedFlag
	for _, arg := range slices.Concat(c.Command, c.Args) {
		name, isFlag := strings.CutPrefix(arg, "-")
		name = strings.TrimPrefix(name, "-")
		switch {
		case isFlag:
			name, value, _ := strings.Cut(name, "=")
			flags = append(flags, migratedFlag{Name: "--" + name, Value: value})
		case len(flags) > 0 && flags[len(flags)-1].Value == "":
			flags[len(flags)-1].Value = arg
		}
	}
	return flags
}

// checkMigration checks for each flag and each environment variable of Kyma's lifecycle-manager whether it can be kept
// with this manager. The first row of this table whose condition is true is the result for a flag:
//
//	1  the flag was removed                           removed
//	2  the flag has another meaning                   check
//	3  the flag is unknown                            removed
//	4  this manager cannot parse or accept the value  invalid
//	5  any other flag                                 kept
func checkMigration(c *corev1.Container) *migrationReport {
	r := &migrationReport{}
	m, known := config.DefaultManager(), pflag.NewFlagSet("lifecycle-manager", pflag.ContinueOnError)
	m.Register(known)
	known.SetOutput(io.Discard)
	for _, f := range parseFlags(c) {
		name := strings.TrimPrefix(f.Name, "--")
		switch former := config.FormerFlags[name]; {
		case former.Instead != "":
			f.Result, f.Reason = flagRemoved, former.Instead
		case former.Changed != "":
			f.Result, f.Reason = flagCheck, former.Changed
		case known.Lookup(name) == nil:
			f.Result, f.Reason = flagRemoved, "this manager has no such flag: correct its name, or leave it out"
		default:
			f.Result = flagKept
			value := f.Value
			if value == "" {
				value = known.Lookup(name).NoOptDefVal
			}
			if err := known.Set(name, value); err != nil {
				f.Result, f.Reason = flagInvalid, err.Error()
			}
		}
		r.Flags = append(r.Flags, f)
	}
	// Validate checks the flags of the listener only if the address of the listener is set.
	m.ListenerAddress = cmp.Or(m.ListenerAddress, "example.com:443")
	r.markAndCountInvalidFlags(m.Validate())
	for _, e := range c.Env {
		if result, reason := checkVariable(e.Name); result != "" {
			r.Flags = append(r.Flags, migratedFlag{Name: "$" + e.Name, Value: e.Value, Result: result, Reason: reason})
		}
	}
	r.Values = valuesFor(r.Flags)
	return r
}

// markAndCountInvalidFlags marks the flags in the migration report whose values Validate refuses, and counts all flags
// that are marked as invalid. Errors about flags that the migration report does not contain are ignored, because klm
// install sets the flags that are not in the report by values of the chart.
func (r *migrationReport) markAndCountInvalidFlags(validateErr error) {
	if validateErr != nil {
		for line := range strings.Lines(validateErr.Error()) {
			name, problem, _ := strings.Cut(strings.TrimSpace(line), ": ")
			for i := range r.Flags {
				if f := &r.Flags[i]; f.Name == name && f.Result == flagKept {
					f.Result, f.Reason = flagInvalid, problem
				}
			}
		}
	}
	for _, f := range r.Flags {
		if f.Result == flagInvalid {
			r.Invalid++
		}
	}
}

// checkVariable checks what happens to an environment variable in the Deployment of Kyma's lifecycle-manager when this
// manager replaces it. If the returned result is "", the migration report does not list the environment variable.
func checkVariable(name string) (result, reason string) {
	switch {
	case name == "ENABLE_LEGACY_KYMA_DELETION" || strings.HasPrefix(name, "KLM_EXPERIMENTAL_"):
		return flagRemoved, "it has no effect"
	case name == "GODEBUG" || strings.HasSuffix(strings.ToUpper(name), "_PROXY"):
		return flagCheck, "set it with the value extraEnv"
	}
	return "", ""
}

// chartValues maps flags of the manager to their keys under the key registry in the values of the chart. If a flag is
// mapped to "", the template of the chart sets the flag, and no value is needed.
var chartValues = map[string]string{
	"--oci-registry-host": "host", "--oci-registry-cred-secret": "credentialsSecret",
	"--modules-repository-subpath": "subpath", "--health-probe-bind-address": "",
}

// valuesFor returns the chart values that set the flags whose values are kept in the migration.
func valuesFor(flags []migratedFlag) string {
	registry, args := map[string]string{}, []string{}
	for _, f := range flags {
		key, isValue := chartValues[f.Name]
		switch {
		case f.Result != flagKept:
		case key != "":
			registry[key] = f.Value
		case isValue:
		case f.Value == "":
			args = append(args, f.Name)
		default:
			args = append(args, f.Name+"="+f.Value)
		}
	}
	values := map[string]any{}
	if len(registry) > 0 {
		values["registry"] = registry
	}
	if len(args) > 0 {
		values["extraArgs"] = args
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return string(text)
}
