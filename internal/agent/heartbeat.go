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
	maxProblemBytes      = 300         // maximum size of Heartbeat.Problem
	minHeartbeatInterval = time.Second // minimum time between two heartbeats
	maxIdlePeriod        = time.Minute // idle connections are closed if the next heartbeat is sent later
)

// sendHeartbeats sends the first heartbeat at once, and another one after every heartbeatInterval. After a call of
// triggerHeartbeat, the next heartbeat is sent before the interval has passed.
func (a *Agent) sendHeartbeats(ctx context.Context) {
	failures := 0
	for {
		done := a.sendHeartbeat(ctx)
		next := a.heartbeatInterval()
		if next > maxIdlePeriod {
			a.poster.CloseIdleConnections()
		}
		next += rand.N(next/5+1) - next/10
		if done {
			failures = 0
		} else {
			failures++
			next = min(next, outbox.Backoff(failures)+minHeartbeatInterval)
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.beatNow:
			timer.Reset(minHeartbeatInterval)
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

// sendHeartbeat sends one heartbeat. sendHeartbeat returns true if the usual interval applies until the next heartbeat.
func (a *Agent) sendHeartbeat(ctx context.Context) (skipBackoff bool) {
	sequence, pending, lost := a.queue.State(protocol.ManagerName)
	h := protocol.Heartbeat{
		BootID: a.queue.BootID(), Version: a.o.Version, Sequence: sequence, Pending: pending, EventsLost: lost > 0,
		Problem: a.problems.truncatedText(),
	}
	if list := a.watchlist.Load(); list != nil {
		h.Watchlist = list.Digest()
	}
	body, err := encodeWithinLimit(h)
	if err != nil {
		a.o.Log.Error(err, "a heartbeat cannot be written as JSON")
		return true
	}
	answer, err := a.poster.Post(ctx, protocol.ManagerName, "heartbeat", body)
	switch {
	case err != nil:
		a.recordControlPlaneReachability(0, textWithoutURL(err))
		return false
	case answer.Status == http.StatusOK:
		a.recordControlPlaneReachability(answer.Status, "")
		a.requested.Store(int64(answer.NextHeartbeat))
		a.queue.HeartbeatDelivered(protocol.ManagerName, lost)
		return true
	case answer.Status == http.StatusNotFound: // the listener of the Kyma project has no heartbeats
		a.recordControlPlaneReachability(answer.Status, "")
		return true
	}
	a.recordControlPlaneReachability(answer.Status, a.o.Address+" answers a heartbeat with "+answer.StatusText())
	a.requested.Store(int64(answer.RetryAfter)) // no longer delay: the heartbeat was not recorded
	return answer.RetryAfter > 0
}

// recordControlPlaneReachability records in the log and the metrics whether the listener can be reached: problem is ""
// if it can. Only changes of status are logged, because the text of a network error may differ at each attempt.
func (a *Agent) recordControlPlaneReachability(status int, problem string) {
	reached := problem == ""
	a.metrics.setReached(reached)
	if former := a.lastStatus.Swap(&status); former != nil && *former == status {
		return
	}
	if reached {
		a.o.Log.Info("the control plane is reached", "address", a.o.Address)
	} else {
		a.o.Log.Info("the control plane is not reached; events are kept until it is", "address",
			a.o.Address, "reason", problem)
	}
}

// encodeWithinLimit returns the body of a heartbeat. If the body would be too large, Heartbeat.Problem is shortened.
func encodeWithinLimit(h protocol.Heartbeat) ([]byte, error) {
	for {
		body, err := json.Marshal(h)
		if err != nil || len(body) < protocol.MaxHeartbeatBytes || h.Problem == "" {
			return body, err
		}
		h.Problem = truncate(h.Problem, len(h.Problem)/2)
	}
}

// problems is the set of reasons why some parts of the agent do not work. Each reason has a key.
type problems struct {
	changed func()

	mu  sync.Mutex
	all map[string]string // guarded by mu
}

// setAndNotify stores the text of the problem with the given key. An empty text removes the problem. If the text of the
// problem has changed, setAndNotify calls p.changed.
func (p *problems) setAndNotify(key, text string) {
	p.mu.Lock()
	changed := p.all[key] != text
	if text == "" {
		delete(p.all, key)
	} else {
		p.all[key] = text
	}
	p.mu.Unlock()
	if changed && p.changed != nil {
		p.changed()
	}
}

// truncatedText returns all problems in one text, shortened to the size that a heartbeat allows.
func (p *problems) truncatedText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := make([]string, 0, len(p.all))
	for _, key := range slices.Sorted(maps.Keys(p.all)) {
		lines = append(lines, p.all[key])
	}
	lines = slices.Compact(lines) // two versions of a resource may have the same problem
	text := strings.Join(lines, "; ")
	if len(text) <= maxProblemBytes {
		return text
	}
	more := fmt.Sprintf(" … (%d problems)", len(lines))
	return truncate(text, maxProblemBytes-len(more)) + more
}

// textWithoutURL returns the text of an error without the URL of the request, because the URL is long and adds nothing.
func textWithoutURL(err error) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err.Error()
	}
	return err.Error()
}

// truncate returns the beginning of a text with at most size bytes, without an incomplete character at its end.
func truncate(text string, size int) string {
	if len(text) <= size {
		return text
	}
	return strings.ToValidUTF8(text[:size], "")
}
