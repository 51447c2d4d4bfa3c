package authority

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// maxRoots is the number of roots at which a request of a person for a new root has no effect. The number is limited
// because each root is in the bundle of every runtime. When a root is too old, its successor is created even if there
// are maxRoots roots.
const maxRoots = 5

// rotationInput contains what a decision about a rotation needs in addition to the current roots.
type rotationInput struct {
	now                     time.Time
	rootLife, overlap, keep time.Duration
	request                 string              // each new value requests one rotation
	seen                    map[string][]string // see Options.RuntimesByRoot
	known                   bool
	replaced                bool // this replica has replaced roots that were not valid yet within replacePeriod
}

// replacePeriod is the minimum time between two roots that one replica creates because no root is valid yet. A replica
// whose clock is fast by more than the validity of a root removes each of these roots as an expired one, and every new
// root costs a certificate for each runtime.
const replacePeriod = time.Hour

// nextRootSet returns the next rootSet, and a description of the changes. If nothing must change, nextRootSet returns
// the rootSet r itself. The rootSet r is nil if there are no roots yet. The method nextRootSet makes the following
// changes, in this order:
//
//	1  remove roots that have expired
//	2  create a root if there is none, if none is valid yet, if the newest valid one expires within the overlap, or if
//	   a request asks for it and there are fewer than maxRoots
//	3  the listener uses the oldest valid root that a runtime connects with, or the newest valid root if no runtime
//	   connects. The listener moves from a valid root to a newer one only if the root of every runtime is known. If the
//	   root of no runtime is known, the listener keeps its root
//	4  after the settle period, remove the roots that are older than the root of the listener, if the root of every
//	   runtime is known
func (r *rootSet) nextRootSet(s rotationInput) (*rootSet, []string, error) {
	if r == nil {
		r = &rootSet{}
	}
	var roots []root
	var done []string
	for _, o := range r.roots { // 1
		if s.now.Before(o.certificate.NotAfter) {
			roots = append(roots, o)
		} else {
			done = append(done, "root "+o.fingerprint+" has expired")
		}
	}
	rotated := r.rotated
	why := r.reasonForNewRoot(roots, s)
	if why != "" { // 2
		made, err := newRoot(s.now, s.rootLife)
		if err != nil {
			return nil, nil, err
		}
		roots = append([]root{made}, roots...)
		done = append(done, fmt.Sprintf("root %s was created: %s", made.fingerprint, why))
		rotated = cmp.Or(s.request, rotated) // a new root fulfils the request, even if it has another cause
	}
	next := newRootSet(roots, r.listener, r.since, rotated)
	if next.listener != r.listener {
		next.since = s.now.Truncate(time.Second)
	}
	if at := next.listenerRootIndex(s); at != next.indexOf(next.listener) { // 3
		next.listener, next.since = next.roots[at].fingerprint, s.now.Truncate(time.Second)
		done = append(done, "root "+next.listener+" signs for the listener")
	}
	at := next.indexOf(next.listener)
	if at+1 < len(roots) && s.knowsRootOfEachRuntime() && s.now.Sub(next.since) >= s.keep { // 4
		for _, o := range roots[at+1:] {
			done = append(done, "root "+o.fingerprint+" was removed: no runtime uses it")
		}
		next = newRootSet(slices.Clone(roots[:at+1]), next.listener, next.since, rotated)
	}
	if len(r.roots) > 0 && next.equal(r) {
		return r, nil, nil
	}
	return next, done, nil
}

// reasonForNewRoot returns the reason why a root has to be created, or "" if no root has to be created. The parameter
// roots contains the roots of the rootSet that have not expired. A root that is not valid yet does not count as the
// newest one: two replicas of which one has a fast clock would otherwise replace each other's roots forever.
func (r *rootSet) reasonForNewRoot(roots []root, s rotationInput) string {
	newest := newestValid(roots, s.now)
	switch {
	case len(r.roots) == 0:
		return "there was none"
	case len(roots) == 0:
		return "none was left"
	case newest < 0 && s.replaced:
		return ""
	case newest < 0:
		return "none was valid yet"
	case roots[newest].certificate.NotAfter.Sub(s.now) < s.overlap:
		return "the previous one expires at " + roots[newest].certificate.NotAfter.UTC().Format(time.RFC3339)
	case s.request != "" && s.request != r.rotated && len(roots) < maxRoots:
		return fmt.Sprintf("it was requested (%q)", s.request)
	}
	return ""
}

// knowsRootOfEachRuntime reports whether RuntimesByRoot has named, for every runtime, the root that has signed the
// certificate of the runtime.
func (s rotationInput) knowsRootOfEachRuntime() bool { return s.known && len(s.seen[""]) == 0 }

// listenerRootIndex returns the index of the root that has to sign the certificate of the listener.
func (r *rootSet) listenerRootIndex(s rotationInput) int {
	_, signer := r.signers(s.now)
	if !s.known || signer == nil {
		return r.indexOf(r.listener)
	}
	oldest := newestValid(r.roots, s.now)
	for i, o := range r.roots {
		if len(s.seen[o.fingerprint]) > 0 && o.isValidAt(s.now) {
			oldest = i
		}
	}
	if !s.knowsRootOfEachRuntime() {
		return max(r.indexOf(signer.fingerprint), oldest)
	}
	return oldest
}

// outdatedRuntimes returns the runtimes whose certificate was not signed by the newest valid root.
func (r *rootSet) outdatedRuntimes(s rotationInput) OutdatedRuntimes {
	var names []string
	newest := r.roots[max(newestValid(r.roots, s.now), 0)].fingerprint
	for root, on := range s.seen {
		if root != newest {
			names = append(names, on...)
		}
	}
	slices.Sort(names)
	return OutdatedRuntimes{Count: len(names), Names: slices.Clone(names[:min(len(names), maxOutdatedNames)])}
}

// maxOutdatedNames is the maximum number of names in OutdatedRuntimes.
const maxOutdatedNames = 10
