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
	// maxLives bounds how many lives of the agents of one runtime are told apart: a new one, and those that end while it begins.
	maxLives = 3
	// maxProblem bounds what a runtime may say about its problem, in bytes, because it is shown on its Kyma.
	maxProblem = 300
	// keep is how long something is known of a runtime that says nothing any more.
	keep = 24 * time.Hour
)

// State is what the last heartbeat of a runtime said.
type State struct {
	// Identity is that of the certificate which it came with.
	Identity protocol.Identity
	// Last is when it came.
	Last time.Time
	// Since is the first heartbeat after which none was missing.
	Since time.Time
	// Heartbeat is what it said. Its Problem is one line of at most 300 bytes.
	Heartbeat protocol.Heartbeat
}

// board knows of each runtime when and what it last said.
//
// A heartbeat writes down its time and nothing else. One goroutine looks after all runtimes: each has at most one alarm, in order of time,
// and what has been heard meanwhile gets a new one when its old one goes off, so a runtime costs one look per silence.
type board struct {
	silence   time.Duration
	byRuntime bool // metrics per runtime
	missed    func(kyma string)
	changed   func(kyma string)

	mu      sync.RWMutex
	records map[string]*record // guarded by mu; by name of the Kyma

	alarmMu sync.Mutex    // taken while a record is locked, never the other way round
	alarms  alarms        // guarded by alarmMu
	earlier chan struct{} // has an element if the first alarm is not the one that watch waits for
}

// record is what is known of one runtime.
type record struct {
	kyma  string
	ring  time.Time // of its alarm; guarded by board.alarmMu
	index int       // in board.alarms, -1 if it is not there; guarded by board.alarmMu
	conns []*conn   // oldest first; guarded by door.mu

	mu       sync.Mutex // guards what follows
	gone     bool       // no longer on the board
	events   bucket
	beats    bucket
	inFlight int
	last     time.Time     // of its last request
	lives    []ledger      // newest first, at most maxLives
	state    State         // zero before the first heartbeat
	pace     time.Duration // how much later than usual the next heartbeat may come
	heard    bool          // told so by Changed
	missed   notice
	changed  notice
	alarm    time.Time // when its alarm goes off at the latest; zero if it has none
	gauged   bool      // there is a series of it in metrics.WatcherLastHeartbeat
}

func newBoard(o *Options) *board {
	return &board{
		silence: o.Silence, byRuntime: o.RuntimeMetrics, missed: o.Missed, changed: o.Changed,
		records: map[string]*record{}, earlier: make(chan struct{}, 1),
	}
}

