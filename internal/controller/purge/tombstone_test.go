package purge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/tombstone"
)

// held is a fake of the cache in TombstoneOptions.Held: it reads from a fake client, and reports that the cache has
// always synced.
type held struct {
	cache.Cache
	client.Client
}

func (h held) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return h.Client.Get(ctx, key, o, opts...)
}

func (h held) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return h.Client.List(ctx, l, opts...)
}

// indexer adds indexes to a fake client.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(o, field, values)
	return nil
}

const (
	remoteAPI  = "/apis/operator.kyma-project.io/v1beta2"
	remotePath = remoteAPI + "/namespaces/kyma-system/kymas/default"
	ourCRDPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kymas.operator.kyma-project.io"
)

// accessTo returns the access Secret for the runtime that a test server simulates.
func accessTo(t *testing.T, host string) *corev1.Secret {
	t.Helper()
	config := clientcmdapi.Config{
		CurrentContext: "c", Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}},
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: host}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {Token: "t"}},
	}
	data, err := clientcmd.Write(config)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "access",
		Labels: map[string]string{v1beta2.LabelKymaName: "k"}}, Data: map[string][]byte{"config": data}}
}

// tombstoneOf returns the tombstone of the Kyma k. The tombstone lists the objects of one module, the Kyma in the
// runtime, and the CRD of Kymas.
func tombstoneOf(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	of := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k", UID: "u"}}
	maps, err := tombstone.New(of, []*v1beta2.Manifest{manifest()}, []v1beta2.Resource{
		{
			Group:     "operator.kyma-project.io",
			Version:   "v1beta2",
			Kind:      "Kyma",
			Namespace: "kyma-system",
			Name:      "default",
		},
		{
			Group:   "apiextensions.k8s.io",
			Version: "v1",
			Kind:    "CustomResourceDefinition",
			Name:    "kymas.operator.kyma-project.io",
		},
	}).ConfigMaps("n")
	if err != nil {
		t.Fatal(err)
	}
	return maps[0]
}

// newTombstones returns a Tombstones that uses a fake control plane, which contains the given objects.
func newTombstones(t *testing.T, o Options, objects ...client.Object) (*Tombstones, *events.FakeRecorder) {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...)
	for _, kind := range []client.Object{runtimes.NewSecretMetadata(), &corev1.ConfigMap{}} {
		if err := runtimes.IndexByKyma(t.Context(), indexer{b}, kind); err != nil {
			t.Fatal(err)
		}
	}
	c := b.Build()
	pool, err := runtimes.New(t.Context(), runtimes.Options{Cache: c, Live: c, Namespace: "n",
		Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Remove("k") })
	recorder := events.NewFakeRecorder(100)
	o.Client, o.Runtimes, o.Events = c, pool, recorder
	r, err := NewTombstones(TombstoneOptions{Options: o, Held: held{Client: c}, Live: c, Namespace: "n",
		ControlPlaneID: "cp"})
	if err != nil {
		t.Fatal(err)
	}
	return r, recorder
}

