// Package cli is klm, the client of the lifecycle manager: for the platform team of a fleet, for the admin of a
// runtime, and for the author of a module.
//
// # Use
//
//	os.Exit(cli.Run(ctx, config.NewKlm(), os.Args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
//
// # How it works
//
// This package contains only the root command. Subpackages contain all commands below the root command. Each subpackage
// is for one audience, and has one file for each command:
//
//	rolloutadmin               platform team: rollouts
//	fleetstatus                platform team: klm status
//	fleetadmin, channeladmin   platform team: runtimes; catalog and channels
//	runtimeadmin               admin of a runtime: klm module list, enable, …
//	moduleauthor               author of a module: klm module build, push, …
//	installer                  whoever installs the manager
//	checkup                    klm version, klm check
//	recovery                   platform team: klm backup, klm restore
//	supportdump                all of them
//	dashboard                  platform team: klm dashboard
//	fleetcalendar              platform team: klm calendar
//
// The commands use console (the frame of commands, output, errors), connection (clusters), fleetlist (lists of Kymas),
// diagnosis (the state of one runtime) and ocmaccess (registries and archives).
//
// A command reads objects, builds a report and prints it in the format of -o. Other packages make the decisions:
// package channel decides which version a module gets, and package runtimes decides which kubeconfig is acceptable. The
// reason why a module is blocked is read from the status of the objects. Therefore the output of klm never contradicts
// the manager.
//
// klm finds its cluster as kubectl does, and asks the API server which kinds of our API group the cluster serves: a
// cluster with Manifests is a control plane, a cluster without Manifests is a runtime. Commands that list a fleet read
// the fleet page by page and keep only the fields that the commands show. A command that changes an object first checks
// whether the change is possible, and what its effects are. After the check, the command writes only the changed field,
// with the resource version of the checked object, and waits until the status shows that the change is done.
//
// # What it does not do
//
// klm needs no server of its own and keeps nothing on disk. klm never removes finalizers, and never changes fields of
// other field managers.
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
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/checkup"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetadmin"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetcalendar"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetstatus"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/installer"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/recovery"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/rolloutadmin"
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

// Streams are the input and output of a command. Reports are written to Out, progress and errors to Err.
type Streams = console.Streams

// Run runs the command line argv, of which the first is the name of the program, and returns the exit code.
func Run(ctx context.Context, c *config.Klm, argv []string, s Streams) int {
	name, isCompletion := calledNameOf(argv[0])
	s.Err = console.WithoutControls(s.Err)
	a := &console.App{Streams: s, Config: c, Name: name, Now: time.Now}
	root := root(a)
	if argv = argv[1:]; isCompletion {
		argv = append([]string{cobra.ShellCompRequestCmd}, argv...)
	}
	root.SetArgs(argv)
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

// calledNameOf returns the name by which the user calls the program, for messages and help. If klm is a plugin of
// kubectl, its file is kubectl-NAME. For shell completion of the plugin, kubectl calls a file kubectl_complete-NAME: in
// this case, the result isCompletion is true.
func calledNameOf(file string) (name string, isCompletion bool) {
	file = strings.TrimSuffix(filepath.Base(file), ".exe")
	plugin, isCompletion := strings.CutPrefix(file, "kubectl_complete-")
	if !isCompletion {
		var isPlugin bool
		if plugin, isPlugin = strings.CutPrefix(file, "kubectl-"); !isPlugin {
			return "klm", false
		}
	}
	return "kubectl " + strings.ReplaceAll(plugin, "_", "-"), isCompletion
}

// root returns the whole tree of commands.
func root(a *console.App) *cobra.Command {
	root := a.Group("klm", "client of the lifecycle manager: modules on a fleet of clusters", `
Platform teams use it with a control plane, admins of a runtime with their cluster: klm detects which one it is connected to. It reads
kubeconfigs as kubectl does.

Exit codes:
  0  done
  1  failed
  2  the command line is wrong
  3  not ready yet, or blocked: the message says by what
  4  something with a name of the command line does not exist
  5  a permission is missing, or the credentials are not accepted
  6  no cluster is configured, it does not answer, or it is the wrong one
  7  no manager works in the control plane: the shown states may be old`, `
klm status                                   # the fleet at a glance
klm why runtime-a                            # why a runtime is not ready
klm module enable sample --channel fast      # in a runtime: enable a module, and wait until it is ready
klm completion bash > /etc/bash_completion.d/klm`,
		slices.Concat(fleetadmin.Commands(a), channeladmin.Commands(a),
			rolloutadmin.Commands(a, channeladmin.RolloutPlanCommand(a), channeladmin.RolloutUndoCommand(a)),
			installer.Commands(a), checkup.Commands(a, channeladmin.VersionWithdrawCommand(a)),
			recovery.Commands(a),
			[]*cobra.Command{fleetstatus.Command(a), fleetcalendar.Command(a), moduleCommand(a), supportdump.Command(a),
				dashboard.Command(a)})...,
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
	if err := root.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(config.Formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was registered above
	}
	if err := root.RegisterFlagCompletionFunc("context", completeContexts(a)); err != nil {
		panic(err) // this flag was registered above, too
	}
	return root
}

// Tree returns all commands for the reference in docs. The texts of the returned commands do not depend on environment
// variables. To run a command, use [Run].
func Tree() *cobra.Command {
	c := config.NewKlm()
	c.NoColor = false
	tree := root(&console.App{Config: c, Name: "klm", Now: time.Now})
	tree.InitDefaultCompletionCmd()
	for _, c := range tree.Commands() {
		if c.Name() == "completion" {
			c.Use, c.DisableFlagsInUseLine = "completion bash|fish|powershell|zsh", true
			c.Example = "  klm completion bash > /etc/bash_completion.d/klm"
		}
	}
	return tree
}
