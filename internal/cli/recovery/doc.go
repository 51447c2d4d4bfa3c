// Package recovery has the commands of klm that save the objects of a control plane, and write them into a new one.
//
// # Use
//
//	root.AddCommand(recovery.Commands(a)...)
//
// # How it works
//
// klm backup lists each kind page by page and writes each object as one YAML document (file.go). The kinds are in the
// order in which they can be created, so that kubectl can also apply the file. Some fields are valid only in the
// control plane that is backed up, so the saved objects lack them: UIDs, resource versions and owner references. If a
// restored Manifest had an owner reference with the UID of the former Kyma, the garbage collector would delete the
// Manifest, and the manager would remove the module.
//
// klm restore reads the file twice. The first pass over the file compares its objects with the cluster (plan.go), so
// that the user sees the effects before they happen. The second pass over the file writes the objects (restore.go). klm
// restore never holds more than a few objects of the file in memory.
//
// # What it does not do
//
// The package does not connect to runtimes: the runtimes keep their modules during a backup and a restore. The package
// saves neither the manager itself, which klm install installs, nor its CRDs, Leases and events.
package recovery

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Commands returns the commands of this package.
func Commands(a *console.App) []*cobra.Command {
	return []*cobra.Command{backupCommand(a), restoreCommand(a)}
}
