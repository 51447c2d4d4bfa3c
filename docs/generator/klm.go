package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli"
)

// klmPage returns the page of klm, with its verbs and their flags.
func klmPage(string) (string, error) {
	root := cli.Tree()
	var b strings.Builder
	b.WriteString(head("klm", "its own help"))
	b.WriteString("The guide to klm is [klm.md](../guide/klm.md).\n\n")
	var verbs []*cobra.Command
	collectVerbs(root, &verbs)
	for _, c := range verbs {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
	}
	b.WriteString("\n## Flags of all verbs\n\n")
	writeFlags(&b, root.PersistentFlags())
	b.WriteString("\n`klm --version` prints the version of klm, and `--help` of every verb prints its help.\n")
	for _, c := range verbs {
		writeVerb(&b, c)
	}
	return b.String(), nil
}

// collectVerbs appends every command without subcommands to the slice all, sorted by name. The reference shows the
// subcommands of klm completion (one for each shell) as the values of an argument.
func collectVerbs(c *cobra.Command, all *[]*cobra.Command) {
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "help" {
			continue
		}
		if sub.HasSubCommands() && sub.Name() != "completion" {
			collectVerbs(sub, all)
			continue
		}
		*all = append(*all, sub)
	}
}

// writeVerb writes the section of one verb: its description, usage, examples and own flags.
func writeVerb(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```text\n%s\n```\n", c.CommandPath(), escapePlaceholders(c.Long), c.UseLine())
	if c.HasExample() {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", unindent(c.Example))
	}
	own := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			own.AddFlag(f)
		}
	})
	if own.HasAvailableFlags() {
		b.WriteString("\n")
		writeFlags(b, own)
	}
}

// escapePlaceholders escapes placeholders such as <name>, which Markdown would interpret as HTML.
func escapePlaceholders(text string) string { return strings.ReplaceAll(text, "<", "\\<") }

// unindent removes the indentation by two spaces from the text of an example.
func unindent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
