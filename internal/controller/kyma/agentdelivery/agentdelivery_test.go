package agentdelivery

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
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

// agentState implements AgentStates: it returns the same state for the agent of every runtime.
type agentState struct {
	state     backchannel.State
	connected bool
}

func (v agentState) State(string) (backchannel.State, bool) { return v.state, v.connected }
func (agentState) Release(string)                           {}
func (agentState) Forget(string)                            {}

// ageless is a certificate issuer for tests whose certificates never expire.
type ageless struct{}

func (ageless) Issue(context.Context, authority.Subject) (*authority.Certificate, error) {
	return nil, errors.New("no")
}
func (ageless) Stale(authority.Held, time.Time) (bool, string) { return false, "" }
func (ageless) Due(authority.Held) time.Time                   { return time.Now().Add(30 * time.Minute) }
func (ageless) Release(context.Context, string) error          { return nil }

// newAgents returns Agents with an agent state, for tests that make no request to a runtime.
func newAgents(t *testing.T, states AgentStates, c Controller) *Agents {
	t.Helper()
	d, err := delivery.New(delivery.Options{
		Issuer: ageless{}, Roots: func() []*x509.Certificate { return nil }, Image: "i",
		Address: "a:1", AuditInterval: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Reviews = workqueue.NewTypedDelayingQueue[string]()
	a := New(Options{
		Delivery: d, AgentStates: states, HeartbeatInterval: 10 * time.Second,
		FirstHeartbeatTimeout: func() time.Duration { return time.Hour },
	}, c)
	t.Cleanup(a.Reviews.ShutDown)
	return a
}

func TestUpdateStatus(t *testing.T) {
	list := protocol.Watchlist{Watches: []protocol.Watch{{Version: "v1", Resource: "configmaps"}}}
	beat := func(edit func(*protocol.Heartbeat)) agentState {
		v := agentState{connected: true, state: backchannel.State{Last: time.Now(),
			Heartbeat: protocol.Heartbeat{BootID: "b", Version: "1.2.3", Sequence: 7, Watchlist: list.Digest()}}}
		v.state.Identity.Root = "root"
		if edit != nil {
			edit(&v.state.Heartbeat)
		}
		return v
	}
	silent := agentState{state: backchannel.State{Last: time.Now().Add(-time.Hour),
		Heartbeat: protocol.Heartbeat{Sequence: 7}}}
	late := beat(func(h *protocol.Heartbeat) { h.Watchlist = "older" })
	cases := map[string]struct {
		reason    string
		agent     agentState
		before    v1beta2.AgentStatus
		behind    time.Duration // how long the agent has reported another watch list
		waitsFor  string
		err       error
		connected bool
		want      string        // the reason in the status
		most      time.Duration // the longest time until the recheck
		revoked   time.Duration // time until the certificates are revoked; 0 for never
	}{
		"Connected": {
			reason:    "nothing to do until the certificate has to be renewed",
			agent:     beat(nil),
			before:    v1beta2.AgentStatus{},
			connected: true,
			most:      time.Hour,
		},
		"Postponed": {
			reason:    "a request that was not sent says nothing about the agent",
			agent:     beat(nil),
			before:    v1beta2.AgentStatus{Connected: true},
			err:       fmt.Errorf("delivering: %w", &runtimes.UnansweredError{}),
			connected: true,
			most:      time.Second,
		},
		"Revoked": {
			reason:    "its certificate has to be replaced as soon as it is revoked",
			agent:     beat(nil),
			before:    v1beta2.AgentStatus{Connected: true},
			connected: true,
			revoked:   10 * time.Second,
			most:      11 * time.Second,
		},
		"Never": {
			reason: "it has just been delivered",
			agent:  agentState{},
			before: v1beta2.AgentStatus{},
			want:   "AgentSilent",
			most:   time.Hour,
		},
		"Restart": {
			reason:    "the process has just started, so the first heartbeat is not due",
			agent:     agentState{},
			before:    v1beta2.AgentStatus{Connected: true},
			connected: true,
			most:      time.Hour,
		},
		"Silent": {
			reason: "this process has received heartbeats, but none recently",
			agent:  silent,
			before: v1beta2.AgentStatus{Connected: true},
			want:   "AgentSilent",
			most:   time.Second,
		},
		"Still": {
			reason: "and still has not",
			agent:  silent,
			before: v1beta2.AgentStatus{Reason: "AgentSilent"},
			want:   "AgentSilent",
			most:   time.Hour,
		},
		"Problem": {
			reason: "it cannot watch something",
			agent:  beat(func(h *protocol.Heartbeat) { h.Problem = "forbidden" }),
			before: v1beta2.AgentStatus{Connected: true},
			want:   "AgentImpaired",
			most:   time.Second,
		},
		"Late": {
			reason:    "it has not taken over its new watch list yet",
			agent:     late,
			before:    v1beta2.AgentStatus{Connected: true},
			connected: true,
			most:      time.Hour,
		},
		"Behind": {
			reason: "it has not taken it over in time",
			agent:  late,
			before: v1beta2.AgentStatus{Connected: true},
			behind: 2 * time.Minute,
			want:   "AgentImpaired",
			most:   time.Second,
		},
		"Waits": {
			reason:   "it is being delivered",
			agent:    agentState{},
			before:   v1beta2.AgentStatus{},
			waitsFor: "something",
			most:     time.Second,
		},
		"Error": {
			reason: "it cannot be delivered",
			agent:  agentState{},
			before: v1beta2.AgentStatus{Connected: true},
			err:    errors.New("no such thing"),
			want:   "AgentNotDelivered",
			most:   time.Minute,
		},
		"Reasoned": {
			reason: "for a reason that is known",
			agent:  agentState{},
			before: v1beta2.AgentStatus{},
			err:    &authority.Error{Code: "AuthorityBroken"},
			want:   "AuthorityBroken",
			most:   time.Minute,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAgents(t, c.agent, Controller{})
			status := c.before
			status.Certificate = &v1beta2.AgentCertificate{}
			target := Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, Now: time.Now()}
			target.Kyma.Status.Agent = &status
			if c.revoked > 0 {
				target.Kyma.Annotations = map[string]string{v1beta2.AnnotationCertificatesNotBefore: target.Now.Add(
					c.revoked).Format(time.RFC3339Nano)}
			}
			plan := Plan{watchlist: list.Digest()}
			if c.behind > 0 {
				a.editRecord(target, func(r *record) { r.behindSince = target.Now.Add(-c.behind) })
			}
			recheckAfter := a.updateStatus(target, plan, c.waitsFor, c.err)
			if status.Connected != c.connected || status.Reason != c.want ||
				recheckAfter > c.most || recheckAfter <= 0 {
				t.Errorf("%s: connected %v, reason %q, recheck after %s; want %v, %q, at most %s", c.reason,
					status.Connected, status.Reason, recheckAfter, c.connected, c.want, c.most)
			}
			if (status.Message == "") != (c.want == "") {
				t.Errorf("%s: message %q for reason %q", c.reason, status.Message, c.want)
			}
			same := status
			target.Now = target.Now.Add(time.Second)
			a.updateStatus(target, plan, c.waitsFor, c.err)
			if diff := cmp.Diff(same, status); diff != "" {
				t.Errorf("the status changes though nothing has changed: -first +second:\n%s", diff)
			}
		})
	}
}

