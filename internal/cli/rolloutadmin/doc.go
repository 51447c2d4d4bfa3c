// Package rolloutadmin has the commands of klm for the persons who release modules to a fleet in stages: commands that
// show, stop, approve and end rollouts.
//
// # Use
//
//	a.Group("rollout", …, rolloutadmin.Commands(a)...)
//
// # How it works
//
// klm reads everything that it shows from the ModuleRollout and from the status of the ModuleReleaseMeta. The manager
// makes the counts and decides about each runtime, so klm never contradicts the manager. A verb reads the
// ModuleRollout, checks whether the verb makes sense now, and writes only state, reason, approvals or resumptions of
// its spec, with the resource version that was checked. The verb does not wait until the manager has observed the
// change: klm rollout watch shows the further progress.
//
// # What it does not do
//
// The package makes no rollouts: the manager makes a rollout when the version of a channel changes.
package rolloutadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Commands returns the commands of this package. The callers pass the commands klm rollout plan and klm rollout undo,
// which other packages implement. klm promotions is a group of commands beside klm rollout, because a promotion is
// about channels and not about one rollout.
func Commands(a *console.App, plan, undo *cobra.Command) []*cobra.Command {
	return []*cobra.Command{a.Group("rollout",
		"the moves of channels over the fleet: list, show, plan, pause, resume, approve, "+
			"abort, undo", "", `
klm rollout list
klm rollout show sample-regular-r3
klm rollout approve sample-regular-r3 --stage=canary`,
		listCommand(a), showCommand(a), plan, watchCommand(a), historyCommand(a),
		pauseCommand(a), resumeCommand(a), approveCommand(a), abortCommand(a), undo), promotionsCommand(a)}
}
