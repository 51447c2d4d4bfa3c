package queueing

import (
	"slices"
	"sync"
	"time"
)

// AdmissionTimeout is the time after which an admitted runtime has to leave its place to a waiting runtime. A runtime
// that is admitted for longer than a minute usually waits for something outside of the manager, for example for an
// operator in the runtime.
const AdmissionTimeout = time.Minute

// Admission limits how many runtimes do the same kind of work at the same time. Runtimes that are not admitted wait in
// the order of their first call of Admit. An Admission is safe for concurrent use.
//
// Without this limit, all runtimes of a fleet would be worked on at the same time, and none of them would be finished
// early. Until the last runtime is finished, all runtimes would occupy their connections and their memory. A rollout
// would occupy all workers, and a person who changes a Kyma would have to wait for a free worker.
type Admission struct {
	limit int               // maximum number of admitted runtimes; 0 means no limit
	admit func(name string) // called for each waiting runtime that is admitted

	mu           sync.Mutex
	admitted     map[string]time.Time // guarded by mu: time of the admission of each runtime
	waiting      []string             // guarded by mu: waiting runtimes, in the order of their first call of Admit
	isWaiting    map[string]bool      // guarded by mu: the waiting runtimes as a set
	timerRunning bool                 // guarded by mu: a timer is running that checks for timeouts
}

// NewAdmission returns an Admission that admits at most limit runtimes at the same time. 0 means that there is no
// limit. When a waiting runtime is admitted, the function onAdmit is called with the name of the runtime, without a
// lock. The function onAdmit has to start the work, usually by adding a request to a queue.
func NewAdmission(limit int, onAdmit func(name string)) *Admission {
	return &Admission{limit: limit, admit: onAdmit, admitted: map[string]time.Time{}, isWaiting: map[string]bool{}}
}

// Admit requests the permission to begin the work on a runtime, and reports whether the runtime is admitted. If Admit
// returns false, the runtime waits until a place is free. When a waiting runtime gets a place, the Admission calls the
// function onAdmit of [NewAdmission]. An admitted runtime stays admitted until [Admission.Release],
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
	a.startTimeoutChecksLocked()
	return false
}

// IsWaiting reports whether a runtime waits for its admission.
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

// Release frees the place of a runtime whose work is done or has failed, and admits the next waiting runtime. Release
// may be called for any runtime at any time. If the runtime is waiting for a new admission, Release does not end the
// wait, because the finished work may belong to an earlier admission of the runtime.
func (a *Admission) Release(name string) { a.release(name, false) }

// Withdraw frees the place of a runtime in the same way as [Admission.Release]. If the runtime is waiting for its
// admission, Withdraw also ends the wait, for example because the runtime does not exist any more.
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

// admitWaitingLocked admits waiting runtimes while there are free places. admitWaitingLocked returns the admitted
// runtimes.
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

// startTimeoutChecksLocked starts the timer that checks for admissions older than AdmissionTimeout, unless the timer is
// running. The timer is started again as long as any runtime is waiting. The caller of startTimeoutChecksLocked must
// hold mu.
func (a *Admission) startTimeoutChecksLocked() {
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
			a.startTimeoutChecksLocked()
		}
		a.mu.Unlock()
		a.notify(next)
	})
}