// TestCertificatesNeededSince checks which certificates of a Kyma are replaced: those that were issued before the time
// of revocation, or before the Kyma was created.
func TestCertificatesNeededSince(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	created := now.Add(-2 * time.Hour)
	cases := map[string]struct {
		reason  string
		revoked time.Time // zero for no annotation
		want    time.Time
	}{
		"Created":         {"an older certificate is that of a former Kyma", time.Time{}, created},
		"RevokedLater":    {"the later time counts", created.Add(time.Hour), created.Add(time.Hour)},
		"RevokedBefore":   {"the later time counts", created.Add(-time.Hour), created},
		"RevokedInFuture": {"the certificates are not revoked yet", now.Add(time.Hour), created},
	}
	for name, c := range cases {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(created)}}
		if !c.revoked.IsZero() {
			k.Annotations = map[string]string{
				v1beta2.AnnotationCertificatesNotBefore: c.revoked.Format(time.RFC3339)}
		}
		if got := certificatesNeededSince(k, now); !got.Equal(c.want) {
			t.Errorf("%s: %s: got %s, want %s", name, c.reason, got, c.want)
		}
	}
}

func TestAddWatcher(t *testing.T) {
	watcher := func(edit func(*v1beta2.WatcherSpec)) *v1beta2.Watcher {
		w := &v1beta2.Watcher{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "w"},
			Spec: v1beta2.WatcherSpec{
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
			[]protocol.Watch{{Manager: "cron", Group: "batch", Version: "*", Resource: "cronjobs", Selector: "a=1,b=2",
				Field: protocol.FieldStatus}}, nil},
		"Webhook": {"in webhook mode the API server calls it",
			watcher(func(s *v1beta2.WatcherSpec) { s.Mode = v1beta2.WatcherModeWebhook }), nil,
			[]delivery.Webhook{{Name: "kcp-system.w.operator.kyma-project.io", Manager: "cron", Group: "batch",
				Version: "*", Resource: "cronjobs", Status: true, Labels: map[string]string{"a": "1", "b": "2"}}}},
		"BadLabel": {"an invalid selector is reported by the Watcher only",
			watcher(func(s *v1beta2.WatcherSpec) { s.LabelsToWatch = map[string]string{"a b": ""} }), nil, nil},
		"BadResource": {"agents would refuse the whole watch list",
			watcher(func(s *v1beta2.WatcherSpec) { s.ResourceToWatch.Resource = "CronJobs" }), nil, nil},
		"BadVersion": {"as above",
			watcher(func(s *v1beta2.WatcherSpec) { s.ResourceToWatch.Version = "V1" }), nil, nil},
		"BadManager": {"as above", watcher(func(s *v1beta2.WatcherSpec) { s.Manager = "team/cron" }), nil, nil},
		"LongManager": {"as above",
			watcher(func(s *v1beta2.WatcherSpec) { s.Manager = strings.Repeat("a", 64) }), nil, nil},
		"WebhookPath": {"the API server accepts several segments", watcher(func(s *v1beta2.WatcherSpec) {
			s.Mode, s.Manager = v1beta2.WatcherModeWebhook, "team/cron"
		}), nil, []delivery.Webhook{{Name: "kcp-system.w.operator.kyma-project.io", Manager: "team/cron",
			Group: "batch", Version: "*", Resource: "cronjobs", Status: true,
			Labels: map[string]string{"a": "1", "b": "2"}}}},
		"WebhookBadManager": {"the API server would refuse all webhooks", watcher(func(s *v1beta2.WatcherSpec) {
			s.Mode, s.Manager = v1beta2.WatcherModeWebhook, "Cron_X"
		}), nil, nil},
		"WebhookBadLabel": {"as above", watcher(func(s *v1beta2.WatcherSpec) {
			s.Mode, s.LabelsToWatch = v1beta2.WatcherModeWebhook, map[string]string{"a b": ""}
		}), nil, nil},
		"WebhookBadVersion": {"as above", watcher(func(s *v1beta2.WatcherSpec) {
			s.Mode, s.ResourceToWatch.Version = v1beta2.WatcherModeWebhook, ""
		}), nil, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := delivery.Request{}
			addWatchOrWebhook(&r, c.w)
			addWatchOrWebhook(&r, c.w)
			hooks := r.Webhooks[:len(r.Webhooks)/2] // the second call has added the webhook again
			if diff := cmp.Diff(c.watch, r.Watchlist.Watches) + cmp.Diff(c.hooks, hooks); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}

// TestWatchState checks that the agent reports the state of workloads and of custom resources, and reads nothing else.
func TestWatchState(t *testing.T) {
	cases := map[string]struct {
		interest runtimes.Interest
		want     bool
	}{
		"Workload": {runtimes.Interest{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1",
			Resource: "deployments"}, Labels: "a=b"}, true},
		"CustomResource": {runtimes.Interest{Resource: schema.GroupVersionResource{Group: "sample.example.com",
			Version: "v1", Resource: "samples"}, Name: "default"}, true},
		"Content": {runtimes.Interest{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			Labels: "a=b"}, false},
		"Credential": {runtimes.Interest{Resource: schema.GroupVersionResource{Version: "v1",
			Resource: "serviceaccounts"}, Name: "manager"}, false},
		"Binding": {runtimes.Interest{Resource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io",
			Version: "v1", Resource: "clusterrolebindings"}, Name: "manager"}, false},
		"Kyma": {runtimes.Interest{Resource: v1beta2.GroupVersion.WithResource("kymas"), Name: "default"}, false},
	}
	for name, c := range cases {
		if got := watchFor(c.interest).State; got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

// TestNeedsReconcile checks that a correct status needs no reconcile after the start of the process.
func TestNeedsReconcile(t *testing.T) {
	const name = "a"
	key := runtimes.ManifestSubscriberKey("kcp-system", "m")
	maps := []runtimes.Interest{{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Kind: "ConfigMap"}}
	jobs := []runtimes.Interest{{Resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"},
		Kind: "Job"}}
	none := func(v *agentState, _ *v1beta2.AgentStatus, _ *record) { *v = agentState{} }
	cases := map[string]struct {
		reason    string
		edit      func(v *agentState, s *v1beta2.AgentStatus, r *record)
		interests []runtimes.Interest // of the Manifest; nil if the Manifest has not declared its interests
		want      bool
		recheck   time.Duration // the latest time of the recheck, 0 for never
	}{
		"Confirmed": {reason: "it is connected and has its watch list", interests: maps},
		"Young": {
			reason: "its first heartbeat is not due", edit: none, interests: maps, recheck: time.Hour,
		},
		"Silent": {
			reason: "it was connected, and there was no heartbeat within the timeout", interests: maps, want: true,
			edit: func(v *agentState, _ *v1beta2.AgentStatus, r *record) {
				*v, r.firstSeenAt = agentState{}, time.Now().Add(-2*time.Hour)
			},
		},
		"Lost": {
			reason: "this process has received heartbeats, but none recently", interests: maps, want: true,
			edit: func(v *agentState, _ *v1beta2.AgentStatus, _ *record) { v.connected = false },
		},
		"Back": {
			reason: "it is connected and was not", interests: maps, want: true,
			edit: func(_ *agentState, s *v1beta2.AgentStatus, _ *record) { s.Connected = false },
		},
		"Upgraded": {
			reason: "it has another version", interests: maps, want: true,
			edit: func(v *agentState, _ *v1beta2.AgentStatus, _ *record) { v.state.Heartbeat.Version = "2" },
		},
		"Problem": {
			reason: "it cannot watch something", interests: maps, want: true,
			edit: func(v *agentState, _ *v1beta2.AgentStatus, _ *record) { v.state.Heartbeat.Problem = "no" },
		},
		"Root": {
			reason: "its certificate is of another root", interests: maps, want: true,
			edit: func(v *agentState, _ *v1beta2.AgentStatus, _ *record) { v.state.Identity.Root = "new" },
		},
		"Behind": {
			reason: "it reports another watch list", interests: maps, want: true,
			edit: func(v *agentState, _ *v1beta2.AgentStatus, _ *record) { v.state.Heartbeat.Watchlist = "old" },
		},
		"Starting": {
			reason: "it was delivered a moment ago", interests: maps, recheck: startPeriod,
			edit: func(v *agentState, s *v1beta2.AgentStatus, _ *record) {
				*v, s.Connected, s.Version, s.Since = agentState{}, false, "", metav1.Now()
			},
		},
		"NotStarted": {
			reason: "it did not connect, and the runtime counts as watched", interests: maps, want: true,
			edit: func(v *agentState, s *v1beta2.AgentStatus, _ *record) {
				*v, s.Connected, s.Version = agentState{}, false, ""
				s.Since = metav1.NewTime(time.Now().Add(-startPeriod))
			},
		},
		"NoVersion": {
			reason: "it was connected before a restart, without a version, and its first heartbeat is not due", edit: func(
				v *agentState, s *v1beta2.AgentStatus, _ *record) {
				*v, s.Version, s.Since = agentState{}, "", metav1.NewTime(time.Now().Add(-time.Hour))
			}, interests: maps, recheck: time.Hour,
		},
		"ClockAhead": {
			reason: "another replica with a fast clock has delivered it", interests: maps, want: true,
			edit: func(v *agentState, s *v1beta2.AgentStatus, _ *record) {
				*v, s.Connected, s.Version = agentState{}, false, ""
				s.Since = metav1.NewTime(time.Now().Add(time.Hour))
			},
		},
		"More":  {reason: "a module has other interests", interests: jobs, want: true},
		"Waits": {reason: "a module has not declared its interests", recheck: restartInterestsTimeout},
		"TimedOut": {
			reason: "nor did it in time", want: true,
			edit: func(_ *agentState, _ *v1beta2.AgentStatus,
				r *record) {
				r.waitingSince = time.Now().Add(-time.Hour)
			},
		},
		"Undelivered": {
			reason:    "its first heartbeat is not due, but its watch list is outdated",
			edit:      none,
			interests: jobs,
			want:      true,
			recheck:   time.Hour,
		},
		"Unknown": {
			reason: "its first reconcile is still to come", interests: jobs,
			edit: func(_ *agentState, _ *v1beta2.AgentStatus, r *record) { r.runtime = nil },
		},
	}
	for test, c := range cases {
		t.Run(test, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, err := runtimes.New(t.Context(),
					runtimes.Options{Self: &rest.Config{Host: "https://a.example.com"}, Agents: true})
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
				a := newAgents(t, nil, Controller{Namespace: "kcp-system", Runtimes: pool,
					Client: fake.NewClientBuilder().WithScheme(s).Build()})
				k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name}}

				// The runtime has an agent that watches ConfigMaps, because a module contains ConfigMaps.
				pool.Subscribe(name, runtimes.Subscriber{Key: key, Interests: maps, Notify: func(runtimes.Event) {}})
				request, err := a.desiredRequest(t.Context(), k, rt.Server)
				if err != nil {
					t.Fatal(err)
				}
				plan, err := a.Delivery.PlanAndAddRefs(request, &v1beta2.AgentStatus{})
				if err != nil {
					t.Fatal(err)
				}
				k.Status.Agent = &v1beta2.AgentStatus{Connected: true, Version: "1", Digest: plan.Digest(),
					Certificate: &v1beta2.AgentCertificate{RootInUse: "root"}}
				v := agentState{connected: true, state: backchannel.State{Last: time.Now(),
					Heartbeat: protocol.Heartbeat{Version: "1", Watchlist: request.Watchlist.Digest()}}}
				v.state.Identity.Root = "root"
				r := &record{runtime: rt, firstSeenAt: time.Now(), manifests: []string{key}, waitingSince: time.Now(),
					waitTimeout: restartInterestsTimeout}
				if c.edit != nil {
					c.edit(&v, k.Status.Agent, r)
				}
				a.records[name], a.AgentStates = r, v
				a.Client = fake.NewClientBuilder().WithScheme(s).WithObjects(k).Build()
				pool.Subscribe(name, runtimes.Subscriber{Key: key, Interests: c.interests,
					Notify: func(runtimes.Event) {}})
				got, recheckAfter := a.needsReconcile(t.Context(), name)
				if got != c.want {
					t.Errorf("%s: got %v, want %v", c.reason, got, c.want)
				}
				if notStarted := test == "NotStarted" || test == "ClockAhead"; pool.IsWatched(name) == notStarted {
					t.Errorf("%s: the runtime is watched: %t, want %t", c.reason, notStarted, !notStarted)
				}
				if !got && (recheckAfter > 0) != (c.recheck > 0) || recheckAfter > c.recheck {
					t.Errorf("%s: recheck after %v, want %v at most", c.reason, recheckAfter, c.recheck)
				}
			})
		})
	}
}

