package queueing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// take returns the names of the next n requests of a queue.
func take(q Queue, n int) []string {
	var names []string
	for range n {
		item, _ := q.Get()
		names = append(names, item.Name)
		q.Done(item)
	}
	return names
}

func TestAdd(t *testing.T) {
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	Add(q, Startup, 0, request("listed"))
	Add(q, Fleet, 0, request("rollout"))
	Add(q, Event, 0, request("event"))
	Add(q, Fleet, 0, request("edited"))
	Add(q, Person, 0, request("edited"))
	if diff := cmp.Diff([]string{"edited", "event", "rollout", "listed"}, take(q, 4)); diff != "" {
		t.Errorf("the highest priority is first: -want +got:\n%s", diff)
	}
}

func TestClasses(t *testing.T) {
	last := Person.Priority() + 1
	for c := Person; c <= Startup; c++ {
		if p := c.Priority(); p > last || c == Fleet && p == last {
			t.Errorf("priority of %s is %d, after %d", c, p, last)
		}
		last = c.Priority()
	}
	if got := fmt.Sprint(Person, Event, Fleet, Retry, Startup,
		Class(99)); got != "person event fleet retry startup unknown" {
		t.Errorf("names are %s", got)
	}
}

func TestTrigger(t *testing.T) {
	var trigger Trigger
	trigger.Add(Person, 0, request("early")) // dropped
	if trigger.Queue() != nil {
		t.Error("there is a queue before the controller has started")
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := trigger.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	trigger.Add(Person, 0, request("a"))
	if diff := cmp.Diff([]string{"a"}, take(q, q.Len())); diff != "" || trigger.Queue() == nil {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestStagger(t *testing.T) {
	cases := map[string]struct {
		reason string
		n      int
		limit  time.Duration
		last   time.Duration
	}{
		"None": {"nothing to do", 0, time.Minute, 0},
		"Few":  {"10 ms between two", 3, time.Minute, 20 * time.Millisecond},
		"Many": {"evenly within the limit", 1000, time.Second, 999 * time.Millisecond},
		"Zero": {"all at once", 3, 0, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var names []string
				for i := range c.n {
					names = append(names, fmt.Sprint(i))
				}
				start := time.Now()
				added := make(chan time.Duration, c.n)
				new(Stagger).InBackground(names, c.limit, func(string) { added <- time.Since(start) })
				time.Sleep(time.Hour)
				synctest.Wait()
				close(added)
				var n int
				var last time.Duration
				for at := range added {
					n, last = n+1, max(last, at)
				}
				if n != c.n || last != c.last {
					t.Errorf("%s: %d were added within %s, want %d within %s", c.reason, n, last, c.n, c.last)
				}
			})
		})
	}
}

// TestStaggerOfManyChanges checks that a series of changes that concern the same runtimes calls each of them once per
// period, and not once per change, and that each change is followed by a call for each runtime.
func TestStaggerOfManyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const changes, runtimes = 50, 1000 // one change each 200 ms, while all calls for one change take 10 s
		var names []string
		for i := range runtimes {
			names = append(names, fmt.Sprint(i))
		}
		var mu sync.Mutex
		last, calls := map[string]time.Time{}, 0
		var s Stagger
		add := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			last[name], calls = time.Now(), calls+1
		}
		scheduled := 0
		var changed time.Time
		for range changes {
			rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			changed = time.Now()
			s.InBackground(names, time.Minute, add)
			s.mu.Lock()
			scheduled = max(scheduled, len(s.scheduled))
			s.mu.Unlock()
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			if last[name].Before(changed) {
				t.Fatalf("the last change is %s after the last call for runtime %s", changed.Sub(last[name]), name)
			}
		}
		if calls > 3*runtimes || scheduled > runtimes || len(s.scheduled) > 0 {
			t.Errorf("%d calls for %d runtimes, %d at most are scheduled, %d after all", calls, runtimes, scheduled,
				len(s.scheduled))
		}
	})
}

// TestStaggerKeepsTheEarliestCall checks that a change that concerns one runtime does not wait for a change that
// concerns many.
func TestStaggerKeepsTheEarliestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names, called []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("%02d", i))
		}
		var s Stagger
		var mu sync.Mutex
		add := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			called = append(called, name)
		}
		s.InBackground(names, time.Minute, add)
		s.InBackground([]string{"99"}, time.Minute, add)
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		mu.Lock()
		if !slices.Contains(called, "99") || len(called) > 2 {
			t.Errorf("%v were called first, want 99 among them", called)
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(called) != len(names) {
			t.Errorf("%d calls, want one for each of %d", len(called), len(names))
		}
	})
}
