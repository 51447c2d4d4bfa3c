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

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// send applies one object. It returns an error only for the sake of each: results are recorded here.
func (a *applyCall) applyObject(ctx context.Context, it *item) error {
	known := a.done.beginWrite(it.ref)
	var (
		w   writeResult
		err error
	)
	switch {
	case it.policy.createOnly:
		w, err = a.createOnly(ctx, it)
	case len(it.policy.ignore) > 0:
		w, err = a.applyExceptIgnored(ctx, it, known)
	default:
		w, err = a.applyWithTakeover(ctx, it)
	}
	switch {
	case err != nil:
		a.done.writeFailed(it.ref)
		return a.handleFailure(ctx, it, err)
	case w.DeletionTimestamp != nil:
		a.done.writeFailed(it.ref)
		return a.recordTerminating(ctx, it, &w.metadata)
	case !a.done.recordApplied(it.ref, it.content, &w.metadata, it.ownedFieldsHash(&w.metadata, a.set.owner()), w.created):
		a.recordWaiting(it, Waiting{Ref: it.ref, Reason: ChangedMeanwhile, Message: "was changed by somebody else right after it was applied"})
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.unchanged {
		a.result.Unchanged = append(a.result.Unchanged, it.ref)
		return nil
	}
	a.result.Applied = append(a.result.Applied, it.ref)
	if len(w.taken) > 0 {
		a.result.TakenOver = append(a.result.TakenOver, Takeover{Ref: it.ref, Fields: w.taken, Managers: w.from})
	}
	return nil
}

// written is what the API server has after an object was sent.
type writeResult struct {
	metadata
	created   bool
	unchanged bool     // it was there, and nothing was written
	taken     []string // fields taken from others
	from      []string // their managers
}

// put makes the object what the bundle says. The first PATCH is without force, which costs nothing while nobody else has a
// field of ours; if somebody has, the API server names fields and managers, and the second takes them.
func (a *applyCall) applyWithTakeover(ctx context.Context, it *item) (writeResult, error) {
	w, err := a.patch(ctx, it, a.encode(it), "")
	conflict, ok := conflictOf(err)
	if !ok {
		return w, err
	}
	w, err = a.patch(ctx, it, a.encode(it), "&force=true")
	w.taken, w.from = conflict.Fields, conflict.managers
	return w, err
}

// conflictOf returns the refusal of a PATCH because others have fields that it sets.
func conflictOf(err error) (*Error, bool) {
	e, ok := errors.AsType[*Error](err)
	return e, ok && e.reason == ObjectConflict && len(e.managers) > 0
}

// encode returns the object as it is sent.
func (a *applyCall) encode(it *item) *buffer {
	body := newBuffer()
	body.data = it.object.AppendJSON(body.data, it.namespace(), a.set.Overlay)
	return body
}

// patch sends one PATCH of server-side apply and releases body.
func (a *applyCall) patch(ctx context.Context, it *item, body *buffer, force string) (writeResult, error) {
	r := request{method: http.MethodPatch, path: it.path(), query: a.query + force, accept: metadataType, contentType: applyType, body: body,
		operation: "applying", ref: it.ref}
	var (
		answer  partialObject
		created bool
	)
	err := a.do(ctx, &r, func(code int, body []byte) error {
		created = code == http.StatusCreated
		return json.Unmarshal(body, &answer)
	})
	return writeResult{metadata: answer.Metadata, created: created}, err
}

// path returns the URL path of the object.
func (i *item) path() string {
	return i.resource.path(i.ref.GVK().GroupVersion(), i.ref.Namespace, i.ref.Name)
}

// create sends the object so that it can only be created. The resourceVersion of an object that exists is never 1, so that the API
// server refuses the PATCH then. found says that the object is there.
func (a *applyCall) tryCreate(ctx context.Context, it *item) (w writeResult, found bool, err error) {
	body := a.encode(it)
	// An object begins with apiVersion and kind, so that the first place that looks like this is its metadata.
	body.data = bytes.Replace(body.data, []byte(`"metadata":{`), []byte(`"metadata":{"resourceVersion":"1",`), 1)
	w, err = a.patch(ctx, it, body, "")
	return w, reasonIs(err, ObjectConflict), err
}

// createOnly creates the object if it is missing and changes nothing if it is there: one request, or two.
func (a *applyCall) createOnly(ctx context.Context, it *item) (writeResult, error) {
	w, found, err := a.tryCreate(ctx, it)
	if !found {
		return w, err
	}
	r := request{method: http.MethodGet, path: it.path(), accept: metadataType, operation: "reading", ref: it.ref}
	var answer partialObject
	if err := a.do(ctx, &r, func(_ int, body []byte) error { return json.Unmarshal(body, &answer) }); err != nil {
		return writeResult{}, deletedMeanwhile(err, it)
	}
	return writeResult{metadata: answer.Metadata, unchanged: true}, nil
}

// gone says of an object that was there and is not any more that it is tried again.
func deletedMeanwhile(err error, it *item) error {
	if !reasonIs(err, ObjectNotFound) {
		return err
	}
	return &Error{Operation: "applying", Ref: it.ref, Message: "it was deleted at the same moment", reason: ObjectConflict}
}

// putAround makes the object what the bundle says, but for the fields that it leaves to others once it exists. Those are written when it
// is created: one request. When it exists, it is read first: what is ignored and still ours is sent as it is, since an API server
// deletes a field that its only owner no longer sends; what others have set is left out.
func (a *applyCall) applyExceptIgnored(ctx context.Context, it *item, known bool) (writeResult, error) {
	if !known {
		if w, found, err := a.tryCreate(ctx, it); !found {
			return w, err
		}
	}
	var (
		taken, from []string
		force       string
	)
	for try := 1; ; try++ {
		// To take fields from others must not take an ignored one that somebody sets at this moment: hence of what was read, or not at all.
		body, live, err := a.encodeWithIgnored(ctx, it, force != "")
		switch {
		case reasonIs(err, ObjectNotFound) && known:
			w, _, err := a.tryCreate(ctx, it)
			return w, err
		case err != nil:
			return writeResult{}, deletedMeanwhile(err, it)
		case live.DeletionTimestamp != nil:
			body.release()
			return writeResult{metadata: live}, nil
		}
		w, err := a.patch(ctx, it, body, force)
		conflict, ok := conflictOf(err)
		switch {
		case ok && force == "":
			taken, from, force = it.withoutIgnored(conflict.Fields), conflict.managers, "&force=true"
		case force != "" && reasonIs(err, ObjectConflict) && try < maxForceTries:
		default:
			w.taken, w.from = taken, from
			return w, err
		}
	}
}

// busy is how often an object that changes all the time (its status does, too) is read and written before that is told as a conflict.
const maxForceTries = 4

// enforced drops the fields that the object leaves to others.
func (i *item) withoutIgnored(fields []string) []string {
	return slices.DeleteFunc(fields, func(field string) bool {
		path, problem := parsePath(field)
		return problem == "" && slices.ContainsFunc(i.policy.ignore, func(p fieldPath) bool { return p.covers(path) })
	})
}

// readAround reads the object and returns what to send: the bundle's content with the ignored fields as they are, if they are ours, or without
// them. The UID, and if asked for the version, of what was read go with it: another object or version is refused.
func (a *applyCall) encodeWithIgnored(ctx context.Context, it *item, sameVersion bool) (*buffer, metadata, error) {
	var (
		live   map[string]any
		answer partialObject
		wanted any
		own    owned
	)
	r := request{method: http.MethodGet, path: it.path(), operation: "reading", ref: it.ref}
	err := a.do(ctx, &r, func(_ int, body []byte) error {
		return errors.Join(utiljson.Unmarshal(body, &live), json.Unmarshal(body, &answer))
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
	if fields := m.fieldsOwnedBy(a.set.owner()); fields != nil {
		if err := json.Unmarshal(fields, &own); err != nil {
			return nil, metadata{}, fmt.Errorf("reading who owns which fields of %s: %w", it.ref, err)
		}
	}
	for _, path := range it.policy.ignore {
		wanted = path.keepOwnedLive(wanted, live, own)
	}
	if into, ok := (step{key: "metadata"}).childIn(wanted).(map[string]any); ok {
		into["uid"] = m.UID
		if sameVersion {
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

// fields identifies what the API server says that we own of the object, but for what the object leaves to others.
func (i *item) ownedFieldsHash(m *metadata, owner string) uint64 {
	raw := m.fieldsOwnedBy(owner)
	var own owned
	if len(i.policy.ignore) == 0 || json.Unmarshal(raw, &own) != nil {
		return hashBytes(raw)
	}
	var wanted any
	_ = utiljson.Unmarshal(i.object.AppendJSON(nil, "", render.Overlay{}), &wanted) // only to find list items by more than their keys
	for _, path := range i.policy.ignore {
		path.removeFromOwned(own, wanted)
	}
	return hashText(strings.Join(slices.Sorted(own.leaves("")), "\n"))
}

// fail records why an object could not be applied.
func (a *applyCall) handleFailure(ctx context.Context, it *item, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || concernsCluster(err) {
		return err
	}
	if e.reason == FieldImmutable && it.policy.recreate {
		return a.deleteToRecreate(ctx, it, e)
	}
	if e.reason == KindUnknown {
		if it.crd.Name != "" {
			a.done.setFresh(it.crd, true)
			a.recordWaiting(it, a.waitingForCRD(it))
			return nil
		}
		a.forgetKind(it.ref.GVK())
		e.Message = "the cluster does not serve " + it.ref.Kind + " in " + it.ref.GVK().GroupVersion().String()
	}
	a.recordFailure(it, e)
	return nil
}

// failed records a failure.
func (a *applyCall) recordFailure(it *item, e *Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.result.Failed = append(a.result.Failed, e)
	a.markUnavailableLocked(it.ref)
}

// refuse records an object whose policy cannot be read. It is not sent.
func (a *applyCall) recordInvalidPolicy(it *item) {
	a.recordFailure(it, &Error{Operation: "applying", Ref: it.ref, Message: it.problem, reason: ObjectRefused})
}

// recreate deletes an object of which a field cannot be changed, so that the next Apply creates it. It makes sure that it
// is ours, and the API server that it is the one that was looked at.
func (a *applyCall) deleteToRecreate(ctx context.Context, it *item, refusal *Error) error {
	if !canRecreate(it.ref) {
		refusal.Message += " (a " + it.ref.Kind + " is never deleted to be created again: others have objects that would go with it)"
		a.recordFailure(it, refusal)
		return nil
	}
	var answer partialObject
	look := request{method: http.MethodGet, path: it.path(), accept: metadataType, operation: "reading", ref: it.ref}
	err := a.do(ctx, &look, func(_ int, body []byte) error { return json.Unmarshal(body, &answer) })
	m := &answer.Metadata
	switch {
	case err == nil && m.DeletionTimestamp != nil:
		return a.recordTerminating(ctx, it, m)
	case err == nil && m.fieldsOwnedBy(a.set.owner()) == nil:
		refusal.Message += " (it is not deleted to be created again: it was not made by this module)"
		a.recordFailure(it, refusal)
		return nil
	case err == nil:
		err = a.deleteByUID(ctx, it, m.UID)
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case err != nil && (!ok || concernsCluster(err)):
		return err
	case err != nil && !isNotFound(err):
		a.recordFailure(it, e)
		return nil
	}
	a.recordWaiting(it, Waiting{Ref: it.ref, Reason: ObjectRecreated, Message: "was deleted to be created again: " + refusal.Message})
	return nil
}

// canRecreate says of namespaces and definitions no: objects of others would go with them.
func canRecreate(ref Ref) bool {
	return ref.groupKind() != namespaceKind && ref.groupKind() != crdKind
}

// deleteAs deletes the object with this UID and no other.
func (a *applyCall) deleteByUID(ctx context.Context, it *item, uid string) error {
	body := newBuffer()
	body.data = fmt.Appendf(body.data, `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","preconditions":{"uid":%q}}`, uid)
	r := request{method: http.MethodDelete, path: it.path(), accept: metadataType, contentType: jsonType, body: body, operation: "deleting", ref: it.ref}
	return a.do(ctx, &r, nil)
}

// waitForEnd records that an object is being deleted and has to go first. A namespace is asked what is left in it: that is the
// question of everybody who waits for one.
func (a *applyCall) recordTerminating(ctx context.Context, it *item, m *metadata) error {
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