// TestAssumedIsReconciled checks that the first heartbeat triggers a reconcile, and that without a heartbeat the
// timeout triggers the reconcile.
func TestAssumedIsReconciled(t *testing.T) {
	cases := map[string]struct {
		reason string
		agent  agentState
		age    time.Duration
		want   bool
	}{
		"Waiting": {"its first heartbeat is not due", agentState{}, time.Minute, false},
		"Connected": {"there was a heartbeat", agentState{connected: true, state: backchannel.State{Last: time.Now()}},
			time.Minute, true},
		"Lost": {"there was one, but none recently", agentState{state: backchannel.State{Last: time.Now()}},
			time.Minute, true},
		"Silent": {"there was none within the timeout", agentState{}, 2 * time.Hour, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAgents(t, c.agent, Controller{})
			a.records["a"] = &record{assumed: true, firstSeenAt: time.Now().Add(-c.age)}
			got, recheckAfter := a.needsReconcile(t.Context(), "a")
			if got != c.want || !got && (recheckAfter <= 0 || recheckAfter > time.Hour) {
				t.Errorf("%s: got %v and %v, want %v", c.reason, got, recheckAfter, c.want)
			}
		})
	}
}

// TestWaitsForInterests checks that the delivery of the watch list waits until all Manifests have reported which
// objects to watch. An incomplete watch list is delivered only if a Manifest takes too long to report them.
func TestWaitsForInterests(t *testing.T) {
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{}, Agents: true})
	if err != nil {
		t.Fatal(err)
	}
	a := newAgents(t, nil, Controller{Runtimes: pool})
	manifest := func(name, applied string) *v1beta2.Manifest {
		m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name}}
		m.Status.AppliedDigest = applied
		return m
	}
	target := Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, Now: time.Now()}
	if a.recordInterestsWait(target) {
		t.Error("without Manifests, there is nothing to wait for")
	}
	target.Manifests = []*v1beta2.Manifest{manifest("new", ""), nil}
	if !a.recordInterestsWait(target) {
		t.Error("a Manifest that is being installed is not waited for")
	}
	target.Now = target.Now.Add(installInterestsTimeout)
	if a.recordInterestsWait(target) {
		t.Error("a Manifest that is never installed is waited for without a limit")
	}
	target.Manifests = append(target.Manifests, manifest("old", "sha256:x"))
	if !a.recordInterestsWait(target) {
		t.Error("a Manifest that was installed before the process has started is not waited for longer")
	}
	for _, name := range []string{"new", "old"} {
		pool.Subscribe("a", runtimes.Subscriber{Key: runtimes.ManifestSubscriberKey("kcp-system", name),
			Notify: func(runtimes.Event) {}, Interests: []runtimes.Interest{{Kind: "Job"}}})
	}
	if a.recordInterestsWait(target) {
		t.Error("all Manifests have declared their interests, and are waited for")
	}
}

