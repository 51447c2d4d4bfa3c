package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

const usageReplicas = "replicas start NAME [FLAG…] | kill|stop|pause|resume NAME | ended NAME | shared N | holder " +
	"VARIABLE RUNTIME | alone RUNTIME… | fleet N"

// replicas controls several replicas that work at the same time. The name of a replica is the value of its flag
// --pod-name. The first replica has the name one.
func (s *scenario) replicas(c *call) error {
	if err := c.want(2, 20, usageReplicas); err != nil {
		return err
	}
	switch what, name := c.args[0], c.args[1]; what {
	case "start":
		if s.others == nil {
			s.others = map[string]*landscape.Process{}
		}
		var err error
		s.others[name], err = s.land.StartExtraReplica(s.ctx, name, append(c.args[2:], "--pod-name="+name)...)
		return err
	case "kill", "stop", "pause", "resume", "ended":
		return s.signal(what, name)
	case "shared":
		n, err := strconv.Atoi(name)
		if err != nil {
			return fmt.Errorf("usage: %s", usageReplicas)
		}
		return s.shared(n)
	case "holder":
		if len(c.args) == 3 {
			return s.holder(c, name, c.args[2])
		}
	case "alone":
		return s.alone(c.args[1:])
	case "fleet":
		n, err := strconv.Atoi(name)
		if err != nil {
			return fmt.Errorf("usage: %s", usageReplicas)
		}
		return s.readFleet(n)
	}
	return fmt.Errorf("usage: %s", usageReplicas)
}

// signal ends, pauses or continues a replica, or waits until it has ended by itself.
func (s *scenario) signal(what, name string) error {
	p := s.others[name]
	if name == "one" {
		p = s.land.Manager
	}
	if p == nil {
		return fmt.Errorf("there is no replica %q", name)
	}
	switch what {
	case "kill":
		return p.Kill()
	case "stop":
		return p.Stop()
	case "pause":
		return syscall.Kill(p.PID(), syscall.SIGSTOP)
	case "ended":
		return s.poll(func(context.Context) (bool, string) {
			select {
			case <-p.Done():
				return true, ""
			default:
				return false, name + " works"
			}
		})
	}
	return syscall.Kill(p.PID(), syscall.SIGCONT)
}

// closeReplicas ends all replicas except the first one. closeReplicas also ends paused replicas.
func (s *scenario) closeReplicas() error {
	var errs []error
	for _, p := range s.others {
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}

// leases returns the holder of each shard, "" if there is none, and the names of the replicas with a Lease of their
// own.
func (s *scenario) leases(ctx context.Context) (holders map[int]string, there map[string]bool, err error) {
	var list coordinationv1.LeaseList
	if err := s.land.Clients[landscape.ControlPlane].List(ctx, &list, client.InNamespace(s.land.Namespace()),
		client.HasLabels{v1beta2.LabelLease}); err != nil {
		return nil, nil, err
	}
	holders, there = map[int]string{}, map[string]bool{}
	for _, l := range list.Items {
		if l.Spec.HolderIdentity == nil {
			continue
		}
		if l.Labels[v1beta2.LabelLease] == v1beta2.LeaseOfReplica {
			there[*l.Spec.HolderIdentity] = true
			continue
		}
		n, err := strconv.Atoi(l.Name[strings.LastIndex(l.Name, "-")+1:])
		if err != nil {
			return nil, nil, fmt.Errorf("reading the name of Lease %s: %w", l.Name, err)
		}
		holders[n] = *l.Spec.HolderIdentity
	}
	return holders, there, nil
}

// shared waits until n replicas hold all shards, evenly distributed.
func (s *scenario) shared(n int) error {
	return s.poll(func(ctx context.Context) (bool, string) {
		holders, there, err := s.leases(ctx)
		if err != nil {
			return false, err.Error()
		}
		right := 0
		for number, name := range shard.Assign(slices.Collect(maps.Keys(there))) {
			if name != "" && holders[number] == name {
				right++
			}
		}
		return len(there) == n && right == shard.Count,
			fmt.Sprintf("%d replicas, %d shards are held by whom they should", len(there), right)
	})
}

// holder waits until a running replica holds the shard of a runtime, and sets a variable to the name of this replica.
func (s *scenario) holder(c *call, variable, runtime string) error {
	return s.poll(func(ctx context.Context) (bool, string) {
		holders, there, err := s.leases(ctx)
		if err != nil {
			return false, err.Error()
		}
		name := holders[shard.Of(runtime)]
		c.script.Setenv(variable, name[:max(strings.LastIndex(name, "_"), 0)])
		return there[name], "it is held by " + name
	})
}

// alone checks that only one replica at a time has written for each of the runtimes since the last command mark, in the
// control plane and in the runtimes. Each write must come from the replica that was the last to write the Lease of the
// runtime's shard. A replica that writes before it holds the shard, or after another replica has acquired the shard, is
// an error. The method alone also returns an error if there was no write.
func (s *scenario) alone(runtimes []string) error {
	for _, name := range runtimes {
		all := slices.Clone(s.land.Clusters[landscape.ControlPlane].Requests(0))
		here := len(all)
		if of := s.land.Clusters[name]; of != nil {
			all = append(all, of.Requests(s.marks[name])...)
		}
		order := make([]int, len(all))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return all[a].Time.Compare(all[b].Time) })
		lease := fmt.Sprintf("lifecycle-manager-shard-%02d", shard.Of(name))
		holder, writes := "", map[string]int{}
		for _, i := range order {
			r := all[i]
			who, ours := strings.CutPrefix(r.UserAgent, agent+"/")
			if !ours || !isWrite(r) || r.Code >= 300 {
				continue
			}
			if i < here && r.Resource == "leases" &&
				strings.HasPrefix(cmp.Or(r.Name, lease), "lifecycle-manager-shard-") {
				if r.Name == lease {
					holder = who
				}
				continue
			}
			if i < here && !isAbout(r, name) {
				continue
			}
			writes[who]++
			if who != holder {
				return fmt.Errorf("%s wrote for %s, whose shard %s had: %s", who, name, holder, line(r))
			}
		}
		if len(writes) == 0 {
			return fmt.Errorf("nobody wrote for %s", name)
		}
	}
	return nil
}

// readFleet checks that n replicas have ever read the Manifests of the whole fleet, without a label that limits them to
// a shard.
func (s *scenario) readFleet(n int) error {
	readers := map[string]bool{}
	for _, r := range s.land.Clusters[landscape.ControlPlane].Requests(0) {
		who, ours := strings.CutPrefix(r.UserAgent, agent+"/")
		if ours && r.Resource == "manifests" && r.Namespace == s.land.Namespace() && r.Verb == "watch" &&
			!strings.Contains(r.Path, "labelSelector=") {
			readers[who] = true
		}
	}
	if len(readers) != n {
		return fmt.Errorf("the Manifests of the whole fleet were read by the replicas %q, want %d replicas",
			slices.Sorted(maps.Keys(readers)), n)
	}
	return nil
}

// isAbout reports whether a request to the control plane changes a Kyma or one of its Manifests. A Manifest belongs to
// the Kyma by name, not by label.
func isAbout(r cluster.Request, kyma string) bool {
	return r.Resource == "kymas" && r.Name == kyma || r.Resource == "manifests" && strings.HasPrefix(r.Name, kyma+"-")
}
