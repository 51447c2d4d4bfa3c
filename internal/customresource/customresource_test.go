package customresource

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestIsOfUser has one case for each row of the table in the package comment.
func TestIsOfUser(t *testing.T) {
	of := func(kind, namespace, name string) apply.Ref {
		return apply.Ref{Group: "example.com", Version: "v1", Kind: kind, Namespace: namespace, Name: name}
	}
	adopted := of("Thing", "a", "adopted")
	adopted.Adopted = true
	own := ownership{
		inventory: []apply.Ref{of("Thing", "a", "applied"), adopted,
			{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "a", Name: "operator"}},
		defaults: []apply.Ref{of("Thing", "kyma-system", "default"), of("Whole", "kyma-system", "default"),
			of("Thing", "", "bare")},
		kinds: []schema.GroupKind{{Group: "example.com", Kind: "Thing"}},
	}
	by := func(version, kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name}}
	}
	cases := map[string]struct {
		reason string
		object apply.Ref
		owners []metav1.OwnerReference
		want   bool
	}{
		"User":          {"nobody else made it", of("Thing", "a", "mine"), nil, true},
		"Inventory":     {"the module has applied it", of("Thing", "a", "applied"), nil, false},
		"Adopted":       {"it existed before the module", of("Thing", "a", "adopted"), nil, true},
		"Namespace":     {"the same name in another namespace", of("Thing", "b", "applied"), nil, true},
		"Default":       {"a default custom resource", of("Thing", "kyma-system", "default"), nil, false},
		"ClusterScoped": {"spec.resource has a namespace, the object has none", of("Whole", "", "default"), nil, false},
		"NoNamespace":   {"spec.resource has no namespace", of("Thing", "default", "bare"), nil, false},
		"OfKind":        {"its owner is of the module's kinds", of("Thing", "a", "x"), by("example.com/v2", "Thing", "mine"), false},
		"OfOperator":    {"its owner is the operator", of("Thing", "a", "x"), by("apps/v1", "Deployment", "operator"), false},
		"Elsewhere":     {"the operator is in another namespace", of("Thing", "b", "x"), by("apps/v1", "Deployment", "operator"), true},
		"OfOther":       {"its owner is something else", of("Thing", "a", "x"), by("v1", "ConfigMap", "mine"), true},
		"BadOwner":      {"its owner cannot be parsed", of("Thing", "a", "x"), by("a/b/c", "Thing", "mine"), true},
	}
	for name, c := range cases {
		if got := own.isOfUser(&apply.ObjectMetadata{Ref: c.object, Owners: c.owners}); got != c.want {
			t.Errorf("%s: %s: %v, want %v", name, c.reason, got, c.want)
		}
	}
	thing := schema.GroupKind{Group: "example.com", Kind: "Thing"}
	if n := own.countModuleObjects(thing); n != 3 {
		t.Errorf("%d custom resources go with modules, want 3", n)
	}
	own.stayingDefaults, own.stayingKinds = []defaultResource{{ref: own.defaults[0]}}, []schema.GroupKind{thing}
	if n := own.countModuleObjects(thing); n != 3 {
		t.Errorf("%d custom resources go with modules, want 3: two modules have the same one", n)
	}
}

// TestIsDeletedWithModule checks which custom resources of the inventory are deleted with the module.
func TestIsDeletedWithModule(t *testing.T) {
	own := ownership{others: []string{"n/stays", "n/leaves"}, staying: []string{"n/stays"}}
	cases := map[string]struct {
		reason string
		ref    apply.Ref
		owner  string
		want   bool
	}{
		"Own":      {"the module has created it", apply.Ref{}, "n/m", true},
		"Adopted":  {"it existed before the module", apply.Ref{Adopted: true}, "n/m", false},
		"Shared":   {"another module needs it", apply.Ref{Shared: true}, "n/stays", false},
		"Leaving":  {"the other module is being deleted", apply.Ref{Shared: true}, "n/leaves", true},
		"Returned": {"the other module has handed it over", apply.Ref{Shared: true}, "n/m", true},
	}
	for name, c := range cases {
		if got := own.isDeletedWithModule(c.ref, c.owner); got != c.want {
			t.Errorf("%s: %s: %v, want %v", name, c.reason, got, c.want)
		}
	}
}

