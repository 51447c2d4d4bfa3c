package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// componentLabel is the label with the name of the installation, without its namespace. The caller sets componentLabel
// in Set.Overlay, so that all objects of an installation have the label.
const componentLabel = "app.kubernetes.io/component"

// manager returns the field manager of the installation, or the default.
func (o *Ownership) manager() string { return cmp.Or(o.Manager, DefaultOwner) }

// deleteOrLeave deletes an object, hands it over, releases it, or leaves it: see decideDelete. If the object is to be
// deleted but still exists, deleteOrLeave returns a Remaining. If the object stays, deleteOrLeave returns a Left with
// the reason.
func (d *deleteCall) deleteOrLeave(ctx context.Context, ref Ref) (*Remaining, *Left, error) {
	wanted := d.own.otherInstallationWith(ref)
	if wanted == "" && !ref.Adopted && !ref.Shared && ref.groupKind() != namespaceKind &&
		!isUpdatedByClusterAfterApply(ref) {
		if version := d.own.Applied.untouchedResourceVersion(ref); version != 0 {
			left, err := d.sendDelete(ctx, ref, preconditions{ResourceVersion: strconv.FormatUint(version, 10)})
			if !reasonIs(err, ObjectConflict) {
				return left, nil, err
			}
		}
	}
	var (
		left  *Remaining
		stays *Left
	)
	err := d.retryOnConflict(ctx, ref, func(served Ref, res resource) (err error) {
		left, stays, err = d.readAndRemove(ctx, served, res, wanted)
		if stays != nil && roleOf(ref.groupKind()) == roleCustom {
			d.recordLeftInstance(res.plural+"."+ref.Group, ref)
		}
		return err
	})
	return left, stays, err
}

// retryOnConflict calls the function in the parameter do with the API version in which the cluster serves the object.
// If the function returns a conflict, because another client has changed the object at the same time, retryOnConflict
// calls the function again. An object that does not exist is not an error.
func (d *deleteCall) retryOnConflict(ctx context.Context, ref Ref, do func(Ref, resource) error) error {
	var err error
	for range maxConcurrentChanges {
		err = d.withServedVersion(ctx, ref,
			func(served Ref, res resource) error { return do(served.WithOwnershipFlags(ref), res) })
		if !reasonIs(err, ObjectConflict) {
			break
		}
	}
	if isNotFoundOrUnserved(err) {
		return nil
	}
	return err
}

// isUpdatedByClusterAfterApply reports whether the cluster itself writes objects of a kind after they were applied, for
// example their status. If isUpdatedByClusterAfterApply returns true, DeleteOwned has to read the object before the
// DELETE: the API server would reject a DELETE with the resourceVersion that the object had when it was applied.
func isUpdatedByClusterAfterApply(ref Ref) bool {
	switch roleOf(ref.groupKind()) {
	case roleWorkload, roleCRD, roleAdmission, roleCustom:
		return true
	}
	return false
}

// readAndRemove reads the object and then removes it. An error with reason ObjectConflict means that the object was
// changed at the same time.
func (d *deleteCall) readAndRemove(ctx context.Context, ref Ref, res resource, claimant string) (
	*Remaining, *Left, error) {
	m, heirs, decision, err := d.readAndDecide(ctx, ref, res, claimant)
	if err != nil {
		return nil, nil, err
	}
	switch decision {
	case removalWait:
		return remainingOf(ref, m), nil, nil
	case removalWithdraw:
		return d.withdrawAsCoOwner(ctx, ref, res, m)
	case removalLeave:
		return nil, &Left{ref, LeftToOthers, ref.String() + " stays, because somebody else has created it again" +
			fieldManagersSuffix(m.otherManagers(d.own.manager()))}, nil
	case removalHandOver:
		return d.makeFirstHeirOwner(ctx, ref, res, m, heirs)
	case removalRelease:
		return d.releaseAdopted(ctx, ref, res, m)
	}
	if ref.groupKind() == crdKind {
		if content := d.leftInstancesMessage(ref.Name); content != "" {
			return &Remaining{Ref: ref, Content: true, Message: content}, nil, nil
		}
	}
	if ref.groupKind() == namespaceKind {
		if content, err := d.foreignContentMessage(ctx, ref.Name); err != nil || content != "" {
			return &Remaining{Ref: ref, Content: true, Message: content}, nil, err
		}
	}
	left, err := d.sendDelete(ctx, ref, preconditions{m.UID, m.ResourceVersion})
	return left, nil, err
}

