package backchannel

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

const (
	// maxBoots is the maximum number of agent processes of one runtime that are tracked at the same time. In this
	// package, a boot is one process of an agent, from its start to its end. During a restart of the agent, a runtime
	// has several boots: the new process has started, and the old process still terminates.
	maxBoots = 3
	// maxProblemBytes is the maximum length of the problem text that an agent reports. The status of the Kyma shows the
	// problem text.
	maxProblemBytes = 300
	// maxVersionBytes is the maximum length of the version that an agent reports. The status of the Kyma shows the
	// version. The version of an agent is a tag, or a tag with the digest of a commit: at most about 90 bytes.
	maxVersionBytes = 128
	// recordRetention is how long the record of a runtime is kept after its last request.
	recordRetention = 24 * time.Hour
)

// State describes the last heartbeat of one runtime.
type State struct {
	// Identity is the identity in the client certificate of this heartbeat.
	Identity protocol.Identity
	// Last is the time of the last heartbeat.
	Last time.Time
	// Since is the time of the first heartbeat in an uninterrupted series.
	Since time.Time
	// Heartbeat is the content of the last heartbeat. The fields Problem and Version of the heartbeat are one line of
	// at most 300 and 128 bytes.
	Heartbeat protocol.Heartbeat
}

// tracker records the last heartbeat of each runtime.
//
// When a heartbeat arrives, only its time is recorded. One goroutine checks whether the heartbeats of all runtimes are
// in time. Each runtime has at most one timer, in a heap that is ordered by time. When a timer expires although a
// heartbeat has arrived in the meantime, the goroutine sets a new timer. Most heartbeats set no timer, so each runtime
// is checked only once per HeartbeatTimeout.
type tracker struct {
	silence   time.Duration
	byRuntime bool // enables metrics per runtime
	missed    func(kyma string)
	changed   func(kyma string)

	mu      sync.RWMutex
	records map[string]*record // guarded by mu; the key is the name of the Kyma

	timerMu     sync.Mutex    // locked after the mutex of a record, never before it
	timers      timers        // guarded by timerMu
	rescheduled chan struct{} // has an element if the first timer has changed
}

// record contains the data that the tracker stores about one runtime.
type record struct {
	kyma  string
	dueAt time.Time // time at which the timer of the runtime expires; guarded by tracker.timerMu
	index int       // index in tracker.timers, -1 if absent; guarded by tracker.timerMu
	conns []*conn   // open connections, oldest first; guarded by connLimiter.mu

	mu       sync.Mutex // guards the following fields
	removed  bool       // whether the record was removed from the tracker
	events   bucket
	beats    bucket
	inFlight int
	last     time.Time     // time of the last request
	boots    []sequenceLog // newest first, at most maxBoots
	state    State         // zero before the first heartbeat
	pace     time.Duration // is added to HeartbeatTimeout until the next heartbeat
	alive    bool          // whether the metrics count the runtime as alive
	missed   notification
	changed  notification
	timerAt  time.Time // latest time at which the timer expires; zero if there is no timer
	hasGauge bool      // whether metrics.LastHeartbeat has a series for the runtime
}

func newTracker(o *Options) *tracker {
	return &tracker{
		silence: o.HeartbeatTimeout, byRuntime: o.RuntimeMetrics, missed: o.Missed, changed: o.Changed,
		records: map[string]*record{}, rescheduled: make(chan struct{}, 1),
	}
}

