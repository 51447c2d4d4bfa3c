package authority

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// maxRoots bounds how many roots there are on demand: each is in the bundle of every runtime. Roots that are due for their age come anyway.
const maxRoots = 5

// situation is what the next ring depends on beside the present one.
type situation struct {
	now                     time.Time
	rootLife, overlap, keep time.Duration
	request                 string              // rotate on demand: done once for each value
	seen                    map[string][]string // see Options.Seen
	known                   bool
}

// next returns the ring that follows, which is r itself if nothing is to be done, and what was done. r is nil if there is none yet.
//
//	1  roots that have ended go
//	2  a root is made: there is none, the newest ends within the overlap, or somebody asks for it and there are less than maxRoots
//	3  the listener is on the oldest root that a runtime is seen on, or on the newest if there is none. It goes to a newer one only if
//	   something is known of every runtime; if nothing is known of any, it stays.
//	4  roots older than that of the listener go, when it has been so for a while and something is known of every runtime
func (r *ring) next(s situation) (*ring, []string, error) {
	if r == nil {
		r = &ring{}
	}
	var roots []root
	var done []string
	for _, o := range r.roots { // 1
		if s.now.Before(o.certificate.NotAfter) {
			roots = append(roots, o)
		} else {
			done = append(done, "root "+o.fingerprint+" has ended")
		}
	}
	rotated := r.rotated
	why := r.wanted(roots, s)
	if why != "" { // 2
		made, err := newRoot(s.now, s.rootLife)
		if err != nil {
			return nil, nil, err
		}
		roots = append([]root{made}, roots...)
		done = append(done, fmt.Sprintf("root %s was made: %s", made.fingerprint, why))
		rotated = cmp.Or(s.request, rotated) // whatever the cause, the request is met
	}
	next := newRing(roots, r.listener, r.since, rotated)
	if next.listener != r.listener {
		next.since = s.now.Truncate(time.Second)
	}
	if at := next.listenerAt(s); at != next.indexOf(next.listener) { // 3
		next.listener, next.since = next.roots[at].fingerprint, s.now.Truncate(time.Second)
		done = append(done, "root "+next.listener+" signs for the listener")
	}
	at := next.indexOf(next.listener)
	if at+1 < len(roots) && s.complete() && s.now.Sub(next.since) >= s.keep { // 4
		for _, o := range roots[at+1:] {
			done = append(done, "root "+o.fingerprint+" was dropped: no runtime is on it")
		}
		next = newRing(slices.Clone(roots[:at+1]), next.listener, next.since, rotated)
	}
	if len(r.roots) > 0 && next.same(r) {
		return r, nil, nil
	}
	return next, done, nil
}

// wanted says why a root is to be made, "" if none is. The roots are those of the ring that have not ended.
func (r *ring) wanted(roots []root, s situation) string {
	switch {
	case len(r.roots) == 0:
		return "there was none"
	case len(roots) == 0:
		return "none was left"
	case roots[0].certificate.NotAfter.Sub(s.now) < s.overlap:
		return "the one before ends at " + roots[0].certificate.NotAfter.UTC().Format(time.RFC3339)
	case s.request != "" && s.request != r.rotated && len(roots) < maxRoots:
		return fmt.Sprintf("it was asked for (%q)", s.request)
	}
	return ""
}

// complete tells whether something is known of every runtime.
func (s situation) complete() bool { return s.known && len(s.seen[""]) == 0 }

// listenerAt returns the index of the root that signs for the listener.
func (r *ring) listenerAt(s situation) int {
	present, oldest := r.indexOf(r.listener), 0
	if !s.known {
		return present
	}
	for i, o := range r.roots {
		if len(s.seen[o.fingerprint]) > 0 {
			oldest = i
		}
	}
	if !s.complete() {
		return max(present, oldest)
	}
	return oldest
}

// stragglers returns who is not on the newest root.
func (r *ring) stragglers(s situation) Stragglers {
	var names []string
	for root, on := range s.seen {
		if root != r.roots[0].fingerprint {
			names = append(names, on...)
		}
	}
	slices.Sort(names)
	return Stragglers{Count: len(names), Names: slices.Clone(names[:min(len(names), maxNames)])}
}

// maxNames is how many stragglers are named.
const maxNames = 10
