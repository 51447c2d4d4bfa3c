package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func listCommand(a *console.App) *cobra.Command {
	var l console.Listing
	c := a.Command("list [--state STATE] [--reason REASON]…",
		"the modules of a runtime: what is requested, and what is installed",
		"klm catalog lists the modules that can be enabled.", `
klm module list
klm module list --state Error,Warning -o wide
klm module list --watch`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := connection.Runtime(cmd.Context(), a)
			if err != nil {
				return err
			}
			changed := func() <-chan struct{} { return c.KymaChanges(cmd.Context(), c.OwnKyma) }
			return console.PrintListing(cmd.Context(), a, &l, changed, func() (diagnosis.ModuleList, error) {
				k, err := c.Kyma(cmd.Context(), c.OwnKyma)
				if err != nil {
					return nil, err
				}
				return diagnosis.ListModules(k), nil
			}, func(m *diagnosis.ModuleRow) bool { return m.Matches(&l) })
		})
	l.Register(c, diagnosis.ModuleFilters...)
	l.RegisterSort(c)
	return c
}
