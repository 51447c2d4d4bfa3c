// Package catalog keeps in every runtime a copy of the catalog, and the base objects that the copy needs.
//
// # Use
//
//	c := catalog.New(catalog.Options{…})
//	err := c.SyncBase(ctx, target, base, isCurrent)   // namespace, CRDs and pull Secret
//	err := c.Sync(ctx, target)                        // ModuleTemplates and ModuleReleaseMetas
//
// # How it works
//
// The catalog copy of a runtime has those ModuleTemplates and ModuleReleaseMetas that the runtime may use. The copy for
// runtimes with the same access is computed once after each change of the catalog, and has a digest. The Kyma in the
// runtime is annotated with the digest of the copy that the runtime has, so that no request is made while the digest is
// the same. When it differs, each object in the runtime shows by a label which content it has, and only the objects
// that differ are sent.
//
// Changes that are made to the copy or to the CRDs in the runtime are undone. They are reported by watches on metadata:
// the managed fields of an object show which field manager wrote it last. Runtimes that are not watched are compared
// with the copy at a fixed interval.
//
// # What it does not do
//
// It does not write the Kyma in the runtime, nor its status: the controller does. It never deletes objects that a user
// of the runtime has created.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options are the same for all runtimes.
type Options struct {
	// Client reads the catalog of the control plane from the cache. It needs the indexes of [Indexes].
	Client client.Reader
	// Runtimes reports what happens in runtimes.
	Runtimes *runtimes.Pool
	// Namespace holds the catalog in the control plane.
	Namespace string
	// Restricted are the modules that are only for Kymas that their ModuleReleaseMeta selects.
	Restricted []string
	// Base are the base objects of every runtime: its namespace and the CRDs.
	Base *render.Bundle
	// PullSecret names a Secret in Namespace that every runtime gets a copy of. "" means none.
	PullSecret string
	// PullSecrets reads that Secret. Needed with PullSecret.
	PullSecrets client.Reader
	// AuditInterval is the time between two comparisons of the copy in a runtime that is not watched, field by field.
	AuditInterval time.Duration
	// Enqueue triggers a reconcile of a Kyma, because something in its runtime has to be corrected. It must not block.
	Enqueue func(kyma string)
}

// Copies keeps the catalog copies of all runtimes. Safe for concurrent use; for each Kyma there is at most one call of
// Sync or SyncBase at a time.
type Copies struct {
	options  Options
	contents contentsCache

	mu      sync.Mutex
	records map[string]*record // guarded by mu; by name of the Kyma
	base    baseWithSecret     // guarded by mu
}

// record is what is known of the copy and the base objects in one runtime. Losing it costs requests that change
// nothing.
type record struct {
	runtime    *runtimes.Runtime // the connection that the record belongs to
	access     channel.Access
	digest     string             // of the copy that the runtime has; "" if that is not known
	suspects   map[objectKey]bool // objects of the copy that are reported not to be as they should be
	compareAll bool               // any object of the copy may not be as it should be
	auditedAt  time.Time          // when all objects were last compared field by field, where there are no watches
	comparedAt time.Time          // when all objects were last sent, or their labels compared

	baseSent       *apply.Progress // which base objects were sent
	baseSentAt     time.Time       // when base objects were last sent
	baseWrong      bool            // a base object was reported not to be as it should be
	baseUncertain  bool            // the same may be true, because changes may have been missed
	baseComparedAt time.Time       // when the base objects were last sent or compared
}

// New returns Copies that know nothing of any runtime.
func New(o Options) *Copies {
	return &Copies{options: o, contents: contentsCache{changed: make(chan struct{}, 1)}, records: map[string]*record{}}
}

