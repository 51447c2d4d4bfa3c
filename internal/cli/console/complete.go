package console

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// Completion returns what may stand at a place of the command line, for the shell.
type Completion = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// completionTimeout bounds what a person waits for who has pressed the tab key.
const completionTimeout = 3 * time.Second

// NameSource is a source of names. What goes wrong is no news to a shell.
type NameSource func(ctx context.Context, args []string) []string

// CompleteArguments completes the arguments in their order; the last source is for those that follow, too, if more is set.
func CompleteArguments(sources ...NameSource) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(sources) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found := sources[len(args)](ctx, args)
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFlag completes a flag that the command has.
func CompleteFlag(cmd *cobra.Command, flag string, source NameSource) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		return source(ctx, args), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag: any test finds that
	}
}

// FixedNames is a source of names that are always the same.
func FixedNames(all ...string) NameSource {
	return func(context.Context, []string) []string { return all }
}
