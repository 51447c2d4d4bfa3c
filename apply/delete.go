package apply

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DeletionProgress records which objects Delete has sent a DELETE for, so that each object is deleted once and only
// read afterwards. Use one for each deletion of an inventory. It lives in memory; if it is lost, one more DELETE is
// sent for each object. The zero value is ready to use.
type DeletionProgress struct {
	mu      sync.Mutex
	deleted map[Ref]bool // by Ref.identity: a DELETE was sent; true once it is deleted; guarded by mu
}

// status returns whether a DELETE was sent for an object, and whether it does not exist any more.
func (d *DeletionProgress) status(r Ref) (sent, deleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deleted, sent = d.deleted[r.identity()]
	return sent, deleted
}

func (d *DeletionProgress) record(r Ref, deleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deleted == nil {
		d.deleted = map[Ref]bool{}
	}
	d.deleted[r.identity()] = deleted
}

func (d *DeletionProgress) isDeleted(r Ref) bool {
	_, deleted := d.status(r)
	return deleted
}

// Teardown is the progress of a deletion.
type Teardown struct {
	// Deleted do not exist any more: they can be removed from the inventory.
	Deleted []Ref
	// Kept are never deleted: namespaces of ClusterOptions, objects whose Ref says Keep, and the namespaces and CRDs
	// that these need.
	Kept []Ref
	// Remaining still exist, each with what it waits for.
	Remaining []Remaining
}

// Done reports whether every object that can be deleted is deleted.
func (t *Teardown) Done() bool { return len(t.Remaining) == 0 }

// Remaining is an object that still exists.
type Remaining struct {
	Ref Ref
	// Since is when its deletion began; zero if it has not.
	Since time.Time
	// Finalizers that it still has, sorted.
	Finalizers []string
	// Message states what it waits for: its finalizers, the remaining content of a namespace, the custom resources of a
	// CRD, the phase before, or an error.
	Message string
	// Err is the error of the request, if it failed.
	Err *Error
}

