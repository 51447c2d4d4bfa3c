// Package calendar computes one month of a fleet: the number of runtimes with an open maintenance window in each hour,
// the freezes, and the expected begin and end of the stages of rollouts.
//
// # Use
//
//	month, err := calendar.Parse("2026-12", time.UTC, now)
//	c := calendar.Of(month, calendar.Inputs{Now: now, Maintenance: policy, Runtimes: runtimes, Rollouts: rollouts})
//	for _, day := range c.Days { … }
//	sum := calendar.Merge(month, []calendar.Part{{Context: "eu", Calendar: c}, …}) // several control planes
//
// # How it works
//
// Runtimes with the same rule of the maintenance policy have the same windows, so the windows of a month are computed
// once for each rule, with the function that the manager uses before an update: [channel.Policy.CurrentOrNextWindow]. A
// runtime is counted in each hour in which an update of the runtime could start. [rollout.HoldOfPolicy] decides whether
// a freeze stops a rollout. [channel.DeferredUntil] decides how long an admin may defer an update. The expected times
// of stages come from the status of the ModuleRollout.
//
// # What it does not do
//
// The package makes no request, reads no clock and forecasts nothing. The package leaves out no runtime: runtimes that
// can be updated at any time, runtimes whose next window opens after the month, and runtimes without a window are
// counted, too.
package calendar

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// MaxNames is the maximum length of each list of names of runtimes or rollouts in a calendar. MaxRows is the maximum
// number of rows of each list.
const (
	MaxNames = 20
	MaxRows  = 100
)

// Inputs has the data from which a calendar is made.
type Inputs struct {
	// Now is the current time.
	Now time.Time
	// Maintenance is the maintenance policy of the manager. Maintenance is nil if there is no policy, or if the policy
	// is not known. If the policy is not known, the field Unknown contains the reason.
	Maintenance *channel.Policy
	Unknown     string
	// Runtimes are all runtimes of the fleet. Lists of names in the calendar have the order of the field Runtimes.
	Runtimes []Runtime
	// Rollouts are the ModuleRollouts that the calendar shows. Policies are the RolloutPolicies that the calendar
	// shows.
	Rollouts []*v1beta2.ModuleRollout
	Policies []v1beta2.RolloutPolicy
}

// Runtime has the data of one runtime that a calendar needs.
type Runtime struct {
	// Name is the name of the Kyma, and Labels are its labels in the control plane.
	Name   string
	Labels map[string]string
	// SkipWindows means that updates of the runtime do not wait for a maintenance window.
	SkipWindows bool
	// Deferring is the Kyma of the runtime, if its annotations defer updates. nil means that no update is deferred.
	Deferring *v1beta2.Kyma
	// Module returns the version and the channel of a module in the runtime. The function Module is only called if
	// Deferring is set.
	Module func(name string) (version, channel string)
}

// Calendar is one month of a fleet. Each runtime is counted once in Windowed, AnyTime, Later or Unresolved.
type Calendar struct {
	Month
	// Runtimes is the number of all runtimes that are counted in the calendar.
	Runtimes int `json:"runtimes"`
	// Windowed is the number of runtimes that have a maintenance window in the month.
	Windowed int `json:"windowed"`
	// AnyTime is the number of runtimes whose updates wait for no window (spec.skipMaintenanceWindows).
	AnyTime int `json:"anyTime"`
	// Later is the number of runtimes whose next window opens after the month.
	Later int `json:"later"`
	// Unresolved are the runtimes for which the maintenance policy has no window, by reason.
	Unresolved []Unresolved `json:"unresolved,omitempty"`
	// Most is the largest number of runtimes with an open window in one hour.
	Most int `json:"most"`
	// Days are the days of the month.
	Days []Day `json:"days"`
	// Windows are the groups of runtimes with the same windows, the largest first, at most MaxRows.
	Windows []Windows `json:"windows,omitempty"`
	// Freezes are the freezes that are in force during the month. Suspended are the RolloutPolicies that suspend all
	// their rollouts.
	Freezes   []Freeze `json:"freezes,omitempty"`
	Suspended []string `json:"suspended,omitempty"`
	// Stages are the stages that begin, continue or end in the month. MoreStages is the number of stages that are left
	// out.
	Stages     []Stage `json:"stages,omitempty"`
	MoreStages int     `json:"moreStages,omitempty"`
	// Deferrals are the updates that admins of runtimes have deferred to a time in the month of the calendar.
	Deferrals     []Deferral `json:"deferrals,omitempty"`
	MoreDeferrals int        `json:"moreDeferrals,omitempty"`
}

