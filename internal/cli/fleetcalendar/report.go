package fleetcalendar

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/calendar"
)

// report is the report of klm calendar.
type report struct {
	Cluster  string `json:"cluster"`
	Module   string `json:"module,omitempty"`   // the filter
	Selector string `json:"selector,omitempty"` // the filter
	// Notes name the data that the report does not contain because klm cannot read the data.
	Notes []string `json:"notes,omitempty"`
	// ControlPlanes has an entry for each context of --contexts that was read.
	ControlPlanes []planeReport `json:"controlPlanes,omitempty"`
	*calendar.Calendar

	now time.Time
}

// planeReport is the part of a report that is about one of several control planes.
type planeReport struct {
	Context  string `json:"context"`
	Runtimes int    `json:"runtimes"`
	Windowed int    `json:"windowed"`
}

// showTable writes a table to the page. In a report about several control planes, the first column of each row is the
// context.
func (r *report) showTable(p *console.Page, header []string, rows [][]string, contexts []string) {
	if len(r.ControlPlanes) > 0 {
		header = append([]string{"CONTEXT"}, header...)
		for i := range rows {
			rows[i] = append([]string{contexts[i]}, rows[i]...)
		}
	}
	p.Table(header, rows)
}

// Names implements [console.Report]: the rollouts of the month.
func (r *report) Names() []string {
	var all []string
	for _, s := range r.Stages {
		if !slices.Contains(all, s.Rollout) {
			all = append(all, s.Rollout)
		}
	}
	return all
}

// levels are the symbols that the calendar shows for an hour, by the number of runtimes whose maintenance window is
// open: the first symbol stands for no runtime, and the last for all runtimes that have windows.
var levels = [calendar.Levels + 1]string{"· ", "▁▁", "▂▂", "▃▃", "▄▄", "▅▅", "▆▆", "▇▇", "██"}

// Show writes the report as text for people.
func (r *report) Show(p *console.Page) {
	p.Line("%s, %s: %s of %s%s", r.Begins.Format("January 2006"), r.TimeZone, console.Count(r.Runtimes, "runtime"),
		r.Cluster, r.filterSuffix())
	p.Line("%s", WindowSummaryText(r.Calendar, strconv.Itoa))
	var rows [][]string
	for _, c := range r.ControlPlanes {
		rows = append(rows, []string{c.Context, strconv.Itoa(c.Runtimes), strconv.Itoa(c.Windowed)})
	}
	if len(rows) > 0 {
		p.Line("")
		p.Table([]string{"CONTEXT", "RUNTIMES", "WITH A WINDOW"}, rows)
	}
	for _, note := range r.Notes {
		p.Wrap("", "Note: "+note)
	}
	r.showDays(p)
	r.showWindows(p)
	r.showFreezes(p)
	r.showStages(p)
	r.showDeferrals(p)
}

func (r *report) filterSuffix() string {
	var parts []string
	if r.Module != "" {
		parts = append(parts, "module "+r.Module)
	}
	if r.Selector != "" {
		parts = append(parts, r.Selector)
	}
	if len(parts) == 0 {
		return ""
	}
	return ", only " + strings.Join(parts, ", ")
}

// WindowSummaryText returns a sentence about a calendar: how many runtimes have a maintenance window in the month, have
// a later window, need no window, or have no window.
func WindowSummaryText(c *calendar.Calendar, formatNumber func(int) string) string {
	unresolved := c.Runtimes - c.Windowed - c.AnyTime - c.Later
	return fmt.Sprintf("%s with a maintenance window in this month, %s with a later one, %s that need none (any time), "+
		"%s without one.", formatNumber(c.Windowed), formatNumber(c.Later), formatNumber(c.AnyTime),
		formatNumber(unresolved))
}

// showDays shows a line for each day.
func (r *report) showDays(p *console.Page) {
	var rows [][]string
	for i := range r.Days {
		d := &r.Days[i]
		hours := [24]string{}
		for j := range hours {
			hours[j] = levels[0]
		}
		for _, h := range d.Hours {
			hours[h.Hour] = levels[r.Level(h.Runtimes)]
		}
		most := "-"
		if h := d.Most(); h != nil {
			most = fmt.Sprintf("%d at %02d:00", h.Runtimes, h.Hour)
		}
		name := d.Begins.Format("Mon _2")
		if !r.now.Before(d.Begins) && r.now.Before(d.Ends) {
			name = "→ " + name
		}
		rows = append(rows, []string{name, strings.Join(hours[:], ""), most,
			console.OrDash(p.Clip(strings.Join(d.Freezes, " "), 40))})
	}
	p.Line("")
	p.Table([]string{"DAY", "00    03    06    09    12    15    18    21    ", "MOST", "FREEZE"}, rows)
	if r.Windowed > 0 {
		p.Line("A pair of signs is an hour: · no runtime, ▁ few, █ all %d with windows.", r.Windowed)
	}
}

// showWindows shows the groups of runtimes that have the same maintenance windows, and the runtimes without a window.
func (r *report) showWindows(p *console.Page) {
	if len(r.Windows) > 0 && p.Wide {
		var rows [][]string
		var contexts []string
		for _, w := range r.Windows {
			contexts = append(contexts, w.Context)
			rows = append(rows, []string{w.Rule, fmt.Sprint(w.Runtimes),
				r.formatTime(w.Begins) + " – " + r.formatTime(w.Ends),
				fmt.Sprint(w.Hours), someNames(w.Names, w.Runtimes)})
		}
		p.Line("")
		r.showTable(p, []string{"WINDOWS BY RULE", "RUNTIMES", "FIRST", "HOURS", "NAMES"}, rows, contexts)
	}
	if len(r.Unresolved) == 0 {
		return
	}
	p.Line("")
	p.Line("Without a maintenance window, so that updates that need a downtime do not start:")
	for _, u := range r.Unresolved {
		at := ""
		if u.Context != "" {
			at = " of " + u.Context
		}
		p.Wrap("  ", console.Count(u.Runtimes, "runtime")+at+": "+u.Reason)
		if p.Wide {
			p.Wrap("    ", someNames(u.Names, u.Runtimes))
		}
	}
}

