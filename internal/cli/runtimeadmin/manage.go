package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func manageCommand(a *console.App) *cobra.Command {
	var policy string
	var o moduleChange
	c := a.Command("manage MODULE [--policy POLICY]",
		"let the control plane manage an unmanaged module again, and wait until it is ready", "", `
klm module manage sample
klm module manage sample --policy Ignore`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			if err := (&enableOptions{policy: policy}).validate(); err != nil {
				return err
			}
			return changeModuleRequestAndWait(cmd.Context(), a, args[0], o, func(w *edit) error {
				entry, err := w.existingEntry(args[0])
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
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a))
	c.Flags().StringVar(&policy, "policy", "",
		"policy for its default custom resource: CreateAndDelete or Ignore; empty: unchanged")
	o.ChangeFlags.Register(c.Flags())
	console.CompleteFlag(c, "policy", console.FixedNames(policies...))
	return c
}

func unmanageCommand(a *console.App) *cobra.Command {
	o := moduleChange{force: true} // nothing is installed, so the catalog does not matter
	c := a.Command("unmanage MODULE", "stop managing a module: its objects stay, and nothing manages them any more", "",
		`
klm module unmanage sample`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			return changeModuleRequestAndWait(cmd.Context(), a, args[0], o, func(w *edit) error {
				entry, err := w.existingEntry(args[0])
				if err != nil {
					return err
				}
				entry["managed"] = false
				return nil
			})
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a))
	o.ChangeFlags.Register(c.Flags())
	return c
}

// existingEntry returns the entry of a module. existingEntry returns an error if the module is not enabled.
func (w *edit) existingEntry(module string) (map[string]any, error) {
	if entry := w.entryOf(module); entry != nil {
		return entry, nil
	}
	var all []string
	for _, m := range w.kyma.Spec.Modules {
		all = append(all, m.Name)
	}
	return nil, console.Fail(console.ExitNotFound, "module %q is not enabled: %s", module,
		console.SuggestionText(module, all))
}
