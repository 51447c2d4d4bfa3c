package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// flagsPage lists the flags of the programs that run on clusters; those of klm are on its own page.
func flagsPage(string) (string, error) {
	var b strings.Builder
	b.WriteString(head("Flags", "internal/config"))
	b.WriteString("Those of klm are in [klm.md](klm.md). A flag that the Kyma project's lifecycle-manager also has means the same and takes the same values.\n")
	manager, agent := pflag.NewFlagSet("manager", pflag.ContinueOnError), pflag.NewFlagSet("agent", pflag.ContinueOnError)
	config.NewManager().Register(manager)
	a, _ := config.NewAgent()
	a.Register(agent)
	b.WriteString("\n## lifecycle-manager\n\n")
	writeFlags(&b, manager)
	b.WriteString("\n## runtime-watcher\n\nThe agent in runtimes. The manager sets what it needs; see [backchannel.md](../guide/backchannel.md).\n\n")
	writeFlags(&b, agent)
	return b.String(), nil
}

// writeFlags writes a table of the flags, by name.
func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | default | |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", flagName(f), defaultOf(f), cell(f.Usage))
		}
	})
}

func flagName(f *pflag.Flag) string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	return name
}

// zeroUnits are the parts of a duration that say nothing, as in 5m0s.
var zeroUnits = regexp.MustCompile(`([hm])0[ms](0s)?$`)

func defaultOf(f *pflag.Flag) string {
	value := f.DefValue
	if f.Value.Type() == "duration" && value != "0s" {
		value = zeroUnits.ReplaceAllString(value, "$1")
	}
	if value == "" || value == "[]" {
		return ""
	}
	return "`" + strings.TrimSuffix(strings.TrimPrefix(value, "["), "]") + "`"
}
