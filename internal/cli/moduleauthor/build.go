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
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// defaultConfig is the path of the module-config for commands without an argument.
const defaultConfig = "module-config.yaml"

func buildCommand(a *console.App) *cobra.Command {
	var o buildOptions
	c := a.Command("build [FILE]", "build a component version and its ModuleTemplate from a module-config",
		`FILE is the module-config, by default module-config.yaml; paths in it are relative to its directory. Its manifest may be a file, a Helm chart or
a Kustomize directory. The version is added to an archive; the same input gives the same digest. No requests are sent to a registry.`, `
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
	c.Flags().StringVar(&o.archive, "archive", "module.ctf",
		"archive to add the version to: a directory, or a file if it ends with .tgz or .tar")
	c.Flags().StringVar(&o.template, "template", "template.yaml", "file to write the ModuleTemplate to")
	c.Flags().StringVar(&o.constructor, "component-constructor", "",
		"also write a component constructor, for ocm add componentversions, to this file; empty: none")
	c.Flags().StringVar(&o.source.Commit, "commit", "",
		"commit of the source code; empty: the commit of the Git repository of FILE")
	registerRootFlag(c, &o.source)
	c.Flags().StringVar(&o.source.Home, "registry", "",
		"URL of the registry that it will be pushed to, for the descriptor; empty: the first push adds it")
	return c
}

// registerRootFlag adds the flag --root to a command that renders a manifest.
func registerRootFlag(c *cobra.Command, s *author.Source) {
	c.Flags().StringVar(&s.Root, "root", "",
		"directory that a Kustomize directory may refer to; empty: the Git repository of FILE, or the directory of FILE")
}

// buildOptions are the arguments and flags of klm module build.
type buildOptions struct {
	source                         author.Source
	archive, template, constructor string
}

// buildReport is the report of klm module build.
type buildReport struct {
	Name     string            `json:"name"`
	Version  string            `json:"version"`
	Digest   string            `json:"digest"`
	Archive  string            `json:"archive"`
	Template string            `json:"template"`
	Images   []string          `json:"images"`
	Findings []content.Finding `json:"findings,omitempty"`
}

func (b buildReport) Names() []string { return []string{b.Name + ":" + b.Version} }

func (b buildReport) Show(p *console.Page) {
	p.Line("%s:%s is in %s, its ModuleTemplate in %s", b.Name, b.Version, b.Archive, b.Template)
	p.Line("digest  %s", b.Digest)
	for _, image := range b.Images {
		p.Line("image   %s", image)
	}
}

func buildModule(ctx context.Context, a *console.App, o buildOptions) error {
	if o.source.Home != "" && !strings.HasPrefix(o.source.Home, "http://") {
		o.source.Home = "https://" + strings.TrimPrefix(o.source.Home, "https://")
	}
	m, err := author.Build(ctx, o.source)
	if err != nil {
		return ocmaccess.ExplainWithExitCode(err)
	}
	printFindings(a, m.Findings)
	made, err := ocm.Pack(m.Archive())
	if err != nil {
		return ocmaccess.ExplainWithExitCode(err)
	}
	p, err := ocmaccess.Open("ctf::"+o.archive, storage.Access{}, true)
	if err != nil {
		return err
	}
	if _, err := p.Write(ctx, true, made); err != nil {
		return ocmaccess.ExplainWithExitCode(err)
	}
	if err := os.WriteFile(o.template, m.Template, 0o644); err != nil { //nolint:gosec // others may read it
		return console.Fail(console.ExitFailed, "writing the ModuleTemplate: %v", err)
	}
	if o.constructor != "" {
		if err := m.WriteConstructor(o.constructor, o.template); err != nil {
			return ocmaccess.ExplainWithExitCode(err)
		}
	}
	return a.Print(buildReport{m.Name, m.Version, made.Digest(), o.archive, o.template, m.Images, m.Findings})
}

func pushCommand(a *console.App) *cobra.Command {
	c, _ := copyCommand(a, "push ARCHIVE REGISTRY", "push the component versions of an archive to a registry",
		`Blobs are pushed first and the tag last, so that an interrupted push is not visible, and the next push continues it. A version that exists with
other content is refused. Images are not pushed: klm module mirror copies images that are in a registry or an archive.`,
		`
klm module push module.ctf registry.example.com/modules
klm module push module.ctf//kyma-project.io/module/sample:1.0.0 http://127.0.0.1:5000`,
		console.Arguments("ARCHIVE", "REGISTRY"), func(from, to *storage.Place) error {
			switch {
			case !from.IsArchive():
				return console.Fail(console.ExitUsage,
					"%s is not an archive: klm module mirror copies between registries", from)
			case to.IsArchive():
				return console.Fail(console.ExitUsage,
					"%s is not a registry: klm module mirror copies between archives", to)
			}
			return nil
		})
	return c
}

