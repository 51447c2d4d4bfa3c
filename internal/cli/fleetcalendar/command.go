package fleetcalendar

import (
	"cmp"
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
	contexts         []string
}

// Command returns the command klm calendar.
func Command(a *console.App) *cobra.Command {
	o := options{}
	c := a.Command("calendar [--month YYYY-MM] [--time-zone ZONE] [--module MODULE] [-l SELECTOR] [--contexts A,B]",
		"a month of the fleet: maintenance windows by hour, freezes, and what is planned", `
Each hour has the number of runtimes in which an update that needs a downtime could start, by the function that the manager asks. Runtimes that
need no window, and those for which the maintenance policy has none, are counted below. The expected times of stages are those that the manager
has written into the status of the ModuleRollouts: if nothing fails, and gates that need a person pass at once. With -o wide, runtimes are named.
--contexts reads several control planes as one fleet; one that does not answer is named, and the others are shown.`, `
klm calendar
klm calendar --month 2026-12 --time-zone Europe/Berlin
klm calendar --module sample -l kyma-project.io/region=eu-central-1
klm calendar --contexts=eu,us,ap
klm calendar -o jsonpath={.freezes[*].name}`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			r, err := read(cmd.Context(), a, o)
			if r == nil {
				return err
			}
			if printErr := a.Print(r); printErr != nil {
				return printErr
			}
			return err
		})
	f := c.Flags()
	f.StringVar(&o.month, "month", "", "month, such as 2026-12; empty: the present one")
	f.StringVar(&o.zone, "time-zone", "", "time zone of days and hours, such as Europe/Berlin; empty: UTC")
	f.StringVar(&o.module, console.FilterModule, "",
		"only runtimes with this module, and its rollouts and freezes; several names are separated by commas")
	f.StringVarP(&o.selector, console.FilterLabels, "l", "", "only runtimes with these labels, such as a=b,c!=d")
	connection.RegisterMaintenancePolicyFlag(f, &o.policy)
	connection.RegisterContexts(c, &o.contexts)
	console.CompleteFlag(c, console.FilterModule, connection.CatalogModules(a))
	return c
}

// read returns the report about one control plane, or about several control planes. If one of several control planes
// cannot be read, read returns the report about the other control planes, and an error that names this control plane.
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
	if len(o.contexts) > 0 {
		return readContexts(ctx, a, o, month, filter)
	}
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return nil, err
	}
	return readControlPlane(ctx, a, c, o, month, filter)
}

// readContexts returns the report about several control planes. The module of the filter has to exist in only one of
// the control planes.
func readContexts(ctx context.Context, a *console.App, o options, m calendar.Month, filter *console.Listing) (*report,
	error) {
	found, missing := make([]*report, len(o.contexts)), make([]error, len(o.contexts))
	err := connection.EachControlPlane(ctx, a, o.contexts, func(i int, c *connection.Cluster) (err error) {
		found[i], err = readControlPlane(ctx, a, c, o, m, filter)
		if console.ExitCode(err) == console.ExitNotFound {
			missing[i], err = err, nil
		}
		return err
	})
	sum := &report{Cluster: strings.Join(o.contexts, ","), Module: o.module, Selector: o.selector, now: a.Now()}
	var parts []calendar.Part
	for i, r := range found {
		if missing[i] != nil {
			sum.Notes = append(sum.Notes, o.contexts[i]+": "+missing[i].Error())
		}
		if r == nil {
			continue
		}
		for _, note := range r.Notes {
			sum.Notes = append(sum.Notes, o.contexts[i]+": "+note)
		}
		parts = append(parts, calendar.Part{Context: o.contexts[i], Calendar: r.Calendar})
		sum.ControlPlanes = append(sum.ControlPlanes, planeReport{Context: o.contexts[i], Runtimes: r.Runtimes,
			Windowed: r.Windowed})
	}
	if len(parts) == 0 {
		return nil, cmp.Or(err, cmp.Or(missing...))
	}
	sum.Calendar = calendar.Merge(m, parts)
	return sum, err
}

// readControlPlane returns the report about one control plane.
func readControlPlane(ctx context.Context, a *console.App, c *connection.Cluster, o options, m calendar.Month,
	filter *console.Listing) (_ *report, err error) {
	r := &report{Cluster: c.String(), Module: o.module, Selector: o.selector}
	s := Source{Now: a.Now(), Filter: filter, Catalog: &connection.Catalog{}}
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
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() (err error) {
		s.Maintenance, s.Unknown, err = c.MaintenancePolicy(ctx, o.policy)
		return err
	})
	all.Go(func() error {
		return fleetlist.ListBriefWithLabels(ctx, c, o.selector, func(m *fleetlist.Member) {
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
		rolloutNote, err = noteIfForbidden("what is planned is unknown", err)
		return err
	})
	all.Go(func() (err error) {
		s.Catalog.Policies, err = c.Policies(ctx)
		policyNote, err = noteIfForbidden("freezes are unknown", err)
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
	r.Calendar, r.now = Of(m, s), s.Now
	return r, nil
}

// noteIfForbidden converts an error about a missing right into a note about the data that cannot be shown.
// noteIfForbidden returns every other error unchanged.
func noteIfForbidden(consequence string, err error) (note string, rest error) {
	if console.ExitCode(err) == console.ExitForbidden {
		return consequence + ": " + err.Error(), nil
	}
	return "", err
}
