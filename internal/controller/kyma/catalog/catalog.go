// Package catalog keeps a copy of the catalog in every runtime, and the base objects that the catalog copy needs.
//
// # Use
//
//	c := catalog.New(catalog.Options{…})
//	keepsCRDs, err := c.SyncBase(ctx, target, base, isCurrent)   // namespace, CRDs and pull Secret
//	digest, err := c.Sync(ctx, target)                           // ModuleTemplates and ModuleReleaseMetas
//
// # How it works
//
// The catalog copy of a runtime has the ModuleTemplates and ModuleReleaseMetas that the runtime may use. Runtimes with
// the same access have the same catalog copy. While a channel moves in stages, there are two catalog copies: one with
// the former version, and one with the new version for runtimes that the rollout has admitted. While several channels
// move, there are more catalog copies, which share the objects that are equal. A catalog copy is computed once after
// each change of the catalog, and has a digest. The status of the Kyma in the runtime has the digest of the catalog
// copy that the runtime has. While this digest is the digest of the current catalog copy, the package makes no request
// to the runtime. When the two digests differ, the package sends only the objects that differ. The new digest is
// written with the next change of the status; until then it is in memory. The contents of the former catalog copy are
// in memory; after a restart, the objects in the runtime are listed once. A label of each object in the runtime
// identifies its content.
//
// The package reverts changes that others make to the catalog copy or to the CRDs in the runtime. Watches on metadata
// report changes that others make: the managed fields of an object show which field manager wrote the object last. In a
// runtime that is not watched, the objects are compared with the catalog copy at a fixed interval.
//
// # What it does not do
//
// The package does not write the Kyma in the runtime, nor the status of that Kyma: the Kyma controller writes them. The
// package never deletes objects that a user of the runtime has created.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options are the dependencies and settings of Copies. The options apply to all runtimes.
type Options struct {
	// Client reads the catalog of the control plane from the cache. Client needs the indexes of [Indexes].
	Client client.Reader
	// Runtimes is the pool of connections to runtimes. Through this pool, the package receives events of the catalog
	// copies in runtimes.
	Runtimes *runtimes.Pool
	// Namespace is the namespace of the catalog in the control plane.
	Namespace string
	// Restricted lists the restricted modules: a Kyma may use such a module only if the ModuleReleaseMeta of the module
	// selects the Kyma.
	Restricted []string
	// Base has the base objects of every runtime: the namespace and the CRDs.
	Base *render.Bundle
	// PullSecret is the name of a Secret in Namespace. Every runtime gets a copy of the Secret, so that images can be
	// pulled with it. If PullSecret is "", runtimes get no pull Secret.
	PullSecret string
	// PullSecrets is a client that reads the Secret whose name is in PullSecret. PullSecrets is required if PullSecret
	// is set.
	PullSecrets client.Reader
	// AuditInterval is the time after which the catalog copy in a runtime is compared field by field again.
	// AuditInterval applies to runtimes that the manager does not watch.
	AuditInterval time.Duration
	// Enqueue triggers a reconcile of a Kyma, because an object in the runtime of the Kyma has to be corrected. Enqueue
	// must not block.
	Enqueue func(kyma string)
}

// Copies keeps the catalog copies of all runtimes. Copies is safe for concurrent use, with one condition: for each
// Kyma, only one call of Sync or SyncBase may run at a time.
type Copies struct {
	options  Options
	contents contentsCache

	mu      sync.Mutex
	records map[string]*record // guarded by mu; by name of the Kyma
	base    baseWithSecret     // guarded by mu
}

// record is what the manager remembers in memory about the catalog copy and the base objects in one runtime. If the
// manager loses the record of a runtime, for example by a restart, it delivers the catalog copy again with requests
// that change nothing.
type record struct {
	runtime *runtimes.Runtime // the connection that the record belongs to
	key     contentsKey       // of the catalog copy that the runtime should have
	digest  string            // of the catalog copy that the runtime has; "" if not known
	// recorded is the digest in the status of the Kyma in the runtime when digest was last known to be correct. The two
	// differ until the status is written.
	recorded string
	// has are the hashes of the objects of the catalog copy that the runtime has. If these objects are not known, has
	// is nil. Runtimes with the same catalog copy share one set.
	has hashSet
	// versions are the resource versions of the objects in has, as this process has written them; 0 if it has not. An
	// object with this version is deleted without a read.
	versions   []uint64
	suspects   map[objectKey]bool // objects of the catalog copy that are reported to differ from it
	compareAll bool               // every object of the catalog copy may differ, so all are compared
	auditedAt  time.Time          // when all objects were last compared field by field
	comparedAt time.Time          // when all objects were last sent, or all labels compared

	baseSent       *apply.Progress // which base objects were sent
	baseSentAt     time.Time       // when base objects were last sent
	baseWrong      bool            // a base object is reported as changed or deleted
	baseUncertain  bool            // changes of base objects may have been missed
	baseComparedAt time.Time       // when the base objects were last sent or compared
	mayChangeCRDs  bool            // the runtime was not a control plane when the objects in baseSent were first sent
}