// getOrCreateLockedRecord returns the record of a runtime's heartbeats, with its mutex locked. If the runtime has no
// record, getOrCreateLockedRecord creates one.
func (b *tracker) getOrCreateLockedRecord(kyma string) *record {
	b.mu.RLock()
	r := b.records[kyma]
	b.mu.RUnlock()
	if r != nil {
		r.mu.Lock()
		if !r.removed {
			return r
		}
		r.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.records[kyma]; other != nil && other != r {
		other.mu.Lock() // records are added and removed only while their mu is locked
		return other
	}
	r = &record{kyma: kyma, index: -1, last: time.Now()}
	r.mu.Lock()
	b.records[kyma] = r
	b.setTimerLocked(r)
	return r
}

// state returns the last heartbeat of a runtime, and whether the runtime counts as alive.
func (b *tracker) state(kyma string) (s State, isAlive bool) {
	b.mu.RLock()
	r := b.records[kyma]
	b.mu.RUnlock()
	if r == nil {
		return State{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, b.isAliveLocked(r, time.Now())
}

// isAliveLocked reports whether the last heartbeat is recent enough, so that the runtime counts as alive.
func (b *tracker) isAliveLocked(r *record, now time.Time) bool {
	return !r.state.Last.IsZero() && now.Sub(r.state.Last) < b.silence+r.pace
}

// forget removes the record of a runtime.
func (b *tracker) forget(kyma string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.records[kyma]; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		b.dropLocked(r)
	}
}

// release drops the last heartbeat of a runtime, and keeps the sequence numbers of its events.
func (b *tracker) release(kyma string) {
	b.mu.RLock()
	r := b.records[kyma]
	b.mu.RUnlock()
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b.uncountLocked(r)
	r.state, r.alive, r.pace, r.changed.pending = State{}, false, 0, false
}

// uncountLocked removes a runtime from the metrics about heartbeats.
func (b *tracker) uncountLocked(r *record) {
	if !r.state.Last.IsZero() {
		countRuntime(r.alive, -1)
	}
	b.updateLastHeartbeatGaugeLocked(r, false)
}

// dropLocked removes the record of a runtime. The caller of dropLocked must hold the mutex of the tracker and the mutex
// of the record.
func (b *tracker) dropLocked(r *record) {
	delete(b.records, r.kyma)
	r.removed = true
	b.uncountLocked(r)
	b.timerMu.Lock()
	defer b.timerMu.Unlock()
	if r.index >= 0 {
		heap.Remove(&b.timers, r.index)
	}
}

// countRuntime adds n to the number of runtimes whose agent is connected if alive is true, or else to the number of
// runtimes whose agent is disconnected.
func countRuntime(alive bool, n float64) {
	if alive {
		metrics.AgentsConnected.Add(n)
		return
	}
	metrics.AgentsDisconnected.Add(n)
}

// recordEvent records the sequence number of an event that was delivered to this replica.
func (b *tracker) recordEvent(r *record, boot string, sequence uint64) {
	if boot == "" || sequence == 0 {
		return
	}
	r.mu.Lock()
	i, known := r.bootIndex(boot)
	if known {
		r.boots[i].add(sequence)
		r.mu.Unlock()
		return
	}
	// The event is the first one that this replica receives from this process of the agent. Earlier events of the agent
	// process count as received, so that they are not reported as missed: either another replica has acknowledged them,
	// or they are still on their way.
	replaced := r.addBoot(sequenceLog{boot: boot, done: sequence})
	notify := replaced && r.missed.takeTurnOrPostpone(time.Now())
	b.setTimerLocked(r)
	r.mu.Unlock()
	if notify {
		b.notifyMissed(r.kyma)
	}
}

// bootIndex returns the index in r.boots of the agent process with the given name.
func (r *record) bootIndex(boot string) (index int, known bool) {
	for i := range r.boots {
		if r.boots[i].boot == boot {
			return i, true
		}
	}
	return 0, false
}

// addBoot adds an agent process as the newest boot of the runtime. addBoot returns true if the agent process replaces
// an older one, which may have ended before it sent all its events.
func (r *record) addBoot(l sequenceLog) (hasOlder bool) {
	hasOlder = len(r.boots) > 0
	r.boots = slices.Insert(r.boots, 0, l)
	if len(r.boots) > maxBoots {
		r.boots = slices.Delete(r.boots, maxBoots, len(r.boots))
	}
	return hasOlder
}

// recordHeartbeat records a heartbeat. The response asks the agent to send its next heartbeat after the delay "pace",
// which is added to HeartbeatTimeout. Two things depend on the boot (the agent process) that has sent the heartbeat:
// whether events were missed, and whether the content of the heartbeat is stored as the state of the runtime's agent:
//
//	 boot of the heartbeat                           events were missed                 becomes the state
//	1 the first boot in this process                 if the agent lost some             yes; its number is the start
//	2 the newest boot                                if lost, or sent but not received  yes
//	3 unknown, while other boots are known           always                             yes, as the newest boot
//	4 not the newest, but the boot of the state      as in row 2                        yes: the newest sent only events
//	5 not the newest; the boot of the state is lost  always                             yes, as the newest boot
//	6 not the newest; the boot of the state is alive as in row 2                        no: two agents would alternate
func (b *tracker) recordHeartbeat(r *record, id protocol.Identity, h protocol.Heartbeat, pace time.Duration) {
	now := time.Now()
	h.Problem = text.ClipLine(h.Problem, maxProblemBytes)
	h.Version = text.ClipLine(h.Version, maxVersionBytes)
	r.mu.Lock()
	missed, displayed := h.EventsLost, true
	i, known := r.bootIndex(h.BootID)
	switch {
	case !known:
		replaced := r.addBoot(sequenceLog{boot: h.BootID, done: h.Sequence})
		missed = missed || replaced
	case h.Pending == 0 && r.boots[i].acknowledge(h.Sequence):
		missed = true
	}
	if known && i > 0 && h.BootID != r.state.Heartbeat.BootID {
		if displayed = !b.isAliveLocked(r, now); displayed {
			missed = true
			again := r.boots[i]
			r.boots = slices.Delete(r.boots, i, i+1)
			r.addBoot(again)
		}
	}
	changed := displayed && b.setStateLocked(r, State{Identity: id, Last: now, Since: now, Heartbeat: h})
	if displayed {
		r.pace = pace + pace/10 // an agent lengthens the delay by up to a tenth
	}
	notifyMissed := missed && r.missed.takeTurnOrPostpone(now)
	notifyChanged := changed && r.changed.takeTurnOrPostpone(now)
	b.setTimerLocked(r)
	r.mu.Unlock()
	if notifyMissed {
		b.notifyMissed(r.kyma)
	}
	if notifyChanged {
		b.changed(r.kyma)
	}
}

// setStateLocked replaces the last heartbeat of the runtime. setStateLocked reports whether the callback Changed must
// be called because of the replacement.
func (b *tracker) setStateLocked(r *record, s State) (changed bool) {
	old := r.state
	alive := b.isAliveLocked(r, s.Last)
	if alive {
		s.Since = old.Since
	}
	changed = !alive || !r.alive || s.Heartbeat.Version != old.Heartbeat.Version ||
		s.Heartbeat.Problem != old.Heartbeat.Problem || s.Heartbeat.Watchlist != old.Heartbeat.Watchlist ||
		s.Identity.Root != old.Identity.Root
	if !r.alive {
		if !old.Last.IsZero() {
			countRuntime(false, -1)
		}
		countRuntime(true, 1)
	}
	r.state, r.alive = s, true
	b.updateLastHeartbeatGaugeLocked(r, false)
	return changed
}

// updateLastHeartbeatGaugeLocked sets the metric with the time of a runtime's last heartbeat if the runtime is lost,
// and deletes this metric if the runtime is alive.
func (b *tracker) updateLastHeartbeatGaugeLocked(r *record, lost bool) {
	switch {
	case lost && b.byRuntime:
		r.hasGauge = true
		metrics.LastHeartbeat.WithLabelValues(r.kyma).Set(float64(r.state.Last.UnixMilli()) / 1000)
	case !lost && r.hasGauge:
		r.hasGauge = false
		metrics.LastHeartbeat.DeleteLabelValues(r.kyma)
	}
}

func (b *tracker) notifyMissed(kyma string) {
	metrics.EventsMissed.Inc()
	b.missed(kyma)
}

// watch runs until ctx ends: it checks each runtime when the timer of the runtime expires.
func (b *tracker) watch(ctx context.Context) {
	timer := time.NewTimer(recordRetention)
	defer timer.Stop()
	for {
		r, wait := b.popDueTimer(time.Now())
		if r != nil {
			b.checkRuntime(r)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-b.rescheduled:
		case <-timer.C:
		}
	}
}

// popDueTimer removes the first timer if it has expired, and returns its record. If the first timer has not expired,
// popDueTimer returns the time until its expiry.
func (b *tracker) popDueTimer(now time.Time) (*record, time.Duration) {
	b.timerMu.Lock()
	defer b.timerMu.Unlock()
	if len(b.timers) == 0 {
		return nil, recordRetention
	}
	if wait := b.timers[0].dueAt.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&b.timers).(*record), 0
}

// checkRuntime checks one runtime: it sends pending notifications, detects that the runtime is lost, and removes the
// record if there was no recent request.
func (b *tracker) checkRuntime(r *record) {
	now := time.Now()
	r.mu.Lock()
	r.timerAt = time.Time{}
	if r.alive && !b.isAliveLocked(r, now) {
		r.alive, r.changed.pending, r.changed.at = false, true, now
		countRuntime(true, -1)
		countRuntime(false, 1)
		b.updateLastHeartbeatGaugeLocked(r, true)
	}
	notifyChanged := r.changed.pending && !r.changed.at.After(now) && r.changed.takeTurnOrPostpone(now)
	notifyMissed := r.missed.pending && !r.missed.at.After(now) && r.missed.takeTurnOrPostpone(now)
	old := r.isIdle(now)
	if !old && !r.removed {
		b.setTimerLocked(r)
	}
	r.mu.Unlock()
	if old {
		b.removeIdle(r, now)
	}
	if notifyMissed {
		b.notifyMissed(r.kyma)
	}
	if notifyChanged {
		b.changed(r.kyma)
	}
}

// isIdle reports whether a runtime has sent no request for recordRetention and has no pending notification.
func (r *record) isIdle(now time.Time) bool {
	return !r.alive && r.inFlight == 0 && now.Sub(r.last) >= recordRetention && !r.missed.pending && !r.changed.pending
}

// removeIdle removes the record of an idle runtime, unless a request has arrived in the meantime.
func (b *tracker) removeIdle(r *record, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.removed:
	case r.isIdle(now):
		b.dropLocked(r)
	default:
		b.setTimerLocked(r)
	}
}

