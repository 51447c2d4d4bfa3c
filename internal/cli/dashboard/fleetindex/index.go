// Package fleetindex holds a fleet in memory: the data of all runtimes, of the catalog and of the rollouts that the
// pages of the dashboard show.
//
// # Use
//
//	x := fleetindex.New()
//	go x.Run(ctx, connect)
//	s := x.Snapshot()
//	for _, m := range s.Members { … }
//	deltas, complete, changed := x.Since(s.Revision)
//
// # How it works
//
// A watch receives the Kymas as rows of a Table. The index keeps only the printer columns and the labels of each Kyma.
// Equal strings are stored only once. Each of ModuleReleaseMetas, ModuleTemplates, ModuleRollouts and RolloutPolicies
// has a watch of its own; the number of these objects does not grow with the fleet. The Leases of the manager and its
// maintenance policy are read at intervals.
//
// Changes are collected and then published together as a new [Snapshot]. The first change after a quiet time is
// published after publishDelay; while changes continue, a new Snapshot is published at most once in publishInterval. A
// Snapshot is never changed, so pages read the Snapshot without a lock and without a request to the API server. If all
// runtimes are listed again, the index keeps the former data until the new list is complete.
//
// # What it does not do
//
// The index decides nothing: states and reasons are taken from the objects. The index contains no Manifests and no
// events of the whole fleet. Objects of a single runtime are read when a viewer opens the page of that runtime, and
// read again only after these objects have changed (detail.go).
package fleetindex

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"golang.org/x/sync/singleflight"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// Topic is a part of the index, such as the runtimes or the catalog. A page of the dashboard is rendered again only
// after a change of a topic that the page shows.
type Topic string

// The topics of the index.
const (
	Runtimes Topic = "runtimes"
	Catalog  Topic = "catalog"
	Rollouts Topic = "rollouts"
	Manager  Topic = "manager"
	// Details are the Manifests of the runtimes whose pages are viewed.
	Details Topic = "details"
)

const (
	// publishDelay is the time after a change for which further changes are collected.
	publishDelay = 100 * time.Millisecond
	// publishInterval is the minimum time between two snapshots. A change is on a page within half a second.
	publishInterval = 300 * time.Millisecond
	// maxDeltas is the number of deltas that are kept for streams that were interrupted.
	maxDeltas = 128
	// maxNames is the maximum number of names in a delta.
	maxNames = 1000
)

// Snapshot is the fleet at one moment. A Snapshot is never changed.
type Snapshot struct {
	// Revision grows with each snapshot. Membership is the revision at which a runtime was added or removed last.
	Revision, Membership uint64
	// Of maps each topic, such as the catalog, to the revision of the snapshot in which the topic changed last.
	Of map[Topic]uint64
	// Cluster is nil until the first connection.
	Cluster *connection.Cluster
	// Members are the runtimes, sorted by name.
	Members []*fleetlist.Member
	// Catalog has the catalog with its rollouts and policies.
	Catalog *connection.Catalog
	// Maintenance is the maintenance policy of the manager.
	Maintenance Maintenance
	// Signatures has the findings of the manager about the signatures of the versions that runtimes have.
	Signatures map[Version]Signature
	// Manager states which managers run, according to their Leases. Manager is nil until the Leases were read for the
	// first time.
	Manager *liveness.Observation
	// Ready means that every collection was listed once.
	Ready bool
	// Problem is the reason why the index is not up to date. Problem is nil if the index is up to date. Notes are texts
	// about parts of the index that cannot be read.
	Problem      error
	ProblemSince time.Time
	Notes        []string

	count sync.Once
	tally Tally
}

// Member returns a runtime by its name, and its position in Members. Member returns nil if there is no runtime with
// this name.
func (s *Snapshot) Member(name string) (*fleetlist.Member, int) {
	i, found := slices.BinarySearchFunc(s.Members, name, func(m *fleetlist.Member, name string) int {
		switch {
		case m.Metadata.Name < name:
			return -1
		case m.Metadata.Name > name:
			return 1
		}
		return 0
	})
	if !found {
		return nil, -1
	}
	return s.Members[i], i
}

// Delta is the difference between a snapshot and the previous snapshot.
type Delta struct {
	Revision uint64
	Topics   []Topic
	// Names are the runtimes that have changed. All means that too many runtimes have changed, or that runtimes were
	// added or removed.
	Names []string
	All   bool
}

