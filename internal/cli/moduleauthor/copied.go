package moduleauthor

import (
	"fmt"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// printFindings prints findings that do not stop a command. The findings are printed to Err, like progress.
func printFindings(a *console.App, findings []content.Finding) {
	for _, f := range findings {
		fmt.Fprintf(a.Err, "  %s: %s\n", f.Level, f)
	}
}

// copyReport is the report of klm module push, pull and mirror.
type copyReport struct {
	To       string           `json:"to"`
	Versions []storage.Copied `json:"versions"`
}

func (c copyReport) Names() []string {
	var names []string
	for _, v := range c.Versions {
		names = append(names, v.Name+":"+v.Version)
	}
	return names
}

func (c copyReport) Show(p *console.Page) {
	for _, v := range c.Versions {
		how := "is copied"
		if !v.New {
			how = "existed already"
		}
		p.Line("%s:%s %s: %s@%s", v.Name, v.Version, how, c.To, v.Digest)
		if v.Signatures > 0 {
			p.Line("  with %s of cosign", console.Count(v.Signatures, "artefact"))
		}
		for _, i := range v.Images {
			how := "is copied"
			if !i.New {
				how = "existed already"
			}
			p.Line("  image %s %s: %s", i.Image, how, i.At)
		}
		what := "it"
		if len(v.Images) > 0 {
			what = "it and its images"
		}
		if v.Was != "" {
			p.Line("  its descriptor now names the location of %s; its digest was %s before", what, v.Was)
		}
		c.showOldImageNames(p, v)
	}
}

// showOldImageNames lists the installed objects that still refer to an image by its original reference, after the image
// was copied to another registry.
func (copyReport) showOldImageNames(p *console.Page, v storage.Copied) {
	for i, old := range v.OldNames {
		if i == 0 {
			p.Line("  installed objects use these images by their old names: configure a registry mirror in the " +
				"container runtimes of the clusters")
		}
		if old.At == "" {
			p.Line("    %s: %s, which is not a resource of the component and was not copied", old.Object, old.Image)
		} else {
			p.Line("    %s: %s, which is copied to %s", old.Object, old.Image, old.At)
		}
	}
}