// readAndDecide reads the metadata of an object and decides what to do with the object: see decideDelete.
func (d *deleteCall) readAndDecide(ctx context.Context, ref Ref, res resource, wanted string) (m *metadata,
	heirs []string, decision removal, err error) {
	r := request{method: http.MethodGet, path: res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name),
		accept: metadataType, operation: "reading", ref: ref}
	var answer partialObject
	if err := d.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
		return answer.decode(body,
			ref)
	}); err != nil {
		return nil, nil, "", err
	}
	m = &answer.Metadata
	f := d.own.factsOf(m, d.own.manager(), ref)
	f.applied = f.applied || d.own.RecordedAreOwn && !ref.Pending && !ref.Adopted && !ref.Shared
	heirs = d.existingHeirs(m, wanted)
	f.claimed = len(heirs) > 0
	return m, heirs, decideDelete(f), nil
}

func fieldManagersSuffix(managers []string) string {
	if len(managers) == 0 {
		return ""
	}
	return " (field managers " + strings.Join(managers, ", ") + ")"
}

// existingHeirs returns the other existing installations that contain the object: its co-owners, followed by the
// installation in the parameter claimant, whose inventory contains the object. If claimant is "", there is no such
// installation.
func (d *deleteCall) existingHeirs(m *metadata, claimant string) []string {
	heirs := slices.DeleteFunc(m.coOwners(d.own.Name), func(name string) bool {
		_, exists := d.own.titleOfOther(name)
		return !exists
	})
	if claimant != "" && !slices.Contains(heirs, claimant) {
		heirs = append(heirs, claimant)
	}
	return heirs
}

// withdrawAsCoOwner removes this installation from the co-owners of an object that belongs to another installation.
func (d *deleteCall) withdrawAsCoOwner(ctx context.Context, ref Ref, res resource, m *metadata) (
	*Remaining, *Left, error) {
	title, _ := d.own.titleOfOther(m.Annotations.OwnedBy)
	if claims := m.coOwners(d.own.Name); len(claims) < len(m.coOwners("")) {
		_, err := d.patchMetadata(ctx, metadataPatch(ref, res, d.own.manager(), m,
			map[string]any{"annotations": map[string]any{AnnotationCoOwners: coOwnersValue(claims)}}))
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, &Left{ref, LeftToOwner, ref.String() + " stays, because it belongs to " + title}, nil
}

// coOwnersValue returns the value of AnnotationCoOwners, or nil for no co-owners.
func coOwnersValue(names []string) any {
	if len(names) == 0 {
		return nil
	}
	return strings.Join(names, ",")
}

// makeFirstHeirOwner makes the first of heirs the owner of the object.
func (d *deleteCall) makeFirstHeirOwner(ctx context.Context, ref Ref, res resource, m *metadata,
	heirs []string) (*Remaining,
	*Left, error) {
	_, name, _ := strings.Cut(heirs[0], "/")
	_, err := d.patchMetadata(ctx, metadataPatch(ref, res, d.own.manager(), m, map[string]any{
		"annotations": map[string]any{AnnotationOwnedBy: heirs[0], AnnotationCoOwners: coOwnersValue(heirs[1:])},
		"labels":      map[string]any{componentLabel: name},
	}))
	if err != nil {
		return nil, nil, err
	}
	title, _ := d.own.titleOfOther(heirs[0])
	return nil, &Left{ref, LeftHandedOver, ref.String() + " stays and belongs to " + title + " now"}, nil
}

// releaseAdopted removes the fields of our field manager from an object that existed before the installation. To remove
// the fields, releaseAdopted applies the object without any field, so that our field manager owns nothing. The API
// server rejects this apply if it would remove a required field that no other field manager owns, such as the versions
// of a CRD, or because of unserved versions. After such a rejection, releaseAdopted removes only our labels and
// annotations.
func (d *deleteCall) releaseAdopted(ctx context.Context, ref Ref, res resource, m *metadata) (
	*Remaining, *Left, error) {
	message := ref.String() + " existed before the module: it stays, without the fields of the module"
	err := d.applyWithoutFields(ctx, ref, res, m)
	if reasonIs(err, ObjectRefused) || reasonIs(err, FieldImmutable) || reasonIs(err, StoredVersionDropped) ||
		reasonIs(err, AdmissionRefused) || unservedIn(err) != "" {
		message = ref.String() + " existed before the module: it stays as the module has left it"
		err = d.patchManagedFields(ctx, ref, res, d.own.manager(), m,
			func(entries []json.RawMessage) (map[string]any, error) {
				return patchRemovingOwnMetadata(entries, d.own.manager())
			})
	}
	if err != nil {
		return nil, nil, err
	}
	return nil, &Left{ref, LeftReleased, message}, nil
}

// applyWithoutFields applies an object without fields, so that the API server removes the fields that only our field
// manager owns.
func (d *deleteCall) applyWithoutFields(ctx context.Context, ref Ref, res resource, m *metadata) error {
	meta := map[string]any{"name": ref.Name, "uid": m.UID, "resourceVersion": m.ResourceVersion}
	if ref.Namespace != "" {
		meta["namespace"] = ref.Namespace
	}
	data, _ := json.Marshal(map[string]any{"apiVersion": ref.GVK().GroupVersion().String(), "kind": ref.Kind,
		"metadata": meta}) // strings always encode
	body := newBuffer()
	body.data = append(body.data, data...)
	r := &request{method: http.MethodPatch, path: res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name),
		query: "fieldManager=" + url.QueryEscape(d.own.manager()), accept: metadataType, contentType: applyType,
		body: body, operation: "releasing", ref: ref}
	after, err := d.patchMetadata(ctx, r)
	if err != nil || after.Annotations == (ownerAnnotations{}) {
		return err
	}
	// The object still has an annotation of package apply after the apply request if another owner of this annotation
	// is recorded: another field manager, or a merge patch of package apply. The following merge patch removes these
	// annotations.
	_, err = d.patchMetadata(ctx, metadataPatch(ref, res, d.own.manager(), &after, map[string]any{
		"annotations": map[string]any{AnnotationOwnedBy: nil, AnnotationCoOwners: nil, AnnotationAdopted: nil}}))
	return err
}

