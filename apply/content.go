package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Before a namespace is deleted, the package searches for other objects in the namespace. maxListed and namesShown
// limit this search and the message about the objects.
const (
	maxListed  = 50 // objects of a kind
	namesShown = 3  // of each kind in the message
)

// maxKinds is the maximum number of kinds of a cluster whose objects are listed, each with a request of its own. A
// cluster with many operators has up to 1,500 kinds, and a cluster with the whole Crossplane providers of three clouds
// has about 4,000. More kinds are an error: if some kinds were left out, objects of these kinds would seem not to
// exist.
const maxKinds = 5000

// tooManyKinds returns the Error of a cluster with more than maxKinds kinds.
func tooManyKinds() *Error {
	return &Error{Operation: "reading which kinds are served", reason: ServerFault,
		Message: fmt.Sprintf("the cluster serves more than %d kinds whose objects can be listed", maxKinds),
		advice:  "delete CustomResourceDefinitions that are not needed; it is retried"}
}

// listedKind is a namespaced kind that can be listed.
type listedKind struct {
	gvk schema.GroupVersionKind
	resource
}

// foreignContentMessage returns a message about the objects that the deletion of a namespace would delete although they
// do not belong to the installation. foreignContentMessage returns "" if there are none. The objects of the inventory
// are in an earlier phase than their namespace, so an object of the inventory that still exists was left in the
// cluster, or was created again by another client. foreignContentMessage sends two discovery requests, and one list of
// metadata for each namespaced kind.
func (d *deleteCall) foreignContentMessage(ctx context.Context, namespace string) (string, error) {
	kinds, namespaced, err := d.namespacedKinds(ctx)
	if err != nil {
		return "", err
	}
	found := make([]string, len(kinds))
	errs := make([]error, len(kinds))
	err = d.forEachConcurrently(len(kinds), func(i int) error {
		found[i], errs[i] = d.describeForeignObjects(ctx, kinds[i], namespace, namespaced)
		return errs[i]
	})
	if err = cmp.Or(err, errors.Join(errs...)); err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return "", e
		}
		return "", err
	}
	found = slices.DeleteFunc(found, func(text string) bool { return text == "" })
	if len(found) == 0 {
		return "", nil
	}
	return clipMessage("it contains objects that do not belong to the module: " + strings.Join(found, ", ") +
		": move or delete them, or delete the namespace"), nil
}

// describeForeignObjects returns the number of objects of a kind that prevent the deletion of their namespace, and a
// text with the names of the first few.
func (d *deleteCall) describeForeignObjects(ctx context.Context, kind listedKind, namespace string,
	namespaced map[schema.GroupKind]bool) (string, error) {
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
			Continue        string `json:"continue"`
		} `json:"metadata"`
		Items []struct {
			Metadata metadata `json:"metadata"`
		} `json:"items"`
	}
	r := request{method: http.MethodGet, path: kind.urlPath(kind.gvk.GroupVersion(), namespace, ""), accept: listType,
		operation: "listing " + kind.plural + " of namespace " + namespace}
	names, more := []string{}, false
	for q := (pageQuery{limit: maxListed}); ; {
		err := d.requestPageShrinkingIfTooLarge(ctx, &r, &q, func(_ int, body []byte) error {
			err := json.Unmarshal(body, &list)
			if err == nil && list.Metadata.ResourceVersion == "" {
				err = errNoList
			}
			return err
		})
		switch {
		case isNotFoundOrUnserved(err) || err != nil && isMethodNotAllowed(err):
			return "", nil // the kind is not served any more, or cannot be listed
		case err != nil:
			return "", err
		}
		for i := range list.Items {
			o := &list.Items[i].Metadata
			ref := Ref{Group: kind.gvk.Group, Version: kind.gvk.Version, Kind: kind.gvk.Kind, Namespace: namespace,
				Name: o.Name}
			if !objectAllowsNamespaceDeletion(ref, o, namespaced) && !d.own.Inventory.SameObject(ref) {
				names = append(names, o.Name)
			}
		}
		more = list.Metadata.Continue != ""
		if !more || len(names) > 0 || !q.advanceTo(list.Metadata.Continue) {
			break
		}
		list.Items, list.Metadata.Continue = nil, ""
	}
	if len(names) == 0 {
		if more {
			return "", endlessList(kind.plural)
		}
		return "", nil
	}
	slices.Sort(names)
	count, shown := fmt.Sprint(len(names)), strings.Join(names[:min(namesShown, len(names))], ", ")
	if more {
		count = "at least " + count
	}
	if more || len(names) > namesShown {
		shown += ", …"
	}
	return fmt.Sprintf("%s %s (%s)", count, schema.GroupKind{Group: kind.gvk.Group, Kind: kind.gvk.Kind}, shown), nil
}

// isMethodNotAllowed reports whether an error means that the kind cannot be listed.
func isMethodNotAllowed(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == http.StatusMethodNotAllowed
}

