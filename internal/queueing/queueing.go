// Package queueing decides the order of work: which request of a controller is reconciled first, how many runtimes are
// worked on at the same time, and which writes to the control plane are sent first.
//
// # Classes
//
// Every request in the queue of a controller belongs to one class. Requests with a higher priority are reconciled
// first. These are the classes:
//
//	class    the request was added because                                          priority
//	Person   a person changed the desired state of this runtime and waits for it          10
//	Event    an event concerns only this runtime: an object in it changed, its             0
//	         connection was opened or lost, a Kyma or Manifest was created or deleted
//	Fleet    an event concerns many runtimes, for example a new version                  -50
//	Retry    an interval or the delay after an error has passed                          -50
//	Startup  the object was listed when the program started                             -100
//
// A request that is already queued and is added again keeps the higher of the two priorities.
//
// # Limits
//
// All classes share the workers of a controller. Limits prevent that one class uses all workers, or all capacity of the
// control plane. These are the limits:
//
//	limit                                            applies to             value
//	rollout [Admission] of the Kyma controller       Fleet                  [RolloutLimit]: half of the workers, at least 1
//	staggered enqueueing, see [Stagger]              Fleet                  10 ms between two requests, or
//	                                                                        --catalog-spread in all
//	new-runtime [Admission] of the Kyma controller   any class but Person   --max-new-runtimes runtimes get their first modules
//	removal [Admission] of the Kyma controller       any class              --max-new-runtimes runtimes lose all modules
//	[WriteLimiter]                                   any class but Person   --max-control-plane-writes at the same time, and
//	                                                                        --max-control-plane-writes-while-urgent while
//	                                                                        any runtime is urgent
//	[UrgentTimeout]                                  Person                 a runtime is urgent for at most 2 minutes
//	urgentBurst, urgentTokenInterval                 Person                 a runtime is urgent for at most 10 minutes in
//	                                                                        a row, later a twentieth of the time
//	[AdmissionTimeout]                               Fleet, new, removed    a runtime keeps others waiting for at most 1 minute
//
// A limit that is computed from another number is at least 1. A small number of workers therefore never results in a
// limit of 0, which would mean "no limit".
//
// # Use
//
// The manager makes one [Urgent] and passes it to the controllers and to the [WriteLimiter]. A controller does these
// things with the package:
//
//   - It marks a runtime as urgent when a person changes the desired state of the runtime.
//   - It adds requests with [Add] or with a [Trigger].
//   - It reconciles with a context that [Urgent.Context] returns, and sets [Urgent.RequeuePriority] in its result.
//   - It clears the mark when the runtime has reached its desired state.
//
// # What it does not do
//
// The package does not reconcile, and does not read or write objects. The package does not order the work of several
// replicas: each replica orders the runtimes of its own shards.
package queueing

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Class is the reason why a request was added to a queue; see the package comment.
type Class int

// The following classes of requests are ordered from the most urgent to the least urgent.
const (
	Person Class = iota
	Event
	Fleet
	Retry
	Startup
)

// Priority returns the priority of the class in a queue of controller-runtime. A request with a higher priority is
// reconciled first.
func (c Class) Priority() int {
	switch c {
	case Person:
		return 10
	case Fleet, Retry:
		return -50
	case Startup:
		return handler.LowPriority
	}
	return 0
}

// String returns the name of the class in lower case.
func (c Class) String() string {
	switch c {
	case Person:
		return "person"
	case Event:
		return "event"
	case Fleet:
		return "fleet"
	case Retry:
		return "retry"
	case Startup:
		return "startup"
	}
	return "unknown"
}

// Queue is the work queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add adds a request to the queue of a controller. If after is positive, the request is added after that delay. If the
// request is already queued, the request keeps the higher priority and the earlier time. If the queue has no
// priorities, class has no effect.
func Add(q Queue, class Class, after time.Duration, item reconcile.Request) {
	if prioritised, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prioritised.AddWithOpts(priorityqueue.AddOpts{Priority: new(class.Priority()), After: after}, item)
		return
	}
	q.AddAfter(item, after)
}

// RolloutLimit returns how many runtimes a controller may change at the same time in a rollout to the fleet. Rollouts
// may use half of the workers of the controller, but at least one, so that the other workers are free for requests of
// other classes.
func RolloutLimit(workers int) int { return max(1, workers/2) }

// Trigger adds requests to the queue of a controller from outside of the event handlers of that controller. The zero
// value is ready to use. A Trigger is safe for concurrent use.
type Trigger struct {
	queue atomic.Pointer[Queue] // set when the controller starts
}

// Source returns a source that has to be passed to WatchesRawSource of the controller. When the controller starts the
// source, it passes its queue to the source, and the Trigger stores this queue.
func (t *Trigger) Source() source.Source {
	return source.Func(func(_ context.Context, q Queue) error {
		t.queue.Store(&q)
		return nil
	})
}

// Add adds a request to the queue of the controller, like the function [Add]. Before the controller has started, Add
// does nothing; this is sufficient, because the controller lists all objects when it starts.
func (t *Trigger) Add(class Class, after time.Duration, item reconcile.Request) {
	if q := t.queue.Load(); q != nil {
		Add(*q, class, after, item)
	}
}

// Queue returns the queue of the controller. Queue returns nil if the controller has not started yet.
func (t *Trigger) Queue() Queue {
	if q := t.queue.Load(); q != nil {
		return *q
	}
	return nil
}
