package scenario

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// hosts has the hosts of ended scenarios for later scenarios, because resetting a cluster needs a sixth of the
// processor time of a new cluster. Host.Reset verifies that nothing of the former scenario is left.
var hosts struct {
	sync.Mutex
	free   []*cluster.Host
	opened int
}

// takeHost returns a host for a scenario with these clusters: a free host, or a new host if no host is free. If several
// hosts are free, takeHost chooses the host that already runs the most of the requested clusters. If several hosts run
// equally many requested clusters, takeHost chooses the host with the fewest other clusters, which saves memory.
func takeHost(ctx context.Context, names []string) (*cluster.Host, error) {
	hosts.Lock()
	defer hosts.Unlock()
	if len(hosts.free) == 0 {
		hosts.opened++
		return landscape.OpenHost(ctx, bin, cluster.Options{Reusable: true,
			Dir: filepath.Join(bin, "host-"+strconv.Itoa(hosts.opened))})
	}
	fit := func(h *cluster.Host) (n int) {
		for _, name := range h.Names() {
			if n--; slices.Contains(names, name) {
				n += 100
			}
		}
		return n
	}
	best := slices.MaxFunc(hosts.free, func(a, b *cluster.Host) int { return fit(a) - fit(b) })
	hosts.free = slices.DeleteFunc(hosts.free, func(h *cluster.Host) bool { return h == best })
	return best, nil
}

// giveHost resets a host and adds it to the free hosts.
func giveHost(ctx context.Context, h *cluster.Host) error {
	if err := h.Reset(ctx); err != nil {
		return errors.Join(err, h.Close())
	}
	hosts.Lock()
	defer hosts.Unlock()
	hosts.free = append(hosts.free, h)
	return nil
}

// closeHosts closes all free hosts.
func closeHosts() error {
	hosts.Lock()
	defer hosts.Unlock()
	var errs []error
	for _, h := range hosts.free {
		errs = append(errs, h.Close())
	}
	hosts.free = nil
	return errors.Join(errs...)
}

// bringUp starts the landscape of the scenario.
func (s *scenario) bringUp(o landscape.Options) error {
	o.Dir, o.Bin = s.dir, bin
	var err error
	if s.host, err = takeHost(s.ctx, append([]string{landscape.ControlPlane}, o.Runtimes...)); err != nil {
		return err
	}
	o.Host = s.host
	if s.land, err = landscape.Up(s.ctx, o); err != nil {
		s.land = nil // it was stopped again
	}
	return err
}

// end adds the host of the scenario to the free hosts. If the scenario has failed, end closes the host.
func (s *scenario) end(failed bool) error {
	if s.host == nil {
		return nil
	}
	if failed {
		return s.host.Close()
	}
	return giveHost(s.ctx, s.host)
}