// objectAllowsNamespaceDeletion reports whether an object does not prevent the deletion of its namespace.
// objectAllowsNamespaceDeletion returns the result of the first row that matches in the table below.
//
//	1  it is being deleted                                              yes
//	2  the cluster creates it in each namespace, or only for a time     yes
//	3  its controller is a namespaced object, which is counted itself   yes
//	4  otherwise                                                        no
func objectAllowsNamespaceDeletion(ref Ref, m *metadata, namespaced map[schema.GroupKind]bool) bool {
	if m.DeletionTimestamp != nil || isMadeByCluster(ref) {
		return true
	}
	return slices.ContainsFunc(m.OwnerReferences, func(o ownerReference) bool {
		version, _ := schema.ParseGroupVersion(o.APIVersion)
		return o.Controller && namespaced[schema.GroupKind{Group: version.Group, Kind: o.Kind}]
	})
}

// isMadeByCluster reports whether the cluster, or a mesh in it, creates the object in each namespace. Events, Leases
// and endpoints are always treated as created by the cluster, because their deletion would lose no data of users.
func isMadeByCluster(ref Ref) bool {
	switch ref.groupKind() {
	case schema.GroupKind{Kind: "Event"}, schema.GroupKind{Group: "events.k8s.io", Kind: "Event"},
		schema.GroupKind{Kind: "Endpoints"}, schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"},
		schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}:
		return true
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return ref.Name == "default"
	case schema.GroupKind{Kind: "ConfigMap"}:
		return ref.Name == "kube-root-ca.crt" || ref.Name == "istio-ca-root-cert"
	}
	return false
}

// namespacedKinds finds the namespaced kinds of the cluster with two discovery requests. The result "deletable" has the
// kinds that can be listed and deleted, each in its preferred version. The result "all" has every namespaced kind,
// including kinds that cannot be listed or deleted.
func (c *Cluster) namespacedKinds(ctx context.Context) (deletable []listedKind, all map[schema.GroupKind]bool,
	err error) {
	all = map[schema.GroupKind]bool{}
	err = c.visitKindVersions(ctx, func(kind listedKind, canList bool) {
		if kind.namespaced && !all[kind.gvk.GroupKind()] {
			all[kind.gvk.GroupKind()] = true
			if canList {
				deletable = append(deletable, kind)
			}
		}
	})
	if err == nil && len(deletable) > maxKinds {
		return nil, nil, tooManyKinds()
	}
	return deletable, all, err
}

// discoverListableDeletableKinds returns the kinds that can be listed and deleted, each in its preferred version.
// discoverListableDeletableKinds does not return kinds whose objects the cluster creates by itself, such as Event. To
// find the kinds, discoverListableDeletableKinds sends two discovery requests.
func (c *Cluster) discoverListableDeletableKinds(ctx context.Context) ([]listedKind, error) {
	var kinds []listedKind
	known := map[schema.GroupKind]bool{}
	err := c.visitKindVersions(ctx, func(kind listedKind, canList bool) {
		if canList && !known[kind.gvk.GroupKind()] {
			known[kind.gvk.GroupKind()] = true
			kinds = append(kinds, kind)
		}
	})
	if err == nil && len(kinds) > maxKinds {
		return nil, tooManyKinds()
	}
	return kinds, err
}

// visitKindVersions calls visit for each kind that the cluster serves, and for the preferred version of a kind first.
// canList is true for kinds that can be listed and deleted, and whose objects the cluster does not create by itself.
// visitKindVersions sends two discovery requests.
func (c *Cluster) visitKindVersions(ctx context.Context, visit func(kind listedKind, canList bool)) error {
	for _, path := range []string{"/api", "/apis"} {
		var answer struct {
			Kind  string `json:"kind"`
			Items []struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
				Versions []struct {
					Version   string `json:"version"`
					Resources []struct {
						Resource     string   `json:"resource"`
						Scope        string   `json:"scope"`
						Verbs        []string `json:"verbs"`
						ResponseKind struct {
							Kind string `json:"kind"`
						} `json:"responseKind"`
					} `json:"resources"`
				} `json:"versions"`
			} `json:"items"`
		}
		r := request{method: http.MethodGet, path: path, accept: discoveryType,
			operation: "reading which kinds are served"}
		if err := c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
			return json.Unmarshal(body,
				&answer)
		}); err != nil {
			return err
		}
		if answer.Kind != "APIGroupDiscoveryList" {
			return &Error{Operation: "reading which kinds are served", reason: ServerFault,
				Message: "the API server does not support aggregated discovery (Kubernetes 1.30 or later)"}
		}
		for _, group := range answer.Items {
			for _, v := range group.Versions { // the preferred version is first
				for _, res := range v.Resources {
					gvk := schema.GroupVersionKind{Group: group.Metadata.Name, Version: v.Version,
						Kind: res.ResponseKind.Kind}
					visit(listedKind{gvk, resource{res.Resource, res.Scope == "Namespaced"}},
						slices.Contains(res.Verbs, "list") && slices.Contains(res.Verbs, "delete") &&
							!isMadeByCluster(Ref{Group: gvk.Group, Kind: gvk.Kind}))
				}
			}
		}
	}
	return nil
}