// New returns a Copies in which no copy of the catalog is recorded for any runtime yet.
func New(o Options) *Copies {
	return &Copies{options: o, contents: contentsCache{changed: make(chan struct{}, 1)}, records: map[string]*record{}}
}

// Target is the runtime whose catalog copy one reconcile updates.
type Target struct {
	// Kyma is the Kyma in the control plane.
	Kyma *v1beta2.Kyma
	// Runtime is the connection to the runtime. A record that belongs to another connection is not used.
	Runtime *runtimes.Runtime
	// Now is the time of the reconcile.
	Now time.Time
	// Digest is the digest of the catalog copy that the runtime has, from the status of the Kyma in the runtime. Only
	// Sync uses the digest.
	Digest string
	// Resolves reports whether the runtime requests a module in a channel, and whether this request is resolved to the
	// given version. While a channel moves in stages, Sync calls Resolves to decide whether the catalog copy of the
	// runtime contains the new version. If the field Resolves is nil, the runtime requests no modules.
	Resolves func(module, channel, version string) bool
}

// NotServedError means that the CRD of a kind was created only recently, and that the runtime does not serve the kind
// yet.
type NotServedError struct {
	// The field What completes the text of the error, which begins with "waiting for".
	What string
}

func (e *NotServedError) Error() string { return "waiting for " + e.What }

// Sync updates the catalog copy in the runtime, and subscribes to changes of the catalog copy. If nothing has changed,
// Sync makes no request. Sync returns the digest of the catalog copy that the runtime has now. The caller writes the
// digest to the status of the Kyma in the runtime together with the next change of this status.
func (c *Copies) Sync(ctx context.Context, t Target) (digest string, err error) {
	recorded := t.Digest
	t.Digest = c.deliveredDigest(t)
	key, want, err := c.contentsFor(ctx, t.Kyma, func(m move) bool {
		return t.Resolves != nil && t.Resolves(m.module, m.channel, m.target)
	})
	if err != nil {
		return "", err
	}
	suspects, all := c.takeSuspectsAndSetKey(t, key)
	var outdated []objectKey // known without a list
	if !all && t.Digest != want.digest {
		outdated, all = c.findOutdated(t, want)
	}
	sent := &apply.Progress{}
	if err := c.update(ctx, t, want, sent, suspects, outdated, all); err != nil {
		// The record does not have which outdated objects were sent, so the next Sync lists the objects in the runtime.
		c.restoreSuspects(t, suspects, all || len(outdated) > 0)
		if loop.Reason(err) == apply.KindUnknown {
			c.ResendBaseAtNextSync(t) // the next reconcile creates the CRD again
		}
		return "", err
	}
	replay := false
	c.editRecord(t, func(r *record) {
		if r.digest != want.digest || len(suspects) > 0 || all {
			r.versions = r.versionsOf(want.hashes, sent)
		}
		r.digest, r.has, r.recorded = want.digest, want.hashes, recorded
		if all || len(outdated) > 0 {
			r.comparedAt = t.Now
		}
		replay = r.comparedAt.IsZero()
	})
	c.subscribe(t.Kyma.Name, replay)
	return want.digest, nil
}

// deliveredDigest returns the digest of the catalog copy that the runtime has. deliveredDigest returns the digest in
// memory if the status of the Kyma in the runtime still has the digest that it had when the catalog copy was delivered.
// Otherwise another process may have changed the catalog copy, so the digest in the status counts. If this process ends
// before the status is written, the next process sends the catalog copy again. The caller must not defer the status for
// long: if the catalog changes back in the meantime, the next process does not notice that the runtime has another
// copy.
func (c *Copies) deliveredDigest(t Target) (digest string) {
	c.editRecord(t, func(r *record) {
		digest = t.Digest
		if r.digest != "" && t.Digest == r.recorded {
			digest = r.digest
		}
	})
	return digest
}

// Forget drops the record of a runtime when its Kyma is deleted.
func (c *Copies) Forget(kyma string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.records, kyma)
}

