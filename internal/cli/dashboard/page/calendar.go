package page

import (
	"maps"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/month"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetcalendar"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/calendar"
)

// The parameters of the URL of the calendar that are no filters.
const (
	paramMonth = "month"
	paramZone  = "time-zone"
)

// calendarPage is the data of the calendar.
type calendarPage struct {
	month.View
	Earlier, Present, Then string // URLs of other months
	Filters                []choice
	Values                 map[string]string
	Zone                   string
	Modules                []string
	Commands               []command
}

// calendarView shows a month: windows, freezes and planned stages of rollouts.
func calendarView(r *request) content {
	q := r.URL.Query()
	f, err := filterOf(q, paramMonth, paramZone)
	if err != nil {
		return errorPage("This filter is not known", err)
	}
	zone, err := calendar.Zone(q.Get(paramZone))
	if err != nil {
		return errorPage("This time zone is not known", usage("%q: %v", q.Get(paramZone), err))
	}
	m, err := calendar.Parse(q.Get(paramMonth), zone, r.now)
	if err != nil {
		return errorPage("This month is not known", usage("%v", err))
	}
	c := fleetcalendar.Of(m, fleetcalendar.Source{Now: r.now, Maintenance: r.fleet.Maintenance.Policy,
		Unknown: r.fleet.Maintenance.Unknown, Members: f.Apply(r.fleet.Members), Catalog: r.fleet.Catalog,
		Filter: f.Listing})
	p := calendarPage{View: month.ViewOf(c, r.now), Earlier: r.urlWith(paramMonth, m.Previous()),
		Then: r.urlWith(paramMonth, m.Next()), Values: f.Values, Zone: q.Get(paramZone),
		Modules: r.fleet.Catalog.Modules()}
	if r.now.Before(m.Begins) || !r.now.Before(m.Ends) {
		p.Present = r.urlWith(paramMonth, "")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		p.Filters = append(p.Filters, choice{Name: name + ": " + f.Values[name], Path: r.urlWith(name, "")})
	}
	line := r.server.program + " calendar --month " + m.Name
	if p.Zone != "" {
		line += " --time-zone " + p.Zone
	}
	if module := f.Values[console.FilterModule]; module != "" {
		line += " --module " + module
	}
	p.Commands = []command{{line, "shows the same"}}
	return content{Title: "Calendar", Section: "Calendar", Template: "calendar", Data: p,
		Topics: []fleetindex.Topic{fleetindex.Runtimes, fleetindex.Catalog, fleetindex.Rollouts}}
}
