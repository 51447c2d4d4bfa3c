package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

// deadline is the timeout of every wait in the tests. It is long, so that tests pass on a slow machine, too.
const deadline = 10 * time.Minute

// fakeAPI is an API server that serves one resource, things.example.com/v1. Tests can change what fakeAPI answers.
type fakeAPI struct {
	*httptest.Server

	mu      sync.Mutex // guards what follows
	status  int        // of every answer about things; 0 is 200
	version int
	objects map[string]*metav1.PartialObjectMetadata
	changes []fakeChange
	expired int  // watches from an earlier version get 410 Expired
	late    bool // 410 is sent as an event of the watch, not as its status
	tick    chan struct{}
	lists   int
	pages   int
	watches []string // queries
}

type fakeChange struct {
	version int
	event   []byte
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{version: 100, objects: map[string]*metav1.PartialObjectMetadata{}, tick: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/example.com", func(w http.ResponseWriter, _ *http.Request) {
		f.write(w, `{"kind":"APIGroup","preferredVersion":{"version":"v2"},"versions":[{"version":"v2"},{"version":"v1"}]}`)
	})
	mux.HandleFunc("/apis/example.com/v1", func(w http.ResponseWriter, _ *http.Request) {
		f.write(w, `{"kind":"APIResourceList","resources":[{"name":"things","kind":"Thing"},{"name":"things/status","kind":"Thing"}]}`)
	})
	mux.HandleFunc("/apis/example.com/v2", func(w http.ResponseWriter, _ *http.Request) {
		f.write(w, `{"kind":"APIResourceList","resources":[]}`)
	})
	mux.HandleFunc("/apis/example.com/v1/things", f.things)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

// write sends a JSON answer, or the status code that the test has configured.
func (f *fakeAPI) write(w http.ResponseWriter, body string) {
	f.mu.Lock()
	status := f.status
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if status != 0 {
		w.WriteHeader(status)
		body = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"set by the test"}`, status, map[int]string{403: "Forbidden", 404: "NotFound", 410: "Expired"}[status])
	}
	fmt.Fprint(w, body)
}

func (f *fakeAPI) things(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		f.serveWatch(w, r)
		return
	}
	f.mu.Lock()
	if r.URL.Query().Get("continue") == "" {
		f.lists++
	}
	f.pages++
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1",
		Kind: "PartialObjectMetadataList"}}
	list.ResourceVersion = strconv.Itoa(f.version)
	var names []string
	for name := range f.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to := min(from+2, len(names)) // small pages
	for _, name := range names[from:to] {
		list.Items = append(list.Items, *f.objects[name])
	}
	if to < len(names) {
		list.Continue = strconv.Itoa(to)
	}
	f.mu.Unlock()
	body, _ := json.Marshal(list)
	f.write(w, string(body))
}

func (f *fakeAPI) serveWatch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	f.mu.Lock()
	f.watches = append(f.watches, r.URL.RawQuery)
	old, late, status := from < f.expired, f.late, f.status
	f.mu.Unlock()
	const gone = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"too old"}`
	w.Header().Set("Content-Type", "application/json")
	switch {
	case status != 0:
		f.write(w, "")
		return
	case old && !late:
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, gone)
		return
	case old:
		fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", gone)
		return
	}
	for {
		f.mu.Lock()
		if f.status != 0 { // CloseClientConnections does not wait until this connection is closed
			f.mu.Unlock()
			return
		}
		tick := f.tick
		var events [][]byte
		for _, c := range f.changes {
			if c.version > from {
				events, from = append(events, c.event), c.version
			}
		}
		f.mu.Unlock()
		for _, e := range events {
			_, _ = w.Write(append(e, '\n'))
		}
		w.(http.Flusher).Flush()
		select {
		case <-tick:
		case <-r.Context().Done():
			return
		}
	}
}

// set creates or changes an object in the fakeAPI. If the parameter status is true, the generation of the object stays
// the same, as after a change of its status.
func (f *fakeAPI) set(name string, labels map[string]string, status bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	kind := "MODIFIED"
	o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1",
		Kind: "PartialObjectMetadata"}}
	o.Namespace, o.Name, o.UID, o.Generation, o.Labels = "ns", name, "u-"+"1", 1, labels
	if before := f.objects[name]; before != nil {
		o.Generation = before.Generation
		if !status {
			o.Generation++
		}
	} else {
		kind = "ADDED"
	}
	o.ResourceVersion = strconv.Itoa(f.version)
	f.objects[name] = o
	f.changedLocked(kind, o)
}

