package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
)

// kind describes a resource in one version, and has the handler for its requests. All clusters of a fleet that serve a
// resource in this version share one value of kind.
type kind struct {
	resource         resourceID           // the same for all versions
	storage          schema.GroupResource // the resource's name in the handlers
	group, version   string
	plural, kind     string
	listKind         string
	namespaced       bool
	custom           bool // defined by a CustomResourceDefinition
	subresources     []string
	selectableFields []string
	handler          http.Handler
}

func (k *kind) apiVersion() string {
	return schema.GroupVersion{Group: k.group, Version: k.version}.String()
}

// groupResource returns the name of the resource in counters and messages.
func (k *kind) groupResource() string {
	return schema.GroupResource{Group: k.group, Resource: k.plural}.String()
}

// path returns the path of an object of this kind.
func (k *kind) path(namespace, name, subresource string) string {
	var b strings.Builder
	if k.group == "" {
		b.WriteString("/api/" + k.version)
	} else {
		b.WriteString("/apis/" + k.group + "/" + k.version)
	}
	if k.namespaced && namespace != "" {
		b.WriteString("/namespaces/" + namespace)
	}
	b.WriteString("/" + k.plural)
	for _, part := range []string{name, subresource} {
		if part != "" {
			b.WriteString("/" + part)
		}
	}
	return b.String()
}

// kindKey identifies a kind by the parts of a path.
type kindKey struct{ group, version, plural string }

// resourceIDs assigns a number to each resource that any cluster of the fleet has ever had.
type resourceIDs struct {
	mu    sync.Mutex
	known map[schema.GroupResource]resourceID // guarded by mu
	names []string                            // guarded by mu
	all   []schema.GroupResource              // guarded by mu; same order as names
}

func (r *resourceIDs) idOf(resource schema.GroupResource) resourceID {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, ok := r.known[resource]
	if !ok {
		id = resourceID(len(r.names)) //nolint:gosec // a fleet has hundreds
		r.known[resource] = id
		r.names = append(r.names, resource.String())
		r.all = append(r.all, resource)
	}
	return id
}

// resourceOf returns the resource with an ID. resourceOf is the reverse of idOf.
func (r *resourceIDs) resourceOf(id resourceID) schema.GroupResource {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[id]
}

// definition holds the parts of a CustomResourceDefinition that are needed to serve its kind.
type definition struct {
	key         string // identifies all parts that matter for serving
	crd         *apiextensionsv1.CustomResourceDefinition
	established bool
	terminating bool
}

// readDefinition decodes a CustomResourceDefinition.
func readDefinition(text []byte) *definition {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if json.Unmarshal(text, crd) != nil {
		return nil
	}
	d := &definition{crd: crd, terminating: crd.DeletionTimestamp != nil}
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			d.established = true
		}
	}
	spec, err := json.Marshal([]any{crd.Name, crd.Spec, crd.Status.AcceptedNames, d.terminating})
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(spec)
	d.key = hex.EncodeToString(sum[:12])
	return d
}

// isEstablishedWithSpecNames reports whether the accepted names in the status equal the names in the spec.
func (d *definition) isEstablishedWithSpecNames() bool {
	names := &d.crd.Status.AcceptedNames
	return d.established && names.Plural == d.crd.Spec.Names.Plural && names.Kind == d.crd.Spec.Names.Kind &&
		slices.Equal(names.ShortNames, d.crd.Spec.Names.ShortNames) &&
		slices.Equal(names.Categories, d.crd.Spec.Names.Categories)
}

// surface is the set of custom kinds that a cluster serves. Clusters with the same CRDs share one such set in memory.
type surface struct {
	definitions []*definition // by name
	kinds       map[kindKey]*kind
	byKind      map[string]*kind // by apiVersion and kind
	documents   documents
}

// surfaces holds all sets of custom kinds that the clusters of a fleet serve. Each set is stored once, even if many
// clusters serve it.
type surfaces struct {
	fleet *Fleet
	mu    sync.Mutex
	all   map[string]*surface // by the keys of their definitions; guarded by mu
	kinds map[string][]*kind  // by the key of the definition; guarded by mu
}

