package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// flagsPage returns the page of the flags of the manager and the agent. The flags of klm are on the page of klm.
func flagsPage(string) (string, error) {
	var b strings.Builder
	b.WriteString(head("Flags", "internal/config"))
	b.WriteString("The flags of klm are in [klm.md](klm.md).\n" +
		"A flag that the Kyma project's lifecycle-manager also has means the same and takes the same values.\n")
	manager, agent := pflag.NewFlagSet("manager", pflag.ContinueOnError),
		pflag.NewFlagSet("agent", pflag.ContinueOnError)
	config.DefaultManager().Register(manager)
	a, _ := config.NewAgent()
	a.Register(agent)
	b.WriteString("\n## lifecycle-manager\n\n")
	writeFlags(&b, manager)
	b.WriteString("\n## runtime-watcher\n\nThis is the agent in runtimes.\n" +
		"The manager sets its flags; see [backchannel.md](../guide/backchannel.md).\n\n")
	writeFlags(&b, agent)
	return b.String(), nil
}

// writeFlags writes a table of the flags, sorted by name.
func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | default | |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", flagWithShorthand(f), defaultOf(f), cell(f.Usage))
		}
	})
}

// flagWithShorthand returns the flag in the form for the command line, with its shorthand if it has one.
func flagWithShorthand(f *pflag.Flag) string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	return name
}

// zeroUnits matches the trailing units of a duration whose value is zero, such as 0s in 5m0s.
var zeroUnits = regexp.MustCompile(`([hm])0[ms](0s)?$`)

// defaultOf returns the default value of a flag as Markdown code. defaultOf returns "" if the default is empty.
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
