package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// DeletionProgress records for which objects Delete has sent a DELETE. With a DeletionProgress, Delete sends only one
// DELETE for each object, and later calls of Delete only read the object. Use one DeletionProgress for each deletion of
// an inventory. A DeletionProgress is kept only in memory; if it is lost in a restart, Delete sends one more DELETE for
// each object. The zero value is ready to use.
type DeletionProgress struct {
	mu sync.Mutex
	// deleted has an entry for each object for which a DELETE was sent; the value is true if the object is deleted. The
	// key is Ref.identity. The map is guarded by mu.
	deleted map[Ref]bool
	// left contains those objects that were left in the cluster and that each call of Delete reads again: objects that
	// belong to another installation, because that installation may have handed the object over since the last call,
	// and custom resources, because their CRD is kept for as long as they exist. The key is Ref.identity. The map is
	// guarded by mu.
	left map[Ref]bool
}

// recordLeft records that an object was left in the cluster and has to be read again. recordLeft returns false if this
// was recorded before.
func (d *DeletionProgress) recordLeft(r Ref) (isNew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left[r.identity()] {
		return false
	}
	if d.left == nil {
		d.left = map[Ref]bool{}
	}
	d.left[r.identity()] = true
	return true
}

// status returns whether a DELETE was sent for an object, and whether the object is deleted.
func (d *DeletionProgress) status(r Ref) (sent, deleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deleted, sent = d.deleted[r.identity()]
	return sent, deleted
}

func (d *DeletionProgress) recordSent(r Ref, isDeleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deleted == nil {
		d.deleted = map[Ref]bool{}
	}
	d.deleted[r.identity()] = isDeleted
}

// Forget removes objects from the DeletionProgress. Call Forget before the objects are applied again, or when they are
// found to exist. Without Forget, Delete would return an object as deleted that was created again after its deletion.
func (d *DeletionProgress) Forget(refs ...Ref) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range refs {
		delete(d.deleted, r.identity())
		delete(d.left, r.identity())
	}
}

func (d *DeletionProgress) isDeleted(r Ref) bool {
	_, deleted := d.status(r)
	return deleted
}

// Teardown is the result of one call of Delete or DeleteOwned.
type Teardown struct {
	// Deleted are the objects that do not exist in the cluster any more. The caller can remove the Refs in Deleted from
	// the inventory.
	Deleted []Ref
	// Kept are the objects that are never deleted: the namespaces in ClusterOptions.KeepNamespaces, objects with
	// Ref.Keep, and the namespaces and CRDs that objects with Ref.Keep need.
	Kept []Ref
	// Left are the objects that this call left in the cluster, because they do not belong only to the installation. The
	// caller can remove the Refs of these objects from the inventory, except the Refs of custom resources: as long as
	// such a custom resource is in the inventory, its CRD is kept. If the caller does not remove the Refs, later calls
	// with the same DeletionProgress return the objects in Deleted. The field Left is empty if DeleteOwned is called
	// without Ownership.
	Left []Left
	// Remaining are the objects that still exist. An entry of Remaining states what its object waits for.
	Remaining []Remaining
}

// Left is an object that DeleteOwned left in the cluster.
type Left struct {
	Ref Ref
	// Reason is the cause for which the object was left in the cluster: one of the constants from LeftReleased to
	// LeftToOthers below.
	Reason string
	// Message states why the object was left in the cluster.
	Message string
}

// The reasons why an object can be in Teardown.Left.
const (
	// LeftReleased: the object existed before the installation, so only the fields and annotations of the installation
	// were removed.
	LeftReleased = "ObjectReleased"
	// LeftHandedOver: another installation contains the object too, and DeleteOwned has made that installation the
	// owner of the object.
	LeftHandedOver = "ObjectHandedOver"
	// LeftToOwner: the object belongs to another installation.
	LeftToOwner = "ObjectLeftToOwner"
	// LeftToOthers: the object was left in the cluster, because another client has created it again.
	LeftToOthers = "ObjectLeftToOthers"
)

