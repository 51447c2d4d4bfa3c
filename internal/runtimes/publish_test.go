package runtimes

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// newAgentPool returns a pool for runtimes that have agents.
func newAgentPool(t *testing.T, o Options) *Pool {
	t.Helper()
	o.Self = &rest.Config{}
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var (
	deployments = Interest{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Kind: "Deployment", Labels: "mine=yes"}
	oneMap = Interest{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Kind: "ConfigMap", Namespace: "n", Name: "a"}
)

func object(namespace, name string, labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: name, Labels: labels}}
}

// TestReplayMissed checks that a subscriber with ReplayMissed, which relies on data from before the start of the
// process, receives a Missed event if events were published before it subscribed.
func TestReplayMissed(t *testing.T) {
	cases := map[string]struct {
		reason string
		early  bool // an event is published first
		other  bool // then a controller unsubscribes that has never subscribed
		replay bool
		want   []string
	}{
		"ReplayMissed": {"the event may concern the older state", true, false, true, []string{"Deployment", "ConfigMap"}},
		"OtherUnsubscribes": {"the event is still unknown to this subscriber", true, true, true,
			[]string{"Deployment", "ConfigMap"}},
		"Current": {"a subscriber that has just read the runtime has missed nothing", true, false, false, nil},
		"NoEvent": {"nothing was published", false, false, true, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newAgentPool(t, Options{Agents: true})
			if c.early {
				p.PublishToInterested("a", Event{Interest: deployments, Object: object("n", "x", nil)})
			}
			if c.other {
				p.Unsubscribe("a", "never")
			}
			var got []string
			f := Subscriber{Key: "first", ReplayMissed: c.replay, Notify: func(s Event) {
				if s.Missed {
					got = append(got, s.Interest.Kind)
				}
			}}
			p.Subscribe("a", f)
			if len(got) > 0 {
				t.Errorf("%s: events %v without interests", c.reason, got)
			}
			f.Interests = []Interest{deployments, oneMap}
			p.Subscribe("a", f)
			p.Subscribe("a", f)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}

func TestPublish(t *testing.T) {
	mine := map[string]string{"mine": "yes"}
	in := func(resource, version string) Interest {
		i := Interest{Resource: schema.GroupVersionResource{Group: "apps", Version: version, Resource: resource}}
		if resource == "configmaps" {
			i.Resource.Group = ""
		}
		return i
	}
	cases := map[string]struct {
		reason string
		event  Event
		want   []string // subscribers that are notified, and of which kind
	}{
		"Labelled": {"of the kind, with the label",
			Event{Interest: in("deployments", "v1"), Object: object("n", "x", mine)},
			[]string{"first Deployment", "second Deployment"}},
		"OtherLabel": {"of the kind, without it",
			Event{Interest: in("deployments", "v1"), Object: object("n", "x", nil)}, nil},
		"OtherVersion": {"an object is the same in each version", Event{Interest: in("deployments", "v1beta1"),
			Object: object("n", "x", mine)}, []string{"first Deployment", "second Deployment"}},
		"Deleted": {"a deleted object may have lost its labels before",
			Event{Interest: in("deployments", "v1"), Object: object("n", "x", nil), Deleted: true},
			[]string{"first Deployment", "second Deployment"}},
		"Named": {"the one object", Event{Interest: in("configmaps", "v1"), Object: object("n", "a", nil)},
			[]string{"second ConfigMap"}},
		"OtherName": {"another", Event{Interest: in("configmaps", "v1"), Object: object("n", "b", nil)}, nil},
		"OtherSpace": {"of another namespace", Event{Interest: in("configmaps", "v1"), Object: object("m", "a", nil)},
			nil},
		"MissedKind": {"any of a kind", Event{Interest: in("configmaps", "v1"), Missed: true},
			[]string{"second ConfigMap"}},
		"ByKind": {"the sender knows the kind only",
			Event{Interest: Interest{Kind: "ConfigMap", Resource: schema.GroupVersionResource{Version: "v1"}},
				Missed: true}, []string{"second ConfigMap"}},
		"MissedAll": {"anything", Event{Missed: true}, []string{"first ", "second "}},
		"Unknown": {"a kind without subscribers", Event{Interest: in("jobs", "v1"), Object: object("n", "x", mine)},
			nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newAgentPool(t, Options{Agents: true, BatchDelay: -1})
			var got []string
			subscribe := func(key string, interests ...Interest) {
				p.Subscribe("a", Subscriber{Key: key, Interests: interests,
					Notify: func(s Event) { got = append(got, key+" "+s.Interest.Kind) }})
			}
			subscribe("first", deployments)
			subscribe("second", oneMap, deployments)
			p.PublishToInterested("a", c.event)
			p.PublishToInterested("b", c.event) // runtime b has no subscribers
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}

func TestInterests(t *testing.T) {
	changes := 0
	p := newAgentPool(t, Options{Agents: true, InterestsChanged: func(kyma string) { changes++ }})
	subscribe := func(key string, interests ...Interest) {
		p.Subscribe("a", Subscriber{Key: key, Interests: interests, Notify: func(Event) {}})
	}
	subscribe("first", deployments)
	subscribe("second", oneMap, deployments)
	if diff := cmp.Diff([]Interest{oneMap, deployments}, p.Interests("a")); diff != "" {
		t.Errorf("each once, in order: -want +got:\n%s", diff)
	}
	subscribe("second", oneMap, deployments)
	if changes != 2 {
		t.Errorf("notified %d times, want 2: the same subscription again changes nothing", changes)
	}
	p.Unsubscribe("a", "first")
	p.Unsubscribe("a", "second")
	p.Unsubscribe("a", "second")
	if changes != 4 || len(p.Interests("a")) > 0 {
		t.Errorf("notified %d times, want 4; left %v", changes, p.Interests("a"))
	}
}

func TestSetAgentConnected(t *testing.T) {
	p := newAgentPool(t, Options{Agents: true})
	missed := 0
	p.Subscribe("a", Subscriber{Key: "x", Notify: func(s Event) {
		if s.Missed {
			missed++
		}
	}})
	for i, step := range []struct {
		connection AgentConnection
		watched    bool
		missed     int
	}{
		{AgentConnected, true, 0}, {AgentDisconnected, false, 1}, {AgentDisconnected, false, 1},
		{AgentConnected, true, 1}, {AgentDisconnected, false, 2}, {AgentStarting, true, 2},
		{AgentConnected, true, 2}, {AgentStarting, true, 2}, {AgentDisconnected, false, 3},
	} {
		p.RecordAgentConnection("a", step.connection)
		if p.IsWatched("a") != step.watched || missed != step.missed ||
			p.IsAgentAwaited("a") != (step.connection == AgentStarting) {
			t.Errorf("step %d: watched %v, awaited %v, missed %d times, want %v, %d", i, p.IsWatched("a"),
				p.IsAgentAwaited("a"), missed, step.watched, step.missed)
		}
	}
	if !p.IsWatched("b") || !p.IsAgentAwaited("b") {
		t.Error("a runtime whose agent is unknown counts as watched")
	}
}

func TestPollInterval(t *testing.T) {
	intervals := PollIntervals{Watched: 6 * time.Hour, Unwatched: time.Minute, Budget: 10}
	cases := map[string]struct {
		reason    string
		options   Options
		unwatched int
		want      time.Duration
	}{
		"Hub":       {"watched by the pool", Options{Watch: true, PollIntervals: intervals}, 0, 6 * time.Hour},
		"Watched":   {"whose agent is connected", Options{Agents: true, PollIntervals: intervals}, 0, 6 * time.Hour},
		"Unwatched": {"whose agent is not connected", Options{Agents: true, PollIntervals: intervals}, 1, time.Minute},
		"Many": {"1,200 with two subscribers each, at 10 a second",
			Options{Agents: true, PollIntervals: intervals}, 1200, 4 * time.Minute},
		"Poll":    {"without watches and agents", Options{PollIntervals: intervals}, 1, time.Minute},
		"NoLimit": {"no budget", Options{PollIntervals: PollIntervals{Unwatched: time.Minute}}, 1200, time.Minute},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newAgentPool(t, c.options)
			for i := range max(c.unwatched, 1) {
				for _, key := range []string{"x", "y"} {
					p.Subscribe(fmt.Sprint(i), Subscriber{Key: key, Notify: func(Event) {}})
				}
				connection := AgentConnected
				if c.unwatched > 0 {
					connection = AgentDisconnected
				}
				p.RecordAgentConnection(fmt.Sprint(i), connection)
			}
			if got := p.PollInterval("0"); got != c.want {
				t.Errorf("%s: %s, want %s", c.reason, got, c.want)
			}
		})
	}
}

func TestMissedIsDeliveredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAgentPool(t, Options{Agents: true})
		got := make(chan string, 10)
		p.Subscribe("a", Subscriber{Key: "x", Interests: []Interest{deployments, oneMap},
			Notify: func(s Event) { got <- s.Interest.Kind }})
		began := func(i Interest) {
			p.PublishToInterested("a", Event{Missed: true, Interest: Interest{Resource: i.Resource, Kind: i.Kind}})
		}
		for range 3 {
			began(deployments)
			began(oneMap)
		}
		if n := len(got); n > 0 {
			t.Errorf("delivered %d times at once, want it delayed", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(got); n != 2 {
			t.Fatalf("delivered %d times, want once for each kind", n)
		}
		if first, second := <-got, <-got; first == second {
			t.Errorf("delivered twice: %s", first)
		}
		began(deployments)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(got); n != 1 {
			t.Errorf("delivered %d times, want later events to be delivered, too", n)
		}
	})
}

// TestListedIsDeliveredInOrder checks that the objects of a new watch are delivered once, filtered for each subscriber,
// and before later changes.
func TestListedIsDeliveredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAgentPool(t, Options{Agents: true})
		var got []string
		p.Subscribe("a", Subscriber{Key: "x", Interests: []Interest{deployments, oneMap}, Notify: func(s Event) {
			line := s.Interest.Kind
			for _, o := range s.Objects {
				line += " " + o.Name
			}
			if s.Object != nil {
				line += " changed " + s.Object.Name
			}
			got = append(got, line)
		}})
		listed := func(i Interest, objects ...*metav1.PartialObjectMetadata) {
			s := Event{Listed: true, Interest: Interest{Resource: i.Resource, Kind: i.Kind}}
			for _, o := range objects {
				s.Objects = append(s.Objects, *o)
			}
			p.PublishToInterested("a", s)
		}
		mine := map[string]string{"mine": "yes"}
		p.PublishToInterested("a", Event{Missed: true, Interest: Interest{Resource: deployments.Resource,
			Kind: deployments.Kind}})
		listed(deployments, object("n", "one", mine), object("n", "other", nil), object("m", "two", mine))
		if len(got) > 0 {
			t.Errorf("delivered at once: %q", got)
		}
		p.PublishToInterested("a", Event{Interest: oneMap, Object: object("n", "a", nil)})
		listed(oneMap, object("n", "a", nil), object("n", "b", nil))
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"Deployment one two", "ConfigMap changed a", "ConfigMap a"}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestPublishDropsUnwanted checks that an event about a kind without subscribers is not kept, but that a later
// subscriber with ReplayMissed is still notified.
func TestPublishDropsUnwanted(t *testing.T) {
	p := newAgentPool(t, Options{Agents: true, BatchDelay: time.Hour})
	p.Subscribe("a", Subscriber{Key: "x", Interests: []Interest{oneMap},
		Notify: func(e Event) { t.Errorf("got %+v", e) }})
	for _, kyma := range []string{"a", "b"} {
		for n := range 500 {
			p.PublishToInterested(kyma, Event{Listed: true, Interest: Interest{Kind: "Job",
				Resource: schema.GroupVersionResource{Group: "batch", Version: fmt.Sprint("v", n), Resource: "jobs"}}})
		}
		if kept := len(p.entries[kyma].batch); kept > 0 {
			t.Errorf("%d events of runtime %s are kept", kept, kyma)
		}
	}
	missed := 0
	p.Subscribe("b", Subscriber{Key: "x", Interests: []Interest{oneMap}, ReplayMissed: true,
		Notify: func(Event) { missed++ }})
	if missed != 1 {
		t.Errorf("a later subscriber is notified %d times, want once", missed)
	}
}

