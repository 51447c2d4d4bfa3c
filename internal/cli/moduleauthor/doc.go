// Package moduleauthor has the commands of klm for authors of modules: from the skeleton of a module to a signed
// version in a registry.
//
// # Use
//
//	module.AddCommand(moduleauthor.Commands(a)...)
//
// # How it works
//
// Each command calls package author and prints the result.
//
// # What it does not do
//
// The package does not know the formats of modules: see package author.
package moduleauthor

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Commands returns the commands of this package.
func Commands(a *console.App) []*cobra.Command {
	return []*cobra.Command{
		initCommand(a),
		lintCommand(a),
		renderCommand(a),
		buildCommand(a),
		pushCommand(a),
		pullCommand(a),
		mirrorCommand(a),
		signCommand(a),
		verifyCommand(a),
		testCommand(a),
	}
}