// editRecord calls f with the record in memory about a runtime, under the lock. If this record belongs to another
// connection to the runtime, f gets a new, empty record instead.
func (c *Copies) editRecord(t Target, f func(*record)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[t.Kyma.Name]
	if r == nil || r.runtime != t.Runtime {
		r = &record{runtime: t.Runtime, auditedAt: time.Now(), baseSent: &apply.Progress{}}
		c.records[t.Kyma.Name] = r
	}
	f(r)
}

// takeSuspectsAndSetKey returns the suspects that were recorded since the last call: objects that may differ from the
// catalog copy. compareAll is true if every object of the catalog copy has to be compared.
func (c *Copies) takeSuspectsAndSetKey(t Target, key contentsKey) (suspects map[objectKey]bool, compareAll bool) {
	c.editRecord(t, func(r *record) {
		suspects, compareAll = r.suspects, r.compareAll
		r.suspects, r.compareAll, r.key = nil, false, key
	})
	if suspects == nil {
		suspects = map[objectKey]bool{}
	}
	return suspects, compareAll
}

// restoreSuspects records the results of takeSuspectsAndSetKey again, because the suspects could not be corrected.
func (c *Copies) restoreSuspects(t Target, suspects map[objectKey]bool, compareAll bool) {
	c.editRecord(t, func(r *record) {
		r.digest, r.has, r.compareAll = "", nil, r.compareAll || compareAll
		for key := range suspects {
			r.suspect(key)
		}
	})
}

// maxSuspects is the maximum number of suspects of one runtime. The admin of the runtime may report changes of any
// number of objects, and the next Sync reads each suspect. A catalog copy has two objects for each module and one for
// each additional version: about 500 objects for the 250 modules that a Kyma may have.
const maxSuspects = 1000

// suspect records that an object may differ from the catalog copy. If there are too many suspects, suspect drops them
// instead, and the next Sync lists all objects and compares each object of the catalog copy field by field.
func (r *record) suspect(key objectKey) {
	if !r.suspects[key] && len(r.suspects) >= maxSuspects {
		r.suspects, r.compareAll, r.auditedAt = nil, true, time.Time{}
		return
	}
	if r.suspects == nil {
		r.suspects = map[objectKey]bool{}
	}
	r.suspects[key] = true
}

// version returns the resource version of an object as this process has written it, or 0 if it has not.
func (r *record) version(key objectKey) uint64 {
	if i := r.has.index(key); i >= 0 && i < len(r.versions) {
		return r.versions[i]
	}
	return 0
}

// versionsOf returns the resource versions of the objects of a catalog copy. The parameter sent has the objects that
// were just sent; the versions of the others are those in the record.
func (r *record) versionsOf(hashes hashSet, sent *apply.Progress) []uint64 {
	versions := make([]uint64, len(hashes))
	for i, h := range hashes {
		versions[i] = cmp.Or(sent.Version(h.ref()), r.version(h.objectKey))
	}
	return versions
}

// findOutdated compares the catalog copy that the runtime has with the desired one in the parameter "want", and returns
// the keys of the objects that differ. If findOutdated does not know which objects the runtime has, the second result,
// unknown, is true, and the objects in the runtime have to be listed. The objects in the runtime are known if this
// process has sent or compared the former catalog copy, or if it has just created the CRDs.
func (c *Copies) findOutdated(t Target, want *contents) (keys []objectKey, unknown bool) {
	var has hashSet
	c.editRecord(t, func(r *record) {
		if r.digest == t.Digest { // otherwise another process has changed the catalog copy
			has = r.has
		}
	})
	if has == nil {
		return nil, true
	}
	for _, h := range want.hashes {
		if has.of(h.objectKey) != h.hash {
			keys = append(keys, h.objectKey)
		}
	}
	for _, h := range has {
		if want.hashes.of(h.objectKey) == "" {
			keys = append(keys, h.objectKey)
		}
	}
	return keys, false
}