// Done reports whether every object that can be deleted is deleted.
func (t *Teardown) Done() bool { return len(t.Remaining) == 0 }

// Remaining is an object that has not been deleted yet.
type Remaining struct {
	Ref Ref
	// Since is the time when the deletion of the object began. Since is zero if the deletion has not begun.
	Since time.Time
	// Finalizers are the finalizers that the object still has, sorted.
	Finalizers []string
	// Message states what the object waits for: its finalizers, the remaining content of a namespace, the custom
	// resources of a CRD, the previous phase, or an error.
	Message string
	// Err is the error of the request for this object. Err is nil if the request succeeded.
	Err *Error
	// Content is true for a namespace that DeleteOwned keeps because the namespace contains objects that do not belong
	// to the installation, and for a CRD that DeleteOwned keeps because custom resources of it were left in the
	// cluster.
	Content bool
}

// Delete deletes the objects of an inventory in the six phases of the list below.
//
//  1. custom resources (all kinds that are not built in), while their operator still runs
//  2. webhooks and API services
//  3. workloads and services
//  4. configuration and access rights
//  5. CRDs
//  6. namespaces
//
// Delete starts a phase when all objects of the previous phase are deleted. Delete sends one DELETE with background
// propagation for each object, and records the object in the DeletionProgress. Later calls send no DELETE for a
// recorded object; they only read the objects that still existed at the previous call. If no object has finalizers, one
// call of Delete deletes all objects.
//
// Delete does not wait until the objects are deleted. Call Delete again later until the returned Teardown has no
// Remaining objects. Every object of refs is in exactly one list of Teardown. If the cluster does not serve the kind of
// an object in any version, the object is considered deleted.
//
// Objects with Ref.Keep are not deleted. If an object with Ref.Keep is in a namespace, or is a custom resource of a
// CustomResourceDefinition, Delete also keeps that namespace or CustomResourceDefinition. Delete sends no request to
// find out whether an object has to be kept: Ref.Keep was set from the annotation in the bundle, and Delete does not
// read the annotation of the live object. The Refs of kept objects have to stay in the inventory for as long as the
// inventory exists.
//
// Delete returns an error only if the whole cluster cannot be used now, for example because the cluster is unreachable.
// Together with an error, Teardown.Remaining contains all objects that are not known to be deleted.
func (c *Cluster) Delete(ctx context.Context, refs []Ref, progress *DeletionProgress) (Teardown, error) {
	return c.DeleteOwned(ctx, refs, progress, nil)
}

// DeleteOwned is like Delete, but considers which installation each object belongs to. DeleteOwned deletes only objects
// that the installation has created and that no other installation contains: see decideDelete. Objects that DeleteOwned
// does not delete stay in the cluster and are in Teardown.Left. A namespace is not deleted while it contains objects
// that do not belong to the installation: objects that are not in refs, and objects that were left in the cluster. A
// CRD is not deleted while a custom resource of it exists that is in refs and was left in the cluster.
//
// If nobody is known to have changed an object since it was applied, DeleteOwned sends only a DELETE for the object.
// The DELETE contains the last known resourceVersion of the object, so the API server rejects the DELETE if somebody
// has changed the object without being noticed. If an object may have changed since it was applied, DeleteOwned reads
// the object before it sends the DELETE. Before the deletion of a namespace, DeleteOwned also sends one list request
// for each namespaced kind. If an object belongs to another installation, each call of DeleteOwned reads the object
// again, because that installation may have handed the object over since the last call.
func (c *Cluster) DeleteOwned(ctx context.Context, refs []Ref, progress *DeletionProgress,
	own *Ownership) (Teardown, error) {
	if progress == nil {
		progress = new(DeletionProgress)
	}
	var (
		result        Teardown
		blockingPhase string // the name of the phase that has to be completed first
	)
	d := deleteCall{Cluster: c, progress: progress, own: own}
	failed := d.markKeptWithNamespacesAndCRDs(ctx, refs)
	for _, phase := range deletePhases {
		var members []Ref
		for _, r := range refs {
			if slices.Contains(phase.roles, roleOf(r.groupKind())) {
				members = append(members, r)
			}
		}
		if blockingPhase != "" || failed != nil {
			message := "waits until all " + blockingPhase + " are deleted"
			if failed != nil {
				message = "waits until the cluster can be reached"
			}
			for _, r := range members {
				d.addUntouched(&result, r, message)
			}
			continue
		}
		before := len(result.Remaining)
		failed = d.deletePhase(ctx, members, &result)
		if len(result.Remaining) > before {
			blockingPhase = phase.name
		}
	}
	return result, failed
}

