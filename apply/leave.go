package apply

import (
	"context"
	"encoding/json"
	"errors"
)

// Marks are the keys of labels and annotations whose values name the installation to which an object belongs.
// LeaveToUser always removes the annotations of package apply, such as AnnotationOwnedBy, so Marks need not contain
// them.
type Marks struct{ Labels, Annotations []string }

// LeaveToUser removes from the objects of an installation all labels and annotations that name the installation.
// LeaveToUser does not change the spec of the objects, and deletes no object. If another installation also contains an
// object, LeaveToUser hands the object over to that installation. LeaveToUser returns the objects that belong to
// another installation now.
//
// If the installation applies an object again after LeaveToUser, the object belongs to the installation, because the
// object still has fields of the installation's field manager. LeaveToUser also removes the entry of the field manager
// from the managed fields of an object that existed before the installation. If the installation applies such an object
// again later, the installation adopts the object again, as at the first time.
//
// LeaveToUser sends two requests for each object, and three for an object that existed before the installation. Call
// LeaveToUser again after an error.
func (c *Cluster) LeaveToUser(ctx context.Context, refs []Ref, own *Ownership, marks Marks) (
	ownedByOthers []Left, _ error) {
	d := deleteCall{Cluster: c, own: own}
	stays, errs := make([]*Left, len(refs)), make([]error, len(refs))
	err := d.forEachConcurrently(len(refs), func(i int) error {
		if validatePathSegments(refs[i]) != nil {
			return nil // an object with such a name cannot exist
		}
		wanted := own.otherInstallationWith(refs[i])
		errs[i] = d.retryOnConflict(ctx, refs[i], func(served Ref, res resource) (err error) {
			stays[i], err = d.leaveToOtherOrUser(ctx, served, res, wanted, marks)
			return err
		})
		return errs[i]
	})
	var (
		left   []Left
		failed []*Error
	)
	for i := range refs {
		if stays[i] != nil {
			left = append(left, *stays[i])
		}
		if e, ok := errors.AsType[*Error](errs[i]); ok {
			failed = append(failed, e)
		}
	}
	if err != nil {
		return left, err
	}
	return left, JoinFailures(failed)
}

// removalPatch returns a merge patch of metadata that removes the marks of the installation and the annotations of this
// package.
func (m Marks) removalPatch() map[string]any {
	labels := map[string]any{componentLabel: nil}
	annotations := map[string]any{AnnotationOwnedBy: nil, AnnotationCoOwners: nil, AnnotationAdopted: nil}
	for _, key := range m.Labels {
		labels[key] = nil
	}
	for _, key := range m.Annotations {
		annotations[key] = nil
	}
	return map[string]any{"labels": labels, "annotations": annotations}
}

// leaveToOtherOrUser removes one object from the installation, and hands the object over to another installation or to
// the user.
func (d *deleteCall) leaveToOtherOrUser(ctx context.Context, ref Ref, res resource, claimant string,
	marks Marks) (*Left,
	error) {
	m, heirs, decision, err := d.readAndDecide(ctx, ref, res, claimant)
	if err != nil {
		return nil, err
	}
	switch decision {
	case removalWait, removalLeave:
		return nil, nil
	case removalWithdraw:
		_, left, err := d.withdrawAsCoOwner(ctx, ref, res, m)
		return left, err
	case removalHandOver:
		_, left, err := d.makeFirstHeirOwner(ctx, ref, res, m, heirs)
		return left, err
	case removalRelease:
		return nil, d.patchManagedFields(ctx, ref, res, d.own.manager(), m,
			func(entries []json.RawMessage) (map[string]any, error) {
				_, _, kept, err := splitManagedFields(entries, d.own.manager())
				change := marks.removalPatch()
				change["managedFields"] = kept
				return change, err
			})
	}
	_, err = d.patchMetadata(ctx, metadataPatch(ref, res, d.own.manager(), m, marks.removalPatch()))
	return nil, err
}
