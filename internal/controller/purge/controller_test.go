package purge

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// server is a fake API server of a runtime. server stores objects by path, and removes a deleted object that has no
// finalizers.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	objects map[string]map[string]any
	writes  []string
	refuse  string // a request line that is answered with 403
	served  bool   // our own kinds are served
	// isControlPlane means that the simulated runtime is a control plane, too: the server also has a Kyma in namespace
	// kcp-system.
	isControlPlane bool
	// hook is the name of a webhook that does not answer; the server calls it for Things as long as its configuration
	// exists.
	hook string
}

const (
	crdPath    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
	configPath = "/api/v1/namespaces/a/configmaps/settings"
	keptPath   = "/api/v1/namespaces/a/configmaps/kept"
	thingPath  = "/apis/example.com/v1/namespaces/a/things/"
	hookPath   = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/things"
)

func newServer(t *testing.T) *server {
	s := &server{objects: map[string]map[string]any{}}
	s.add(configPath, nil)
	s.add(keptPath, nil)
	s.add("/api/v1/namespaces/kube-system", nil)
	s.add(crdPath, nil)
	s.objects[crdPath]["spec"] = map[string]any{
		"group": "example.com", "names": map[string]any{"kind": "Thing", "plural": "things"},
		"versions": []any{map[string]any{"name": "v1", "storage": true}},
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// kinds are the kinds that the server has, by plural name.
var kinds = map[string]string{"configmaps": "ConfigMap", "namespaces": "Namespace", "things": "Thing", "kymas": "Kyma",
	"customresourcedefinitions":       "CustomResourceDefinition",
	"validatingwebhookconfigurations": "ValidatingWebhookConfiguration"}

// listOf returns a list of objects as an API server sends it.
func listOf(items []any) map[string]any {
	return map[string]any{"kind": "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": items}
}

// resourceList returns the answer to a discovery request.
func resourceList(name, kind string) metav1.APIResourceList {
	return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"},
		APIResources: []metav1.APIResource{{Name: name, Kind: kind, Namespaced: true}}}
}

// add stores an object. If the parameter deleted has finalizers, the object gets these finalizers and a deletion
// timestamp of an hour ago.
func (s *server) add(path string, deleted []string) {
	parts := strings.Split(path, "/")
	name := parts[len(parts)-1]
	m := map[string]any{"name": name, "uid": "uid-" + name}
	if path == configPath || path == keptPath || path == crdPath { // the module has applied them
		m["annotations"] = map[string]any{v1beta2.AnnotationOwnedBy: "n/m"}
	}
	if strings.Contains(path, "/namespaces/") {
		m["namespace"] = "a"
	}
	if deleted != nil {
		m["finalizers"], m["deletionTimestamp"] = deleted, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = map[string]any{"kind": kinds[parts[len(parts)-2]], "metadata": m}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	line, path := r.Method+" "+r.URL.Path, r.URL.Path
	if r.Method != http.MethodGet {
		s.writes = append(s.writes, line)
	}
	object := s.objects[path]
	switch {
	case path == "/apis/example.com/v1":
		answer(w, http.StatusOK, resourceList("things", "Thing"))
	case path == remoteAPI && s.served:
		answer(w, http.StatusOK, resourceList("kymas", "Kyma"))
	case path == remoteAPI+"/kymas" && s.served:
		items := []any{map[string]any{"metadata": map[string]any{"namespace": "kyma-system", "name": "default"}}}
		if s.isControlPlane {
			items = append(items, map[string]any{"metadata": map[string]any{"namespace": "kcp-system", "name": "b"}})
		}
		answer(w, http.StatusOK, listOf(items))
	case line == s.refuse:
		answer(w, http.StatusForbidden, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Message: "no",
			Reason: metav1.StatusReasonForbidden})
	case s.hook != "" && r.Method != http.MethodGet && strings.HasPrefix(path, thingPath):
		answer(w, http.StatusInternalServerError, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"},
			Reason: metav1.StatusReasonInternalError,
			Message: `Internal error occurred: failed calling webhook "` + s.hook +
				`": failed to call webhook: service "nobody" not found`})
	case path == "/apis/example.com/v1/things":
		items := []any{}
		for p, o := range s.objects {
			if strings.HasPrefix(p, thingPath) {
				items = append(items, o)
			}
		}
		answer(w, http.StatusOK, listOf(items))
	case object == nil:
		answer(w, http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"},
			Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Name: "x"}})
	case r.Method == http.MethodDelete:
		m := object["metadata"].(map[string]any)
		m["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		if m["finalizers"] == nil {
			delete(s.objects, path)
			if path == hookPath {
				s.hook = ""
			}
			answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"},
				Status: metav1.StatusSuccess})
			return
		}
		answer(w, http.StatusOK, object)
	case r.Method == http.MethodPatch:
		var patch struct {
			Metadata struct {
				UID        string
				Finalizers []string
			}
		}
		if json.NewDecoder(r.Body).Decode(&patch) != nil ||
			patch.Metadata.UID != object["metadata"].(map[string]any)["uid"] {
			answer(w, http.StatusConflict, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"},
				Reason: metav1.StatusReasonConflict})
			return
		}
		if len(patch.Metadata.Finalizers) == 0 {
			delete(s.objects, path)
		}
		answer(w, http.StatusOK, object)
	default:
		answer(w, http.StatusOK, object)
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *server) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.writes
	s.writes = nil
	return taken
}

