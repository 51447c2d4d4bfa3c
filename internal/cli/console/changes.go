package console

import (
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/trial"
)

// Changes writes the result of a dry run: the changed objects with their fields, and the number of unchanged objects.
// Unless the user has requested -o wide, Changes writes at most 20 objects and at most 20 fields of each object.
func (p *Page) Changes(changes []trial.Change, unchanged int) {
	const limit = 20
	for _, c := range changes {
		p.Line("%-7s  %s", c.Action, c.Object)
		if c.Message != "" {
			p.Wrap("           ", c.Message)
		}
		shown := c.Fields
		if !p.Wide && len(shown) > limit {
			shown = shown[:limit]
		}
		for _, f := range shown {
			before, after := p.clipToDifference(OrDash(f.Before), OrDash(f.After), 60)
			p.Line("           %s: %s → %s", f.Path, before, after)
		}
		if more := len(c.Fields) - len(shown); more > 0 {
			p.Line("           and %s more; -o wide shows all", Count(more, "field"))
		}
	}
	if len(changes) == 0 {
		p.Line("nothing would change")
	}
	p.Line("%s unchanged", Count(unchanged, "object"))
}

// clipToDifference shortens the old and the new value of a change to a limit, unless the user has requested -o wide. If
// both values have the same beginning, clipToDifference leaves out the beginning, so that the first difference is
// visible.
func (p *Page) clipToDifference(a, b string, limit int) (string, string) {
	one, two := []rune(strings.Join(strings.Fields(a), " ")), []rune(strings.Join(strings.Fields(b), " "))
	same := 0
	for same < min(len(one), len(two)) && one[same] == two[same] {
		same++
	}
	const before = 15 // characters before the first difference
	if !p.Wide && max(len(one), len(two)) > limit && same > limit/2 {
		from := same - before
		one, two = append([]rune("…"), one[from:]...), append([]rune("…"), two[from:]...)
	}
	return p.Clip(string(one), limit), p.Clip(string(two), limit)
}
