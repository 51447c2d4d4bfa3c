package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// applyObject applies one object and records the result. applyObject returns an error only if the error concerns the
// whole cluster.
func (a *applyCall) applyObject(ctx context.Context, it *item) (clusterError error) {
	before := a.done.beginWrite(it.ref)
	var (
		w   writeResult
		err error
	)
	switch {
	case a.set.Ownership != nil && !it.isKnownToBelongToInstallation(before):
		w, err = a.createOrApplyIfAllowed(ctx, it)
	case a.set.Ownership != nil && before.doubted && !it.policy.createOnly: // a create-only object is never overwritten
		w, err = a.readAndApply(ctx, it, before)
	default:
		w, err = a.writeAndFixUnservedManagedFields(ctx, it, &before)
	}
	switch {
	case err != nil:
		a.done.writeFailed(it.ref)
		return a.handleFailure(ctx, it, err)
	case w.DeletionTimestamp != nil:
		a.done.writeFailed(it.ref)
		return a.recordTerminating(ctx, it, &w.metadata)
	case !a.done.recordApplied(it.ref, it.content, &w.metadata, it.ownedFieldsHash(&w.metadata, a.set.fieldManager()),
		w.created):
		a.recordWaiting(it, Waiting{Ref: it.ref, Reason: ChangedMeanwhile,
			Message: "was changed by another client right after it was applied"})
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.unchanged {
		a.result.Unchanged = append(a.result.Unchanged, it.ref)
		return nil
	}
	a.result.Applied = append(a.result.Applied, it.ref)
	if w.ready {
		a.result.Ready = append(a.result.Ready, it.ref)
	}
	if w.created {
		a.result.Created = append(a.result.Created, it.ref)
	}
	if len(w.taken) > 0 {
		a.result.TakenOver = append(a.result.TakenOver, Takeover{Ref: it.ref, Fields: w.taken, Managers: w.from})
	}
	return nil
}

// writeAndFixUnservedManagedFields applies an object that belongs to the installation. If the managed fields of the
// object prevent this, because they name a version that the CRD no longer has, writeAndFixUnservedManagedFields removes
// their entries with this version and applies the object again. The parameter "before" is what Progress has recorded
// about the object, or nil if the object was read and may be changed.
func (a *applyCall) writeAndFixUnservedManagedFields(ctx context.Context, it *item, before *record) (
	writeResult, error) {
	for try := 0; ; try++ {
		w, err := a.writeByPolicy(ctx, it, before)
		version := unservedIn(err)
		if version == "" || try == maxUnservedVersions {
			return w, err
		}
		if err := a.removeUnservedManagedFields(ctx, it, version); err != nil {
			return writeResult{}, err
		}
	}
}

// writeByPolicy applies an object as the annotations of the object require.
func (a *applyCall) writeByPolicy(ctx context.Context, it *item, before *record) (writeResult, error) {
	switch {
	case it.policy.createOnly:
		return a.createOnly(ctx, it)
	case len(it.policy.ignore) > 0:
		return a.createOrApplyExceptIgnored(ctx, it, before)
	default:
		return a.applyThenForceOnConflict(ctx, it, before)
	}
}

// writeResult is what the API server returned for a write of an object.
type writeResult struct {
	metadata
	created   bool
	ready     bool     // the object is a workload and is ready
	unchanged bool     // the object existed, and nothing was written
	taken     []string // fields taken over from other field managers
	from      []string // the managers that owned the fields in taken
}

// applyThenForceOnConflict applies the object with all its fields, even if another field manager owns some of them with
// other values. The first PATCH does not force ownership; the API server accepts it if no other field manager owns
// fields of the object with other values. If there is a conflict, the API server returns the conflicting fields and
// their managers. After a conflict, a second PATCH with force takes over the conflicting fields. Between the two,
// applyThenForceOnConflict reads an object that only the inventory shows to be of the installation: another client may
// have deleted it and created it again. The API server has rejected the first PATCH as a whole, so the object is
// unchanged until then.
func (a *applyCall) applyThenForceOnConflict(ctx context.Context, it *item, before *record) (writeResult, error) {
	w, err := a.patch(ctx, it, a.encode(it), "")
	conflict, ok := fieldConflictOf(err)
	if !ok {
		return w, err
	}
	if a.set.Ownership != nil && before != nil {
		m, err := a.readMetadata(ctx, it)
		if err != nil {
			return writeResult{}, notFoundAsConflict(err, it)
		}
		if w, isDecided, err := a.applyIfOwnerIsUnknown(ctx, it, &m, *before); isDecided {
			return w, err
		}
	}
	w, err = a.patch(ctx, it, a.encode(it), "&force=true")
	w.taken, w.from = conflict.Fields, conflict.managers
	return w, err
}

// fieldConflictOf returns the error of a PATCH that conflicts with fields of other field managers.
func fieldConflictOf(err error) (conflict *Error, isConflict bool) {
	e, ok := errors.AsType[*Error](err)
	return e, ok && e.reason == ObjectConflict && len(e.managers) > 0
}

// encode returns the JSON of the object, as it is sent to the API server.
func (a *applyCall) encode(it *item) *buffer {
	body := newBuffer()
	body.data = it.object.AppendJSON(body.data, it.namespace(), it.overlay(a.set))
	return body
}

// patch sends one PATCH of server-side apply, and then releases the memory of body.
func (a *applyCall) patch(ctx context.Context, it *item, body *buffer, forceQuery string) (writeResult, error) {
	r := request{method: http.MethodPatch, path: it.urlPath(), query: a.query + forceQuery, accept: metadataType,
		contentType: applyType, body: body,
		operation: "applying", ref: it.ref}
	isWorkload := readinessKinds[it.ref.groupKind()] && it.ref.groupKind() != crdKind
	if isWorkload {
		r.accept = "" // the answer shows whether the workload is ready
	}
	var (
		answer partialObject
		w      writeResult
	)
	err := a.sendWithinConcurrencyLimit(ctx, &r, func(code int, body []byte) error {
		if err := answer.decode(body, it.ref); err != nil || !isWorkload {
			w.created = code == http.StatusCreated
			return err
		}
		content, err := decodeObject(body, it.ref)
		w.created = code == http.StatusCreated
		w.ready = err == nil && !w.created &&
			EvaluateReadiness(it.ref, &unstructured.Unstructured{Object: content}) == nil
		return err
	})
	w.metadata = answer.Metadata
	return w, err
}

// urlPath returns the URL path of the object.
func (i *item) urlPath() string {
	return i.resource.urlPath(i.ref.GVK().GroupVersion(), i.ref.Namespace, i.ref.Name)
}

// tryCreate sends a PATCH that can create the object but cannot change an existing object. The PATCH contains
// resourceVersion 1. No existing object has resourceVersion 1, so the API server rejects the PATCH with a conflict if
// the object exists, or because of the managed fields that only an existing object has; see unservedVersion. If the API
// server rejects the PATCH because the object exists, the second result is true.
func (a *applyCall) tryCreate(ctx context.Context, it *item) (w writeResult, alreadyExists bool, err error) {
	body := a.encode(it)
	// The JSON of an object begins with apiVersion, kind and metadata, so the first occurrence of "metadata":{ in the
	// JSON is the metadata of the object itself and not of a pod template.
	const start = `"metadata":{`
	if at := bytes.Index(body.data, []byte(start)); at >= 0 {
		body.data = slices.Insert(body.data, at+len(start), []byte(`"resourceVersion":"1",`)...)
	}
	w, err = a.patch(ctx, it, body, "")
	return w, reasonIs(err, ObjectConflict) || unservedIn(err) != "", err
}

// createOnly creates the object if it does not exist. If the object exists, createOnly changes nothing. createOnly
// sends one or two requests.
func (a *applyCall) createOnly(ctx context.Context, it *item) (writeResult, error) {
	w, found, err := a.tryCreate(ctx, it)
	if !found {
		return w, err
	}
	m, err := a.readMetadata(ctx, it)
	if err != nil {
		return writeResult{}, notFoundAsConflict(err, it)
	}
	return writeResult{metadata: m, unchanged: true}, nil
}

// readMetadata reads the metadata of the object.
func (a *applyCall) readMetadata(ctx context.Context, it *item) (metadata, error) {
	r := request{method: http.MethodGet, path: it.urlPath(), accept: metadataType, operation: "reading", ref: it.ref}
	var answer partialObject
	err := a.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error { return answer.decode(body, it.ref) })
	return answer.Metadata, err
}

