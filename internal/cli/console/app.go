package console

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// Streams are the input and output of a command. Reports are written to Out; progress and errors are written to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// App is one invocation of klm: its streams, its settings and its clock.
type App struct {
	Streams
	Config *config.Klm
	Name   string // the name with which the user calls the program: klm, or kubectl lifecycle
	Now    func() time.Time
}

// Group returns a command that only has subcommands.
func (a *App) Group(use, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	g := a.Command(use, short, long, example, cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		return Fail(ExitUsage, "there is no command %q: %s", args[0], SuggestionText(args[0], names))
	})
	g.AddCommand(commands...)
	return g
}

// Command returns a command that calls the function run. Each line of the parameter example begins with klm. The help
// shows these lines with the name by which the user calls the program, such as kubectl lifecycle.
func (a *App) Command(use, short, long, example string, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	example = strings.ReplaceAll("\n"+strings.TrimSpace(example), "\nklm ", "\n  "+a.Name+" ")
	return &cobra.Command{
		Use: use, Short: short, Long: strings.TrimSpace(strings.ToUpper(short[:1]) + short[1:] + ".\n" + long),
		Example: strings.TrimPrefix(example, "\n"),
		Args:    args, DisableFlagsInUseLine: true, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			if errors.Is(err, context.Canceled) {
				return Fail(ExitFailed, "interrupted")
			}
			return err
		},
	}
}

// Arguments returns a check of the number of arguments. The parameter "names" contains the names of all arguments, in
// their order. An argument whose name is in brackets is optional.
func Arguments(names ...string) cobra.PositionalArgs {
	required := 0
	for _, n := range names {
		if !strings.HasPrefix(n, "[") {
			required++
		}
	}
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < required:
			return Fail(ExitUsage, "%s is missing", names[len(args)])
		case len(args) > len(names):
			return Fail(ExitUsage, "unexpected argument %q", args[len(names)])
		case slices.Contains(args, ""):
			return Fail(ExitUsage, "%s must not be empty", names[slices.Index(args, "")])
		}
		return nil
	}
}
