// Package customresource finds the custom resources of users that would be deleted together with the CRDs of a module,
// and deletes them if the user has allowed that.
//
// # Use
//
//	found, err := customresource.FindOfUsersWithDefaultKind(ctx, customresource.Question{…})
//	if len(found.Kinds) > 0 && allowed {
//		deleted, err := found.Delete(ctx)
//	}
//
// # How it works
//
// When a module is removed, its CRDs are deleted, and with a CRD all its custom resources. The first matching row of
// this table decides what happens to a custom resource of the CRD. If no row matches, the custom resource belongs to a
// user:
//
//	1  it is in the inventory of the module, did not exist before the
//	   module, and belongs to no other module that stays                deleted with the module
//	2  it is the default custom resource of a module that stays, and
//	   a) the CRD stays                                                 stays with that module
//	   b) the CRD is deleted                                            like a custom resource of a user
//	3  it is the default custom resource of a module that is being
//	   deleted, and the policy of this module is not Ignore             deleted with that module
//	4  an object of row 1, or a custom resource of the module's kinds,
//	   is its owner (metadata.ownerReferences)                          the garbage collector deletes it after its owner
//
// An upgrade deletes CRDs, too, but it does not delete the module: then row 3 matches no custom resource of the module.
//
// Usually no custom resource belongs to a user, and the search costs one list request for the metadata of the custom
// resources of each CRD. If this process does not know the kind of the CRD, for example after a restart, there are two
// additional discovery requests. If the custom resources of row 4 are very many, one call does not read them all, and
// the next call continues the search (Search). Until the search is complete, its CRDs must not be deleted.
//
// Only the operator of the module can remove the finalizers of custom resources of row 4. Dependents counts these
// custom resources, so that the caller can wait for them before it deletes the operator.
//
// # What it does not do
//
// The package does not delete a custom resource that another module has applied, even if the user allows the deletion,
// because the other module would create it again. Until this other module is removed, the package reports the custom
// resource that the other module has applied.
package customresource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Question names the CRDs of one module. The package then finds out which custom resources of these CRDs belong to
// users.
type Question struct {
	// Manifests returns the Manifests of the runtime. The Manifest of the module in question may be one of them.
	// Manifests is called only if there are custom resources to check.
	Manifests func(context.Context) ([]v1beta2.Manifest, error)
	// Runtime is the cluster of the module.
	Runtime *apply.Cluster
	// Manifest is the Manifest of the module.
	Manifest *v1beta2.Manifest
	// Inventory has the objects that belong to the module.
	Inventory []apply.Ref
	// CRDs are the CRDs that are about to be deleted. Objects of other kinds, and CRDs with the flag Keep, are ignored.
	CRDs []apply.Ref
	// StayingCRDs are CRDs that are not deleted. After the removal of the module, no operator would handle their custom
	// resources.
	StayingCRDs []apply.Ref
	// Search is the position of a search that needs several calls. If Search is nil, the search is not continued.
	Search *Search
}

// Found has the custom resources of users that were found, by kind.
type Found struct {
	Kinds []Kind
	// Dependents are set if Kinds is empty.
	Dependents Dependents
	question   Question
	own        ownership
}

// Kind has those custom resources of one kind that belong to users.
type Kind struct {
	// CRD is the CRD of the kind.
	CRD  apply.Ref
	kind schema.GroupKind
	// items are the first few custom resources of users.
	items []apply.ObjectMetadata
	// count is the number of all custom resources of users.
	count int
	// isUnread is true if custom resources were not read yet, and no custom resource before them belongs to a user.
	isUnread bool
}

const (
	// firstPage plus the number of the module's own custom resources is the limit of the first list request for a CRD.
	// So the first request lists a few custom resources of users even if the module's own custom resources come first
	// in the list.
	firstPage = 10
	// nextPage is the number of custom resources that each further request lists, and that one call of Delete deletes.
	nextPage = 500
	// maxPages is the maximum number of further list requests of one search, over all CRDs: 20,000 custom resources. A
	// module that has more of them needs several searches. The requests end earlier when a custom resource of a user is
	// found.
	maxPages = 40
	// maxDeletePages is the maximum number of list requests for a CRD in one call of Delete.
	maxDeletePages = 10
)

// ResolveResourceRef returns the reference to the default custom resource of a Manifest as the runtime identifies it:
// if the kind is cluster-scoped, the namespace is left out, although spec.resource has one. ResolveResourceRef returns
// the zero Ref if the module has no default custom resource.
func ResolveResourceRef(ctx context.Context, runtime *apply.Cluster, m *v1beta2.Manifest) (apply.Ref, error) {
	if m.Spec.Resource == nil {
		return apply.Ref{}, nil
	}
	return runtime.ResolveNamespace(ctx, declaredRef(m))
}