// deleteCall is the state of one call of Delete.
type deleteCall struct {
	*Cluster
	progress *DeletionProgress
	own      *Ownership   // nil: every object is deleted
	kept     map[Ref]bool // by Ref.identity

	mu sync.Mutex
	// instances are the custom resources that were left in the cluster, by the name of their CRD. The map is guarded by
	// mu.
	instances map[string][]string
}

// recordLeftInstance records that a custom resource of a CRD was left in the cluster.
func (d *deleteCall) recordLeftInstance(crd string, ref Ref) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.instances == nil {
		d.instances = map[string][]string{}
	}
	d.instances[crd] = append(d.instances[crd], strings.TrimPrefix(ref.Namespace+"/"+ref.Name, "/"))
}

// leftInstancesMessage returns a message about the custom resources that the deletion of a CRD would delete although
// they were left in the cluster. leftInstancesMessage returns "" if there are none.
func (d *deleteCall) leftInstancesMessage(crd string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.Sorted(slices.Values(d.instances[crd]))
	if len(names) == 0 {
		return ""
	}
	shown := strings.Join(names[:min(namesShown, len(names))], ", ")
	if len(names) > namesShown {
		shown += ", …"
	}
	return clipMessage(fmt.Sprintf("it has custom resources that do not belong to the module: %d (%s): move or "+
		"delete them", len(names), shown))
}

// markKeptWithNamespacesAndCRDs finds the objects of the inventory that must not be deleted.
// markKeptWithNamespacesAndCRDs returns an error only if the error concerns the whole cluster.
func (d *deleteCall) markKeptWithNamespacesAndCRDs(ctx context.Context, refs []Ref) error {
	d.kept = map[Ref]bool{}
	for _, r := range refs {
		if d.isProtectedNamespace(r) {
			d.kept[r.identity()] = true
		}
		if !r.Keep {
			continue
		}
		d.kept[r.identity()] = true
		d.kept[Ref{Kind: "Namespace", Name: r.Namespace}] = true
		isCRD := func(other Ref) bool {
			return other.groupKind() == crdKind && strings.HasSuffix(other.Name, "."+r.Group)
		}
		if roleOf(r.groupKind()) != roleCustom || !slices.ContainsFunc(refs, isCRD) {
			continue
		}
		res, err := d.resourceOf(ctx, r.GVK())
		if err != nil && concernsCluster(err) {
			return err
		}
		for _, other := range refs {
			// If the plural is unknown, markKeptWithNamespacesAndCRDs keeps all CRDs of the group.
			if isCRD(other) && (err != nil || other.Name == res.plural+"."+r.Group) {
				d.kept[other.identity()] = true
			}
		}
	}
	return nil
}

// addUntouched adds an object to a list of Teardown if this call of Delete sends no request for the object, for example
// because a previous phase is not complete or the cluster cannot be used.
func (d *deleteCall) addUntouched(t *Teardown, r Ref, waitMessage string) {
	switch {
	case d.kept[r.identity()]:
		t.Kept = append(t.Kept, r)
	case d.progress.isDeleted(r):
		t.Deleted = append(t.Deleted, r)
	default:
		t.Remaining = append(t.Remaining, Remaining{Ref: r, Message: waitMessage})
	}
}

