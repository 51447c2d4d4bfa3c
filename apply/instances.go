package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Instances are custom resources of one CustomResourceDefinition.
type Instances struct {
	// Kind is the kind of the custom resources, in the version in which they were listed. Kind is zero if the cluster
	// does not serve the kind; then there are no custom resources.
	Kind schema.GroupVersionKind
	// Items are the custom resources of one page of the list. The list contains the custom resources of all namespaces.
	Items []ObjectMetadata
	// More is the number of custom resources that follow this page. If custom resources follow but the API server does
	// not return their number (remainingItemCount), More is 1.
	More int
	// Continue is the argument for the next page. The last page has "".
	Continue string
}

// ListInstances returns one page of at most limit custom resources of a CustomResourceDefinition. crd is the name of
// the CRD, plural.group. The parameter next selects the page: Instances.Continue of the previous page, or "" for the
// first page.
//
// ListInstances sends one request for metadata. If the kind of the CRD is not cached, ListInstances first sends two
// discovery requests. If the cached version is not served any more, ListInstances uses a served version.
func (c *Cluster) ListInstances(ctx context.Context, crd string, limit int, next string) (Instances, error) {
	plural, group, ok := strings.Cut(crd, ".")
	if err := validatePathSegments(Ref{Group: group, Version: "v1", Name: plural}); err != nil || !ok {
		return Instances{}, nil // a CRD with such a name cannot exist
	}
	list := func(gvk schema.GroupVersionKind, res resource) (Instances, error) {
		found, err := c.listPage(ctx, gvk.GroupVersion(), res, "", &pageQuery{limit: limit, next: next})
		if err != nil {
			return Instances{}, err
		}
		for i := range found.items {
			found.items[i].Kind = gvk.Kind
		}
		more := found.remaining
		if found.next != "" {
			more = max(more, 1)
		}
		return Instances{Kind: gvk, Items: found.items, More: more, Continue: found.next}, nil
	}
	if gvk, res, cached := c.cachedKind(group, plural); cached {
		found, err := list(gvk, res)
		if !reasonIs(err, KindUnknown) {
			return found, err
		}
		c.forgetKind(gvk)
	}
	gvk, res, err := c.discoverKindByPlural(ctx, group, plural)
	if err != nil || gvk.Kind == "" {
		return Instances{}, err
	}
	found, err := list(gvk, res)
	if reasonIs(err, KindUnknown) { // the CRD was deleted in between
		c.forgetKind(gvk)
		return Instances{}, nil
	}
	return found, err
}

// cachedKind returns the cached kind with the given group and plural name, if there is one. If several versions are
// cached, cachedKind returns the version that API servers prefer.
func (c *Cluster) cachedKind(group, plural string) (found schema.GroupVersionKind, res resource, ok bool) {
	choose := func(gvk schema.GroupVersionKind, r resource) {
		if gvk.Group == group && r.plural == plural &&
			(!ok || version.CompareKubeAwareVersionStrings(gvk.Version, found.Version) > 0) {
			found, res, ok = gvk, r, true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for gvk, r := range c.kinds {
		choose(gvk, r)
	}
	if c.shared != nil {
		c.shared.mu.RLock()
		defer c.shared.mu.RUnlock()
		for gvk, r := range c.shared.known {
			if !c.differing[gvk] {
				choose(gvk, r)
			}
		}
	}
	return found, res, ok
}

// discoverKindByPlural finds by discovery the kind that has the given plural, in the first version of the group that
// serves this kind. If no version serves such a kind, discoverKindByPlural returns the zero kind, and caches this
// result, too.
func (c *Cluster) discoverKindByPlural(ctx context.Context, group, plural string) (
	schema.GroupVersionKind, resource, error) {
	unserved := schema.GroupVersionKind{Group: group, Kind: plural} // no kind has the name of a plural
	if c.isKnownUnserved(unserved) {
		return schema.GroupVersionKind{}, resource{}, nil
	}
	versions, err := c.servedVersions(ctx, group)
	if err != nil {
		return schema.GroupVersionKind{}, resource{}, err
	}
	for n, v := range versions {
		if n == maxVersions {
			return schema.GroupVersionKind{}, resource{}, tooManyVersions(group, len(versions))
		}
		gv := schema.GroupVersion{Group: group, Version: v}
		kinds, err := c.servedKinds(ctx, gv)
		if err != nil {
			return schema.GroupVersionKind{}, resource{}, err
		}
		for kind, res := range kinds {
			if res.plural == plural {
				gvk := gv.WithKind(kind)
				c.mu.Lock()
				defer c.mu.Unlock()
				c.rememberLocked(gvk, res)
				return gvk, res, nil
			}
		}
	}
	c.rememberUnserved(unserved)
	return schema.GroupVersionKind{}, resource{}, nil
}

// maxVersions is the maximum number of versions of an API group in which a kind is searched, each with a request of its
// own. Most groups have up to five versions; a group for the API of a cloud, such as containerservice.azure.com, has
// up to 30. If the kind is in none of the first maxVersions versions and the group has more, the search ends with an
// error: the kind may be in one of the other versions, so it must not count as unserved.
const maxVersions = 50

// tooManyVersions returns the Error of an API group that has more than maxVersions versions.
func tooManyVersions(group string, found int) *Error {
	return &Error{Operation: "reading which versions are served of " + group, reason: ServerFault,
		Message: fmt.Sprintf("the cluster serves %d versions of the group, and none of the first %d has the kind",
			found, maxVersions),
		advice: "remove versions that are not needed from the CustomResourceDefinitions of this group; it is retried"}
}

// servedVersions returns the versions in which the cluster serves an API group. API servers list the preferred version
// first. servedVersions sends one request.
func (c *Cluster) servedVersions(ctx context.Context, group string) ([]string, error) {
	r := request{method: http.MethodGet, path: "/apis/" + group,
		operation: "reading which versions are served of " + group}
	var answer metav1.APIGroup
	err := c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
		return json.Unmarshal(body,
			&answer)
	})
	if err != nil && !reasonIs(err, KindUnknown) {
		return nil, err
	}
	var all []string
	for _, v := range answer.Versions {
		all = append(all, v.Version)
	}
	return all, nil
}

// ResolveNamespace returns ref with the namespace that its object has in the cluster: none if the kind is
// cluster-scoped. The namespace of a namespaced kind is "default" if ref has none. If the kind is not served,
// ResolveNamespace returns ref unchanged. ResolveNamespace sends a discovery request only if the kind of ref is neither
// built in nor cached.
func (c *Cluster) ResolveNamespace(ctx context.Context, ref Ref) (Ref, error) {
	res, err := c.resourceOf(ctx, ref.GVK())
	switch {
	case reasonIs(err, KindUnknown):
		return ref, nil
	case err != nil:
		return ref, err
	case !res.namespaced:
		ref.Namespace = ""
	case ref.Namespace == "":
		ref.Namespace = "default"
	}
	return ref, nil
}