// Delete deletes the objects of an inventory, phase by phase: custom resources (all kinds that are not built in) while
// their operator still runs, webhooks, workloads and services, configuration and access rights, CRDs, namespaces. A
// phase starts when all objects of the one before are deleted. Each object costs one DELETE with background
// propagation. progress records them, and later calls only read what still existed. If no object has finalizers, one
// call deletes everything.
//
// Delete does not wait: as long as Teardown has Remaining objects, call it again later. Every object of refs is in
// exactly one list. An object whose kind is not served any more, in any version, is deleted.
//
// Objects whose Ref says Keep are kept, and so are the namespaces and CustomResourceDefinitions in the same inventory
// whose deletion would delete them. That costs no request: the policy was read from the bundle and recorded in the Ref,
// the live object is not read. Keep these Refs in the inventory for as long as it exists.
//
// The error means that the cluster as a whole cannot be used now; objects that are not known to be deleted are then
// Remaining.
func (c *Cluster) Delete(ctx context.Context, refs []Ref, progress *DeletionProgress) (Teardown, error) {
	if progress == nil {
		progress = new(DeletionProgress)
	}
	var (
		result        Teardown
		blockingPhase string // the phase that has to be completed first
	)
	d := deleteCall{Cluster: c, progress: progress}
	failed := d.findKept(ctx, refs)
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

// deletion is one call of Delete.
type deleteCall struct {
	*Cluster
	progress *DeletionProgress
	kept     map[Ref]bool // by Ref.identity
}

// findKept finds the objects that are not deleted. An error concerns the whole cluster.
func (d *deleteCall) findKept(ctx context.Context, refs []Ref) error {
	d.kept = map[Ref]bool{}
	for _, r := range refs {
		if d.isProtected(r) {
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
			if isCRD(other) && (err != nil || other.Name == res.plural+"."+r.Group) { // unknown: all of the group
				d.kept[other.identity()] = true
			}
		}
	}
	return nil
}

// addUntouched adds an object for which no request was sent in this call.
func (d *deleteCall) addUntouched(t *Teardown, r Ref, message string) {
	switch {
	case d.kept[r.identity()]:
		t.Kept = append(t.Kept, r)
	case d.progress.isDeleted(r):
		t.Deleted = append(t.Deleted, r)
	default:
		t.Remaining = append(t.Remaining, Remaining{Ref: r, Message: message})
	}
}

// deletePhase deletes the objects of one phase, or reads those that were deleted before.
func (d *deleteCall) deletePhase(ctx context.Context, members []Ref, result *Teardown) error {
	left := make([]*Remaining, len(members))
	tried := make([]bool, len(members))
	err := d.forEach(len(members), func(i int) (err error) {
		if d.kept[members[i].identity()] || d.progress.isDeleted(members[i]) {
			return nil
		}
		left[i], err = d.deleteOrCheck(ctx, members[i], d.progress)
		tried[i] = err == nil
		return err
	})
	for i, r := range members {
		switch {
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

// deleteOrCheck sends a DELETE for one object, or reads it if that was done before, and returns what remains of it. Its
// error concerns the whole cluster.
func (c *Cluster) deleteOrCheck(ctx context.Context, ref Ref, progress *DeletionProgress) (*Remaining, error) {
	if err := validateIdentity(ref); err != nil {
		progress.record(ref, true) // an object of that name cannot exist
		return nil, nil
	}
	var left *Remaining
	var err error
	sent, _ := progress.status(ref)
	if sent {
		left, err = c.readRemaining(ctx, ref)
		// If it exists and is not being deleted, another client has created it again, or the DELETE was lost.
		sent = err != nil || left == nil || !left.Since.IsZero()
	}
	if !sent {
		left, err = c.sendDelete(ctx, ref)
	}
	if err != nil {
		return remainingAfter(ref, err)
	}
	progress.record(ref, left == nil)
	return left, nil
}

// remainingAfter returns the object as Remaining if err concerns only this object, else err.
func remainingAfter(ref Ref, err error) (*Remaining, error) {
	e, ok := errors.AsType[*Error](err)
	if !ok || concernsCluster(err) {
		return nil, err
	}
	return &Remaining{Ref: ref, Message: e.Error(), Err: e}, nil
}

// backgroundDeletion is the body of a DELETE.
const backgroundDeletion = `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`

// sendDelete sends the DELETE. The answer shows whether the object is deleted at once or has finalizers.
func (c *Cluster) sendDelete(ctx context.Context, ref Ref) (*Remaining, error) {
	var answer partialObject
	err := c.withServedVersion(ctx, ref, func(ref Ref, res resource) error {
		body := newBuffer()
		body.data = append(body.data, backgroundDeletion...)
		r := request{method: http.MethodDelete, path: res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name),
			accept: metadataType, contentType: jsonType, body: body, operation: "deleting", ref: ref}
		return c.send(ctx, &r, func(_ int, body []byte) error { return json.Unmarshal(body, &answer) })
	})
	switch {
	case isNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case answer.Metadata.DeletionTimestamp == nil: // a Status of success, or for some kinds the object as it was
		return nil, nil
	}
	return remainingOf(ref, &answer.Metadata), nil
}

// readRemaining reads an object that is being deleted; nil if it does not exist any more.
func (c *Cluster) readRemaining(ctx context.Context, ref Ref) (*Remaining, error) {
	accept := metadataType
	if ref.groupKind() == namespaceKind {
		accept = jsonType // the status of a namespace contains what is left in it
	}
	var answer struct {
		partialObject
		Status corev1.NamespaceStatus `json:"status"`
	}
	err := c.withServedVersion(ctx, ref, func(ref Ref, res resource) error {
		r := request{method: http.MethodGet, path: res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name),
			accept: accept, operation: "reading", ref: ref}
		return c.send(ctx, &r, func(_ int, body []byte) error { return json.Unmarshal(body, &answer) })
	})
	switch {
	case isNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	left := remainingOf(ref, &answer.Metadata)
	for _, condition := range answer.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && condition.Message != "" {
			left.Message += "; " + bounded(condition.Message)
		}
	}
	if slices.Contains(left.Finalizers, instanceCleanupFinalizer) {
		left.Message += c.remainingInstances(ctx, ref)
	}
	return left, nil
}

// isNotFound reports whether an error means that the object does not exist.
func isNotFound(err error) bool {
	return reasonIs(err, ObjectNotFound) || reasonIs(err, KindUnknown) || reasonIs(err, NamespaceNotFound)
}

// withServedVersion calls use with the resource of ref, and once more with another version if the recorded version is
// not served any more.
func (c *Cluster) withServedVersion(ctx context.Context, ref Ref, use func(Ref, resource) error) error {
	res, err := c.resourceOf(ctx, ref.GVK())
	if err == nil {
		err = use(ref, res)
	}
	if !reasonIs(err, KindUnknown) {
		return err
	}
	c.forgetKind(ref.GVK())
	other, res, ok, lookup := c.otherVersion(ctx, ref)
	if lookup != nil {
		return lookup
	}
	if !ok {
		return err
	}
	return use(other, res)
}

// remainingOf describes an object that still exists.
func remainingOf(ref Ref, m *metadata) *Remaining {
	left := &Remaining{Ref: ref, Finalizers: slices.Sorted(slices.Values(m.Finalizers)), Message: deletionMessage(m)}
	if m.DeletionTimestamp != nil {
		left.Since = m.DeletionTimestamp.Time
	}
	return left
}

// deletionMessage states since when an object is being deleted and which finalizers it has.
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
	return bounded(b.String())
}

// instanceCleanupFinalizer is the finalizer by which a CustomResourceDefinition waits until its custom resources are
// deleted.
const instanceCleanupFinalizer = "customresourcecleanup.apiextensions.k8s.io"

// remainingInstances names a few of the custom resources that a CRD still waits for. It is only for messages, so its
// errors are ignored.
func (c *Cluster) remainingInstances(ctx context.Context, crd Ref) string {
	const few = 3
	plural, group, ok := strings.Cut(crd.Name, ".")
	if !ok {
		return ""
	}
	found, next, err := c.listPreferredVersion(ctx, group, plural, few)
	if err != nil || len(found) == 0 {
		return ""
	}
	names := make([]string, len(found))
	for i, o := range found {
		names[i] = strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
		if len(o.Finalizers) > 0 {
			names[i] += " (finalizers " + strings.Join(o.Finalizers, ", ") + ")"
		}
	}
	text := "; remaining: " + strings.Join(names, ", ")
	if next != "" {
		text += " and others"
	}
	return bounded(text)
}

// listPreferredVersion lists custom resources by group and plural, in the preferred version of the cluster.
func (c *Cluster) listPreferredVersion(ctx context.Context, group, plural string, limit int) (
	found []ObjectMetadata, next string, err error) {
	r := request{method: http.MethodGet, path: "/apis/" + group,
		operation: "reading which versions are served of " + group}
	var versions struct {
		PreferredVersion struct {
			Version string `json:"version"`
		} `json:"preferredVersion"`
	}
	if err := c.send(ctx, &r, func(_ int, body []byte) error { return json.Unmarshal(body, &versions) }); err != nil {
		return nil, "", err
	}
	version := schema.GroupVersion{Group: group, Version: versions.PreferredVersion.Version}
	return c.listPage(ctx, version, resource{plural: plural}, "", "limit="+strconv.Itoa(limit))
}

// WaitMessage states what the deletion waits for: the first three objects that remain, each with what it waits for, and
// the number of the others. It is bounded, and stable as long as that does not change.
func (t *Teardown) WaitMessage() string {
	const most = 3 // a message is read by people
	var parts []string
	for _, r := range t.Remaining[:min(most, len(t.Remaining))] {
		parts = append(parts, clip(r.Ref.String()+" to be deleted: "+r.Message, failureBytesLimit))
	}
	text := strings.Join(parts, "; ")
	if more := len(t.Remaining) - most; more > 0 {
		text += " (and " + strconv.Itoa(more) + " more)"
	}
	return text
}