// patchManagedFields reads the managed fields of an object, and changes only its metadata. The function patchFor gets
// the managed fields, and returns the merge patch. The API server accepts the patch only if the object still has the
// resourceVersion of m or, if m is nil, the resourceVersion that was read with the managed fields.
func (c *Cluster) patchManagedFields(ctx context.Context, ref Ref, res resource, manager string, m *metadata,
	patchFor func(entries []json.RawMessage) (map[string]any, error)) error {
	r := request{method: http.MethodGet, path: res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name),
		accept: metadataType, operation: "reading", ref: ref}
	var (
		answer  partialObject
		entries struct {
			Metadata struct {
				ManagedFields []json.RawMessage `json:"managedFields"` // sent back as they are
			} `json:"metadata"`
		}
	)
	if err := c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
		return errors.Join(answer.decode(body, ref), json.Unmarshal(body, &entries))
	}); err != nil {
		return err
	}
	patch, err := patchFor(entries.Metadata.ManagedFields)
	if err != nil {
		return fmt.Errorf("reading the managed fields of %s: %w", ref, err)
	}
	if m == nil {
		m = &answer.Metadata
	}
	_, err = c.patchMetadata(ctx, metadataPatch(ref, res, manager, m, patch))
	return err
}

// patchRemovingOwnMetadata returns a merge patch of metadata that removes the labels and annotations that only manager
// owns, the annotations of an installation, and the entries of manager in the managed fields.
func patchRemovingOwnMetadata(entries []json.RawMessage, manager string) (map[string]any, error) {
	ours, others, kept, err := splitManagedFields(entries, manager)
	if err != nil {
		return nil, err
	}
	labels, annotations := map[string]any{}, map[string]any{AnnotationOwnedBy: nil, AnnotationCoOwners: nil,
		AnnotationAdopted: nil}
	for _, f := range ours {
		for key := range f.Labels {
			if !slices.ContainsFunc(others, func(o metadataFields) bool { return o.Labels[key] != nil }) {
				labels[strings.TrimPrefix(key, "f:")] = nil
			}
		}
		for key := range f.Annotations {
			if !slices.ContainsFunc(others, func(o metadataFields) bool { return o.Annotations[key] != nil }) {
				annotations[strings.TrimPrefix(key, "f:")] = nil
			}
		}
	}
	delete(labels, ".")
	delete(annotations, ".")
	return map[string]any{"labels": labels, "annotations": annotations, "managedFields": kept}, nil
}

// splitManagedFields separates the managed fields of an object into those of the given manager and those of other
// managers. The result "otherEntries" contains the entries of metadata.managedFields that belong to other managers,
// unchanged, for use in a merge patch.
func splitManagedFields(entries []json.RawMessage, manager string) (
	ours, others []metadataFields, otherEntries []any, err error) {
	for _, raw := range entries {
		var entry struct {
			Manager  string `json:"manager"`
			FieldsV1 struct {
				Metadata metadataFields `json:"f:metadata"`
			} `json:"fieldsV1"`
		}
		if err := json.Unmarshal(raw, &entry); err != nil {
			return nil, nil, nil, err
		}
		if entry.Manager == manager {
			ours = append(ours, entry.FieldsV1.Metadata)
			continue
		}
		others, otherEntries = append(others, entry.FieldsV1.Metadata), append(otherEntries, raw)
	}
	if len(otherEntries) == 0 {
		otherEntries = append(otherEntries, struct{}{}) // an empty list would change nothing
	}
	return ours, others, otherEntries, nil
}

// metadataFields are the labels and annotations in one entry of the managed fields.
type metadataFields struct {
	Labels      map[string]any `json:"f:labels"`
	Annotations map[string]any `json:"f:annotations"`
}
