package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

const (
	quietAfter    = "quiet after, s"
	restartWrites = "writes to runtimes"
	deadTime      = "nobody works, s"

	requestsPerRuntime = "requests per runtime"
)

// restart kills the manager and starts it again, and waits until it is quiet: nothing is to be done.
func restart(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	if err := r.forget(ctx); err != nil {
		return err
	}
	before := r.fleet.Counts()
	if err := r.retire(r.manager); err != nil {
		return err
	}
	if err := r.manager.kill(); err != nil {
		return err
	}
	begin := time.Now()
	if err := r.lead(ctx, "manager"); err != nil {
		return err
	}
	s.Values["leads after, s"] = time.Since(begin).Seconds()
	return r.calmDown(ctx, s, begin, before.Requests)
}

// forget waits until agents have nothing to tell again to another process: what happened a minute ago is not what a restart costs.
func (r *rig) forget(ctx context.Context) error {
	if r.agents == nil {
		return nil
	}
	r.stage.set(func() string { return "waiting until no agent has told anything for a minute" })
	return until(ctx, 2*memory, "the agents to have nothing to tell", func() (bool, error) { return r.agents.quiet(), nil })
}

// calmDown waits until everybody is quiet again, and notes what that took.
func (r *rig) calmDown(ctx context.Context, s *Scenario, begin time.Time, before map[string]int) error {
	took := time.Since(begin)
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	s.Values[quietAfter] += took.Seconds()
	if r.agents != nil {
		if err := r.allHeard(ctx, s, begin); err != nil {
			return err
		}
	}
	requests := difference(before, r.fleet.Counts().Requests)
	s.Values[restartWrites] = float64(writes(requests))
	s.Values[requestsPerRuntime] = float64(total(requests)) / float64(r.clusters)
	return nil
}

// allHeard waits until all agents have connected and the Kymas show that they are heard.
func (r *rig) allHeard(ctx context.Context, s *Scenario, begin time.Time) error {
	r.stage.set(func() string {
		return fmt.Sprintf("%d agents are connected, %d are heard", r.agents.connections(), r.kymas.count(func(k *shown) bool { return k.heard }))
	})
	err := until(ctx, 5*time.Minute, "all agents to be heard", func() (bool, error) {
		return r.agents.connections() >= r.clusters && r.kymas.count(func(k *shown) bool { return k.heard }) == r.clusters, nil
	})
	s.Values["all agents are heard after, s"] = time.Since(begin).Seconds()
	return err
}

// failover starts a second replica, kills the one that leads, and waits until the other one has taken over and all is quiet.
func failover(ctx context.Context, r *rig, s *Scenario) error {
	second, err := r.startManager(ctx, "second")
	if err != nil {
		return err
	}
	former := r.manager
	defer func() {
		if r.manager != second {
			_ = second.kill() // it failed before
		}
	}()
	if err := second.ready(ctx, false); err != nil {
		return err
	}
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	if err := r.forget(ctx); err != nil {
		return err
	}
	in, err := second.look(ctx)
	if err != nil {
		return err
	}
	s.Values["live heap of the one that waits, MiB"] = in.Live / mega
	if err := r.retire(former); err != nil {
		return err
	}
	before, begin := r.fleet.Counts(), time.Now()
	if err := former.kill(); err != nil {
		return err
	}
	r.manager = second
	if r.agents != nil {
		r.agents.aim(second.listener)
	}
	r.stage.set(func() string { return "nobody leads" })
	if err := second.ready(ctx, true); err != nil {
		return err
	}
	s.Values[deadTime] = time.Since(begin).Seconds()
	return r.calmDown(ctx, s, begin, before.Requests)
}

// isOwn tells whether a count of package fleet is of what every runtime gets, whatever its modules: our kinds, and the agent's objects that
// no module has.
func isOwn(name string) bool {
	_, resource, _ := strings.Cut(name, " ")
	return strings.HasSuffix(resource, "."+v1beta2.GroupVersion.Group)
}
