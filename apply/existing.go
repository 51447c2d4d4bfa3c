package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// maxConcurrentChanges is the maximum number of attempts to change an object that other clients change at the same
// time. If this number of attempts has failed, Apply and DeleteOwned leave the object for their next call.
const maxConcurrentChanges = 4

// isKnownToBelongToInstallation reports whether the object is known to belong to the installation: because it was
// applied before, or because the inventory contains it. The parameter "before" is what Progress has recorded about the
// object. isKnownToBelongToInstallation returns false for an adopted or shared object until the inventory records the
// object as adopted or shared. While isKnownToBelongToInstallation returns false, Apply reads the object before each
// PATCH. Without reading the object first, Apply would send a PATCH without AnnotationAdopted, which would remove this
// annotation from an adopted object. An adopted object without AnnotationAdopted would be deleted with the module.
func (i *item) isKnownToBelongToInstallation(before record) bool {
	if before.unsure || before.guarded && i.recorded.Pending || before.adopted && !i.recorded.Adopted {
		return false
	}
	return before.uid != 0 || i.recorded.Name != "" && !i.recorded.Pending && !i.recorded.Shared
}

// mustReportExisting reports whether Apply has to report again that the object existed before, or that another
// installation contains it: the inventory does not record it, because the caller could not save what an earlier call of
// Apply has reported. The parameter "before" is what Progress has recorded about the object.
func (i *item) mustReportExisting(before record) bool {
	return before.guarded && i.recorded.Pending && !i.recorded.Adopted && !i.recorded.Shared
}

// createOrApplyIfAllowed creates the object with one PATCH. If the object exists, createOrApplyIfAllowed decides what
// to do with the object.
func (a *applyCall) createOrApplyIfAllowed(ctx context.Context, it *item) (writeResult, error) {
	adopted := it.adopted
	it.setAdopted(false) // a created object did not exist before
	w, found, err := a.tryCreate(ctx, it)
	if !found {
		if err == nil && adopted {
			a.recordExisting(it, MetOwn, &w.metadata)
		}
		return w, err
	}
	return a.applyExistingWithRetries(ctx, it)
}

// applyExistingWithRetries calls applyExistingIfAllowed again as long as other clients change the object at the same
// time, at most maxConcurrentChanges times.
func (a *applyCall) applyExistingWithRetries(ctx context.Context, it *item) (w writeResult, err error) {
	for range maxConcurrentChanges {
		var again bool
		if w, again, err = a.applyExistingIfAllowed(ctx, it); !again {
			return w, err
		}
	}
	return w, err
}

// readAndApply applies an object of the installation that another client may have created again; see Progress.Doubt.
func (a *applyCall) readAndApply(ctx context.Context, it *item, before record) (writeResult, error) {
	m, err := a.readMetadata(ctx, it)
	switch {
	case isNotFoundOrUnserved(err):
		return a.createOrApplyIfAllowed(ctx, it)
	case err != nil:
		return writeResult{}, err
	}
	if w, isDecided, err := a.applyIfOwnerIsUnknown(ctx, it, &m, before); isDecided {
		return w, err
	}
	return a.writeAndFixUnservedManagedFields(ctx, it, nil)
}

// applyIfOwnerIsUnknown decides about an object of the inventory that was read. If somebody else may own the object, as
// FindDrift reports, applyIfOwnerIsUnknown applies it like an object that existed before the installation, and
// isDecided is true. isDecided is also true if the object is being deleted. Otherwise, isDecided is false: the object
// belongs to the installation, and the caller may overwrite it. m is the metadata that was read.
func (a *applyCall) applyIfOwnerIsUnknown(ctx context.Context, it *item, m *metadata, before record) (
	w writeResult, isDecided bool, err error) {
	own := a.set.Ownership
	switch {
	case m.DeletionTimestamp != nil:
		return writeResult{metadata: *m}, true, nil
	case own.belongsToOther(m), own.isUnknown(m, a.set.fieldManager(), it.recorded, before):
		w, err = a.applyExistingWithRetries(ctx, it)
		return w, true, err
	}
	return writeResult{}, false, nil
}

