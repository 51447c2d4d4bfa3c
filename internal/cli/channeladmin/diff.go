package channeladmin

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/check"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/ocmaccess"
)

// diffFlags are the flags with which klm also shows how the contents of the former and the new version differ.
type diffFlags struct {
	isWanted bool
	place    string // registry or archive with the versions; "": the registry that the module is installed from
	login    ocmaccess.Flags
	access   storage.Access // set by the command
}

func (f *diffFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&f.isWanted, "diff", false,
		"show which objects and rights the new version adds, changes and removes, and what that breaks")
	c.Flags().StringVar(&f.place, "registry", "",
		"registry or archive to read both versions from for --diff; empty: the registry that the module is installed from")
	f.login.Register(c.Flags())
}

// checkAndReadLogin reads the login from the flags. checkAndReadLogin returns an error if the flag --registry is set
// without --diff.
func (f *diffFlags) checkAndReadLogin(a *console.App) (err error) {
	if !f.isWanted && f.place != "" {
		return console.Fail(console.ExitUsage, "--registry is for --diff: add --diff")
	}
	f.access, err = f.login.Access(a)
	return err
}

// addDiff adds the difference between the contents of both versions to the report, if the user has requested the
// difference.
func (r *Effects) addDiff(ctx context.Context, c *connection.Cluster, f *diffFlags) error {
	if !f.isWanted || r.From == "" || r.From == r.Version {
		return nil
	}
	s, err := c.Catalog(ctx)
	if err != nil {
		return err
	}
	component := ""
	if release := s.Releases[r.Module]; release != nil {
		component = release.Spec.OCMComponentName
	}
	place, err := registryOfInstalledModule(ctx, c, f.place, r.Module)
	if err != nil {
		return err
	}
	objects := func(version string) ([]*unstructured.Unstructured, error) {
		p, err := ocmaccess.Open(place+"//"+component+":"+version, f.access, false)
		if err != nil {
			return nil, err
		}
		i, err := p.Installation(ctx)
		if err != nil {
			return nil, ocmaccess.ExplainWithExitCode(err)
		}
		all, err := i.Objects(ctx)
		return all, ocmaccess.ExplainWithExitCode(err)
	}
	before, err := objects(r.From)
	if err != nil {
		return err
	}
	after, err := objects(r.Version)
	if err != nil {
		return err
	}
	r.Diff = new(check.Compare(r.From, r.Version, before, after))
	return nil
}

// registryOfInstalledModule returns the registry from which a module is installed, unless the user has named another
// registry or archive.
func registryOfInstalledModule(ctx context.Context, c *connection.Cluster, givenRegistry, module string) (
	string, error) {
	if givenRegistry != "" {
		return givenRegistry, nil
	}
	var manifests v1beta2.ManifestList
	if err := c.List(ctx, &manifests, c.InNamespace(), client.MatchingLabels{v1beta2.LabelModuleName: module},
		client.Limit(1)); err != nil {
		return "", c.Explain(err, "reading a Manifest of module "+module)
	}
	for i := range manifests.Items {
		for _, source := range manifests.Items[i].Sources() {
			if image, err := v1beta2.DecodeImageSpecLeniently(source.Source); err == nil && image.Repo != "" {
				return "oci::" + image.Repo, nil
			}
		}
	}
	return "", console.Fail(console.ExitUsage,
		"module %s is not installed from a registry in any runtime: give --registry", module)
}

// showVersionDiff shows the difference between the contents of both versions.
func (r *Effects) showVersionDiff(p *console.Page) {
	d := r.Diff
	if d == nil {
		return
	}
	p.Line("From %s to %s, in each runtime: %s added, %d changed, %d removed, %d unchanged.", r.From, r.Version,
		console.Count(len(d.Added), "object"), len(d.Changed), len(d.Removed), d.Unchanged)
	var rows [][]string
	for _, part := range []struct {
		action  string
		objects []string
	}{{"add", d.Added}, {"change", d.Changed}, {"remove", d.Removed}} {
		for _, o := range part.objects {
			rows = append(rows, []string{part.action, o})
		}
	}
	if len(rows) > 0 {
		p.Line("")
		p.Table([]string{"ACTION", "OBJECT"}, rows)
	}
	p.Line("")
	isGrave := func(f content.Finding) bool { return f.Level != content.Info } // the table has the others
	if !slices.ContainsFunc(d.Findings, isGrave) {
		return
	}
	for _, f := range d.Findings {
		if isGrave(f) {
			p.Wrap("  ", string(f.Level)+": "+f.String())
		}
	}
	p.Line("")
}
