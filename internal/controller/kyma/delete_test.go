package kyma

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/runtimekyma"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// kymaServer simulates a runtime that has only its Kyma. The owner of the runtime can be changed.
func kymaServer(t *testing.T, owner *atomic.Pointer[ownership.Owner]) *httptest.Server {
	t.Helper()
	const api = "/apis/operator.kyma-project.io/v1beta2"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var body any
		switch r.URL.Path {
		case api:
			body = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"},
				APIResources: []metav1.APIResource{{Name: "kymas", Kind: v1beta2.KindKyma, Namespaced: true}}}
		case api + "/namespaces/kyma-system/kymas/default":
			body = &v1beta2.Kyma{TypeMeta: metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(),
				Kind: v1beta2.KindKyma}, ObjectMeta: metav1.ObjectMeta{Namespace: v1beta2.RuntimeNamespace,
				Name: v1beta2.RuntimeKymaName, UID: "in-runtime", ResourceVersion: "1",
				Annotations: map[string]string{v1beta2.AnnotationOwner: owner.Load().Encode()}},
				Spec: v1beta2.KymaSpec{Channel: "regular"}}
		case "/api/v1/namespaces/kube-system":
			body = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "cluster"}}
		default:
			w.WriteHeader(http.StatusNotFound)
			body = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Reason: metav1.StatusReasonNotFound}
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(s.Close)
	return s
}

// accessSecret returns the access Secret of the Kyma k.
func accessSecret(t *testing.T, host string) *corev1.Secret {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "c", Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}},
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: host}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {Token: "t"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "access",
		Labels: map[string]string{v1beta2.LabelKymaName: "k"}}, Data: map[string][]byte{"config": data}}
}

// deletionBench is a Kyma that is being deleted, with one module and a fake runtime.
type deletionBench struct {
	*Reconciler
	kyma *v1beta2.Kyma
}

func newDeletionBench(t *testing.T, secrets ...client.Object) *deletionBench {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k", UID: "u",
		Finalizers: []string{v1beta2.FinalizerKyma}, DeletionTimestamp: new(metav1.Now())}}
	k.Status.ClusterID = "cluster"
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k-m",
		Finalizers: []string{v1beta2.FinalizerManifest},
		Labels:     map[string]string{v1beta2.LabelKymaName: "k", v1beta2.LabelModuleName: "m"}}}
	b := fake.NewClientBuilder().WithScheme(kinds).WithObjects(k, m).WithObjects(secrets...).
		WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues)
	for _, i := range cacheIndexes() {
		b = b.WithIndex(i.Object, i.Name, i.Keys)
	}
	if err := runtimes.IndexByKyma(t.Context(), indexer{b}, runtimes.NewSecretMetadata()); err != nil {
		t.Fatal(err)
	}
	c := b.Build()
	pool, err := runtimes.New(t.Context(), runtimes.Options{Cache: c, Live: c, Namespace: "n",
		Timeout: 5 * time.Minute, VerifyOwner: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Remove("k") })
	r := testReconciler(t, Options{Client: c, Live: c, Namespace: "n", ControlPlaneID: "cp", Runtimes: pool,
		Base: &render.Bundle{}, Events: events.NewFakeRecorder(10)})
	if r.schema, err = runtimekyma.New(); err != nil {
		t.Fatal(err)
	}
	return &deletionBench{Reconciler: r, kyma: k}
}

