package orphan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// newReconciler returns a Reconciler whose control plane contains the given objects, and the recorder of its events.
func newReconciler(t *testing.T, host string, o Options, objects ...client.Object) (*Reconciler, *events.FakeRecorder) {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: host}, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Remove("k") })
	recorder := events.NewFakeRecorder(100)
	indexed := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
		opts ...client.ListOption) error {
		if o := (&client.ListOptions{}).ApplyOptions(opts); o.FieldSelector == nil {
			t.Errorf("%T is listed without an index: with 10,000 Kymas each reconcile would take 40 ms", list)
		}
		return c.List(ctx, list, opts...)
	}}
	o.Client = fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithInterceptorFuncs(indexed).
		WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).WithIndex(
		runtimes.NewSecretMetadata(), runtimes.KymaNameIndex, runtimes.KymaIndexValues).Build()
	o.Live, o.Runtimes, o.Events, o.Namespace = o.Client, pool, recorder, "n"
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r, recorder
}

func takeEvents(recorder *events.FakeRecorder) []string {
	var all []string
	for {
		select {
		case e := <-recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "n", Name: name, Labels: map[string]string{v1beta2.LabelKymaName: "k"}}
}

// TestRequestIfKymaIsMissing checks that the Manifests of a Kyma cause no reconciles as long as the Kyma exists.
func TestRequestIfKymaIsMissing(t *testing.T) {
	r, _ := newReconciler(t, "127.0.0.1:1", Options{Interval: time.Hour},
		&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k"}})
	manifest := &v1beta2.Manifest{ObjectMeta: named("m")}
	if got := r.requestIfKymaIsMissing(t.Context(), manifest); len(got) > 0 {
		t.Errorf("the Kyma exists: got %v", got)
	}
	manifest.Labels[v1beta2.LabelKymaName] = "other"
	want := []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "n", Name: "other"}}}
	if got := r.requestIfKymaIsMissing(t.Context(), manifest); !slices.Equal(got, want) {
		t.Errorf("the Kyma does not exist: got %v, want %v", got, want)
	}
	manifest.Labels = nil
	if got := r.requestIfKymaIsMissing(t.Context(), manifest); len(got) > 0 {
		t.Errorf("the Manifest names no Kyma: got %v", got)
	}
}

func TestMissingKyma(t *testing.T) {
	for name, cleanup := range map[string]bool{"Reported": false, "CleanedUp": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, recorder := newReconciler(t, "127.0.0.1:1", Options{Interval: time.Hour, Cleanup: cleanup},
					&v1beta2.Manifest{ObjectMeta: named("m")}, &corev1.Secret{ObjectMeta: named("s")})
				reconcileOnce := func() reconcile.Result {
					result, err := r.Reconcile(t.Context(),
						reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "k"}})
					if err != nil {
						t.Fatal(err)
					}
					return result
				}
				if after := reconcileOnce().RequeueAfter; after != missingGracePeriod {
					t.Errorf("is reconciled again after %s, want %s: the Kyma may be created soon", after,
						missingGracePeriod)
				}
				time.Sleep(missingGracePeriod)
				if after := reconcileOnce().RequeueAfter; after <= 0 || after > time.Hour {
					t.Errorf("is reconciled again after %s, want the next slot", after)
				}
				all := takeEvents(recorder)
				if !strings.HasPrefix(all[0], "Warning Orphaned there is no Kyma k, to which") ||
					!strings.HasPrefix(all[len(all)-1], "Warning Orphaned there is no Kyma k, of which") {
					t.Errorf("recorded %q, want the Manifest and the Secret", all)
				}
				err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "m"}, &v1beta2.Manifest{})
				if apierrors.IsNotFound(err) != cleanup {
					t.Errorf("cleanup %t: reading the Manifest gives %v", cleanup, err)
				}
				if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "s"},
					&corev1.Secret{}); err != nil {
					t.Errorf("the access Secret: %v", err)
				}
				if reconcileOnce(); takeEvents(recorder) != nil {
					t.Error("it is reported again before the next slot")
				}
				if err := r.Client.Create(t.Context(),
					&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k"}}); err != nil {
					t.Fatal(err)
				}
				if reconcileOnce(); r.memories.Get("k").counted[secretOrphan] != 0 {
					t.Error("the Secret is counted as an orphan although its Kyma exists")
				}
			})
		})
	}
}

