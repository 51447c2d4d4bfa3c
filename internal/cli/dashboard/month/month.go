// Package month makes the view of one month of the calendar for the dashboard: a picture, and tables.
//
// # Use
//
//	v := month.ViewOf(fleetcalendar.Of(m, source), now)
//	templates.Execute(w, v)
//
// # How it works
//
// The picture has a line for each day and a cell for each hour. The package computes all coordinates of the picture in
// units of the SVG, so that a template can make the SVG without JavaScript. The table of days has the same numbers as
// the picture.
//
// # What it does not do
//
// The package makes no HTML, and decides nothing about windows, freezes and rollouts: package calendar does.
package month

import (
	"fmt"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetcalendar"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/calendar"
)

// The parts of tables.
type (
	column = sheet.Column
	cell   = sheet.Cell
)

// View is the view of a calendar in the dashboard.
type View struct {
	*calendar.Calendar
	// Title is the name of the month, Label describes the picture, and Sums counts the runtimes.
	Title, Label, Sums string
	Picture            Picture
	// The tables. The table Days has the same numbers as the picture.
	Days, Freezes, Stages, Deferrals, Windows, Unresolved sheet.Table
	// HasForecast is true if a time of a stage is a forecast.
	HasForecast bool
}

// ViewOf returns the view of a calendar.
func ViewOf(c *calendar.Calendar, now time.Time) View {
	v := View{Calendar: c, Title: c.Begins.Format("January 2006"), Label: altTextOf(c),
		Sums: fleetcalendar.WindowSummaryText(c, sheet.Number), Picture: pictureOf(c, now)}
	v.addOpenWindowsByDayTable()
	v.addFreezes()
	v.addStagesAndDeferrals()
	v.addWindowsAndUnresolved()
	return v
}

// orDash returns the text, or the dash "–" if the text is empty.
func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

// formatInCalendarZone formats a time as a text without line breaks. If the time is zero, the text is "–".
func (v *View) formatInCalendarZone(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return strings.ReplaceAll(fleetcalendar.FormatTime(v.Month, t), " ", "\u00a0")
}

// addOpenWindowsByDayTable adds a table of days with the numbers that the picture shows.
func (v *View) addOpenWindowsByDayTable() {
	v.Days = sheet.Table{Caption: "Days", Columns: []column{{Title: "Day"}, {Title: "Runtimes with an open window"},
		{Title: "Most at once", IsNumber: true}, {Title: "Freezes"}}}
	for i := range v.Calendar.Days {
		d, most := &v.Calendar.Days[i], 0
		if h := d.Most(); h != nil {
			most = h.Runtimes
		}
		v.Days.Rows = append(v.Days.Rows, []cell{{Text: d.Begins.Format("Mon 2 Jan")},
			{Text: fleetcalendar.SpansOf(d, sheet.Number)}, {Text: sheet.Number(most), IsNumber: true},
			{Text: orDash(strings.Join(d.Freezes, ", "))}})
	}
}

func (v *View) addFreezes() {
	v.Freezes = sheet.Table{Caption: "Freezes", Columns: []column{{Title: "Freeze"}, {Title: "Policy"}, {Title: "From"},
		{Title: "To"}, {Title: "State"}, {Title: "Except"}, {Title: "Stops"}, {Title: "Spares"}},
		Empty: "No RolloutPolicy has a freeze in this month."}
	for i := range v.Calendar.Freezes {
		f := &v.Calendar.Freezes[i]
		v.Freezes.Rows = append(v.Freezes.Rows, []cell{{Text: f.Name}, {Text: f.Policy},
			{Text: v.formatInCalendarZone(f.From)},
			{Text: v.formatInCalendarZone(f.To)}, {Text: f.State}, {Text: orDash(fleetcalendar.ExceptionsOf(f))},
			{Text: orDash(strings.Join(f.Stops, ", "))}, {Text: orDash(strings.Join(f.Spares, ", "))}})
	}
}

func (v *View) addStagesAndDeferrals() {
	v.Stages = sheet.Table{Caption: "Planned", Columns: []column{{Title: "Rollout"}, {Title: "Versions"},
		{Title: "Stage"}, {Title: "State"}, {Title: "Runtimes"}, {Title: "Begins"}, {Title: "Ends"},
		{Title: "Held by"}},
		Empty: "No rollout begins, goes on or ends in this month, as far as is known."}
	for i := range v.Calendar.Stages {
		s := &v.Calendar.Stages[i]
		begins, ends := fleetcalendar.TimesOf(s, v.formatInCalendarZone)
		v.HasForecast = v.HasForecast || strings.Contains(begins+ends, "~")
		v.Stages.Rows = append(v.Stages.Rows, []cell{{Text: s.Rollout, Path: "/rollouts/" + s.Rollout},
			{Text: orDash(s.From) + " → " + s.To}, {Text: orDash(s.Stage)}, {Text: s.State, State: s.State},
			{Text: fleetcalendar.TotalAndWaitingOf(s)}, {Text: begins}, {Text: ends}, {Text: s.Why, Wide: true}})
	}
	if v.MoreStages > 0 {
		v.Stages.Note = fmt.Sprintf("and %d more", v.MoreStages)
	}
	v.Deferrals = sheet.Table{Caption: "Deferrals that end", Columns: []column{{Title: "Until"}, {Title: "Rollout"},
		{Title: "Version"}, {Title: "Runtimes", IsNumber: true}, {Title: "Some of them"}}}
	for _, d := range v.Calendar.Deferrals {
		v.Deferrals.Rows = append(v.Deferrals.Rows, []cell{{Text: v.formatInCalendarZone(d.Until)}, {Text: d.Rollout,
			Path: "/rollouts/" + d.Rollout}, {Text: d.To}, {Text: sheet.Number(d.Runtimes), IsNumber: true},
			{Text: strings.Join(d.Names, ", "), Wide: true}})
	}
	if v.MoreDeferrals > 0 {
		v.Deferrals.Note = fmt.Sprintf("and %d more", v.MoreDeferrals)
	}
}

// addWindowsAndUnresolved adds the groups of runtimes that have the same maintenance windows, and the group of runtimes
// without a window.
func (v *View) addWindowsAndUnresolved() {
	v.Windows = sheet.Table{Caption: "Windows by rule of the maintenance policy", Columns: []column{{Title: "Rule"},
		{Title: "Runtimes", IsNumber: true}, {Title: "First window"}, {Title: "Hours", IsNumber: true},
		{Title: "Some of them"}}}
	for _, w := range v.Calendar.Windows {
		v.Windows.Rows = append(v.Windows.Rows, []cell{{Text: w.Rule}, {Text: sheet.Number(w.Runtimes), IsNumber: true},
			{Text: v.formatInCalendarZone(w.Begins) + " – " + v.formatInCalendarZone(w.Ends)},
			{Text: sheet.Number(w.Hours),
				IsNumber: true},
			{Text: strings.Join(w.Names, ", "), Wide: true}})
	}
	v.Unresolved = sheet.Table{Caption: "Without a window", Columns: []column{{Title: "Runtimes"}, {Title: "Why"},
		{Title: "Some of them"}}}
	for _, u := range v.Calendar.Unresolved {
		v.Unresolved.Rows = append(v.Unresolved.Rows, []cell{{Text: sheet.Number(u.Runtimes)},
			{Text: u.Reason, Wide: true}, {Text: strings.Join(u.Names, ", "), Wide: true}})
	}
}
