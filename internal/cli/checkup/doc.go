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
// CRDs of this version of klm. klm check checks the list of requirements in install.md. Each check prints a line with a
// result and a remedy. If the user has no permission for a check, its result is a warning.
//
// # What it does not do
//
// The package changes nothing in the cluster. The package creates reviews of the user's own permissions
// (SelfSubjectAccessReview), which the API server does not store. The package does not check runtimes: klm runtime add
// and klm why check runtimes.
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