func TestDeletedKymasAreForgotten(t *testing.T) {
	r, recorder := newReconciler(t, "127.0.0.1:1", Options{Interval: time.Hour})
	result, err := r.Reconcile(
		t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "k"}})
	if err != nil || result.RequeueAfter != 0 || r.memories.Len() != 0 || takeEvents(recorder) != nil {
		t.Errorf("got %v, %v, %d remembered, want nothing", result, err, r.memories.Len())
	}
}

// manifestsPath is the path of the Manifests of a runtime that is a control plane, too.
const manifestsPath = "/apis/operator.kyma-project.io/v1beta2/namespaces/n/manifests"

// server is a fake API server of a runtime with one list of objects for each kind, by path.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	lists    map[string][]metav1.PartialObjectMetadata
	requests []string
	changed  map[string]bool // paths of objects that have changed since they were listed
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	var body any = metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: s.lists[r.URL.Path]}
	switch collection := r.URL.Path[:strings.LastIndex(r.URL.Path, "/")]; {
	case r.URL.Path == "/apis/operator.kyma-project.io/v1beta2":
		served := []metav1.APIResource{
			{Name: "moduletemplates", Kind: "ModuleTemplate", Namespaced: true},
			{Name: "modulereleasemetas", Kind: "ModuleReleaseMeta", Namespaced: true},
		}
		if s.lists[manifestsPath] != nil {
			served = append(served, metav1.APIResource{Name: "manifests", Kind: "Manifest", Namespaced: true})
		}
		body = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, APIResources: served}
	case r.Method == http.MethodDelete && s.changed[r.URL.Path]:
		w.WriteHeader(http.StatusConflict)
		body = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Reason: metav1.StatusReasonConflict}
	case r.Method == http.MethodDelete:
		var options metav1.DeleteOptions
		_ = json.NewDecoder(r.Body).Decode(&options)
		if p := options.Preconditions; p == nil || p.ResourceVersion == nil {
			s.requests = append(s.requests, "DELETE without a precondition")
		}
		body = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Status: metav1.StatusSuccess}
	case strings.Contains(collection, "/namespaces/"):
		before, kind, _ := strings.Cut(collection, "/namespaces/kyma-system")
		objects := s.lists[before+kind]
		at := slices.IndexFunc(objects, func(o metav1.PartialObjectMetadata) bool {
			return strings.HasSuffix(r.URL.Path, "/"+o.Name)
		})
		if at < 0 {
			w.WriteHeader(http.StatusNotFound)
			body = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Reason: metav1.StatusReasonNotFound,
				Details: &metav1.StatusDetails{Name: "x"}}
			break
		}
		body = objects[at]
	}
	_ = json.NewEncoder(w).Encode(body)
}

func (s *server) deletes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r string) bool { return !strings.HasPrefix(r, "DELETE") })
}

