package moduleauthor

import (
	"fmt"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// findingList shows findings.
type findingList []content.Finding

func (l findingList) Show(p *console.Page) {
	for _, f := range l {
		p.Line("%-7s  %s", f.Level, f)
	}
}

// printFindings shows findings that do not stop a verb, as progress.
func printFindings(a *console.App, findings []content.Finding) {
	for _, f := range findings {
		fmt.Fprintf(a.Err, "  %s: %s\n", f.Level, f)
	}
}

// copies is what a verb has brought somewhere.
type copies struct {
	To       string           `json:"to"`
	Versions []storage.Copied `json:"versions"`
}

func (c copies) Names() []string {
	var names []string
	for _, v := range c.Versions {
		names = append(names, v.Name+":"+v.Version)
	}
	return names
}

func (c copies) Show(p *console.Page) {
	for _, v := range c.Versions {
		how := "is there now"
		if !v.New {
			how = "was there already"
		}
		p.Line("%s:%s %s: %s@%s", v.Name, v.Version, how, c.To, v.Digest)
		if v.Signatures > 0 {
			p.Line("  with %s of cosign", console.Count(v.Signatures, "artefact"))
		}
		for _, i := range v.Images {
			how := "is there now"
			if !i.New {
				how = "was there already"
			}
			p.Line("  image %s %s: %s", i.Image, how, i.At)
		}
		what := "it"
		if len(v.Images) > 0 {
			what = "it and its images"
		}
		if v.Was != "" {
			p.Line("  its descriptor says now where to find %s; before, its digest was %s", what, v.Was)
		}
		c.showOldNames(p, v)
	}
}

// showOldNames tells which objects ask for images by names that lead elsewhere.
func (copies) showOldNames(p *console.Page, v storage.Copied) {
	for i, old := range v.OldNames {
		if i == 0 {
			p.Line("  what is installed asks for these by the names of before: let the container runtimes of clusters look for them elsewhere (a registry mirror)")
		}
		if old.At == "" {
			p.Line("    %s: %s, which is no resource of the component and was not copied", old.Object, old.Image)
		} else {
			p.Line("    %s: %s, which is %s now", old.Object, old.Image, old.At)
		}
	}
}