// TestIsForeign has one case for each row of the table of IsForeign.
func TestIsForeign(t *testing.T) {
	applied := metav1.ManagedFieldsEntry{Manager: v1beta2.FieldOwnerApplier, Operation: "Apply"}
	status, update, user := applied, applied, applied
	status.Subresource, update.Operation, user.Manager = "status", "Update", "kubectl"
	cases := map[string]struct {
		reason         string
		owner, adopted string
		fields         metav1.ManagedFieldsEntry
		want           bool
	}{
		"Own":         {"the module has applied it", "n/m", "", applied, false},
		"Adopted":     {"it existed before the module", "n/m", "true", applied, true},
		"Edited":      {"a user has replaced all fields", "n/m", "", user, false},
		"NoOwner":     {"a former release has applied it", "", "", applied, false},
		"OtherModule": {"another module has applied it", "n/other", "", applied, false},
		"User":        {"a user has made it", "", "", user, true},
		"Copied":      {"it was copied from another cluster", "n/other", "", user, true},
		"Status":      {"only its status has fields of the field manager", "", "", status, true},
		"Update":      {"the field manager has not applied it", "", "", update, true},
	}
	for name, c := range cases {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetAnnotations(map[string]string{v1beta2.AnnotationOwnedBy: c.owner, apply.AnnotationAdopted: c.adopted})
		u.SetManagedFields([]metav1.ManagedFieldsEntry{c.fields})
		if got := IsForeign(u, "n/m"); got != c.want {
			t.Errorf("%s: %s: %v, want %v", name, c.reason, got, c.want)
		}
	}
}

// TestString checks that the text about the found custom resources has their kinds, the number of each kind and the
// first names, and that the length of the text is limited.
func TestString(t *testing.T) {
	item := func(name string) apply.ObjectMetadata {
		return apply.ObjectMetadata{Ref: apply.Ref{Namespace: "a", Name: name}}
	}
	deleting := item("d")
	deleting.DeletionTime, deleting.Finalizers = time.Now(), []string{"example.com/x", "example.com/y"}
	thing := schema.GroupKind{Group: "example.com", Kind: "Thing"}
	few := Found{Kinds: []Kind{{kind: thing, count: 9, items: []apply.ObjectMetadata{item("b"), deleting}},
		{kind: schema.GroupKind{Kind: "Other"}, count: 1, items: []apply.ObjectMetadata{{Ref: apply.Ref{Name: "c"}}}}}}
	want := "9 Thing.example.com (a/b, a/d with finalizers example.com/x example.com/y, and 7 more); 1 Other (c)"
	if got := few.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	many := Found{}
	for range 7 {
		many.Kinds = append(many.Kinds, Kind{kind: thing, count: 1,
			items: []apply.ObjectMetadata{item(strings.Repeat("n", 300))}})
	}
	if got := many.String(); len(got) > 1024 {
		t.Errorf("%d bytes", len(got))
	}
	short := Found{Kinds: make([]Kind, 7)}
	if got := short.String(); !strings.HasSuffix(got, "; 2 more kinds") {
		t.Errorf("got %q", got)
	}
}

// TestDeclaredRef checks that the reference has the namespace in the spec.
func TestDeclaredRef(t *testing.T) {
	if ref, err := ResolveResourceRef(t.Context(), nil, &v1beta2.Manifest{}); err != nil || ref != (apply.Ref{}) {
		t.Errorf("a module without a default custom resource: %v, %v", ref, err)
	}
}

// TestFindOfModuleAdopted checks that no custom resources are listed for a CRD that stays when the module is removed.
// The Question of this test has no Runtime, so any request to list custom resources would make the test fail.
func TestFindOfModuleAdopted(t *testing.T) {
	crd := apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		Name: "things.example.com", Adopted: true}
	found, err := FindOfUsersWithDefaultKind(t.Context(), Question{Manifest: &v1beta2.Manifest{},
		Inventory: []apply.Ref{crd}})
	if err != nil || found.Count() != 0 {
		t.Errorf("found %s, %v", found, err)
	}
}

// things is an API server that serves the kind Thing.
type things struct {
	*apply.Cluster
	items   []metav1.PartialObjectMetadata
	lists   int      // number of list requests
	expired bool     // continue tokens are refused
	deleted []string // the paths of the objects whose deletion was requested
}

