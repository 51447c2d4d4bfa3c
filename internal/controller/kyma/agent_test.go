package kyma

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// voice is what was heard of every runtime.
type voice struct {
	state backchannel.State
	heard bool
}

func (v voice) State(string) (backchannel.State, bool) { return v.state, v.heard }
func (voice) Forget(string)                            {}

// ageless issues certificates that never end.
type ageless struct{}

func (ageless) Issue(context.Context, authority.Subject) (*authority.Certificate, error) {
	return nil, errors.New("no")
}
func (ageless) Stale(authority.Held, time.Time) (bool, string) { return false, "" }
func (ageless) Due(authority.Held) time.Time                   { return time.Now().Add(59 * time.Minute) }
func (ageless) Release(context.Context, string) error          { return nil }

func TestHearAgent(t *testing.T) {
	list := protocol.Watchlist{Watches: []protocol.Watch{{Version: "v1", Resource: "configmaps"}}}
	beat := func(edit func(*protocol.Heartbeat)) voice {
		v := voice{heard: true, state: backchannel.State{Last: time.Now(), Heartbeat: protocol.Heartbeat{BootID: "b", Version: "1.2.3", Sequence: 7, Watchlist: list.Digest()}}}
		v.state.Identity.Root = "root"
		if edit != nil {
			edit(&v.state.Heartbeat)
		}
		return v
	}
	silent := voice{state: backchannel.State{Last: time.Now().Add(-time.Hour), Heartbeat: protocol.Heartbeat{Sequence: 7}}}
	late := beat(func(h *protocol.Heartbeat) { h.Watchlist = "older" })
	cases := map[string]struct {
		reason string
		voice  voice
		before v1beta2.AgentStatus
		behind time.Duration // for how long it has not watched what it should
		waits  string
		err    error
		heard  bool
		why    string
		most   time.Duration // until it is looked at again
	}{
		"Heard":    {"all is well until the certificate has to be renewed", beat(nil), v1beta2.AgentStatus{}, 0, "", nil, true, "", time.Hour},
		"Never":    {"it has just been delivered", voice{}, v1beta2.AgentStatus{}, 0, "", nil, false, "AgentSilent", time.Hour},
		"Restart":  {"the program is young: the next heartbeat is on its way", voice{}, v1beta2.AgentStatus{Connected: true}, 0, "", nil, true, "", time.Hour},
		"Silent":   {"it was heard by this program, and no more", silent, v1beta2.AgentStatus{Connected: true}, 0, "", nil, false, "AgentSilent", time.Second},
		"Still":    {"and is still not", silent, v1beta2.AgentStatus{Reason: "AgentSilent"}, 0, "", nil, false, "AgentSilent", time.Hour},
		"Problem":  {"it cannot watch something", beat(func(h *protocol.Heartbeat) { h.Problem = "forbidden" }), v1beta2.AgentStatus{Connected: true}, 0, "", nil, false, "AgentImpaired", time.Second},
		"Late":     {"it has not taken up its new list yet", late, v1beta2.AgentStatus{Connected: true}, 0, "", nil, true, "", time.Hour},
		"Deaf":     {"it does not take it up", late, v1beta2.AgentStatus{Connected: true}, 2 * time.Minute, "", nil, false, "AgentImpaired", time.Second},
		"Waits":    {"it is being delivered", voice{}, v1beta2.AgentStatus{}, 0, "something", nil, false, "", time.Second},
		"Error":    {"it cannot be delivered", voice{}, v1beta2.AgentStatus{Connected: true}, 0, "", errors.New("no such thing"), false, "AgentNotDelivered", time.Minute},
		"Reasoned": {"for a reason that is known", voice{}, v1beta2.AgentStatus{}, 0, "", &authority.Error{Code: "AuthorityBroken"}, false, "AuthorityBroken", time.Minute},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d, err := delivery.New(delivery.Options{
				Issuer: ageless{}, Roots: func() []*x509.Certificate { return nil }, Image: "i", Address: "a:1", AuditInterval: time.Hour,
			})
			if err != nil {
				t.Fatal(err)
			}
			status := c.before
			status.Certificate = &v1beta2.AgentCertificate{}
			r := &Reconciler{known: map[string]*memory{}, reviews: workqueue.NewTypedDelayingQueue[string](), Options: Options{Agents: Agents{Delivery: d, Voices: c.voice, Heartbeat: 10 * time.Second, Silence: func() time.Duration { return time.Hour }}}}
			defer r.reviews.ShutDown()
			n := &run{Reconciler: r, kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, now: time.Now()}
			n.kyma.Status.Agent, n.watchlist = &status, list.Digest()
			m := n.memory("a", nil)
			if c.behind > 0 {
				m.behind = n.now.Add(-c.behind)
			}
			again := n.hearAgent(m, c.waits, c.err)
			if status.Connected != c.heard || status.Reason != c.why || again > c.most || again <= 0 {
				t.Errorf("%s: heard %v, reason %q, again in %s; want %v, %q, at most %s", c.reason, status.Connected, status.Reason, again, c.heard, c.why, c.most)
			}
			if (status.Message == "") != (c.why == "") {
				t.Errorf("%s: message %q for reason %q", c.reason, status.Message, c.why)
			}
			same := status
			n.now = n.now.Add(time.Second)
			n.hearAgent(m, c.waits, c.err)
			if diff := cmp.Diff(same, status); diff != "" {
				t.Errorf("nothing changes while nothing changes: -first +second:\n%s", diff)
			}
		})
	}
}

