package fleet

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// counters counts requests by verb and resource, and bytes.
type counters struct {
	in, out atomic.Int64

	mu              sync.Mutex
	requests        []tally // guarded by mu, as all following fields
	marked          []tally // the counts at the last mark
	markIn, markOut int64
}

// tally is the number of requests with the same verb and resource. A pair of a verb and a resource is called a sort of
// requests.
type tally struct {
	sort  uint32 // a number of sorts
	count uint32
}

// sorts is a table that assigns a number to each pair of a verb and a resource. A cluster stores only the number of the
// pair, which saves memory.
type sorts struct {
	mu    sync.RWMutex
	known map[[2]string]uint32 // verb and resource; guarded by mu
	names []string             // guarded by mu
}

func (s *sorts) ensureSortID(verb, resource string) uint32 {
	key := [2]string{verb, resource}
	s.mu.RLock()
	id, ok := s.known[key]
	s.mu.RUnlock()
	if ok {
		return id
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.known[key]; ok {
		return id
	}
	if s.known == nil {
		s.known = map[[2]string]uint32{}
	}
	id = uint32(len(s.names)) //nolint:gosec // a few hundred
	s.known[key] = id
	s.names = append(s.names, strings.TrimSpace(verb+" "+resource))
	return id
}

// Counts has numbers of requests and of bytes.
type Counts struct {
	// Requests is the number of requests by verb and resource. The keys of the result have the form "apply
	// deployments.apps" or "get discovery". The verbs are the verbs of Kubernetes, apply for server-side apply, and
	// review for a review of rights. Requests that were not served are counted under one of the following words:
	// "unauthorized", "unknown" for a path that does not exist, or the effect of a Fault: "cut", "throttled" or
	// "failed".
	Requests map[string]int
	// In and Out are the numbers of bytes that the cluster received and sent on the wire, including TLS.
	In, Out int64
}

// Total returns the number of requests.
func (c Counts) Total() int {
	n := 0
	for _, v := range c.Requests {
		n += v
	}
	return n
}

// Writes returns the number of requests that may change an object.
func (c Counts) Writes() int {
	n := 0
	for name, count := range c.Requests {
		verb, _, _ := strings.Cut(name, " ")
		if slices.Contains([]string{"apply", "create", "update", "patch", "delete", "deletecollection"}, verb) {
			n += count
		}
	}
	return n
}

func (c *counters) add(sort uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.requests {
		if c.requests[i].sort == sort {
			c.requests[i].count++
			return
		}
	}
	c.requests = append(c.requests, tally{sort, 1})
}

// totalExcept returns the number of all requests, except for those of one sort (one pair of a verb and a resource).
func (c *counters) totalExcept(but uint32) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, t := range c.requests {
		if t.sort != but {
			n += int(t.count)
		}
	}
	return n
}

func (c *counters) setMark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marked, c.markIn, c.markOut = slices.Clone(c.requests), c.in.Load(), c.out.Load()
}

func (c *counters) countsSince(s *sorts, sinceMark bool) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	counts := Counts{Requests: map[string]int{}, In: c.in.Load(), Out: c.out.Load()}
	for _, t := range c.requests {
		counts.Requests[s.names[t.sort]] = int(t.count)
	}
	if !sinceMark {
		return counts
	}
	counts.In, counts.Out = counts.In-c.markIn, counts.Out-c.markOut
	for _, t := range c.marked {
		name := s.names[t.sort]
		if counts.Requests[name] -= int(t.count); counts.Requests[name] == 0 {
			delete(counts.Requests, name)
		}
	}
	return counts
}

// count adds a request to the counters of the cluster and of the fleet.
func (c *Cluster) count(verb, resource string) {
	sort := c.fleet.sorts.ensureSortID(verb, resource)
	c.counts.add(sort)
	c.fleet.total.add(sort)
}

// Counts returns the counts of the cluster since the fleet was opened.
func (c *Cluster) Counts() Counts { return c.counts.countsSince(&c.fleet.sorts, false) }

// Requests returns the number of requests to the cluster since the fleet was opened, without those that were refused
// with 401. Requests is cheaper than Counts.
func (c *Cluster) Requests() int {
	return c.counts.totalExcept(c.fleet.sorts.ensureSortID("", "unauthorized"))
}

// Mark starts a new period for Since.
func (c *Cluster) Mark() { c.counts.setMark() }

// Since returns the counts of the cluster since the last call of Mark.
func (c *Cluster) Since() Counts { return c.counts.countsSince(&c.fleet.sorts, true) }

// Counts returns the counts of all clusters since the fleet was opened.
func (f *Fleet) Counts() Counts { return f.total.countsSince(&f.sorts, false) }

// MarkFleetTotals starts a new period for Fleet.Since. The counts that Cluster.Since returns for the single clusters do
// not change.
func (f *Fleet) MarkFleetTotals() { f.total.setMark() }

// Since returns the counts of all clusters since the last call of MarkFleetTotals.
func (f *Fleet) Since() Counts { return f.total.countsSince(&f.sorts, true) }