// deletePhase deletes the objects of one phase. If a DELETE was sent for an object before, deletePhase only reads the
// object.
func (d *deleteCall) deletePhase(ctx context.Context, members []Ref, result *Teardown) error {
	left := make([]*Remaining, len(members))
	stays := make([]*Left, len(members))
	tried := make([]bool, len(members))
	err := d.forEachConcurrently(len(members), func(i int) (err error) {
		if d.kept[members[i].identity()] {
			d.forgetApplied(members[i])
			return nil
		}
		if d.progress.isDeleted(members[i]) {
			return nil
		}
		left[i], stays[i], err = d.deleteOrCheck(ctx, members[i])
		tried[i] = err == nil
		if left[i] == nil || left[i].Err != nil || !left[i].Since.IsZero() { // otherwise no DELETE was sent
			d.forgetApplied(members[i])
		}
		return err
	})
	for i, r := range members {
		switch {
		case stays[i] != nil:
			result.Left = append(result.Left, *stays[i])
		case left[i] != nil:
			result.Remaining = append(result.Remaining, *left[i])
		case tried[i]:
			result.Deleted = append(result.Deleted, r)
		default:
			d.addUntouched(result, r, "waits until the cluster can be reached")
		}
	}
	return err
}

// forgetApplied makes the next Apply send an object again if the installation contains the object again later. Without
// forgetApplied, Apply would find the same content in the Progress, and would not send an object that was deleted, or
// that another client could change because it did not belong to the installation.
func (d *deleteCall) forgetApplied(ref Ref) {
	if d.own != nil && d.own.Applied != nil {
		d.own.Applied.Forget(ref)
	}
}

// deleteOrCheck sends a DELETE for one object. If an earlier call has sent a DELETE for the object, deleteOrCheck only
// reads the object. deleteOrCheck returns a Remaining if the object still exists, and a Left with the reason if the
// object stays in the cluster. deleteOrCheck returns an error only if the error concerns the whole cluster.
func (d *deleteCall) deleteOrCheck(ctx context.Context, ref Ref) (*Remaining, *Left, error) {
	if err := validatePathSegments(ref); err != nil {
		d.progress.recordSent(ref, true) // an object with such a name cannot exist
		return nil, nil, nil
	}
	sent, _ := d.progress.status(ref)
	if sent {
		left, err := d.readRemaining(ctx, ref)
		// If the object exists after an earlier DELETE and is not being deleted, another client has created the object
		// again, or the DELETE was lost. An object that was created again, or whose DELETE was lost, gets one more
		// DELETE.
		if sent = err != nil || left == nil || !left.Since.IsZero(); sent {
			return d.recordAnswer(ref, left, err)
		}
	}
	if d.own == nil {
		left, err := d.sendDelete(ctx, ref, preconditions{})
		return d.recordAnswer(ref, left, err)
	}
	left, stays, err := d.deleteOrLeave(ctx, ref)
	switch {
	case err != nil || left != nil && left.Since.IsZero(): // no DELETE was sent, or its result is unknown
		if err != nil {
			left, err = remainingOrClusterError(ref, err)
		}
		return left, nil, err
	case stays != nil && (stays.Reason == LeftHandedOver || stays.Reason == LeftToOwner ||
		roleOf(ref.groupKind()) == roleCustom):
		// If both installations are being deleted, each of them may hand the object over to the other one.
		if !d.progress.recordLeft(ref) {
			return nil, nil, nil
		}
		return nil, stays, nil
	case stays != nil:
		d.progress.recordSent(ref, true)
		return nil, stays, nil
	}
	return d.recordAnswer(ref, left, nil)
}

// recordAnswer records, from the response to a DELETE, whether the object still exists.
func (d *deleteCall) recordAnswer(ref Ref, left *Remaining, err error) (*Remaining, *Left, error) {
	if err != nil {
		left, err = remainingOrClusterError(ref, err)
		return left, nil, err
	}
	d.progress.recordSent(ref, left == nil)
	return left, nil, nil
}

