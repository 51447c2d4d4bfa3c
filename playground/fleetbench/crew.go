package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// crew holds the running processes of the manager: one process, or several replicas.
type crew []*manager

// startReplicasAndWait starts the configured number of replicas, and makes the agents use their listeners.
// startReplicasAndWait waits until the replicas work. names distinguishes the replicas.
func (r *rig) startReplicasAndWait(ctx context.Context, names ...string) error {
	for _, name := range names {
		m, err := r.startManager(ctx, name)
		if err != nil {
			return err
		}
		r.crew = append(r.crew, m)
	}
	r.useReplicaListeners()
	return r.crew.waitUntilWorking(ctx, r.sharded())
}

// useReplicaListeners makes the agents use the listeners of the present replicas.
func (r *rig) useReplicaListeners() {
	if r.agents == nil {
		return
	}
	var all []string
	for _, m := range r.crew {
		all = append(all, m.listener)
	}
	r.agents.useListenersForNewConnections(all)
}

// replicaNames returns a name for each of the configured replicas.
func (r *rig) replicaNames() []string {
	if r.Replicas == 1 {
		return []string{"manager"}
	}
	var all []string
	for i := range r.Replicas {
		all = append(all, fmt.Sprintf("manager-%d", i))
	}
	return all
}

// allShards is the value of the manager's flag --shards in runs in which all replicas work.
const allShards = 64

// sharded reports whether all replicas work, each on a part of the runtimes.
func (o *options) sharded() bool {
	return o.Replicas > 1 || slices.Contains(o.ManagerArgs, fmt.Sprintf("--shards=%d", allShards))
}

// waitUntilWorking waits until every replica of the manager is ready. With shards, it also waits until each shard is
// assigned to a replica. Without shards, it waits until one replica is the leader.
func (c crew) waitUntilWorking(ctx context.Context, sharded bool) error {
	for _, m := range c {
		if err := m.waitUntilReady(ctx); err != nil {
			return err
		}
	}
	return poll(ctx, startTimeout, "the manager to work", func() (bool, error) {
		shards, leads := 0.0, false
		for _, m := range c {
			if m.ended() {
				return false, m.exitError()
			}
			text, err := readMetrics(ctx, m.metrics)
			if err != nil {
				return false, nil //nolint:nilerr // not yet
			}
			shards += sumOfSeries(parseMetrics(text, "lifecycle_mgr_shards"), nil)
			leads = leads || sumOfSeries(parseMetrics(text, "leader_election_master_status"), nil) > 0
		}
		return sharded && shards >= allShards || !sharded && leads, nil
	})
}

// cpuAndMemory returns the sum of the CPU time and of the memory of all processes of the manager.
func (c crew) cpuAndMemory() (total usage, err error) {
	for _, m := range c {
		u, err := cpuAndMemoryOf(m.pid())
		if err != nil {
			return total, err
		}
		total.add(u)
	}
	return total, nil
}

func (u *usage) add(other usage) {
	u.cpu, u.rss, u.peak, u.sockets = u.cpu+other.cpu, u.rss+other.rss, u.peak+other.peak, u.sockets+other.sockets
}

// readMetrics returns the sum of the metrics of all processes of the manager.
func (c crew) readMetrics(ctx context.Context) (total inside, err error) {
	for _, m := range c {
		in, err := m.readMetrics(ctx)
		if err != nil {
			return total, err
		}
		total.Allocated += in.Allocated
		total.Live, total.Goroutines, total.Depth = total.Live+in.Live,
			total.Goroutines+in.Goroutines, total.Depth+in.Depth
		total.Working, total.Passes, total.Errors, total.Series = total.Working+in.Working, total.Passes+in.Passes,
			total.Errors+in.Errors, total.Series+in.Series
	}
	return total, nil
}

// killAll kills all processes of the manager at once.
func (c crew) killAll() error {
	var errs []error
	for _, m := range c {
		errs = append(errs, m.killAndWait())
	}
	return errors.Join(errs...)
}

// stopAll asks all processes of the manager to end, and waits for their end.
func (c crew) stopAll() error {
	var errs []error
	for _, m := range c {
		errs = append(errs, m.stop())
	}
	return errors.Join(errs...)
}

// exitError returns the error for a process that has ended. The error names the log file.
func (m *manager) exitError() error {
	return fmt.Errorf("%s has ended: %w; its log is %s (keep it with --keep)", m.name,
		errors.Join(m.err, errEnded), m.log)
}

var errEnded = errors.New("nobody asked it to")