// Target is the runtime that is brought up to date, in one reconcile.
type Target struct {
	// Kyma is the Kyma in the control plane.
	Kyma *v1beta2.Kyma
	// Runtime is the connection. Nothing is known of the runtime behind another connection.
	Runtime *runtimes.Runtime
	// Now is the time of the reconcile.
	Now time.Time
	// Digest is the digest of the copy that the runtime has, as its Kyma is annotated; used by Sync.
	Digest string
	// RecordDigest annotates the Kyma in the runtime with another digest; used by Sync.
	RecordDigest func(ctx context.Context, digest string) error
}

// NotServedError is the error of a runtime that does not serve a kind yet, of which the CRD was created just before.
type NotServedError struct {
	// What is waited for, as the object of a sentence.
	What string
}

func (e *NotServedError) Error() string { return "waiting for " + e.What }

// Sync brings the copy in the runtime up to date and subscribes to changes of it. It makes no request if nothing has
// changed.
func (c *Copies) Sync(ctx context.Context, t Target) error {
	access, want, err := c.contentsFor(ctx, t.Kyma)
	if err != nil {
		return err
	}
	suspects, all := c.takeSuspects(t, access)
	all = all || t.Digest != want.digest
	if err := c.update(ctx, t, want, suspects, all); err != nil {
		c.returnSuspects(t, suspects, all)
		if loop.Reason(err) == apply.KindUnknown {
			c.ResendBase(t) // the next reconcile creates the CRD again
		}
		return err
	}
	if t.Digest != want.digest {
		if err := t.RecordDigest(ctx, want.digest); err != nil {
			return err
		}
	}
	replay := false
	c.edit(t, func(r *record) {
		r.digest = want.digest
		if all {
			r.comparedAt = t.Now
		}
		replay = r.comparedAt.IsZero()
	})
	c.subscribe(t.Kyma.Name, replay)
	return nil
}

// Forget drops what is known of the runtime of a deleted Kyma.
func (c *Copies) Forget(kyma string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.records, kyma)
}

// edit calls f with the record of a runtime, under the lock. The record of another connection is replaced by an empty
// one.
func (c *Copies) edit(t Target, f func(*record)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[t.Kyma.Name]
	if r == nil || r.runtime != t.Runtime {
		r = &record{runtime: t.Runtime, auditedAt: time.Now(), baseSent: &apply.Progress{}}
		c.records[t.Kyma.Name] = r
	}
	f(r)
}

// takeSuspects returns the objects that were reported since the last call, and whether any object may not be as it
// should be.
func (c *Copies) takeSuspects(t Target, access channel.Access) (suspects map[objectKey]bool, all bool) {
	c.edit(t, func(r *record) {
		suspects, all = r.suspects, r.compareAll
		r.suspects, r.compareAll, r.access = nil, false, access
	})
	if suspects == nil {
		suspects = map[objectKey]bool{}
	}
	return suspects, all
}

// returnSuspects puts back what takeSuspects returned, because it could not be corrected.
func (c *Copies) returnSuspects(t Target, suspects map[objectKey]bool, all bool) {
	c.edit(t, func(r *record) {
		r.digest, r.compareAll = "", r.compareAll || all
		for key := range suspects {
			r.suspect(key)
		}
	})
}

// suspect notes an object that may not be as it should be.
func (r *record) suspect(key objectKey) {
	if r.suspects == nil {
		r.suspects = map[objectKey]bool{}
	}
	r.suspects[key] = true
}

// update sends the objects that differ and deletes those that are no longer in the copy: the suspects, or all of them.
func (c *Copies) update(ctx context.Context, t Target, want *contents, suspects map[objectKey]bool, all bool) error {
	if err := c.audit(ctx, t, want, suspects); err != nil {
		return err
	}
	extra := map[objectKey]bool{}
	for key := range suspects {
		if want.hashes[key] == "" {
			extra[key] = true
		} else if err := c.removeAddedFields(ctx, t, want, key); err != nil {
			return err
		}
	}
	if all {
		if err := c.compare(ctx, t, want, suspects, extra); err != nil {
			return err
		}
	}
	err := c.send(ctx, t, want, suspects)
	if deleteErr := c.deleteExtra(ctx, t, extra); deleteErr != nil {
		if _, waits := errors.AsType[*NotServedError](err); waits {
			return deleteErr
		}
		return errors.Join(err, deleteErr)
	}
	return err
}

