package kyma

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// module is one module of a Kyma in one pass.
type module struct {
	wish     v1beta2.Module
	wanted   bool                  // in spec; otherwise it is leaving
	decision channel.Decision      // set by resolve
	manifest *v1beta2.Manifest     // set by resolve, replaced by install: what the control plane has of it, nil if nothing
	former   *v1beta2.ModuleStatus // the entry of the status before this pass, nil if there was none
	err      error                 // set by install: why the Manifest could not be brought up to date
}

// resolve finds for every module in the wish which version it should have, and what there is of it.
func (n *run) resolve(ctx context.Context) error {
	if err := n.listManifests(ctx); err != nil {
		return err
	}
	catalog, failed := n.catalog(ctx)
	wished := map[string]bool{}
	for _, wish := range n.remote.Spec.Modules {
		wished[wish.Name] = true
		m := module{wish: wish, wanted: true, former: formerEntry(n.kyma, wish.Name), manifest: n.manifestOf(wish.Name)}
		asked := channel.WishOf(n.kyma, n.remote, &wish)
		asked.Installed, asked.Ordered, asked.Now = installedVersion(m.manifest), orderedVersion(m.manifest), n.now
		m.decision = channel.Resolve(catalog, asked)
		n.modules = append(n.modules, m)
	}
	if err := failed(); err != nil {
		n.modules = nil // a lookup that failed says nothing about any module
		return err
	}
	for _, name := range slices.Sorted(mapKeys(n.manifests)) {
		left := n.manifests[name]
		if of := left.Labels[v1beta2.LabelModuleName]; !wished[of] && !isMandatory(left) && isOurs(left) {
			n.modules = append(n.modules, module{wish: v1beta2.Module{Name: of}, manifest: left, former: formerEntry(n.kyma, of)})
		}
	}
	n.known = true
	return nil
}

// listManifests reads all Manifests of this Kyma.
func (n *run) listManifests(ctx context.Context) error {
	list := &v1beta2.ManifestList{}
	err := n.Client.List(ctx, list, client.InNamespace(n.kyma.Namespace), client.MatchingFields{manifestIndex: n.kyma.Name})
	if err != nil {
		return fmt.Errorf("listing the Manifests of Kyma %s: %w", n.kyma.Name, err)
	}
	n.manifests = make(map[string]*v1beta2.Manifest, len(list.Items))
	for i := range list.Items {
		n.manifests[list.Items[i].Name] = &list.Items[i]
	}
	return nil
}

// isOurs tells whether a Manifest was made for a Kyma. One that a person has written for a runtime is that person's to delete.
func isOurs(m *v1beta2.Manifest) bool {
	return metav1.GetControllerOf(m) != nil || m.Labels[v1beta2.LabelManagedBy] == v1beta2.ManagedByLifecycleManager
}

// manifestOf returns the Manifest of a module, nil if there is none. A Manifest that is being deleted counts only if it is the only one.
func (n *run) manifestOf(module string) *v1beta2.Manifest {
	var found *v1beta2.Manifest
	for _, m := range n.manifests {
		if m.Labels[v1beta2.LabelModuleName] == module && (found == nil || m.DeletionTimestamp.IsZero()) {
			found = m
		}
	}
	return found
}

// catalog looks releases and templates up in the cache. The second answer says, afterwards, whether a lookup failed.
func (n *run) catalog(ctx context.Context) (channel.Catalog, func() error) {
	var errs []error
	get := func(name string, into client.Object) bool {
		err := n.Client.Get(ctx, types.NamespacedName{Namespace: n.kyma.Namespace, Name: name}, into)
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("reading the catalog: %w", err))
		}
		return err == nil
	}
	return channel.Catalog{
		Release: func(module string) *v1beta2.ModuleReleaseMeta {
			if release := (&v1beta2.ModuleReleaseMeta{}); get(module, release) {
				return release
			}
			return nil
		},
		Template: func(name string) *v1beta2.ModuleTemplate {
			if template := (&v1beta2.ModuleTemplate{}); get(name, template) {
				return template
			}
			return nil
		},
	}, func() error { return errors.Join(errs...) }
}

// install brings the Manifest of every resolved module up to date. A module that cannot be helped does not hold up the others.
func (n *run) install(ctx context.Context) error {
	var errs []error
	for i := range n.modules {
		m := &n.modules[i]
		if !m.wanted || m.decision.Blocker != nil {
			continue
		}
		if m.err = n.installModule(ctx, m); m.err != nil {
			errs = append(errs, m.err)
		}
	}
	return errors.Join(errs...)
}

// installModule creates or patches one Manifest, or does nothing if it says what it should.
func (n *run) installModule(ctx context.Context, m *module) error {
	if m.manifest != nil && !m.manifest.DeletionTimestamp.IsZero() {
		return nil // it has to be gone before the module can be installed anew; its end wakes us
	}
	artefact, err := n.artefactOf(ctx, m)
	if err != nil {
		return fmt.Errorf("module %s, version %s: %w", m.wish.Name, m.decision.Version, err)
	}
	want := desiredManifest(n.kyma, m, artefact)
	if m.manifest == nil || m.manifest.Name != want.Name {
		if err := n.Client.Create(ctx, want, client.FieldOwner(v1beta2.FieldOwner)); err != nil {
			return fmt.Errorf("creating Manifest %s: %w", want.Name, err)
		}
		m.manifest = want
		return nil
	}
	updated := withDesired(m.manifest, want)
	if updated == nil {
		return nil
	}
	if err := n.Client.Patch(ctx, updated, client.MergeFrom(m.manifest), client.FieldOwner(v1beta2.FieldOwner)); err != nil {
		return fmt.Errorf("updating Manifest %s: %w", want.Name, err)
	}
	m.manifest = updated
	return nil
}