func (f *fakeAPI) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	o := f.objects[name].DeepCopy()
	o.ResourceVersion = strconv.Itoa(f.version)
	delete(f.objects, name)
	f.changedLocked("DELETED", o)
}

func (f *fakeAPI) changedLocked(kind string, o *metav1.PartialObjectMetadata) {
	body, _ := json.Marshal(map[string]any{"type": kind, "object": o})
	f.changes = append(f.changes, fakeChange{f.version, body})
	close(f.tick)
	f.tick = make(chan struct{})
}

// forget removes the history of changes from the fakeAPI and closes all connections. The next watch then gets the error
// that its resourceVersion is too old.
func (f *fakeAPI) forget(late bool) {
	f.mu.Lock()
	f.expired, f.late, f.changes = f.version, late, nil
	f.mu.Unlock()
	f.CloseClientConnections()
}

func (f *fakeAPI) answer(status int) {
	f.mu.Lock()
	f.status = status
	f.mu.Unlock()
	f.CloseClientConnections()
}

// stage runs the watches of an agent in a test that has no listener to receive the events. For each test, stage records
// the events that the agent would send to a listener.
type stage struct {
	*streams
	api *fakeAPI

	mu  sync.Mutex // guards got
	got []string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{api: newFakeAPI(t)}
	a, err := New(Options{Config: &rest.Config{Host: s.api.URL}, Address: "localhost:1", CA: "a",
		Certificate: "b", Key: "c"})
	if err != nil {
		t.Fatal(err)
	}
	s.streams = a.streams
	s.problemDelay, s.removalDelay = 500*time.Millisecond, time.Second
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.queue.Run(ctx, func(_ context.Context, manager string, e protocol.Event) outbox.Result {
			line := manager + " " + e.WatchedGVK.Version + " " + e.WatchedGVK.Kind + " " + e.Watched.Name
			if e.WatchStarted {
				line += "began"
			}
			if e.ObjectsComplete {
				line += " with"
				for _, o := range e.Objects {
					line += " " + o.Name
				}
			}
			if e.Deleted {
				line += " deleted"
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.got = append(s.got, line)
			return outbox.Result{Delivered: true}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended; s.wg.Wait() })
	return s
}

func (s *stage) apply(t *testing.T, watches ...protocol.Watch) {
	t.Helper()
	if err := s.streams.apply(t.Context(), protocol.Watchlist{Watches: watches}); err != nil {
		t.Fatal(err)
	}
}

// await waits until exactly the given events were delivered since the last call of await, in any order.
func (s *stage) await(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	diff := ""
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		s.mu.Lock()
		got := slices.Clone(s.got)
		slices.Sort(got)
		if diff = cmp.Diff(want, got); diff == "" {
			s.got = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		<-time.After(10 * time.Millisecond)
	}
	t.Fatal(diff)
}

// awaitProblem waits until the text of the problems has the given prefix. "" means that there is no problem.
func (s *stage) awaitProblem(t *testing.T, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		if got = s.problems.truncatedText(); got == want || want != "" && strings.HasPrefix(got, want) {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("the problem is %q, want %q", got, want)
}

var things = protocol.Watch{Group: "example.com", Version: "*", Resource: "things"}

func TestStream(t *testing.T) {
	s := newStage(t)
	for n := range 5 {
		s.api.set(fmt.Sprint("t", n), map[string]string{"a": "1"}, false)
	}
	spec, status, other := things, things, things
	spec.Manager, spec.Field = "spec", protocol.FieldSpec
	status.Manager, status.Field = "status", protocol.FieldStatus
	other.Manager, other.Selector, other.Version, other.Kind = "other", "a=2", "v1", "Named"
	s.apply(t, spec, status, other, things)
	// The managers named "spec" and "status" get one event for each of the five objects. The manager named "other" gets
	// no event, because its selector matches no object.
	begin := []string{"lifecycle-manager v2 Thing began with t0 t1 t2 t3 t4"}
	for n := range 5 {
		begin = append(begin, fmt.Sprint("spec v2 Thing t", n), fmt.Sprint("status v2 Thing t", n))
	}
	s.await(t, begin...)
	if s.api.lists != 1 || s.api.pages != 3 {
		t.Errorf("%d lists with %d pages", s.api.lists, s.api.pages)
	}

	s.api.set("t1", map[string]string{"a": "1"}, true)
	s.await(t, "status v2 Thing t1", "lifecycle-manager v2 Thing t1")
	s.api.set("t1", map[string]string{"a": "2"}, true)
	s.await(t, "spec v2 Thing t1", "lifecycle-manager v2 Thing t1", "other v1 Named t1")
	s.api.set("t1", map[string]string{"a": "1"}, true)
	s.await(t, "spec v2 Thing t1", "lifecycle-manager v2 Thing t1", "other v1 Named t1")
	s.api.remove("t1")
	s.await(t, "spec v2 Thing t1 deleted", "status v2 Thing t1 deleted", "lifecycle-manager v2 Thing t1 deleted")

	// The new watch list differs from the former one only in a target, and has the same query. The watch must continue,
	// and the new target must get events about the existing objects.
	s.api.set("t0", map[string]string{"a": "2"}, true)
	s.await(t, "spec v2 Thing t0", "lifecycle-manager v2 Thing t0", "other v1 Named t0")
	other.Manager = "another"
	s.apply(t, spec, status, other, things)
	s.await(t, "another v1 Named t0")
	if len(s.api.watches) != 1 {
		t.Errorf("%d watches: %q", len(s.api.watches), s.api.watches)
	}
	s.apply(t)
	s.wg.Wait()
	if n := s.records.Load(); n != 0 {
		t.Errorf("%d objects are known after the end", n)
	}
}

// TestStreamScopes changes the label of an object so that other entries of the watch list match it. The event must
// contain no metadata if an entry of the same manager matched the object before: the manager compares the metadata with
// its interests, and the interest behind this entry does not match any more.
func TestStreamScopes(t *testing.T) {
	with, without, all := things, things, things
	with.Selector, without.Selector = "a=1", "!a"
	cases := map[string]struct {
		reason        string
		watches       []protocol.Watch
		before, after map[string]string
		unknown       bool
	}{
		"Leaves": {"the interest in a=1 has to be notified, too", []protocol.Watch{with, without},
			map[string]string{"a": "1"}, nil, true},
		"Returns": {"as above", []protocol.Watch{with, without}, nil, map[string]string{"a": "1"}, true},
		"Stays":   {"no entry has lost the object", []protocol.Watch{with, without}, nil, map[string]string{"b": "1"}, false},
		"Enters":  {"as above", []protocol.Watch{with, all}, nil, map[string]string{"a": "1"}, false},
		"LeavesOne": {"another entry still matches", []protocol.Watch{with, all}, map[string]string{"a": "1"}, nil,
			true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			queue := outbox.New("boot", 10, outbox.NewMetrics())
			p := plansFor(protocol.Watchlist{Watches: c.watches})[0]
			r, err := newRecorder(p.filters)
			if err != nil {
				t.Fatal(err)
			}
			s := &stream{streams: &streams{queue: queue, metrics: newMetrics()}, plan: p, targets: p.targets,
				recorder: r, served: &served{version: "v1", kind: "Thing", preferred: "v1"},
				known: map[string]record{}}
			for version, labels := range []map[string]string{c.before, c.after} {
				o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "t1", UID: "u", Labels: labels,
					ResourceVersion: fmt.Sprint(version)}}
				s.recordAndReportChange(watch.Event[metav1.PartialObjectMetadata]{Object: o})
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var got []protocol.Event
			queue.Run(ctx, func(_ context.Context, _ string, e protocol.Event) outbox.Result {
				got = append(got, e)
				cancel()
				return outbox.Result{Delivered: true}
			})
			if len(got) != 1 || (got[0].Object == nil) != c.unknown || got[0].Watched.Name != "t1" {
				t.Errorf("%s: the queued events are %+v", c.reason, got)
			}
		})
	}
}