// Index is a fleet in memory. Several goroutines may call the methods of an Index at the same time.
type Index struct {
	snapshot atomic.Pointer[Snapshot]
	wake     chan struct{}
	follows  chan *viewed // viewed runtimes that are not followed yet
	flights  singleflight.Group
	now      func() time.Time

	mu sync.Mutex
	// The following fields are guarded by mu.
	cluster   *connection.Cluster
	runtimes  collection[fleetlist.Member]
	releases  collection[v1beta2.ModuleReleaseMeta]
	templates collection[v1beta2.ModuleTemplate]
	rollouts  collection[v1beta2.ModuleRollout]
	policies  collection[v1beta2.RolloutPolicy]
	observed  *liveness.Observation
	// maintenance is the maintenance policy; a change of the policy counts as a change of the topic Catalog
	maintenance Maintenance
	signatures  map[Version]Signature // is replaced, and never changed
	problem     error
	since       time.Time         // of problem
	notes       map[string]string // by resource
	dirty       map[Topic]bool
	names       map[string]bool    // of runtimes that have changed since the last snapshot
	resized     bool               // a runtime was added or removed since then
	viewed      map[string]*viewed // by name
	isFollowing bool               // the Manifests of viewed runtimes can be watched
	deltas      []Delta
	changed     chan struct{} // closed by the next snapshot
}

// New returns an empty index.
func New() *Index {
	x := &Index{wake: make(chan struct{}, 1), now: time.Now, notes: map[string]string{}, dirty: map[Topic]bool{},
		names: map[string]bool{}, changed: make(chan struct{}), viewed: map[string]*viewed{},
		follows:     make(chan *viewed, maxViewed),
		maintenance: Maintenance{Unknown: "the maintenance policy was not read yet"}}
	x.snapshot.Store(&Snapshot{Catalog: connection.NewCatalog(nil, nil), Of: map[Topic]uint64{}})
	return x
}

// Snapshot returns the latest snapshot.
func (x *Index) Snapshot() *Snapshot { return x.snapshot.Load() }

// Since returns the deltas after a revision, and a channel that is closed by the next snapshot. The result complete is
// false if some of the deltas are not known any more.
func (x *Index) Since(revision uint64) (deltas []Delta, complete bool, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	current := x.snapshot.Load().Revision
	if revision == current {
		return nil, true, x.changed
	}
	i := slices.IndexFunc(x.deltas, func(d Delta) bool { return d.Revision == revision+1 })
	if i < 0 {
		return nil, false, x.changed
	}
	return slices.Clone(x.deltas[i:]), true, x.changed
}

// collection holds the objects of one kind, by name. The zero value is empty.
type collection[T any] struct {
	all    map[string]*T
	seen   map[string]bool // during a list: the names of its objects so far; otherwise nil
	listed bool
}

// begin is called when a new list of all objects begins to arrive.
func (c *collection[T]) begin() { c.seen = map[string]bool{} }

// put adds an object to the collection or replaces it, and reports whether the object was added.
func (c *collection[T]) put(name string, o *T) (added bool) {
	if c.all == nil {
		c.all = map[string]*T{}
	}
	_, is := c.all[name]
	c.all[name] = o
	if c.seen != nil {
		c.seen[name] = true
	}
	return !is
}

// end is called when the list has arrived completely. end removes from the collection all objects that the list did not
// contain, and returns the number of removed objects.
func (c *collection[T]) end() (removed int) {
	before := len(c.all)
	if c.seen != nil {
		maps.DeleteFunc(c.all, func(name string, _ *T) bool { return !c.seen[name] })
	}
	c.seen, c.listed = nil, true
	return before - len(c.all)
}

// touchLocked marks a topic as changed since the last snapshot. The caller holds the lock.
func (x *Index) touchLocked(t Topic) {
	x.dirty[t] = true
	select {
	case x.wake <- struct{}{}:
	default: // a value is already pending
	}
}

// change updates the index after an event of the watch of Kymas.
func (x *Index) change(ch fleetlist.Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch r := &x.runtimes; {
	case ch.Reset:
		r.begin()
		return
	case ch.Listed:
		x.resized = r.end() > 0 || x.resized
		x.clearProblemLocked()
	case ch.Deleted:
		delete(r.all, ch.Member.Metadata.Name)
		x.resized = true
	case ch.Member != nil:
		m := intern(ch.Member)
		before := r.all[m.Metadata.Name]
		if r.put(m.Metadata.Name, m); before == nil {
			x.resized = true
		} else if before.Metadata.ResourceVersion == m.Metadata.ResourceVersion {
			return // it was listed again
		}
		x.names[m.Metadata.Name] = true
	}
	x.touchLocked(Runtimes)
}

// Put adds or replaces runtimes in the index, as if a watch had delivered them, and marks the list of runtimes as
// complete.
func (x *Index) Put(members ...*fleetlist.Member) {
	for _, m := range members {
		x.change(fleetlist.Change{Member: m})
	}
	x.change(fleetlist.Change{Listed: true})
}

// Remove removes a runtime, as if a watch had sent its deletion.
func (x *Index) Remove(name string) {
	m := &fleetlist.Member{}
	m.Metadata.Name = name
	x.change(fleetlist.Change{Member: m, Deleted: true})
}