// applyExistingIfAllowed reads an existing object, and applies it if the installation may change it. The result "again"
// is true if the caller has to call applyExistingIfAllowed once more, because another client has changed the object at
// the same time.
func (a *applyCall) applyExistingIfAllowed(ctx context.Context, it *item) (w writeResult, again bool, err error) {
	m, err := a.readMetadata(ctx, it)
	if err != nil {
		return writeResult{}, false, notFoundAsConflict(err, it)
	}
	own := a.set.Ownership
	f := own.factsOf(&m, a.set.fieldManager(), it.recorded)
	f.policy = it.policy.adoption
	if f.policy == "" || own.IgnoreAdoptionOfObjects {
		f.policy = own.Adoption
	}
	met := decideApply(f)
	switch met {
	case metTerminating:
		return writeResult{metadata: m}, false, nil
	case metRefused:
		by := "somebody else"
		if managers := m.otherManagers(a.set.fieldManager()); len(managers) > 0 {
			by = strings.Join(managers, ", ")
		}
		refused := &Error{Operation: "applying", Ref: it.ref, reason: AdoptionRefused,
			Message: "it exists already and was made by " + by}
		if own.IgnoreAdoptionOfObjects {
			refused.advice = "rename the object in the module, or delete the existing object"
		}
		return writeResult{}, false, refused
	case MetShared:
		return a.addCoOwnerAndReportDifferences(ctx, it)
	case MetOwn:
		it.setAdopted(f.adopted && !it.policy.createOnly)
	case MetAdopted:
		it.setAdopted(!it.policy.createOnly)
	}
	if it.policy.createOnly {
		a.recordExisting(it, met, &m)
		m.existed = met == MetAdopted // the object has no annotation that says so
		return writeResult{metadata: m, unchanged: true}, false, nil
	}
	if w, err = a.writeAndFixUnservedManagedFields(ctx, it, nil); err == nil && w.DeletionTimestamp == nil {
		a.recordExisting(it, met, &m)
	}
	return w, false, err
}

// recordExisting records what Apply did with an object that existed before. m is the metadata of the object before the
// change.
func (a *applyCall) recordExisting(it *item, met Met, m *metadata) {
	ref := it.ref
	ref.Pending = it.recorded.Pending
	ref.Adopted = it.adopted || met == MetAdopted
	ref.Shared = met == MetShared
	a.mu.Lock()
	defer a.mu.Unlock()
	a.result.Existing = append(a.result.Existing, Existing{Ref: ref, Met: met,
		Managers: m.otherManagers(a.set.fieldManager())})
}

// addCoOwnerAndReportDifferences compares an object of another installation with the object that this installation
// would apply. If fields of the two objects differ, addCoOwnerAndReportDifferences returns an error with reason
// OwnedByOtherModule. Even if fields differ, addCoOwnerAndReportDifferences adds this installation to
// AnnotationCoOwners of the object, so that the object is handed over to this installation when its owner is removed.
func (a *applyCall) addCoOwnerAndReportDifferences(ctx context.Context, it *item) (
	w writeResult, again bool, err error) {
	m, live, err := a.readObject(ctx, it)
	own := a.set.Ownership
	switch {
	case err != nil:
		return writeResult{}, false, notFoundAsConflict(err, it)
	case m.DeletionTimestamp != nil || !own.belongsToOther(&m):
		return writeResult{metadata: m}, m.DeletionTimestamp == nil, nil
	}
	fields, _, err := it.fieldsDifferingFromSharedLive(a.set, &m, live)
	if err != nil {
		return writeResult{}, false, err
	}
	if claims := m.coOwners(own.Name); len(claims) == len(m.coOwners("")) {
		claims = append(claims, own.Name)
		slices.Sort(claims)
		r := it.versionedPatch(a.set.fieldManager(), &m, map[string]any{AnnotationCoOwners: strings.Join(claims, ",")},
			nil)
		m, err = a.patchMetadata(ctx, r)
		if err != nil {
			return writeResult{}, reasonIs(err, ObjectConflict), notFoundAsConflict(err, it)
		}
	}
	a.recordExisting(it, MetShared, &m)
	if len(fields) > 0 {
		a.done.markOwnershipUnknown(it.ref)
		return writeResult{}, false, own.conflictError(it.ref, m.Annotations.OwnedBy, fields)
	}
	m.foreign = true
	return writeResult{metadata: m, unchanged: true}, false, nil
}

// conflictError returns the error about an object that belongs to another installation and has other content.
func (o *Ownership) conflictError(ref Ref, owner string, fields []string) *Error {
	title, _ := o.titleOfOther(owner)
	return &Error{Operation: "applying", Ref: ref, reason: OwnedByOtherModule, Fields: fields,
		Message: clipMessage("it belongs to " + title + ", and " + o.Title + " has other values for " +
			strings.Join(fields, ", "))}
}

// readObject reads the whole object from the cluster.
func (c *Cluster) readObject(ctx context.Context, it *item) (m metadata, live map[string]any, err error) {
	r := request{method: http.MethodGet, path: it.urlPath(), operation: "reading", ref: it.ref}
	var answer partialObject
	err = c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
		return errors.Join(utiljson.Unmarshal(body, &live), answer.decode(body, it.ref))
	})
	return answer.Metadata, live, err
}