func (r *Tombstones) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := r.Reconcile(
		t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// left reports whether a tombstone is left in the control plane.
func (r *Tombstones) left(t *testing.T) bool {
	t.Helper()
	var maps corev1.ConfigMapList
	if err := r.Client.List(t.Context(), &maps); err != nil {
		t.Fatal(err)
	}
	return len(maps.Items) > 0
}

// withRemote adds the Kyma and its CRD to the runtime.
func (s *server) withRemote(owner string) {
	s.add(remotePath, nil)
	s.objects[remotePath]["metadata"].(map[string]any)["annotations"] = map[string]any{v1beta2.AnnotationOwnedBy: owner}
	s.add(ourCRDPath, nil)
	s.served = true
}

// withRecord sets the record of the owner on the Kyma in the runtime. withRemote has to be called first.
func (s *server) withRecord(o ownership.Owner) {
	metadata := s.objects[remotePath]["metadata"].(map[string]any)
	metadata["annotations"].(map[string]any)[v1beta2.AnnotationOwner] = o.Encode()
}

func TestTombstones(t *testing.T) {
	live := func(uid string) *v1beta2.Kyma {
		k := kyma(0, v1beta2.FinalizerKyma)
		k.UID = "u"
		if uid != "u" {
			k.UID, k.DeletionTimestamp = "other", nil
		}
		return k
	}
	recorded := func(controlPlane string, uid types.UID) *ownership.Owner {
		return &ownership.Owner{ControlPlane: controlPlane, Kyma: "n/k", UID: uid, Cluster: "uid-kube-system"}
	}
	cases := map[string]struct {
		reason  string
		objects []client.Object
		access  bool
		owner   string // of the Kyma in the runtime
		record  *ownership.Owner
		// controlPlane means that the runtime is a control plane, too.
		controlPlane bool
		left         bool
		writes       []string
		event        string
	}{
		"StillExists": {
			reason:  "its Kyma is about to be deleted",
			objects: []client.Object{live("u")},
			access:  true,
			owner:   "n/k",
			left:    true,
		},
		"AnotherKyma": {
			reason:  "another Kyma takes over the runtime",
			objects: []client.Object{live("other")},
			access:  true,
			owner:   "n/k",
			event:   "another Kyma of that name",
		},
		"NoSecret": {reason: "the access Secret may be created again", owner: "n/k", left: true},
		"TakenOver": {
			reason: "the runtime belongs to another Kyma",
			access: true,
			owner:  "n/other",
			event:  "belongs to Kyma n/other",
		},
		"ControlPlane": {
			reason: "the CRDs stay where other Kymas exist",
			access: true, owner: "n/k", controlPlane: true,
			writes: []string{"DELETE " + thingPath + "own", "DELETE " + configPath, "DELETE " + crdPath,
				"DELETE " + remotePath}, event: "nothing of its 6 objects",
		},
		"Reachable": {
			reason: "custom resources, then the module, then the objects of Lifecycle Manager",
			access: true, owner: "n/k",
			writes: []string{"DELETE " + thingPath + "own", "DELETE " + configPath, "DELETE " + crdPath,
				"DELETE " + remotePath, "DELETE " + ourCRDPath}, event: "nothing of its 6 objects",
		},
		"Recorded": {
			reason: "the record names the Kyma of the tombstone", record: recorded("cp", "u"),
			access: true, owner: "n/k",
			writes: []string{"DELETE " + thingPath + "own", "DELETE " + configPath, "DELETE " + crdPath,
				"DELETE " + remotePath, "DELETE " + ourCRDPath}, event: "nothing of its 6 objects",
		},
		"LaterKyma": {
			reason: "the tombstone is from a backup, and a later Kyma of the same name has used the runtime",
			access: true, owner: "n/k", record: recorded("cp", "later"),
			event: "belongs to another Kyma n/k of this control plane (UID later)",
		},
		"LostControlPlane": {
			reason: "the control plane was restored into another cluster", record: recorded("lost", "u"),
			access: true, owner: "n/k",
			writes: []string{"DELETE " + thingPath + "own", "DELETE " + configPath, "DELETE " + crdPath,
				"DELETE " + remotePath, "DELETE " + ourCRDPath}, event: "nothing of its 6 objects",
		},
		"LaterKymaOfLostControlPlane": {
			reason: "the same, but the backup is older than the Kyma that uses the runtime", access: true, owner: "n/k",
			record: recorded("lost", "later"), event: "belongs to Kyma n/k of another control plane",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.add(thingPath+"own", nil)
			s.withRemote(c.owner)
			if c.record != nil {
				s.withRecord(*c.record)
			}
			s.isControlPlane = c.controlPlane
			if c.objects = append(c.objects, tombstoneOf(t)); c.access {
				c.objects = append(c.objects, accessTo(t, s.URL))
			}
			r, recorder := newTombstones(t, Options{Grace: time.Minute}, c.objects...)
			for range 3 {
				r.reconcile(t)
			}
			if got := s.take(); !slices.Equal(got, c.writes) {
				t.Errorf("%s: sent %q, want %q", c.reason, got, c.writes)
			}
			if r.left(t) != c.left {
				t.Errorf("%s: the tombstone exists: %t, want %t", c.reason, !c.left, c.left)
			}
			e := takeEvents(recorder)
			ended := slices.DeleteFunc(slices.Clone(e),
				func(e string) bool { return !strings.Contains(e, v1beta2.EventTombstoneDeleted) })
			if c.event == "" && e != nil || c.event != "" && (len(ended) != 1 || !strings.Contains(ended[0], c.event)) {
				t.Errorf("%s: recorded %q, want once %q", c.reason, e, c.event)
			}
			if c.writes != nil && !s.has(keptPath) {
				t.Errorf("%s: a kept object was deleted", c.reason)
			}
		})
	}
}

func TestTombstoneWaitsForTheRuntime(t *testing.T) {
	s := newServer(t)
	s.Close()
	r, recorder := newTombstones(t, Options{Grace: time.Minute}, tombstoneOf(t), accessTo(t, s.URL))
	if after := r.reconcile(t).RequeueAfter; after <= 0 || !r.left(t) || takeEvents(recorder) != nil {
		t.Errorf("is reconciled again after %s, tombstone exists: %t; want that it waits", after, r.left(t))
	}
}