func (s *server) has(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path] != nil
}

// newReconciler returns a Reconciler, and the recorder of its events. The control plane contains the objects in the
// parameter objects, and the parameter s is the API server of the runtime.
func newReconciler(t *testing.T, s *server, o Options, objects ...client.Object) (*Reconciler, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: s.URL}, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Remove("k") })
	recorder := events.NewFakeRecorder(100)
	o.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(&v1beta2.Manifest{},
		manifestIndex, kymaOfDeletedManifest).Build()
	o.Runtimes, o.Events = pool, recorder
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r, recorder
}

func (r *Reconciler) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := r.Reconcile(
		t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	return result
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

func kyma(deletedFor time.Duration, finalizers ...string) *v1beta2.Kyma {
	return &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k", Finalizers: finalizers,
		DeletionTimestamp: &metav1.Time{Time: time.Now().Add(-deletedFor)}}}
}

// manifest returns a Manifest with a CRD, two ConfigMaps of which one is kept, and a custom resource.
func manifest() *v1beta2.Manifest {
	cr := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "own", "namespace": "a"}}}
	return &v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "m", Finalizers: []string{v1beta2.FinalizerManifest},
			DeletionTimestamp: &metav1.Time{Time: time.Now().Add(-time.Hour)},
			Labels:            map[string]string{v1beta2.LabelKymaName: "k", v1beta2.LabelModuleName: "things"},
		},
		Spec: v1beta2.ManifestSpec{Resource: cr},
		Status: v1beta2.ManifestStatus{Synced: []v1beta2.Resource{
			{
				Group:   "apiextensions.k8s.io",
				Version: "v1",
				Kind:    "CustomResourceDefinition",
				Name:    "things.example.com",
			},
			{Version: "v1", Kind: "ConfigMap", Namespace: "a", Name: "settings"},
			{Version: "v1", Kind: "ConfigMap", Namespace: "a", Name: "kept", Keep: true},
		}},
	}
}

func TestNothingHappensBeforeTheGracePeriodEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		r, recorder := newReconciler(t, s, Options{Grace: time.Hour}, kyma(time.Minute, v1beta2.FinalizerKyma),
			manifest())
		if after := r.reconcile(t).RequeueAfter; after <= 58*time.Minute || after > 59*time.Minute {
			t.Errorf("is reconciled again after %s, want what is left of the hour", after)
		}
		if w, e := s.take(), takeEvents(recorder); w != nil || e != nil {
			t.Errorf("sent %q and recorded %q, want nothing", w, e)
		}
	})
}