// remainingOrClusterError handles the error of a request for the object ref. If err concerns the whole cluster,
// remainingOrClusterError returns err. If err concerns only this object, remainingOrClusterError returns an entry for
// Teardown.Remaining with the message of err.
func remainingOrClusterError(ref Ref, err error) (*Remaining, error) {
	e, ok := errors.AsType[*Error](err)
	if !ok || concernsCluster(err) {
		return nil, err
	}
	return &Remaining{Ref: ref, Message: e.Error(), Err: e}, nil
}

// preconditions restrict a DELETE to the object with the UID in the field UID, and to one resourceVersion of the
// object. A field that is "" means that any value is allowed.
type preconditions struct {
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// deletionOptions is the body of a DELETE with background propagation.
func deletionOptions(only preconditions) *buffer {
	body := newBuffer()
	body.data = append(body.data, `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"`...)
	if only != (preconditions{}) {
		data, _ := json.Marshal(only) // strings always encode
		body.data = append(append(body.data, `,"preconditions":`...), data...)
	}
	body.data = append(body.data, '}')
	return body
}

// sendDelete sends a DELETE for an object. The response of the API server shows whether the object is deleted at once
// or has finalizers.
func (c *Cluster) sendDelete(ctx context.Context, ref Ref, only preconditions) (*Remaining, error) {
	var answer partialObject
	err := c.withServedVersion(ctx, ref, func(ref Ref, res resource) error {
		r := request{method: http.MethodDelete, path: res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name),
			accept: metadataType, contentType: jsonType, body: deletionOptions(only), operation: "deleting", ref: ref}
		return c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
			return json.Unmarshal(body,
				&answer)
		})
	})
	switch {
	case isNotFoundOrUnserved(err):
		return nil, nil
	case err != nil:
		return nil, err
	case answer.Metadata.DeletionTimestamp == nil:
		// The response is a Status of success or, for some kinds, the deleted object.
		return nil, nil
	}
	return remainingOf(ref, &answer.Metadata), nil
}

// DeleteVersion deletes an object if it still has the given resourceVersion. If another client has changed the object,
// or has created it again, DeleteVersion deletes nothing and returns an error with the reason ObjectConflict. An object
// that does not exist is not an error. DeleteVersion does not wait until the finalizers of the object are removed.
func (c *Cluster) DeleteVersion(ctx context.Context, ref Ref, resourceVersion string) error {
	if resourceVersion == "" {
		return fmt.Errorf("deleting %s: its resourceVersion is not known", ref)
	}
	_, err := c.sendDelete(ctx, ref, preconditions{ResourceVersion: resourceVersion})
	return err
}

// readRemaining reads an object that is being deleted. readRemaining returns nil if the object does not exist any more.
func (c *Cluster) readRemaining(ctx context.Context, ref Ref) (*Remaining, error) {
	accept := metadataType
	if ref.groupKind() == namespaceKind {
		accept = jsonType // the status of a namespace lists the remaining content
	}
	var answer struct {
		partialObject
		Status corev1.NamespaceStatus `json:"status"`
	}
	err := c.withServedVersion(ctx, ref, func(ref Ref, res resource) error {
		r := request{method: http.MethodGet, path: res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name),
			accept: accept, operation: "reading", ref: ref}
		return c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
			return json.Unmarshal(body,
				&answer)
		})
	})
	switch {
	case isNotFoundOrUnserved(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	left := remainingOf(ref, &answer.Metadata)
	for _, condition := range answer.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && condition.Message != "" {
			left.Message += "; " + clipMessage(condition.Message)
		}
	}
	if slices.Contains(left.Finalizers, instanceCleanupFinalizer) {
		left.Message += c.remainingInstancesSuffix(ctx, ref)
	}
	return left, nil
}

// isNotFoundOrUnserved reports whether an error means that the object does not exist, or that its kind is not served.
func isNotFoundOrUnserved(err error) bool {
	return reasonIs(err, ObjectNotFound) || reasonIs(err, KindUnknown) || reasonIs(err, NamespaceNotFound)
}

