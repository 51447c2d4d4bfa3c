package apply

import (
	"context"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// ListByLabel returns the metadata of objects of a kind that match a label selector, in all namespaces. ListByLabel
// sends one request. ListByLabel returns at most limit objects; limit is at least 1. A response with more objects is an
// error. The result "more" is true if the cluster has more than limit matching objects. An error with reason
// KindUnknown means that the cluster does not serve the kind in the API version of gvk, so no object of the kind can
// exist in this API version.
func (c *Cluster) ListByLabel(ctx context.Context, gvk schema.GroupVersionKind, selector string, limit int) (
	found []ObjectMetadata, more bool, err error) {
	res, err := c.resourceOf(ctx, gvk)
	if err != nil {
		return nil, false, err
	}
	listed, err := c.listPage(ctx, gvk.GroupVersion(), res, "", &pageQuery{limit: limit, selector: selector})
	if err != nil {
		c.forgetIfUnknown(gvk, err)
		return nil, false, err
	}
	for i := range listed.items {
		listed.items[i].Kind = gvk.Kind
		listed.items[i].Keep = listed.items[i].isKept()
	}
	return listed.items, listed.next != "", nil
}

// ListObjectsByLabel returns the objects of a kind that match a label selector, in all namespaces, with their whole
// content. ListObjectsByLabel requests the objects in pages of 500, or in smaller pages if a page is too large.
func (c *Cluster) ListObjectsByLabel(ctx context.Context, gvk schema.GroupVersionKind, selector string) (
	[]*unstructured.Unstructured, error) {
	res, err := c.resourceOf(ctx, gvk)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	r := request{method: http.MethodGet, path: res.urlPath(gvk.GroupVersion(), "", ""),
		operation: "listing " + res.plural}
	for q := (pageQuery{limit: listed, selector: selector}); ; {
		var list struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []map[string]any `json:"items"`
		}
		err := c.requestPageShrinkingIfTooLarge(ctx, &r, &q, func(_ int, body []byte) error {
			err := utiljson.Unmarshal(body, &list)
			if err == nil && list.Metadata.ResourceVersion == "" {
				err = errNoList
			}
			return err
		})
		if err != nil {
			c.forgetIfUnknown(gvk, err)
			return nil, err
		}
		for _, content := range list.Items {
			all = append(all, &unstructured.Unstructured{Object: content})
		}
		if list.Metadata.Continue == "" {
			return all, nil
		}
		if !q.advanceTo(list.Metadata.Continue) {
			return nil, endlessList(res.plural)
		}
	}
}

// Labelled are the objects of all kinds that match a label selector.
type Labelled struct {
	Items []ObjectMetadata
	// More lists the kinds for which Items is incomplete, because the cluster has more matching objects of these kinds
	// than the limit allows.
	More []schema.GroupKind
	// Refused are the kinds that the credential may not list.
	Refused []schema.GroupKind
}

// ListAllByLabel returns the metadata of the objects of all kinds that match a label selector, in all namespaces, at
// most limitPerKind objects of each kind. ListAllByLabel leaves out kinds whose objects are mostly created by the
// cluster itself. ListAllByLabel sends two discovery requests, and one list request for each kind. If the metadata of
// all objects needs more than 32 MiB of memory, ListAllByLabel returns an error.
func (c *Cluster) ListAllByLabel(ctx context.Context, selector string, limitPerKind int) (Labelled, error) {
	kinds, err := c.discoverListableDeletableKinds(ctx)
	if err != nil {
		return Labelled{}, err
	}
	pages, errs := make([]page, len(kinds)), make([]error, len(kinds))
	var total listTotal
	err = c.forEachConcurrently(len(kinds), func(i int) error {
		if errs[i] = total.add(0, kinds[i].plural); errs[i] != nil {
			return errs[i] // another list has exceeded the limit: send no more requests
		}
		pages[i], errs[i] = c.listFirstByLabel(ctx, kinds[i], selector, limitPerKind, &total)
		if reasonIs(errs[i], RuntimeForbidden) {
			return nil
		}
		return errs[i]
	})
	if err != nil {
		return Labelled{}, err
	}
	var all Labelled
	for i, kind := range kinds {
		switch {
		// not served any more, or no list
		case isNotFoundOrUnserved(errs[i]) || errs[i] != nil && isMethodNotAllowed(errs[i]):
		case reasonIs(errs[i], RuntimeForbidden):
			all.Refused = append(all.Refused, kind.gvk.GroupKind())
		case errs[i] != nil:
			return Labelled{}, errs[i]
		}
		for _, o := range pages[i].items {
			o.Kind, o.Keep = kind.gvk.Kind, o.isKept()
			all.Items = append(all.Items, o)
		}
		if pages[i].hasMore || pages[i].next != "" {
			all.More = append(all.More, kind.gvk.GroupKind())
		}
	}
	return all, nil
}

// listFirstByLabel returns the first objects of a kind for ListAllByLabel, at most limit objects. An aggregated API
// server may ignore the limit; then listFirstByLabel leaves out the other objects.
func (c *Cluster) listFirstByLabel(ctx context.Context, kind listedKind, selector string, limit int,
	total *listTotal) (page, error) {
	found, err := c.listPage(ctx, kind.gvk.GroupVersion(), kind.resource, "",
		&pageQuery{limit: limit, selector: selector, isAnyKind: true})
	if err == nil {
		err = total.add(found.bytes, kind.plural)
	}
	if err != nil {
		return page{}, err
	}
	if len(found.items) > limit {
		found.items, found.hasMore = found.items[:limit:limit], true
	}
	return found, nil
}

// Annotation returns the value of one of the annotations that this package defines, such as AnnotationOwnedBy.
// Annotation returns "" if the object does not have the annotation, and for every other annotation, because a list does
// not keep other annotations.
func (f *ObjectMetadata) Annotation(key string) string { return f.annotations[key] }

// IsAppliedBy reports whether a field manager has applied fields of the object.
func (f *ObjectMetadata) IsAppliedBy(manager string) bool {
	return slices.Contains(f.appliers, manager)
}

// CoOwners returns the names of the installations in AnnotationCoOwners.
func (f *ObjectMetadata) CoOwners() []string {
	m := metadata{Annotations: ownerAnnotations{CoOwners: f.annotations[AnnotationCoOwners]}}
	return m.coOwners("")
}

// isKept reports whether AnnotationPrune keeps the object. A misspelt value protects the object.
func (f *ObjectMetadata) isKept() bool {
	return !slices.Contains([]string{"", "delete"}, f.annotations[AnnotationPrune])
}