func TestSweep(t *testing.T) {
	object := func(name, owner string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: v1beta2.RuntimeNamespace, Name: name, UID: "u", ResourceVersion: "7",
				Annotations: map[string]string{v1beta2.AnnotationOwnedBy: owner},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: v1beta2.FieldOwnerApplier,
					Operation: metav1.ManagedFieldsOperationApply}},
			}}
	}
	entry := func(name, manager string) metav1.PartialObjectMetadata {
		o := object(name, "")
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager}}
		return o
	}
	s := &server{lists: map[string][]metav1.PartialObjectMetadata{
		"/api/v1/configmaps": {object("orphan", "n/gone"), object("fine", "n/m"),
			object("elsewhere", "other/gone"), object("base", "")},
		"/apis/apps/v1/deployments": {object("operator", "n/gone")},
		"/apis/operator.kyma-project.io/v1beta2/moduletemplates": {
			entry("gone-1.0.0", v1beta2.FieldOwnerCatalog), entry("copied-1.0.0", "somebody"),
			entry("there-1.0.0", v1beta2.FieldOwnerCatalog),
		},
	}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	for name, c := range map[string]struct {
		cleanup bool
		want    []string
	}{
		"Reported": {false, nil},
		"CleanedUp": {true, []string{
			"DELETE /api/v1/namespaces/kyma-system/configmaps/orphan",
			"DELETE /apis/apps/v1/namespaces/kyma-system/deployments/operator",
			"DELETE /apis/operator.kyma-project.io/v1beta2/namespaces/kyma-system/moduletemplates/gone-1.0.0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s.requests = nil
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k"}}
			r, recorder := newReconciler(t, s.URL, Options{Interval: time.Hour, Cleanup: c.cleanup}, k,
				&v1beta2.Manifest{ObjectMeta: named("m")},
				&v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "there-1.0.0"}})
			m := r.memoryOf("k")
			if err := r.sweepRuntimeIfReachable(t.Context(), k, m); err != nil {
				t.Fatal(err)
			}
			got := s.deletes()
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("deleted %q, want %q", got, c.want)
			}
			if m.counted[objectOrphan] != 2 || m.counted[catalogOrphan] != 1 {
				t.Errorf("counted %v, want two objects and one entry", m.counted)
			}
			text := strings.Join(takeEvents(recorder), "\n")
			for _, part := range []string{"ConfigMap kyma-system/orphan", "Deployment.apps kyma-system/operator",
				"ModuleTemplate.operator.kyma-project.io kyma-system/gone-1.0.0"} {
				if !strings.Contains(text, part) {
					t.Errorf("recorded\n%s\nwant %s", text, part)
				}
			}
			for _, part := range []string{"fine", "elsewhere", "base", "copied", "there"} {
				if strings.Contains(text, "/"+part) {
					t.Errorf("recorded\n%s\nwhich includes an object that is no orphan: %s", text, part)
				}
			}
			if n := len(s.requests); n > 40 {
				t.Errorf("%d requests, want one for each kind and a few more", n)
			}
		})
	}
}