func TestWatchersOfAgents(t *testing.T) {
	watcher := func(edit func(*v1beta2.WatcherSpec)) *v1beta2.Watcher {
		w := &v1beta2.Watcher{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "w"}, Spec: v1beta2.WatcherSpec{
			Manager: "cron", Field: v1beta2.StatusField, LabelsToWatch: map[string]string{"b": "2", "a": "1"},
			ResourceToWatch: v1beta2.WatchableGVR{Group: "batch", Version: "*", Resource: "cronjobs"},
		}}
		if edit != nil {
			edit(&w.Spec)
		}
		return w
	}
	cases := map[string]struct {
		reason string
		w      *v1beta2.Watcher
		watch  []protocol.Watch
		hooks  []delivery.Webhook
	}{
		"Watch": {"by default the agent watches", watcher(nil),
			[]protocol.Watch{{Manager: "cron", Group: "batch", Version: "*", Resource: "cronjobs", Selector: "a=1,b=2", Field: protocol.FieldStatus}}, nil},
		"Webhook": {"or is asked", watcher(func(s *v1beta2.WatcherSpec) { s.Mode = v1beta2.WatcherModeWebhook }), nil,
			[]delivery.Webhook{{Name: "kcp-system.w.operator.kyma-project.io", Manager: "cron", Group: "batch", Version: "*", Resource: "cronjobs", Status: true, Labels: map[string]string{"a": "1", "b": "2"}}}},
		"BadLabel": {"what cannot be selected is told by the Watcher", watcher(func(s *v1beta2.WatcherSpec) { s.LabelsToWatch = map[string]string{"a b": ""} }), nil, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := delivery.Request{}
			addWatcher(&r, c.w)
			addWatcher(&r, c.w)
			if c.hooks == nil {
				r.Webhooks = nil
			} else {
				r.Webhooks = r.Webhooks[:1]
			}
			if diff := cmp.Diff(c.watch, r.Watchlist.Watches) + cmp.Diff(c.hooks, r.Webhooks); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}

// TestNeedsPass follows a runtime from the start of the program: what its Kyma says is confirmed without a pass.
func TestNeedsPass(t *testing.T) {
	const name = "a"
	key := runtimes.ManifestSubscriberKey("kcp-system", "m")
	maps := runtimes.Interest{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap"}
	jobs := runtimes.Interest{Resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, Kind: "Job"}
	cases := map[string]struct {
		reason string
		edit   func(v *voice, s *v1beta2.AgentStatus, m *memory)
		wants  []runtimes.Interest // of the Manifest; nil if it has not said
		want   bool
		again  time.Duration // when to ask again at the latest, 0 for never
	}{
		"Confirmed": {"it is heard, and has what it should", nil, []runtimes.Interest{maps}, false, 0},
		"Young": {"it was heard before, and its first heartbeat is on its way", func(v *voice, _ *v1beta2.AgentStatus, _ *memory) { *v = voice{} },
			[]runtimes.Interest{maps}, false, time.Hour},
		"Silent": {"it was heard before, and is not", func(v *voice, _ *v1beta2.AgentStatus, m *memory) {
			*v, m.born = voice{}, time.Now().Add(-2*time.Hour)
		}, []runtimes.Interest{maps}, true, 0},
		"Lost":      {"it was heard by this program", func(v *voice, _ *v1beta2.AgentStatus, _ *memory) { v.heard = false }, []runtimes.Interest{maps}, true, 0},
		"Back":      {"it is heard, and was not", func(_ *voice, s *v1beta2.AgentStatus, _ *memory) { s.Connected = false }, []runtimes.Interest{maps}, true, 0},
		"Upgraded":  {"another version", func(v *voice, _ *v1beta2.AgentStatus, _ *memory) { v.state.Heartbeat.Version = "2" }, []runtimes.Interest{maps}, true, 0},
		"Problem":   {"it cannot watch something", func(v *voice, _ *v1beta2.AgentStatus, _ *memory) { v.state.Heartbeat.Problem = "no" }, []runtimes.Interest{maps}, true, 0},
		"Root":      {"a certificate of another root", func(v *voice, _ *v1beta2.AgentStatus, _ *memory) { v.state.Identity.Root = "new" }, []runtimes.Interest{maps}, true, 0},
		"Behind":    {"it watches something else", func(v *voice, _ *v1beta2.AgentStatus, _ *memory) { v.state.Heartbeat.Watchlist = "old" }, []runtimes.Interest{maps}, true, 0},
		"More":      {"a module wants to hear of something else", nil, []runtimes.Interest{jobs}, true, 0},
		"Waits":     {"a module has not said yet what it wants", nil, nil, false, againInterests},
		"Impatient": {"nor will it", func(_ *voice, _ *v1beta2.AgentStatus, m *memory) { m.awaited = time.Now().Add(-time.Hour) }, nil, true, 0},
		"Undelivered": {"its first heartbeat is on its way, but it does not have what it should", func(v *voice, _ *v1beta2.AgentStatus, _ *memory) { *v = voice{} },
			[]runtimes.Interest{jobs}, true, time.Hour},
		"Stranger": {"its first pass is still to come", func(_ *voice, _ *v1beta2.AgentStatus, m *memory) { m.runtime = nil }, []runtimes.Interest{jobs}, false, 0},
	}
	for test, c := range cases {
		t.Run(test, func(t *testing.T) {
			d, err := delivery.New(delivery.Options{
				Issuer: ageless{}, Roots: func() []*x509.Certificate { return nil }, Image: "i", Address: "a:1", AuditInterval: time.Hour,
			})
			if err != nil {
				t.Fatal(err)
			}
			pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: "https://a.example.com"}, Agents: true})
			if err != nil {
				t.Fatal(err)
			}
			rt, err := pool.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			s := runtime.NewScheme()
			if err := v1beta2.AddToScheme(s); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{known: map[string]*memory{}, Options: Options{Namespace: "kcp-system", Runtimes: pool, Agents: Agents{Delivery: d, Heartbeat: 10 * time.Second, Silence: func() time.Duration { return time.Hour }}}}
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name}}
			r.Client = fake.NewClientBuilder().WithScheme(s).Build()

			// What the runtime got is for a Manifest with ConfigMaps.
			pool.Subscribe(name, runtimes.Subscriber{Key: key, Interests: []runtimes.Interest{maps}, Notify: func(runtimes.Event) {}})
			request, err := r.agentRequest(t.Context(), k, rt.Server)
			if err != nil {
				t.Fatal(err)
			}
			kit, err := d.Plan(request, &v1beta2.AgentStatus{})
			if err != nil {
				t.Fatal(err)
			}
			k.Status.Agent = &v1beta2.AgentStatus{Connected: true, Version: "1", Digest: kit.Digest(), Certificate: &v1beta2.AgentCertificate{RootInUse: "root"}}
			v := voice{heard: true, state: backchannel.State{Last: time.Now(), Heartbeat: protocol.Heartbeat{Version: "1", Watchlist: request.Watchlist.Digest()}}}
			v.state.Identity.Root = "root"
			m := &memory{runtime: rt, born: time.Now(), manifests: []string{key}, awaited: time.Now(), patience: againInterests}
			if c.edit != nil {
				c.edit(&v, k.Status.Agent, m)
			}
			r.known[name], r.Agents.Voices = m, v
			r.Client = fake.NewClientBuilder().WithScheme(s).WithObjects(k).Build()
			pool.Subscribe(name, runtimes.Subscriber{Key: key, Interests: c.wants, Notify: func(runtimes.Event) {}})
			got, again := r.needsPass(t.Context(), name)
			if got != c.want {
				t.Errorf("%s: got %v, want %v", c.reason, got, c.want)
			}
			if !got && (again > 0) != (c.again > 0) || again > c.again {
				t.Errorf("%s: asks again after %v, want %v at most", c.reason, again, c.again)
			}
		})
	}
}