// artefact is where a module version lies in the registry.
type artefact struct {
	install  v1beta2.InstallInfo // raw-manifest; zero if the module has none
	installs []v1beta2.InstallInfo
	config   *v1beta2.ManifestConfig
	crds     *v1beta2.ManifestConfig
	images   []string
}

// artefactOf finds the artefact of the decided version. What an existing Manifest of the same version already says needs no registry.
func (n *run) artefactOf(ctx context.Context, m *module) (artefact, error) {
	if is := m.manifest; is != nil && is.Spec.Version == m.decision.Version && is.Annotations[v1beta2.AnnotationOCMComponentName] == m.decision.Component {
		if source, err := v1beta2.DecodeImageSpec(is.Spec.Install.Source); err == nil && source.Repo == n.Registry.Base() {
			return artefact{install: is.Spec.Install, config: is.Spec.Config, crds: is.Spec.CRDs, images: is.Spec.LocalizedImages}, nil
		}
	}
	component, err := n.Registry.Component(ctx, m.decision.Component, m.decision.Version)
	if err != nil {
		return artefact{}, err
	}
	return artefactIn(component)
}

// artefactIn reads the resources of a component by their names: raw-manifest is what is installed, config and crds go with it. Early
// modules have no raw-manifest; there every other resource is installed, in the order of names, but for default-cr, which people read.
func artefactIn(c *registry.Component) (artefact, error) {
	a := artefact{images: c.Images}
	for _, name := range slices.Sorted(maps.Keys(c.Layers)) {
		layer := c.Layers[name]
		switch name {
		case v1beta2.LayerConfig:
			a.config = configOf(layer)
		case v1beta2.LayerCRDs:
			a.crds = configOf(layer)
		case v1beta2.LayerDefaultCR:
		default:
			source, err := v1beta2.ImageSpec{Repo: layer.Repo, Name: layer.Component, Ref: layer.Ref, Type: v1beta2.SourceType(layer.Type)}.Encode()
			if err != nil {
				return artefact{}, fmt.Errorf("encoding the source of the Manifest: %w", err)
			}
			a.installs = append(a.installs, v1beta2.InstallInfo{Name: name, Source: source})
		}
	}
	for _, install := range a.installs {
		if install.Name == v1beta2.RawManifest {
			a.install, a.installs = install, nil
		}
	}
	if a.install.Name == "" && len(a.installs) == 0 {
		return artefact{}, &channel.Blocker{Code: v1beta2.ReasonInvalidDescriptor, Message: fmt.Sprintf(
			"the component descriptor of %s:%s has no resource %s: build the module anew", c.Name, c.Version, v1beta2.RawManifest)}
	}
	return a, nil
}

func configOf(l registry.Layer) *v1beta2.ManifestConfig {
	return &v1beta2.ManifestConfig{Repo: l.Repo, Name: l.Component, Ref: l.Ref, Type: registry.OCIRef}
}

// remove deletes the Manifests of modules that nobody wants any more, or that this runtime may not have.
func (n *run) remove(ctx context.Context) error {
	var errs []error
	for i := range n.modules {
		m := &n.modules[i]
		refused := m.decision.Blocker != nil && !m.decision.Blocker.Keep
		if m.manifest == nil || (m.wanted && !refused) || !m.manifest.DeletionTimestamp.IsZero() {
			continue
		}
		if err := client.IgnoreNotFound(n.Client.Delete(ctx, m.manifest)); err != nil {
			errs = append(errs, fmt.Errorf("deleting Manifest %s: %w", m.manifest.Name, err))
		}
	}
	return errors.Join(errs...)
}

// usersOf maps a release or template to the Kymas that have or want its module.
func (r *Reconciler) usersOf(ctx context.Context, o client.Object) []reconcile.Request {
	name := o.GetName()
	if t, ok := o.(*v1beta2.ModuleTemplate); ok {
		name = t.Spec.ModuleName
	}
	list := &v1beta2.KymaList{}
	if err := r.Client.List(ctx, list, client.InNamespace(o.GetNamespace()), client.MatchingFields{moduleIndex: name}); err != nil {
		return nil // the cache answers as long as the program lives
	}
	var requests []reconcile.Request
	for _, k := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&k)})
	}
	return requests
}

// modulesOf returns the modules that a Kyma has or wants.
func modulesOf(k *v1beta2.Kyma) []string {
	names := map[string]bool{}
	for _, m := range k.Spec.Modules {
		names[m.Name] = true
	}
	for _, m := range k.Status.Modules {
		names[m.Name] = true
	}
	return slices.Sorted(mapKeys(names))
}