// surfaceFor returns the set of custom kinds for a list of CustomResourceDefinitions. The list of CRDs must be sorted
// by name.
func (s *surfaces) surfaceFor(sortedDefinitions []*definition) (*surface, error) {
	var b strings.Builder
	for _, d := range sortedDefinitions {
		b.WriteString(d.key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.all[b.String()]; known != nil {
		return known, nil
	}
	made := &surface{definitions: sortedDefinitions, kinds: map[kindKey]*kind{}, byKind: map[string]*kind{}}
	for _, d := range sortedDefinitions {
		kinds, ok := s.kinds[d.key]
		if !ok {
			var err error
			if kinds, err = s.fleet.customKinds(d); err != nil {
				return nil, err
			}
			s.kinds[d.key] = kinds
		}
		for _, k := range kinds {
			made.kinds[kindKey{k.group, k.version, k.plural}] = k
			made.byKind[k.apiVersion()+" "+k.kind] = k
		}
	}
	s.all[b.String()] = made
	return made, nil
}

// customKinds returns the kinds of one CustomResourceDefinition. The API server's own handler of custom resources
// serves them.
func (f *Fleet) customKinds(d *definition) ([]*kind, error) {
	crd := d.crd.DeepCopy()
	crd.UID = types.UID(d.key)
	long := metav1.NewTime(time.Unix(0, 0)) // the handler waits for a time after a CRD becomes established
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: long},
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: long},
	}
	if d.terminating {
		crd.DeletionTimestamp = &long
	}
	informer := externalversions.NewSharedInformerFactory(nil, 0).Apiextensions().V1().CustomResourceDefinitions()
	handler, err := apiextensionsapiserver.NewCustomResourceDefinitionHandler(nil, nil, informer,
		http.NotFoundHandler(), storageOptions{}, admitAll{}, nil, nil, nil, 1,
		authorizerfactory.NewAlwaysAllowAuthorizer(), time.Minute, time.Minute, f.schemas, 3<<20)
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w", crd.Name, err)
	}
	if err := informer.Informer().GetIndexer().Add(crd); err != nil {
		return nil, fmt.Errorf("serving %s: %w", crd.Name, err)
	}
	names := crd.Status.AcceptedNames
	resource := schema.GroupResource{Group: crd.Spec.Group, Resource: names.Plural}
	var kinds []*kind
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		k := &kind{
			resource: f.resources.idOf(resource), storage: resource, group: crd.Spec.Group, version: v.Name,
			plural: names.Plural, kind: names.Kind, listKind: names.ListKind,
			namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, custom: true, handler: handler,
		}
		if v.Subresources != nil && v.Subresources.Status != nil {
			k.subresources = append(k.subresources, "status")
		}
		if v.Subresources != nil && v.Subresources.Scale != nil {
			k.subresources = append(k.subresources, "scale")
		}
		for _, field := range v.SelectableFields {
			k.selectableFields = append(k.selectableFields, strings.TrimPrefix(field.JSONPath, "."))
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// admitAll is an admission plugin that allows every request.
type admitAll struct{}

// Handles implements admission.Interface.
func (admitAll) Handles(admission.Operation) bool { return false }

// aliases lists resources that serve the same objects as another resource.
var aliases = map[schema.GroupResource]schema.GroupResource{
	{Group: "events.k8s.io", Resource: "events"}: {Resource: "events"},
}

// learnBuiltins makes the built-in kinds from the discovery answers of the handlers.
func (f *Fleet) learnBuiltins() {
	for _, version := range f.builtinVersions {
		for _, r := range version.list.APIResources {
			plural, sub, isSub := strings.Cut(r.Name, "/")
			key := kindKey{version.group, version.version, plural}
			if isSub {
				if k := f.builtins[key]; k != nil {
					k.subresources = append(k.subresources, sub)
				}
				continue
			}
			resource := schema.GroupResource{Group: version.group, Resource: plural}
			stored := resource
			if alias, ok := aliases[resource]; ok {
				stored = alias
			}
			k := &kind{
				resource: f.resources.idOf(stored), storage: stored, group: version.group, version: version.version,
				plural: plural, kind: r.Kind, listKind: r.Kind + "List",
				namespaced: r.Namespaced, handler: f.handler,
			}
			f.builtins[key], f.builtinKinds[k.apiVersion()+" "+k.kind] = k, k
		}
	}
}

// kindOf returns the kind that a cluster serves for a key. kindOf returns nil if the cluster serves no such kind.
func (c *Cluster) kindOf(key kindKey) *kind {
	if k := c.fleet.builtins[key]; k != nil {
		return k
	}
	if s := c.surface.Load(); s != nil {
		return s.kinds[key]
	}
	return nil
}

// servedKindOf returns the kind of an object. servedKindOf returns nil if the cluster no longer serves the kind.
func (c *Cluster) servedKindOf(v *body) *kind {
	key := v.apiVersion + " " + v.kind
	if k := c.fleet.builtinKinds[key]; k != nil {
		return k
	}
	return c.surface.Load().byKind[key]
}

// updateSurfaceLocked makes the cluster serve the custom kinds of its present CRDs.
func (c *Cluster) updateSurfaceLocked() {
	var definitions []*definition
	for _, o := range c.rangeLocked(c.fleet.definitionResource, "") {
		if d := o.body.definition; d != nil && d.established {
			definitions = append(definitions, d)
		}
	}
	s, err := c.fleet.surfaces.surfaceFor(definitions)
	if err != nil {
		return // the handlers accepted a CRD that they cannot serve
	}
	c.surface.Store(s)
}
