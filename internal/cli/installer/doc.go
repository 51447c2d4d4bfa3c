// Package installer has the commands of klm that install and remove the lifecycle manager itself.
//
// # Use
//
//	root.AddCommand(installer.Commands(a)...)
//
// # How it works
//
// The objects come from the chart in deploy/chart. The objects are applied with package apply, and listed in a
// ConfigMap beside the manager, so that an upgrade and klm uninstall can remove objects that are no longer needed; see
// inventory.go. The ConfigMap also contains the chart values of the installation. The next installation keeps the chart
// values in the ConfigMap; see values.go.
//
// # What it does not do
//
// The package removes neither CRDs nor namespaces, and does not change objects that Helm has installed.
package installer

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Commands returns the commands of this package.
func Commands(a *console.App) []*cobra.Command {
	return []*cobra.Command{
		installCommand(a),
		uninstallCommand(a),
		migrateCommand(a),
	}
}
