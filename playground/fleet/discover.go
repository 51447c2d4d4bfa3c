package fleet

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
)

// aggregatedType is the content type of aggregated discovery.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// builtinVersion is a group and version of built-in kinds.
type builtinVersion struct {
	group, version string
	list           metav1.APIResourceList
}

// document is an answer of the discovery API.
type document struct {
	data []byte
	etag string // only for aggregated discovery
}

// documents is a cache of discovery answers. A discovery document is made when a client first requests it.
type documents struct {
	mu  sync.Mutex
	all map[string]*document // by path, with a star for aggregated discovery; guarded by mu
}

// get returns a document from the cache. If the document is missing, get calls make and stores the result.
func (d *documents) get(key string, make func() *document) *document {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.all[key]; ok {
		return known
	}
	if d.all == nil {
		d.all = map[string]*document{}
	}
	made := make()
	d.all[key] = made
	return made
}

// loadBuiltinDiscovery reads the discovery of the built-in kinds from the handlers, aggregated and not aggregated.
func (f *Fleet) loadBuiltinDiscovery(ctx context.Context) error {
	ask := func(path, accept string, into any) error {
		a, err := serveRequest(ctx, f.handler, &transaction{}, http.MethodGet, path, http.Header{"Accept": {accept}},
			nil)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(a.body.Bytes(), into); err != nil || a.code != http.StatusOK {
			return fmt.Errorf("asking the handlers for %s: code %d: %w", path, a.code, err)
		}
		return nil
	}
	if err := ask("/api", aggregatedType, &f.legacy); err != nil {
		return err
	}
	var all apidiscoveryv2.APIGroupDiscoveryList
	if err := ask("/apis", aggregatedType, &all); err != nil {
		return err
	}
	f.groups = all.Items
	for _, group := range slices.Concat(f.legacy.Items, f.groups) {
		for _, v := range group.Versions {
			one := builtinVersion{group: group.Name, version: v.Version}
			path := "/api/" + v.Version
			if group.Name != "" {
				path = "/apis/" + group.Name + "/" + v.Version
			}
			if err := ask(path, "application/json", &one.list); err != nil {
				return err
			}
			f.builtinVersions = append(f.builtinVersions, one)
		}
	}
	return nil
}

// groupsOf returns the API groups of a surface, which is the set of custom kinds of a cluster. The built-in groups are
// first.
func (f *Fleet) groupsOf(s *surface) []apidiscoveryv2.APIGroupDiscovery {
	groups := slices.Clone(f.groups)
	for _, d := range s.definitions {
		i := slices.IndexFunc(
			groups, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == d.crd.Spec.Group })
		if i < 0 {
			groups = append(groups,
				apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: d.crd.Spec.Group}})
			i = len(groups) - 1
		}
		groups[i].Versions = addVersions(slices.Clone(groups[i].Versions), d)
	}
	slices.SortStableFunc(groups[len(f.groups):], func(
		a, b apidiscoveryv2.APIGroupDiscovery) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return groups
}

// addVersions adds the versions of a CustomResourceDefinition to the versions of its group. The newest stable version
// comes first.
func addVersions(versions []apidiscoveryv2.APIVersionDiscovery, d *definition) []apidiscoveryv2.APIVersionDiscovery {
	for _, v := range d.crd.Spec.Versions {
		if !v.Served {
			continue
		}
		i := slices.IndexFunc(
			versions, func(known apidiscoveryv2.APIVersionDiscovery) bool { return known.Version == v.Name })
		if i < 0 {
			versions = append(versions, apidiscoveryv2.APIVersionDiscovery{Version: v.Name,
				Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
			i = len(versions) - 1
		}
		versions[i].Resources = append(slices.Clone(versions[i].Resources), discoveryOf(d, &v))
	}
	slices.SortStableFunc(versions, func(a, b apidiscoveryv2.APIVersionDiscovery) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	return versions
}

// discoveryOf returns the entry of a CustomResourceDefinition in aggregated discovery.
func discoveryOf(d *definition,
	v *apiextensionsv1.CustomResourceDefinitionVersion) apidiscoveryv2.APIResourceDiscovery {
	names := &d.crd.Status.AcceptedNames
	r := apidiscoveryv2.APIResourceDiscovery{
		Resource: names.Plural, SingularResource: names.Singular, Scope: apidiscoveryv2.ScopeCluster,
		ShortNames: names.ShortNames, Categories: names.Categories,
		ResponseKind: &metav1.GroupVersionKind{Group: d.crd.Spec.Group, Version: v.Name, Kind: names.Kind},
		Verbs:        customVerbs(d),
	}
	if d.crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		r.Scope = apidiscoveryv2.ScopeNamespace
	}
	if v.Subresources != nil && v.Subresources.Status != nil {
		r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: "status",
			ResponseKind: r.ResponseKind, Verbs: subVerbs})
	}
	if v.Subresources != nil && v.Subresources.Scale != nil {
		r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: "scale",
			ResponseKind: &metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
			Verbs:        subVerbs})
	}
	return r
}

