package calendar

import (
	"cmp"
	"slices"
	"strings"
)

// Part is the calendar of one control plane. Context is the name of this control plane.
type Part struct {
	Context  string
	Calendar *Calendar
}

// Merge adds up the calendars of several control planes. All calendars must be of the month in the parameter m. Each
// row of the result has a field with the name of its control plane. Where the result has a name of a freeze or a policy
// without such a field, the name begins with the name of the control plane.
func Merge(m Month, parts []Part) *Calendar {
	sum := &Calendar{Month: m, Days: daysOf(m)}
	for _, p := range parts {
		c := p.Calendar
		sum.Runtimes, sum.Windowed = sum.Runtimes+c.Runtimes, sum.Windowed+c.Windowed
		sum.AnyTime, sum.Later = sum.AnyTime+c.AnyTime, sum.Later+c.Later
		sum.MoreStages, sum.MoreDeferrals = sum.MoreStages+c.MoreStages, sum.MoreDeferrals+c.MoreDeferrals
		for i := range c.Days {
			sum.Days[i].add(p.Context, &c.Days[i])
		}
		for _, w := range c.Windows {
			w.Context = p.Context
			sum.Windows = append(sum.Windows, w)
		}
		for _, u := range c.Unresolved {
			u.Context = p.Context
			sum.Unresolved = append(sum.Unresolved, u)
		}
		for _, f := range c.Freezes {
			f.Context = p.Context
			sum.Freezes = append(sum.Freezes, f)
		}
		for _, policy := range c.Suspended {
			sum.Suspended = append(sum.Suspended, p.Context+"/"+policy)
		}
		for _, s := range c.Stages {
			s.Context = p.Context
			sum.Stages = append(sum.Stages, s)
		}
		for _, d := range c.Deferrals {
			d.Context = p.Context
			sum.Deferrals = append(sum.Deferrals, d)
		}
	}
	sum.dropClosedHoursAndSetMost()
	sum.sortAndLimit()
	return sum
}

// add adds the counts of the day other to the day d. The day other is the same day in the calendar of one control
// plane, and has only the hours in which a window is open.
func (d *Day) add(context string, other *Day) {
	for _, h := range other.Hours {
		at := slices.IndexFunc(d.Hours, func(is Hour) bool { return is.Begins.Equal(h.Begins) })
		if at >= 0 {
			d.Hours[at].Runtimes += h.Runtimes
		}
	}
	for _, f := range other.Freezes {
		d.Freezes = append(d.Freezes, context+"/"+f)
	}
}

// dropClosedHoursAndSetMost removes the hours in which no window is open, and finds the hour in which most windows are
// open.
func (c *Calendar) dropClosedHoursAndSetMost() {
	for i := range c.Days {
		d := &c.Days[i]
		d.Hours = slices.DeleteFunc(d.Hours, func(h Hour) bool { return h.Runtimes == 0 })
		for j := range d.Hours {
			c.Most = max(c.Most, d.Hours[j].Runtimes)
		}
	}
}

// sortAndLimit sorts all lists, and limits them to MaxRows.
func (c *Calendar) sortAndLimit() {
	slices.SortStableFunc(c.Windows, func(a, b Windows) int { return cmp.Compare(b.Runtimes, a.Runtimes) })
	slices.SortStableFunc(c.Unresolved, func(a, b Unresolved) int { return cmp.Compare(b.Runtimes, a.Runtimes) })
	slices.SortStableFunc(c.Freezes, func(a, b Freeze) int {
		return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Policy, b.Policy), strings.Compare(a.Name, b.Name))
	})
	slices.Sort(c.Suspended)
	slices.SortStableFunc(c.Stages, func(a, b Stage) int {
		return cmp.Or(boolCompare(a.IsRolloutOver(), b.IsRolloutOver()), strings.Compare(a.Context, b.Context),
			strings.Compare(a.Rollout, b.Rollout))
	})
	slices.SortStableFunc(c.Deferrals, func(a, b Deferral) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Rollout, b.Rollout))
	})
	c.Windows = c.Windows[:min(len(c.Windows), MaxRows)]
	c.Unresolved = c.Unresolved[:min(len(c.Unresolved), MaxRows)]
	c.Freezes = c.Freezes[:min(len(c.Freezes), MaxRows)]
	c.MoreStages += max(0, len(c.Stages)-MaxRows)
	c.Stages = c.Stages[:min(len(c.Stages), MaxRows)]
	c.MoreDeferrals += max(0, len(c.Deferrals)-MaxRows)
	c.Deferrals = c.Deferrals[:min(len(c.Deferrals), MaxRows)]
}