// TestWithoutGracePeriod checks that no runtime is purged if there is no grace period. If a deletion takes long, one
// event reports it, and names the flag --purge-grace-period, with which an operator can enable the purge.
func TestWithoutGracePeriod(t *testing.T) {
	s := newServer(t)
	m := manifest()
	m.Status.LastOperation.Operation = "waiting for custom resources of users"
	r, recorder := newReconciler(t, s, Options{}, kyma(time.Minute, v1beta2.FinalizerKyma), m)
	if after := r.reconcile(t).RequeueAfter; after <= time.Minute || after > 4*time.Minute {
		t.Errorf("is reconciled again after %s, want what is left of five minutes", after)
	}
	if e := takeEvents(recorder); e != nil {
		t.Errorf("recorded %q at first, want nothing", e)
	}
	r, recorder = newReconciler(t, s, Options{}, kyma(time.Hour, v1beta2.FinalizerKyma), m)
	for range 2 {
		if after := r.reconcile(t).RequeueAfter; after != 5*time.Minute {
			t.Errorf("is reconciled again after %s, want five minutes", after)
		}
	}
	e := takeEvents(recorder)
	if len(e) != 1 || !strings.Contains(e[0], "DeletionWaits") || !strings.Contains(e[0], "--purge-grace-period") ||
		!strings.Contains(e[0], "custom resources of users") {
		t.Errorf("recorded %q, want one event with the flag and the reason", e)
	}
	if w := s.take(); w != nil {
		t.Errorf("sent %q, want nothing", w)
	}
}

// TestGraceBeginsWithTheModules checks that the grace period of a Kyma has not started while its deletion is queued.
func TestGraceBeginsWithTheModules(t *testing.T) {
	for name, c := range map[string]struct {
		reason      string
		deleted     bool // the Manifest was deleted a minute ago
		least, most time.Duration
	}{
		"NotDeleted": {v1beta2.ReasonDeletionQueued, false, 30 * time.Minute, 30 * time.Minute},
		"Deleted":    {v1beta2.ReasonDeletionQueued, true, 58 * time.Minute, 59 * time.Minute},
		"Upgrade":    {"WaitingForTurn", false, 30 * time.Minute, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				k, m := kyma(3*time.Hour, v1beta2.FinalizerKyma), manifest()
				m.DeletionTimestamp = nil
				if c.deleted {
					m.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-time.Minute)}
				}
				meta.SetStatusCondition(&k.Status.Conditions, metav1.Condition{Type: v1beta2.ConditionReady,
					Status: metav1.ConditionFalse, Reason: c.reason})
				r, recorder := newReconciler(t, s, Options{Grace: time.Hour}, k, m)
				if after := r.reconcile(t).RequeueAfter; after < c.least || after > c.most {
					t.Errorf("is reconciled again after %s, want %s to %s", after, c.least, c.most)
				}
				if w, e := s.take(), takeEvents(recorder); w != nil || e != nil {
					t.Errorf("sent %q and recorded %q, want nothing", w, e)
				}
			})
		})
	}
}

func TestPurge(t *testing.T) {
	s := newServer(t)
	s.add(thingPath+"own", []string{"example.com/nobody"})
	s.add(thingPath+"mine", []string{"example.com/nobody", "example.com/else"})
	r, recorder := newReconciler(t, s, Options{Grace: time.Minute}, kyma(time.Hour, v1beta2.FinalizerKyma), manifest())
	if r.reconcile(t).RequeueAfter <= 0 {
		t.Error("there is no next reconcile, but the Kyma exists")
	}
	got := s.take()
	slices.Sort(got[:2])
	want := []string{"PATCH " + thingPath + "mine", "PATCH " + thingPath + "own",
		"DELETE " + configPath, "DELETE " + crdPath}
	if !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
	if !s.has(keptPath) || s.has(configPath) || s.has(thingPath+"mine") {
		t.Error("a kept object was deleted, or another one was not")
	}
	all := takeEvents(recorder)
	if len(all) != 2 || !strings.Contains(all[0], "FinalizersRemoved removed the finalizers of 2 custom resources") ||
		!strings.Contains(all[0], "a/mine (held by example.com/nobody, example.com/else)") ||
		!strings.Contains(all[1], "Purged module things: deleted 2 objects") || strings.Contains(all[1], "kept") {
		t.Errorf("recorded %q, want the removed finalizers and the deleted objects", all)
	}
	r.reconcile(t)
	if w, e := s.take(), takeEvents(recorder); w != nil || e != nil {
		t.Errorf("the second reconcile sent %q and recorded %q, want nothing", w, e)
	}
}

