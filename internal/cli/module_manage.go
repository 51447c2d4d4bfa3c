package cli

import "github.com/spf13/cobra"

func (a *app) moduleManageCommand() *cobra.Command {
	var policy string
	var wait waiting
	c := a.command("manage MODULE [--policy POLICY]", "have a module looked after again that was handed over, and wait until it is ready", "", `
klm module manage sample
klm module manage sample --policy Ignore`,
		arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			if err := (&enabling{policy: policy}).validate(); err != nil {
				return err
			}
			return a.changeModule(cmd.Context(), args[0], false, wait, func(w *wish) error {
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
	c.ValidArgsFunction = completing(a.enabledModules)
	c.Flags().StringVar(&policy, "policy", "", "what becomes of its custom resource: CreateAndDelete or Ignore; empty: as it is")
	wait.register(c.Flags())
	completeFlag(c, "policy", fixed(policies...))
	return c
}

func (a *app) moduleUnmanageCommand() *cobra.Command {
	var wait waiting
	c := a.command("unmanage MODULE", "hand a module over to you: what is installed stays, and is not looked after any more", "", `
klm module unmanage sample`,
		arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			return a.changeModule(cmd.Context(), args[0], true, wait, func(w *wish) error {
				entry, err := w.enabled(args[0])
				if err != nil {
					return err
				}
				entry["managed"] = false
				return nil
			})
		})
	c.ValidArgsFunction = completing(a.enabledModules)
	wait.register(c.Flags())
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
	return nil, fail(exitNotFound, "module %q is not enabled: %s", module, instead(module, all))
}
