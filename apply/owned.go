package apply

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
// one list of metadata for each kind. The result refused has the kinds that the credential may not list: the
// installation may have objects of these kinds that ListOwned does not return. ListOwned does not list kinds whose
// objects are created by the cluster itself, such as Leases.
func (c *Cluster) ListOwned(ctx context.Context, installation, appliedBy, selector string) (
	owned []Ref, refused []RefusedKind, err error) {
	kinds, err := c.discoverListableDeletableKinds(ctx)
	if err != nil {
		return nil, nil, err
	}
	found := make([][]Ref, len(kinds))
	forbidden := make([]*Error, len(kinds))
	errs := make([]error, len(kinds))
	err = c.forEachConcurrently(len(kinds), func(i int) error {
		found[i], errs[i] = c.listOwnedKind(ctx, kinds[i], installation, appliedBy, selector)
		if e, ok := errors.AsType[*Error](errs[i]); ok && e.Code == http.StatusForbidden {
			forbidden[i], errs[i] = e, nil
		}
		return errs[i]
	})
	if err = cmp.Or(err, errors.Join(errs...)); err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return nil, nil, e
		}
		return nil, nil, err
	}
	for i, e := range forbidden {
		if e != nil {
			refused = append(refused, RefusedKind{kinds[i].gvk.GroupKind(), e})
		}
	}
	return slices.Concat(found...), refused, nil
}

// RefusedKind is a kind that the credential may not list.
type RefusedKind struct {
	Kind schema.GroupKind
	// Err is the answer of the API server. Err contains the missing right.
	Err *Error
}

// listOwnedKind is ListOwned for the objects of one kind.
func (c *Cluster) listOwnedKind(ctx context.Context, kind listedKind, installation, appliedBy, selector string) (
	[]Ref, error) {
	var refs []Ref
	for q := (pageQuery{limit: listed, selector: selector}); ; {
		found, err := c.listPage(ctx, kind.gvk.GroupVersion(), kind.resource, "", &q)
		switch {
		case isNotFoundOrUnserved(err) || err != nil && isMethodNotAllowed(err):
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

// refIfOwnedBy returns the Ref of an object with the flags Keep, Adopted and Shared. The result ok is true if two
// conditions are met: the installation is the owner or a co-owner of the object, and the given field manager has
// applied the object.
func (m *ObjectMetadata) refIfOwnedBy(installation, appliedBy string) (_ Ref, ok bool) {
	isOwn := m.annotations[AnnotationOwnedBy] == installation
	ref := m.Ref
	ref.Keep = m.isKept()
	ref.Adopted = isOwn && m.annotations[AnnotationAdopted] == "true"
	ref.Shared = !isOwn
	return ref, m.IsAppliedBy(appliedBy) && (isOwn || slices.Contains(m.CoOwners(), installation))
}