// TestForeignCRD checks a module with a CRD that is in the inventory and was never applied, because a user has made it.
// The purge deletes no custom resource of the user. It ends, unless the module has a custom resource of this kind, too.
func TestForeignCRD(t *testing.T) {
	const own, mine = thingPath + "own", thingPath + "mine"
	cases := map[string]struct {
		reason     string
		hasDefault bool
		want       []string
		event      string
	}{
		"Pending": {"the operator is not needed", false, []string{"DELETE " + configPath},
			"Purged module things: deleted 1 object"},
		"Default": {"only the module's own custom resource is purged", true, []string{"PATCH " + own},
			"PurgeBlocked the kind Thing.example.com is defined by none of the modules: Thing.example.com a/mine"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			metadata := s.objects[crdPath]["metadata"].(map[string]any)
			delete(metadata, "annotations")
			metadata["managedFields"] = []any{map[string]any{"manager": "kubectl", "operation": "Apply"}}
			s.add(own, []string{"example.com/nobody"})
			s.add(mine, []string{"example.com/nobody"})
			delete(s.objects[mine]["metadata"].(map[string]any), "deletionTimestamp")
			m := manifest()
			m.Status.Synced[0].Pending = true
			if !c.hasDefault {
				m.Spec.Resource = nil
			}
			r, recorder := newReconciler(t, s, Options{Grace: time.Minute}, kyma(time.Hour, v1beta2.FinalizerKyma), m)
			r.reconcile(t)
			if got := s.take(); !slices.Equal(got, c.want) {
				t.Errorf("%s: sent %q, want %q", c.reason, got, c.want)
			}
			if !s.has(mine) || !s.has(crdPath) || s.has(own) == c.hasDefault || s.has(configPath) != c.hasDefault {
				t.Errorf("%s: objects of the user are deleted, or an object of the module is not", c.reason)
			}
			if e := takeEvents(recorder); len(e) == 0 || !strings.Contains(e[len(e)-1], c.event) {
				t.Errorf("%s: recorded %q, want %q", c.reason, e, c.event)
			}
			r.reconcile(t)
			if w, e := s.take(), takeEvents(recorder); w != nil || e != nil {
				t.Errorf("%s: the second reconcile sent %q and recorded %q, want nothing", c.reason, w, e)
			}
		})
	}
}

func TestOperatorStaysWhileCustomResourcesExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes, so finalizerGracePeriod does not end
		s := newServer(t)
		s.add(thingPath+"own", []string{"example.com/nobody"})
		delete(s.objects[thingPath+"own"]["metadata"].(map[string]any), "deletionTimestamp")
		r, recorder := newReconciler(t, s, Options{Grace: time.Hour}, kyma(2*time.Hour, v1beta2.FinalizerKyma),
			manifest())
		r.reconcile(t)
		if got, want := s.take(), []string{"DELETE " + thingPath + "own"}; !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q: the operator has time", got, want)
		}
		if r.reconcile(t); s.take() != nil {
			t.Error("the finalizerGracePeriod is not over, but something was sent")
		}
		if e := takeEvents(recorder); len(e) != 1 || !strings.Contains(
			e[0], "Purged deleted 1 custom resource: Thing.example.com a/own") {
			t.Errorf("recorded %q, want the deletion of the custom resource", e)
		}
		for range 2 { // somebody creates the same custom resource after its deletion
			s.add(thingPath+"again", nil)
			r.reconcile(t)
			if got, want := s.take(), []string{"DELETE " + thingPath + "again"}; !slices.Equal(got, want) {
				t.Errorf("sent %q, want %q: it exists", got, want)
			}
		}
	})
}

func TestBlockersAreReportedOnce(t *testing.T) {
	s := newServer(t)
	s.add(thingPath+"own", []string{"example.com/nobody"})
	s.refuse = "PATCH " + thingPath + "own"
	r, recorder := newReconciler(t, s, Options{Grace: time.Minute}, kyma(time.Hour, v1beta2.FinalizerKyma), manifest())
	r.reconcile(t)
	r.reconcile(t)
	if e := takeEvents(recorder); len(e) != 1 || !strings.Contains(e[0], "Warning PurgeBlocked") ||
		!strings.Contains(e[0], "Thing.example.com a/own") {
		t.Errorf("recorded %q, want the refusal once", e)
	}
	if !s.has(configPath) {
		t.Error("the operator was deleted while its custom resource exists")
	}
	r, recorder = newReconciler(t, s, Options{Grace: time.Minute, Skip: []string{"things.*"}},
		kyma(time.Hour, v1beta2.FinalizerKyma), manifest())
	s.take()
	r.reconcile(t)
	if e := takeEvents(recorder); len(e) != 1 || !strings.Contains(
		e[0], "is on the skip list: Thing.example.com a/own") || s.take() != nil {
		t.Errorf("recorded %q, want the kind on the skip list", e)
	}
}