func pullCommand(a *console.App) *cobra.Command {
	c, _ := copyCommand(a, "pull REGISTRY//COMPONENT[:VERSION] ARCHIVE",
		"pull component versions from a registry into an archive",
		"Without VERSION all versions are pulled. Images are not pulled. The archive is created if it does not exist.",
		`
klm module pull registry.example.com/modules//kyma-project.io/module/sample:1.0.0 sample.tgz`,
		console.Arguments("REGISTRY//COMPONENT:VERSION", "ARCHIVE"), func(from, to *storage.Place) error {
			switch {
			case from.IsArchive():
				return console.Fail(console.ExitUsage,
					"%s is not a registry: klm module mirror copies between archives", from)
			case !to.IsArchive():
				return console.Fail(console.ExitUsage,
					"%s is not an archive: klm module mirror copies between registries", to)
			}
			return nil
		})
	return c
}

func mirrorCommand(a *console.App) *cobra.Command {
	c, o := copyCommand(a, "mirror FROM TO",
		"copy component versions, their signatures and their images from any place to any other",
		`For an air gap: mirror to an archive, carry the archive over, and mirror from it. Images of all platforms are copied by digest and keep their path;
images that exist at the target are skipped, and a missing image is an error. In an archive everything stays byte for byte. In a registry the
descriptor names the copied images, unless cosign has signed it; a signature in the descriptor stays valid. The manager uses these names in
Deployments and StatefulSets; klm lists objects that use other images.`, `
klm module mirror registry.example.com/modules//kyma-project.io/module/sample transfer.tgz
klm module mirror transfer.tgz registry.inside.example.com/modules
klm module mirror --images=false module.ctf released.ctf`,
		console.Arguments("FROM", "TO"), func(_, _ *storage.Place) error { return nil })
	c.Flags().BoolVar(&o.Images, "images", true, "also copy the images of each version")
	return c
}

// copyCommand returns a command and its options. The command copies from the place in its first argument to the place
// in its second argument. The parameter check is a function that returns an error if the command cannot copy from or to
// one of the places, such as a registry or an archive.
func copyCommand(a *console.App, use, short, long, example string, args cobra.PositionalArgs,
	check func(from, to *storage.Place) error) (*cobra.Command, *storage.CopyOptions) {
	var e ocmaccess.Flags
	o := &storage.CopyOptions{Progress: func(text string) { fmt.Fprintf(a.Err, "  %s\n", text) }}
	c := a.Command(use, short, long+"\n"+ocmaccess.PlaceHelp, example, args,
		func(cmd *cobra.Command, args []string) error {
			access, err := e.Access(a)
			if err != nil {
				return err
			}
			from, err := ocmaccess.Open(args[0], access, false)
			if err != nil {
				return err
			}
			to, err := ocmaccess.Open(args[1], access, true)
			if err != nil {
				return err
			}
			if err := check(from, to); err != nil {
				return err
			}
			if to.Component != "" {
				return console.Fail(console.ExitUsage,
					"%q: the target must not name a component: components keep their name", args[1])
			}
			done, err := storage.Copy(cmd.Context(), from, to, *o)
			if err != nil && len(done) > 0 {
				fmt.Fprintf(a.Err, "  copied before that: %s\n",
					strings.Join(copyReport{to.String(), done}.Names(), ", "))
			}
			if err != nil {
				return ocmaccess.ExplainWithExitCode(err)
			}
			return a.Print(copyReport{to.String(), done})
		})
	c.ValidArgsFunction = nil // files
	c.Flags().BoolVar(&o.Replace, "overwrite", false,
		"replace versions and images that exist with other content; runtimes that have installed them are not updated")
	e.Register(c.Flags())
	return c, o
}