// notFoundAsConflict converts an error "not found" to a conflict if the object existed shortly before. A conflict makes
// the caller retry.
func notFoundAsConflict(err error, it *item) error {
	if !reasonIs(err, ObjectNotFound) {
		return err
	}
	return &Error{Operation: "applying", Ref: it.ref, Message: "it was deleted at the same time",
		reason: ObjectConflict}
}

// createOrApplyExceptIgnored applies the object, but changes its ignored paths only at creation. Creation needs one
// request. An object that exists is read first. Ignored fields that our field manager still owns are sent with their
// live values, because the API server deletes a field whose only owner does not send the field any more. Ignored fields
// that other field managers own are not sent. An object that another client has created again is not changed, as in
// applyThenForceOnConflict.
func (a *applyCall) createOrApplyExceptIgnored(ctx context.Context, it *item, before *record) (writeResult, error) {
	isKnownToExist := before == nil || before.uid != 0
	if !isKnownToExist {
		if w, found, err := a.tryCreate(ctx, it); !found {
			return w, err
		}
	}
	var (
		taken, from []string
		force       string
	)
	for try := 1; ; try++ {
		// A PATCH with force must not take over a field in AnnotationIgnorePaths that another client sets at the same
		// time. To prevent such a takeover, a PATCH with force contains the resourceVersion of the object that was
		// read.
		body, live, err := a.readAndEncodeKeepingIgnored(ctx, it, force != "")
		switch {
		case reasonIs(err, ObjectNotFound) && isKnownToExist:
			w, _, err := a.tryCreate(ctx, it)
			return w, err
		case err != nil:
			return writeResult{}, notFoundAsConflict(err, it)
		case live.DeletionTimestamp != nil:
			body.release()
			return writeResult{metadata: live}, nil
		}
		if a.set.Ownership != nil && before != nil {
			if w, isDecided, err := a.applyIfOwnerIsUnknown(ctx, it, &live, *before); isDecided {
				body.release()
				return w, err
			}
		}
		w, err := a.patch(ctx, it, body, force)
		conflict, ok := fieldConflictOf(err)
		switch {
		case ok && force == "":
			taken, from, force = it.removeIgnored(conflict.Fields), conflict.managers, "&force=true"
		case force != "" && reasonIs(err, ObjectConflict) && try < maxForceTries:
		default:
			w.taken, w.from = taken, from
			return w, err
		}
	}
}

