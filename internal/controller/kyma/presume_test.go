package kyma

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/maintenance"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// indexer teaches a fake client an index.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(o, field, values)
	return nil
}

// unread fails whoever reads an access Secret.
type unread struct{ client.Reader }

func (unread) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("an access Secret was read")
}

// TestPresume: a Kyma that was Ready when the program started needs no request to its runtime, until its agent is heard.
func TestPresume(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   func(k *v1beta2.Kyma, r *Reconciler, v *voice)
		want   bool
		woken  bool
	}{
		"Ready":      {"it is as it says", nil, true, false},
		"Heard":      {"its agent was quicker, so it is looked at after that", func(_ *v1beta2.Kyma, _ *Reconciler, v *voice) { v.state.Last = time.Now() }, true, true},
		"New":        {"nobody has said anything of it", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) { k.Status = v1beta2.KymaStatus{} }, false, false},
		"Processing": {"something is under way", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) { k.Status.State = v1beta2.StateProcessing }, false, false},
		"Edited":     {"somebody has changed it here", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) { k.Generation++ }, false, false},
		"Unheard":    {"nobody would tell", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) { k.Status.Agent.Connected = false }, false, false},
		"NoAgent":    {"nobody tells", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) { k.Status.Agent = nil }, false, false},
		"NoAgents":   {"agents are not wanted any more", func(_ *v1beta2.Kyma, r *Reconciler, _ *voice) { r.Agents.Delivery = nil }, false, false},
		"Met":        {"this is not its first pass", func(k *v1beta2.Kyma, r *Reconciler, _ *voice) { r.known[k.Name] = &memory{} }, false, false},
		"Paused": {"that has its own rules", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) {
			k.Annotations = map[string]string{v1beta2.AnnotationPaused: "why"}
		}, false, false},
		"Wish": {"a module that was asked for is not there", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) {
			k.Annotations = map[string]string{v1beta2.AnnotationLastRequest: `{"channel":"regular","modules":[{"name":"a"}]}`}
		}, false, false},
		"Left": {"a module that nobody asks for is there", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) {
			k.Status.Modules = []v1beta2.ModuleStatus{{Name: "a", State: v1beta2.StateReady}}
		}, false, false},
		"Channel":    {"it would say something else", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) { k.Status.ActiveChannel = "fast" }, false, false},
		"PullSecret": {"since it was reported, runtimes are to have a pull Secret", func(_ *v1beta2.Kyma, r *Reconciler, _ *voice) { r.PullSecret = "pull" }, false, false},
		"Bare": {"it lacks its catalog, as it says", func(k *v1beta2.Kyma, _ *Reconciler, _ *voice) {
			k.Status.Conditions = k.Status.Conditions[:1]
		}, false, false},
		"NoSecret": {"there is no way to it, which its status has to say", func(k *v1beta2.Kyma, r *Reconciler, _ *voice) {
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
						{Type: v1beta2.ConditionCRDsSync, Status: metav1.ConditionTrue}, {Type: v1beta2.ConditionModuleCatalog, Status: metav1.ConditionTrue},
					},
					State: v1beta2.StateReady, ObservedGeneration: 3, ActiveChannel: "regular", ModulesReady: "0/0",
					Agent: &v1beta2.AgentStatus{Connected: true, Certificate: &v1beta2.AgentCertificate{}},
				},
			}
			d, err := delivery.New(delivery.Options{
				Issuer: ageless{}, Roots: func() []*x509.Certificate { return nil }, Image: "i", Address: "a:1", AuditInterval: time.Hour,
			})
			if err != nil {
				t.Fatal(err)
			}
			b := fake.NewClientBuilder().WithScheme(s).WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Namespace: "kcp-system", Name: "a", Labels: map[string]string{v1beta2.LabelKymaName: "a"},
			}})
			for _, i := range indexes {
				b = b.WithIndex(i.object, i.name, i.keys)
			}
			for _, kind := range []client.Object{&corev1.Secret{}, &v1beta2.Manifest{}} {
				if err := runtimes.IndexByKyma(t.Context(), indexer{b}, kind); err != nil {
					t.Fatal(err)
				}
			}
			kcp := b.Build()
			pool, err := runtimes.New(t.Context(), runtimes.Options{Cache: kcp, Live: unread{}, Namespace: "kcp-system", Agents: true})
			if err != nil {
				t.Fatal(err)
			}
			v := voice{}
			r := &Reconciler{known: map[string]*memory{}, policies: maintenance.New(maintenance.Options{}), reviews: workqueue.NewTypedDelayingQueue[string](), Options: Options{
				Client: kcp, Namespace: "kcp-system", Runtimes: pool, Agents: Agents{Delivery: d, Silence: func() time.Duration { return time.Hour }},
			}}
			defer r.reviews.ShutDown()
			q := queue(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()))
			defer q.ShutDown()
			r.queue.Store(&q)
			n := &run{Reconciler: r, kyma: k, now: time.Now()}
			if c.edit != nil {
				c.edit(k, r, &v)
			}
			r.Agents.Voices = v

			result, err := loop.Run(t.Context(), loop.Options{Object: k}, loop.Step{Name: "presume", Do: n.presume}, loop.Step{Name: "connect", Do: func(context.Context) error {
				return loop.RecheckAfter(time.Minute)
			}})
			if err != nil {
				t.Fatal(err)
			}
			if got := result.RequeueAfter == 0; got != c.want {
				t.Errorf("%s: presumed is %v, want %v", c.reason, got, c.want)
			}
			if c.want && (!n.mirrored || !n.catalogued || !n.resolved() || n.runtime != nil) || !c.want && (n.remote != nil || n.resolved() || len(n.modules) > 0) {
				t.Errorf("%s: the pass goes on with %+v", c.reason, n)
			}
			if c.woken && !t.Failed() {
				if request, _ := q.Get(); request.Name != k.Name {
					t.Errorf("%s: %v is woken, want the Kyma", c.reason, request)
				}
			}
			if c.want { // it is met now
				if again := (&run{Reconciler: r, kyma: k, now: time.Now()}); again.mayPresume() {
					t.Errorf("%s: its next pass would not look either", c.reason)
				}
			}
		})
	}
}

// TestPresumedIsLookedAt: the first heartbeat leads to a look, and so does its absence.
func TestPresumedIsLookedAt(t *testing.T) {
	cases := map[string]struct {
		reason string
		voice  voice
		born   time.Duration // ago
		want   bool
	}{
		"Waiting": {"its heartbeat is on its way", voice{}, time.Minute, false},
		"Heard":   {"it is heard", voice{heard: true, state: backchannel.State{Last: time.Now()}}, time.Minute, true},
		"Lost":    {"it was heard, and is not any more", voice{state: backchannel.State{Last: time.Now()}}, time.Minute, true},
		"Silent":  {"it should have been heard by now", voice{}, 2 * time.Hour, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{
				known:   map[string]*memory{"a": {presumed: true, born: time.Now().Add(-c.born)}},
				Options: Options{Agents: Agents{Voices: c.voice, Silence: func() time.Duration { return time.Hour }}},
			}
			got, again := r.needsPass(t.Context(), "a")
			if got != c.want || !got && (again <= 0 || again > time.Hour) {
				t.Errorf("%s: got %v and %v, want %v", c.reason, got, again, c.want)
			}
		})
	}
}
