package moduleauthor

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/ocmaccess"
)

func renderCommand(a *console.App) *cobra.Command {
	var source author.Source
	var template string
	c := a.Command("render [FILE]", "show the objects that a module installs, or the output of a template",
		`FILE is the module-config. Without --template, klm shows the manifest as klm module build packs it. With --template, klm shows the output of a
template of the chart, before it is decoded: line numbers in errors about the output of a template refer to this text.`, `
klm module render
klm module render --template widget/templates/deployment.yaml
klm module render -o json | jq -r '.images[]'`,
		console.Arguments("[FILE]"), func(cmd *cobra.Command, args []string) error {
			source.File = defaultConfig
			if len(args) > 0 {
				source.File = args[0]
			}
			if template != "" {
				return showChartTemplateOutput(cmd.Context(), a, source, template)
			}
			m, err := author.Build(cmd.Context(), source)
			if err != nil {
				return ocmaccess.ExplainWithExitCode(err)
			}
			return a.Print(renderReport{Name: m.Name, Version: m.Version, Images: m.Images,
				Manifest: string(m.Manifest)})
		})
	c.ValidArgsFunction = nil // files
	c.Flags().StringVar(&template, "template", "", "path of a template, as in errors: CHART/templates/FILE")
	registerRootFlag(c, &source)
	return c
}

// renderReport is the report of klm module render: a manifest, or the output of one template.
type renderReport struct {
	Name     string   `json:"name,omitempty"`
	Version  string   `json:"version,omitempty"`
	Images   []string `json:"images,omitempty"`
	Template string   `json:"template,omitempty"`
	Manifest string   `json:"manifest"`
}

func (r renderReport) Names() []string {
	if r.Template != "" {
		return []string{r.Template}
	}
	return []string{r.Name + ":" + r.Version}
}

func (r renderReport) Show(p *console.Page) {
	p.WriteString(strings.TrimSuffix(r.Manifest, "\n") + "\n")
}

// showChartTemplateOutput shows the output of one template.
func showChartTemplateOutput(ctx context.Context, a *console.App, source author.Source, templatePath string) error {
	texts, err := author.ChartTemplateOutputs(ctx, source)
	if err != nil {
		return ocmaccess.ExplainWithExitCode(err)
	}
	text, ok := texts[templatePath]
	switch {
	case len(texts) == 0:
		return console.Fail(console.ExitUsage, "--template: the manifest of %s is no chart", source.File)
	case !ok:
		return console.Fail(console.ExitNotFound, "--template: the chart has no output of %q; it has %s", templatePath,
			strings.Join(slices.Sorted(maps.Keys(texts)), ", "))
	}
	return a.Print(renderReport{Template: templatePath, Manifest: text})
}
