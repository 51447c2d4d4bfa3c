package channel

import (
	"fmt"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// MaintenanceWindow is one maintenance window at its date: updates may start from Begin to before End.
type MaintenanceWindow struct {
	Begin, End time.Time
}

// IsOpen tells whether now is in it.
func (o MaintenanceWindow) IsOpen(now time.Time) bool {
	return !now.Before(o.Begin) && now.Before(o.End)
}

// CurrentOrNextWindow returns the window that is open now for a Kyma with these labels, or opens next. Of several that are open it is the one that
// ends last. The error is a *Blocker with the reason v1beta2.ReasonWindowUnknown.
func (p *Policy) CurrentOrNextWindow(labels map[string]string, now time.Time) (MaintenanceWindow, error) {
	if p == nil {
		return MaintenanceWindow{}, windowUnknown("there is no maintenance policy: configure one, or set spec.skipMaintenanceWindows in the control plane")
	}
	missing := "no rule of the maintenance policy matches this Kyma, and there is no default"
	if i := p.ruleFor(labels); i >= 0 {
		if o, ok := firstWindow(p.rules[i].windows, now, p.MinRemaining); ok {
			return o, nil
		}
		missing = fmt.Sprintf("the windows of rules[%d] of the maintenance policy are over or not longer than %s, and there is no default", i, p.MinRemaining)
	}
	if o, ok := firstWindow(p.defaultWindow, now, p.MinRemaining); ok {
		return o, nil
	}
	if len(p.defaultWindow) > 0 {
		missing = fmt.Sprintf("the default window of the maintenance policy is over or not longer than %s", p.MinRemaining)
	}
	return MaintenanceWindow{}, windowUnknown("%s: add a window, or set spec.skipMaintenanceWindows in the control plane", missing)
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

// soonest returns what is open, and of that what ends last; else what opens first.
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

// window is one entry of a policy: a time on some days of the week, or once.
type window struct {
	days       uint8             // one bit for each weekday on which it begins; 0: it is once
	begin, end time.Duration     // since the midnight that the clock shows; end is on the next day if it is not after begin
	zone       *time.Location    // of days, begin and end
	once       MaintenanceWindow // if it is once
}

// next returns the date of the window that is open, or comes next, and has or will have more than least left; false if there is none.
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
	// It may have begun yesterday. A weekly one comes within a week, or in two if this week's is what a change of the clock skips.
	const from, to = -1, 15
	year, month, day := now.In(w.zone).Date()
	for i := from; i <= to; i++ {
		if on := time.Date(year, month, day+i, 0, 0, 0, 0, time.UTC).Weekday(); w.days&(1<<on) == 0 {
			continue
		}
		o := MaintenanceWindow{timeOnDate(year, month, day+i, w.begin, w.zone), timeOnDate(year, month, day+i+nights, w.end, w.zone)}
		if fits(o) {
			return o, true
		}
	}
	return MaintenanceWindow{}, false
}

// instant returns when the clock of a zone shows a time on a date: for the first time, if it does twice; when the clock jumps over it,
// if it never does.
func timeOnDate(year int, month time.Month, day int, clock time.Duration, zone *time.Location) time.Time {
	shown := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(clock)
	// No zone is further from UTC than this, so the change of the clock, if there is one, is between the two.
	_, before := shown.Add(-15 * time.Hour).In(zone).Zone()
	_, after := shown.Add(15 * time.Hour).In(zone).Zone()
	for _, offset := range []int{before, after} {
		t := shown.Add(-time.Duration(offset) * time.Second).In(zone)
		if _, is := t.Zone(); is == offset {
			return t
		}
	}
	change, _ := shown.Add(-time.Duration(before) * time.Second).In(zone).ZoneBounds()
	return change
}

// clockOf returns the time of day that t shows.
func timeOfDay(t time.Time) time.Duration {
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
}
