package fleet

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// counters count requests by verb and resource, and bytes.
type counters struct {
	in, out atomic.Int64

	mu              sync.Mutex
	requests        []tally // guarded by mu, as all that follows
	marked          []tally // at the last mark
	markIn, markOut int64
}

// tally is how many requests of a sort there were.
type tally struct {
	sort  uint32 // of sorts
	count uint32
}

// sorts number what is counted, so that a cluster does not keep names.
type sorts struct {
	mu    sync.RWMutex
	known map[[2]string]uint32 // verb and resource; guarded by mu
	names []string             // guarded by mu
}

func (s *sorts) of(verb, resource string) uint32 {
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

// Counts are requests and bytes.
type Counts struct {
	// Requests by verb and resource, as in "apply deployments.apps" or "get discovery". Verbs are those of Kubernetes,
	// and apply for server-side apply. What was not served is "unauthorized", "unknown" for a path that does not exist,
	// or what a Fault did: "cut", "throttled", "failed".
	Requests map[string]int
	// In and Out are bytes on the wire, with TLS, from the cluster's point of view.
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

// Writes returns the number of requests that may change something.
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

// total returns the number of requests of all sorts but one.
func (c *counters) total(but uint32) int {
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

func (c *counters) mark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marked, c.markIn, c.markOut = slices.Clone(c.requests), c.in.Load(), c.out.Load()
}

func (c *counters) read(s *sorts, since bool) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	counts := Counts{Requests: map[string]int{}, In: c.in.Load(), Out: c.out.Load()}
	for _, t := range c.requests {
		counts.Requests[s.names[t.sort]] = int(t.count)
	}
	if !since {
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

// count counts a request of this cluster and of the fleet.
func (c *Cluster) count(verb, resource string) {
	sort := c.fleet.sorts.of(verb, resource)
	c.counts.add(sort)
	c.fleet.total.add(sort)
}

// Counts returns what was asked of the cluster so far.
func (c *Cluster) Counts() Counts { return c.counts.read(&c.fleet.sorts, false) }

// Requests returns how many requests were made of the cluster so far, without those refused with 401. It is cheaper
// than Counts.
func (c *Cluster) Requests() int { return c.counts.total(c.fleet.sorts.of("", "unauthorized")) }

// Mark begins a new count for Since.
func (c *Cluster) Mark() { c.counts.mark() }

// Since returns what was asked of the cluster after Mark.
func (c *Cluster) Since() Counts { return c.counts.read(&c.fleet.sorts, true) }

// Counts returns what was asked of all clusters so far.
func (f *Fleet) Counts() Counts { return f.total.read(&f.sorts, false) }

// Mark begins a new count for Since, of the fleet; each cluster has its own.
func (f *Fleet) Mark() { f.total.mark() }

// Since returns what was asked of all clusters after Mark.
func (f *Fleet) Since() Counts { return f.total.read(&f.sorts, true) }
