package console

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// Completion returns the possible values of an argument or a flag, for the shell.
type Completion = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// completionTimeout is the maximum time that a shell waits for completions.
const completionTimeout = 3 * time.Second

// NameSource returns names for completion. If the names cannot be read, NameSource returns no names, because a shell
// shows no errors during completion.
type NameSource func(ctx context.Context, args []string) []string

// CompleteArguments returns shell completion for arguments: the first source suggests names for the first argument, the
// second source for the second argument, and so on. Arguments without a source are not completed.
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

// CompleteFlag adds shell completion for a flag of a command: the source suggests values of the flag. CompleteFlag
// panics if the command does not have the flag.
func CompleteFlag(cmd *cobra.Command, flag string, source NameSource) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, _ string) (
		[]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		return source(ctx, args), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the command does not have the flag: each test finds this mistake
	}
}

// FixedNames returns a source that always returns the given names.
func FixedNames(all ...string) NameSource {
	return func(context.Context, []string) []string { return all }
}
