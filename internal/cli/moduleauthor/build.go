package moduleauthor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/ocmaccess"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// defaultConfig is the module-config that verbs read if none is named.
const defaultConfig = "module-config.yaml"

func buildCommand(a *console.App) *cobra.Command {
	var o building
	c := a.Command("build [FILE]", "make a component version and its ModuleTemplate from a module-config",
		`FILE is the module-config, module-config.yaml if it is not named; what it names is looked for beside it. Its manifest may be a file, a Helm
chart or a Kustomize directory. The version is added to an archive; the same input gives the same digest. Nothing is asked of a registry.`, `
klm module build
klm module build sample/module-config.yaml --archive sample.ctf --template sample.yaml
klm module build -o json | jq -r .digest`,
		console.Arguments("[FILE]"), func(cmd *cobra.Command, args []string) error {
			o.source.File = defaultConfig
			if len(args) > 0 {
				o.source.File = args[0]
			}
			return buildModule(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = nil // files
	c.Flags().StringVar(&o.archive, "archive", "module.ctf", "archive that gets the version: a folder, or a file if it ends with .tgz or .tar")
	c.Flags().StringVar(&o.template, "template", "template.yaml", "file for the ModuleTemplate")
	c.Flags().StringVar(&o.constructor, "component-constructor", "", "write a component constructor for ocm add componentversions to this file, too; empty: none")
	c.Flags().StringVar(&o.source.Commit, "commit", "", "commit of the source code; empty: that of the Git repository of FILE")
	c.Flags().StringVar(&o.source.Home, "registry", "", "URL of the registry that it is pushed to first, for the descriptor; empty: the first push adds it")
	return c
}

// building is what klm module build is told.
type building struct {
	source                         author.Source
	archive, template, constructor string
}

// built is what klm module build has made.
type built struct {
	Name     string            `json:"name"`
	Version  string            `json:"version"`
	Digest   string            `json:"digest"`
	Archive  string            `json:"archive"`
	Template string            `json:"template"`
	Images   []string          `json:"images"`
	Findings []content.Finding `json:"findings,omitempty"`
}

func (b built) Names() []string { return []string{b.Name + ":" + b.Version} }

func (b built) Show(p *console.Page) {
	p.Line("%s:%s is in %s, its ModuleTemplate in %s", b.Name, b.Version, b.Archive, b.Template)
	p.Line("digest  %s", b.Digest)
	for _, image := range b.Images {
		p.Line("image   %s", image)
	}
}

func buildModule(ctx context.Context, a *console.App, o building) error {
	if o.source.Home != "" && !strings.HasPrefix(o.source.Home, "http://") {
		o.source.Home = "https://" + strings.TrimPrefix(o.source.Home, "https://")
	}
	m, err := author.Build(ctx, o.source)
	if err != nil {
		return ocmaccess.Explain(err)
	}
	printFindings(a, m.Findings)
	made, err := registry.Pack(m.Archive())
	if err != nil {
		return ocmaccess.Explain(err)
	}
	p, err := ocmaccess.Open(a, "ctf::"+o.archive, storage.Access{}, true)
	if err != nil {
		return err
	}
	if _, err := p.Write(ctx, true, made); err != nil {
		return ocmaccess.Explain(err)
	}
	if err := os.WriteFile(o.template, m.Template, 0o644); err != nil { //nolint:gosec // others may read it
		return console.Fail(console.ExitFailed, "writing the ModuleTemplate: %v", err)
	}
	if o.constructor != "" {
		if err := m.WriteConstructor(o.constructor, o.template); err != nil {
			return ocmaccess.Explain(err)
		}
	}
	return a.Print(built{m.Name, m.Version, made.Digest(), o.archive, o.template, m.Images, m.Findings})
}

func pushCommand(a *console.App) *cobra.Command {
	c, _ := copyCommand(a, "push ARCHIVE REGISTRY", "bring the component versions of an archive to a registry",
		`Blobs come first and the tag last, so that a push which breaks off is never seen, and the next one goes on where it was. A version that is
there with other content is refused. Images are not pushed: klm module mirror copies those that are somewhere.`, `
klm module push module.ctf registry.example.com/modules
klm module push module.ctf//kyma-project.io/module/sample:1.0.0 http://127.0.0.1:5000`,
		console.Arguments("ARCHIVE", "REGISTRY"), func(from, to *storage.Place) error {
			switch {
			case !from.IsArchive():
				return console.Fail(console.ExitUsage, "%s is no archive: klm module mirror copies between registries", from)
			case to.IsArchive():
				return console.Fail(console.ExitUsage, "%s is no registry: klm module mirror copies between archives", to)
			}
			return nil
		})
	return c
}

func pullCommand(a *console.App) *cobra.Command {
	c, _ := copyCommand(a, "pull REGISTRY//COMPONENT[:VERSION] ARCHIVE", "bring component versions from a registry into an archive",
		"Without VERSION all versions come, without their images. The archive is made if it is not there.", `
klm module pull registry.example.com/modules//kyma-project.io/module/sample:1.0.0 sample.tgz`,
		console.Arguments("REGISTRY//COMPONENT:VERSION", "ARCHIVE"), func(from, to *storage.Place) error {
			switch {
			case from.IsArchive():
				return console.Fail(console.ExitUsage, "%s is no registry: klm module mirror copies between archives", from)
			case !to.IsArchive():
				return console.Fail(console.ExitUsage, "%s is no archive: klm module mirror copies between registries", to)
			}
			return nil
		})
	return c
}

func mirrorCommand(a *console.App) *cobra.Command {
	c, o := copyCommand(a, "mirror FROM TO", "copy component versions, their signatures and their images from any place to any other",
		`For an air gap: mirror to an archive, carry it over, mirror it from there. Images come by digest, those of all platforms, into the same path as where
they come from; an image that is there is passed over, one that is missing is an error. In an archive everything stays byte for byte. In a registry
the descriptor names the images there, unless cosign has signed it; a signature in the descriptor stays worth what it was. The manager puts these names
into Deployments and StatefulSets; which objects ask for others is told.`, `
klm module mirror registry.example.com/modules//kyma-project.io/module/sample transfer.tgz
klm module mirror transfer.tgz registry.inside.example.com/modules
klm module mirror --images=false module.ctf released.ctf`,
		console.Arguments("FROM", "TO"), func(_, _ *storage.Place) error { return nil })
	c.Flags().BoolVar(&o.Images, "images", true, "copy the images of each version, too")
	return c
}

// copyCommand returns a verb that copies from its first argument to its second, if check has nothing against it, and what it is told.
func copyCommand(a *console.App, use, short, long, example string, args cobra.PositionalArgs, check func(from, to *storage.Place) error) (*cobra.Command, *storage.CopyOptions) {
	var e ocmaccess.Flags
	o := &storage.CopyOptions{Progress: func(text string) { fmt.Fprintf(a.Err, "  %s\n", text) }}
	c := a.Command(use, short, long+"\n"+ocmaccess.PlaceHelp, example, args, func(cmd *cobra.Command, args []string) error {
		access, err := e.Access(a)
		if err != nil {
			return err
		}
		from, err := ocmaccess.Open(a, args[0], access, false)
		if err != nil {
			return err
		}
		to, err := ocmaccess.Open(a, args[1], access, true)
		if err != nil {
			return err
		}
		if err := check(from, to); err != nil {
			return err
		}
		if to.Component != "" {
			return console.Fail(console.ExitUsage, "%q: where it goes has no component: it keeps its name", args[1])
		}
		done, err := storage.Copy(cmd.Context(), from, to, *o)
		if err != nil && len(done) > 0 {
			fmt.Fprintf(a.Err, "  done before that: %s\n", strings.Join(copies{to.String(), done}.Names(), ", "))
		}
		if err != nil {
			return ocmaccess.Explain(err)
		}
		return a.Print(copies{to.String(), done})
	})
	c.ValidArgsFunction = nil // files
	c.Flags().BoolVar(&o.Replace, "overwrite", false, "replace versions and images that are there with other content; those who have them already do not notice")
	e.Register(c.Flags())
	return c, o
}