// TestDelayedAreLimited checks that a runtime cannot fill the memory with delayed events: after maxDelayed events with
// different versions, all of them are delivered.
func TestDelayedAreLimited(t *testing.T) {
	p := newAgentPool(t, Options{Agents: true, BatchDelay: time.Hour})
	delivered := 0
	p.Subscribe("a", Subscriber{Key: "x", Interests: []Interest{deployments}, Notify: func(e Event) {
		if !e.Listed || len(e.Objects) != 1 {
			t.Errorf("got %+v, want a list with one object", e)
		}
		delivered++
	}})
	for n := range 500 {
		i := deployments
		i.Resource.Version = fmt.Sprint("v", n)
		p.PublishToInterested("a", Event{Listed: true, Interest: i, Objects: []metav1.PartialObjectMetadata{
			*object("n", "x", map[string]string{"mine": "yes"}), *object("n", "y", nil)}})
		if kept := len(p.entries["a"].batch); kept > maxDelayed || kept+delivered != n+1 {
			t.Fatalf("after %d events, %d are kept and %d were delivered", n+1, kept, delivered)
		}
	}
	if delivered < 500-maxDelayed {
		t.Errorf("%d events were delivered", delivered)
	}
}

// TestUndeliveredAreLimited checks that events which arrive faster than they are delivered are not kept without a
// limit, and that the subscribers are notified of each kind whose events were replaced.
func TestUndeliveredAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAgentPool(t, Options{Agents: true})
		resume := make(chan struct{})
		var got []string
		p.Subscribe("a", Subscriber{Key: "x", Interests: []Interest{deployments, oneMap}, Notify: func(e Event) {
			line := fmt.Sprintf("%s missed %t", e.Interest.Kind, e.Missed)
			if e.Object != nil {
				line += " " + e.Object.ResourceVersion
			}
			if got = append(got, line); len(got) == 1 {
				<-resume
			}
		}})
		mine := map[string]string{"mine": "yes"}
		publish := func(n int) {
			i, o := deployments, object("n", "x", mine)
			i.Resource.Version, o.ResourceVersion = fmt.Sprint("v", n), fmt.Sprint(n)
			p.PublishToInterested("a", Event{Interest: i, Object: o})
		}
		go publish(0)
		synctest.Wait()
		p.PublishToInterested("a", Event{Interest: oneMap, Object: object("n", "a", nil)})
		for n := range 5 * maxUndelivered {
			publish(1 + n)
			if kept := len(p.entries["a"].outbox); kept > maxUndelivered {
				t.Errorf("%d events are kept, want at most %d", kept, maxUndelivered)
				break
			}
		}
		close(resume)
		synctest.Wait()
		want := []string{"Deployment missed false 0", "ConfigMap missed true", "Deployment missed true"}
		if len(got) < 3 || len(got) > 3+maxUndelivered || cmp.Diff(want, got[:3]) != "" ||
			got[len(got)-1] != fmt.Sprint("Deployment missed false ", 5*maxUndelivered) {
			t.Errorf("got %d events: %q", len(got), got)
		}
	})
}