// setTimerLocked sets the timer after which the heartbeats of a runtime are checked. setTimerLocked keeps an existing
// timer that expires earlier, and so need not set the timer again for each heartbeat.
func (b *tracker) setTimerLocked(r *record) {
	at := r.last.Add(recordRetention)
	earliest := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	if r.alive {
		earliest(r.state.Last.Add(b.silence + r.pace))
	}
	if r.changed.pending {
		earliest(r.changed.at)
	}
	if r.missed.pending {
		earliest(r.missed.at)
	}
	if r.removed || !r.timerAt.IsZero() && !at.Before(r.timerAt) {
		return
	}
	r.timerAt = at
	b.timerMu.Lock()
	r.dueAt = at
	if r.index >= 0 {
		heap.Fix(&b.timers, r.index)
	} else {
		heap.Push(&b.timers, r)
	}
	first := r.index == 0
	b.timerMu.Unlock()
	if first {
		select {
		case b.rescheduled <- struct{}{}:
		default:
		}
	}
}

// timers is a heap of records, ordered by the time of their timers.
type timers []*record

func (a timers) Len() int           { return len(a) }
func (a timers) Less(i, j int) bool { return a[i].dueAt.Before(a[j].dueAt) }
func (a timers) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

// Push implements [heap.Interface].
func (a *timers) Push(x any) {
	r := x.(*record)
	r.index = len(*a)
	*a = append(*a, r)
}

// Pop implements [heap.Interface].
func (a *timers) Pop() any {
	last := len(*a) - 1
	r := (*a)[last]
	(*a)[last] = nil
	*a, r.index = (*a)[:last], -1
	return r
}
