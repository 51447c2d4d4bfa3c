package calendar

// Span is a sequence of hours of a day in which the same number of runtimes has an open window.
type Span struct {
	// From is the first hour, 0 to 23, and To the hour after the last one, 1 to 24.
	From, To int
	// Runtimes is the number of runtimes with an open window in each hour of the Span.
	Runtimes int
}

// SpansOfEqualRuntimes returns the hours of a day in which windows are open, and joins adjacent hours with the same
// number of runtimes to one Span.
func (d *Day) SpansOfEqualRuntimes() []Span {
	var all []Span
	for i := range d.Hours {
		h := &d.Hours[i]
		if n := len(all); n > 0 && all[n-1].To == h.Hour && all[n-1].Runtimes == h.Runtimes {
			all[n-1].To++
			continue
		}
		all = append(all, Span{h.Hour, h.Hour + 1, h.Runtimes})
	}
	return all
}

// Levels is the highest value of [Calendar.Level].
const Levels = 8

// Level converts a number of runtimes into a level from 0 to Levels, for the colours of a heat map. Level 0 means no
// runtime. The level [Levels] means all runtimes that have windows.
func (c *Calendar) Level(runtimes int) int {
	if runtimes <= 0 || c.Windowed == 0 {
		return 0
	}
	return min(Levels, max(1, (runtimes*Levels+c.Windowed-1)/c.Windowed))
}