// TestAwaitsInterests: a part of a watch list is not delivered before it is known that there is no more to it.
func TestAwaitsInterests(t *testing.T) {
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: "https://a.example.com"}, Agents: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{known: map[string]*memory{}, reviews: workqueue.NewTypedDelayingQueue[string](), Options: Options{Runtimes: pool}}
	defer r.reviews.ShutDown()
	manifest := func(name, applied string) module {
		m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name}}
		m.Status.AppliedDigest = applied
		return module{manifest: m}
	}
	n := &run{Reconciler: r, kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, now: time.Now()}
	if n.awaitsInterests() {
		t.Error("without Manifests, there is nothing to wait for")
	}
	n.modules = []module{manifest("new", ""), {}}
	if !n.awaitsInterests() {
		t.Error("a Manifest that is being installed is not waited for")
	}
	n.now = n.now.Add(firstInterests)
	if n.awaitsInterests() {
		t.Error("one that is never installed is waited for for ever")
	}
	n.modules = append(n.modules, manifest("old", "sha256:x"))
	if !n.awaitsInterests() {
		t.Error("one that was installed before the program started is not waited for longer")
	}
	for _, name := range []string{"new", "old"} {
		pool.Subscribe("a", runtimes.Subscriber{Key: runtimes.ManifestSubscriberKey("kcp-system", name), Notify: func(runtimes.Event) {}, Interests: []runtimes.Interest{{Kind: "Job"}}})
	}
	if n.awaitsInterests() {
		t.Error("all have said what they want, and are waited for")
	}
}

