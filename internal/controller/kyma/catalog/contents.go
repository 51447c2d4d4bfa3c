package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Indexes of the cache of the control plane.
const (
	// TemplateIndex finds ModuleTemplates by the name of their module.
	TemplateIndex = "kyma.templates"
	// MandatoryIndex finds the ModuleReleaseMetas of mandatory modules. The only key of the index is v1beta2.ValueTrue.
	MandatoryIndex = "kyma.mandatory"
)

// Index is one index of the cache.
type Index struct {
	Object client.Object
	Name   string
	Keys   client.IndexerFunc
}

// Indexes returns the indexes that [Options.Client] needs.
func Indexes() []Index {
	return []Index{
		{&v1beta2.ModuleTemplate{}, TemplateIndex, func(o client.Object) []string {
			return []string{channel.ModuleOf(o.(*v1beta2.ModuleTemplate))}
		}},
		{&v1beta2.ModuleReleaseMeta{}, MandatoryIndex, func(o client.Object) []string {
			if o.(*v1beta2.ModuleReleaseMeta).IsMandatory() {
				return []string{v1beta2.ValueTrue}
			}
			return nil
		}},
	}
}

// Lookup returns the catalog of the control plane. Each object is read from the cache when it is needed. The returned
// function reports afterwards whether a read has failed. After a failed read, decisions that used the catalog are
// invalid.
func (c *Copies) Lookup(ctx context.Context) (channel.Catalog, func() error) {
	var errs []error
	note := func(err error) bool {
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("reading the catalog: %w", err))
		}
		return err == nil
	}
	get := func(name string, into client.Object) bool {
		return note(c.options.Client.Get(ctx, types.NamespacedName{Namespace: c.options.Namespace, Name: name}, into))
	}
	in := client.InNamespace(c.options.Namespace)
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
			note(c.options.Client.List(ctx, &list, in, client.MatchingFields{TemplateIndex: module}))
			return pointers(list.Items)
		},
		Mandatory: func() []*v1beta2.ModuleReleaseMeta {
			var list v1beta2.ModuleReleaseMetaList
			note(c.options.Client.List(ctx, &list, in, client.MatchingFields{MandatoryIndex: v1beta2.ValueTrue}))
			return pointers(list.Items)
		},
		Restricted: c.options.Restricted,
		Turn: admission.Of(admission.Lookups{
			Rollout: func(name string) *v1beta2.ModuleRollout {
				if found := (&v1beta2.ModuleRollout{}); get(name, found) {
					return found
				}
				return nil
			},
			HasPolicy: func(module, of string) bool {
				var list v1beta2.RolloutPolicyList
				note(c.options.Client.List(ctx, &list, in, client.UnsafeDisableDeepCopy))
				policy, err := rollout.PolicyFor(list.Items, module, of)
				return policy != nil || err != nil
			},
		}),
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

// contents are the encoded objects of the catalog copy for one access. Runtimes share them, so they are never changed.
type contents struct {
	digest  string
	objects []*render.Object
	hashes  map[objectKey]string // the value of the hash label of each object
}

// contentsCache holds the contents for each access until the catalog changes.
type contentsCache struct {
	changed chan struct{} // receives one signal after one or more changes of the catalog

	mu       sync.Mutex
	byAccess map[channel.Access]*contents // guarded by mu
}

// Invalidate drops all contents, because the catalog of the control plane has changed. Invalidate sends a signal to
// [Copies.Changed].
func (c *Copies) Invalidate() {
	c.contents.mu.Lock()
	c.contents.byAccess = nil
	c.contents.mu.Unlock()
	select {
	case c.contents.changed <- struct{}{}:
	default:
	}
}

// InvalidateLater drops all contents without a signal, because a channel has begun to move in stages. A runtime gets
// the changed catalog copy with its next reconcile, which its turn triggers. So a runtime that waits causes no request.
func (c *Copies) InvalidateLater() {
	c.contents.mu.Lock()
	c.contents.byAccess = nil
	c.contents.mu.Unlock()
}

