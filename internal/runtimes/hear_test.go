package runtimes

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// newListeningPool returns a pool of runtimes with agents.
func newListeningPool(t *testing.T, o Options) *Pool {
	t.Helper()
	o.Self = &rest.Config{}
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var (
	deployments = Interest{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Kind: "Deployment", Labels: "mine=yes"}
	oneMap      = Interest{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespace: "n", Name: "a"}
)

func object(namespace, name string, labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
}

// TestFollowBehind checks that what is told before anybody follows is not lost for who relies on what was known before.
func TestFollowBehind(t *testing.T) {
	cases := map[string]struct {
		reason string
		early  bool // something is heard first
		behind bool
		want   []string
	}{
		"ReplayMissed": {"it may have been about what is relied on", true, true, []string{"Deployment", "ConfigMap"}},
		"Current":      {"whoever has just looked has missed nothing", true, false, nil},
		"Silence":      {"nothing was told", false, true, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newListeningPool(t, Options{Agents: true})
			if c.early {
				p.Publish("a", Event{Interest: deployments, Object: object("n", "x", nil)})
			}
			var told []string
			f := Subscriber{Key: "first", ReplayMissed: c.behind, Notify: func(s Event) {
				if s.Missed {
					told = append(told, s.Interest.Kind)
				}
			}}
			p.Subscribe("a", f)
			if len(told) > 0 {
				t.Errorf("%s: told %v without interests", c.reason, told)
			}
			f.Interests = []Interest{deployments, oneMap}
			p.Subscribe("a", f)
			p.Subscribe("a", f)
			if diff := cmp.Diff(c.want, told); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}

func TestHear(t *testing.T) {
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
		seen   Event
		want   []string // who is told, and as what
	}{
		"Labelled":     {"of the kind, with the label", Event{Interest: in("deployments", "v1"), Object: object("n", "x", mine)}, []string{"first Deployment", "second Deployment"}},
		"OtherLabel":   {"of the kind, without it", Event{Interest: in("deployments", "v1"), Object: object("n", "x", nil)}, nil},
		"OtherVersion": {"an object is the same in each version", Event{Interest: in("deployments", "v1beta1"), Object: object("n", "x", mine)}, []string{"first Deployment", "second Deployment"}},
		"Gone":         {"what is gone may have lost its labels on the way", Event{Interest: in("deployments", "v1"), Object: object("n", "x", nil), Deleted: true}, []string{"first Deployment", "second Deployment"}},
		"Named":        {"the one object", Event{Interest: in("configmaps", "v1"), Object: object("n", "a", nil)}, []string{"second ConfigMap"}},
		"OtherName":    {"another", Event{Interest: in("configmaps", "v1"), Object: object("n", "b", nil)}, nil},
		"OtherSpace":   {"of another namespace", Event{Interest: in("configmaps", "v1"), Object: object("m", "a", nil)}, nil},
		"MissedKind":   {"any of a kind", Event{Interest: in("configmaps", "v1"), Missed: true}, []string{"second ConfigMap"}},
		"ByKind":       {"who told knows the kind only", Event{Interest: Interest{Kind: "ConfigMap", Resource: schema.GroupVersionResource{Version: "v1"}}, Missed: true}, []string{"second ConfigMap"}},
		"MissedAll":    {"anything", Event{Missed: true}, []string{"first ", "second "}},
		"Unknown":      {"nobody's kind", Event{Interest: in("jobs", "v1"), Object: object("n", "x", mine)}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newListeningPool(t, Options{Agents: true, BatchDelay: -1})
			var told []string
			follow := func(key string, interests ...Interest) {
				p.Subscribe("a", Subscriber{Key: key, Interests: interests, Notify: func(s Event) { told = append(told, key+" "+s.Interest.Kind) }})
			}
			follow("first", deployments)
			follow("second", oneMap, deployments)
			p.Publish("a", c.seen)
			p.Publish("b", c.seen) // whom nobody follows
			slices.Sort(told)
			if diff := cmp.Diff(c.want, told); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}

func TestInterests(t *testing.T) {
	changes := 0
	p := newListeningPool(t, Options{Agents: true, InterestsChanged: func(kyma string) { changes++ }})
	follow := func(key string, interests ...Interest) {
		p.Subscribe("a", Subscriber{Key: key, Interests: interests, Notify: func(Event) {}})
	}
	follow("first", deployments)
	follow("second", oneMap, deployments)
	if diff := cmp.Diff([]Interest{oneMap, deployments}, p.Interests("a")); diff != "" {
		t.Errorf("each once, in order: -want +got:\n%s", diff)
	}
	follow("second", oneMap, deployments)
	if changes != 2 {
		t.Errorf("told %d times, want 2: following the same again is no news", changes)
	}
	p.Unsubscribe("a", "first")
	p.Unsubscribe("a", "second")
	p.Unsubscribe("a", "second")
	if changes != 4 || len(p.Interests("a")) > 0 {
		t.Errorf("told %d times, want 4; left %v", changes, p.Interests("a"))
	}
}

func TestSetHeard(t *testing.T) {
	p := newListeningPool(t, Options{Agents: true})
	missed := 0
	p.Subscribe("a", Subscriber{Key: "x", Notify: func(s Event) {
		if s.Missed {
			missed++
		}
	}})
	for i, step := range []struct {
		heard   bool
		watches bool
		missed  int
	}{{true, true, 0}, {false, false, 1}, {false, false, 1}, {true, true, 1}, {false, false, 2}} {
		p.SetAgentConnected("a", step.heard)
		if p.IsWatched("a") != step.watches || missed != step.missed {
			t.Errorf("step %d: watches %v, missed %d times, want %v, %d", i, p.IsWatched("a"), missed, step.watches, step.missed)
		}
	}
	if !p.IsWatched("b") {
		t.Error("a runtime of which nothing was said is taken to be heard")
	}
}

func TestLookInterval(t *testing.T) {
	looks := PollIntervals{Watched: 6 * time.Hour, Unwatched: time.Minute, Budget: 10}
	cases := map[string]struct {
		reason  string
		options Options
		unheard int
		want    time.Duration
	}{
		"Hub":       {"whose changes are seen", Options{Watch: true, PollIntervals: looks}, 0, 6 * time.Hour},
		"Watched":   {"whose agent is heard", Options{Agents: true, PollIntervals: looks}, 0, 6 * time.Hour},
		"Unwatched": {"one that is not", Options{Agents: true, PollIntervals: looks}, 1, time.Minute},
		"Many":      {"1,200 with two followers each, at 10 a second", Options{Agents: true, PollIntervals: looks}, 1200, 4 * time.Minute},
		"Poll":      {"nobody is heard", Options{PollIntervals: looks}, 1, time.Minute},
		"NoLimit":   {"no budget", Options{PollIntervals: PollIntervals{Unwatched: time.Minute}}, 1200, time.Minute},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newListeningPool(t, c.options)
			for i := range max(c.unheard, 1) {
				for _, key := range []string{"x", "y"} {
					p.Subscribe(fmt.Sprint(i), Subscriber{Key: key, Notify: func(Event) {}})
				}
				p.SetAgentConnected(fmt.Sprint(i), c.unheard == 0)
			}
			if got := p.PollInterval("0"); got != c.want {
				t.Errorf("%s: %s, want %s", c.reason, got, c.want)
			}
		})
	}
}

func TestMissedIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newListeningPool(t, Options{Agents: true})
		told := make(chan string, 10)
		p.Subscribe("a", Subscriber{Key: "x", Interests: []Interest{deployments, oneMap}, Notify: func(s Event) { told <- s.Interest.Kind }})
		began := func(i Interest) {
			p.Publish("a", Event{Missed: true, Interest: Interest{Resource: i.Resource, Kind: i.Kind}})
		}
		for range 3 {
			began(deployments)
			began(oneMap)
		}
		if n := len(told); n > 0 {
			t.Errorf("told %d times at once, want it gathered", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(told); n != 2 {
			t.Fatalf("told %d times, want once for each kind", n)
		}
		if first, second := <-told, <-told; first == second {
			t.Errorf("told twice of %s", first)
		}
		began(deployments)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(told); n != 1 {
			t.Errorf("told %d times, want what is missed later to be told, too", n)
		}
	})
}

// TestListedIsToldInOrder: how a resource is when its watch begins is told once, to each what concerns him, and before what happens later.
func TestListedIsToldInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newListeningPool(t, Options{Agents: true})
		var told []string
		p.Subscribe("a", Subscriber{Key: "x", Interests: []Interest{deployments, oneMap}, Notify: func(s Event) {
			line := s.Interest.Kind
			for _, o := range s.Objects {
				line += " " + o.Name
			}
			if s.Object != nil {
				line += " changed " + s.Object.Name
			}
			told = append(told, line)
		}})
		listed := func(i Interest, objects ...*metav1.PartialObjectMetadata) {
			s := Event{Listed: true, Interest: Interest{Resource: i.Resource, Kind: i.Kind}}
			for _, o := range objects {
				s.Objects = append(s.Objects, *o)
			}
			p.Publish("a", s)
		}
		mine := map[string]string{"mine": "yes"}
		p.Publish("a", Event{Missed: true, Interest: Interest{Resource: deployments.Resource, Kind: deployments.Kind}})
		listed(deployments, object("n", "one", mine), object("n", "other", nil), object("m", "two", mine))
		if len(told) > 0 {
			t.Errorf("told at once: %q", told)
		}
		p.Publish("a", Event{Interest: oneMap, Object: object("n", "a", nil)})
		listed(oneMap, object("n", "a", nil), object("n", "b", nil))
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"Deployment one two", "ConfigMap changed a", "ConfigMap a"}, told); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestShare(t *testing.T) {
	p := newListeningPool(t, Options{Agents: true})
	first := p.ShareInterests([]Interest{oneMap, deployments})
	again := p.ShareInterests([]Interest{oneMap, deployments})
	if &first[0] != &again[0] {
		t.Error("equal lists take memory twice")
	}
	if other := p.ShareInterests([]Interest{oneMap}); cmp.Diff([]Interest{oneMap}, other) != "" {
		t.Errorf("another list became %v", other)
	}
	if none := p.ShareInterests(nil); len(none) > 0 {
		t.Errorf("no interests became %v", none)
	}
}

func TestHasInterests(t *testing.T) {
	p := newListeningPool(t, Options{Agents: true})
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
