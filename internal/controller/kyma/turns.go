package kyma

import (
	"slices"
	"sync"
	"time"
)

// Of many runtimes that have to wait for the same thing, a few have their turn at a time, and when one is done the next one begins. There are three such
// things:
//
//	begin     a runtime gets its modules for the first time    done when all was applied to it, or it fails
//	end       a runtime loses all of them                      done when its Kyma is gone, or waits for somebody else, or it fails
//	rollout   something has changed that concerns many         done when its Kyma was looked at
//
// All beginnings at once would take as long, but none would be done before the end, and each would have its connection and its memory meanwhile. So it is
// with ends, which moreover would ask again for what was asked already: the longer a deletion takes, the more of it is forgotten. A roll-out at once would have
// all workers, and whoever changes the Kyma of a runtime would have to wait for one.

// longest is how long a runtime may keep others from their turn. What takes longer waits for something else than for us.
const longest = time.Minute

// turns say whose turn it is. Safe for concurrent use.
type turns struct {
	most int               // at the same time; 0 is no limit
	next func(kyma string) // is told whose turn it is

	mu      sync.Mutex
	has     map[string]time.Time // guarded by mu: whose turn it is, and since when
	waiting []string             // guarded by mu: the others, in the order in which they came
	waits   map[string]bool      // guarded by mu: the same
	ticking bool                 // guarded by mu: somebody will look for those who take too long
}

// may tells whether a runtime may be worked on. If not, next is told when it may.
func (t *turns) may(kyma string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, has := t.has[kyma]; has {
		return true
	}
	if t.most == 0 || len(t.has) < t.most && len(t.waiting) == 0 {
		t.takeLocked(kyma)
		return true
	}
	if !t.waits[kyma] {
		if t.waits == nil {
			t.waits = map[string]bool{}
		}
		t.waiting, t.waits[kyma] = append(t.waiting, kyma), true
	}
	t.tickLocked()
	return false
}

// awaits tells whether a runtime waits for its turn.
func (t *turns) awaits(kyma string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waits[kyma]
}

// isTurn tells whether it is the turn of a runtime.
func (t *turns) isTurn(kyma string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, is := t.has[kyma]
	return is
}

// done says that a runtime is done, or fails: its place is free. It may be said of any runtime at any time. Who waits goes on waiting: it may be that
// what is done was begun before there was a reason to wait.
func (t *turns) done(kyma string) { t.end(kyma, false) }

// leave says that a runtime is done, and has nothing to wait for either, for example because it is gone.
func (t *turns) leave(kyma string) { t.end(kyma, true) }

func (t *turns) end(kyma string, leaves bool) {
	t.mu.Lock()
	if leaves && t.waits[kyma] {
		delete(t.waits, kyma)
		t.waiting = slices.DeleteFunc(t.waiting, func(name string) bool { return name == kyma })
	}
	delete(t.has, kyma)
	turn := t.callLocked()
	t.mu.Unlock()
	t.tell(turn)
}

func (t *turns) takeLocked(kyma string) {
	if t.has == nil {
		t.has = map[string]time.Time{}
	}
	t.has[kyma] = time.Now()
}

// callLocked gives free places to those who wait, and returns who got one.
func (t *turns) callLocked() []string {
	n := min(max(t.most-len(t.has), 0), len(t.waiting))
	turn := slices.Clone(t.waiting[:n])
	for _, kyma := range turn {
		delete(t.waits, kyma)
		t.takeLocked(kyma)
	}
	if t.waiting = t.waiting[n:]; len(t.waiting) == 0 {
		t.waiting = nil
	}
	return turn
}

func (t *turns) tell(turn []string) {
	for _, kyma := range turn {
		t.next(kyma)
	}
}

// tickLocked sees to it that those who wait are called when the others take too long.
func (t *turns) tickLocked() {
	if t.ticking {
		return
	}
	t.ticking = true
	time.AfterFunc(longest/4, func() {
		t.mu.Lock()
		t.ticking = false
		for kyma, since := range t.has {
			if time.Since(since) >= longest {
				delete(t.has, kyma)
			}
		}
		turn := t.callLocked()
		if len(t.waiting) > 0 {
			t.tickLocked()
		}
		t.mu.Unlock()
		t.tell(turn)
	})
}
