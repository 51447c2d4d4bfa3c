package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"time"
)

// watcher is one running watch. watcher reads the log of its cluster at its own pace, so there is no queue of events.
type watcher struct {
	*Cluster
	selection
	metadata, bookmarks bool
	at                  uint32 // all events up to this version were sent
	w                   http.ResponseWriter
	flush               func()
	buffer              []byte
}

// serveWatch sends the events of a collection. serveWatch ends when the client disconnects, when the timeout is over,
// or when the log no longer has the next event.
func (c *Cluster) serveWatch(w http.ResponseWriter, r *http.Request, k *kind, p place) {
	query := r.URL.Query()
	s, refusal := parseSelectors(k, p, query)
	if refusal != nil {
		c.writeReply(w, refusal, jsonType)
		return
	}
	flush := func() { _ = http.NewResponseController(w).Flush() } // the client may have disconnected
	version, err := strconv.ParseUint("0"+query.Get("resourceVersion"), 10, 32)
	if err != nil {
		c.writeReply(w, badRequest("invalid resource version: "+err.Error()), jsonType)
		return
	}
	v := &watcher{Cluster: c, selection: s, w: w, flush: flush, at: uint32(version),
		metadata: wantsMetadata(r.Header.Get("Accept")), bookmarks: query.Get("allowWatchBookmarks") == "true"}
	w.Header()["Content-Type"] = []string{"application/json"}
	w.Header()["Cache-Control"] = []string{"no-cache, private"}
	w.WriteHeader(http.StatusOK)
	v.flush()

	lasting := 30*time.Minute + rand.N(30*time.Minute)
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		lasting = time.Duration(seconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(r.Context(), lasting)
	defer cancel()
	c.fleet.network.watches.Add(1)
	defer c.fleet.network.watches.Add(-1)
	if !v.sendInitialObjects(ctx, query) {
		return
	}
	v.run(ctx)
}

// sendInitialObjects sends the initial objects, if the request asks for them. sendInitialObjects reports whether the
// watch continues.
func (v *watcher) sendInitialObjects(ctx context.Context, query url.Values) (continues bool) {
	initial := query.Get("sendInitialEvents") == "true"
	if v.at > 0 && !initial {
		v.mu.Lock()
		forgotten, now := v.forgotten, v.version
		v.mu.Unlock()
		if v.at < forgotten {
			return v.endWithExpiredError(forgotten)
		}
		v.at = min(v.at, now)
		return true
	}
	v.mu.Lock()
	v.at = v.version
	for _, o := range slices.Clone(v.rangeLocked(v.kind.resource, v.namespace)) {
		if v.matches(v.Cluster, o) {
			v.appendEvent(ctx, "ADDED", o)
		}
	}
	v.mu.Unlock()
	if initial {
		v.appendBookmark(`,"annotations":{"k8s.io/initial-events-end":"true"}`)
	}
	return v.flushEvents()
}

// run sends each event when it occurs.
func (v *watcher) run(ctx context.Context) {
	period := v.fleet.options.Bookmarks
	pause := time.NewTimer(period/2 + rand.N(period))
	defer pause.Stop()
	for {
		v.mu.Lock()
		if v.at < v.forgotten {
			forgotten := v.forgotten
			v.mu.Unlock()
			v.endWithExpiredError(forgotten)
			return
		}
		from := sort.Search(len(v.log), func(i int) bool { return v.log[i].version > v.at })
		for i := from; i < len(v.log); i++ {
			v.appendChangeEvent(ctx, &v.log[i])
			v.at = v.log[i].version
		}
		if v.changed == nil {
			v.changed = make(chan struct{})
		}
		changed := v.changed
		v.mu.Unlock()
		if !v.flushEvents() {
			return
		}
		select {
		case <-changed:
		case <-pause.C:
			if v.bookmarks {
				v.appendBookmark("")
			}
			pause.Reset(period)
		case <-ctx.Done():
			if v.bookmarks && ctx.Err() == context.DeadlineExceeded {
				v.appendBookmark("")
				v.flushEvents()
			}
			return
		}
	}
}

// appendChangeEvent appends an event with the type that the selection requires. The type of the event is ADDED for an
// object that begins to match, and DELETED for an object that no longer matches.
func (v *watcher) appendChangeEvent(ctx context.Context, e *event) {
	before, after := v.matches(v.Cluster, e.before), v.matches(v.Cluster, e.after)
	switch {
	case before && after:
		v.appendEvent(ctx, "MODIFIED", e.after)
	case after:
		v.appendEvent(ctx, "ADDED", e.after)
	case before:
		last := *e.before
		last.version = e.version
		v.appendEvent(ctx, "DELETED", &last)
	}
}

// appendEvent adds an event to the buffer for the next send.
func (v *watcher) appendEvent(ctx context.Context, what string, o *object) {
	shown, err := v.convert(ctx, o, v.kind)
	if err != nil {
		return
	}
	v.buffer = fmt.Appendf(v.buffer, `{"type":%q,"object":`, what)
	if v.metadata {
		v.buffer = v.appendMetadata(v.buffer, shown)
	} else {
		v.buffer = v.appendObject(v.buffer, shown)
	}
	v.buffer = append(v.buffer, '}', '\n')
}

// appendBookmark appends a bookmark with the present version of the watch.
func (v *watcher) appendBookmark(metadataSuffix string) {
	kind, apiVersion := v.kind.kind, v.kind.apiVersion()
	if v.metadata {
		kind, apiVersion = "PartialObjectMetadata", "meta.k8s.io/v1"
	}
	v.buffer = fmt.Appendf(v.buffer,
		`{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","creationTimestamp":null%s}}}`+"\n", kind, apiVersion, v.at, metadataSuffix)
}

// endWithExpiredError ends the watch with an error event, and always returns false: the watch does not continue.
func (v *watcher) endWithExpiredError(lastForgotten uint32) (alwaysFalse bool) {
	status, err := json.Marshal(expiredStatus(fmt.Sprintf("too old resource version: %d (%d)", v.at, lastForgotten)))
	if err == nil {
		v.buffer = fmt.Appendf(v.buffer, `{"type":"ERROR","object":%s}`+"\n", status)
		v.flushEvents()
	}
	return false
}

// flushEvents writes the buffer to the client. flushEvents reports whether the client is still connected.
func (v *watcher) flushEvents() bool {
	if len(v.buffer) == 0 {
		return true
	}
	_, err := v.w.Write(v.buffer)
	v.flush()
	v.buffer = nil // release the memory: a watch is idle most of the time
	return err == nil
}