// addHook adds a webhook configuration whose webhook does not answer, to the runtime and to the inventory of a
// Manifest.
func (s *server) addHook(m *v1beta2.Manifest, owner string, keep bool) {
	s.hook = "hook.example.com"
	s.add(hookPath, nil)
	s.objects[hookPath]["webhooks"] = []any{map[string]any{"name": "other.example.com"}, map[string]any{"name": s.hook}}
	s.objects[hookPath]["metadata"].(map[string]any)["annotations"] = map[string]any{v1beta2.AnnotationOwnedBy: owner}
	m.Status.Synced = append(m.Status.Synced, v1beta2.Resource{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "ValidatingWebhookConfiguration", Name: "things", Keep: keep})
}

func TestFailingWebhooksArePurged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes, so webhookCachePeriod ends only where the test says so
		s := newServer(t)
		s.add(thingPath+"own", []string{"example.com/nobody"})
		m := manifest()
		s.addHook(m, "n/m", false)
		r, recorder := newReconciler(t, s, Options{Grace: time.Minute}, kyma(time.Hour, v1beta2.FinalizerKyma), m)
		if after := r.reconcile(t).RequeueAfter; after > time.Second {
			t.Errorf("is reconciled again after %s, want a retry soon", after)
		}
		want := []string{"PATCH " + thingPath + "own", "DELETE " + hookPath}
		if got := s.take(); !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil ||
			!strings.Contains(m.Annotations[v1beta2.AnnotationPurged], "things") {
			t.Errorf("the Manifest is annotated %q, %v, want the annotation of the purge", m.Annotations, err)
		}
		if e := takeEvents(recorder); len(e) != 1 || !strings.Contains(
			e[0], "Normal Purged module things: deleted ValidatingWebhookConfiguration.admissionregistration.k8s.io "+
				"things: "+
				"its webhook hook.example.com does not answer, which blocked Thing.example.com a/own") {
			t.Errorf("recorded %q, want the deleted configuration and the reason", e)
		}
		// The API server of the runtime still calls the deleted webhook for a short time, and no event reports these
		// calls.
		s.hook = "hook.example.com"
		r.reconcile(t)
		if e := takeEvents(recorder); e != nil || s.has(hookPath) {
			t.Errorf("recorded %q, want nothing", e)
		}
		// When the API server no longer calls the deleted webhook, the purge continues. No event reports the deletion
		// of the webhook configuration a second time.
		s.hook = ""
		r.reconcile(t)
		if e := takeEvents(recorder); len(e) != 2 || strings.Contains(e[1], "Webhook") ||
			s.has(thingPath+"own") || s.has(configPath) {
			t.Errorf("recorded %q, want the deletion of the rest", e)
		}
		// If the API server still calls the deleted webhook after webhookCachePeriod, an event reports it.
		s.add(thingPath+"mine", []string{"example.com/nobody"})
		s.hook = "hook.example.com"
		r.memories.Get("k").webhooks[s.hook] = time.Now().Add(-webhookCachePeriod)
		r.reconcile(t)
		if e := takeEvents(recorder); len(e) != 1 || !strings.Contains(e[0], "Warning PurgeBlocked") {
			t.Errorf("recorded %q, want the blocker", e)
		}
	})
}