// compareShared compares an object of another installation with the desired object. If AnnotationCoOwners names this
// installation, and the live object has the desired content, there is no drift. In this case, compareShared records in
// Progress that the object belongs to another installation.
func (c *Cluster) compareShared(ctx context.Context, set Set, it *item, p *Progress) (*Drifted, error) {
	m, live, err := c.readObject(ctx, it)
	switch {
	case isNotFoundOrUnserved(err):
		return &Drifted{Ref: it.ref, Missing: true}, nil
	case err != nil:
		return nil, err
	}
	fields, allLost, err := it.fieldsDifferingFromSharedLive(set, &m, live)
	if err != nil {
		return nil, err
	}
	isCoOwner := it.recorded.Shared && slices.Contains(m.coOwners(""), set.Ownership.Name) &&
		set.Ownership.belongsToOther(&m)
	if len(fields) == 0 && isCoOwner {
		m.foreign = true
		p.recordNoDrift(it.ref, it.content, &m, it.ownedFieldsHash(&m, set.fieldManager()))
		return nil, nil
	}
	return &Drifted{Ref: it.ref, Fields: fields, Shared: true,
		OwnersTurn: isCoOwner && allLost && p.hasContent(it.ref, it.content)}, nil
}

// fieldsDifferingFromSharedLive returns the fields in which the object of another installation differs from the object
// that this installation would apply, at most ten, sorted. The labels and annotations that name the installation are
// not compared. For a create-only object, fieldsDifferingFromSharedLive returns no fields, because a create-only object
// is not changed after its creation. The result "allLost" is true if the field manager of the other installation owns
// none of the returned fields.
func (i *item) fieldsDifferingFromSharedLive(set Set, m *metadata, live map[string]any) (
	fields []string, allLost bool, err error) {
	if i.policy.createOnly {
		return nil, false, nil
	}
	var wanted map[string]any
	if err := utiljson.Unmarshal(i.object.AppendJSON(nil, i.namespace(), set.Overlay), &wanted); err != nil {
		return nil, false, fmt.Errorf("reading %s of the module: %w", i.ref, err)
	}
	ignore := slices.Concat(i.policy.ignore, installationMetadataPaths(set.Overlay))
	fields, allLost = classifyLostOrChanged(wanted, live, m.fieldsOwnedBy(set.fieldManager()), ignore, false)
	return fields, allLost, nil
}

// installationMetadataPaths returns the paths of the labels and annotations that name the installation.
// fieldsDifferingFromSharedLive does not compare the labels and annotations that installationMetadataPaths returns. An
// object may still have labels and annotations of a former owner, from whom the present owner has taken the object
// over. The labels and annotations of a former owner do not make an object count as different.
func installationMetadataPaths(over render.Overlay) []fieldPath {
	var paths []fieldPath
	add := func(field, key string) {
		paths = append(paths, fieldPath{{key: "metadata"}, {key: field}, {key: key}})
	}
	for key := range over.Labels {
		add("labels", key)
	}
	for key := range over.Annotations {
		add("annotations", key)
	}
	for _, key := range []string{AnnotationCoOwners, AnnotationAdopted} {
		add("annotations", key)
	}
	return paths
}

// versionedPatch returns a request with a merge patch of annotations and labels that contains the resourceVersion of m.
// The API server accepts the patch only if the object still has this resourceVersion. An annotation or label with the
// value nil is removed.
func (i *item) versionedPatch(manager string, m *metadata, annotations, labels map[string]any) *request {
	return metadataPatch(i.ref, i.resource, manager, m, map[string]any{"annotations": annotations, "labels": labels})
}

// metadataPatch returns a request with a merge patch that changes the metadata of an object. The patch contains the
// resourceVersion of m, so the API server rejects the patch if the object has changed since it was read.
func metadataPatch(ref Ref, res resource, manager string, m *metadata, change map[string]any) *request {
	change = maps.Clone(change)
	maps.DeleteFunc(change, func(_ string, v any) bool { values, ok := v.(map[string]any); return ok && values == nil })
	change["resourceVersion"] = m.ResourceVersion
	body := newBuffer()
	data, _ := json.Marshal(map[string]any{"metadata": change}) // maps of strings always encode
	body.data = append(body.data, data...)
	return &request{method: http.MethodPatch, path: res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name),
		query: "fieldManager=" + url.QueryEscape(manager), accept: metadataType,
		contentType: string(types.MergePatchType), body: body, operation: "changing", ref: ref}
}

// patchMetadata sends a patch of metadata, and returns the metadata of the object after the patch.
func (c *Cluster) patchMetadata(ctx context.Context, r *request) (metadata, error) {
	var answer partialObject
	err := c.sendWithinConcurrencyLimit(ctx, r, func(_ int, body []byte) error { return answer.decode(body, r.ref) })
	return answer.Metadata, err
}
