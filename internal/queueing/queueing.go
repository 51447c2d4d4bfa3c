// Package queueing decides in which order work is done: which request of a controller is reconciled first, how many
// runtimes are worked on at the same time, and which writes reach the control plane first.
//
// # Classes
//
// Every request in the queue of a controller belongs to one class. A higher priority is reconciled first.
//
//	class    the request was added because                                          priority
//	Person   a person changed the desired state of this runtime and waits for it          10
//	Event    something happened to this one runtime: an object in it changed, its          0
//	         connection was opened or lost, a Kyma or Manifest was created or deleted
//	Fleet    something changed that concerns many runtimes, such as a new version        -50
//	Retry    an interval or the delay after an error has passed                          -50
//	Startup  the object was listed when the program started                             -100
//
// A request that is added again while it is queued keeps the higher of the two priorities.
//
// # Limits
//
// Classes share the workers of a controller. Limits keep one class from holding all of them, or all of the control
// plane:
//
//	limit                                            applies to             value
//	rollout [Admission] of the Kyma controller       Fleet                  [RolloutLimit]: half of the workers, at least 1
//	staggered enqueueing, see [Stagger]              Fleet                  10 ms between two requests, or --catalog-spread in all
//	new-runtime [Admission] of the Kyma controller   any class but Person   --max-new-runtimes runtimes get their first modules
//	removal [Admission] of the Kyma controller       any class              --max-new-runtimes runtimes lose all modules
//	[WriteLimiter]                                   any class but Person   --max-control-plane-writes at the same time, and
//	                                                                        --max-control-plane-writes-while-urgent while
//	                                                                        any runtime is urgent
//	[UrgentTimeout]                                  Person                 a runtime is urgent for at most 2 minutes
//	[AdmissionTimeout]                               Fleet, new, removed    a runtime keeps others waiting for at most 1 minute
//
// A limit that is derived from another number is at least 1: a small number of workers never means "no limit".
//
// # Use
//
// The manager makes one [Urgent] and gives it to the controllers and to the [WriteLimiter]. A controller marks a
// runtime when a person changes its desired state, adds requests with [Add] or with a [Trigger], reconciles under
// [Urgent.Context], returns [Urgent.RequeuePriority] in its result, and clears the mark when the runtime has what was
// asked for.
//
// # What it does not do
//
// It does not reconcile, and it does not read or write objects. It keeps no order across replicas: each replica orders
// the runtimes of its own shards.
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

// Class is the reason why a request is in a queue; see the package comment.
type Class int

// Classes, from the most to the least urgent.
const (
	Person Class = iota
	Event
	Fleet
	Retry
	Startup
)

// Priority returns the priority of the class in a queue of controller-runtime. A higher one is reconciled first.
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

// Queue is the queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add adds a request to the queue of a controller, after a delay if that is positive. A request that is queued already
// keeps the higher priority and the earlier time. In a queue without priorities, only the delay counts.
func Add(q Queue, class Class, after time.Duration, item reconcile.Request) {
	if prioritised, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prioritised.AddWithOpts(priorityqueue.AddOpts{Priority: new(class.Priority()), After: after}, item)
		return
	}
	q.AddAfter(item, after)
}

// RolloutLimit returns at how many runtimes a change for the fleet is rolled out at the same time by a controller with
// so many workers: half of them, so that the others are free for other classes, and at least 1.
func RolloutLimit(workers int) int { return max(1, workers/2) }

// Trigger adds requests to the queue of a controller from outside of its event handlers. The zero value is ready for
// use. Safe for concurrent use.
type Trigger struct {
	queue atomic.Pointer[Queue] // set when the controller starts
}

// Source returns what the controller has to watch, with WatchesRawSource, so that the Trigger reaches its queue.
func (t *Trigger) Source() source.Source {
	return source.Func(func(_ context.Context, q Queue) error {
		t.queue.Store(&q)
		return nil
	})
}

// Add adds a request like the function [Add]. Before the controller has started it does nothing: the controller lists
// all objects when it starts.
func (t *Trigger) Add(class Class, after time.Duration, item reconcile.Request) {
	if q := t.queue.Load(); q != nil {
		Add(*q, class, after, item)
	}
}

// Queue returns the queue of the controller, nil before the controller has started.
func (t *Trigger) Queue() Queue {
	if q := t.queue.Load(); q != nil {
		return *q
	}
	return nil
}
