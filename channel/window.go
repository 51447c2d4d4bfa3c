package channel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// MaintenanceWindow is one occurrence of a maintenance window, with its begin and its end. An update may start at Begin
// or later, but must start before End.
type MaintenanceWindow struct {
	Begin, End time.Time
}

// IsOpen reports whether the time now is in the maintenance window.
func (o MaintenanceWindow) IsOpen(now time.Time) bool {
	return !now.Before(o.Begin) && now.Before(o.End)
}

// CurrentOrNextWindow returns the maintenance window that is open now, or else the next one, for a Kyma with the given
// labels. If several windows are open, CurrentOrNextWindow returns the open window that ends last. If no window is
// open, CurrentOrNextWindow returns the window that opens next. The error is a *Blocker with the reason
// v1beta2.ReasonWindowUnknown.
func (p *Policy) CurrentOrNextWindow(labels map[string]string, now time.Time) (MaintenanceWindow, error) {
	if p == nil {
		return MaintenanceWindow{}, windowUnknown(
			"there is no maintenance policy: configure one, or set spec.skipMaintenanceWindows in the control plane")
	}
	if p.problem != nil {
		return MaintenanceWindow{}, windowUnknown("no maintenance policy is in force, because the configured one "+
			"cannot be used: %v", p.problem)
	}
	missing := "no rule of the maintenance policy matches this Kyma, and there is no default"
	if i := p.ruleIndexFor(labels); i >= 0 {
		if o, ok := longestOpenOrNextWindow(p.rules[i].windows, now, p.MinRemaining); ok {
			return o, nil
		}
		missing = fmt.Sprintf(
			"the windows of rules[%d] of the maintenance policy are over or not longer than %s, and there is no "+
				"default", i, p.MinRemaining)
	}
	if o, ok := longestOpenOrNextWindow(p.defaultWindow, now, p.MinRemaining); ok {
		return o, nil
	}
	if len(p.defaultWindow) > 0 {
		missing = fmt.Sprintf("the default window of the maintenance policy is over or not longer than %s",
			p.MinRemaining)
	}
	return MaintenanceWindow{},
		windowUnknown("%s: add a window, or set spec.skipMaintenanceWindows in the control plane", missing)
}

func windowUnknown(format string, args ...any) *Blocker {
	return newBlocker(v1beta2.ReasonWindowUnknown, policyObject, format, args...)
}

// ruleIndexFor returns the index of the first rule that matches. ruleIndexFor returns -1 if no rule matches.
func (p *Policy) ruleIndexFor(labels map[string]string) int {
	for i := range p.rules {
		if p.rules[i].matches(labels) {
			return i
		}
	}
	return -1
}

// RuleIndexFinder returns a function that finds the rule of a Kyma: it returns the index of the first rule that matches
// the labels of the Kyma. The index is -1 if no rule matches and the Kyma has the default window. All Kymas for which
// the function returns the same index have the same windows. The function caches its results, so it matches labels with
// equal values only once. The function must be used by one goroutine only.
func (p *Policy) RuleIndexFinder() func(labels map[string]string) int {
	if p == nil {
		return func(map[string]string) int { return -1 }
	}
	used := map[string]bool{}
	for i := range p.rules {
		for label := range p.rules[i].match {
			used[label] = true
		}
	}
	keys, known := slices.Sorted(maps.Keys(used)), map[string]int{}
	return func(labels map[string]string) int {
		var values strings.Builder
		for _, key := range keys {
			values.WriteString(labels[key])
			values.WriteByte(0)
		}
		rule, found := known[values.String()]
		if !found {
			rule = p.ruleIndexFor(labels)
			known[values.String()] = rule
		}
		return rule
	}
}

func (r *rule) matches(labels map[string]string) bool {
	for label, re := range r.match {
		if value := labels[label]; value == "" || !re.MatchString(value) {
			return false
		}
	}
	return true
}

// longestOpenOrNextWindow returns the window that an update can use first. If several windows are open, this is the
// open window that ends last. If no window is open, this is the window that opens first.
func longestOpenOrNextWindow(windows []window, now time.Time, minRemaining time.Duration) (
	best MaintenanceWindow, found bool) {
	before := func(a, b MaintenanceWindow) bool {
		switch isOpen := a.IsOpen(now); {
		case isOpen != b.IsOpen(now):
			return isOpen
		case isOpen:
			return a.End.After(b.End)
		}
		return a.Begin.Before(b.Begin)
	}
	for i := range windows {
		if o, ok := windows[i].currentOrNext(now, minRemaining); ok && (!found || before(o, best)) {
			best, found = o, true
		}
	}
	return best, found
}

// window is one entry of a policy. window is either a time on some days of the week or a single date.
type window struct {
	days       uint8             // one bit for each weekday on which the window begins; 0 if the window occurs once
	begin, end time.Duration     // time of day; end is on the next day if it is not after begin
	zone       *time.Location    // the time zone of days, begin and end
	once       MaintenanceWindow // set if the window occurs once
}

// currentOrNext returns the occurrence of the window that is open now or opens next. currentOrNext skips an occurrence
// of which no more than the duration "minRemaining" remains, and returns false if it finds no occurrence.
func (w *window) currentOrNext(now time.Time, minRemaining time.Duration) (MaintenanceWindow, bool) {
	fits := func(o MaintenanceWindow) bool {
		from := o.Begin
		if now.After(from) {
			from = now
		}
		return o.End.Sub(from) > max(minRemaining, 0)
	}
	if w.days == 0 {
		return w.once, fits(w.once)
	}
	nights := 0
	if w.end <= w.begin {
		nights = 1
	}
	// The open occurrence of a window may have begun yesterday. A weekly window occurs within one week, or within two
	// weeks if the clocks skip the occurrence of this week.
	const from, to = -1, 15
	year, month, day := now.In(w.zone).Date()
	for i := from; i <= to; i++ {
		if on := time.Date(year, month, day+i, 0, 0, 0, 0, time.UTC).Weekday(); w.days&(1<<on) == 0 {
			continue
		}
		o := MaintenanceWindow{timeOnDate(year, month, day+i, w.begin, w.zone),
			timeOnDate(year, month, day+i+nights, w.end, w.zone)}
		if fits(o) {
			return o, true
		}
	}
	return MaintenanceWindow{}, false
}

// timeOnDate returns the instant at which the clocks of a zone show a time of day on a date. If the clocks show the
// time of day twice on this date, timeOnDate returns the first instant. If the clocks skip the time of day, timeOnDate
// returns the instant at which the clocks change.
func timeOnDate(year int, month time.Month, day int, clock time.Duration, zone *time.Location) time.Time {
	local := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(clock)
	// No time zone differs from UTC by more than 15 hours. If the clocks change on the given date, the change therefore
	// lies between the instants 15 hours before and 15 hours after the variable local.
	_, before := local.Add(-15 * time.Hour).In(zone).Zone()
	_, after := local.Add(15 * time.Hour).In(zone).Zone()
	for _, offset := range []int{before, after} {
		t := local.Add(-time.Duration(offset) * time.Second).In(zone)
		if _, is := t.Zone(); is == offset {
			return t
		}
	}
	change, _ := local.Add(-time.Duration(before) * time.Second).In(zone).ZoneBounds()
	return change
}

// timeOfDay returns the time of day of the instant t.
func timeOfDay(t time.Time) time.Duration {
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(
		t.Second())*time.Second + time.Duration(t.Nanosecond())
}
