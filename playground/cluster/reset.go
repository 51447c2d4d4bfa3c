package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

const (
	quietPeriod  = 3 * time.Second  // a new cluster has settled when nothing is written for this time
	resetTimeout = 10 * time.Minute // timeout of the reset of a cluster, long enough for a busy machine
	maxOps       = 100              // operations in a transaction of etcd, which allows 128
	listers      = 4                // concurrent lists of a comparison
)

// origin is the state of a cluster after its first start.
type origin struct {
	stored map[string]string   // the keys of etcd and their values, without those that isVolatile
	served map[string][]string // the objects that the API server lists, by resource
}

// isVolatile reports whether a key is not part of the state of a cluster: the Lease that the API server itself renews,
// and Events.
func (c *Cluster) isVolatile(key string) bool {
	rest := strings.TrimPrefix(key, c.etcdPrefix())
	return strings.HasPrefix(rest, "leases/kube-system/apiserver-") || strings.HasPrefix(rest, "events/")
}

// etcdPrefix is the beginning of all keys of the cluster in etcd.
func (c *Cluster) etcdPrefix() string { return "/" + c.name + "/" }

// saveOriginWhenQuiet waits until nothing is written any more, and stores the state of the cluster as its origin. The
// state in etcd is the same before and after the API server lists its objects, so both parts of the origin agree.
func (c *Cluster) saveOriginWhenQuiet(ctx context.Context, server *apiServer) error {
	etcd := v3client.New(c.host.etcd.Server)
	defer etcd.Close() //nolint:errcheck // it has no connection
	var o origin
	since := time.Now()
	update := func() error {
		now, err := c.storedKeys(ctx, etcd)
		if err != nil || maps.Equal(now, o.stored) {
			return err
		}
		o.stored, since = now, time.Now()
		return errors.New("it still changes")
	}
	err := server.await(ctx, "waiting until the new cluster is unchanged", func() error {
		if err := update(); err != nil {
			return err
		}
		if time.Since(since) < quietPeriod {
			return errors.New("it still changes")
		}
		var err error
		if o.served, err = server.listNamesAndUIDs(ctx); err != nil {
			return err
		}
		return update()
	})
	if err != nil {
		return err
	}
	c.origin = &o
	return nil
}

// storedKeys returns the keys and values of the cluster in etcd, without volatile keys.
func (c *Cluster) storedKeys(ctx context.Context, etcd *clientv3.Client) (map[string]string, error) {
	answer, err := etcd.Get(ctx, c.etcdPrefix(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading etcd: %w", err)
	}
	stored := map[string]string{}
	for _, kv := range answer.Kvs {
		if key := string(kv.Key); !c.isVolatile(key) {
			stored[key] = string(kv.Value)
		}
	}
	return stored, nil
}

// listNamesAndUIDs returns the objects that the API server lists now: for each resource that can be listed and watched,
// the sorted names and UIDs of its objects. Events are left out. The lists are consistent reads, so the returned
// objects are at least as new as the call of listNamesAndUIDs.
func (s *apiServer) listNamesAndUIDs(ctx context.Context) (map[string][]string, error) {
	admin, err := s.adminConfig("playground-reset")
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(admin)
	if err != nil {
		return nil, fmt.Errorf("listing all objects: %w", err)
	}
	_, groups, err := s.client.Discovery().ServerGroupsAndResources()
	if err != nil {
		return nil, fmt.Errorf("listing all kinds: %w", err)
	}
	var mu sync.Mutex // guards what follows
	var problems []error
	all := map[string][]string{}
	limit := make(chan struct{}, listers)
	var wg sync.WaitGroup
	for _, group := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, groups) {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("listing all kinds: %w", err)
		}
		for _, resource := range group.APIResources {
			if resource.Name == "events" {
				continue
			}
			wg.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				of := version.WithResource(resource.Name)
				list, err := client.Resource(of).List(ctx, metav1.ListOptions{})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					problems = append(problems, fmt.Errorf("listing %s: %w", of.GroupResource(), err))
					return
				}
				objects := []string{}
				for _, o := range list.Items {
					if !strings.HasPrefix(o.Name, "apiserver-") || resource.Name != "leases" {
						objects = append(objects, fmt.Sprintf("%s/%s %s", o.Namespace, o.Name, o.UID))
					}
				}
				slices.Sort(objects)
				all[of.String()] = objects
			})
		}
	}
	wg.Wait()
	return all, errors.Join(problems...)
}

