package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// TestCommands checks that each verb and flag of klm in the documentation exists, both in commands and in sentences.
// The tests of the guides run most commands of the documentation. TestCommands also checks commands that cannot be run,
// and commands in `code` within a sentence.
func TestCommands(t *testing.T) {
	files := []string{"../README.md", "../SCOPE.md", "../ARCHITECTURE.md", "../CONTRIBUTING.md", "../CHANGELOG.md"}
	for _, pattern := range []string{"*.md", "guide/*.md", "reference/*.md", "adr/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, found...)
	}
	root, n := cli.Tree(), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commandsIn(string(text)) {
			n++
			if err := existing(root, c); err != nil {
				t.Errorf("%s: %q: %v", file, c, err)
			}
		}
	}
	if n < 300 {
		t.Errorf("found %d commands: are pages still written as before?", n)
	}
}

var (
	span  = regexp.MustCompile("`klm ([^`]+)`")
	typed = regexp.MustCompile(`(?m)^ *(?:\$ )?klm (.+)$`)
	// after matches the text that ends a command in a shell.
	after = regexp.MustCompile(`\s(#|\|\|?|&&|>|2>)\s.*$|;.*$`)
	// quoted is one argument.
	quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)
)

// commandsIn returns the arguments of all calls of klm in the lines of code blocks and in inline code.
func commandsIn(page string) (all []string) {
	for i, part := range strings.Split(page, "```") {
		expression := span
		if i%2 == 1 {
			expression = typed
		}
		for _, m := range expression.FindAllStringSubmatch(part, -1) {
			all = append(all, strings.TrimSpace(after.ReplaceAllString(quoted.ReplaceAllString(m[1], "TEXT"), "")))
		}
	}
	return all
}

// existing returns an error if a command has a verb or a flag that does not exist.
func existing(root *cobra.Command, command string) error {
	words := strings.Fields(command)
	c := root
	for len(words) > 0 && c.HasSubCommands() {
		word, _, _ := strings.Cut(words[0], "|") // in a usage line
		next, _, err := c.Find([]string{word})
		if err != nil || next == c {
			break
		}
		c, words = next, words[1:]
	}
	if c.HasSubCommands() && len(words) > 0 && !strings.HasPrefix(words[0], "-") && words[0] != "…" {
		return fmt.Errorf("%s has no verb %s", c.CommandPath(), words[0])
	}
	for _, word := range words {
		name, isLong := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(strings.Trim(name, "[].,"), "=")
		switch {
		case isLong && name != "" && name != "…" && name != "help" && name != "version" &&
			c.Flags().Lookup(name) == nil && c.InheritedFlags().Lookup(name) == nil:
			return fmt.Errorf("%s has no flag --%s", c.CommandPath(), name)
		case !isLong && len(word) > 1 && word[0] == '-' && c.Flags().ShorthandLookup(word[1:2]) == nil &&
			c.InheritedFlags().ShorthandLookup(word[1:2]) == nil:
			return fmt.Errorf("%s has no flag -%s", c.CommandPath(), word[1:2])
		}
	}
	return nil
}

// foreignFlags are flags of other programs, by program.
var foreignFlags = map[string]string{
	"copy-resources": "ocm", "create-namespace": "helm", "enable-feature": "prometheus", "force-conflicts": "kubectl",
	"help": "all", "private-key": "ocm",
}

// TestFlags checks that each flag in a sentence of the guides belongs to a program of this project, unless the page is
// about other programs.
func TestFlags(t *testing.T) {
	known := pflag.NewFlagSet("all", pflag.ContinueOnError)
	config.DefaultManager().Register(known)
	ofAgent, agent := pflag.NewFlagSet("agent", pflag.ContinueOnError), new(config.Agent)
	agent.Register(ofAgent)
	known.AddFlagSet(ofAgent)
	var add func(*cobra.Command)
	add = func(c *cobra.Command) {
		known.AddFlagSet(c.Flags())
		known.AddFlagSet(c.PersistentFlags())
		for _, sub := range c.Commands() {
			add(sub)
		}
	}
	add(cli.Tree())
	pages, err := filepath.Glob("guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, page := range pages {
		if filepath.Base(page) == "migration.md" { // package config tests it
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`--([a-z][-a-z0-9]*)[^`]*`").FindAllStringSubmatch(string(text), -1) {
			seen[m[1]] = true
			if foreignFlags[m[1]] == "" && known.Lookup(m[1]) == nil {
				t.Errorf("%s: no program has the flag --%s", page, m[1])
			}
		}
	}
	for name := range foreignFlags {
		if !seen[name] {
			t.Errorf("no page names the flag --%s any more", name)
		}
	}
}

// TestExisting checks which verbs and flags are reported by the function named existing.
func TestExisting(t *testing.T) {
	for page, want := range map[string]string{
		"Use `klm runtime remove RUNTIME --cluster-is-gone`.":  "",
		"```sh\nklm status -o json || true   # --nothing\n```": "",
		"```sh\nklm why a | grep --colour b\n```":              "",
		"The `klm module` commands":                            "",
		"Use `klm runtime delete a`.":                          "klm runtime has no verb delete",
		"Use `klm stat`.":                                      "klm has no verb stat",
		"```sh\nklm why a --watched\n```":                      "klm why has no flag --watched",
		"```sh\nklm why a -x\n```":                             "klm why has no flag -x",
	} {
		commands := commandsIn(page)
		if len(commands) != 1 {
			t.Errorf("%q has the commands %q", page, commands)
			continue
		}
		err := existing(cli.Tree(), commands[0])
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: %v, want %q", page, err, want)
		}
	}
}
