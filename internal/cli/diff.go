package cli

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func (a *app) diffCommand() *cobra.Command {
	var e entrance
	var o comparing
	c := a.command("diff RUNTIME MODULE [--to VERSION | --channel CHANNEL]", "what installing a version of a module would change in a runtime, object by object",
		`The API server of the runtime is asked, by a dry run of what the manager would do with all layers of the version: manifests, charts and Kustomize
directories, definitions, and the custom resource, which is created but never changed. Nothing is written. Without --to and --channel it is the
version of the channel that the runtime follows. The version is read from the registry that the module is installed from, or --registry. For that,
klm reads the access Secret of the runtime in the control plane, or uses --runtime-context of the kubeconfig.`, `
klm diff runtime-a sample
klm diff runtime-a sample --to 2.0.0
klm diff runtime-a sample --channel fast -o json`,
		arguments("RUNTIME", "MODULE"), func(cmd *cobra.Command, args []string) error {
			o.runtime, o.module = args[0], args[1]
			if o.to != "" && o.channel != "" {
				return fail(exitUsage, "--to and --channel exclude each other")
			}
			var err error
			if o.access, err = e.access(a); err != nil {
				return err
			}
			return a.diff(cmd.Context(), o)
		})
	c.ValidArgsFunction = completing(a.runtimeNames, a.catalogModules)
	c.Flags().StringVar(&o.to, "to", "", "version to compare with")
	c.Flags().StringVarP(&o.channel, "channel", "c", "", "compare with the version that this channel has")
	c.Flags().StringVar(&o.registry, "registry", "", "registry to read the version from; empty: the one that the module is installed from")
	c.Flags().StringVar(&o.context, "runtime-context", "", "context of the kubeconfig for the runtime; empty: the access Secret in the control plane")
	e.register(c.Flags())
	return c
}

// comparing is what klm diff is told.
type comparing struct {
	runtime, module, to, channel, registry, context string
	access                                          author.Access
}

// differences is what klm diff has found.
type differences struct {
	Runtime   string          `json:"runtime"`
	Module    string          `json:"module"`
	Installed string          `json:"installed,omitempty"`
	Version   string          `json:"version"`
	Changes   []author.Change `json:"changes"`
	Unchanged int             `json:"unchanged"`
}

func (d differences) names() []string {
	var names []string
	for _, c := range d.Changes {
		names = append(names, c.Object)
	}
	return names
}

func (d differences) show(p *page) {
	p.line("%s in %s: %s → %s", d.Module, d.Runtime, or(d.Installed), d.Version)
	p.changes(d.Changes, d.Unchanged)
}

// changes shows what would become of objects.
func (p *page) changes(changes []author.Change, unchanged int) {
	const most = 20
	for _, c := range changes {
		p.line("%-7s  %s", c.Action, c.Object)
		if c.Message != "" {
			p.wrap("           ", c.Message)
		}
		shown := c.Fields
		if !p.wide && len(shown) > most {
			shown = shown[:most]
		}
		for _, f := range shown {
			p.line("           %s: %s → %s", f.Path, p.clip(or(f.Before), 60), p.clip(or(f.After), 60))
		}
		if more := len(c.Fields) - len(shown); more > 0 {
			p.line("           and %s more; -o wide shows all", number(more, "field"))
		}
	}
	if len(changes) == 0 {
		p.line("nothing would change")
	}
	p.line("%s would stay as they are", number(unchanged, "object"))
}

func (a *app) diff(ctx context.Context, o comparing) error {
	c, err := a.controlPlane(ctx)
	if err != nil {
		return err
	}
	k, err := c.kyma(ctx, o.runtime)
	if err != nil {
		return err
	}
	s, err := c.stock(ctx)
	if err != nil {
		return err
	}
	if err := s.known(o.module, c); err != nil {
		return err
	}
	version, err := s.versionFor(k, o)
	if err != nil {
		return err
	}
	f := facts{cluster: c, kyma: k}
	var manifests v1beta2.ManifestList
	if err := c.List(ctx, &manifests, c.here(), client.MatchingLabels{v1beta2.LabelKymaName: o.runtime}); err != nil {
		return c.explain(err, "reading the Manifests of "+o.runtime)
	}
	f.manifests = manifests.Items
	there := f.manifest(o.module)
	i, err := s.load(ctx, o, there, version)
	if err != nil {
		return err
	}
	config, err := a.configOf(ctx, c, o)
	if err != nil {
		return err
	}
	d := differences{Runtime: o.runtime, Module: o.module, Version: version}
	if there != nil {
		d.Installed = installed(there)
	}
	if d.Changes, d.Unchanged, err = author.Preview(ctx, config, i, s.wish(k, o.module, i, there)); err != nil {
		r, broken := clusterOf(config, o.runtime, v1beta2.RuntimeNamespace)
		if broken != nil {
			return broken
		}
		return r.explain(err, "comparing with "+o.runtime)
	}
	return a.print(d)
}

