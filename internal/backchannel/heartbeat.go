package backchannel

import (
	"container/heap"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	// maxBoots limits the number of boots (processes) of the agents of one runtime that are tracked at the same time: a
	// new one, and old ones that are still terminating.
	maxBoots = 3
	// maxProblemBytes limits the problem that an agent reports, because it is shown on the Kyma.
	maxProblemBytes = 300
	// recordRetention is how long the record of a runtime is kept after its last request.
	recordRetention = 24 * time.Hour
)

// State is the content of the last heartbeat of a runtime.
type State struct {
	// Identity is the identity in the client certificate of the heartbeat.
	Identity protocol.Identity
	// Last is the time of the heartbeat.
	Last time.Time
	// Since is the time of the first heartbeat of an uninterrupted series.
	Since time.Time
	// Heartbeat is the heartbeat itself. Its Problem is one line of at most 300 bytes.
	Heartbeat protocol.Heartbeat
}

// tracker records the last heartbeat of each runtime.
//
// A heartbeat only records its time. One goroutine checks all runtimes: each runtime has at most one timer in a heap
// ordered by time. When a timer expires and heartbeats have arrived since, a new one is set, so a runtime costs one
// check per HeartbeatTimeout.
type tracker struct {
	silence   time.Duration
	byRuntime bool // metrics per runtime
	missed    func(kyma string)
	changed   func(kyma string)

	mu      sync.RWMutex
	records map[string]*record // guarded by mu; by name of the Kyma

	timerMu     sync.Mutex    // locked after the mutex of a record, never before it
	timers      timers        // guarded by timerMu
	rescheduled chan struct{} // has an element if the first timer has changed
}

// record is the state of one runtime.
type record struct {
	kyma  string
	dueAt time.Time // when its timer expires; guarded by tracker.timerMu
	index int       // in tracker.timers, -1 if absent; guarded by tracker.timerMu
	conns []*conn   // oldest first; guarded by connLimiter.mu

	mu       sync.Mutex // guards what follows
	removed  bool       // from the tracker
	events   bucket
	beats    bucket
	inFlight int
	last     time.Time     // of its last request
	boots    []sequenceLog // newest first, at most maxBoots
	state    State         // zero before the first heartbeat
	pace     time.Duration // added to HeartbeatTimeout until the next heartbeat
	alive    bool          // as last counted in the metrics
	missed   notification
	changed  notification
	timerAt  time.Time // when its timer expires at the latest; zero if it has none
	hasGauge bool      // a series exists in metrics.LastHeartbeat
}

func newTracker(o *Options) *tracker {
	return &tracker{
		silence: o.HeartbeatTimeout, byRuntime: o.RuntimeMetrics, missed: o.Missed, changed: o.Changed,
		records: map[string]*record{}, rescheduled: make(chan struct{}, 1),
	}
}

// lock returns the locked record of a runtime, a new one if there is none.
func (b *tracker) lock(kyma string) *record {
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
		other.mu.Lock() // records are added and removed with mu held
		return other
	}
	r = &record{kyma: kyma, index: -1, last: time.Now()}
	r.mu.Lock()
	b.records[kyma] = r
	b.setTimerLocked(r)
	return r
}

// state returns the last heartbeat of a runtime, and whether the runtime is alive.
func (b *tracker) state(kyma string) (State, bool) {
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

// isAliveLocked reports whether the last heartbeat is recent enough.
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

// dropLocked removes a record. Both mutexes are held.
func (b *tracker) dropLocked(r *record) {
	delete(b.records, r.kyma)
	r.removed = true
	if !r.state.Last.IsZero() {
		countRuntime(r.alive, -1)
	}
	b.setGaugeLocked(r, false)
	b.timerMu.Lock()
	defer b.timerMu.Unlock()
	if r.index >= 0 {
		heap.Remove(&b.timers, r.index)
	}
}

// countRuntime adds n to the metric of alive or of lost runtimes.
func countRuntime(alive bool, n float64) {
	if alive {
		metrics.AgentsConnected.Add(n)
		return
	}
	metrics.AgentsDisconnected.Add(n)
}

// recordEvent records the sequence number of an event that was delivered.
func (b *tracker) recordEvent(r *record, boot string, sequence uint64) {
	if boot == "" || sequence == 0 {
		return
	}
	r.mu.Lock()
	i, known := r.boot(boot)
	if known {
		r.boots[i].add(sequence)
		r.mu.Unlock()
		return
	}
	// Earlier events of this boot were acknowledged by another process, or are still on their way.
	replaced := r.addBoot(sequenceLog{boot: boot, done: sequence})
	notify := replaced && r.missed.due(time.Now())
	b.setTimerLocked(r)
	r.mu.Unlock()
	if notify {
		b.notifyMissed(r.kyma)
	}
}

// boot returns the index of a boot by its name.
func (r *record) boot(boot string) (index int, known bool) {
	for i := range r.boots {
		if r.boots[i].boot == boot {
			return i, true
		}
	}
	return 0, false
}

// addBoot adds the newest boot and reports whether there was one before it, which may have ended with unsent events.
func (r *record) addBoot(l sequenceLog) (replaced bool) {
	replaced = len(r.boots) > 0
	r.boots = slices.Insert(r.boots, 0, l)
	if len(r.boots) > maxBoots {
		r.boots = slices.Delete(r.boots, maxBoots, len(r.boots))
	}
	return replaced
}

// recordHeartbeat records a heartbeat whose response delays the next one by delay.
//
//	 boot                                         events were missed if               becomes the state
//	1 the first that this process receives        the agent lost some                yes; its number is the start
//	2 the newest                                  lost, or sent but not received     yes
//	3 unknown, while others are known             always                             yes, and it becomes the newest
//	4 older than the newest, but the state's own  as 2                               yes: the newest has sent events only
//	5 older, and the state's is not alive         always                             yes, and it becomes the newest
//	6 older, and the state's is alive             as 2                               no: two agents would alternate
func (b *tracker) recordHeartbeat(r *record, id protocol.Identity, h protocol.Heartbeat, pace time.Duration) {
	now := time.Now()
	h.Problem = oneLine(h.Problem)
	r.mu.Lock()
	missed, displayed := h.EventsLost, true
	i, known := r.boot(h.BootID)
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
		r.pace = pace
	}
	notifyMissed := missed && r.missed.due(now)
	notifyChanged := changed && r.changed.due(now)
	b.setTimerLocked(r)
	r.mu.Unlock()
	if notifyMissed {
		b.notifyMissed(r.kyma)
	}
	if notifyChanged {
		b.changed(r.kyma)
	}
}

