package manager

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func TestPaceOfHeartbeats(t *testing.T) {
	cases := map[string]struct {
		reason        string
		kymas, budget int
		want          time.Duration
	}{
		"None":      {"nobody", 0, 33, 0},
		"Small":     {"33 a second are enough for 30 s", 990, 33, 0},
		"Large":     {"and not for more", 9900, 33, 300 * time.Second},
		"Unlimited": {"as often as the watch list says", 1_000_000, 0, 0},
		"Huge":      {"no agent waits for longer", 1_000_000, 33, protocol.MaxHeartbeatInterval},
	}
	for name, c := range cases {
		h := &heartbeats{interval: 30 * time.Second, budget: c.budget, own: counted(c.kymas)}
		if got := h.nextInterval(); got != c.want {
			t.Errorf("%s: %s: %v, want %v", name, c.reason, got, c.want)
		}
	}
}

// counted returns a kymaCounter that has counted n Kymas.
func counted(n int) *kymaCounter { return &kymaCounter{kymas: n, countedAt: time.Now()} }

// TestFirstHeartbeatAfterScaleOut checks a replica that takes over a third of a fleet of 10,000 runtimes: the agents
// still keep the delay that the replica with the whole fleet has requested, and must not count as silent.
func TestFirstHeartbeatAfterScaleOut(t *testing.T) {
	h := &heartbeats{interval: 30 * time.Second, budget: 12, own: counted(3333), fleet: counted(10_000)}
	options := (&agents{heartbeats: h, issuer: &authority.Authority{}, listener: &backchannel.Listener{}}).forKymas()
	requested := (&heartbeats{interval: h.interval, budget: h.budget, own: h.fleet}).nextInterval()
	latest := requested + requested/10 // the agent varies the delay by up to a tenth
	if got := options.FirstHeartbeatTimeout(); requested < 833*time.Second || got < latest+100*time.Second {
		t.Errorf("the first heartbeat is awaited for %v, but the agent was asked to wait for %v", got, requested)
	}
	if got := h.nextInterval(); got != 3333*time.Second/12 {
		t.Errorf("the next heartbeat is wanted in %v, as if this replica had the whole fleet", got)
	}
}

// TestFleetIsCounted checks that a replica with shards counts the Kymas of all replicas.
func TestFleetIsCounted(t *testing.T) {
	kinds, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	kymas := func(n int) client.Client {
		b := fake.NewClientBuilder().WithScheme(kinds)
		for i := range n {
			b.WithObjects(&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: fmt.Sprint(i)}})
		}
		return b.Build()
	}
	c := &config.Manager{Namespace: "kcp-system", HeartbeatInterval: 30 * time.Second, HeartbeatBudget: 1}
	f := foundation{config: c, manager: fakeManager{client: kymas(40)}}
	all := &identities{base: t.Context(), namespace: c.Namespace, reader: kymas(100), metadata: true}
	h := newHeartbeats(t.Context(), f, all)
	if first, next := h.firstTimeout(), h.nextInterval(); first != 210*time.Second || next != 40*time.Second {
		t.Errorf("the first heartbeat is awaited for %v, the next one for %v; want 3m30s and 40s", first, next)
	}
}

// TestPublishWithoutMetadata checks that an event without metadata reaches a subscriber whose labels the changed object
// may have had before.
func TestPublishWithoutMetadata(t *testing.T) {
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: "https://127.0.0.1:1"},
		BatchDelay: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Remove("k") })
	var got []runtimes.Event
	roles := runtimes.Interest{Kind: "ClusterRole", Labels: "a=1", Resource: schema.GroupVersionResource{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}}
	pool.Subscribe("k", runtimes.Subscriber{Key: "s", Interests: []runtimes.Interest{roles},
		Notify: func(e runtimes.Event) { got = append(got, e) }})
	e := protocol.Event{Watched: protocol.Name{Name: "r"}, Resource: roles.Resource.Resource,
		WatchedGVK: metav1.GroupVersionKind{Group: roles.Resource.Group, Version: "v1", Kind: roles.Kind}}
	for _, object := range []*metav1.ObjectMeta{{Labels: map[string]string{"a": "2"}}, nil} {
		e.Object = object
		publishEvent(pool, newKymaQueues("kcp-system"), "k", e)
	}
	if len(got) != 1 || !got[0].Missed {
		t.Errorf("the subscriber got %+v, want only a Missed event", got)
	}
}

// TestLookupRevocation checks which certificates of a runtime the listener refuses: only those that the issuer
// replaces.
func TestLookupRevocation(t *testing.T) {
	kinds, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	hour := time.Now().Truncate(time.Second).Add(-time.Hour)
	cases := map[string]struct {
		reason, annotation string
		created            time.Time
		uid                string // in the certificate
		want               time.Time
	}{
		"None": {reason: "nothing is revoked"},
		"Past": {reason: "certificates from before that time are revoked", annotation: hour.Format(time.RFC3339),
			want: hour},
		"Future": {reason: "nothing is revoked yet", annotation: hour.Add(2 * time.Hour).Format(time.RFC3339)},
		"Fraction": {reason: "a time of issue has whole seconds",
			annotation: hour.Add(400 * time.Millisecond).Format(time.RFC3339Nano), want: hour},
		"Nonsense":     {reason: "as without the annotation", annotation: "now"},
		"CreatedAgain": {reason: "an older certificate may be that of a former Kyma", created: hour, want: hour},
		"CreatedAgainWithUID": {reason: "the UID shows that it is the certificate of this Kyma", created: hour,
			uid: "uid"},
		"CreatedThenRevoked": {reason: "the later time counts", created: hour.Add(-time.Hour),
			annotation: hour.Format(time.RFC3339), want: hour},
		"RevokedThenCreated": {reason: "the later time counts", created: hour,
			annotation: hour.Add(-time.Hour).Format(time.RFC3339), want: hour},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "k", UID: "uid",
				CreationTimestamp: metav1.NewTime(c.created),
				Annotations:       map[string]string{v1beta2.AnnotationCertificatesNotBefore: c.annotation}}}
			index := func(o client.Object) []string { return []string{commonName(o)} }
			i := &identities{base: t.Context(), namespace: k.Namespace, reader: fake.NewClientBuilder().
				WithScheme(kinds).WithIndex(k, identityIndex, index).WithObjects(k).Build()}
			got, err := i.lookup(protocol.Identity{CommonName: "k", UID: c.uid})
			if err != nil || !got.NotBefore.Equal(c.want) {
				t.Errorf("%s: refused are certificates from before %v, %v; want %v", c.reason, got.NotBefore, err, c.want)
			}
		})
	}
}