func TestShareInterests(t *testing.T) {
	p := newAgentPool(t, Options{Agents: true})
	first := p.InternInterests([]Interest{oneMap, deployments})
	again := p.InternInterests([]Interest{oneMap, deployments})
	if &first[0] != &again[0] {
		t.Error("equal lists take memory twice")
	}
	if other := p.InternInterests([]Interest{oneMap}); cmp.Diff([]Interest{oneMap}, other) != "" {
		t.Errorf("another list became %v", other)
	}
	if none := p.InternInterests(nil); len(none) > 0 {
		t.Errorf("no interests became %v", none)
	}
}

func TestHasInterests(t *testing.T) {
	p := newAgentPool(t, Options{Agents: true})
	key := ManifestSubscriberKey("kcp-system", "m")
	if p.HasInterests("a", key) {
		t.Error("something is known of a runtime without subscribers")
	}
	p.Subscribe("a", Subscriber{Key: key, Notify: func(Event) {}})
	if p.HasInterests("a", key) {
		t.Error("a subscriber without interests counts as one that has some")
	}
	p.Subscribe("a", Subscriber{Key: key, Interests: []Interest{oneMap}, Notify: func(Event) {}})
	if !p.HasInterests("a", key) {
		t.Error("a subscriber with interests counts as one without")
	}
}

