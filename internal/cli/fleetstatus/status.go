package fleetstatus

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// Command returns the command klm status.
func Command(a *console.App) *cobra.Command {
	var l console.Listing
	var contexts []string
	var worst int
	var exitCode bool
	c := a.Command("status [-l SELECTOR] [--module MODULE] [--state STATE]… [--contexts A,B] [--watch]",
		"the fleet at a glance: counts by state, module, version and channel, and the worst runtimes", `
The first line is about the manager: its version, the leader or the replicas, and when it last renewed its Lease. If no manager works, the exit
code is 7, and all states are as old as the first line says. Only runtimes that the filters accept are counted; --channel, --state and --reason are
those of the runtime, or with --module those of the module. --contexts reads several control planes as one fleet; one that does not answer is named,
and the others are counted.`, `
klm status
klm status --module sample --version 2.0.0
klm status --worst=50 -o wide
klm status -l kyma-project.io/region=eu-central-1 -o json
klm status --contexts=eu,us,ap
klm status --module sample --exit-code || echo "not Ready everywhere"
klm status --watch`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			if l.Watch && exitCode {
				return console.Fail(console.ExitUsage, "--watch does not end by itself, so --exit-code has no effect")
			}
			if len(contexts) > 0 {
				if l.Watch {
					return console.Fail(console.ExitUsage, "--watch shows one control plane: choose it with --context")
				}
				return printStatusOf(cmd.Context(), a, contexts, &l, worst, exitCode)
			}
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			if l.Watch {
				return watchStatus(cmd.Context(), a, c, &l, worst)
			}
			r, err := read(cmd.Context(), c, &l, worst)
			if err != nil {
				return err
			}
			if err := a.Print(r); err != nil {
				return err
			}
			return cmp.Or(r.Manager.ErrIfNotWorking(), r.err(exitCode))
		})
	fleetlist.RegisterFilters(a, c, &l)
	connection.RegisterContexts(c, &contexts)
	c.Flags().IntVar(&worst, "worst", 10, "how many of the worst runtimes are shown")
	c.Flags().BoolVar(&exitCode, "exit-code", false, "end with exit code 3 if a runtime is not Ready")
	return c
}

// read returns the report about one control plane.
func read(ctx context.Context, c *connection.Cluster, l *console.Listing, maxWorst int) (*fleetReport, error) {
	observed := make(chan *liveness.Observation, 1)
	go func() { observed <- liveness.Read(ctx, c) }()
	var t tally
	const manyWorst = 100
	if err := fleetlist.ListMatching(ctx, c, l, maxWorst > manyWorst, t.add); err != nil {
		return nil, err
	}
	if maxWorst <= manyWorst {
		if err := fleetlist.CompleteBrief(ctx, c, t.worstMembers(maxWorst)); err != nil {
			return nil, err
		}
	}
	r := t.report(c, maxWorst)
	r.Manager = (<-observed).Report(t.changed)
	return r, nil
}

// printStatusOf prints the report about several control planes. If a control plane cannot be read, the runtimes of the
// other control planes are counted.
func printStatusOf(ctx context.Context, a *console.App, contexts []string, l *console.Listing, maxWorst int,
	isExitCodeRequested bool) error {
	reports := make([]*fleetReport, len(contexts))
	err := connection.EachControlPlane(ctx, a, contexts, func(i int, c *connection.Cluster) (err error) {
		reports[i], err = read(ctx, c, l, maxWorst)
		return err
	})
	if !slices.ContainsFunc(reports, func(r *fleetReport) bool { return r != nil }) {
		return err
	}
	sum := merge(contexts, reports, maxWorst)
	if printErr := a.Print(sum); printErr != nil {
		return printErr
	}
	for _, r := range reports {
		if err == nil && r != nil {
			err = r.Manager.ErrIfNotWorking()
		}
	}
	return cmp.Or(err, sum.err(isExitCodeRequested))
}

// watchStatus shows the counts of the fleet, and shows the counts again after each change, until ctx ends. The Leases
// of the manager are read at an interval. No watch reports that the manager has stopped: without a manager, no object
// of the fleet changes.
func watchStatus(ctx context.Context, a *console.App, c *connection.Cluster, l *console.Listing, worst int) error {
	const leaseInterval = 10 * time.Second
	observed := liveness.Read(ctx, c)
	screen := console.Screen{App: a}
	return fleetlist.ShowLive(ctx, c, l.Value(console.FilterLabels), leaseInterval, func() bool {
		before := observed
		observed = liveness.Read(ctx, c)
		return observed.DiffersIgnoringTimes(before) || observed.Report(time.Time{}).State == liveness.NotWorking
	}, func(fleet map[string]*fleetlist.Member) error {
		t := tally{}
		for _, m := range fleet {
			if m.Matches(l) {
				t.add(m)
			}
		}
		r := t.report(c, worst)
		r.Manager = observed.Report(t.changed)
		return screen.Show(r)
	})
}