// versionFor returns the version that is compared with.
func (s *stock) versionFor(k *v1beta2.Kyma, o comparing) (string, error) {
	var all []string
	for _, t := range s.templatesOf(o.module) {
		all = append(all, versionOf(t))
	}
	if o.to != "" {
		if !slices.Contains(all, o.to) {
			return "", fail(exitNotFound, "there is no version %s of module %s: %s", o.to, o.module, instead(o.to, all))
		}
		return o.to, nil
	}
	if m := k.Module(o.module); o.channel == "" && m != nil && m.Version != "" {
		return m.Version, nil
	}
	wanted := cmp.Or(o.channel, k.ModuleChannel(o.module), k.Spec.Channel)
	for _, c := range s.assignments(o.module) {
		if c.Channel == wanted {
			return c.Version, nil
		}
	}
	return "", fail(exitNotFound, "module %s has no channel %q: %s", o.module, wanted, instead(wanted, s.channels(o.module)))
}

// wish is what the manager would put into the Manifest of a version, besides where it lies.
func (s *stock) wish(k *v1beta2.Kyma, module string, i *author.Installation, there *v1beta2.Manifest) author.Wish {
	w := author.Wish{Name: client.ObjectKey{Namespace: k.Namespace, Name: v1beta2.ManifestName(k.Name, i.Name, module)}, Installed: there}
	policy := v1beta2.CreateAndDelete
	if m := k.Module(module); m != nil && m.CustomResourcePolicy != "" {
		policy = m.CustomResourcePolicy
	}
	if there != nil {
		w.Name, w.Manager, policy = client.ObjectKeyFromObject(there), there.Spec.Manager, there.Spec.CustomResourcePolicy
	}
	for _, t := range s.templatesOf(module) {
		if versionOf(t) != i.Version {
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

// load reads a version of the module from its registry.
func (s *stock) load(ctx context.Context, o comparing, there *v1beta2.Manifest, version string) (*author.Installation, error) {
	place, component := o.registry, ""
	if r := s.releases[o.module]; r != nil {
		component = r.Spec.OCMComponentName
	}
	if there != nil {
		source, err := sourceOf(there)
		if err != nil {
			return nil, err
		}
		place, component = cmp.Or(place, source.Repo), cmp.Or(component, source.Name)
	}
	switch {
	case place == "":
		return nil, fail(exitUsage, "module %s is not installed there, so it is not known where it comes from: give --registry", o.module)
	case component == "":
		return nil, fail(exitFailed, "the catalog does not say which component module %s is: its ModuleReleaseMeta should have spec.ocmComponentName", o.module)
	}
	p, err := author.Open("oci::"+place+"//"+component+":"+version, o.access, false)
	if err != nil {
		return nil, explainAuthor(err)
	}
	i, err := p.Installation(ctx)
	return i, explainAuthor(err)
}

// sourceOf returns where a Manifest is installed from: all its sources are layers of one component version.
func sourceOf(m *v1beta2.Manifest) (v1beta2.ImageSpec, error) {
	sources := m.Sources()
	if len(sources) == 0 {
		return v1beta2.ImageSpec{}, fail(exitFailed, "Manifest %s has no source yet: try again later, or give --registry", m.Name)
	}
	source, err := v1beta2.DecodeImageSpec(sources[0].Source)
	if err != nil {
		return source, fail(exitFailed, "Manifest %s is not installed from a component version in a registry: %v", m.Name, err)
	}
	return source, nil
}

// configOf returns how to reach a runtime.
func (a *app) configOf(ctx context.Context, c *cluster, o comparing) (*rest.Config, error) {
	if o.context != "" {
		other := *a
		settings := *a.config
		settings.Context = o.context
		other.config = &settings
		r, err := other.open()
		if err != nil {
			return nil, err
		}
		return r.config, nil
	}
	secrets, err := c.secretsOf(ctx, o.runtime)
	if err != nil {
		return nil, c.explain(err, "looking for the access Secret of "+o.runtime)
	}
	if len(secrets.Items) == 0 {
		return nil, fail(exitNotFound, "there is no access Secret of %s: give --runtime-context", o.runtime)
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(&secrets.Items[0]), secret); err != nil {
		return nil, c.explain(err, "reading the access Secret of "+o.runtime+" (or give --runtime-context)")
	}
	config, err := runtimes.Kubeconfig(secret.Data[v1beta2.AccessSecretKey])
	if err != nil {
		return nil, fail(exitFailed, "the access Secret %s: %v", secret.Name, err)
	}
	config.Timeout, config.QPS, config.UserAgent, config.WarningHandler = a.config.RequestTimeout, -1, fieldOwner, rest.NoWarnings{}
	return config, nil
}