// TestPendingPlanAddsRefs checks that the objects of the agent are listed while the watch list is still incomplete, and
// that the complete plan adds no other objects: the status need not be saved again before the delivery.
func TestPendingPlanAddsRefs(t *testing.T) {
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: "https://a.example.com"},
		Agents: true})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := pool.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	a := newAgents(t, agentState{}, Controller{Namespace: "kcp-system", Runtimes: pool,
		Client: fake.NewClientBuilder().WithScheme(s).Build()})
	target := Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, Runtime: rt, Now: time.Now(),
		Manifests: []*v1beta2.Manifest{{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "new"}}}}
	plan, err := a.PlanDeliveryAndAddRefs(t.Context(), target)
	if err != nil || !plan.IsPending() || len(target.Kyma.Status.Agent.Synced) == 0 {
		t.Fatalf("%v; pending: %t; %+v", err, plan.IsPending(), target.Kyma.Status.Agent)
	}
	listed := target.Kyma.Status.Agent.DeepCopy()
	pool.Subscribe("a", runtimes.Subscriber{Key: runtimes.ManifestSubscriberKey("kcp-system", "new"),
		Notify: func(runtimes.Event) {}, Interests: []runtimes.Interest{{Kind: "Job",
			Resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}}}})
	plan, err = a.PlanDeliveryAndAddRefs(t.Context(), target)
	if diff := cmp.Diff(listed, target.Kyma.Status.Agent); err != nil || plan.IsPending() || diff != "" {
		t.Errorf("%v; pending: %t; -listed +planned:\n%s", err, plan.IsPending(), diff)
	}
}