// Month is a month in a time zone.
type Month struct {
	// Name is the year and the month, such as 2026-12.
	Name string `json:"month"`
	// TimeZone is the name of the time zone in which the days and hours of the calendar are given.
	TimeZone string `json:"timeZone"`
	// Begins is the time at which the month begins. Ends is the time at which the next month begins.
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`
}

// layout is the form of the name of a month.
const layout = "2006-01"

// Parse returns a month by its name. If the name is empty, Parse returns the present month.
func Parse(name string, zone *time.Location, now time.Time) (Month, error) {
	first, err := time.Parse(layout, cmp.Or(name, now.In(zone).Format(layout)))
	if err != nil || first.Year() < 1970 || first.Year() > 9998 {
		return Month{}, fmt.Errorf("%q is not a month such as 2026-12", name)
	}
	year, month, _ := first.Date()
	return Month{first.Format(layout), zone.String(), startOf(year, month, 1, zone), startOf(year, month+1, 1, zone)},
		nil
}

// Zone returns a time zone by its name. The empty name is UTC.
func Zone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || len(name) > 64 || name == "Local" { // the zone Local differs between machines
		return nil, errors.New("it is not a time zone: use a name such as Europe/Berlin")
	}
	return zone, nil
}

// startOf returns the first moment of a date. In some time zones, a change of the clocks skips midnight, and the day
// begins later.
func startOf(year int, month time.Month, day int, zone *time.Location) time.Time {
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	want := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	if t.Day() != want.Day() { // the clocks were put forward at midnight, and Date has chosen the offset before it
		_, t = t.ZoneBounds()
	}
	return t
}

// Next returns the name of the following month.
func (m Month) Next() string { return m.beside(1) }

// Previous returns the name of the preceding month.
func (m Month) Previous() string { return m.beside(-1) }

func (m Month) beside(months int) string {
	first, err := time.Parse(layout, m.Name)
	if err != nil {
		return ""
	}
	return first.AddDate(0, months, 0).Format(layout)
}

// overlaps reports whether a period overlaps with the month.
func (m Month) overlaps(from, to time.Time) bool { return from.Before(m.Ends) && to.After(m.Begins) }

// has reports whether a time is in the month.
func (m Month) has(t time.Time) bool { return !t.Before(m.Begins) && t.Before(m.Ends) }

// Day is one day of a month.
type Day struct {
	// Date is the date, such as 2026-12-05.
	Date   string    `json:"date"`
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`
	// Hours are the hours in which windows are open, as the clocks of the time zone show them.
	Hours []Hour `json:"hours,omitempty"`
	// Freezes are the names of the freezes that are in force on the day, with their RolloutPolicies.
	Freezes []string `json:"freezes,omitempty"`
}

// Hour is one hour of a day. On a day on which clocks are set back, one hour is longer than 60 minutes. On a day on
// which clocks are set forward, one hour of the local time is missing, or has fewer than 60 minutes.
type Hour struct {
	// Hour is the hour of the local time, 0 to 23.
	Hour   int       `json:"hour"`
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`
	// Runtimes is the number of runtimes in which an update could start in this hour.
	Runtimes int `json:"runtimes"`
}

// Most returns the hour in which most windows are open, or nil if no window is open.
func (d *Day) Most() *Hour {
	var most *Hour
	for i := range d.Hours {
		if h := &d.Hours[i]; most == nil || h.Runtimes > most.Runtimes {
			most = h
		}
	}
	return most
}

// Of returns the calendar of a month.
func Of(m Month, in Inputs) *Calendar {
	c := &Calendar{Month: m, Runtimes: len(in.Runtimes), Days: daysOf(m)}
	c.addWindows(in)
	c.addFreezesAndSuspensions(in)
	c.addRolloutsAndStagesOfMonth(in)
	c.addDeferralsEndingInMonth(in)
	c.dropClosedHoursAndSetMost()
	c.sortAndLimit()
	for i := range c.Days {
		d := &c.Days[i]
		for j := range c.Freezes {
			if f := &c.Freezes[j]; f.From.Before(d.Ends) && f.To.After(d.Begins) {
				d.Freezes = append(d.Freezes, f.Policy+"/"+f.Name)
			}
		}
	}
	return c
}

// daysOf returns the days of a month, each with an entry for each hour of the local clock.
func daysOf(m Month) []Day {
	const step = 30 * time.Minute // every clock change is a multiple of this step
	var days []Day
	zone := m.Begins.Location()
	for t := m.Begins; t.Before(m.Ends); t = t.Add(step) {
		local, end := t.In(zone), t.Add(step)
		if date := local.Format(time.DateOnly); len(days) == 0 || days[len(days)-1].Date != date {
			days = append(days, Day{Date: date, Begins: t})
		}
		d := &days[len(days)-1]
		if n := len(d.Hours); n == 0 || d.Hours[n-1].Hour != local.Hour() {
			d.Hours = append(d.Hours, Hour{Hour: local.Hour(), Begins: t})
		}
		d.Ends, d.Hours[len(d.Hours)-1].Ends = end, end
	}
	return days
}

// Windows are the maintenance windows of all runtimes with the same rule of the maintenance policy.
type Windows struct {
	// Context is the name of the control plane in a calendar of several control planes.
	Context string `json:"context,omitempty"`
	// Rule is the place in the maintenance policy, such as rules[3] or default.
	Rule string `json:"rule"`
	// Runtimes is the number of runtimes with these windows, and Names are some of their names.
	Runtimes int      `json:"runtimes"`
	Names    []string `json:"names,omitempty"`
	// Begins and Ends are the times of the first window in the month, or of the next window after the month.
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`
	// Hours is the number of hours of the month in which an update could start.
	Hours int `json:"hours"`
}

