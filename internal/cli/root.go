// Package cli is klm, the client for three people: the operator of a fleet, the admin of a runtime, the author of a
// module.
//
// # Use
//
//	os.Exit(cli.Run(ctx, config.NewKlm(), os.Args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
//
// # How it works
//
// One package for each audience, which has one file for each command: fleetadmin and channeladmin for the platform
// team, runtimeadmin for the admin of a runtime, moduleauthor for authors of modules, installer for who installs the
// manager, supportdump for all of them. They stand on console (the frame of commands, output, errors), connection
// (clusters), fleetlist (lists of Kymas), diagnosis (the state of a runtime), and ocmaccess.
//
// A command reads objects, makes a report of them, and prints that in the format of -o. What is decided is decided by
// other packages: which version a module gets by package channel, which kubeconfig is acceptable by package runtimes,
// and what is wrong, and why, is in the status of the objects already. So klm says nothing that the manager does not
// say.
//
// It finds its cluster as kubectl does, and asks it which kinds it serves: one with Manifests is a control plane, one
// without is a runtime. Verbs that list a fleet read it in chunks and keep of each runtime what they show, see
// package fleetlist. Verbs that change something check first, change only the field that is meant, under the version
// of the object that was checked, and wait until the status says that it is done.
//
// Errors have exit codes, see package console.
//
// # What it does not do
//
// It needs no server of its own and keeps nothing on disk. It never forces its way: neither finalizers nor the fields
// of others are touched.
package cli

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/channeladmin"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetadmin"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/installer"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/supportdump"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func completeContexts(a *console.App) console.Completion {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = a.Config.Kubeconfig
		raw, err := rules.Load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
	}
}

// Streams are what a command reads from and writes to. Answers go to Out, progress and errors to Err.
type Streams = console.Streams

// Run runs the command line args, of which the first is the name of the program, and returns the exit code.
func Run(ctx context.Context, c *config.Klm, args []string, s Streams) int {
	a := &console.App{Streams: s, Config: c, Name: nameOf(args[0]), Now: time.Now}
	root := root(a)
	root.SetArgs(args[1:])
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	called, err := root.ExecuteContextC(ctx)
	if err != nil {
		fmt.Fprintf(s.Err, "%s: %v\n", a.Name, err)
		if console.ExitCode(err) == console.ExitUsage {
			fmt.Fprintf(s.Err, "see %s --help\n", called.CommandPath())
		}
	}
	return console.ExitCode(err)
}

// nameOf returns what the user calls the program: kubectl finds a plugin by the name of its file.
func nameOf(file string) string {
	if plugin, is := strings.CutPrefix(strings.TrimSuffix(filepath.Base(file), ".exe"), "kubectl-"); is {
		return "kubectl " + strings.ReplaceAll(plugin, "_", "-")
	}
	return "klm"
}

// root returns the whole tree of commands.
func root(a *console.App) *cobra.Command {
	root := a.Group("klm", "client of the lifecycle manager: modules on a fleet of clusters", `
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
		slices.Concat(fleetadmin.Commands(a), channeladmin.Commands(a), installer.Commands(a), []*cobra.Command{moduleCommand(a), supportdump.Command(a)})...,
	)
	if a.Name != "klm" {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: a.Name}
	}
	root.Version = config.Version
	root.SilenceErrors, root.SilenceUsage = true, true
	a.Config.Register(root.PersistentFlags())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return console.Fail(console.ExitUsage, "%v", err) })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.Config.Validate(); err != nil {
			return console.Fail(console.ExitUsage, "%v", err)
		}
		return nil
	}
	if err := root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(config.Formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was registered above
	}
	if err := root.RegisterFlagCompletionFunc("context", completeContexts(a)); err != nil {
		panic(err) // likewise
	}
	return root
}

// Tree returns all commands as they are without any environment, to write a reference of. They are not to be run: see
// [Run].
func Tree() *cobra.Command {
	c := config.NewKlm()
	c.NoColor = false
	return root(&console.App{Config: c, Name: "klm", Now: time.Now})
}
