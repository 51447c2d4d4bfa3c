package cli

import "github.com/spf13/cobra"

func (a *app) moduleWhyCommand() *cobra.Command {
	c := a.command("why [MODULE]", "what a runtime shall have, what it has, what comes next, and what is in the way",
		"It is what the runtime knows; klm why in the control plane knows more.", `
klm module why
klm module why sample`,
		arguments("[MODULE]"), func(cmd *cobra.Command, args []string) error {
			c, err := a.runtime(cmd.Context())
			if err != nil {
				return err
			}
			module := ""
			if len(args) > 0 {
				module = args[0]
			}
			facts, err := c.factsOf(cmd.Context(), c.wish, module)
			if err != nil {
				return err
			}
			facts.now = a.now()
			return a.print(facts.explain(module))
		})
	c.ValidArgsFunction = completing(a.enabledModules)
	return c
}