// TestStreamIntroduces checks that the event about the start of a watch contains the objects if they fit into it.
func TestStreamIntroduces(t *testing.T) {
	cases := map[string]struct {
		reason string
		labels map[string]string // of two objects; a third has none
		watch  string            // selector
		want   string
	}{
		"All":    {"all are wanted", map[string]string{"a": "1"}, "", " with t0 t1 t2"},
		"Wanted": {"only those that a target selects", map[string]string{"a": "1"}, "a=1", " with t0 t1"},
		"None":   {"there are none", map[string]string{"a": "1"}, "a=2", " with"},
		"Much": {"they do not fit: anything may have changed",
			map[string]string{"a": strings.Repeat("x", maxMetadataBytes)}, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.api.set("t0", c.labels, false)
			s.api.set("t1", c.labels, false)
			s.api.set("t2", nil, false)
			wanted, other := things, things
			// A second target with another selector makes the query of the watch include more objects than the first
			// target wants, so the agent itself has to select the objects for each target.
			wanted.Selector, other.Manager, other.Selector = c.watch, "other", "never=1"
			s.apply(t, wanted, other)
			s.await(t, "lifecycle-manager v1 Thing began"+c.want)
		})
	}
}

// TestStreamMissed checks an interruption after which the API server no longer has the history of changes: only
// differences are reported.
func TestStreamMissed(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("Late", late), func(t *testing.T) {
			s := newStage(t)
			for n := range 5 {
				s.api.set(fmt.Sprint("t", n), nil, false)
			}
			s.apply(t, things)
			s.await(t, "lifecycle-manager v1 Thing began with t0 t1 t2 t3 t4")
			s.api.answer(http.StatusServiceUnavailable)
			s.api.set("t1", nil, true)
			s.api.set("t9", nil, false)
			s.api.remove("t2")
			s.api.forget(late)
			s.api.answer(0)
			s.await(t, "lifecycle-manager v1 Thing t1", "lifecycle-manager v1 Thing t9",
				"lifecycle-manager v1 Thing t2 deleted")
			if n := s.records.Load(); n != 5 || s.api.lists != 2 {
				t.Errorf("%d objects after %d lists", n, s.api.lists)
			}
			s.api.set("t1", nil, true)
			s.await(t, "lifecycle-manager v1 Thing t1")
		})
	}
}