// maxForceTries is the maximum number of attempts to read and write an object that other clients change again and again
// (also in its status). After the last attempt, the conflict is returned.
const maxForceTries = 4

// removeIgnored returns fields without the fields at ignored paths.
func (i *item) removeIgnored(fields []string) []string {
	return slices.DeleteFunc(fields, func(field string) bool {
		path, problem := parsePath(field)
		return problem == "" && slices.ContainsFunc(i.policy.ignore, func(p fieldPath) bool { return p.covers(path) })
	})
}

// readAndEncodeKeepingIgnored returns the body of the PATCH for an object with ignored fields (AnnotationIgnorePaths).
// readAndEncodeKeepingIgnored first reads the live object for the values of the ignored fields. The body of the PATCH
// contains the content of the object in the bundle, changed so that the PATCH does not change an ignored field. If our
// field manager owns an ignored field, the body contains the field with its live value. An ignored field that our field
// manager does not own is not in the body. The body contains the UID of the live object, so the API server rejects the
// PATCH if the object was deleted and created again. If the parameter pinsResourceVersion is true, the body also
// contains the resourceVersion, so the API server rejects the PATCH if the object has changed.
func (a *applyCall) readAndEncodeKeepingIgnored(ctx context.Context, it *item, pinsResourceVersion bool) (
	*buffer, metadata, error) {
	var (
		live   map[string]any
		answer partialObject
		wanted any
		own    owned
	)
	r := request{method: http.MethodGet, path: it.urlPath(), operation: "reading", ref: it.ref}
	err := a.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
		return errors.Join(utiljson.Unmarshal(body, &live), answer.decode(body, it.ref))
	})
	if err != nil {
		return nil, metadata{}, err
	}
	m := &answer.Metadata
	full := a.encode(it)
	defer full.release()
	if err := utiljson.Unmarshal(full.data, &wanted); err != nil {
		return nil, metadata{}, fmt.Errorf("reading %s of the module: %w", it.ref, err)
	}
	if fields := m.fieldsOwnedBy(a.set.fieldManager()); fields != nil {
		if err := json.Unmarshal(fields, &own); err != nil {
			return nil, metadata{}, fmt.Errorf("reading the managed fields of %s: %w", it.ref, err)
		}
	}
	for _, path := range it.policy.ignore {
		wanted = path.copyOwnedLiveOrRemove(wanted, live, own)
	}
	if into, ok := (step{key: "metadata"}).childIn(wanted).(map[string]any); ok {
		into["uid"] = m.UID
		if pinsResourceVersion {
			into["resourceVersion"] = m.ResourceVersion
		}
	}
	data, err := json.Marshal(wanted)
	if err != nil {
		return nil, metadata{}, fmt.Errorf("encoding %s: %w", it.ref, err)
	}
	body := newBuffer()
	body.data = append(body.data, data...)
	return body, *m, nil
}

