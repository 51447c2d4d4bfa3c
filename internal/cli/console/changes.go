package console

import (
	"github.com/kyma-fleet/lifecycle-manager/internal/author/trial"
)

// Changes writes the result of a dry run: the changed objects with their fields, and the number of unchanged objects.
// Unless the page is wide, Changes writes at most 20 objects and at most 20 fields of each object.
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
			p.Line("           %s: %s → %s", f.Path, p.Clip(OrDash(f.Before), 60), p.Clip(OrDash(f.After), 60))
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
