package fleetadmin

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/trial"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/ocmaccess"
)

func diffCommand(a *console.App) *cobra.Command {
	var e ocmaccess.Flags
	var o diffOptions
	c := a.Command("diff RUNTIME MODULE [--to VERSION | --channel CHANNEL]",
		"what installing a version of a module would change in a runtime, object by object",
		`klm sends a dry run of what the manager would do with all layers of the version to the API server of the runtime: manifests, charts and
Kustomize directories, CRDs, and the custom resource, which is created but never changed. Nothing is written. Without --to and --channel it is
the version of the channel that the runtime follows. The version is read from the registry that the module is installed from, or --registry.
A module that is installed in the control plane is compared there. "recreate" means that the manager would delete the object and create it
again, because an immutable field would change, and the module permits that.
To connect to the runtime, klm reads its access Secret in the control plane, or uses --runtime-context of the kubeconfig. With --exit-code the
exit code is 3 if something would change.`, `
klm diff runtime-a sample
klm diff runtime-a sample --exit-code -o name
klm diff runtime-a sample --to 2.0.0
klm diff runtime-a sample --channel fast -o json`,
		console.Arguments("RUNTIME", "MODULE"), func(cmd *cobra.Command, args []string) error {
			o.runtime, o.module = args[0], args[1]
			if o.to != "" && o.channel != "" {
				return console.Fail(console.ExitUsage, "--to and --channel exclude each other")
			}
			var err error
			if o.access, err = e.Access(a); err != nil {
				return err
			}
			return dryRunModuleVersion(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RuntimeNames(a), connection.CatalogModules(a))
	c.Flags().StringVar(&o.to, "to", "", "version to compare with")
	c.Flags().StringVarP(&o.channel, "channel", "c", "", "compare with the version that this channel has")
	c.Flags().BoolVar(&o.exitCode, "exit-code", false, "end with exit code 3 if something would change")
	c.Flags().StringVar(&o.registry, "registry", "",
		"registry to read the version from; empty: the one that the module is installed from")
	c.Flags().StringVar(&o.context, "runtime-context", "",
		"context of the kubeconfig for the runtime; empty: the access Secret in the control plane")
	e.Register(c.Flags())
	return c
}

// diffOptions are the arguments and flags of klm diff.
type diffOptions struct {
	runtime, module, to, channel, registry, context string
	exitCode                                        bool
	access                                          storage.Access
}

// differences is the report of klm diff.
type differences struct {
	Runtime   string         `json:"runtime"`
	Module    string         `json:"module"`
	Installed string         `json:"installed,omitempty"`
	Version   string         `json:"version"`
	Changes   []trial.Change `json:"changes"`
	Unchanged int            `json:"unchanged"`
}

func (d differences) Names() []string {
	var names []string
	for _, c := range d.Changes {
		names = append(names, c.Object)
	}
	return names
}

func (d differences) Show(p *console.Page) {
	p.Line("%s in %s: %s → %s", d.Module, d.Runtime, console.OrDash(d.Installed), d.Version)
	p.Changes(d.Changes, d.Unchanged)
}

func dryRunModuleVersion(ctx context.Context, a *console.App, o diffOptions) error {
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return err
	}
	k, err := c.Kyma(ctx, o.runtime)
	if err != nil {
		return err
	}
	s, err := c.Catalog(ctx)
	if err != nil {
		return err
	}
	if err := s.RequireModule(o.module, c); err != nil {
		return err
	}
	version, err := versionToCompare(s, k, o)
	if err != nil {
		return err
	}
	f := diagnosis.Facts{Cluster: c, Kyma: k}
	var manifests v1beta2.ManifestList
	if err := c.List(ctx, &manifests, c.InNamespace(),
		client.MatchingLabels{v1beta2.LabelKymaName: o.runtime}); err != nil {
		return c.Explain(err, "reading the Manifests of "+o.runtime)
	}
	f.Manifests = manifests.Items
	installed := f.Manifest(o.module)
	i, err := loadVersionFromRegistry(ctx, s, o, installed, version)
	if err != nil {
		return err
	}
	config := c.Config
	if o.context != "" || targetOf(s, o.module, installed, version) != v1beta2.TargetControlPlane {
		if config, err = c.RuntimeConfig(ctx, a, o.runtime, o.context); err != nil {
			return err
		}
	}
	d := differences{Runtime: o.runtime, Module: o.module, Version: version}
	if installed != nil {
		d.Installed = installed.Status.Version
	}
	if d.Changes, d.Unchanged, err = trial.Preview(
		ctx, config, i, requestOf(s, k, o.module, i, installed)); err != nil {
		r, broken := connection.New(config, o.runtime, v1beta2.RuntimeNamespace)
		if broken != nil {
			return broken
		}
		return r.Explain(err, "comparing with "+o.runtime)
	}
	if err := a.Print(d); err != nil {
		return err
	}
	return d.err(o.exitCode)
}

// err returns an error if something would change and the user has given --exit-code.
func (d differences) err(isExitCodeRequested bool) error {
	if !isExitCodeRequested || len(d.Changes) == 0 {
		return nil
	}
	return console.Fail(console.ExitNotReady, "%s would change", console.Count(len(d.Changes), "object"))
}

// versionToCompare returns the version that klm diff compares with the installed version. The version is the value of
// --to, or the version of a channel.
func versionToCompare(s *connection.Catalog, k *v1beta2.Kyma, o diffOptions) (string, error) {
	k = connection.WithLastRequest(k) // the admin of the runtime chooses channel and version in the runtime
	all := s.VersionsOf(o.module)
	if o.to != "" {
		if !slices.Contains(all, o.to) {
			return "", console.Fail(console.ExitNotFound, "version %s of module %s does not exist: %s", o.to, o.module,
				console.SuggestionText(o.to, all))
		}
		return o.to, nil
	}
	if m := k.Module(o.module); o.channel == "" && m != nil && m.Version != "" {
		return m.Version, nil
	}
	wanted := cmp.Or(o.channel, k.ModuleChannelOrDefault(o.module), k.Spec.Channel)
	for _, c := range s.AssignmentsOf(o.module) {
		if c.Channel == wanted {
			return c.Version, nil
		}
	}
	return "", console.Fail(console.ExitNotFound, "module %s has no channel %q: %s", o.module, wanted,
		console.SuggestionText(wanted, s.ChannelsOf(o.module)))
}

// targetOf returns the cluster in which the objects of the module are: the target of the installed module, or else the
// target of the version.
func targetOf(s *connection.Catalog, module string, installed *v1beta2.Manifest, version string) v1beta2.Target {
	if installed != nil {
		return installed.InstalledOrSpecTarget()
	}
	if t := s.Templates[channel.TemplateName(module, version)]; t != nil {
		return t.Spec.Target
	}
	return v1beta2.TargetRemote
}

// requestOf returns the fields that the manager would write into the Manifest for a version, without the sources.
func requestOf(s *connection.Catalog, k *v1beta2.Kyma, module string, i *content.Installation,
	installed *v1beta2.Manifest) trial.Request {
	w := trial.Request{Name: client.ObjectKey{Namespace: k.Namespace,
		Name: v1beta2.ManifestName(k.Name, i.Name, module)}, Installed: installed}
	policy := v1beta2.CreateAndDelete
	if m := connection.WithLastRequest(k).Module(module); m != nil && m.CustomResourcePolicy != "" {
		policy = m.CustomResourcePolicy
	}
	if installed != nil {
		w.Name, w.Manager, policy = client.ObjectKeyFromObject(installed), installed.Spec.Manager,
			installed.Spec.CustomResourcePolicy
	}
	for _, t := range s.TemplatesOf(module) {
		if connection.VersionOf(t) != i.Version {
			continue
		}
		if w.Manager = t.Spec.Manager; t.Spec.Data != nil && policy != v1beta2.Ignore {
			w.Resource = t.Spec.Data.DeepCopy()
			w.Resource.SetName(cmp.Or(w.Resource.GetName(), w.Name.Name))
			w.Resource.SetNamespace(cmp.Or(w.Resource.GetNamespace(), v1beta2.RuntimeNamespace))
		}
		break
	}
	return w
}

// loadVersionFromRegistry reads a version of the module from its registry.
func loadVersionFromRegistry(ctx context.Context, s *connection.Catalog, o diffOptions, installed *v1beta2.Manifest,
	version string) (*content.Installation, error) {
	place, component := o.registry, ""
	if r := s.Releases[o.module]; r != nil {
		component = r.Spec.OCMComponentName
	}
	if installed != nil {
		source, err := sourceOf(installed)
		if err != nil {
			return nil, err
		}
		place, component = cmp.Or(place, source.Repo), cmp.Or(component, source.Name)
	}
	switch {
	case place == "":
		return nil, console.Fail(console.ExitUsage,
			"module %s is not installed in the runtime, so its registry is unknown: give --registry", o.module)
	case component == "":
		return nil, console.Fail(console.ExitFailed,
			"the component of module %s is unknown: set spec.ocmComponentName in its ModuleReleaseMeta", o.module)
	}
	p, err := storage.Open("oci::"+place+"//"+component+":"+version, o.access, false)
	if err != nil {
		return nil, ocmaccess.ExplainWithExitCode(err)
	}
	i, err := p.Installation(ctx)
	return i, ocmaccess.ExplainWithExitCode(err)
}

// sourceOf returns the component version from which a Manifest is installed. All sources of a Manifest are layers of
// the same component version.
func sourceOf(m *v1beta2.Manifest) (v1beta2.ImageSpec, error) {
	sources := m.Sources()
	if len(sources) == 0 {
		return v1beta2.ImageSpec{}, console.Fail(console.ExitFailed,
			"Manifest %s has no source yet: try again later, or give --registry", m.Name)
	}
	source, err := v1beta2.DecodeImageSpecLeniently(sources[0].Source)
	if err != nil {
		return source, console.Fail(console.ExitFailed,
			"Manifest %s is not installed from a component version in a registry: %v", m.Name, err)
	}
	return source, nil
}
