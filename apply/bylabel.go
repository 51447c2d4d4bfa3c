package apply

import (
	"context"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ListByLabel finds objects of a kind by a label selector, in all namespaces, metadata only, in one request: at most so many, and whether
// there are more. An error with reason KindUnknown means that there can be none in this version.
func (c *Cluster) ListByLabel(ctx context.Context, gvk schema.GroupVersionKind, selector string, most int) (found []ObjectMetadata, more bool, err error) {
	res, err := c.resourceOf(ctx, gvk)
	if err != nil {
		return nil, false, err
	}
	query := "limit=" + strconv.Itoa(most) + "&labelSelector=" + url.QueryEscape(selector)
	found, next, err := c.listPage(ctx, gvk.GroupVersion(), res, "", query)
	if err != nil {
		c.forgetIfUnknown(gvk, err)
		return nil, false, err
	}
	for i := range found {
		found[i].Kind = gvk.Kind
		found[i].Keep = found[i].annotations[AnnotationPrune] == "keep"
	}
	return found, next != "", nil
}

// Annotation returns the value of an annotation, "" if there is none.
func (f *ObjectMetadata) Annotation(key string) string { return f.annotations[key] }