// withServedVersion calls the function in the parameter use with ref and the API resource of its kind. The cached
// resource of a kind may be wrong: the cluster does not serve the API version any more, or the resource comes from the
// CRD of a bundle that the API server has not accepted, for example because the CRD changes the scope of the kind. If a
// request fails because the kind is unknown, withServedVersion asks the cluster how it serves the kind, and calls the
// function again. If the cluster serves the kind in another scope than ref has, no object with this identity can exist,
// and withServedVersion returns the error of the request. See onlyIfScopeFits and [Cluster.ResolveNamespace].
func (c *Cluster) withServedVersion(ctx context.Context, ref Ref, use func(Ref, resource) error) error {
	use = c.onlyIfScopeFits(ctx, use)
	res, err := c.resourceOf(ctx, ref.GVK())
	isCached := err == nil
	if err == nil {
		err = use(ref, res)
	}
	if !reasonIs(err, KindUnknown) {
		return err
	}
	c.forgetKind(ref.GVK())
	served, res, ok, lookup := c.discoverServed(ctx, ref, isCached)
	if lookup != nil {
		return lookup
	}
	if !ok {
		return err
	}
	return use(served, res)
}

// remainingOf returns the entry of Teardown.Remaining for an object that still exists. The Message of this entry states
// what the deletion of the object waits for.
func remainingOf(ref Ref, m *metadata) *Remaining {
	left := &Remaining{Ref: ref, Finalizers: slices.Sorted(slices.Values(m.Finalizers)), Message: deletionMessage(m)}
	if m.DeletionTimestamp != nil {
		left.Since = m.DeletionTimestamp.Time
	}
	return left
}

// deletionMessage returns since when an object is being deleted, and the finalizers of the object.
func deletionMessage(m *metadata) string {
	var b strings.Builder
	if m.DeletionTimestamp == nil {
		b.WriteString("still exists")
	} else {
		b.WriteString("being deleted since " + m.DeletionTimestamp.UTC().Format(time.RFC3339))
	}
	if len(m.Finalizers) > 0 {
		b.WriteString(", waiting for finalizers " + strings.Join(slices.Sorted(slices.Values(m.Finalizers)), ", "))
	}
	return clipMessage(b.String())
}

// instanceCleanupFinalizer is the finalizer that delays the deletion of a CustomResourceDefinition until its custom
// resources are deleted.
const instanceCleanupFinalizer = "customresourcecleanup.apiextensions.k8s.io"

// remainingInstancesSuffix returns the end of a message: the names of a few custom resources that the deletion of a CRD
// waits for. If the names of the custom resources cannot be read, the error is ignored and the text is empty, because
// the names are used only in messages.
func (c *Cluster) remainingInstancesSuffix(ctx context.Context, crd Ref) string {
	const few = 3
	found, err := c.ListInstances(ctx, crd.Name, few, "")
	if err != nil || len(found.Items) == 0 {
		return ""
	}
	names := make([]string, len(found.Items))
	for i, o := range found.Items {
		names[i] = strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
		if len(o.Finalizers) > 0 {
			names[i] += " (finalizers " + strings.Join(o.Finalizers, ", ") + ")"
		}
	}
	text := "; remaining: " + strings.Join(names, ", ")
	if found.More > 0 {
		text += " and others"
	}
	return clipMessage(text)
}

// WaitMessage returns a message about what the deletion waits for. WaitMessage contains the first three remaining
// objects, what each of these objects waits for, and the number of the other objects. The length of the message is
// limited. WaitMessage stays the same as long as the causes stay the same.
func (t *Teardown) WaitMessage() string {
	const most = 3 // few, because users read the message
	var parts []string
	for _, r := range t.Remaining[:min(most, len(t.Remaining))] {
		parts = append(parts, text.ClipCollapsingSpaces(r.Ref.String()+" to be deleted: "+r.Message, failureBytesLimit))
	}
	text := strings.Join(parts, "; ")
	if more := len(t.Remaining) - most; more > 0 {
		text += " (and " + strconv.Itoa(more) + " more)"
	}
	return text
}