// TestPublishKeepsTheOrder publishes an event while another goroutine delivers a batch of delayed events. The new event
// must be delivered after all delayed events of the batch.
func TestPublishKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAgentPool(t, Options{Agents: true, BatchDelay: time.Second})
		var mu sync.Mutex
		var got []string
		p.Subscribe("a", Subscriber{Key: "x", Interests: []Interest{deployments, oneMap}, Notify: func(e Event) {
			mu.Lock()
			got = append(got, fmt.Sprint(e.Interest.Kind, " ", e.Listed))
			mu.Unlock()
			time.Sleep(time.Second) // the delivery of the first event takes until the later one has been published
		}})
		p.PublishToInterested("a", Event{Listed: true, Interest: deployments})
		p.PublishToInterested("a", Event{Listed: true, Interest: oneMap})
		time.Sleep(time.Second + time.Millisecond)
		p.PublishToInterested("a", Event{Interest: oneMap, Object: object("n", "a", nil)})
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]string{"Deployment true", "ConfigMap true", "ConfigMap false"}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestCloseIsAtomic checks that a connection that is made while another one is being closed is not lost.
func TestCloseIsAtomic(t *testing.T) {
	p := newAgentPool(t, Options{})
	if _, err := p.Get(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	var made *Runtime
	p.Subscribe("a", Subscriber{Key: "x", Notify: func(Event) {
		var err error
		if made, err = p.Get(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	}})
	p.Remove("a")
	if made == nil {
		t.Fatal("the subscriber was not notified")
	}
	if p.connectionIfOpen("a") != made && !made.breaker.stopped {
		t.Error("the new connection belongs to no entry and was not closed")
	}
}

// BenchmarkPublish publishes an event about an object of one module to the subscribers of all modules of a runtime. The
// subscribers have the same interest, and no label of the object matches.
func BenchmarkPublish(b *testing.B) {
	for _, modules := range []int{5, 50} {
		b.Run(fmt.Sprint(modules), func(b *testing.B) {
			p, event := poolWithModules(b, modules)
			b.ReportAllocs()
			for b.Loop() {
				p.PublishToInterested("a", event)
			}
		})
	}
}

// poolWithModules returns a Pool whose runtime a has a subscriber for each module, and an event that matches none.
func poolWithModules(t testing.TB, modules int) (*Pool, Event) {
	t.Helper()
	p, err := New(t.Context(), Options{Self: &rest.Config{Host: "https://a.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	interest := Interest{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Kind: "Deployment", Labels: "operator.kyma-project.io/managed-by=kyma"}
	for i := range modules {
		p.Subscribe("a", Subscriber{Key: fmt.Sprint(i), Interests: []Interest{interest},
			Notify: func(Event) { t.Error("a subscriber is notified of an object without its label") }})
	}
	return p, Event{Interest: interest, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "of-a-user", Labels: map[string]string{"app": "of-a-user"}}}}
}

// TestPublishParsesSelectorsOnce checks that the allocations for an event do not depend on the number of modules: each
// label selector is parsed once, and not once for each module.
func TestPublishParsesSelectorsOnce(t *testing.T) {
	allocations := func(modules int) float64 {
		p, event := poolWithModules(t, modules)
		return testing.AllocsPerRun(100, func() { p.PublishToInterested("a", event) })
	}
	if few, many := allocations(1), allocations(50); many > few+10 { // a former test may still allocate a little
		t.Errorf("%v allocations for an event with 1 module, and %v with 50", few, many)
	}
}