// declaredRef returns a reference to the default custom resource of a Manifest, with the kind, the namespace and the
// name from the spec of the Manifest.
func declaredRef(m *v1beta2.Manifest) apply.Ref {
	cr := m.Spec.Resource
	gvk := cr.GroupVersionKind()
	return apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: cr.GetNamespace(),
		Name: cr.GetName()}
}

// FindOfUsersWithDefaultKind is like FindOfUsers, and also searches for custom resources of the same kind as the
// default custom resource of the module, even if another component has created the CRD of this kind. After the removal
// of the module, no operator would handle custom resources of this kind.
func FindOfUsersWithDefaultKind(ctx context.Context, q Question) (Found, error) {
	q, err := q.WithDefaultResourceCRD(ctx, q.Manifest)
	if err != nil {
		return Found{}, err
	}
	return FindOfUsers(ctx, q)
}

// WithDefaultResourceCRD returns the Question, with the CRD of the default custom resource of a module. If the CRD is
// not about to be deleted, WithDefaultResourceCRD adds it to StayingCRDs.
func (q Question) WithDefaultResourceCRD(ctx context.Context, m *v1beta2.Manifest) (Question, error) {
	if m.Spec.Resource == nil {
		return q, nil
	}
	crd, err := crdOf(ctx, q.Runtime, declaredRef(m))
	switch {
	case loop.Reason(err) == apply.KindUnknown:
		return q, nil
	case err != nil:
		return q, err
	case !slices.ContainsFunc(slices.Concat(q.CRDs, q.StayingCRDs), crd.SameObject):
		q.StayingCRDs = append(slices.Clone(q.StayingCRDs), crd)
	}
	return q, nil
}

// crdOf returns the CRD of a custom resource. An error with reason KindUnknown means that the runtime does not serve
// the kind.
func crdOf(ctx context.Context, runtime *apply.Cluster, ref apply.Ref) (apply.Ref, error) {
	resource, _, err := runtime.Resource(ctx, ref)
	return apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		Name: resource.Resource + "." + resource.Group}, err
}

// CRDsInUse returns the CRDs that objects of a module need. If the runtime does not serve the kind of such an object,
// CRDsInUse returns all CRDs of its group. CRDsInUse sends a discovery request only for a kind that is not cached.
func CRDsInUse(ctx context.Context, runtime *apply.Cluster, crds, objects []apply.Ref) (used []apply.Ref, _ error) {
	isOfGroup := func(crd apply.Ref, group string) bool {
		_, ofCRD, _ := strings.Cut(crd.Name, ".")
		return ofCRD == group
	}
	for _, o := range objects {
		if !slices.ContainsFunc(crds, func(crd apply.Ref) bool { return isOfGroup(crd, o.Group) }) {
			continue
		}
		needed, err := crdOf(ctx, runtime, o)
		if err != nil && loop.Reason(err) != apply.KindUnknown {
			return nil, fmt.Errorf("looking for the CRD of %s: %w", o, err)
		}
		for _, crd := range crds {
			if isOfGroup(crd, o.Group) && (err != nil || crd.SameObject(needed)) &&
				!slices.ContainsFunc(used, crd.SameObject) {
				used = append(used, crd)
			}
		}
	}
	return used, nil
}

// FindOfUsers returns the custom resources of users that would be deleted together with the CRDs.
func FindOfUsers(ctx context.Context, q Question) (Found, error) {
	f := Found{question: q}
	own := ownership{inventory: q.Inventory}
	var pages []apply.Instances
	var crds []apply.Ref
	for _, crd := range slices.Concat(q.CRDs, q.StayingCRDs) {
		if crd.Kind != "CustomResourceDefinition" || crd.Keep {
			continue
		}
		page, err := q.Runtime.ListInstances(ctx, crd.Name, firstPage+maxOwnCount(q, crd), "")
		if err != nil {
			return Found{}, fmt.Errorf("looking for custom resources of users: %w", err)
		}
		own.addKind(page.Kind.GroupKind(), slices.ContainsFunc(q.StayingCRDs, crd.SameObject))
		if len(page.Items) > 0 {
			pages, crds = append(pages, page), append(crds, crd)
		}
	}
	if len(pages) == 0 {
		q.Search.end()
		return f, nil
	}
	if err := own.readManifests(ctx, q); err != nil {
		return Found{}, err
	}
	f.own = own
	f.Dependents = q.Search.resume(time.Now())
	pagesLeft, isComplete := maxPages, true
	for i, page := range pages {
		if f.own.hasKeptInventoryObject(page.Kind.GroupKind()) {
			continue
		}
		k, err := f.searchKind(ctx, crds[i], page, &pagesLeft)
		if err != nil {
			q.Search.end() // a continue token may have expired
			return Found{}, fmt.Errorf("looking for custom resources of users: %w", err)
		}
		isComplete = isComplete && !k.isUnread
		if k.count > 0 || k.isUnread {
			f.Kinds = append(f.Kinds, k)
		}
	}
	if isComplete || f.Count() > 0 {
		q.Search.end()
	} else {
		q.Search.suspend(f.Dependents)
	}
	if len(f.Kinds) > 0 {
		f.Dependents = Dependents{}
	}
	return f, nil
}