func TestInheritAgent(t *testing.T) {
	watched := []metav1.Condition{{Type: v1beta2.ConditionSKRWebhook, Status: metav1.ConditionTrue, Reason: "Ready"}}
	ours := &v1beta2.AgentStatus{Digest: "d"}
	cases := map[string]struct {
		reason string
		status v1beta2.KymaStatus
		want   int // objects that are taken over
	}{
		"New":   {"a new Kyma has nothing", v1beta2.KymaStatus{}, 0},
		"Other": {"other conditions say nothing of it", v1beta2.KymaStatus{Conditions: []metav1.Condition{{Type: v1beta2.ConditionModules}}}, 0},
		"Left":  {"somebody else had a watcher there", v1beta2.KymaStatus{Conditions: watched}, len(delivery.Inherited())},
		"Ours":  {"what is ours is written down", v1beta2.KymaStatus{Conditions: watched, Agent: ours}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := &run{kyma: &v1beta2.Kyma{Status: c.status}, now: time.Now()}
			n.inheritAgent()
			got := 0
			if s := n.kyma.Status.Agent; s != nil {
				got = len(s.Synced)
			}
			if got != c.want {
				t.Errorf("%s: %d objects are taken over, want %d", c.reason, got, c.want)
			}
		})
	}
}