var subVerbs = metav1.Verbs{"get", "patch", "update"}

func customVerbs(d *definition) metav1.Verbs {
	if d.terminating {
		return metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	}
	return metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
}

// discoveryDocument returns a cluster's answer for a path of discovery. discoveryDocument returns nil if the path does
// not exist.
func (c *Cluster) discoveryDocument(path string, aggregated bool) *document {
	s := c.surface.Load()
	key := path
	if aggregated {
		key = "*" + path
	}
	return s.documents.get(key, func() *document {
		switch {
		case path == "/api" && aggregated:
			return encodeDocument(c.fleet.legacy, true)
		case path == "/apis" && aggregated:
			return encodeDocument(apidiscoveryv2.APIGroupDiscoveryList{
				TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
				Items:    c.fleet.groupsOf(s),
			}, true)
		case path == "/api":
			return encodeDocument(metav1.APIVersions{
				TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
				ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0",
					ServerAddress: "127.0.0.1:443"}},
			}, false)
		case path == "/apis":
			list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
			for _, g := range c.fleet.groupsOf(s) {
				list.Groups = append(list.Groups, plainGroup(g))
			}
			return encodeDocument(list, false)
		}
		return c.fleet.groupDocument(s, strings.Split(strings.TrimPrefix(path, "/"), "/"))
	})
}

// groupDocument returns the document for /api/v1, /apis/GROUP or /apis/GROUP/VERSION.
func (f *Fleet) groupDocument(s *surface, pathParts []string) *document {
	if pathParts[0] == "api" {
		pathParts = []string{"apis", "", pathParts[1]}
	}
	if len(pathParts) == 2 {
		for _, g := range f.groupsOf(s) {
			if g.Name == pathParts[1] {
				plain := plainGroup(g)
				plain.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				return encodeDocument(plain, false)
			}
		}
		return nil
	}
	for _, v := range f.builtinVersions {
		if v.group == pathParts[1] && v.version == pathParts[2] {
			return encodeDocument(v.list, false)
		}
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: pathParts[1] + "/" + pathParts[2]}
	for _, d := range s.definitions {
		if d.crd.Spec.Group == pathParts[1] {
			list.APIResources = append(list.APIResources, plainResources(d, pathParts[2])...)
		}
	}
	if len(list.APIResources) == 0 {
		return nil
	}
	return encodeDocument(list, false)
}

// plainGroup returns a group in the form of discovery that is not aggregated.
func plainGroup(g apidiscoveryv2.APIGroupDiscovery) metav1.APIGroup {
	plain := metav1.APIGroup{Name: g.Name}
	for _, v := range g.Versions {
		plain.Versions = append(plain.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.Name + "/" + v.Version,
			Version: v.Version})
	}
	plain.PreferredVersion = plain.Versions[0]
	return plain
}

// plainResources returns the resources of a CustomResourceDefinition in the form of discovery that is not aggregated.
func plainResources(d *definition, version string) []metav1.APIResource {
	names, namespaced := &d.crd.Status.AcceptedNames, d.crd.Spec.Scope == apiextensionsv1.NamespaceScoped
	var all []metav1.APIResource
	hash := ""
	for _, v := range d.crd.Spec.Versions {
		if v.Storage {
			hash = discovery.StorageVersionHash(d.crd.Spec.Group, v.Name, names.Kind)
		}
	}
	for _, v := range d.crd.Spec.Versions {
		if v.Name != version || !v.Served {
			continue
		}
		all = append(all, metav1.APIResource{Name: names.Plural, SingularName: names.Singular, Namespaced: namespaced,
			Kind: names.Kind, Verbs: customVerbs(d),
			ShortNames: names.ShortNames, Categories: names.Categories, StorageVersionHash: hash})
		if v.Subresources != nil && v.Subresources.Status != nil {
			all = append(all, metav1.APIResource{Name: names.Plural + "/status", Namespaced: namespaced,
				Kind: names.Kind, Verbs: subVerbs})
		}
		if v.Subresources != nil && v.Subresources.Scale != nil {
			all = append(all, metav1.APIResource{Group: "autoscaling", Version: "v1", Name: names.Plural + "/scale",
				Namespaced: namespaced, Kind: "Scale", Verbs: subVerbs})
		}
	}
	return all
}

// encodeDocument encodes a document. If tagged is set, the document has an ETag.
func encodeDocument(content any, tagged bool) *document {
	data, err := json.Marshal(content)
	if err != nil {
		return nil
	}
	d := &document{data: data}
	if tagged {
		d.etag = fmt.Sprintf("\"%X\"", sha512.Sum512(data))
	}
	return d
}
