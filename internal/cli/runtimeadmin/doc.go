// Package runtimeadmin has the commands of klm for the admin of a runtime, who selects its modules.
//
// # Use
//
//	module.AddCommand(runtimeadmin.Commands(a)...)
//
// # How it works
//
// Every command changes spec.modules or annotations of the Kyma in the runtime, after a check against the catalog copy
// in the runtime, and waits until the control plane has reconciled the Kyma.
//
// # What it does not do
//
// The package does not connect to the control plane.
package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Commands returns the commands of this package.
func Commands(a *console.App) []*cobra.Command {
	return []*cobra.Command{
		listCommand(a),
		enableCommand(a),
		disableCommand(a),
		setModuleChannelCommand(a),
		setVersionCommand(a),
		manageCommand(a),
		unmanageCommand(a),
		pauseCommand(a),
		resumeCommand(a),
		deferCommand(a),
		whyCommand(a),
		historyCommand(a),
	}
}
