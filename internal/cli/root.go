// Package cli is klm, the client for three people: the operator of a fleet, the admin of a runtime, the author of a module.
//
// # Use
//
//	os.Exit(cli.Run(ctx, config.NewKlm(), os.Args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
//
// # How it works
//
// One file a verb: it reads objects, makes a report of them, and prints that in the format of -o. What is decided is decided by other packages:
// which version a module gets by package channel, which kubeconfig is acceptable by package runtimes, and what is wrong, and why, is in the
// status of the objects already. So klm says nothing that the manager does not say.
//
// It finds its cluster as kubectl does, and asks it which kinds it serves: one with Manifests is a control plane, one without is a runtime.
// Verbs that list a fleet read it in chunks and keep of each runtime what they show, see fleet.go. Verbs that change something check first,
// change only the field that is meant, under the version of the object that was checked, and wait until the status says that it is done.
//
// Errors have exit codes, see error.go.
//
// # What it does not do
//
// It needs no server of its own and keeps nothing on disk. It never forces its way: neither finalizers nor the fields of others are touched.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// fieldOwner owns what klm writes.
const fieldOwner = "klm"

// Streams are what a command reads from and writes to. Answers go to Out, progress and errors to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is one call of klm.
type app struct {
	Streams
	config *config.Klm
	name   string // as the user calls it: klm, or kubectl lifecycle
	now    func() time.Time
}

// Run runs the command line args, of which the first is the name of the program, and returns the exit code.
func Run(ctx context.Context, c *config.Klm, args []string, s Streams) int {
	a := &app{Streams: s, config: c, name: nameOf(args[0]), now: time.Now}
	root := a.root()
	root.SetArgs(args[1:])
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	called, err := root.ExecuteContextC(ctx)
	if err != nil {
		fmt.Fprintf(s.Err, "%s: %v\n", a.name, err)
		if codeOf(err) == exitUsage {
			fmt.Fprintf(s.Err, "see %s --help\n", called.CommandPath())
		}
	}
	return codeOf(err)
}

// nameOf returns what the user calls the program: kubectl finds a plugin by the name of its file.
func nameOf(file string) string {
	if plugin, is := strings.CutPrefix(strings.TrimSuffix(filepath.Base(file), ".exe"), "kubectl-"); is {
		return "kubectl " + strings.ReplaceAll(plugin, "_", "-")
	}
	return "klm"
}

// root returns the whole tree of commands.
func (a *app) root() *cobra.Command {
	root := a.group("klm", "client of the lifecycle manager: modules on a fleet of clusters", `
Operators of a fleet use it with a control plane, admins of a runtime with their cluster: klm finds out which one it talks to. It reads
kubeconfigs as kubectl does.

Exit codes:
  0  done
  1  failed
  2  the command line is wrong
  3  not ready yet, or something is in the way: the message says what
  4  what was named does not exist
  5  a permission is missing, or the credentials are not accepted
  6  no cluster, one that does not answer, or the wrong one`, `
klm status                                   # the fleet at a glance
klm why runtime-a                            # what is in the way there
klm module enable sample --channel fast      # in a runtime: have a module, and wait until it is ready
klm completion bash > /etc/bash_completion.d/klm`,
		a.statusCommand(), a.whyCommand(), a.diffCommand(), a.runtimeCommand(), a.channelCommand(), a.catalogCommand(), a.moduleCommand(), a.installCommand(), a.uninstallCommand(), a.supportDumpCommand(),
	)
	if a.name != "klm" {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: a.name}
	}
	root.Version = config.Version
	root.SilenceErrors, root.SilenceUsage = true, true
	a.config.Register(root.PersistentFlags())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fail(exitUsage, "%v", err) })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.config.Validate(); err != nil {
			return fail(exitUsage, "%v", err)
		}
		return nil
	}
	if err := root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(config.Formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was registered above
	}
	if err := root.RegisterFlagCompletionFunc("context", a.completeContexts); err != nil {
		panic(err) // likewise
	}
	return root
}

// group returns a command that only has others.
func (a *app) group(use, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	g := a.command(use, short, long, example, cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		return fail(exitUsage, "there is no command %q: %s", args[0], instead(args[0], names))
	})
	g.AddCommand(commands...)
	return g
}

// command returns a command. The example is given as for klm.
func (a *app) command(use, short, long, example string, args cobra.PositionalArgs, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	example = strings.ReplaceAll("\n"+strings.TrimSpace(example), "\nklm ", "\n  "+a.name+" ")
	return &cobra.Command{
		Use: use, Short: short, Long: strings.TrimSpace(strings.ToUpper(short[:1]) + short[1:] + ".\n" + long), Example: strings.TrimPrefix(example, "\n"),
		Args: args, DisableFlagsInUseLine: true, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			if errors.Is(err, context.Canceled) {
				return fail(exitFailed, "interrupted")
			}
			return err
		},
	}
}

// arguments checks the number of arguments by their names: those in brackets may be left out.
func arguments(names ...string) cobra.PositionalArgs {
	least := 0
	for _, n := range names {
		if !strings.HasPrefix(n, "[") {
			least++
		}
	}
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fail(exitUsage, "%s is missing", names[len(args)])
		case len(args) > len(names):
			return fail(exitUsage, "%q is too much", args[len(names)])
		case slices.Contains(args, ""):
			return fail(exitUsage, "%s must not be empty", names[slices.Index(args, "")])
		}
		return nil
	}
}