// audit adds to suspects the objects that differ in any field. It does so once in AuditInterval where changes are not
// reported, and when changes may have been missed.
func (c *Copies) audit(ctx context.Context, t Target, want *contents, suspects map[objectKey]bool) error {
	if !c.isAuditDue(t) {
		return nil
	}
	drifted, err := t.Runtime.FindDrift(ctx, setOf(want.objects), &apply.Progress{})
	if err != nil {
		return fmt.Errorf("comparing the catalog of runtime %s: %w", t.Kyma.Name, err)
	}
	for _, d := range drifted {
		suspects[objectKey{d.Ref.Kind, d.Ref.Name}] = true
	}
	c.edit(t, func(r *record) { r.auditedAt = time.Now() })
	return nil
}

// isAuditDue reports whether the copy in the runtime has to be compared field by field.
func (c *Copies) isAuditDue(t Target) bool {
	var auditedAt time.Time
	c.edit(t, func(r *record) { auditedAt = r.auditedAt })
	if c.options.Runtimes.IsWatched(t.Kyma.Name) && !auditedAt.IsZero() {
		return false
	}
	return time.Since(auditedAt) >= c.options.AuditInterval*7/8
}

// compare lists the objects in the runtime, adds those that differ to suspects, and those that may have to be deleted
// to extra.
func (c *Copies) compare(ctx context.Context, t Target, want *contents, suspects, extra map[objectKey]bool) error {
	found := map[objectKey]string{}
	for _, gvk := range kinds {
		listed, err := t.Runtime.List(ctx, gvk, v1beta2.RuntimeNamespace)
		if loop.Reason(err) == apply.KindUnknown && c.isBaseJustSent(t) {
			return &NotServedError{What: "the runtime to serve the kind " + gvk.Kind}
		}
		if err != nil {
			return fmt.Errorf("reading the catalog of runtime %s: %w", t.Kyma.Name, err)
		}
		for _, o := range listed {
			key := objectKey{gvk.Kind, o.Name}
			hash := o.Labels[v1beta2.LabelCatalogHash]
			switch {
			case want.hashes[key] != "" && o.DeletionTime.IsZero():
				found[key] = hash
			case want.hashes[key] == "" && (hash != "" || o.Labels[v1beta2.LabelManagedBy] == v1beta2.ManagedByKyma):
				extra[key] = true
			}
		}
	}
	for key, hash := range want.hashes {
		if found[key] != hash {
			suspects[key] = true
		}
	}
	return nil
}

// removeAddedFields removes what other field managers have added to the spec of an object: to apply the object again
// does not do that.
func (c *Copies) removeAddedFields(ctx context.Context, t Target, want *contents, key objectKey) error {
	at := slices.IndexFunc(want.objects, func(o *render.Object) bool {
		return o.GVK.Kind == key.kind &&
			o.Name == key.name
	})
	is, err := t.Runtime.Get(ctx, key.ref())
	if IsAbsent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the catalog of runtime %s: %w", t.Kyma.Name, err)
	}
	desired := &unstructured.Unstructured{}
	if err := desired.UnmarshalJSON(want.objects[at].AppendJSON(nil, v1beta2.RuntimeNamespace,
		render.Overlay{})); err != nil {
		return fmt.Errorf("decoding %s for the catalog of runtimes: %w", key.name, err)
	}
	patch, err := specPatch(is, desired)
	if err != nil || patch == nil {
		return err
	}
	_, err = t.Runtime.Patch(ctx, key.ref(), types.MergePatchType, "", patch, v1beta2.FieldOwnerCatalog)
	if err != nil && !IsAbsent(err) {
		return fmt.Errorf("undoing a change of the catalog of runtime %s: %w", t.Kyma.Name, err)
	}
	return nil
}