func TestFinalizersNobodyServes(t *testing.T) {
	cases := map[string]struct {
		reason  string
		grace   time.Duration
		deleted bool
	}{
		"Purge":   {"they have had their finalizerGracePeriod", time.Minute, true},
		"NoPurge": {"without a grace period finalizers stay", 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.add(thingPath+"mine", []string{"example.com/nobody"}) // deleted an hour ago
			s.withRemote("n/k")
			r, recorder := newTombstones(t, Options{Grace: c.grace}, tombstoneOf(t), accessTo(t, s.URL))
			for range 3 {
				r.reconcile(t)
			}
			if r.left(t) == c.deleted || s.has(thingPath+"mine") == c.deleted || s.has(configPath) == c.deleted ||
				s.has(remotePath) == c.deleted {
				t.Errorf("%s: the tombstone exists: %t, the custom resource: %t, its operator: %t (%q)",
					c.reason, r.left(t), s.has(thingPath+"mine"), s.has(configPath), takeEvents(recorder))
			}
		})
	}
}

// TestTombstonesAreFoundByIndex checks that the reconcile of a Kyma without a tombstone does not read the tombstones of
// all other Kymas, and that many tombstones are reconciled at the same time.
func TestTombstonesAreFoundByIndex(t *testing.T) {
	var all []client.Object
	for i := range 20 {
		other := tombstoneOf(t)
		other.Name = fmt.Sprintf("tombstone-%d", i)
		other.Labels[v1beta2.LabelKymaName] = fmt.Sprintf("other-%d", i)
		all = append(all, other)
	}
	r, _ := newTombstones(t, Options{}, all...)
	cached, read := r.options.Held.(held).Client, 0
	r.options.Held = held{Client: interceptor.NewClient(cached.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			read += meta.LenList(list)
			return err
		}})}
	r.reconcile(t)
	if read != 0 {
		t.Errorf("%d tombstones of other Kymas were read", read)
	}
	if purges, err := New(r.Options); err != nil || r.Concurrency < 64 {
		t.Errorf("%v, %d tombstones are reconciled at the same time; 500 unreachable runtimes would delay the others "+
			"(%d Kymas for purges)", err, r.Concurrency, purges.Concurrency)
	}
}

// TestTombstoneOfRemovedCluster checks that a tombstone is deleted when the access Secret has been missing for a while.
func TestTombstoneOfRemovedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, recorder := newTombstones(t, Options{Grace: time.Minute}, tombstoneOf(t))
		time.Sleep(r.reconcile(t).RequeueAfter)
		r.reconcile(t)
		if e := takeEvents(recorder); r.left(t) || len(e) != 1 || !strings.Contains(e[0], "access Secret was removed") {
			t.Errorf("the tombstone exists: %t; recorded %q", r.left(t), e)
		}
	})
}

// TestRequestIfTombstoneExists checks that Kymas and access Secrets cause no reconciles if there is no tombstone.
func TestRequestIfTombstoneExists(t *testing.T) {
	r, _ := newTombstones(t, Options{}, tombstoneOf(t))
	for name, want := range map[string]int{"k": 1, "other": 0} {
		kyma := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
		secret := runtimes.NewSecretMetadata()
		secret.Namespace, secret.Name, secret.Labels = "n", "s", map[string]string{v1beta2.LabelKymaName: name}
		for _, o := range []client.Object{kyma, secret} {
			got := r.requestIfTombstoneExists(t.Context(), o)
			if len(got) != want || want > 0 && got[0].Name != name {
				t.Errorf("%T of Kyma %s: got %v, want %d requests", o, name, got, want)
			}
		}
	}
}

// TestCountTombstones checks that the metric is the sum over all namespaces that the process serves.
func TestCountTombstones(t *testing.T) {
	value := func() float64 {
		var m dto.Metric
		if err := metrics.Tombstones.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetGauge().GetValue()
	}
	before := value()
	one, _ := newTombstones(t, Options{}, tombstoneOf(t))
	none, _ := newTombstones(t, Options{})
	for range 2 {
		one.countTombstones(t.Context())
		none.countTombstones(t.Context())
		if got := value() - before; got != 1 {
			t.Errorf("the metric has %v tombstones, want 1", got)
		}
	}
	if err := one.Client.Delete(t.Context(), tombstoneOf(t)); err != nil {
		t.Fatal(err)
	}
	if one.countTombstones(t.Context()); value() != before {
		t.Errorf("the metric has %v tombstones, want none", value()-before)
	}
}
