package apply

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
)

// ListOwned returns the objects in the cluster that belong to an installation, in the order of their kinds. An object
// belongs to an installation if AnnotationOwnedBy of the object has the name of the installation. ListOwned also
// returns an object of another installation if AnnotationCoOwners of the object contains the name of the given
// installation. The Refs of objects of other installations have the flag Shared. Only objects that match the label
// selector and that the field manager has applied are returned. ListOwned does not return a ReplicaSet or another
// object that a controller of the cluster has created with copied labels and annotations, because no field manager has
// applied such an object.
//
// ListOwned is used to restore an inventory that was lost. ListOwned is expensive: it sends two discovery requests, and
// one list of metadata for each kind. ListOwned does not list kinds that the credentials may not list. ListOwned does
// not list kinds whose objects are created by the cluster itself, either, such as Leases.
func (c *Cluster) ListOwned(ctx context.Context, installation, appliedBy, selector string) ([]Ref, error) {
	kinds, err := c.discoverListableDeletableKinds(ctx)
	if err != nil {
		return nil, err
	}
	found := make([][]Ref, len(kinds))
	errs := make([]error, len(kinds))
	err = c.forEachConcurrently(len(kinds), func(i int) error {
		found[i], errs[i] = c.listOwnedKind(ctx, kinds[i], installation, appliedBy, selector)
		return errs[i]
	})
	if err = cmp.Or(err, errors.Join(errs...)); err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return nil, e
		}
		return nil, err
	}
	return slices.Concat(found...), nil
}

// listOwnedKind is ListOwned for the objects of one kind.
func (c *Cluster) listOwnedKind(ctx context.Context, kind listedKind, installation, appliedBy, selector string) (
	[]Ref, error) {
	var refs []Ref
	for q := (pageQuery{limit: listed, selector: selector}); ; {
		found, err := c.listPage(ctx, kind.gvk.GroupVersion(), kind.resource, "", &q)
		switch {
		case isNotFoundOrUnserved(err) || err != nil && (isForbidden(err) || isMethodNotAllowed(err)):
			return nil, nil // the kind is not served any more, or cannot be listed
		case err != nil:
			return nil, err
		}
		for i := range found.items {
			found.items[i].Kind = kind.gvk.Kind
			if ref, ok := found.items[i].refIfOwnedBy(installation, appliedBy); ok {
				refs = append(refs, ref)
			}
		}
		if found.next == "" {
			return refs, nil
		}
		if !q.advanceTo(found.next) {
			return nil, endlessList(kind.plural)
		}
	}
}

// isForbidden reports whether the credentials lack a permission.
func isForbidden(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == http.StatusForbidden
}

// refIfOwnedBy returns the Ref of an object with the flags Keep, Adopted and Shared. The result ok is true if two
// conditions are met: the installation is the owner or a co-owner of the object, and the given field manager has
// applied the object.
func (m *ObjectMetadata) refIfOwnedBy(installation, appliedBy string) (_ Ref, ok bool) {
	object := metadata{Annotations: ownerAnnotations{CoOwners: m.annotations[AnnotationCoOwners]}}
	isOwn := m.annotations[AnnotationOwnedBy] == installation
	ref := m.Ref
	ref.Keep = !slices.Contains([]string{"", "delete"}, m.annotations[AnnotationPrune]) // a misspelt value protects
	ref.Adopted = isOwn && m.annotations[AnnotationAdopted] == "true"
	ref.Shared = !isOwn
	return ref, slices.Contains(m.appliers, appliedBy) && (isOwn || slices.Contains(object.coOwners(""), installation))
}