// Changed returns a channel that receives a signal after one or more calls of [Copies.Invalidate].
func (c *Copies) Changed() <-chan struct{} { return c.contents.changed }

// Outdated returns the names of the Kymas whose runtimes do not have the current catalog copy. A Kyma that this process
// has not synced yet is left out: its first sync sends the current catalog copy. Outdated reads all Kymas from the
// cache.
func (c *Copies) Outdated(ctx context.Context) ([]string, error) {
	var kymas v1beta2.KymaList
	if err := c.options.Client.List(ctx, &kymas, client.InNamespace(c.options.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Kymas: %w", err)
	}
	var outdated []string
	for i := range kymas.Items {
		k := &kymas.Items[i]
		_, current, err := c.contentsFor(ctx, k)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		r := c.records[k.Name]
		isOutdated := r != nil && r.digest != current.digest
		c.mu.Unlock()
		if isOutdated {
			outdated = append(outdated, k.Name)
		}
	}
	return outdated, nil
}

// contentsFor returns the access of a Kyma and the contents of the catalog copy for this access.
func (c *Copies) contentsFor(ctx context.Context, k *v1beta2.Kyma) (channel.Access, *contents, error) {
	catalog, failed := c.Lookup(ctx)
	access := channel.AccessOf(catalog, k)
	if err := failed(); err != nil {
		return access, nil, err
	}
	found, err := c.contentsOf(ctx, access)
	return access, found, err
}

// contentsOf returns the contents for an access. contentsOf computes them under the lock, so that they are computed
// only once.
func (c *Copies) contentsOf(ctx context.Context, access channel.Access) (*contents, error) {
	c.contents.mu.Lock()
	defer c.contents.mu.Unlock()
	if found := c.contents.byAccess[access]; found != nil {
		return found, nil
	}
	var templates v1beta2.ModuleTemplateList
	var releases v1beta2.ModuleReleaseMetaList
	for _, list := range []client.ObjectList{&templates, &releases} {
		if err := c.options.Client.List(ctx, list, client.InNamespace(c.options.Namespace),
			client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("reading the catalog: %w", err)
		}
	}
	visible, err := channel.CatalogCopyFor(access, channel.Contents{
		Templates: pointers(templates.Items), Releases: pointers(releases.Items), Restricted: c.options.Restricted,
	}, v1beta2.RuntimeNamespace)
	if err != nil {
		return nil, err
	}
	made, err := newContents(visible)
	if err != nil {
		return nil, err
	}
	if c.contents.byAccess == nil {
		c.contents.byAccess = map[channel.Access]*contents{}
	}
	c.contents.byAccess[access] = made
	return made, nil
}

// known returns the contents for an access if they are already computed, otherwise nil.
func (c *contentsCache) known(access channel.Access) *contents {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byAccess[access]
}

// newContents labels and encodes the objects of a catalog copy.
func newContents(visible channel.CatalogCopy) (*contents, error) {
	made := &contents{digest: "sha256:" + visible.Digest, hashes: map[objectKey]string{}}
	objects := make([]*unstructured.Unstructured, len(visible.Objects))
	for i, o := range visible.Objects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o.JSON); err != nil {
			return nil, fmt.Errorf("decoding %s %s for the catalog of runtimes: %w", o.Kind, o.Name, err)
		}
		sum := sha256.Sum256(o.JSON)
		hash := hex.EncodeToString(sum[:8])
		made.hashes[objectKey{o.Kind, o.Name}] = hash
		labels := u.GetLabels()
		labels[v1beta2.LabelCatalogHash] = hash
		u.SetLabels(labels)
		objects[i] = u
	}
	bundle, err := render.Build(objects, render.Options{})
	if err != nil {
		return nil, fmt.Errorf("encoding the catalog of runtimes: %w", err)
	}
	made.objects = bundle.Objects
	return made, nil
}
