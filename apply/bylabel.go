package apply

import (
	"context"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ListByLabel returns the metadata of objects of a kind that match a label selector, in all namespaces. It sends one
// request. It returns at most limit objects, and whether more objects exist. An error with reason KindUnknown means
// that no object of the kind can exist in this version.
func (c *Cluster) ListByLabel(ctx context.Context, gvk schema.GroupVersionKind, selector string, limit int) (
	found []ObjectMetadata, more bool, err error) {
	res, err := c.resourceOf(ctx, gvk)
	if err != nil {
		return nil, false, err
	}
	query := "limit=" + strconv.Itoa(limit) + "&labelSelector=" + url.QueryEscape(selector)
	listed, err := c.listPage(ctx, gvk.GroupVersion(), res, "", query)
	if err != nil {
		c.forgetIfUnknown(gvk, err)
		return nil, false, err
	}
	for i := range listed.items {
		listed.items[i].Kind = gvk.Kind
		listed.items[i].Keep = listed.items[i].annotations[AnnotationPrune] == "keep"
	}
	return listed.items, listed.next != "", nil
}

// Annotation returns the value of an annotation. It returns "" if the object does not have the annotation.
func (f *ObjectMetadata) Annotation(key string) string { return f.annotations[key] }
