package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
)

func (a *app) moduleLintCommand() *cobra.Command {
	var e entrance
	var previous string
	c := a.command("lint [FILE] [--previous PLACE]", "say what a module should not be released with",
		`FILE is the module-config. With --previous, the version before, it says what the upgrade would break: definitions that refuse or drop what users
have, fields that cannot be changed, objects that go, rights that are asked for anew. Exit code 1 if there is an error, 0 for warnings.
`+aboutPlaces, `
klm module lint
klm module lint --previous released.ctf
klm module lint --previous registry.example.com/modules//kyma-project.io/module/sample:1.0.0 -o json`,
		arguments("[FILE]"), func(cmd *cobra.Command, args []string) error {
			file := defaultConfig
			if len(args) > 0 {
				file = args[0]
			}
			access, err := e.access(a)
			if err != nil {
				return err
			}
			return a.lint(cmd.Context(), file, previous, access)
		})
	c.ValidArgsFunction = nil // files
	c.Flags().StringVar(&previous, "previous", "", "PLACE//COMPONENT:VERSION of the version before; component and version may be left out if there is one only")
	e.register(c.Flags())
	return c
}

// linted is what klm module lint has found.
type linted struct {
	Name     string           `json:"name,omitempty"`
	Version  string           `json:"version,omitempty"`
	Previous string           `json:"previous,omitempty"`
	Findings []author.Finding `json:"findings"`
}

func (l linted) names() []string {
	var names []string
	for _, f := range l.Findings {
		names = append(names, f.Where)
	}
	return names
}

func (l linted) count(level author.Level) (n int) {
	for _, f := range l.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

func (l linted) show(p *page) {
	findingList(l.Findings).show(p)
	what := l.Name + ":" + l.Version
	if l.Previous != "" {
		what += " after " + l.Previous
	}
	p.line("%s: %s, %s", what, number(l.count(author.Error), "error"), number(l.count(author.Warning), "warning"))
}

func (a *app) lint(ctx context.Context, file, previous string, access author.Access) error {
	m, err := author.Build(ctx, author.Source{File: file})
	if err != nil {
		return explainAuthor(err)
	}
	l := linted{Name: m.Name, Version: m.Version}
	var before *author.Module
	if previous != "" {
		p, err := a.openPlace(previous, access, false)
		if err != nil {
			return err
		}
		if before, err = p.Load(ctx); err != nil {
			return explainAuthor(err)
		}
		l.Previous = before.Version
	}
	l.Findings = m.Lint(before)
	if err := a.print(l); err != nil {
		return err
	}
	if slices.ContainsFunc(l.Findings, func(f author.Finding) bool { return f.Level == author.Error }) {
		return fail(exitFailed, "%s:%s should not be released as it is: %s", m.Name, m.Version, number(l.count(author.Error), "error"))
	}
	return nil
}