// setStateLocked replaces the state and reports whether the change must be notified.
func (b *tracker) setStateLocked(r *record, s State) (changed bool) {
	old := r.state
	alive := b.isAliveLocked(r, s.Last)
	if alive {
		s.Since = old.Since
	}
	changed = !alive || !r.alive || s.Heartbeat.Version != old.Heartbeat.Version ||
		s.Heartbeat.Problem != old.Heartbeat.Problem || s.Identity.Root != old.Identity.Root
	if !r.alive {
		if !old.Last.IsZero() {
			countRuntime(false, -1)
		}
		countRuntime(true, 1)
	}
	r.state, r.alive = s, true
	b.setGaugeLocked(r, false)
	return changed
}

// setGaugeLocked exports the time of the last heartbeat of a runtime while the runtime is lost.
func (b *tracker) setGaugeLocked(r *record, lost bool) {
	switch {
	case lost && b.byRuntime:
		r.hasGauge = true
		metrics.LastHeartbeat.WithLabelValues(r.kyma).Set(float64(r.state.Last.UnixMilli()) / 1000)
	case !lost && r.hasGauge:
		r.hasGauge = false
		metrics.LastHeartbeat.DeleteLabelValues(r.kyma)
	}
}

// oneLine makes a text of a runtime fit for a status: one line of printable characters, limited to maxProblemBytes.
func oneLine(s string) string {
	if s == "" {
		return ""
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(s) > maxProblemBytes {
		s = strings.ToValidUTF8(s[:maxProblemBytes], "")
	}
	return s
}

func (b *tracker) notifyMissed(kyma string) {
	metrics.EventsMissed.Inc()
	b.missed(kyma)
}

// watch checks runtimes when their timers expire, until ctx ends.
func (b *tracker) watch(ctx context.Context) {
	timer := time.NewTimer(recordRetention)
	defer timer.Stop()
	for {
		r, wait := b.nextTimer(time.Now())
		if r != nil {
			b.check(r)
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

// nextTimer removes and returns the record of the first timer if it has expired, otherwise it returns the time until
// then.
func (b *tracker) nextTimer(now time.Time) (*record, time.Duration) {
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

// check sends pending notifications, detects a lost runtime, and removes one without recent requests.
func (b *tracker) check(r *record) {
	now := time.Now()
	r.mu.Lock()
	r.timerAt = time.Time{}
	if r.alive && !b.isAliveLocked(r, now) {
		r.alive, r.changed.pending, r.changed.at = false, true, now
		countRuntime(true, -1)
		countRuntime(false, 1)
		b.setGaugeLocked(r, true)
	}
	notifyChanged := r.changed.pending && !r.changed.at.After(now) && r.changed.due(now)
	notifyMissed := r.missed.pending && !r.missed.at.After(now) && r.missed.due(now)
	old := r.idle(now)
	if !old && !r.removed {
		b.setTimerLocked(r)
	}
	r.mu.Unlock()
	if old {
		b.retire(r, now)
	}
	if notifyMissed {
		b.notifyMissed(r.kyma)
	}
	if notifyChanged {
		b.changed(r.kyma)
	}
}

// idle reports whether a runtime has been silent for recordRetention and nothing is pending for it.
func (r *record) idle(now time.Time) bool {
	return !r.alive && r.inFlight == 0 && now.Sub(r.last) >= recordRetention && !r.missed.pending && !r.changed.pending
}

// retire removes an idle runtime unless a request has arrived meanwhile.
func (b *tracker) retire(r *record, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.removed:
	case r.idle(now):
		b.dropLocked(r)
	default:
		b.setTimerLocked(r)
	}
}

// setTimerLocked makes sure that a runtime is checked in time. A timer that is too early stays, which is the normal
// case at each heartbeat.
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

// timers is a heap of records, the earliest first.
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