// someNames returns a text with the given names, and with the number of further names that are left out.
func someNames(names []string, total int) string {
	text := strings.Join(names, " ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (r *report) showFreezes(p *console.Page) {
	p.Line("")
	if len(r.Freezes) == 0 {
		p.Line("No RolloutPolicy has a freeze in this month.")
	}
	var rows [][]string
	var contexts []string
	for _, f := range r.Freezes {
		contexts = append(contexts, f.Context)
		rows = append(rows, []string{f.Policy, f.Name, r.formatTime(f.From), r.formatTime(f.To), f.State,
			console.OrDash(ExceptionsOf(&f)), console.OrDash(p.Clip(strings.Join(f.Stops, " "), 60)),
			console.OrDash(strings.Join(f.Spares, " "))})
	}
	if len(rows) > 0 {
		r.showTable(p, []string{"POLICY", "FREEZE", "FROM", "TO", "STATE", "EXCEPT", "STOPS", "+SPARES"}, rows,
			contexts)
	}
	for _, name := range r.Suspended {
		p.Line("RolloutPolicy %s suspends all its rollouts, until a person ends that.", name)
	}
}

// ExceptionsOf returns a text about the exceptions of a freeze.
func ExceptionsOf(f *calendar.Freeze) string {
	var all []string
	for _, e := range f.Except {
		all = append(all, string(e))
	}
	return strings.Join(all, ", ")
}

func (r *report) showStages(p *console.Page) {
	p.Line("")
	if len(r.Stages) == 0 {
		p.Line("No rollout begins, goes on or ends in this month, as far as is known.")
		return
	}
	var rows [][]string
	var contexts []string
	isForecast := false
	for i := range r.Stages {
		s := &r.Stages[i]
		contexts = append(contexts, s.Context)
		begins, ends := TimesOf(s, r.formatTime)
		isForecast = isForecast || strings.HasPrefix(begins+ends, "~") || strings.HasPrefix(ends, "~")
		rows = append(rows, []string{s.Rollout, s.From + " → " + s.To, console.OrDash(s.Stage), s.State,
			TotalAndWaitingOf(s),
			begins, ends, console.OrDash(p.Clip(s.Why, 60))})
	}
	r.showTable(p, []string{"ROLLOUT", "VERSIONS", "STAGE", "STATE", "RUNTIMES", "BEGINS", "ENDS", "HELD BY"}, rows,
		contexts)
	if r.MoreStages > 0 {
		p.Line("and %d more; --module shows fewer", r.MoreStages)
	}
	if isForecast {
		p.Line("~ is a forecast of the manager: if nothing fails, and gates that need a person pass at once.")
	}
}

// TotalAndWaitingOf returns a text with the number of runtimes of a stage and the number of these runtimes that wait.
func TotalAndWaitingOf(s *calendar.Stage) string {
	switch {
	case s.Runtimes == 0:
		return "-"
	case s.Waiting > 0 && s.Waiting < s.Runtimes:
		return fmt.Sprintf("%d, %d wait", s.Runtimes, s.Waiting)
	}
	return fmt.Sprint(s.Runtimes)
}

// TimesOf returns a text with the times at which a stage begins and ends. A time that is a forecast begins with a
// tilde.
func TimesOf(s *calendar.Stage, at func(time.Time) string) (begins, ends string) {
	forecast := func(t time.Time, is bool) string {
		if is && !t.IsZero() {
			return "~" + at(t)
		}
		return at(t)
	}
	return forecast(s.Begins, s.IsExpected), forecast(s.Ends, !s.IsRolloutOver())
}

func (r *report) showDeferrals(p *console.Page) {
	if len(r.Deferrals) == 0 {
		return
	}
	var rows [][]string
	var contexts []string
	for _, d := range r.Deferrals {
		contexts = append(contexts, d.Context)
		rows = append(rows, []string{r.formatTime(d.Until), d.Rollout, d.To, fmt.Sprint(d.Runtimes),
			someNames(d.Names, d.Runtimes)})
	}
	p.Line("")
	r.showTable(p, []string{"DEFERRED UNTIL", "ROLLOUT", "VERSION", "RUNTIMES", "+NAMES"}, rows, contexts)
	if r.MoreDeferrals > 0 {
		p.Line("and %d more", r.MoreDeferrals)
	}
}

// formatTime returns a time in the time zone of the calendar.
func (r *report) formatTime(t time.Time) string { return FormatTime(r.Month, t) }

// FormatTime returns a time in the time zone of a month. If the time is in another year than the month of the calendar,
// the text contains the year. For the zero time, FormatTime returns "-".
func FormatTime(m calendar.Month, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	layout := "Mon 2 Jan 15:04"
	if t = t.In(m.Begins.Location()); t.Year() != m.Begins.Year() {
		layout = "Mon 2 Jan 2006 15:04"
	}
	return t.Format(layout)
}

// SpansOf returns a text about one day: the hours at which maintenance windows are open, and the number of runtimes
// with an open window.
func SpansOf(d *calendar.Day, number func(int) string) string {
	var all []string
	for _, s := range d.SpansOfEqualRuntimes() {
		all = append(all, fmt.Sprintf("%02d:00–%02d:00: %s", s.From, s.To, number(s.Runtimes)))
	}
	return cmp.Or(strings.Join(all, ", "), "–")
}