// TestStreamCut checks an interruption after which the API server still has the history of changes: no list is needed.
func TestStreamCut(t *testing.T) {
	s := newStage(t)
	s.api.set("t1", nil, false)
	s.apply(t, things)
	s.await(t, "lifecycle-manager v1 Thing began with t1")
	s.api.answer(http.StatusInternalServerError)
	s.api.set("t1", nil, false)
	s.api.answer(0)
	s.await(t, "lifecycle-manager v1 Thing t1")
	if s.api.lists != 1 {
		t.Errorf("%d lists", s.api.lists)
	}
}

func TestStreamProblems(t *testing.T) {
	cases := map[string]struct {
		reason  string
		status  int
		problem string
		began   bool // it is reported that any object may have changed
	}{
		"Forbidden": {"rights are missing", http.StatusForbidden, "not allowed to list and watch things.example.com",
			false},
		"NotFound": {"the CRD was deleted", http.StatusNotFound, "things.example.com does not exist in the runtime",
			true},
		"Broken": {"a lasting failure is reported", http.StatusInternalServerError,
			"cannot watch things.example.com: ", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.api.set("t1", nil, false)
			s.api.answer(c.status)
			s.apply(t, things)
			s.awaitProblem(t, c.problem)
			s.api.answer(0)
			s.await(t, "lifecycle-manager v1 Thing began with t1")
			s.awaitProblem(t, "")

			s.api.answer(c.status)
			s.awaitProblem(t, c.problem)
			if c.began {
				s.await(t, "lifecycle-manager v1 Thing began")
			}
			s.api.set("t1", nil, false)
			s.api.answer(0)
			s.await(t, "lifecycle-manager v1 Thing t1")
			s.awaitProblem(t, "")
			s.apply(t)
			s.wg.Wait()
		})
	}
}

// TestStreamOfRemovedModule checks that the removal of a module causes no problem of the agent: first the CRD is
// deleted and the rights are withdrawn, and after that the watch list lacks the resource.
func TestStreamOfRemovedModule(t *testing.T) {
	s := newStage(t)
	s.problemDelay, s.removalDelay = time.Hour, time.Hour
	s.problems.changed = func() { t.Errorf("a problem is reported: %s", s.problems.truncatedText()) }
	s.api.set("t1", nil, false)
	s.apply(t, things)
	s.await(t, "lifecycle-manager v1 Thing began with t1")
	stream := s.running[versionedResource{"example.com", "*", "things"}]
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "example.com", Resource: "things"}, "", nil)
	_ = stream.reportFailure(forbidden, time.Now())
	s.api.answer(http.StatusNotFound)
	s.await(t, "lifecycle-manager v1 Thing began")
	s.apply(t)
	s.wg.Wait()
}