// ownedFieldsHash returns a hash of the fields of the object that the API server records as owned by our field manager.
// The hash does not depend on fields at the paths in AnnotationIgnorePaths.
func (i *item) ownedFieldsHash(m *metadata, fieldManager string) uint64 {
	raw := m.fieldsOwnedBy(fieldManager)
	var own owned
	if len(i.policy.ignore) == 0 || json.Unmarshal(raw, &own) != nil {
		return hashBytes(raw)
	}
	var wanted any
	// A path in AnnotationIgnorePaths may select a list item by a field of the item that is not a key of the list. Such
	// an item can be found only in the decoded object, because the managed fields contain only the keys of an item.
	_ = utiljson.Unmarshal(i.object.AppendJSON(nil, "", render.Overlay{}), &wanted)
	for _, path := range i.policy.ignore {
		path.removeFromOwned(own, wanted)
	}
	return hashText(strings.Join(slices.Sorted(own.leaves("")), "\n"))
}

// handleFailure records the reason why an object could not be applied. If an annotation of the object allows
// recreation, handleFailure deletes the object, so that the next Apply creates the object again.
func (a *applyCall) handleFailure(ctx context.Context, it *item, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || concernsCluster(err) {
		return err
	}
	if e.reason == StoredVersionDropped && it.adopted {
		e.Message = strings.Replace(e.Message, "the module has dropped version", "the module's CRD has no version", 1) +
			"; the CRD existed before the module"
	}
	if e.reason == FieldImmutable && it.policy.recreate {
		return a.deleteToRecreate(ctx, it, e)
	}
	if e.reason == KindUnknown {
		if it.crd.Name != "" {
			a.done.setMaybeUnserved(it.crd, true)
			a.recordWaiting(it, a.waitingForCRD(it))
			return nil
		}
		a.forgetKind(it.ref.GVK())
		e.Message = "the cluster does not serve " + it.ref.Kind + " in " + it.ref.GVK().GroupVersion().String()
	}
	a.recordFailure(it, e)
	return nil
}

// recordFailure adds a failure of an object to the result. Objects that depend on the failed object have to wait.
func (a *applyCall) recordFailure(it *item, e *Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.result.Failed = append(a.result.Failed, e)
	if e.reason == OwnedByOtherModule {
		return // the object exists, so other objects can use it
	}
	a.markFailedOrWaitingLocked(it.ref)
	if e.reason == StoredVersionDropped &&
		(a.droppedVersion == (Ref{}) || compareRefs(it.ref, a.droppedVersion) < 0) {
		a.droppedVersion = it.ref
	}
}