// lock returns the locked record of a runtime, a new one if there is none.
func (b *board) lock(kyma string) *record {
	b.mu.RLock()
	r := b.records[kyma]
	b.mu.RUnlock()
	if r != nil {
		r.mu.Lock()
		if !r.gone {
			return r
		}
		r.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.records[kyma]; other != nil && other != r {
		other.mu.Lock() // whoever puts it there or takes it away has mu
		return other
	}
	r = &record{kyma: kyma, index: -1, last: time.Now()}
	r.mu.Lock()
	b.records[kyma] = r
	b.setAlarmLocked(r)
	return r
}

// state returns what is known of a runtime, and whether it is heard.
func (b *board) state(kyma string) (State, bool) {
	b.mu.RLock()
	r := b.records[kyma]
	b.mu.RUnlock()
	if r == nil {
		return State{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, b.hearsLocked(r, time.Now())
}

// hearsLocked tells whether a heartbeat came in time.
func (b *board) hearsLocked(r *record, now time.Time) bool {
	return !r.state.Last.IsZero() && now.Sub(r.state.Last) < b.silence+r.pace
}

// forget drops what is known of a runtime.
func (b *board) forget(kyma string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.records[kyma]; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		b.dropLocked(r)
	}
}

// dropLocked takes a record off the board. Both mutexes are held.
func (b *board) dropLocked(r *record) {
	delete(b.records, r.kyma)
	r.gone = true
	if !r.state.Last.IsZero() {
		countRuntime(r.heard, -1)
	}
	b.gaugeLocked(r, false)
	b.alarmMu.Lock()
	defer b.alarmMu.Unlock()
	if r.index >= 0 {
		heap.Remove(&b.alarms, r.index)
	}
}

// countRuntime adds n to the runtimes that are heard, or to those that are lost.
func countRuntime(heard bool, n float64) {
	if heard {
		metrics.WatcherHeardRuntimes.Add(n)
		return
	}
	metrics.WatcherLostRuntimes.Add(n)
}

// note records an event of a runtime, which has been delivered.
func (b *board) note(r *record, boot string, sequence uint64) {
	if boot == "" || sequence == 0 {
		return
	}
	r.mu.Lock()
	i, known := r.life(boot)
	if known {
		r.lives[i].see(sequence)
		r.mu.Unlock()
		return
	}
	// What this life sent before was answered by another process, or is under way.
	replaced := r.begin(ledger{boot: boot, done: sequence})
	tell := replaced && r.missed.due(time.Now())
	b.setAlarmLocked(r)
	r.mu.Unlock()
	if tell {
		b.tellMissed(r.kyma)
	}
}

// life finds a life by its name.
func (r *record) life(boot string) (index int, known bool) {
	for i := range r.lives {
		if r.lives[i].boot == boot {
			return i, true
		}
	}
	return 0, false
}

// begin puts a life in front, and tells whether it comes after another one: that may have died with events that it had not sent.
func (r *record) begin(l ledger) (replaced bool) {
	replaced = len(r.lives) > 0
	r.lives = slices.Insert(r.lives, 0, l)
	if len(r.lives) > maxLives {
		r.lives = slices.Delete(r.lives, maxLives, len(r.lives))
	}
	return replaced
}

// hear records a heartbeat, which is told how much later than usual the next one may come.
//
//	 life                                         missed if                          is shown in the state
//	1 the first that this process knows           the agent lost some                yes; its number is taken as it is
//	2 the newest                                  lost, or all sent but not all seen yes
//	3 unknown, while others are known             always                             yes, and it becomes the newest
//	4 older than the newest, but the state's own  as 2                               yes: the newest has sent events only
//	5 older, and the state's is not heard         always                             yes, and it becomes the newest
//	6 older, and the state's is heard             as 2                               no: two agents would take turns
func (b *board) hear(r *record, id protocol.Identity, h protocol.Heartbeat, pace time.Duration) {
	now := time.Now()
	h.Problem = oneLine(h.Problem)
	r.mu.Lock()
	missed, shown := h.Lost, true
	i, known := r.life(h.Boot)
	switch {
	case !known:
		replaced := r.begin(ledger{boot: h.Boot, done: h.Sequence})
		missed = missed || replaced
	case h.Pending == 0 && r.lives[i].settle(h.Sequence):
		missed = true
	}
	if known && i > 0 && h.Boot != r.state.Heartbeat.Boot {
		if shown = !b.hearsLocked(r, now); shown {
			missed = true
			again := r.lives[i]
			r.lives = slices.Delete(r.lives, i, i+1)
			r.begin(again)
		}
	}
	changed := shown && b.showLocked(r, State{Identity: id, Last: now, Since: now, Heartbeat: h})
	if shown {
		r.pace = pace
	}
	tellMissed := missed && r.missed.due(now)
	tellChanged := changed && r.changed.due(now)
	b.setAlarmLocked(r)
	r.mu.Unlock()
	if tellMissed {
		b.tellMissed(r.kyma)
	}
	if tellChanged {
		b.changed(r.kyma)
	}
}

// showLocked puts a new state in place of the old one, and tells whether that is worth a look.
func (b *board) showLocked(r *record, s State) (changed bool) {
	old := r.state
	heard := b.hearsLocked(r, s.Last)
	if heard {
		s.Since = old.Since
	}
	changed = !heard || !r.heard || s.Heartbeat.Version != old.Heartbeat.Version || s.Heartbeat.Problem != old.Heartbeat.Problem || s.Identity.Root != old.Identity.Root
	if !r.heard {
		if !old.Last.IsZero() {
			countRuntime(false, -1)
		}
		countRuntime(true, 1)
	}
	r.state, r.heard = s, true
	b.gaugeLocked(r, false)
	return changed
}

// gaugeLocked serves the time of the last heartbeat of a runtime while it is lost.
func (b *board) gaugeLocked(r *record, lost bool) {
	switch {
	case lost && b.byRuntime:
		r.gauged = true
		metrics.WatcherLastHeartbeat.WithLabelValues(r.kyma).Set(float64(r.state.Last.UnixMilli()) / 1000)
	case !lost && r.gauged:
		r.gauged = false
		metrics.WatcherLastHeartbeat.DeleteLabelValues(r.kyma)
	}
}

// oneLine makes what a runtime says fit for a status.
func oneLine(s string) string {
	if s == "" {
		return ""
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(s) > maxProblem {
		s = strings.ToValidUTF8(s[:maxProblem], "")
	}
	return s
}

func (b *board) tellMissed(kyma string) {
	metrics.WatcherMissed.Inc()
	b.missed(kyma)
}

// watch runs until the end of ctx, and looks at runtimes when their alarms go off.
func (b *board) watch(ctx context.Context) {
	timer := time.NewTimer(keep)
	defer timer.Stop()
	for {
		r, wait := b.nextAlarm(time.Now())
		if r != nil {
			b.look(r)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-b.earlier:
		case <-timer.C:
		}
	}
}

// nextAlarm takes away the first alarm if it goes off now, or says how long that takes.
func (b *board) nextAlarm(now time.Time) (*record, time.Duration) {
	b.alarmMu.Lock()
	defer b.alarmMu.Unlock()
	if len(b.alarms) == 0 {
		return nil, keep
	}
	if wait := b.alarms[0].ring.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&b.alarms).(*record), 0
}

// look tells what is owed, finds that a runtime is lost, and gives up one that has said nothing for long.
func (b *board) look(r *record) {
	now := time.Now()
	r.mu.Lock()
	r.alarm = time.Time{}
	if r.heard && !b.hearsLocked(r, now) {
		r.heard, r.changed.owed, r.changed.at = false, true, now
		countRuntime(true, -1)
		countRuntime(false, 1)
		b.gaugeLocked(r, true)
	}
	tellChanged := r.changed.owed && !r.changed.at.After(now) && r.changed.due(now)
	tellMissed := r.missed.owed && !r.missed.at.After(now) && r.missed.due(now)
	old := r.idle(now)
	if !old && !r.gone {
		b.setAlarmLocked(r)
	}
	r.mu.Unlock()
	if old {
		b.retire(r, now)
	}
	if tellMissed {
		b.tellMissed(r.kyma)
	}
	if tellChanged {
		b.changed(r.kyma)
	}
}

// idle tells whether a runtime has not spoken for so long that nothing needs to be known of it.
func (r *record) idle(now time.Time) bool {
	return !r.heard && r.inFlight == 0 && now.Sub(r.last) >= keep && !r.missed.owed && !r.changed.owed
}

// retire drops an idle runtime, unless it has just spoken.
func (b *board) retire(r *record, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.gone:
	case r.idle(now):
		b.dropLocked(r)
	default:
		b.setAlarmLocked(r)
	}
}

// setAlarmLocked sees to it that a runtime is looked at in time. An alarm that is too early stays: that is the case at each heartbeat.
func (b *board) setAlarmLocked(r *record) {
	at := r.last.Add(keep)
	earliest := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	if r.heard {
		earliest(r.state.Last.Add(b.silence + r.pace))
	}
	if r.changed.owed {
		earliest(r.changed.at)
	}
	if r.missed.owed {
		earliest(r.missed.at)
	}
	if r.gone || !r.alarm.IsZero() && !at.Before(r.alarm) {
		return
	}
	r.alarm = at
	b.alarmMu.Lock()
	r.ring = at
	if r.index >= 0 {
		heap.Fix(&b.alarms, r.index)
	} else {
		heap.Push(&b.alarms, r)
	}
	first := r.index == 0
	b.alarmMu.Unlock()
	if first {
		select {
		case b.earlier <- struct{}{}:
		default:
		}
	}
}

// alarms is a heap of records, the earliest first.
type alarms []*record

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].ring.Before(a[j].ring) }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

// Push implements [heap.Interface].
func (a *alarms) Push(x any) {
	r := x.(*record)
	r.index = len(*a)
	*a = append(*a, r)
}

// Pop implements [heap.Interface].
func (a *alarms) Pop() any {
	last := len(*a) - 1
	r := (*a)[last]
	(*a)[last] = nil
	*a, r.index = (*a)[:last], -1
	return r
}
