package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func manageCommand(a *console.App) *cobra.Command {
	var policy string
	var wait console.WaitFlags
	c := a.Command("manage MODULE [--policy POLICY]", "have a module looked after again that was handed over, and wait until it is ready", "", `
klm module manage sample
klm module manage sample --policy Ignore`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			if err := (&enabling{policy: policy}).validate(); err != nil {
				return err
			}
			return changeModule(cmd.Context(), a, args[0], false, wait, func(w *wish) error {
				entry, err := w.enabled(args[0])
				if err != nil {
					return err
				}
				entry["managed"] = true
				if policy != "" {
					entry["customResourcePolicy"] = policy
				}
				return nil
			})
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.EnabledModules(a))
	c.Flags().StringVar(&policy, "policy", "", "what becomes of its custom resource: CreateAndDelete or Ignore; empty: as it is")
	wait.Register(c.Flags())
	console.CompleteFlag(c, "policy", console.FixedNames(policies...))
	return c
}

func unmanageCommand(a *console.App) *cobra.Command {
	var wait console.WaitFlags
	c := a.Command("unmanage MODULE", "hand a module over to you: what is installed stays, and is not looked after any more", "", `
klm module unmanage sample`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			return changeModule(cmd.Context(), a, args[0], true, wait, func(w *wish) error {
				entry, err := w.enabled(args[0])
				if err != nil {
					return err
				}
				entry["managed"] = false
				return nil
			})
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.EnabledModules(a))
	wait.Register(c.Flags())
	return c
}

// enabled returns the entry of a module, and fails if it is not enabled.
func (w *wish) enabled(module string) (map[string]any, error) {
	if entry := w.entry(module); entry != nil {
		return entry, nil
	}
	var all []string
	for _, m := range w.kyma.Spec.Modules {
		all = append(all, m.Name)
	}
	return nil, console.Fail(console.ExitNotFound, "module %q is not enabled: %s", module, console.Suggest(module, all))
}