// TestRestoreUnsaved checks that the first certificate of an agent is known to the next reconcile, although the status
// was not saved, and that it is forgotten once the status was saved.
func TestRestoreUnsaved(t *testing.T) {
	a := newAgents(t, agentState{}, Controller{})
	target := func(serial string) Target {
		agent := &v1beta2.AgentStatus{}
		if serial != "" {
			agent.Certificate, agent.Digest = &v1beta2.AgentCertificate{Serial: serial}, "list-"+serial
		}
		return Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: v1beta2.KymaStatus{Agent: agent}}}
	}
	expect := func(read Target, serial, digest string) {
		t.Helper()
		a.RestoreUnsaved(read)
		got := ""
		if c := read.Kyma.Status.Agent.Certificate; c != nil {
			got = c.Serial
		}
		if got != serial || read.Kyma.Status.Agent.Digest != digest {
			t.Errorf("certificate %q with watch list %q, want %q with %q", got, read.Kyma.Status.Agent.Digest, serial,
				digest)
		}
	}
	expect(target(""), "", "")
	a.recordUnsaved(target(""), true) // nothing was issued, because the delivery has failed
	expect(target(""), "", "")
	a.recordUnsaved(target("1"), true)
	expect(target(""), "1", "list-1")
	changed := target("1")
	changed.Kyma.Status.Agent.Digest = "other"
	a.recordUnsaved(changed, false)
	expect(target(""), "1", "other")
	expect(target("1"), "1", "list-1") // the status was saved
	expect(target(""), "", "")
	a.recordUnsaved(target("2"), false) // a renewal is saved at once
	expect(target(""), "", "")
	a.RestoreUnsaved(Target{Kyma: &v1beta2.Kyma{}}) // there is no agent yet
}