// update sends the objects that differ from the catalog copy, and deletes the objects that are no longer in the catalog
// copy. If the parameter "all" is true, update compares all objects. If "all" is false, update handles only the objects
// in suspects and outdated. suspects are objects that another client may have changed, so update reads each suspect and
// removes fields that other clients have added. outdated are objects whose content differs in the new catalog copy, so
// update only applies or deletes them. update adds the objects that an audit has found to suspects, and records the
// objects that it has applied in sent.
func (c *Copies) update(ctx context.Context, t Target, want *contents, sent *apply.Progress,
	suspects map[objectKey]bool, outdated []objectKey, all bool) error {
	if err := c.addDriftedIfAuditDue(ctx, t, want, suspects); err != nil {
		return err
	}
	toSend, extra := maps.Clone(suspects), map[objectKey]bool{}
	for key := range suspects {
		if want.hashes.of(key) == "" {
			extra[key] = true
		} else if err := c.removeAddedFields(ctx, t, want, key); err != nil {
			return err
		}
	}
	for _, key := range outdated {
		if want.hashes.of(key) == "" {
			extra[key] = true
		} else {
			toSend[key] = true
		}
	}
	if all {
		if err := c.addListedDifferences(ctx, t, want, toSend, extra); err != nil {
			return err
		}
	}
	err := c.send(ctx, t, want, sent, toSend)
	if deleteErr := c.deleteExtra(ctx, t, extra); deleteErr != nil {
		if _, waits := errors.AsType[*NotServedError](err); waits {
			return deleteErr
		}
		return errors.Join(err, deleteErr)
	}
	return err
}

// addDriftedIfAuditDue compares all objects of the catalog copy in the runtime field by field with the desired ones,
// and adds those that differ to the set addTo. If the runtime is not watched, addDriftedIfAuditDue makes this
// comparison once per AuditInterval. If the runtime is watched, addDriftedIfAuditDue makes this comparison only when
// events may have been missed.
func (c *Copies) addDriftedIfAuditDue(ctx context.Context, t Target, want *contents, addTo map[objectKey]bool) error {
	if !c.isAuditDue(t) {
		return nil
	}
	drifted, err := t.Runtime.FindDrift(ctx, setOf(want.objects), &apply.Progress{})
	if err != nil {
		return fmt.Errorf("comparing the catalog of runtime %s: %w", t.Kyma.Name, err)
	}
	for _, d := range drifted {
		addTo[objectKey{d.Ref.Kind, d.Ref.Name}] = true
	}
	c.editRecord(t, func(r *record) { r.auditedAt = time.Now() })
	return nil
}

// isAuditDue reports whether all objects in the runtime have to be compared with the catalog copy field by field.
func (c *Copies) isAuditDue(t Target) bool {
	var auditedAt time.Time
	c.editRecord(t, func(r *record) { auditedAt = r.auditedAt })
	if c.options.Runtimes.IsWatched(t.Kyma.Name) && !auditedAt.IsZero() {
		return false
	}
	return time.Since(auditedAt) >= c.options.AuditInterval*7/8
}

// addListedDifferences lists the catalog objects in the runtime. addListedDifferences adds the objects that differ to
// the set addTo, and the objects that may have to be deleted to the set addExtra.
func (c *Copies) addListedDifferences(ctx context.Context, t Target, want *contents, addTo,
	addExtra map[objectKey]bool) error {
	found := map[objectKey]string{}
	for _, gvk := range kinds {
		listed, err := t.Runtime.List(ctx, gvk, v1beta2.RuntimeNamespace)
		if loop.Reason(err) == apply.KindUnknown && c.isBaseSentRecently(t) {
			return &NotServedError{What: "the runtime to serve the kind " + gvk.Kind}
		}
		if err != nil {
			return fmt.Errorf("reading the catalog of runtime %s: %w", t.Kyma.Name, err)
		}
		for _, o := range listed {
			key := objectKey{gvk.Kind, o.Name}
			hash := o.Labels[v1beta2.LabelCatalogHash]
			switch {
			case want.hashes.of(key) != "" && o.DeletionTime.IsZero():
				found[key] = hash
			case want.hashes.of(key) == "" && (hash != "" || o.Labels[v1beta2.LabelManagedBy] == v1beta2.ManagedByKyma):
				addExtra[key] = true
			}
		}
	}
	for _, h := range want.hashes {
		if found[h.objectKey] != h.hash {
			addTo[h.objectKey] = true
		}
	}
	return nil
}

