package kyma

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// module is one module of a Kyma in one pass.
type module struct {
	wish      v1beta2.Module
	wanted    bool                  // somebody wishes it; otherwise it is leaving
	mandatory bool                  // it is the control plane that wishes it, or did
	decision  channel.Decision      // set by resolve
	manifest  *v1beta2.Manifest     // set by resolve, replaced by install: what the control plane has of it, nil if nothing
	former    *v1beta2.ModuleStatus // the entry of the status before this pass, nil if there was none
	err       error                 // set by install: why the Manifest could not be brought up to date
}

// pause returns what pauses a module, nil if nothing does.
func (m *module) pause() *channel.Blocker {
	switch b := m.decision.Blocker; {
	case b == nil:
		return nil
	case b.Code == v1beta2.ReasonKymaPaused || b.Code == v1beta2.ReasonModulePaused:
		return b
	}
	return nil
}

// resolve finds for every module that is wished, here or in the runtime, which version it should have, and what there is of it.
func (n *run) resolve(ctx context.Context) error {
	if err := n.listManifests(ctx); err != nil {
		return err
	}
	catalog, failed := n.catalog(ctx)
	n.policies.Refresh(ctx)
	catalog.Policy, n.policyProblem = n.policies.InForce(), n.policies.Problem()
	claimed := map[*v1beta2.Manifest]bool{}
	decide := func(m module, w channel.Request) module {
		if m.manifest != nil {
			claimed[m.manifest] = true
		}
		w.Installed, w.ManifestVersion, w.Now = installedVersion(m.manifest), orderedVersion(m.manifest), n.now
		m.wanted, m.decision = true, channel.Resolve(catalog, w)
		return m
	}
	// A module that has become mandatory, or is no longer, keeps its Manifest: so it matters who is asked first.
	var mandatory []module
	isMandatory := map[string]bool{}
	for _, w := range channel.MandatoryRequests(catalog, n.kyma) {
		isMandatory[w.Module] = true
		m := module{wish: v1beta2.Module{Name: w.Module}, mandatory: true, manifest: n.manifestOf(w.Module, true)}
		mandatory = append(mandatory, decide(m, w))
	}
	wished := map[string]bool{}
	for _, wish := range n.remote.Spec.Modules {
		wished[wish.Name] = true
		m := module{wish: wish, former: formerEntry(n.kyma, wish.Name), manifest: n.manifestOf(wish.Name, false)}
		if m.manifest != nil && claimed[m.manifest] {
			m.manifest = nil
		}
		n.modules = append(n.modules, decide(m, channel.RequestFor(n.kyma, n.remote, &wish)))
	}
	if err := failed(); err != nil {
		n.modules = nil // a lookup that failed says nothing about any module
		return err
	}
	for _, name := range slices.Sorted(mapKeys(n.manifests)) {
		left := n.manifests[name]
		of := left.ModuleName()
		if claimed[left] || !isOurs(left) || (wished[of] || isMandatory[of]) && !left.IsMandatory() {
			continue
		}
		n.modules = append(n.modules, module{wish: v1beta2.Module{Name: of}, mandatory: left.IsMandatory(), manifest: left, former: formerEntry(n.kyma, of)})
	}
	n.modules = append(n.modules, mandatory...)
	n.known = true
	return nil
}

// listManifests reads all Manifests of this Kyma, one by one, because a list need not have what was written to them a moment ago.
func (n *run) listManifests(ctx context.Context) error {
	list := &v1beta2.ManifestList{}
	err := n.Client.List(ctx, list, client.InNamespace(n.kyma.Namespace), client.MatchingFields{runtimes.KymaNameIndex: n.kyma.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the Manifests of Kyma %s: %w", n.kyma.Name, err)
	}
	n.manifests = make(map[string]*v1beta2.Manifest, len(list.Items))
	for i := range list.Items {
		if _, err := n.readManifest(ctx, list.Items[i].Name); err != nil {
			return err
		}
	}
	for _, m := range n.kyma.Status.Modules { // those that were created a moment ago
		if m.Manifest == nil || n.manifests[m.Manifest.Metadata.Name] != nil {
			continue
		}
		if _, err := n.readManifest(ctx, m.Manifest.Metadata.Name); err != nil {
			return err
		}
	}
	return nil
}

// readManifest reads one Manifest of this Kyma, nil if there is none.
func (n *run) readManifest(ctx context.Context, name string) (*v1beta2.Manifest, error) {
	m := &v1beta2.Manifest{}
	if err := n.Client.Get(ctx, types.NamespacedName{Namespace: n.kyma.Namespace, Name: name}, m); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Manifest %s: %w", name, err)
	}
	if m.Labels[v1beta2.LabelKymaName] != n.kyma.Name {
		return nil, nil
	}
	n.manifests[name] = m
	return m, nil
}

// isOurs tells whether a Manifest was made for a Kyma. One that a person has written for a runtime is that person's to delete.
func isOurs(m *v1beta2.Manifest) bool {
	return metav1.GetControllerOf(m) != nil || m.Labels[v1beta2.LabelManagedBy] == v1beta2.ManagedByLifecycleManager
}

// manifestOf returns the Manifest of a module, nil if there is none. Of several it is one that is not being deleted, and then one of the same
// sort, mandatory or not.
func (n *run) manifestOf(module string, mandatory bool) *v1beta2.Manifest {
	var found *v1beta2.Manifest
	best := -1
	for _, name := range slices.Sorted(mapKeys(n.manifests)) {
		m := n.manifests[name]
		if m.ModuleName() != module {
			continue
		}
		rank := 0
		if m.DeletionTimestamp.IsZero() {
			rank += 2
		}
		if m.IsMandatory() == mandatory {
			rank++
		}
		if rank > best {
			found, best = m, rank
		}
	}
	return found
}

// catalog looks releases and templates up in the cache. The second answer says, afterwards, whether a lookup failed.
func (n *run) catalog(ctx context.Context) (channel.Catalog, func() error) {
	var errs []error
	note := func(err error) bool {
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("reading the catalog: %w", err))
		}
		return err == nil
	}
	get := func(name string, into client.Object) bool {
		return note(n.Client.Get(ctx, types.NamespacedName{Namespace: n.kyma.Namespace, Name: name}, into))
	}
	in := client.InNamespace(n.kyma.Namespace)
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
		Templates: func(module string) []*v1beta2.ModuleTemplate {
			var list v1beta2.ModuleTemplateList
			note(n.Client.List(ctx, &list, in, client.MatchingFields{templateIndex: module}))
			return pointers(list.Items)
		},
		Mandatory: func() []*v1beta2.ModuleReleaseMeta {
			var list v1beta2.ModuleReleaseMetaList
			note(n.Client.List(ctx, &list, in, client.MatchingFields{mandatoryIndex: v1beta2.ValueTrue}))
			return pointers(list.Items)
		},
		Restricted: n.Restricted,
	}, func() error { return errors.Join(errs...) }
}

// pointers returns pointers to the items of a list.
func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}