// Unresolved are runtimes for which the maintenance policy has no window: updates that need a downtime do not start in
// these runtimes.
type Unresolved struct {
	// Context is the name of the control plane in a calendar of several control planes.
	Context string `json:"context,omitempty"`
	// Reason states why the maintenance policy has no window.
	Reason string `json:"reason"`
	// Runtimes is the number of runtimes without a window, and Names are some of their names.
	Runtimes int      `json:"runtimes"`
	Names    []string `json:"names,omitempty"`
}

// group are runtimes with the same windows.
type group struct {
	rule     int
	labels   map[string]string // of one of them
	runtimes int
	names    []string
}

// addWindows counts the runtimes with an open window in each hour.
func (c *Calendar) addWindows(in Inputs) {
	groups, ruleOf := map[int]*group{}, in.Maintenance.RuleIndexFinder()
	for i := range in.Runtimes {
		r := &in.Runtimes[i]
		if r.SkipWindows {
			c.AnyTime++
			continue
		}
		rule := ruleOf(r.Labels)
		g := groups[rule]
		if g == nil {
			g = &group{rule: rule, labels: r.Labels}
			groups[rule] = g
		}
		if g.runtimes++; len(g.names) < MaxNames {
			g.names = append(g.names, r.Name)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(groups)) {
		c.addGroup(groups[rule], in)
	}
}

// addGroup adds the windows of one group.
func (c *Calendar) addGroup(g *group, in Inputs) {
	first, err := in.Maintenance.CurrentOrNextWindow(g.labels, c.Begins)
	if err != nil {
		c.addUnresolved(g, err, in)
		return
	}
	w := Windows{Rule: "default", Runtimes: g.runtimes, Names: g.names, Begins: first.Begin, Ends: first.End}
	if g.rule >= 0 {
		w.Rule = fmt.Sprintf("rules[%d]", g.rule)
	}
	open := first
	for i := range c.Days {
		for j := range c.Days[i].Hours {
			h := &c.Days[i].Hours[j]
			if !open.Begin.Before(h.Ends) {
				continue // the next window opens later
			}
			if open, err = in.Maintenance.CurrentOrNextWindow(g.labels, h.Begins); err != nil {
				break
			}
			if open.Begin.Before(h.Ends) {
				h.Runtimes += g.runtimes
				w.Hours++
			}
		}
		if err != nil {
			break // the last window is over
		}
	}
	if c.Windows = append(c.Windows, w); w.Hours > 0 {
		c.Windowed += g.runtimes
	} else {
		c.Later += g.runtimes
	}
}

// addUnresolved adds a group of runtimes without a window to the list Unresolved of the calendar.
func (c *Calendar) addUnresolved(g *group, err error, in Inputs) {
	reason := err.Error()
	if b := (*channel.Blocker)(nil); errors.As(err, &b) {
		reason = b.Message
	}
	if in.Maintenance == nil {
		reason = cmp.Or(in.Unknown, reason)
	}
	c.Unresolved = append(c.Unresolved, Unresolved{Reason: strings.TrimSpace(reason), Runtimes: g.runtimes,
		Names: g.names})
}
