package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/moduleauthor"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/runtimeadmin"
)

func moduleCommand(a *console.App) *cobra.Command {
	return a.Group("module", "the modules of a runtime, for its admin; and commands to build a module, for its author",
		"For authors: init, lint, build, test, push, pull, sign, verify, mirror. The others are for the admin of a "+
			"runtime.", `
klm module list
klm module enable sample`,
		slices.Concat(moduleauthor.Commands(a), runtimeadmin.Commands(a))...)
}