// Reset returns all clusters of the host to the state after their first start, and stops all of their parts except API
// servers. The next Start of a cluster starts the parts that do not run, which takes a fraction of a second. A stopped
// cluster stays stopped. Reset needs Options.Reusable.
//
// Reset stops all parts of a cluster except the API server. Therefore no other part runs while Reset restores the
// contents of etcd. Reset returns when the API server serves the kinds and lists the objects of the first start, and no
// others. After a reset, the clusters have the same addresses, certificates and UIDs as before. Only the
// resourceVersions of objects are higher than before the reset. The recorded requests are deleted when the cluster is
// started.
//
// If Reset fails, the host must not be used any more, and should be closed.
func (h *Host) Reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	h.mu.Lock()
	clusters := slices.SortedFunc(maps.Values(h.clusters), func(a, b *Cluster) int {
		return cmp.Compare(a.name, b.name)
	})
	h.mu.Unlock()
	problems := make([]error, len(clusters))
	var wg sync.WaitGroup
	for i, c := range clusters {
		wg.Go(func() {
			if err := c.stopControllersAndRestoreOrigin(ctx); err != nil {
				problems[i] = fmt.Errorf("resetting cluster %q: %w", c.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(problems...)
}

// stopControllersAndRestoreOrigin returns the cluster to its origin.
func (c *Cluster) stopControllersAndRestoreOrigin(ctx context.Context) error {
	c.transition.Lock()
	defer c.transition.Unlock()
	c.mu.Lock()
	run := c.run
	if run != nil {
		c.run, c.idle = nil, run
	}
	idle := c.idle
	c.mu.Unlock()
	if c.origin == nil {
		return errors.New("its first state is not known: it did not start, or Options.Reusable is not set")
	}
	if run != nil {
		c.proxy.mend()
		c.proxy.stopForwarding()
		run.stopControllersAndNode()
	}
	for _, folder := range []string{filepath.Join(c.dir, "pods"), filepath.Join(c.host.dir, "logs", c.name)} {
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("removing the files of pods: %w", err)
		}
	}
	etcd := v3client.New(c.host.etcd.Server)
	defer etcd.Close() //nolint:errcheck // it has no connection
	if idle == nil {   // nothing else writes, and the next API server begins with the contents of etcd
		_, err := c.restore(ctx, etcd)
		return err
	}
	return idle.server.await(ctx, "waiting until the API server has the state of the first start", func() error {
		changed, err := c.restore(ctx, etcd)
		if err != nil {
			return err
		}
		now, err := idle.server.listNamesAndUIDs(ctx)
		if err != nil {
			return err
		}
		if err := compareResources(c.origin.served, now); err != nil {
			return err
		}
		if changed > 0 { // the API server may have written since: compare again
			return fmt.Errorf("%d keys were different", changed)
		}
		return nil
	})
}

// compareResources returns an error if two states of a cluster differ.
func compareResources(first, now map[string][]string) error {
	for _, resource := range slices.Sorted(maps.Keys(now)) {
		want, there := first[resource]
		if !there {
			return fmt.Errorf("%s: the kind is served, and was not", resource)
		}
		if !slices.Equal(want, now[resource]) {
			return fmt.Errorf("%s: the objects are %q, and were %q", resource, now[resource], want)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(first)) {
		if _, there := now[resource]; !there {
			return fmt.Errorf("%s: the kind is not served, and was", resource)
		}
	}
	return nil
}

// restore makes the contents of etcd equal to the stored contents, and returns the number of keys that were different.
func (c *Cluster) restore(ctx context.Context, etcd *clientv3.Client) (changed int, err error) {
	answer, err := etcd.Get(ctx, c.etcdPrefix(), clientv3.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("reading etcd: %w", err)
	}
	var ops []clientv3.Op
	there := map[string]bool{}
	for _, kv := range answer.Kvs {
		key := string(kv.Key)
		there[key] = true
		first, want := c.origin.stored[key]
		switch {
		case !want && (!c.isVolatile(key) || strings.HasPrefix(key, c.etcdPrefix()+"events/")):
			ops = append(ops, clientv3.OpDelete(key))
		case want && first != string(kv.Value):
			ops = append(ops, clientv3.OpPut(key, first))
		}
	}
	for key, first := range c.origin.stored {
		if !there[key] {
			ops = append(ops, clientv3.OpPut(key, first))
		}
	}
	for batch := range slices.Chunk(ops, maxOps) {
		if _, err := etcd.Txn(ctx).Then(batch...).Commit(); err != nil {
			return 0, fmt.Errorf("writing to etcd: %w", err)
		}
	}
	return len(ops), nil
}
