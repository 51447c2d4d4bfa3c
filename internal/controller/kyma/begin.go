package kyma

import (
	"slices"
	"sync"
	"time"
)

// Of runtimes that get their modules for the first time, a few are worked on at a time, and when all was applied to one the next one begins. All at
// once would take as long, but none would be done before the end, and each would have its connection and its memory meanwhile.

// beginning is how long a runtime may keep others from beginning. What takes longer waits for something else than for us.
const beginning = time.Minute

// beginnings say who may begin. Safe for concurrent use.
type beginnings struct {
	most int               // at the same time
	next func(kyma string) // is told whose turn it is

	mu      sync.Mutex
	begun   map[string]time.Time // guarded by mu: who has begun and is not done, and when
	waiting []string             // guarded by mu: the others, in the order in which they came
	waits   map[string]bool      // guarded by mu: the same
	ticking bool                 // guarded by mu: somebody will look for those who take too long
}

// may tells whether a runtime may be worked on. If not, next is told when it may.
func (b *beginnings) may(kyma string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, has := b.begun[kyma]; has {
		return true
	}
	if len(b.begun) < b.most && len(b.waiting) == 0 {
		b.beginLocked(kyma)
		return true
	}
	if !b.waits[kyma] {
		if b.waits == nil {
			b.waits = map[string]bool{}
		}
		b.waiting, b.waits[kyma] = append(b.waiting, kyma), true
	}
	b.tickLocked()
	return false
}

// has tells whether a runtime has begun and is not done.
func (b *beginnings) has(kyma string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, has := b.begun[kyma]
	return has
}

// done says that a runtime is done, or fails, or is gone: its place is free. It may be said of any runtime at any time.
func (b *beginnings) done(kyma string) {
	b.mu.Lock()
	if b.waits[kyma] { // its Kyma was deleted, or is no longer looked after here
		delete(b.waits, kyma)
		b.waiting = slices.DeleteFunc(b.waiting, func(name string) bool { return name == kyma })
	}
	delete(b.begun, kyma)
	turn := b.callLocked()
	b.mu.Unlock()
	b.tell(turn)
}

func (b *beginnings) beginLocked(kyma string) {
	if b.begun == nil {
		b.begun = map[string]time.Time{}
	}
	b.begun[kyma] = time.Now()
}

// callLocked gives free places to those who wait, and returns who got one.
func (b *beginnings) callLocked() []string {
	n := min(max(b.most-len(b.begun), 0), len(b.waiting))
	turn := slices.Clone(b.waiting[:n])
	for _, kyma := range turn {
		delete(b.waits, kyma)
		b.beginLocked(kyma)
	}
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting = nil
	}
	return turn
}

func (b *beginnings) tell(turn []string) {
	for _, kyma := range turn {
		b.next(kyma)
	}
}

// tickLocked sees to it that those who wait are called when the others take too long.
func (b *beginnings) tickLocked() {
	if b.ticking {
		return
	}
	b.ticking = true
	time.AfterFunc(beginning/4, func() {
		b.mu.Lock()
		b.ticking = false
		for kyma, since := range b.begun {
			if time.Since(since) >= beginning {
				delete(b.begun, kyma)
			}
		}
		turn := b.callLocked()
		if len(b.waiting) > 0 {
			b.tickLocked()
		}
		b.mu.Unlock()
		b.tell(turn)
	})
}