func TestTakeOver(t *testing.T) {
	watched := []metav1.Condition{{Type: v1beta2.ConditionSKRWebhook, Status: metav1.ConditionTrue, Reason: "Ready"}}
	ours := &v1beta2.AgentStatus{Digest: "d"}
	cases := map[string]struct {
		reason string
		status v1beta2.KymaStatus
		want   int // the number of objects that are taken over
	}{
		"New": {"a new Kyma has nothing", v1beta2.KymaStatus{}, 0},
		"Other": {"other conditions do not matter",
			v1beta2.KymaStatus{Conditions: []metav1.Condition{{Type: v1beta2.ConditionModules}}}, 0},
		"Left": {"the Kyma project has left a watcher", v1beta2.KymaStatus{Conditions: watched},
			len(delivery.KymaProjectObjects())},
		"Ours": {"our objects are listed already", v1beta2.KymaStatus{Conditions: watched, Agent: ours}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := &v1beta2.Kyma{Status: c.status}
			AdoptFormerWatcherObjects(k, time.Now())
			got := 0
			if s := k.Status.Agent; s != nil {
				got = len(s.Synced)
			}
			if got != c.want {
				t.Errorf("%s: %d objects are taken over, want %d", c.reason, got, c.want)
			}
		})
	}
}
