package kyma

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// agentState implements AgentStates: it returns the same state for the agent of every runtime.
type agentState struct{ state backchannel.State }

func (v agentState) State(string) (backchannel.State, bool) { return v.state, false }
func (agentState) Release(string)                           {}
func (agentState) Forget(string)                            {}

// ageless is a fake certificate issuer for tests in which no certificate is renewed: an existing certificate is always
// due for renewal in an hour, and every request for a new certificate fails.
type ageless struct{}

func (ageless) Issue(context.Context, authority.Subject) (*authority.Certificate, error) {
	return nil, errors.New("no")
}
func (ageless) Stale(authority.Held, time.Time) (bool, string) { return false, "" }
func (ageless) Due(authority.Held) time.Time                   { return time.Now().Add(time.Hour) }
func (ageless) Release(context.Context, string) error          { return nil }

// indexer adds an index to a fake client.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(o, field, values)
	return nil
}

// unread is a client for tests that returns an error when an access Secret is read.
type unread struct{ client.Reader }

func (unread) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("an access Secret was read")
}

// TestAssume checks a Kyma that was Ready when the process started: no request is made to its runtime before the first
// heartbeat of the agent.
func TestAssume(t *testing.T) {
	cases := map[string]struct {
		reason   string
		edit     func(k *v1beta2.Kyma, o *Options, v *agentState)
		want     bool
		enqueued bool
	}{
		"Ready": {"its status is right", nil, true, false},
		"Beat": {"the first heartbeat came before, so it is enqueued",
			func(_ *v1beta2.Kyma, _ *Options, v *agentState) { v.state.Last = time.Now() }, true, true},
		"New": {"it has no status", func(k *v1beta2.Kyma, _ *Options,
			_ *agentState) {
			k.Status = v1beta2.KymaStatus{}
		}, false, false},
		"Processing": {"something is under way", func(k *v1beta2.Kyma, _ *Options,
			_ *agentState) {
			k.Status.State = v1beta2.StateProcessing
		}, false, false},
		"Edited": {"its spec has changed", func(k *v1beta2.Kyma, _ *Options, _ *agentState) { k.Generation++ }, false,
			false},
		"Silent": {"its agent is not connected",
			func(k *v1beta2.Kyma, _ *Options, _ *agentState) { k.Status.Agent.Connected = false }, false, false},
		"NoAgent": {"it has no agent", func(k *v1beta2.Kyma, _ *Options, _ *agentState) { k.Status.Agent = nil },
			false, false},
		"NoAgents": {"agents are disabled", func(_ *v1beta2.Kyma, o *Options,
			_ *agentState) {
			o.Agents.Delivery = nil
		}, false, false},
		"Paused": {"it is paused", func(k *v1beta2.Kyma, _ *Options, _ *agentState) {
			k.Annotations = map[string]string{v1beta2.AnnotationPaused: "why"}
		}, false, false},
		"Missing": {"a requested module is not installed", func(k *v1beta2.Kyma, _ *Options, _ *agentState) {
			k.Annotations = map[string]string{
				v1beta2.AnnotationLastRequest: `{"channel":"regular","modules":[{"name":"a"}]}`}
		}, false, false},
		"Left": {"a module that is not requested is installed", func(k *v1beta2.Kyma, _ *Options, _ *agentState) {
			k.Status.Modules = []v1beta2.ModuleStatus{{Name: "a", State: v1beta2.StateReady}}
		}, false, false},
		"Channel": {"its status is not right", func(k *v1beta2.Kyma, _ *Options,
			_ *agentState) {
			k.Status.ActiveChannel = "fast"
		}, false, false},
		"PullSecret": {"a pull Secret was configured since",
			func(_ *v1beta2.Kyma, o *Options, _ *agentState) { o.PullSecret = "pull" }, false, false},
		"NoCopy": {"according to its status it has no catalog copy", func(k *v1beta2.Kyma, _ *Options, _ *agentState) {
			k.Status.Conditions = k.Status.Conditions[:1]
		}, false, false},
		"NoSecret": {"it has no access Secret, which its status has to show",
			func(k *v1beta2.Kyma, _ *Options, _ *agentState) {
				k.Name = "b"
			}, false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta2.AddToScheme} {
				if err := add(s); err != nil {
					t.Fatal(err)
				}
			}
			k := &v1beta2.Kyma{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a", Generation: 3},
				Spec:       v1beta2.KymaSpec{Channel: "regular"},
				Status: v1beta2.KymaStatus{
					Conditions: []metav1.Condition{
						{
							Type:   v1beta2.ConditionCRDsSync,
							Status: metav1.ConditionTrue}, {Type: v1beta2.ConditionModuleCatalog,
							Status: metav1.ConditionTrue,
						},
					},
					State: v1beta2.StateReady, ObservedGeneration: 3, ActiveChannel: "regular", ModulesReady: "0/0",
					Agent: &v1beta2.AgentStatus{Connected: true, Certificate: &v1beta2.AgentCertificate{}},
				},
			}
			d, err := delivery.New(delivery.Options{
				Issuer: ageless{}, Roots: func() []*x509.Certificate { return nil }, Image: "i",
				Address: "a:1", AuditInterval: time.Hour,
			})
			if err != nil {
				t.Fatal(err)
			}
			b := fake.NewClientBuilder().WithScheme(s).WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Namespace: "kcp-system", Name: "a", Labels: map[string]string{v1beta2.LabelKymaName: "a"},
			}})
			for _, i := range cacheIndexes() {
				b = b.WithIndex(i.Object, i.Name, i.Keys)
			}
			for _, kind := range []client.Object{&corev1.Secret{}, &v1beta2.Manifest{}} {
				if err := runtimes.IndexByKyma(t.Context(), indexer{b}, kind); err != nil {
					t.Fatal(err)
				}
			}
			kcp := b.Build()
			pool, err := runtimes.New(t.Context(),
				runtimes.Options{Cache: kcp, Live: unread{}, Namespace: "kcp-system", Agents: true})
			if err != nil {
				t.Fatal(err)
			}
			v := agentState{}
			o := Options{Client: kcp, Namespace: "kcp-system", Runtimes: pool, Agents: agentdelivery.Options{
				Delivery: d, FirstHeartbeatTimeout: func() time.Duration { return time.Hour },
			}}
			if c.edit != nil {
				c.edit(k, &o, &v)
			}
			o.Agents.AgentStates = v
			r := testReconciler(t, o)
			q := queueOf(t, r)
			n := &run{Reconciler: r, kyma: k, now: time.Now()}

			result, err := loop.Run(t.Context(), loop.Options{Object: k}, loop.Step{Name: "assume",
				Do: n.assumeUnchanged},
				loop.Step{Name: "connect", Do: func(context.Context) error {
					return loop.ContinueAndRequeueAfter(time.Minute)
				}})
			if err != nil {
				t.Fatal(err)
			}
			if got := result.RequeueAfter == 0; got != c.want {
				t.Errorf("%s: assumed is %v, want %v", c.reason, got, c.want)
			}
			if c.want && (!n.found.baseSynced || !n.found.catalogSynced || !n.found.resolved || n.runtime != nil) ||
				!c.want && (n.remote != nil || n.found.resolved || len(n.modules) > 0) {
				t.Errorf("%s: the reconcile continues with %+v", c.reason, n)
			}
			if got := slices.Contains(q.all(), k.Name); got != c.enqueued {
				t.Errorf("%s: enqueued is %v, want %v", c.reason, got, c.enqueued)
			}
			if c.want {
				if next := (&run{Reconciler: r, kyma: k, now: time.Now()}); next.mayAssumeUnchanged() {
					t.Errorf("%s: the next reconcile would make no request either", c.reason)
				}
			}
		})
	}
}

// releasedAgents implements AgentStates: it records the runtimes whose heartbeats were released.
type releasedAgents struct {
	agentState
	kymas []string
}

func (v *releasedAgents) Release(kyma string) { v.kymas = append(v.kymas, kyma) }

// TestMovedRuntimeIsReleased checks that a replica drops the heartbeats of a runtime that another replica reconciles.
func TestMovedRuntimeIsReleased(t *testing.T) {
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	states := &releasedAgents{}
	r := testReconciler(t, Options{Namespace: "kcp-system", Runtimes: pool, Shards: &shard.Keeper{},
		Urgent: queueing.NewUrgent(), Agents: agentdelivery.Options{AgentStates: states}})
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "kcp-system", Name: "a"}}
	if _, err := r.Reconcile(t.Context(), request); err != nil || !slices.Equal(states.kymas, []string{"a"}) {
		t.Errorf("released %q, %v, want a", states.kymas, err)
	}
}