func newThings(t *testing.T, items []metav1.PartialObjectMetadata) *things {
	t.Helper()
	f := &things{items: items}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	var err error
	f.Cluster, err = apply.New(&rest.Config{Host: s.URL}, s.Client(), apply.ClusterOptions{RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// question returns a Question about a module with the CRD of the kind Thing.
func (f *things) question() Question {
	return Question{Runtime: f.Cluster, Manifest: &v1beta2.Manifest{},
		Manifests: func(context.Context) ([]v1beta2.Manifest, error) { return nil, nil },
		CRDs: []apply.Ref{{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
			Name: "things.example.com"}}}
}

func (f *things) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch {
	case r.Method == http.MethodDelete:
		f.deleted = append(f.deleted, r.URL.Path)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Status: metav1.StatusSuccess}
	case r.URL.Path == "/apis/example.com":
		answer = metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup"}, Name: "example.com",
			Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "example.com/v1", Version: "v1"}}}
	case r.URL.Path == "/apis/example.com/v1":
		answer = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"},
			APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing", Namespaced: true}}}
	case f.expired && r.URL.Query().Has("continue"):
		w.WriteHeader(http.StatusGone)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonExpired, Code: http.StatusGone, Message: "the continue token is too old"}
	default:
		f.lists++
		page := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		to := min(from+limit, len(f.items))
		if page.Items = f.items[from:to]; to < len(f.items) {
			page.Continue = strconv.Itoa(to)
		}
		answer = page
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// child returns a custom resource whose owner is another custom resource of the kind Thing.
func child(i int, finalizers ...string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprintf("child-%d", i),
		UID: "u", Finalizers: finalizers,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "parent"}}}}
}

// mine returns a custom resource of a user.
func mine() metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "z", Name: "mine", UID: "u"}}
}

// TestDeleteAfterFirstPage checks that Delete finds a custom resource of a user behind hundreds of custom resources
// that the operator of the module has made. Otherwise each call of Delete would list the same custom resources of the
// operator, and delete nothing.
func TestDeleteAfterFirstPage(t *testing.T) {
	var items []metav1.PartialObjectMetadata
	for i := range 600 {
		items = append(items, child(i))
	}
	items = append(items, mine())
	things := newThings(t, items)
	found, err := FindOfUsers(t.Context(), things.question())
	if err != nil || found.Count() != 1 {
		t.Fatalf("found %s, %v, want z/mine", found, err)
	}
	accepted, err := found.Delete(t.Context())
	if err != nil || len(accepted) != 1 || accepted[0].Name != "mine" ||
		!slices.Equal(things.deleted, []string{"/apis/example.com/v1/namespaces/z/things/mine"}) {
		t.Errorf("accepted %v, %v, sent %q, want the deletion of z/mine", accepted, err, things.deleted)
	}
}

// TestSearchOfVeryManyCustomResources checks that a search which reads more custom resources than one call may read
// ends in a later call. Until then, the custom resources that were not read count neither as custom resources of users
// nor as custom resources that may be deleted.
func TestSearchOfVeryManyCustomResources(t *testing.T) {
	const number = maxPages*nextPage + 2*nextPage
	var children []metav1.PartialObjectMetadata
	for i := range number {
		children = append(children, child(i))
	}
	children[0], children[number-1] = child(0, "example.com/operator"), child(number-1, "example.com/operator")
	cases := map[string]struct {
		reason     string
		items      []metav1.PartialObjectMetadata
		users      int
		dependents int
	}{
		"NoUser":    {"the operator has made all of them", children, 0, 2},
		"UsersLast": {"a user has made the last one", append(slices.Clone(children), mine()), 1, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			things := newThings(t, c.items)
			search := &Search{}
			q := things.question()
			q.Search = search
			first, err := FindOfUsers(t.Context(), q)
			if err != nil || len(first.Kinds) != 1 || first.Count() != 0 || things.lists != 1+maxPages ||
				!strings.Contains(first.WaitMessage(), "more than 20000 custom resources of Thing.example.com") ||
				len(first.WithoutFoundCRDs(q.CRDs)) != 0 || first.Dependents.Finalized != 0 {
				t.Fatalf("%s: the first call: %v, %d lists, %q", c.reason, err, things.lists, first.WaitMessage())
			}
			things.lists = 0
			second, err := FindOfUsers(t.Context(), q)
			if err != nil || second.Count() != c.users || len(second.Kinds) != c.users ||
				second.Dependents.Finalized != c.dependents || things.lists > 4 {
				t.Errorf("%s: the second call: %v, %d of users in %d kinds, dependents %+v, %d lists", c.reason, err,
					second.Count(), len(second.Kinds), second.Dependents, things.lists)
			}
			if !search.began.IsZero() || len(search.next) > 0 {
				t.Errorf("%s: the search is complete, but has the position %v", c.reason, search.next)
			}
			if c.users == 0 {
				return
			}
			accepted, err := second.Delete(t.Context())
			if err != nil || len(accepted) != 1 || accepted[0].Name != "mine" {
				t.Errorf("%s: accepted the deletion of %v, %v", c.reason, accepted, err)
			}
		})
	}
}