func TestWebhooksOfOthersAreLeftAlone(t *testing.T) {
	cases := map[string]struct {
		reason, owner string
		keep, record  bool
	}{
		"NotInTheInventory": {"it is in no inventory", "n/m", false, false},
		"TakenOver":         {"it belongs to another Manifest now", "n/other", false, true},
		"Kept":              {"the module says to keep it", "n/m", true, true},
		"NotApplied":        {"a user has made it, and the module has not applied it", "", false, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.add(thingPath+"own", []string{"example.com/nobody"})
			m, owner := manifest(), manifest()
			if c.record {
				owner = m
			}
			s.addHook(owner, c.owner, c.keep)
			r, recorder := newReconciler(t, s, Options{Grace: time.Minute}, kyma(time.Hour, v1beta2.FinalizerKyma), m)
			r.reconcile(t)
			r.reconcile(t)
			if e := takeEvents(recorder); len(e) != 1 || !strings.Contains(e[0], `Warning PurgeBlocked`) ||
				!strings.Contains(e[0], `failed calling webhook "hook.example.com"`) {
				t.Errorf("%s: recorded %q, want the blocker once", c.reason, e)
			}
			if !s.has(hookPath) || !s.has(thingPath+"own") || !s.has(configPath) {
				t.Errorf("%s: something was deleted", c.reason)
			}
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil ||
				m.Annotations[v1beta2.AnnotationPurged] != "" {
				t.Errorf("%s: the Manifest is annotated %q, %v", c.reason, m.Annotations, err)
			}
		})
	}
}

func TestHandedOverModulesAreNotPurged(t *testing.T) {
	s := newServer(t)
	m := manifest()
	m.Annotations = map[string]string{v1beta2.AnnotationIsUnmanaged: v1beta2.ValueTrue}
	r, _ := newReconciler(t, s, Options{Grace: time.Minute}, kyma(time.Hour, v1beta2.FinalizerKyma), m)
	if r.reconcile(t); s.take() != nil {
		t.Error("objects of the user were deleted")
	}
}

func TestRemoveFormerFinalizer(t *testing.T) {
	s := newServer(t)
	cases := map[string]struct {
		reason string
		have   []string
		want   []string
	}{
		"Waits": {"the Kyma controller still has its finalizer",
			[]string{v1beta2.FinalizerKyma, v1beta2.FinalizerPurge},
			[]string{v1beta2.FinalizerKyma, v1beta2.FinalizerPurge}},
		"Unlock": {"no other controller removes it", []string{"example.com/other", v1beta2.FinalizerPurge},
			[]string{"example.com/other"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, s, Options{}, kyma(time.Hour, c.have...))
			r.reconcile(t)
			var k v1beta2.Kyma
			if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "k"}, &k); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(k.Finalizers, c.want) {
				t.Errorf("%s: got %q, want %q", c.reason, k.Finalizers, c.want)
			}
		})
	}
	r, _ := newReconciler(t, s, Options{}, kyma(time.Hour, v1beta2.FinalizerPurge))
	r.reconcile(t)
	r.reconcile(t) // it does not exist any more
}

func TestNewChecksItsOptions(t *testing.T) {
	s := newServer(t)
	good, _ := newReconciler(t, s, Options{})
	for name, edit := range map[string]func(*Options){
		"Client":  func(o *Options) { o.Client = nil },
		"Grace":   func(o *Options) { o.Grace = -1 },
		"Pattern": func(o *Options) { o.Skip = []string{"[a"} },
	} {
		o := good.Options
		edit(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// TestRuntimeOfAnotherOwnerIsNotPurged checks that a runtime is not purged if another Kyma or control plane has taken
// it over since the deletion began.
func TestRuntimeOfAnotherOwnerIsNotPurged(t *testing.T) {
	s := newServer(t)
	s.add(thingPath+"own", nil)
	taken := func(_ context.Context, kyma types.NamespacedName, rt *runtimes.Runtime) error {
		if rt == nil || kyma.Name != "k" {
			t.Errorf("verified Kyma %s with connection %v", kyma, rt)
		}
		return &runtimes.Error{Code: v1beta2.ReasonRuntimeTaken, Runtime: "k", Message: "it belongs to z"}
	}
	r, _ := newReconciler(t, s, Options{Grace: time.Minute, VerifyOwner: taken}, kyma(time.Hour, v1beta2.FinalizerKyma),
		manifest())
	r.reconcile(t)
	if got := s.take(); got != nil || !s.has(thingPath+"own") {
		t.Errorf("sent %q to the runtime of another owner", got)
	}
	r.VerifyOwner = func(context.Context, types.NamespacedName, *runtimes.Runtime) error { return nil }
	if r.reconcile(t); s.has(thingPath + "own") {
		t.Error("the custom resource is not deleted, although the runtime belongs to the Kyma")
	}
}
