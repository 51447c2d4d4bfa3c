// Package fleetadmin has the commands of klm for the platform team: the runtimes of a fleet.
//
// # Use
//
//	root.AddCommand(fleetadmin.Commands(a)...)
//
// # How it works
//
// The package has one file for each command. A command that changes an object first checks the change. After the check,
// the command writes only the field in question, and waits until the status shows that the change is done.
//
// # What it does not do
//
// The commands never remove finalizers, and do not change fields of other field managers.
package fleetadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Commands returns the commands of this package.
func Commands(a *console.App) []*cobra.Command {
	return []*cobra.Command{
		whyCommand(a),
		retryCommand(a),
		versionHistoryCommand(a),
		diffCommand(a),
		runtimeCommand(a),
	}
}
