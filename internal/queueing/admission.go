package queueing

import (
	"slices"
	"sync"
	"time"
)

// AdmissionTimeout is how long an admitted runtime can keep others waiting. After that its place is given away: a
// runtime that takes longer usually waits for something that is not in our hands, such as an operator in it.
const AdmissionTimeout = time.Minute

// Admission lets at most N runtimes do the same thing at the same time; the others wait in the order in which they
// asked. Safe for concurrent use.
//
// Without it, all runtimes of a fleet would be in the middle of their work and none would be done before the end. Each
// would hold its connection and its memory meanwhile. A rollout would hold all workers, and a person who changes a Kyma
// would have to wait for one of them.
type Admission struct {
	limit int               // runtimes at the same time; 0 is no limit
	admit func(name string) // called for each waiting runtime that is admitted

	mu           sync.Mutex
	admitted     map[string]time.Time // guarded by mu: since when each is admitted
	waiting      []string             // guarded by mu: the others, in the order in which they asked
	isWaiting    map[string]bool      // guarded by mu: the same as a set
	timerRunning bool                 // guarded by mu: a timer will check for timeouts
}

// NewAdmission returns an Admission for at most limit runtimes at the same time; 0 is no limit. The function admit is
// called, without a lock, with each runtime that had to wait and has been admitted now. It has to start the work,
// usually by adding a request to a queue.
func NewAdmission(limit int, admit func(name string)) *Admission {
	return &Admission{limit: limit, admit: admit, admitted: map[string]time.Time{}, isWaiting: map[string]bool{}}
}

// Admit reports whether a runtime may be worked on. If it reports false, the runtime waits, and the function given to
// [NewAdmission] is called once it is admitted. An admitted runtime stays admitted until [Admission.Release],
// [Admission.Withdraw] or [AdmissionTimeout].
func (a *Admission) Admit(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, admitted := a.admitted[name]; admitted {
		return true
	}
	if a.limit == 0 || len(a.admitted) < a.limit && len(a.waiting) == 0 {
		a.admitted[name] = time.Now()
		return true
	}
	if !a.isWaiting[name] {
		a.waiting, a.isWaiting[name] = append(a.waiting, name), true
	}
	a.startTimerLocked()
	return false
}

// IsWaiting reports whether a runtime waits to be admitted.
func (a *Admission) IsWaiting(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.isWaiting[name]
}

// IsAdmitted reports whether a runtime is admitted.
func (a *Admission) IsAdmitted(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, admitted := a.admitted[name]
	return admitted
}

// Release frees the place of a runtime, because its work is done or has failed, and admits the next one. It may be
// called for any runtime at any time. A runtime that waits goes on waiting: the work that is done may have begun before
// it had to wait.
func (a *Admission) Release(name string) { a.release(name, false) }

// Withdraw frees the place of a runtime like [Admission.Release], and also ends its waiting, for example because the
// runtime does not exist any more.
func (a *Admission) Withdraw(name string) { a.release(name, true) }

func (a *Admission) release(name string, withdraw bool) {
	a.mu.Lock()
	if withdraw && a.isWaiting[name] {
		delete(a.isWaiting, name)
		a.waiting = slices.DeleteFunc(a.waiting, func(other string) bool { return other == name })
	}
	delete(a.admitted, name)
	next := a.admitWaitingLocked()
	a.mu.Unlock()
	a.notify(next)
}

// admitWaitingLocked gives the free places to waiting runtimes and returns these.
func (a *Admission) admitWaitingLocked() []string {
	n := min(max(a.limit-len(a.admitted), 0), len(a.waiting))
	next := slices.Clone(a.waiting[:n])
	for _, name := range next {
		delete(a.isWaiting, name)
		a.admitted[name] = time.Now()
	}
	if a.waiting = a.waiting[n:]; len(a.waiting) == 0 {
		a.waiting = nil // frees the array
	}
	return next
}

func (a *Admission) notify(next []string) {
	for _, name := range next {
		a.admit(name)
	}
}

// startTimerLocked starts the timer that takes places away after AdmissionTimeout, while runtimes wait.
func (a *Admission) startTimerLocked() {
	if a.timerRunning {
		return
	}
	a.timerRunning = true
	time.AfterFunc(AdmissionTimeout/4, func() {
		a.mu.Lock()
		a.timerRunning = false
		for name, since := range a.admitted {
			if time.Since(since) >= AdmissionTimeout {
				delete(a.admitted, name)
			}
		}
		next := a.admitWaitingLocked()
		if len(a.waiting) > 0 {
			a.startTimerLocked()
		}
		a.mu.Unlock()
		a.notify(next)
	})
}