// TestSweepKeepsObjectsOfOthers checks which objects without their Manifest are deleted.
func TestSweepKeepsObjectsOfOthers(t *testing.T) {
	const path = "/api/v1/namespaces/kyma-system/configmaps/object"
	annotated := func(annotation, value string) func(*metav1.PartialObjectMetadata) {
		return func(o *metav1.PartialObjectMetadata) { o.Annotations[annotation] = value }
	}
	type edit = func(*metav1.PartialObjectMetadata)
	former := func(m *v1beta2.Manifest) {
		m.Annotations = map[string]string{ownership.AnnotationFormerInstallation: "n/gone"}
	}
	lists := func(m *v1beta2.Manifest) {
		m.Status.Synced = []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Namespace: v1beta2.RuntimeNamespace,
			Name: "object"}}
	}
	cases := map[string]struct {
		reason  string
		kind    string // path of the list; "" for ConfigMaps
		edit    edit
		changed bool
		inner   string                  // the Manifest of a runtime that is a control plane, too
		module  func(*v1beta2.Manifest) // changes the Manifest of the Kyma
		reports bool
		deletes bool
	}{
		"Ours":      {reason: "it belongs to nobody", reports: true, deletes: true},
		"Namespace": {reason: "it may contain other objects", kind: "/api/v1/namespaces", reports: true},
		"CRD": {reason: "users may have custom resources", reports: true,
			kind: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"},
		"Kept":  {reason: "the module keeps it", edit: annotated(apply.AnnotationPrune, "keep"), reports: true},
		"Keeep": {reason: "a misspelt value protects", edit: annotated(apply.AnnotationPrune, "keeep"), reports: true},
		"Deleted": {reason: "the default", edit: annotated(apply.AnnotationPrune, "delete"), reports: true,
			deletes: true},
		"Adopted": {reason: "it existed before the module", edit: annotated(apply.AnnotationAdopted, "true"),
			reports: true},
		"Shared": {reason: "another module contains it", edit: annotated(apply.AnnotationCoOwners, "n/gone,n/m")},
		"SharedBefore": {reason: "the other module does not exist any more", reports: true, deletes: true,
			edit: annotated(apply.AnnotationCoOwners, "n/gone")},
		"SharedElsewhere": {reason: "the other module belongs to another control plane",
			edit: annotated(apply.AnnotationCoOwners, "other/m")},
		"Copied": {reason: "a user has copied an object of the module", edit: func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields[0].Manager = "kubectl"
		}},
		"InnerControlPlane": {reason: "the runtime is a control plane, and its own manager has applied it",
			inner: "gone"},
		"InnerCoOwner": {reason: "a module of the control plane in the runtime contains it", inner: "shared",
			edit: annotated(apply.AnnotationCoOwners, "n/shared")},
		"InnerOther": {reason: "the control plane in the runtime does not know it either", inner: "other",
			reports: true, deletes: true},
		"TakenOver": {reason: "the runtime was taken over, and the module waits for a person", module: former},
		"TakenOverShared": {reason: "a module of the former owner contains it, too", module: former,
			edit: func(o *metav1.PartialObjectMetadata) {
				o.Annotations = map[string]string{v1beta2.AnnotationOwnedBy: "n/other",
					apply.AnnotationCoOwners: "n/gone"}
			}},
		"TakenOverFromOther": {reason: "the runtime was taken over from another Kyma", reports: true, deletes: true,
			module: func(m *v1beta2.Manifest) {
				m.Annotations = map[string]string{ownership.AnnotationFormerInstallation: "n/other"}
			}},
		"TakenOverWithVersion": {reason: "the module has a version, but its objects are not applied yet", module: lists},
		"OnControlPlane": {reason: "the inventory is that of another cluster", reports: true, deletes: true,
			module: func(m *v1beta2.Manifest) {
				lists(m)
				m.Status.Target = v1beta2.TargetControlPlane
			}},
		"Changed": {reason: "it has changed since it was listed", changed: true, reports: true, deletes: false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: v1beta2.RuntimeNamespace, Name: "object", UID: "u", ResourceVersion: "7",
					Annotations: map[string]string{v1beta2.AnnotationOwnedBy: "n/gone"},
					ManagedFields: []metav1.ManagedFieldsEntry{{Manager: v1beta2.FieldOwnerApplier,
						Operation: metav1.ManagedFieldsOperationApply}},
				}}
			if c.edit != nil {
				c.edit(&o)
			}
			s := &server{changed: map[string]bool{path: c.changed}, lists: map[string][]metav1.PartialObjectMetadata{
				cmp.Or(c.kind, "/api/v1/configmaps"): {o}}}
			if c.inner != "" {
				s.lists[manifestsPath] = []metav1.PartialObjectMetadata{{TypeMeta: o.TypeMeta,
					ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: c.inner, UID: "u"}}}
			}
			s.Server = httptest.NewServer(s)
			t.Cleanup(s.Close)
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k"}}
			m := &v1beta2.Manifest{ObjectMeta: named("m")}
			if c.module != nil {
				c.module(m)
			}
			r, recorder := newReconciler(t, s.URL, Options{Interval: time.Hour, Cleanup: true,
				InCluster: m.Status.Target != v1beta2.TargetControlPlane}, k, m)
			if err := r.sweepRuntimeIfReachable(t.Context(), k, r.memoryOf("k")); err != nil {
				t.Fatal(err)
			}
			text := strings.Join(takeEvents(recorder), "\n")
			reports, deletes := strings.Contains(text, "Orphaned 1"), strings.Contains(text, "OrphanDeleted")
			if reports != c.reports || deletes != c.deletes {
				t.Errorf("%s: the events are %q, want a report %t, deletion %t", c.reason, text, c.reports, c.deletes)
			}
			if got := s.deletes(); len(got) > 0 != (c.deletes || c.changed) || slices.Contains(got,
				"DELETE without a precondition") {
				t.Errorf("%s: deleted %q, want %t", c.reason, got, c.deletes)
			}
		})
	}
}

