package pageserver

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
)

const (
	// pingInterval is the time after which an idle stream gets a comment, so that a dead connection is noticed.
	pingInterval = 20 * time.Second
	// writeTimeout is the time in which a client has to receive an event. The stream of a client that needs more than
	// writeTimeout is closed.
	writeTimeout = 5 * time.Second
	// streamTimeout is the time after which a stream ends at the latest; it ends after a random time between half of
	// streamTimeout and all of it, so that many pages do not open their streams at the same time. Browsers then open a
	// new stream, and each new stream is authorized again: so a stream does not outlive the session or the permissions
	// of its viewer.
	streamTimeout = time.Minute
)

// change is the data of one event: the changes since the previous event.
type change struct {
	Revision uint64             `json:"revision"`
	Topics   []fleetindex.Topic `json:"topics"`
	// Cells are the new states of runtimes by their position in the list of names; absent if the page has to request
	// all states again.
	Cells map[int]byte `json:"cells,omitempty"`
	All   bool         `json:"all,omitempty"`
}

// serveEvents sends an event after each snapshot, until the client disconnects or streamTimeout has passed. A client
// that reconnects states its last event in the header Last-Event-ID, and gets the changes since that event. If that
// event is too old, the next event reports that everything has changed.
func (s *Server) serveEvents(w http.ResponseWriter, r *Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, "Too many pages are open. They show changes after a reload.")
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil {
		if last, err = strconv.ParseUint(r.URL.Query().Get("after"), 10, 64); err != nil {
			last = s.Index.Snapshot().Revision
		}
	}
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(s.writeTimeout)) // a test recorder has none
		_, err := fmt.Fprint(w, text)
		return err == nil && out.Flush() == nil
	}
	if !send("retry: 500\n\n") {
		return
	}
	ping, end := time.NewTicker(pingInterval), time.NewTimer(s.streamTimeout/2+rand.N(s.streamTimeout/2))
	defer ping.Stop()
	defer end.Stop()
	for {
		deltas, complete, changed := s.Index.Since(last)
		if len(deltas) > 0 || !complete {
			c := s.changeOf(deltas, complete)
			last = c.Revision
			data, err := json.Marshal(c)
			if err != nil || !send(fmt.Sprintf("id: %d\ndata: %s\n\n", last, data)) {
				return
			}
			continue
		}
		select {
		case <-changed:
		case <-ping.C:
			if !send(": still here\n\n") {
				return
			}
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// changeOf returns the event for the differences between successive snapshots. If complete is false, the event reports
// that everything has changed.
func (s *Server) changeOf(deltas []fleetindex.Delta, complete bool) change {
	now := s.Index.Snapshot()
	if !complete {
		return change{Revision: now.Revision, All: true, Topics: []fleetindex.Topic{fleetindex.Runtimes,
			fleetindex.Catalog, fleetindex.Rollouts, fleetindex.Manager, fleetindex.Details}}
	}
	c := change{Cells: map[int]byte{}}
	seen := map[fleetindex.Topic]bool{}
	for _, d := range deltas {
		c.Revision, c.All = d.Revision, c.All || d.All
		for _, topic := range d.Topics {
			if !seen[topic] {
				seen[topic] = true
				c.Topics = append(c.Topics, topic)
			}
		}
		for _, name := range d.Names {
			if m, i := now.Member(name); m != nil {
				c.Cells[i] = s.Cell(m)
			}
		}
	}
	if c.All = c.All || now.Membership > c.Revision; c.All { // the positions are indices of another list of names
		c.Cells = nil
	}
	return c
}