// TestSearchBeginsAgain checks that a search does not use its position if the API server refuses the continue token, or
// if the token is too long to be kept.
func TestSearchBeginsAgain(t *testing.T) {
	var children []metav1.PartialObjectMetadata
	for i := range maxPages*nextPage + nextPage {
		children = append(children, child(i))
	}
	things := newThings(t, children)
	search := &Search{}
	q := things.question()
	q.Search = search
	if found, err := FindOfUsers(t.Context(), q); err != nil || len(found.Kinds) != 1 || len(search.next) != 1 {
		t.Fatalf("the first call: %v, position %v", err, search.next)
	}
	things.expired = true
	if _, err := FindOfUsers(t.Context(), q); err == nil || len(search.next) > 0 {
		t.Errorf("the token is refused: %v, position %v", err, search.next)
	}
	things.expired, things.lists = false, 0
	if found, err := FindOfUsers(t.Context(), q); err != nil || len(found.Kinds) != 1 || things.lists != 1+maxPages {
		t.Errorf("the search begins again: %v, %d lists", err, things.lists)
	}
	search.began = search.began.Add(-searchPeriod - time.Second)
	if things.lists = 0; search.resume(time.Now()).Finalized != 0 || len(search.next) > 0 {
		t.Errorf("the search is too old, but has the position %v", search.next)
	}
	search.setPosition(q.CRDs[0], strings.Repeat("x", maxToken+1))
	if _, known := search.position(q.CRDs[0]); known {
		t.Error("a token that is too long is kept")
	}
}

// TestDefaultOfModuleThatStays checks that the default custom resource of a module that stays blocks the deletion of
// its CRD, and that it is not deleted if the user allows the deletion of custom resources.
func TestDefaultOfModuleThatStays(t *testing.T) {
	module := func(name, resource string, isDeleted bool) v1beta2.Manifest {
		m := v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
		m.Spec.Resource = &unstructured.Unstructured{}
		m.Spec.Resource.SetAPIVersion("example.com/v1")
		m.Spec.Resource.SetKind("Thing")
		m.Spec.Resource.SetNamespace("z")
		m.Spec.Resource.SetName(resource)
		if isDeleted {
			m.DeletionTimestamp = new(metav1.Now())
		}
		return m
	}
	cases := map[string]struct {
		reason           string
		deleted, stays   bool // of the module with the custom resource, and of the CRD
		unmanaged, found bool
		own              string // the default custom resource of the module that is deleted with the CRD
	}{
		"Upgrade":    {"the module stays, and the CRD is deleted", false, false, false, true, "own"},
		"CRDStays":   {"the custom resource stays, too", false, true, false, false, "own"},
		"Deleted":    {"the custom resource is deleted with its module", true, false, false, false, "own"},
		"HandedOver": {"the custom resource is the user's now", true, false, true, true, "own"},
		"Same":       {"both modules have it, and the CRD is deleted", false, false, false, true, "mine"},
		"SameStays":  {"both modules have it, and the CRD stays", false, true, false, false, "mine"},
		"BothLeave":  {"both modules have it, and are deleted", true, false, false, false, "mine"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			things := newThings(t, []metav1.PartialObjectMetadata{mine()})
			other := module("b", "mine", c.deleted)
			if c.unmanaged {
				metav1.SetMetaDataAnnotation(&other.ObjectMeta, v1beta2.AnnotationIsUnmanaged, v1beta2.ValueTrue)
			}
			this := module("a", c.own, true)
			q := things.question()
			q.Manifest = &this
			q.Manifests = func(context.Context) ([]v1beta2.Manifest, error) {
				return []v1beta2.Manifest{this, other}, nil
			}
			if c.stays {
				q.CRDs, q.StayingCRDs = nil, q.CRDs
			}
			found, err := FindOfUsers(t.Context(), q)
			if err != nil || (found.Count() == 1) != c.found {
				t.Errorf("%s: found %s, %v", c.reason, found, err)
			}
			accepted, err := found.Delete(t.Context())
			if isAllowed := c.unmanaged; err != nil || (len(accepted) == 1) != isAllowed {
				t.Errorf("%s: accepted the deletion of %v, %v", c.reason, accepted, err)
			}
			if c.found && !c.unmanaged && !strings.Contains(found.String(), "z/mine of Manifest n/b") {
				t.Errorf("%s: %s", c.reason, found)
			}
		})
	}
}
