package moduleauthor

import (
	"context"
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
	c := a.Command("lint [FILE] [--previous PLACE]", "find what should be corrected before a module is released",
		`FILE is the module-config. With --previous, the version before, klm also finds what the upgrade would break: CRDs that refuse or drop existing
objects of users, fields that cannot be changed, objects that are deleted, new rights. Exit code 1 if there is an error, 0 for warnings.
`+ocmaccess.PlaceHelp, `
klm module lint
klm module lint --previous released.ctf
klm module lint --previous registry.example.com/modules//kyma-project.io/module/sample:1.0.0 -o json`,
		console.Arguments("[FILE]"), func(cmd *cobra.Command, args []string) error {
			file := defaultConfig
			if len(args) > 0 {
				file = args[0]
			}
			access, err := e.Access(a)
			if err != nil {
				return err
			}
			return lintModule(cmd.Context(), a, file, previous, access)
		})
	c.ValidArgsFunction = nil // files
	c.Flags().StringVar(&previous, "previous", "",
		"PLACE//COMPONENT:VERSION of the version before; component and version may be omitted if there is only one")
	e.Register(c.Flags())
	return c
}

// lintReport is the report of klm module lint.
type lintReport struct {
	Name     string            `json:"name,omitempty"`
	Version  string            `json:"version,omitempty"`
	Previous string            `json:"previous,omitempty"`
	Findings []content.Finding `json:"findings"`
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
	findingList(l.Findings).Show(p)
	what := l.Name + ":" + l.Version
	if l.Previous != "" {
		what += " after " + l.Previous
	}
	p.Line("%s: %s, %s", what, console.Count(l.count(content.Error), "error"),
		console.Count(l.count(content.Warning), "warning"))
}

func lintModule(ctx context.Context, a *console.App, file, previous string, access storage.Access) error {
	m, err := author.Build(ctx, author.Source{File: file})
	if err != nil {
		return ocmaccess.Explain(err)
	}
	l := lintReport{Name: m.Name, Version: m.Version}
	var before *author.Module
	if previous != "" {
		p, err := ocmaccess.Open(previous, access, false)
		if err != nil {
			return err
		}
		if before, err = author.Load(ctx, p); err != nil {
			return ocmaccess.Explain(err)
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