// recordInvalidPolicy adds an object with invalid annotations to Result.Failed, with reason ObjectRefused. An object
// with invalid annotations is not sent.
func (a *applyCall) recordInvalidPolicy(it *item) {
	a.recordFailure(it, &Error{Operation: "applying", Ref: it.ref, Message: it.problem, reason: ObjectRefused})
}

// deleteToRecreate deletes an object with an immutable field, so that the next Apply creates it. deleteToRecreate reads
// the object first, and deletes it only if the installation has created it. If the field manager of the Set has not
// applied the object, or if the object belongs to another installation or existed before this installation,
// deleteToRecreate records the failure and deletes nothing. The DELETE contains the UID of the object, so an object
// that another client has created in the meantime is not deleted.
func (a *applyCall) deleteToRecreate(ctx context.Context, it *item, refusal *Error) (clusterError error) {
	if !canRecreate(it.ref) {
		refusal.Message += " (a " + it.ref.Kind +
			" is never deleted to be created again: objects of others would be deleted with it)"
		a.recordFailure(it, refusal)
		return nil
	}
	found, err := a.readMetadata(ctx, it)
	m := &found
	switch {
	case err == nil && m.DeletionTimestamp != nil:
		return a.recordTerminating(ctx, it, m)
	case err == nil && (m.fieldsOwnedBy(a.set.fieldManager()) == nil ||
		a.set.Ownership != nil && a.set.Ownership.belongsToOther(m)):
		refusal.Message += " (it is not deleted to be created again: it was not created by this module)"
		a.recordFailure(it, refusal)
		return nil
	case err == nil && (it.adopted || m.Annotations.Adopted == "true"):
		// An adopted object has fields of the field manager, too, but its content may be data of a user.
		refusal.Message += " (it is not deleted to be created again: it existed before this module)"
		refusal.advice = "leave these fields as they were, or delete the object if nobody needs its content: then " +
			"the module creates it"
		a.recordFailure(it, refusal)
		return nil
	case err == nil:
		err = a.deleteByUID(ctx, it, m.UID)
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case err != nil && (!ok || concernsCluster(err)):
		return err
	case err != nil && !isNotFoundOrUnserved(err):
		a.recordFailure(it, e)
		return nil
	}
	a.recordWaiting(it, Waiting{Ref: it.ref, Reason: ObjectRecreated,
		Message: "was deleted to be created again: " + refusal.Message})
	return nil
}

// canRecreate reports whether an object may be deleted and created again. canRecreate returns false for a namespace and
// for a CRD, because its deletion would delete other objects, too.
func canRecreate(ref Ref) bool {
	return ref.groupKind() != namespaceKind && ref.groupKind() != crdKind
}

// deleteByUID deletes the object only if it has the given UID.
func (a *applyCall) deleteByUID(ctx context.Context, it *item, uid string) error {
	r := request{method: http.MethodDelete, path: it.urlPath(), accept: metadataType, contentType: jsonType,
		body: deletionOptions(preconditions{UID: uid}), operation: "deleting", ref: it.ref}
	return a.sendWithinConcurrencyLimit(ctx, &r, nil)
}

// recordTerminating records that an object is being deleted, so that Apply has to wait until the deletion has ended. If
// the object is a namespace, recordTerminating reads the namespace with its status, because the status lists the
// content that still has to be deleted.
func (a *applyCall) recordTerminating(ctx context.Context, it *item, m *metadata) (clusterError error) {
	message := deletionMessage(m)
	if it.role == roleNamespace {
		left, err := a.readRemaining(ctx, it.ref)
		if err != nil && concernsCluster(err) {
			return err
		}
		if left != nil && err == nil {
			message = left.Message
		}
	}
	a.recordWaiting(it, Waiting{Ref: it.ref, Reason: ObjectTerminating, Message: message})
	return nil
}