// specPatch returns the merge patch that changes the spec of an object to the desired one, nil if they are equal.
func specPatch(is, desired *unstructured.Unstructured) ([]byte, error) {
	patch, err := loop.MergePatch("spec", is.Object["spec"], desired.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("comparing %s: %w", desired.GetName(), err)
	}
	return patch, nil
}

// send applies some objects of the copy. An object that is refused does not keep the others from being sent.
func (c *Copies) send(ctx context.Context, t Target, want *contents, which map[objectKey]bool) error {
	objects := slices.DeleteFunc(slices.Clone(want.objects),
		func(o *render.Object) bool { return !which[objectKey{o.GVK.Kind, o.Name}] })
	if len(objects) == 0 {
		return nil
	}
	result, err := t.Runtime.Apply(ctx, setOf(objects), &apply.Progress{})
	metrics.CatalogWrites.Add(float64(len(result.Applied)))
	for _, ref := range result.TakenOver {
		log.FromContext(ctx).Info("undid a change of the catalog", "object", ref.String())
	}
	if err == nil && len(result.Failed) > 0 {
		err = result.Failed[0]
	}
	if err != nil {
		return fmt.Errorf("writing the catalog of runtime %s: %w", t.Kyma.Name, err)
	}
	if len(result.Waiting) > 0 {
		return &NotServedError{What: result.Waiting[0].Ref.String() + ": " + result.Waiting[0].Message}
	}
	return nil
}

// deleteExtra deletes those of the objects that were written by this package. Objects of users stay, whatever labels
// they have.
func (c *Copies) deleteExtra(ctx context.Context, t Target, which map[objectKey]bool) error {
	var refs []apply.Ref
	order := func(a, b objectKey) int { return strings.Compare(a.kind+a.name, b.kind+b.name) }
	for _, key := range slices.SortedFunc(maps.Keys(which), order) {
		u, err := t.Runtime.Get(ctx, key.ref())
		if IsAbsent(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the catalog of runtime %s: %w", t.Kyma.Name, err)
		}
		if isManagedBy(u.GetManagedFields(), v1beta2.FieldOwnerCatalog) {
			refs = append(refs, key.ref())
		}
	}
	if len(refs) == 0 {
		return nil
	}
	left, err := t.Runtime.Delete(ctx, refs, &apply.DeletionProgress{})
	for _, r := range left.Remaining {
		if err == nil && r.Err != nil {
			err = r.Err
		}
	}
	if err != nil {
		return fmt.Errorf("deleting from the catalog of runtime %s: %w", t.Kyma.Name, err)
	}
	metrics.CatalogWrites.Add(float64(len(refs)))
	return nil
}

// kinds are the kinds of the catalog, in the order in which they are sent.
var kinds = []schema.GroupVersionKind{
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleTemplate), v1beta2.GroupVersion.WithKind(
		v1beta2.KindModuleReleaseMeta),
}

// objectKey names one object of a copy.
type objectKey struct{ kind, name string }

func (k objectKey) ref() apply.Ref {
	return apply.Ref{
		Group: v1beta2.GroupVersion.Group, Version: v1beta2.GroupVersion.Version, Kind: k.kind,
		Namespace: v1beta2.RuntimeNamespace, Name: k.name,
	}
}

// setOf returns objects of a copy as they are applied.
func setOf(objects []*render.Object) apply.Set {
	return apply.Set{Bundle: &render.Bundle{Objects: objects}, Owner: v1beta2.FieldOwnerCatalog,
		Namespace: v1beta2.RuntimeNamespace}
}

// IsAbsent reports whether an error of a runtime means that an object, its namespace or its kind does not exist there.
func IsAbsent(err error) bool {
	switch loop.Reason(err) {
	case apply.ObjectNotFound, apply.NamespaceNotFound, apply.KindUnknown:
		return true
	}
	return false
}
