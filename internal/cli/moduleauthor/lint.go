package moduleauthor

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/ocmaccess"
)

func lintCommand(a *console.App) *cobra.Command {
	var e ocmaccess.Flags
	var previous string
	var all bool
	var source author.Source
	c := a.Command("lint [FILE] [--previous PLACE]", "find what should be corrected before a module is released",
		`FILE is the module-config. klm finds what would end as Error in every runtime: unknown kinds and fields, API versions that Kubernetes does not
serve any more, values of a wrong type, namespaces that nobody creates. With --previous, the version before, klm also finds what the upgrade would
break: CRDs that refuse or drop existing objects of users, fields that cannot be changed, objects that are deleted, new rights; and what speaks
against a way back to it that the module declares (upgrade.back). Exit code 1 if there is an error, 0 for warnings.
`+ocmaccess.PlaceHelp, `
klm module lint
klm module lint --previous released.ctf
klm module lint --previous registry.example.com/modules//kyma-project.io/module/sample:1.0.0 -o json`,
		console.Arguments("[FILE]"), func(cmd *cobra.Command, args []string) error {
			source.File = defaultConfig
			if len(args) > 0 {
				source.File = args[0]
			}
			access, err := e.Access(a)
			if err != nil {
				return err
			}
			return lintModule(cmd.Context(), a, lintOptions{source, previous, access, all})
		})
	c.ValidArgsFunction = nil // files
	c.Flags().StringVar(&previous, "previous", "",
		"PLACE//COMPONENT:VERSION of the version before; component and version may be omitted if there is only one")
	c.Flags().BoolVar(&all, "all", false,
		fmt.Sprintf("show all findings; default: the first %d of each level", shownFindings))
	registerRootFlag(c, &source)
	e.Register(c.Flags())
	return c
}

// lintOptions are the arguments and flags of klm module lint.
type lintOptions struct {
	source   author.Source
	previous string
	access   storage.Access
	all      bool
}

// lintReport is the report of klm module lint.
type lintReport struct {
	Name     string            `json:"name,omitempty"`
	Version  string            `json:"version,omitempty"`
	Previous string            `json:"previous,omitempty"`
	Findings []content.Finding `json:"findings"`

	all bool // show the whole list
}

func (l lintReport) Names() []string {
	var names []string
	for _, f := range l.Findings {
		names = append(names, f.Where)
	}
	return names
}

func (l lintReport) count(level content.Level) (n int) {
	for _, f := range l.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

func (l lintReport) Show(p *console.Page) {
	l.showFindings(p)
	what := l.Name + ":" + l.Version
	if l.Previous != "" {
		what += " after " + l.Previous
	}
	p.Line("%s: %s, %s", what, console.Count(l.count(content.Error), "error"),
		console.Count(l.count(content.Warning), "warning"))
}

// shownFindings is the number of findings of each level that are shown.
const shownFindings = 20

// showFindings shows the findings. If several objects have a finding with the same text, these findings are shown in
// one line.
func (l lintReport) showFindings(p *console.Page) {
	type line struct {
		level       content.Level
		where, what string
		others      int // number of other objects with the same text
	}
	var lines []*line
	seen := map[content.Finding]*line{}
	for _, f := range l.Findings {
		key := content.Finding{Level: f.Level, What: f.What}
		if same := seen[key]; same != nil && !l.all {
			same.others++
			continue
		}
		seen[key] = &line{f.Level, f.Where, f.What, 0}
		lines = append(lines, seen[key])
	}
	shown, hidden := map[content.Level]int{}, 0
	for _, n := range lines {
		if shown[n.level]++; shown[n.level] > shownFindings && !l.all {
			hidden += 1 + n.others
			continue
		}
		if n.others > 0 {
			n.where += " and " + console.Count(n.others, "more object")
		}
		p.Line("%-7s  %s: %s", n.level, n.where, n.what)
	}
	if hidden > 0 {
		p.Line("%s: klm module lint --all shows them", console.Count(hidden, "more finding"))
	}
}

func lintModule(ctx context.Context, a *console.App, o lintOptions) error {
	m, err := author.Inspect(ctx, o.source)
	if err != nil {
		return ocmaccess.ExplainWithExitCode(err)
	}
	l := lintReport{Name: m.Name, Version: m.Version, all: o.all}
	var before *author.Module
	if o.previous != "" {
		p, err := ocmaccess.Open(o.previous, o.access, false)
		if err != nil {
			return err
		}
		if before, err = author.Load(ctx, p); err != nil {
			return ocmaccess.ExplainWithExitCode(err)
		}
		l.Previous = before.Version
	}
	l.Findings = m.Lint(before)
	if err := a.Print(l); err != nil {
		return err
	}
	if slices.ContainsFunc(l.Findings, func(f content.Finding) bool { return f.Level == content.Error }) {
		return console.Fail(console.ExitFailed, "%s:%s should not be released as it is: %s", m.Name, m.Version,
			console.Count(l.count(content.Error), "error"))
	}
	return nil
}
