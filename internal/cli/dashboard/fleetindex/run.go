package fleetindex

import (
	"context"
	"io"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

const (
	// reconnectDelay is the time between a refused connection and the next attempt to connect.
	reconnectDelay = 5 * time.Second
	// leaseInterval is the time between two reads of the Leases of the manager.
	leaseInterval = 10 * time.Second
)

func severity(state string) int { return fleetlist.Severity(v1beta2.State(state)) }

// Run keeps the index up to date until ctx ends. The parameter connect is a function that connects to the control
// plane. Run calls connect again if the control plane no longer accepts the credentials, because the kubeconfig may
// have been renewed.
func (x *Index) Run(ctx context.Context, connect func(context.Context) (*connection.Cluster, error)) {
	publishing := make(chan struct{})
	go func() {
		defer close(publishing)
		x.runPublisher(ctx)
	}()
	for ctx.Err() == nil {
		c, err := connect(ctx)
		if err != nil {
			x.recordProblem(err)
		} else {
			x.follow(ctx, c)
		}
		if console.Sleep(ctx, reconnectDelay) != nil {
			break
		}
	}
	<-publishing
}

// follow keeps all collections of a cluster up to date until ctx ends, or until the user may not read the Kymas.
func (x *Index) follow(ctx context.Context, c *connection.Cluster) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	x.mu.Lock()
	x.cluster = c
	x.mu.Unlock()
	var all errgroup.Group
	all.Go(func() error {
		return fleetlist.Follow(ctx, c, fleetlist.Follower{Changed: x.change, Failed: func(err error) {
			x.recordProblem(err)
			if console.ExitCode(err) == console.ExitForbidden {
				stop()
			}
		}, Opened: func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.clearProblemLocked()
		}})
	})
	all.Go(func() error { return followKind(ctx, x, c, "modulereleasemetas", &x.releases, Catalog) })
	all.Go(func() error { return followKind(ctx, x, c, "moduletemplates", &x.templates, Catalog) })
	all.Go(func() error { return followKind(ctx, x, c, connection.ResourceRollouts, &x.rollouts, Rollouts) })
	all.Go(func() error { return followKind(ctx, x, c, connection.ResourcePolicies, &x.policies, Rollouts) })
	all.Go(func() error { return x.followViewed(ctx, c) })
	all.Go(func() error { return x.followSignatures(ctx, c) })
	all.Go(func() error { return x.pollManagerLeases(ctx, c) })
	all.Go(func() error { return x.pollMaintenance(ctx, c) })
	_ = all.Wait() // each ends with ctx
}

// recordProblem records why the index is not up to date.
func (x *Index) recordProblem(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.problem == nil {
		x.since = x.now()
	} else if x.problem.Error() == err.Error() {
		return
	}
	x.problem = err
	x.touchLocked(Manager)
}

// clearProblemLocked records that the index is up to date again. The caller holds the lock.
func (x *Index) clearProblemLocked() {
	if x.problem != nil {
		x.problem, x.since = nil, time.Time{}
		x.touchLocked(Manager)
	}
}

// object is a constraint for type parameters: a pointer to an object of our API group.
type object[T any] interface {
	*T
	client.Object
}

// followKind keeps the collection of one kind up to date, for kinds whose number of objects does not grow with the
// fleet. If the collection cannot be read, followKind adds a note about it to the snapshot.
func followKind[T any, P object[T]](ctx context.Context, x *Index, c *connection.Cluster, resource string,
	all *collection[T], topic Topic) error {
	locked := func(do func()) {
		x.mu.Lock()
		defer x.mu.Unlock()
		do()
		x.touchLocked(topic)
	}
	if !c.Serves[resource] {
		locked(func() { all.end() })
		return nil
	}
	put := func(o *T) {
		P(o).SetManagedFields(nil)
		all.put(P(o).GetName(), o)
	}
	path := "/apis/" + v1beta2.GroupVersion.String() + "/namespaces/" + c.Namespace + "/" + resource + "?"
	return watch.Run(ctx, watch.Options[T]{
		Source: watch.JSONSource[T](func(ctx context.Context, query url.Values) (io.ReadCloser, error) {
			return c.OpenPath(ctx, path+query.Encode())
		}),
		MaxDelay: 10 * time.Second,
		Page: func(items []T, first bool) {
			locked(func() {
				if first {
					all.begin()
				}
				for i := range items {
					put(&items[i])
				}
			})
		},
		Listed: func(bool) { locked(func() { all.end(); delete(x.notes, resource) }) },
		Opened: func() {
			if x.hasNote(resource) {
				locked(func() { delete(x.notes, resource) })
			}
		},
		Event: func(e watch.Event[T]) {
			locked(func() {
				if e.Deleted {
					delete(all.all, P(e.Object).GetName())
					return
				}
				put(e.Object)
			})
		},
		Failed: func(err error, _ time.Time) error {
			err = c.Explain(err, "watching the "+resource)
			locked(func() {
				if x.notes[resource] = err.Error(); console.ExitCode(err) == console.ExitForbidden {
					all.end()
				}
			})
			return nil
		},
	})
}

// hasNote reports whether the snapshot has a note about a resource.
func (x *Index) hasNote(resource string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.notes[resource] != ""
}

// pollManagerLeases reads the Leases of the manager at an interval. No watch reports that the manager has stopped:
// without a manager, no object of the fleet changes.
func (x *Index) pollManagerLeases(ctx context.Context, c *connection.Cluster) error {
	for {
		if observed := liveness.Read(ctx, c); ctx.Err() == nil {
			x.recordManager(observed)
		}
		if err := console.Sleep(ctx, leaseInterval); err != nil {
			return err
		}
	}
}

// recordManager records an observation of the manager, and makes the next snapshot show it if the observation is new.
// While no manager works, every observation is new, because pages show how old all states are.
func (x *Index) recordManager(observed *liveness.Observation) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.observed == nil || observed.DiffersIgnoringTimes(x.observed) ||
		observed.Report(time.Time{}).State == liveness.NotWorking {
		x.touchLocked(Manager)
	}
	x.observed = observed
}

// SetCatalogAndManager replaces the catalog, the rollouts and the data about the running managers, for tests and
// examples without a cluster.
func (x *Index) SetCatalogAndManager(s *connection.Catalog, manager *liveness.Observation,
	cluster *connection.Cluster) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.releases = collection[v1beta2.ModuleReleaseMeta]{all: s.Releases, listed: true}
	x.templates = collection[v1beta2.ModuleTemplate]{all: s.Templates, listed: true}
	x.rollouts = collection[v1beta2.ModuleRollout]{all: s.Rollouts, listed: true}
	x.policies = collection[v1beta2.RolloutPolicy]{listed: true}
	for i := range s.Policies {
		x.policies.put(s.Policies[i].Name, &s.Policies[i])
	}
	x.observed, x.cluster = manager, cluster
	for _, topic := range []Topic{Catalog, Rollouts, Manager} {
		x.touchLocked(topic)
	}
}
