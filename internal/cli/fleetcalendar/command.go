package fleetcalendar

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/calendar"
)

// options are the flags of klm calendar.
type options struct {
	month, zone      string
	module, selector string
	policy           string
}

// Command returns the command klm calendar.
func Command(a *console.App) *cobra.Command {
	o := options{}
	c := a.Command("calendar [--month YYYY-MM] [--time-zone ZONE] [--module MODULE] [-l SELECTOR]",
		"a month of the fleet: maintenance windows by hour, freezes, and what is planned", `
Each hour has the number of runtimes in which an update that needs a downtime could start, by the function that the manager asks. Runtimes that
need no window, and those for which the maintenance policy has none, are counted below. The expected times of stages are those that the manager
has written into the status of the ModuleRollouts: if nothing fails, and gates that need a person pass at once. With -o wide, runtimes are named.`, `
klm calendar
klm calendar --month 2026-12 --time-zone Europe/Berlin
klm calendar --module sample -l kyma-project.io/region=eu-central-1
klm calendar -o jsonpath={.freezes[*].name}`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			r, err := read(cmd.Context(), a, o)
			if err != nil {
				return err
			}
			return a.Print(r)
		})
	f := c.Flags()
	f.StringVar(&o.month, "month", "", "month, such as 2026-12; empty: the present one")
	f.StringVar(&o.zone, "time-zone", "", "time zone of days and hours, such as Europe/Berlin; empty: UTC")
	f.StringVar(&o.module, console.FilterModule, "",
		"only runtimes with this module, and its rollouts and freezes; several names are separated by commas")
	f.StringVarP(&o.selector, console.FilterLabels, "l", "", "only runtimes with these labels, such as a=b,c!=d")
	connection.RegisterPolicy(f, &o.policy)
	console.CompleteFlag(c, console.FilterModule, connection.CatalogModules(a))
	return c
}

// read reads the cluster, and returns the report.
func read(ctx context.Context, a *console.App, o options) (*report, error) {
	zone, err := calendar.Zone(o.zone)
	if err != nil {
		return nil, console.Fail(console.ExitUsage, "--time-zone: %q: %v", o.zone, err)
	}
	month, err := calendar.Parse(o.month, zone, a.Now())
	if err != nil {
		return nil, console.Fail(console.ExitUsage, "--month: %v", err)
	}
	filter := console.NewListing(map[string]string{console.FilterLabels: o.selector, console.FilterModule: o.module})
	if _, err := connection.Selector(filter); err != nil {
		return nil, err
	}
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return nil, err
	}
	r := &report{Cluster: c.String(), Module: o.module, Selector: o.selector}
	s := Source{Now: a.Now(), Filter: filter, Catalog: &connection.Catalog{}}
	all, ctx := errgroup.WithContext(ctx)
	if o.module != "" {
		if s.Catalog, err = c.Catalog(ctx); err != nil {
			return nil, err
		}
		for name := range strings.SplitSeq(o.module, ",") {
			if err := s.Catalog.RequireModule(strings.TrimSpace(name), c); err != nil {
				return nil, err
			}
		}
	}
	all.Go(func() (err error) {
		s.Maintenance, s.Unknown, err = c.MaintenancePolicy(ctx, o.policy)
		return err
	})
	all.Go(func() error {
		return fleetlist.ListLabelled(ctx, c, o.selector, func(m *fleetlist.Member) {
			if m.Matches(filter) {
				s.Members = append(s.Members, m)
			}
		})
	})
	var rolloutNote, policyNote string
	all.Go(func() error {
		rollouts, err := c.Rollouts(ctx, labels.Everything())
		s.Catalog.Rollouts = map[string]*v1beta2.ModuleRollout{}
		for i := range rollouts {
			s.Catalog.Rollouts[rollouts[i].Name] = &rollouts[i]
		}
		rolloutNote, err = noteOf("what is planned is unknown", err)
		return err
	})
	all.Go(func() (err error) {
		s.Catalog.Policies, err = c.Policies(ctx)
		policyNote, err = noteOf("freezes are unknown", err)
		return err
	})
	if err := all.Wait(); err != nil {
		return nil, err
	}
	for _, note := range []string{rolloutNote, policyNote} {
		if note != "" {
			r.Notes = append(r.Notes, note)
		}
	}
	slices.SortFunc(s.Members, func(a, b *fleetlist.Member) int {
		return strings.Compare(a.Metadata.Name, b.Metadata.Name)
	})
	r.Calendar, r.now = Of(month, s), s.Now
	return r, nil
}

// noteOf converts an error about a missing right into a note about the data that cannot be shown. It returns every
// other error unchanged.
func noteOf(what string, err error) (note string, other error) {
	if console.ExitCode(err) == console.ExitForbidden {
		return what + ": " + err.Error(), nil
	}
	return "", err
}