// connect runs the first steps of one reconcile of the deletion.
func (b *deletionBench) connect(t *testing.T) (*run, error) {
	t.Helper()
	n := &run{Reconciler: b.Reconciler, kyma: b.kyma, now: time.Now()}
	if err := n.announceDeletion(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n, n.connectOrSkipCleanup(t.Context())
}

// TestDeletionNoticesANewOwner checks a deletion during which another owner takes the runtime over, for example while
// the deletion waits for custom resources of users. From then on no controller uses the runtime for the deleted Kyma.
func TestDeletionNoticesANewOwner(t *testing.T) {
	var owner atomic.Pointer[ownership.Owner]
	owner.Store(&ownership.Owner{ControlPlane: "cp", Kyma: "n/k", UID: "u", Cluster: "cluster"})
	b := newDeletionBench(t, accessSecret(t, kymaServer(t, &owner).URL))
	for i := range 2 {
		n, err := b.connect(t)
		if err != nil || n.deletion.runtimeLeft != "" || (n.remote != nil) != (i == 0) {
			t.Fatalf("reconcile %d: %v, runtime left %q, Kyma for the status %v", i, err, n.deletion.runtimeLeft, n.remote)
		}
		if _, err := b.Runtimes.Get(t.Context(), "k"); err != nil {
			t.Fatalf("reconcile %d: the other controllers get %v", i, err)
		}
	}
	for name, other := range map[string]*ownership.Owner{
		"another Kyma":          {ControlPlane: "cp", Kyma: "n/z", Cluster: "cluster"},
		"another control plane": {ControlPlane: "other", Kyma: "n/k", Cluster: "cluster"},
	} {
		owner.Store(other)
		n, err := b.connect(t)
		if err != nil || n.deletion.runtimeLeft != leftToOwner || n.remote != nil {
			t.Errorf("%s has the runtime: %v, runtime left %q", name, err, n.deletion.runtimeLeft)
		}
		if _, err := b.Runtimes.Get(t.Context(), "k"); loop.Reason(err) != v1beta2.ReasonRuntimeTaken {
			t.Errorf("%s has the runtime: the other controllers get %v, want %s", name, err, v1beta2.ReasonRuntimeTaken)
		}
	}
}

// TestDeletionAwaitsAccessSecret checks that a deletion does not give the runtime up in a moment without access Secret.
func TestDeletionAwaitsAccessSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDeletionBench(t)
		n, err := b.connect(t)
		delay, waits := loop.WaitDelay(err)
		if !waits || delay != 30*time.Second || n.deletion.runtimeLeft != "" ||
			loop.Reason(n.found.refused) != v1beta2.ReasonAccessSecretNotFound {
			t.Errorf("without Secret since now: %v in %s, runtime left %q, status %v", err, delay,
				n.deletion.runtimeLeft, n.found.refused)
		}
		time.Sleep(delay)
		if n, err = b.connect(t); err != nil || n.deletion.runtimeLeft != leftWithoutAccess {
			t.Errorf("without Secret for a while: %v, runtime left %q", err, n.deletion.runtimeLeft)
		}
	})
}

// TestVerifyOwnerBeforeDeletion checks that a verification before a deletion reads the Kyma in the runtime, unless the
// last verification was just before, and that it refuses a runtime that another owner has taken over. The Kyma of the
// runtime may no longer exist.
func TestVerifyOwnerBeforeDeletion(t *testing.T) {
	ours := &ownership.Owner{ControlPlane: "cp", Kyma: "n/k", UID: "u", Cluster: "cluster"}
	for name, other := range map[string]*ownership.Owner{
		"another Kyma":          {ControlPlane: "cp", Kyma: "n/z", Cluster: "cluster"},
		"another control plane": {ControlPlane: "other", Kyma: "n/k", Cluster: "cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			var owner atomic.Pointer[ownership.Owner]
			owner.Store(ours)
			b := newDeletionBench(t, accessSecret(t, kymaServer(t, &owner).URL))
			var notified atomic.Int32
			b.Runtimes.Subscribe("k", runtimes.Subscriber{Key: subscriberKey("k"),
				Notify: func(runtimes.Event) { notified.Add(1) }})
			key := client.ObjectKeyFromObject(b.kyma)
			rt, err := b.Runtimes.GetBeforeOwnerVerified(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if err := b.VerifyOwnerBeforeDeletion(t.Context(), key, rt); err != nil || !b.Runtimes.IsOwned("k") {
				t.Fatalf("our runtime: %v", err)
			}
			owner.Store(other)
			if err := b.VerifyOwnerBeforeDeletion(t.Context(), key, rt); err != nil || notified.Load() != 0 {
				t.Errorf("verified just before: %v", err)
			}
			if rt, err = b.Runtimes.GetBeforeOwnerVerified(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			b.Runtimes.Refuse("k", rt, subscriberKey("k"), nil) // as if nothing was known about the connection
			err = b.VerifyOwnerBeforeDeletion(t.Context(), key, rt)
			if loop.Reason(err) != v1beta2.ReasonRuntimeTaken || !runtimes.IsRuntimeRefused(err) {
				t.Errorf("%s: %v, want %s", name, err, v1beta2.ReasonRuntimeTaken)
			}
			if _, err := b.Runtimes.Get(t.Context(), "k"); loop.Reason(err) != v1beta2.ReasonRuntimeTaken {
				t.Errorf("the other controllers get %v", err)
			}
			if notified.Load() == 0 {
				t.Error("the Kyma controller is not notified, so it would not release the Manifests")
			}
			err = b.VerifyOwnerBeforeDeletion(t.Context(), client.ObjectKey{Namespace: "gone", Name: "k"}, rt)
			if !runtimes.IsRuntimeRefused(err) {
				t.Errorf("a Kyma that does not exist: %v", err)
			}
		})
	}
}