// searchKind searches the custom resources of one CRD, from its first page on. If an earlier call has begun the search,
// searchKind continues it after the first page. The parameter pagesLeft is the number of list requests that are left;
// searchKind reduces it.
func (f *Found) searchKind(ctx context.Context, crd apply.Ref, page apply.Instances, pagesLeft *int) (Kind, error) {
	k := Kind{CRD: crd, kind: page.Kind.GroupKind()}
	next, isContinued := f.question.Search.position(crd)
	seen := 0
	for isFirst := true; ; isFirst = false {
		for i := range page.Items {
			if o := &page.Items[i]; f.own.isOfUser(o) {
				k.items = append(k.items, *o)
			} else if seen++; !isFirst || !isContinued { // otherwise the earlier call has counted it
				f.Dependents.add(&f.own, o, k.kind)
			}
		}
		if isFirst && isContinued {
			page.Continue = next
		}
		if len(k.items) > 0 {
			k.count = len(k.items) + max(0, page.More-max(0, f.own.countModuleObjects(k.kind)-seen))
			return k, nil
		}
		k.isUnread = page.Continue != "" && *pagesLeft == 0
		if page.Continue == "" || k.isUnread {
			f.question.Search.setPosition(crd, page.Continue)
			return k, nil
		}
		*pagesLeft--
		var err error
		if page, err = f.question.Runtime.ListInstances(ctx, crd.Name, nextPage, page.Continue); err != nil {
			return Kind{}, err
		}
	}
}

const (
	// searchPeriod is the maximum time from the first to the last call of one search. Custom resources that users
	// create after the first call may be missing in the pages that follow, so a search that takes longer begins again.
	// The period is as long as API servers usually accept a continue token: two intervals of the compaction of etcd. If
	// the caller waits up to 30 seconds between two calls, a search of this period reads 400,000 custom resources.
	searchPeriod = 10 * time.Minute
	// maxToken is the maximum length of a continue token that a Search keeps, in bytes. The token of an API server has
	// the key of an object, which is shorter than 1 KiB. If a token is longer, the next call begins at the first page.
	maxToken = 4 << 10
)

// Search is the position of a search that one call of FindOfUsers could not complete, because the module has very many
// custom resources. The zero value is ready to use. A Search belongs to one module, and only one call may use it at a
// time.
type Search struct {
	began time.Time         // of the first call; zero if there is no search to continue
	next  map[string]string // by the name of a CRD: the token of the next page, or "" if all pages were read
	read  Dependents        // the numbers of the pages that were read
}

// resume returns what the former calls of a search have counted. If there is no search to continue, resume begins one.
func (s *Search) resume(now time.Time) Dependents {
	if s == nil {
		return Dependents{}
	}
	if s.began.IsZero() || now.Sub(s.began).Abs() > searchPeriod {
		*s = Search{began: now}
	}
	return s.read
}

// position returns the token of the next page of a CRD. position returns false if no page of the CRD was read.
func (s *Search) position(crd apply.Ref) (next string, isKnown bool) {
	if s != nil {
		next, isKnown = s.next[crd.Name]
	}
	return next, isKnown
}

// setPosition sets the token of the next page of a CRD.
func (s *Search) setPosition(crd apply.Ref, next string) {
	if s == nil || len(next) > maxToken {
		return
	}
	if s.next == nil {
		s.next = map[string]string{}
	}
	s.next[crd.Name] = strings.Clone(next)
}

// suspend keeps what the calls of a search have counted so far.
func (s *Search) suspend(d Dependents) {
	if s != nil {
		s.read = Dependents{Finalized: d.Finalized, Pending: d.Pending}
	}
}

// end makes the next call begin a new search.
func (s *Search) end() {
	if s != nil {
		*s = Search{}
	}
}

// maxOwnCount returns the maximum number of objects of the module that are custom resources of a CRD. maxOwnCount
// counts the objects in the API group of the CRD.
func maxOwnCount(q Question, crd apply.Ref) int {
	n := 0
	_, group, _ := strings.Cut(crd.Name, ".")
	for _, r := range q.Inventory {
		if r.Group == group {
			n++
		}
	}
	if cr := q.Manifest.Spec.Resource; cr != nil && cr.GroupVersionKind().Group == group {
		n++
	}
	return n
}
