package month

import (
	"fmt"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetcalendar"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/calendar"
)

// Sizes of the picture, in its own units.
const (
	left, top           = 58, 18 // of the first hour
	hourWidth, dayLine  = 24, 17
	cellWidth, cellLine = 22, 14
)

// Picture is a calendar as a picture: a line for each day, and a cell for each hour.
type Picture struct {
	Width, Height int
	Hours         []Tick
	Days          []PictureDay
	// Levels are the numbers of the colour levels of cells, for the legend. A level stands for a range of numbers of
	// runtimes.
	Levels []int
}

// Tick is the label of an hour.
type Tick struct {
	X    int
	Text string
}

// PictureDay is one day of the month: a row of cells in the picture.
type PictureDay struct {
	Text     string
	Y, TextY int
	IsToday  bool
	Cells    []PictureCell
	// Frozen are the times of the day at which a freeze is in force. FrozenY is the vertical position of the field
	// Frozen in the picture.
	Frozen  []PictureCell
	FrozenY int
	// The field Begins contains a mark for each stage that begins on this day, or is expected to begin.
	Begins []Mark
}

// PictureCell is a rectangle. Title describes its meaning.
type PictureCell struct {
	X, Width, Level int
	Title           string
}

// Mark is a triangle.
type Mark struct{ Points, Title string }

// pictureOf returns the picture of a calendar.
func pictureOf(c *calendar.Calendar, now time.Time) Picture {
	p := Picture{Width: left + 24*hourWidth + 4, Height: top + len(c.Days)*dayLine + 4}
	for hour := 0; hour < 24; hour += 3 {
		p.Hours = append(p.Hours, Tick{left + hour*hourWidth, fmt.Sprintf("%02d", hour)})
	}
	for level := range calendar.Levels {
		p.Levels = append(p.Levels, level+1)
	}
	for i := range c.Days {
		d, y := &c.Days[i], top+i*dayLine
		day := PictureDay{Text: d.Begins.Format("Mon _2"), Y: y, TextY: y + cellLine - 3, FrozenY: y + cellLine - 3,
			IsToday: !now.Before(d.Begins) && now.Before(d.Ends)}
		for _, h := range d.Hours {
			day.Cells = append(day.Cells, PictureCell{left + h.Hour*hourWidth, cellWidth, c.Level(h.Runtimes),
				fmt.Sprintf("%s, %02d:00: %s of %s", day.Text, h.Hour, sheet.Number(h.Runtimes),
					sheet.Number(c.Windowed))})
		}
		for j := range c.Freezes {
			f := &c.Freezes[j]
			if !f.From.Before(d.Ends) || !f.To.After(d.Begins) {
				continue
			}
			from, to := xOf(d, f.From), xOf(d, f.To)
			day.Frozen = append(day.Frozen, PictureCell{X: from, Width: max(to-from, 2),
				Title: fmt.Sprintf("%s, freeze %s of %s", day.Text, f.Name, f.Policy)})
		}
		for j := range c.Stages {
			s := &c.Stages[j]
			if s.Begins.Before(d.Begins) || !s.Begins.Before(d.Ends) {
				continue
			}
			x, what := xOf(d, s.Begins), "begins"
			if s.IsExpected {
				what = "is expected to begin"
			}
			if s.Stage != "" {
				what = "stage " + s.Stage + " " + what
			}
			points := fmt.Sprintf("%d,%d %d,%d %d,%d", x, y, x+9, y+cellLine/2, x, y+cellLine)
			day.Begins = append(day.Begins, Mark{points,
				fmt.Sprintf("%s: %s at %s", s.Rollout, what, fleetcalendar.FormatTime(c.Month, s.Begins))})
		}
		p.Days = append(p.Days, day)
	}
	return p
}

// xOf returns the horizontal place of a time on a day, by the local time of day. A time before the day is placed at the
// beginning of the day, and a time after the day at its end.
func xOf(d *calendar.Day, t time.Time) int {
	switch {
	case !t.After(d.Begins):
		return left
	case !t.Before(d.Ends):
		return left + 24*hourWidth
	}
	local := t.In(d.Begins.Location())
	return left + (local.Hour()*60+local.Minute())*hourWidth/60
}

// altTextOf returns a description of the picture for people who cannot see it.
func altTextOf(c *calendar.Calendar) string {
	var busiest []string
	for i := range c.Days {
		if h := c.Days[i].Most(); h != nil && h.Runtimes == c.Most && len(busiest) < 3 {
			busiest = append(busiest, fmt.Sprintf("%s, %02d:00", c.Days[i].Begins.Format("Mon 2"), h.Hour))
		}
	}
	text := "Maintenance windows by day and hour. The table of days has the same numbers."
	if len(busiest) > 0 {
		text += fmt.Sprintf(" Most are open on %s.", strings.Join(busiest, "; "))
	}
	return text
}
