// Package checkup has the commands of klm about the installation itself: the running versions, and whether a cluster
// meets the requirements of the manager.
//
// # Use
//
//	root.AddCommand(checkup.Commands(a)...)
//
// # How it works
//
// klm version reads the versions that managers and agents have reported, and compares the CRDs of the cluster with the
// CRDs of this version of klm. klm check checks the list of requirements in install.md. Each check is a line with a
// result and a remedy; a check that the user has no right to make is a warning.
//
// # What it does not do
//
// The package writes nothing; a review of the user's own permissions stores no object. The package does not check
// runtimes: klm runtime add and klm why check runtimes.
package checkup

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Commands returns the commands of this package.
func Commands(a *console.App, withdraw *cobra.Command) []*cobra.Command {
	version := versionCommand(a)
	version.AddCommand(withdraw)
	return []*cobra.Command{version, checkCommand(a)}
}
