package diagnosis

import (
	"context"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// Why prints the report about a runtime, and returns the error of the report: see [Report.Err]. If the parameter watch
// is true, Why shows the report again after each change, until ctx ends.
func Why(ctx context.Context, a *console.App, c *connection.Cluster, name, module string, watch bool) error {
	if !watch {
		r, err := readReport(ctx, a, c, name, module)
		if err != nil {
			return err
		}
		if err := a.Print(r); err != nil {
			return err
		}
		return r.Err()
	}
	screen := console.Screen{App: a}
	return console.RefreshUntilDone(ctx, c.KymaChanges(ctx, name), func() error {
		r, err := readReport(ctx, a, c, name, module)
		if err != nil {
			return err
		}
		return screen.Show(r)
	})
}

// readReport reads the facts about a runtime and returns their report. In a control plane, the report also shows
// whether a manager works.
func readReport(ctx context.Context, a *console.App, c *connection.Cluster, name, module string) (*Report, error) {
	observed := make(chan *liveness.Observation, 1)
	go func() {
		if c.OwnKyma != "" {
			observed <- nil
			return
		}
		observed <- liveness.Read(ctx, c)
	}()
	facts, err := Read(ctx, c, name, Options{Module: module})
	if err != nil {
		return nil, err
	}
	facts.Now, facts.Manager = a.Now(), <-observed
	return facts.Report(module), nil
}
