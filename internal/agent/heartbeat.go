package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	maxProblem   = 300         // bytes of Heartbeat.Problem
	heartbeatGap = time.Second // between two heartbeats at least
	longSilence  = time.Minute // between two heartbeats: no connection is kept for that
)

// beat sends heartbeats: the first at once, then every [Agent.interval], and when something in them changes that people wait for.
func (a *Agent) beat(ctx context.Context) {
	failures := 0
	for {
		done := a.heartbeat(ctx)
		next := a.interval()
		if next > longSilence {
			a.poster.CloseIdleConnections()
		}
		next += rand.N(next/5+1) - next/10
		if done {
			failures = 0
		} else {
			failures++
			next = min(next, outbox.Backoff(failures)+heartbeatGap)
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.nudge:
			timer.Reset(heartbeatGap)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// heartbeat sends one. It tells whether the next may wait for its time.
func (a *Agent) heartbeat(ctx context.Context) bool {
	sequence, pending, lost := a.queue.State(protocol.ManagerName)
	h := protocol.Heartbeat{
		BootID: a.queue.BootID(), Version: a.o.Version, Sequence: sequence, Pending: pending, EventsLost: lost > 0, Problem: a.problems.text(),
	}
	if list := a.watchlist.Load(); list != nil {
		h.Watchlist = list.Digest()
	}
	body, err := encodeHeartbeat(h)
	if err != nil {
		a.o.Log.Error(err, "a heartbeat cannot be written as JSON")
		return true
	}
	answer, err := a.poster.Post(ctx, protocol.ManagerName, "heartbeat", body)
	switch {
	case err != nil:
		a.tellReached(cause(err))
		return false
	case answer.Status == http.StatusOK:
		a.tellReached("")
		a.wanted.Store(int64(answer.NextHeartbeat))
		a.queue.HeartbeatDelivered(protocol.ManagerName, lost)
		return true
	case answer.Status == http.StatusNotFound: // the listener of the Kyma project knows no heartbeats
		a.tellReached("")
		return true
	}
	a.tellReached(fmt.Sprintf("%s answers a heartbeat with status %d", a.o.Address, answer.Status))
	a.wanted.Store(0) // it was not heard: whoever waits for the next one would wait in vain for all of a long time
	return answer.RetryAfter > 0
}

// tellReached logs when the listener can be reached and when not, once each.
func (a *Agent) tellReached(problem string) {
	reached := problem == ""
	a.metrics.reached(reached)
	if former := a.reached.Swap(&reached); former != nil && *former == reached {
		return
	}
	if reached {
		a.o.Log.Info("the control plane is reached", "address", a.o.Address)
	} else {
		a.o.Log.Info("the control plane is not reached; what changes is kept until it is", "address", a.o.Address, "why", problem)
	}
}

// encodeHeartbeat returns the body; the problem gets shorter if it does not fit.
func encodeHeartbeat(h protocol.Heartbeat) ([]byte, error) {
	for {
		body, err := json.Marshal(h)
		if err != nil || len(body) < protocol.MaxHeartbeatBytes || h.Problem == "" {
			return body, err
		}
		h.Problem = cut(h.Problem, len(h.Problem)/2)
	}
}

// problems are the reasons why something is not watched, by what it is.
type problems struct {
	changed func()

	mu  sync.Mutex
	all map[string]string // guarded by mu
}

// set notes a problem; "" is none.
func (p *problems) set(of, text string) {
	p.mu.Lock()
	news := p.all[of] != text
	if text == "" {
		delete(p.all, of)
	} else {
		p.all[of] = text
	}
	p.mu.Unlock()
	if news && p.changed != nil {
		p.changed()
	}
}

// text returns as much of the problems as a heartbeat has room for.
func (p *problems) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := make([]string, 0, len(p.all))
	for _, key := range slices.Sorted(maps.Keys(p.all)) {
		lines = append(lines, p.all[key])
	}
	lines = slices.Compact(lines) // two versions of a resource may have the same problem
	text := strings.Join(lines, "; ")
	if len(text) <= maxProblem {
		return text
	}
	more := fmt.Sprintf(" … (%d problems)", len(lines))
	return cut(text, maxProblem-len(more)) + more
}

// cause returns the text of an error without the address of the request, which fills a line and says nothing.
func cause(err error) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err.Error()
	}
	return err.Error()
}

// cut returns the first bytes of a text, without half a character at the end.
func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	return strings.ToValidUTF8(text[:size], "")
}
