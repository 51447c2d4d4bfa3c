package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Names of the indexes in the cache of the control plane.
const (
	// TemplateIndex finds ModuleTemplates by the name of their module.
	TemplateIndex = "kyma.templates"
	// MandatoryIndex finds the ModuleReleaseMetas of mandatory modules. The ModuleReleaseMeta of a mandatory module has
	// the key v1beta2.ValueTrue in MandatoryIndex, and all others have no key.
	MandatoryIndex = "kyma.mandatory"
)

// Index describes one index of the cache.
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

// Lookup returns the catalog of the control plane, with which the caller decides which versions a Kyma gets. Each
// object of the catalog is read from the cache when it is needed. After the decisions, the caller has to call the
// returned function, which returns an error if a read of the catalog has failed. If the returned function returns an
// error, the caller must discard its decisions about versions.
func (c *Copies) Lookup(ctx context.Context) (catalog channel.Catalog, readError func() error) {
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
		Turn: admission.NewTurnFunc(admission.Lookups{
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

// contents are the encoded objects of a catalog copy, for one contentsKey. Runtimes with the same catalog copy share
// one contents, so contents are never changed after they were made.
type contents struct {
	digest  string
	objects []*render.Object // the ModuleTemplates, sorted by name, and then the ModuleReleaseMetas, sorted by name
	hashes  hashSet          // of objects, in the same order
}

// hashed is the value of the hash label of one object. It does not keep the object in memory.
type hashed struct {
	objectKey
	hash string
}

// hashSet has the hashes of the objects of a catalog copy, in the order of contents.objects.
type hashSet []*hashed

// index returns the position of an object, or -1 if the set does not have the object.
func (s hashSet) index(key objectKey) int {
	i, found := slices.BinarySearchFunc(s, key, func(h *hashed, key objectKey) int {
		// "ModuleTemplate" is greater than "ModuleReleaseMeta"
		return cmp.Or(strings.Compare(key.kind, h.kind), strings.Compare(h.name, key.name))
	})
	if !found {
		return -1
	}
	return i
}

// of returns the hash of an object, or "" if the set does not have the object.
func (s hashSet) of(key objectKey) string {
	if i := s.index(key); i >= 0 {
		return s[i].hash
	}
	return ""
}

// contentsCache stores the contents of catalog copies until the catalog changes.
//
// While k channels move in stages, there are up to two to the power of k different catalog copies. Most of their
// objects are equal, so each object is encoded once and shared: one more catalog copy costs two slices of pointers.
type contentsCache struct {
	changed chan struct{} // receives one signal after one or more changes of the catalog

	mu      sync.Mutex
	byKey   map[contentsKey]*contents            // guarded by mu; nil after a change of the catalog
	catalog channel.Contents                     // guarded by mu; read with the first contents
	moving  []move                               // guarded by mu; computed with the first contents
	encoded map[[sha256.Size]byte]*encodedObject // guarded by mu; by the sum of CopiedObject.JSON
}

// encodedObject is one object that catalog copies share.
type encodedObject struct {
	object *render.Object
	hashed *hashed
}

// contentsKey identifies the contents of the catalog copy for a runtime.
type contentsKey struct {
	access channel.Access
	// ahead names the channels that move in stages and whose rollout has already admitted the runtime, see
	// Copies.ahead.
	ahead string
}

// move describes a channel that moves to another version in stages. Until a runtime is admitted, its catalog copy has
// the proven version. Therefore the catalog copy of a waiting runtime does not change, not even after a restart of the
// manager.
type move struct{ module, channel, proven, target string }

func (m move) moduleAndChannelKey() string { return m.module + "/" + m.channel }

// Invalidate drops all contents from memory, because the catalog of the control plane has changed. Invalidate sends a
// signal to [Copies.Changed].
func (c *Copies) Invalidate() {
	c.InvalidateWithoutSignal()
	select {
	case c.contents.changed <- struct{}{}:
	default:
	}
}

// InvalidateWithoutSignal drops all contents from memory, but sends no signal to [Copies.Changed].
// InvalidateWithoutSignal is for a channel that begins to move in stages: the catalog copies of most runtimes do not
// change yet, so they need no reconcile at once. When the rollout admits a runtime, the runtime is reconciled and gets
// its new catalog copy.
func (c *Copies) InvalidateWithoutSignal() {
	c.contents.mu.Lock()
	defer c.contents.mu.Unlock()
	c.contents.byKey, c.contents.catalog, c.contents.moving, c.contents.encoded = nil, channel.Contents{}, nil, nil
}

// Changed returns a channel that receives a signal after one or more calls of [Copies.Invalidate].
func (c *Copies) Changed() <-chan struct{} { return c.contents.changed }

// OutdatedKymas returns the names of the Kymas whose runtimes do not have the current catalog copy. OutdatedKymas
// leaves out a Kyma that this process has not synced yet, because the first sync sends the current catalog copy.
// OutdatedKymas reads all Kymas from the cache.
func (c *Copies) OutdatedKymas(ctx context.Context) ([]string, error) {
	var kymas v1beta2.KymaList
	if err := c.options.Client.List(ctx, &kymas, client.InNamespace(c.options.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Kymas: %w", err)
	}
	catalog, failed := c.Lookup(ctx)
	accessOf := channel.AccessFunc(catalog)
	if err := failed(); err != nil {
		return nil, err
	}
	var outdated []string
	current := map[contentsKey]string{} // digests, by access and the channels that had admitted the runtime
	for i := range kymas.Items {
		k := &kymas.Items[i]
		c.mu.Lock()
		r := c.records[k.Name]
		if r == nil {
			c.mu.Unlock()
			continue
		}
		has, key := r.digest, contentsKey{accessOf(k), r.key.ahead}
		c.mu.Unlock()
		digest, known := current[key]
		if !known {
			admitted := strings.Split(key.ahead, ",")
			_, made, err := c.contentsOf(ctx, key.access, func(m move) bool {
				return slices.Contains(admitted, m.moduleAndChannelKey())
			})
			if err != nil {
				return nil, err
			}
			digest = made.digest
			current[key] = digest
		}
		if has != digest {
			outdated = append(outdated, k.Name)
		}
	}
	return outdated, nil
}

// contentsFor returns the contents of the catalog copy for a Kyma, and the key of these contents. isAdmitted reports
// whether the runtime is admitted in a channel that moves in stages.
func (c *Copies) contentsFor(ctx context.Context, k *v1beta2.Kyma, isAdmitted func(move) bool) (contentsKey, *contents,
	error) {
	catalog, failed := c.Lookup(ctx)
	access := channel.AccessOf(catalog, k)
	if err := failed(); err != nil {
		return contentsKey{}, nil, err
	}
	return c.contentsOf(ctx, access, isAdmitted)
}

// contentsOf returns the contents of the catalog copy for the runtimes with the given access, and the key of these
// contents. isAdmitted reports whether a rollout has admitted the runtimes in a channel that moves in stages.
func (c *Copies) contentsOf(ctx context.Context, access channel.Access, isAdmitted func(move) bool) (contentsKey,
	*contents, error) {
	key := contentsKey{access: access}
	c.contents.mu.Lock()
	defer c.contents.mu.Unlock()
	if c.contents.byKey == nil {
		all, err := c.readSharedCatalog(ctx)
		if err != nil {
			return key, nil, err
		}
		if c.contents.moving, err = c.moves(ctx, all.Releases); err != nil {
			return key, nil, err
		}
		if len(c.contents.moving) > 0 { // there will be many catalog copies
			all.Encoded = make(map[*v1beta2.ModuleTemplate][]byte, len(all.Templates))
		}
		c.contents.byKey, c.contents.catalog = map[contentsKey]*contents{}, all
		c.contents.encoded = map[[sha256.Size]byte]*encodedObject{}
	}
	var ahead []string
	for _, m := range c.contents.moving {
		if isAdmitted(m) {
			ahead = append(ahead, m.moduleAndChannelKey())
		}
	}
	key.ahead = strings.Join(ahead, ",")
	if found := c.contents.byKey[key]; found != nil {
		return key, found, nil
	}
	made, err := c.contents.makeLocked(key.access, ahead)
	if err != nil {
		return key, nil, err
	}
	c.contents.byKey[key] = made
	return key, made, nil
}

// readSharedCatalog reads the whole catalog from the cache. The caller must not change the objects of the catalog.
func (c *Copies) readSharedCatalog(ctx context.Context) (channel.Contents, error) {
	var templates v1beta2.ModuleTemplateList
	var releases v1beta2.ModuleReleaseMetaList
	for _, list := range []client.ObjectList{&templates, &releases} {
		if err := c.options.Client.List(ctx, list, client.InNamespace(c.options.Namespace),
			client.UnsafeDisableDeepCopy); err != nil {
			return channel.Contents{}, fmt.Errorf("reading the catalog: %w", err)
		}
	}
	return channel.Contents{Templates: pointers(templates.Items), Releases: pointers(releases.Items),
		Restricted: c.options.Restricted}, nil
}

// moves returns the channels that move to another version in stages, sorted. A channel with a RolloutPolicy counts as
// moving as soon as a user has written another version into it, even if the manager has not recorded the move yet.
func (c *Copies) moves(ctx context.Context, releases []*v1beta2.ModuleReleaseMeta) ([]move, error) {
	var policies v1beta2.RolloutPolicyList
	if err := c.options.Client.List(ctx, &policies, client.InNamespace(c.options.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing RolloutPolicies: %w", err)
	}
	var all []move
	for _, r := range releases {
		for _, of := range r.Spec.Channels {
			s := r.ChannelStatus(of.Channel)
			if s == nil || s.Version == "" || s.Version == of.Version {
				continue
			}
			isStaged := s.Policy != ""
			if s.Target != of.Version {
				policy, err := rollout.PolicyFor(policies.Items, r.Name, of.Channel)
				isStaged = policy != nil || err != nil
			}
			if isStaged {
				all = append(all, move{r.Name, of.Channel, s.Version, of.Version})
			}
		}
	}
	slices.SortFunc(all, func(a, b move) int {
		return strings.Compare(a.moduleAndChannelKey(),
			b.moduleAndChannelKey())
	})
	return all, nil
}

// withProven returns the ModuleReleaseMeta for the catalog copy of a runtime: each channel that moves in stages has its
// proven version, the version of the last completed rollout. The parameter "ahead" contains the channels whose rollout
// has admitted the runtime: these channels keep the new version, which is in the spec.
func withProven(r *v1beta2.ModuleReleaseMeta, moving []move, ahead []string) *v1beta2.ModuleReleaseMeta {
	shown := r
	for _, m := range moving {
		if m.module != r.Name || slices.Contains(ahead, m.moduleAndChannelKey()) {
			continue
		}
		if shown == r {
			shown = r.DeepCopy()
		}
		for i := range shown.Spec.Channels {
			if shown.Spec.Channels[i].Channel == m.channel {
				shown.Spec.Channels[i].Version = m.proven
			}
		}
	}
	return shown
}

// makeLocked makes the contents of the catalog copy for all runtimes that have the access in the parameter "access",
// which states the modules that a runtime may use. The parameter "ahead" contains the channels whose rollout has
// admitted the runtimes. The caller of makeLocked must hold mu.
func (c *contentsCache) makeLocked(access channel.Access, ahead []string) (*contents, error) {
	all := c.catalog
	all.Releases = make([]*v1beta2.ModuleReleaseMeta, len(c.catalog.Releases))
	for i, r := range c.catalog.Releases {
		all.Releases[i] = withProven(r, c.moving, ahead)
	}
	visible, err := channel.CatalogCopyFor(access, all, v1beta2.RuntimeNamespace)
	if err != nil {
		return nil, err
	}
	made := &contents{digest: "sha256:" + visible.Digest, objects: make([]*render.Object, len(visible.Objects)),
		hashes: make(hashSet, len(visible.Objects))}
	for i := range visible.Objects {
		sum := sha256.Sum256(visible.Objects[i].JSON)
		e := c.encoded[sum]
		if e == nil {
			if e, err = labelAndEncode(&visible.Objects[i], hex.EncodeToString(sum[:8])); err != nil {
				return nil, err
			}
			c.encoded[sum] = e
		}
		made.objects[i], made.hashes[i] = e.object, e.hashed
	}
	return made, nil
}

// known returns the contents for a key if they are already computed, and nil otherwise.
func (c *contentsCache) known(key contentsKey) *contents {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[key]
}

// labelAndEncode sets the hash label of an object of a catalog copy and encodes the object.
func labelAndEncode(o *channel.CopiedObject, hash string) (*encodedObject, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(o.JSON); err != nil {
		return nil, fmt.Errorf("decoding %s %s for the catalog of runtimes: %w", o.Kind, o.Name, err)
	}
	labels := u.GetLabels()
	labels[v1beta2.LabelCatalogHash] = hash
	u.SetLabels(labels)
	bundle, err := render.Build([]*unstructured.Unstructured{u}, render.Options{})
	if err != nil {
		return nil, fmt.Errorf("encoding the catalog of runtimes: %w", err)
	}
	return &encodedObject{bundle.Objects[0], &hashed{objectKey{o.Kind, o.Name}, hash}}, nil
}