// removeAddedFields removes the fields that other field managers have added to the spec of an object. It would not be
// sufficient to apply the object again, because server-side apply keeps the fields of other field managers.
func (c *Copies) removeAddedFields(ctx context.Context, t Target, want *contents, key objectKey) error {
	is, err := t.Runtime.Get(ctx, key.ref())
	if IsAbsent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the catalog of runtime %s: %w", t.Kyma.Name, err)
	}
	desired := &unstructured.Unstructured{}
	if err := desired.UnmarshalJSON(want.objects[want.hashes.index(key)].AppendJSON(nil, v1beta2.RuntimeNamespace,
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

// specPatch returns the merge patch that changes the spec of an object to the desired spec, or nil if the specs are
// equal.
func specPatch(is, desired *unstructured.Unstructured) ([]byte, error) {
	patch, err := loop.MergePatch("spec", is.Object["spec"], desired.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("comparing %s: %w", desired.GetName(), err)
	}
	return patch, nil
}

// send applies those objects of the desired catalog copy whose keys are in the given set, and records them in sent. If
// the runtime refuses an object, the remaining objects are still sent.
func (c *Copies) send(ctx context.Context, t Target, want *contents, sent *apply.Progress,
	which map[objectKey]bool) error {
	objects := slices.DeleteFunc(slices.Clone(want.objects),
		func(o *render.Object) bool { return !which[objectKey{o.GVK.Kind, o.Name}] })
	if len(objects) == 0 {
		return nil
	}
	result, err := t.Runtime.Apply(ctx, setOf(objects), sent)
	metrics.CatalogWrites.Add(float64(len(result.Applied)))
	for _, ref := range result.TakenOver {
		log.FromContext(ctx).Info("undid a change of the catalog", "object", ref.String())
	}
	if err == nil && len(result.Failed) > 0 {
		if e := result.Failed[0]; e.Reason() == apply.KindUnknown && c.isBaseSentRecently(t) {
			return &NotServedError{What: "the runtime to serve the kind " + e.Ref.Kind}
		}
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

// deleteExtra deletes those of the given objects that this package has created. deleteExtra does not delete objects of
// users, whatever labels they have. If the object in the runtime is not the version that this process has written last,
// deleteExtra reads it first.
func (c *Copies) deleteExtra(ctx context.Context, t Target, which map[objectKey]bool) error {
	order := func(a, b objectKey) int { return strings.Compare(a.kind+a.name, b.kind+b.name) }
	var errs []error
	for _, key := range slices.SortedFunc(maps.Keys(which), order) {
		isDeleted, err := c.deleteIfOurs(ctx, t, key)
		if isDeleted {
			metrics.CatalogWrites.Inc()
		}
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("deleting from the catalog of runtime %s: %w", t.Kyma.Name, err))
		if class := apply.ClassOf(err); class == apply.Unreachable || class == apply.Unauthorized || ctx.Err() != nil {
			break // the runtime would not answer the other requests either
		}
	}
	return errors.Join(errs...)
}

// deleteIfOurs deletes one object unless a user has created it, and reports whether it has.
func (c *Copies) deleteIfOurs(ctx context.Context, t Target, key objectKey) (isDeleted bool, err error) {
	var version uint64
	c.editRecord(t, func(r *record) { version = r.version(key) })
	if version != 0 {
		err := t.Runtime.DeleteVersion(ctx, key.ref(), strconv.FormatUint(version, 10))
		if loop.Reason(err) != apply.ObjectConflict {
			return err == nil, err
		}
	}
	u, err := t.Runtime.Get(ctx, key.ref())
	if IsAbsent(err) || err == nil && !isManagedBy(u.GetManagedFields(), v1beta2.FieldOwnerCatalog) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = t.Runtime.DeleteVersion(ctx, key.ref(), u.GetResourceVersion())
	return err == nil, err
}

// kinds are the kinds of the catalog, in the order in which objects are sent.
var kinds = []schema.GroupVersionKind{
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleTemplate), v1beta2.GroupVersion.WithKind(
		v1beta2.KindModuleReleaseMeta),
}

// objectKey identifies one object of a catalog copy.
type objectKey struct{ kind, name string }

func (k objectKey) ref() apply.Ref {
	return apply.Ref{
		Group: v1beta2.GroupVersion.Group, Version: v1beta2.GroupVersion.Version, Kind: k.kind,
		Namespace: v1beta2.RuntimeNamespace, Name: k.name,
	}
}

// setOf returns the apply.Set for some objects of a catalog copy.
func setOf(objects []*render.Object) apply.Set {
	return apply.Set{Bundle: &render.Bundle{Objects: objects}, Owner: v1beta2.FieldOwnerCatalog,
		Namespace: v1beta2.RuntimeNamespace}
}

// IsAbsent reports whether the error of a request to a runtime means that the object, its namespace or its kind does
// not exist in the runtime.
func IsAbsent(err error) bool {
	switch loop.Reason(err) {
	case apply.ObjectNotFound, apply.NamespaceNotFound, apply.KindUnknown:
		return true
	}
	return false
}