// TestStreamBeforeRights checks that an API server that does not grant the rights for a new watch at once is no problem
// of the agent.
func TestStreamBeforeRights(t *testing.T) {
	s := newStage(t)
	s.problemDelay = time.Hour
	s.problems.changed = func() { t.Errorf("a problem is reported: %s", s.problems.truncatedText()) }
	s.api.set("t1", nil, false)
	s.api.answer(http.StatusForbidden)
	s.apply(t, things)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "example.com", Resource: "things"}, "", nil)
	_ = s.running[versionedResource{"example.com", "*", "things"}].reportFailure(forbidden, time.Now())
	s.api.answer(0)
	s.await(t, "lifecycle-manager v1 Thing began with t1")
	s.apply(t)
	s.wg.Wait()
}

// TestStreamRetriesWithNewList checks that a new watch list ends the delay after a failure.
func TestStreamRetriesWithNewList(t *testing.T) {
	s := newStage(t)
	s.minDelay, s.maxDelay = 48*time.Hour, 48*time.Hour
	s.problemDelay = time.Nanosecond // the first failure is a problem, because there is no second one
	s.api.set("t1", nil, false)
	s.api.answer(http.StatusForbidden)
	s.apply(t, things)
	s.awaitProblem(t, "not allowed to list and watch things.example.com")
	s.api.answer(0)
	<-time.After(1100 * time.Millisecond) // the cached answers of discovery are then expired
	more := things
	more.Manager = "more"
	s.apply(t, things, more)
	s.await(t, "lifecycle-manager v1 Thing began with t1", "more v1 Thing t1")
}

// TestStreamProblemsOfVersions checks that the streams of two versions of a resource do not clear each other's
// problems.
func TestStreamProblemsOfVersions(t *testing.T) {
	s := newStage(t)
	versions := map[string]*stream{}
	for _, version := range []string{"v1", "v2"} {
		q := query{group: "example.com", version: version, resource: "things"}
		versions[version] = &stream{streams: s.streams, plan: plan{query: q}}
	}
	notFound := apierrors.NewNotFound(schema.GroupResource{Group: "example.com", Resource: "things"}, "")
	_ = versions["v2"].reportFailure(notFound, time.Now().Add(-time.Hour))
	versions["v1"].recordOpened()
	const want = "things.example.com does not exist in the runtime"
	if got := s.problems.truncatedText(); got != want {
		t.Errorf("the problem is %q after another version is watched, want %q", got, want)
	}
	_ = versions["v1"].reportFailure(notFound, time.Now().Add(-time.Hour))
	if got := s.problems.truncatedText(); got != want {
		t.Errorf("the problem is %q with both versions, want it once", got)
	}
}

func TestFind(t *testing.T) {
	cases := map[string]struct {
		reason string
		query  query
		want   served
		fails  bool
	}{
		"Star": {"the preferred version does not have it, another has",
			query{group: "example.com", version: "*", resource: "things"}, served{"v1", "Thing", "v1", true}, false},
		"Named": {"a version that is named is taken",
			query{group: "example.com", version: "v1", resource: "things"}, served{"v1", "Thing", "v2", true}, false},
		"Elsewhere": {"and no other", query{group: "example.com", version: "v2", resource: "things"}, served{}, true},
		"Resource": {"an unknown resource is not found", query{group: "example.com", version: "*", resource: "others"},
			served{}, true},
		"Group": {"nor an unknown group", query{group: "example.org", version: "v1", resource: "things"}, served{},
			true},
		"Core": {"the core group has one version", query{version: "*", resource: "configmaps"}, served{}, true},
	}
	s := newStage(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := s.discovery.find(t.Context(), c.query)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%s: got %+v, %v", c.reason, got, err)
			}
		})
	}
}

func TestSmall(t *testing.T) {
	if ifSmall(&metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", maxMetadataBytes)}}) != nil {
		t.Error("metadata that fills an event should be left out")
	}
	if ifSmall(&metav1.ObjectMeta{Annotations: map[string]string{"a": "x"}}) == nil {
		t.Error("metadata that fits should stay")
	}
}
