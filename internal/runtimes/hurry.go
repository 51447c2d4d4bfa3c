package runtimes

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
)

// What follows are the former names of package queueing, for controllers that do not use it yet.

// Hurry is [queueing.Urgent.Mark].
func (p *Pool) Hurry(kyma string) { p.opts.Urgent.Mark(kyma) }

// Rest is [queueing.Urgent.Clear].
func (p *Pool) Rest(kyma string) { p.opts.Urgent.Clear(kyma) }

// Hurries is [queueing.Urgent.Is].
func (p *Pool) Hurries(kyma string) bool { return p.opts.Urgent.Is(kyma) }

// HurriesAny is [queueing.Urgent.Any].
func (p *Pool) HurriesAny() bool { return p.opts.Urgent.Any() }

// Hurried is [queueing.Urgent.Context].
func (p *Pool) Hurried(ctx context.Context, kyma string) context.Context {
	return p.opts.Urgent.Context(ctx, kyma)
}

// Priorities of [queueing.Person] and [queueing.Fleet].
const (
	PriorityPerson = 10
	PriorityFleet  = -50
)

// Again is [queueing.Urgent.RequeuePriority].
func (p *Pool) Again(kyma string) *int { return p.opts.Urgent.RequeuePriority(kyma) }

// Enqueue is [queueing.Add] by the priority of a class.
func Enqueue(q queueing.Queue, priority int, after time.Duration, item reconcile.Request) {
	class := queueing.Event
	for c := queueing.Person; c <= queueing.Startup; c++ {
		if c.Priority() == priority {
			class = c
			break
		}
	}
	queueing.Add(q, class, after, item)
}