// intern returns a copy of a member whose strings are shared with the other members, to save memory.
func intern(m *fleetlist.Member) *fleetlist.Member {
	is := *m
	one := func(s *string) { *s = unique.Make(*s).Value() }
	one(&is.Metadata.CreationTimestamp)
	one(&is.Spec.Channel)
	is.Status.State = v1beta2.State(unique.Make(string(is.Status.State)).Value())
	one(&is.Status.ModulesReady)
	one(&is.Status.LastOperation.Operation)
	is.Status.Modules = make([]fleetlist.MemberModule, len(m.Status.Modules))
	for i := range m.Status.Modules {
		is.Status.Modules[i] = unique.Make(m.Status.Modules[i]).Value()
		e := &is.Status.Modules[i]
		one(&e.Name)
		one(&e.Version)
		one(&e.Channel)
		one(&e.Reason)
		one(&e.Message)
		e.State = v1beta2.State(unique.Make(string(e.State)).Value())
	}
	is.Status.Conditions = slices.Clone(m.Status.Conditions)
	for i := range is.Status.Conditions {
		c := &is.Status.Conditions[i]
		one(&c.Type)
		one(&c.Status)
		one(&c.Reason)
		one(&c.Message)
	}
	is.Metadata.Labels = make(map[string]string, len(m.Metadata.Labels))
	for key, value := range m.Metadata.Labels {
		is.Metadata.Labels[unique.Make(key).Value()] = unique.Make(value).Value()
	}
	return &is
}

// runPublisher makes snapshots until ctx ends, each with all changes since the previous snapshot.
func (x *Index) runPublisher(ctx context.Context) {
	last := time.Time{}
	for {
		select {
		case <-x.wake:
		case <-ctx.Done():
			return
		}
		delay := max(publishDelay, publishInterval-x.now().Sub(last))
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		select {
		case <-x.wake: // the pending value is about changes that are published now
		default:
		}
		last = x.now()
		x.Publish()
	}
}

// Publish makes a snapshot of everything that has changed since the last one.
func (x *Index) Publish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.dirty) == 0 {
		return
	}
	before := x.snapshot.Load()
	s := &Snapshot{Revision: before.Revision + 1, Membership: before.Membership, Of: maps.Clone(before.Of),
		Cluster: x.cluster, Members: before.Members, Catalog: before.Catalog, Manager: x.observed,
		Problem: x.problem, ProblemSince: x.since, Maintenance: x.maintenance, Signatures: x.signatures,
		Ready: x.runtimes.listed && (x.cluster == nil || x.releases.listed && x.templates.listed)}
	for _, of := range slices.Sorted(maps.Keys(x.notes)) {
		s.Notes = append(s.Notes, x.notes[of])
	}
	d := Delta{Revision: s.Revision, Topics: slices.Sorted(maps.Keys(x.dirty)), All: x.resized}
	for _, topic := range d.Topics {
		s.Of[topic] = s.Revision
	}
	if x.dirty[Runtimes] {
		x.setMembersLocked(s, before)
	} else {
		s.count.Do(func() { s.tally = *before.Tally() })
	}
	s.Tally() // computed now, so that the first viewer does not wait
	if d.All = d.All || len(x.names) > maxNames; !d.All {
		d.Names = slices.Sorted(maps.Keys(x.names))
	}
	if x.dirty[Catalog] || x.dirty[Rollouts] {
		s.Catalog = &connection.Catalog{Releases: maps.Clone(x.releases.all), Templates: maps.Clone(x.templates.all),
			Rollouts: maps.Clone(x.rollouts.all)}
		for _, name := range slices.Sorted(maps.Keys(x.policies.all)) {
			s.Catalog.Policies = append(s.Catalog.Policies, *x.policies.all[name])
		}
	}
	clear(x.dirty)
	clear(x.names)
	x.resized = false
	if x.deltas = append(x.deltas, d); len(x.deltas) > maxDeltas {
		x.deltas = slices.Delete(x.deltas, 0, len(x.deltas)-maxDeltas)
	}
	x.snapshot.Store(s)
	close(x.changed)
	x.changed = make(chan struct{})
}

// setMembersLocked sets the members of a snapshot. If no runtime was added or removed, the order of the members does
// not change.
func (x *Index) setMembersLocked(s, before *Snapshot) {
	if !x.resized {
		s.Members = slices.Clone(before.Members)
		for name := range x.names {
			if _, i := before.Member(name); i >= 0 {
				s.Members[i] = x.runtimes.all[name]
			}
		}
		return
	}
	s.Membership = s.Revision
	s.Members = make([]*fleetlist.Member, 0, len(x.runtimes.all))
	for _, name := range slices.Sorted(maps.Keys(x.runtimes.all)) {
		s.Members = append(s.Members, x.runtimes.all[name])
	}
}
