// Package channeladmin has the commands of klm for the persons who release modules to a fleet: commands for the catalog
// and its channels.
//
// # Use
//
//	root.AddCommand(channeladmin.Commands(a)...)
//
// # How it works
//
// For every runtime of the channel, klm channel set determines the effect of the change with package channel. klm
// channel set shows the effects, and then writes one field of the ModuleReleaseMeta.
//
// # What it does not do
//
// The package publishes no versions: see package moduleauthor.
package channeladmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Commands returns the commands of this package.
func Commands(a *console.App) []*cobra.Command {
	return []*cobra.Command{channelCommand(a), catalogCommand(a)}
}
