package apply

import (
	"context"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Patch changes a part of one object. Use Patch for data that several clients write. With a subresource such as
// "status", Patch changes only the subresource. kind is a merge patch or a JSON patch; owner is the field manager.
// Patch returns the object after the change. Patch returns the same errors as Get.
func (c *Cluster) Patch(ctx context.Context, ref Ref, kind types.PatchType, subresource string, patch []byte,
	owner string) (*unstructured.Unstructured, error) {
	if err := validatePathSegments(ref); err != nil {
		return nil, err
	}
	res, err := c.resourceOf(ctx, ref.GVK())
	if err != nil {
		return nil, err
	}
	path := res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name)
	if subresource != "" {
		path += "/" + subresource
	}
	body := newBuffer()
	body.data = append(body.data, patch...)
	u := &unstructured.Unstructured{}
	r := request{
		method: http.MethodPatch, path: path, query: "fieldManager=" + url.QueryEscape(owner),
		contentType: string(kind), body: body, operation: "changing", ref: ref,
	}
	err = c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) (err error) {
		u.Object, err = decodeObject(body, ref)
		return err
	})
	if err != nil {
		c.forgetIfUnknown(ref.GVK(), err)
		return nil, err
	}
	return u, nil
}

// Resource returns how the cluster serves the kind of ref: its plural name, and whether it is namespaced. Resource
// sends a discovery request only if the kind is neither built in nor cached. An error with reason KindUnknown means
// that the kind is not served.
func (c *Cluster) Resource(ctx context.Context, ref Ref) (resource schema.GroupVersionResource,
	namespaced bool, err error) {
	res, err := c.resourceOf(ctx, ref.GVK())
	if err != nil {
		return schema.GroupVersionResource{}, false, err
	}
	return ref.GVK().GroupVersion().WithResource(res.plural), res.namespaced, nil
}
