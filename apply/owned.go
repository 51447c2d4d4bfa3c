package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
// one list of metadata for each kind. If the lists have more than 200 pages in addition to the first page of each kind,
// or the returned objects need more than 32 MiB of memory, ListOwned returns an error. The result refused has the kinds
// that the credential may not list: the installation may have objects of these kinds that ListOwned does not return.
// ListOwned does not list kinds whose objects are created by the cluster itself, such as Leases.
func (c *Cluster) ListOwned(ctx context.Context, installation, appliedBy, selector string) (
	owned []Ref, refused []RefusedKind, err error) {
	kinds, err := c.discoverListableDeletableKinds(ctx)
	if err != nil {
		return nil, nil, err
	}
	found := make([][]Ref, len(kinds))
	forbidden := make([]*Error, len(kinds))
	errs := make([]error, len(kinds))
	own := ownedQuery{installation: installation, appliedBy: appliedBy, selector: selector}
	err = c.forEachConcurrently(len(kinds), func(i int) error {
		found[i], errs[i] = c.listOwnedKind(ctx, kinds[i], &own)
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

// refBytes is the memory of a Ref without its texts, in bytes.
const refBytes = 96

// ownedQuery has the parameters of one call of ListOwned, and counts what the call keeps.
type ownedQuery struct {
	installation, appliedBy, selector string
	total                             listTotal
}

// listOwnedKind is ListOwned for the objects of one kind.
func (c *Cluster) listOwnedKind(ctx context.Context, kind listedKind, own *ownedQuery) ([]Ref, error) {
	var refs []Ref
	for q := (pageQuery{limit: listed, selector: own.selector, isAnyKind: true}); ; {
		if err := own.total.add(0, kind.plural); err != nil {
			return nil, err // the list of another kind has exceeded the limit: send no more requests
		}
		found, err := c.listPage(ctx, kind.gvk.GroupVersion(), kind.resource, "", &q)
		switch {
		case isNotFoundOrUnserved(err) || err != nil && isMethodNotAllowed(err):
			return nil, nil // the kind is not served any more, or cannot be listed
		case err != nil:
			return nil, err
		}
		for i := range found.items {
			found.items[i].Kind = kind.gvk.Kind
			if ref, ok := found.items[i].refIfOwnedBy(own.installation, own.appliedBy); ok {
				refs = append(refs, ref)
				if err := own.total.add(refBytes+len(ref.Namespace)+len(ref.Name), kind.plural); err != nil {
					return nil, err
				}
			}
		}
		if found.next == "" {
			return refs, nil
		}
		if !q.advanceTo(found.next) {
			return nil, endlessList(kind.plural)
		}
		if own.total.pages.Add(1) >= maxPages {
			return nil, &Error{Operation: "listing " + kind.plural, reason: RuntimeUnreachable,
				Message: fmt.Sprintf("the lists of all kinds have %d pages more than there are kinds", maxPages)}
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
