package channel

import (
	"fmt"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// MaintenanceWindow is one occurrence of a maintenance window: updates may start from Begin to before End.
type MaintenanceWindow struct {
	Begin, End time.Time
}

// IsOpen reports whether now is in the window.
func (o MaintenanceWindow) IsOpen(now time.Time) bool {
	return !now.Before(o.Begin) && now.Before(o.End)
}

// CurrentOrNextWindow returns the window that is open now for a Kyma with these labels, or opens next. If several are
// open, it is the one that ends last. The error is a *Blocker with the reason v1beta2.ReasonWindowUnknown.
func (p *Policy) CurrentOrNextWindow(labels map[string]string, now time.Time) (MaintenanceWindow, error) {
	if p == nil {
		return MaintenanceWindow{}, windowUnknown(
			"there is no maintenance policy: configure one, or set spec.skipMaintenanceWindows in the control plane")
	}
	missing := "no rule of the maintenance policy matches this Kyma, and there is no default"
	if i := p.ruleFor(labels); i >= 0 {
		if o, ok := firstWindow(p.rules[i].windows, now, p.MinRemaining); ok {
			return o, nil
		}
		missing = fmt.Sprintf(
			"the windows of rules[%d] of the maintenance policy are over or not longer than %s, and there is no "+
				"default", i, p.MinRemaining)
	}
	if o, ok := firstWindow(p.defaultWindow, now, p.MinRemaining); ok {
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

// ruleFor returns the index of the first rule that matches, -1 if none does.
func (p *Policy) ruleFor(labels map[string]string) int {
	for i := range p.rules {
		if p.rules[i].matches(labels) {
			return i
		}
	}
	return -1
}

func (r *rule) matches(labels map[string]string) bool {
	for label, re := range r.match {
		if value := labels[label]; value == "" || !re.MatchString(value) {
			return false
		}
	}
	return true
}

// firstWindow returns the open window that ends last; if none is open, the one that opens first.
func firstWindow(windows []window, now time.Time, least time.Duration) (best MaintenanceWindow, found bool) {
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
		if o, ok := windows[i].next(now, least); ok && (!found || before(o, best)) {
			best, found = o, true
		}
	}
	return best, found
}

// window is one entry of a policy: a time on some days of the week, or one date.
type window struct {
	days       uint8             // one bit for each weekday on which it begins; 0 if it occurs once
	begin, end time.Duration     // time of day; end is on the next day if it is not after begin
	zone       *time.Location    // the time zone of days, begin and end
	once       MaintenanceWindow // if it occurs once
}

// next returns the occurrence of the window that is open, or opens next, and of which more than least remains; false if
// there is none.
func (w *window) next(now time.Time, least time.Duration) (MaintenanceWindow, bool) {
	fits := func(o MaintenanceWindow) bool {
		from := o.Begin
		if now.After(from) {
			from = now
		}
		return o.End.Sub(from) > max(least, 0)
	}
	if w.days == 0 {
		return w.once, fits(w.once)
	}
	nights := 0
	if w.end <= w.begin {
		nights = 1
	}
	// It may have begun yesterday. A weekly window occurs within a week, or within two if a change of the clock skips
	// the one of this week.
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

// timeOnDate returns when the clocks of a zone show a time on a date: the first occurrence if the clocks show it twice,
// and the time of the clock change if they skip it.
func timeOnDate(year int, month time.Month, day int, clock time.Duration, zone *time.Location) time.Time {
	local := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(clock)
	// No zone differs from UTC by more than this, so a clock change, if there is one, is between the two.
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

// timeOfDay returns the time of day of t.
func timeOfDay(t time.Time) time.Duration {
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(
		t.Second())*time.Second + time.Duration(t.Nanosecond())
}