// TestSweepLimits checks how many requests and deletions the objects of a runtime can cause in one search. The admin of
// the runtime can give each object another owner, and an owner that cannot exist.
func TestSweepLimits(t *testing.T) {
	owned := func(i int, owner string, coOwners ...string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata"},
			ObjectMeta: metav1.ObjectMeta{Namespace: v1beta2.RuntimeNamespace, Name: fmt.Sprint("object-", i), UID: "u",
				ResourceVersion: "7", Annotations: map[string]string{v1beta2.AnnotationOwnedBy: owner,
					apply.AnnotationCoOwners: strings.Join(coOwners, ",")},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: v1beta2.FieldOwnerApplier,
					Operation: metav1.ManagedFieldsOperationApply}}}}
	}
	coOwners := make([]string, 2*checksLimit)
	for i := range coOwners {
		coOwners[i] = fmt.Sprint("n/co-owner-", i)
	}
	cases := map[string]struct {
		reason         string
		objects        int // of each of two kinds
		object         func(i int) metav1.PartialObjectMetadata
		live, deletes  int
		objectOrphaned int
	}{
		"Owners": {"each object names another Manifest", checksLimit,
			func(i int) metav1.PartialObjectMetadata { return owned(i, fmt.Sprint("n/gone-", i)) },
			checksLimit, 2 * checksLimit, 2 * checksLimit},
		"MoreOwners": {"more Manifests than a search checks", checksLimit + 7,
			func(i int) metav1.PartialObjectMetadata { return owned(i, fmt.Sprint("n/gone-", i)) },
			checksLimit, 2 * checksLimit, 2 * checksLimit},
		"CoOwners": {"one object names more co-owners than a search checks", 1,
			func(i int) metav1.PartialObjectMetadata { return owned(i, "n/gone", coOwners...) },
			checksLimit, 0, 0},
		"Orphans": {"one Manifest has more objects than a search returns", objectsLimit,
			func(i int) metav1.PartialObjectMetadata { return owned(i, "n/gone") },
			1, orphansLimit, orphansLimit},
		"Invalid": {"no Manifest can have the name", 1,
			func(i int) metav1.PartialObjectMetadata { return owned(i, "n/../secrets/"+strings.Repeat("x", 300)) },
			0, 0, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &server{lists: map[string][]metav1.PartialObjectMetadata{}}
			for _, plural := range []string{"configmaps", "secrets"} {
				for i := range c.objects {
					s.lists["/api/v1/"+plural] = append(s.lists["/api/v1/"+plural], c.object(i))
				}
			}
			s.Server = httptest.NewServer(s)
			t.Cleanup(s.Close)
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k"}}
			r, _ := newReconciler(t, s.URL, Options{Interval: time.Hour, Cleanup: true, InCluster: true}, k)
			live := 0
			r.Live = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context,
				next client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				live++
				return next.Get(ctx, key, o, opts...)
			}})
			m := r.memoryOf("k")
			if err := r.sweepRuntimeIfReachable(t.Context(), k, m); err != nil {
				t.Fatal(err)
			}
			if deletes := len(s.deletes()); live != c.live || deletes != c.deletes ||
				m.counted[objectOrphan] != c.objectOrphaned {
				t.Errorf("%s: %d requests to the control plane, %d deletions, %d orphans, want %d, %d and %d", c.reason,
					live, deletes, m.counted[objectOrphan], c.live, c.deletes, c.objectOrphaned)
			}
		})
	}
}

func TestSweepIgnoresUnreachableRuntimes(t *testing.T) {
	r, recorder := newReconciler(t, "127.0.0.1:1", Options{Interval: time.Hour, InCluster: true})
	deleting := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k",
		DeletionTimestamp: new(metav1.Now())}}
	unreachable := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k"}}
	for _, k := range []*v1beta2.Kyma{deleting, unreachable, unreachable} {
		if err := r.sweepRuntimeIfReachable(t.Context(), k, r.memoryOf("k")); err != nil ||
			takeEvents(recorder) != nil {
			t.Errorf("got %v, want no error and no event", err)
		}
	}
	if err := ignoreRuntimeErrors(&apply.Error{}); err != nil {
		t.Errorf("got %v, want no error of the runtime", err)
	}
}
