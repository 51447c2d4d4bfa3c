package fleet

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Options configure a fleet. Only Clusters is required.
type Options struct {
	// Clusters is the number of clusters, at most 1,000,000.
	Clusters int
	// Seed decides the bearer tokens of the clusters, the UIDs of objects, and the requests that a fault hits. Fleets
	// with equal seeds are equal.
	Seed uint64
	// Ready is the time from the creation or change of a workload until it is available. 0 means 100 ms.
	Ready time.Duration
	// Operators simulate the operators of modules. Each Operator sets the status of custom resources of one kind.
	Operators []Operator
	// Varying lists the keys of strings that differ between clusters in otherwise equal objects, such as labels.
	// Varying changes no answer: objects that differ only in these strings share memory and cached results. If Varying
	// is nil, its value is the label and the annotation in which the manager writes the name of a Manifest.
	Varying []string
	// History is the number of changes that a cluster keeps for watches. 0 means 1,000. A cluster drops all kept
	// changes after five minutes without a new change.
	History int
	// Bookmarks is the time between two bookmarks of a watch. 0 means one minute.
	Bookmarks time.Duration
	// OwnPorts gives each cluster its own listener and its own port of 127.0.0.1. Without OwnPorts all clusters share
	// one listener, and each cluster has its own address. OwnPorts costs a file descriptor and a goroutine per cluster.
	// On systems other than Linux there is no network 127.0.0.0/8, so OwnPorts is always on.
	OwnPorts bool
	// Unless it is nil, the function Changed is called for every change of an object, in the order of the cluster's
	// changes. The cluster is locked during the call, so Changed must neither block nor call methods of the cluster.
	Changed func(Change)
}

// Change is the creation, change or deletion of an object of a cluster.
type Change struct {
	// Cluster is the index of the cluster.
	Cluster int
	// Resource, Namespace and Name identify the object. Namespace is empty for a cluster-scoped object.
	Resource        schema.GroupResource
	Namespace, Name string
	// Deleted is true if the object was deleted.
	Deleted bool
	// Last is the last metadata of a deleted object, as the JSON of a PartialObjectMetadata. If the object still
	// exists, Last is nil.
	Last []byte
	// Version is the resourceVersion of the change.
	Version int
}

// Operator simulates the operator of a module: it sets status.state of custom resources.
type Operator struct {
	// Kind is the kind of the custom resources, in all versions.
	Kind schema.GroupKind
	// Namespace and Deployment name a Deployment that must be available before State is set. If Namespace and
	// Deployment are empty, no Deployment is required.
	Namespace, Deployment string
	// After is the time from the creation or change of the custom resource until State is set.
	After time.Duration
	// State is the value for status.state. Empty means Ready.
	State string
}

// Fleet is a number of clusters. Several goroutines may call the methods of a Fleet at the same time.
type Fleet struct {
	options  Options
	seed     uint64
	now      func() time.Time
	clusters []*Cluster
	life     context.Context // canceled by Close; the context of requests by controllers
	end      context.CancelFunc

	handler         http.Handler // the API server's handler of built-in kinds
	schemas         map[string]*spec.Schema
	builtins        map[kindKey]*kind // never changes after Open
	builtinKinds    map[string]*kind  // the same kinds, by apiVersion and kind
	builtinVersions []builtinVersion
	legacy          apidiscoveryv2.APIGroupDiscoveryList
	groups          []apidiscoveryv2.APIGroupDiscovery
	varying         [][]byte // Options.Varying and uid, quoted

	namespaceResource, definitionResource resourceID

	resources resourceIDs
	surfaces  surfaces
	bodies    bodies
	memo      memo
	agenda    agenda
	network   network
	sorts     sorts
	total     counters
	wg        sync.WaitGroup
}

// Open starts a fleet. The fleet is ready when Open returns. The fleet ends when the context ends or Close is called.
//
// Open fails if it cannot listen on an address.
func Open(ctx context.Context, o Options) (_ *Fleet, err error) {
	if o.Clusters < 0 || o.Clusters > 1_000_000 {
		return nil, fmt.Errorf("opening a fleet of %d clusters: choose 0 to 1000000", o.Clusters)
	}
	if o.Ready == 0 {
		o.Ready = 100 * time.Millisecond
	}
	if o.History == 0 {
		o.History = 1000
	}
	if o.Bookmarks == 0 {
		o.Bookmarks = time.Minute
	}
	if o.Varying == nil {
		o.Varying = []string{"deprecated-operator.kyma-project.io/owned-by", "app.kubernetes.io/component"}
	}
	f := &Fleet{options: o, now: time.Now, builtins: map[kindKey]*kind{}, builtinKinds: map[string]*kind{}}
	seed := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("fleet"), o.Seed))
	f.seed = binary.BigEndian.Uint64(seed[:])
	f.surfaces = surfaces{fleet: f, all: map[string]*surface{}, kinds: map[string][]*kind{}}
	f.resources.known = map[schema.GroupResource]resourceID{}
	f.bodies.init()
	f.agenda.earlier = make(chan struct{}, 1)
	for _, key := range append([]string{"uid"}, o.Varying...) {
		f.varying = append(f.varying, []byte(`"`+key+`"`))
	}
	f.life, f.end = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	server, schemas, err := newBuiltinServer()
	if err != nil {
		return nil, err
	}
	f.handler, f.schemas = server.Handler.Director, schemas
	if err := f.loadBuiltinDiscovery(f.life); err != nil {
		return nil, err
	}
	f.learnBuiltins()
	f.namespaceResource = f.resources.idOf(schema.GroupResource{Resource: "namespaces"})
	f.definitionResource = f.resources.idOf(schema.GroupResource{Group: "apiextensions.k8s.io",
		Resource: "customresourcedefinitions"})
	if err := f.createClustersWithNamespaces(); err != nil {
		return nil, err
	}
	if err := f.startServing(); err != nil {
		return nil, err
	}
	f.wg.Go(f.runTasksUntilClosed)
	f.wg.Go(f.dropIdleLogsUntilClosed)
	return f, nil
}

// Close stops all clusters. Close returns when no connection and no goroutine is left.
func (f *Fleet) Close() error {
	f.end()
	err := f.network.close()
	f.wg.Wait()
	return err
}

// Len returns the number of clusters.
func (f *Fleet) Len() int { return len(f.clusters) }

// Cluster returns the cluster with an index from 0 to Len()-1.
func (f *Fleet) Cluster(i int) *Cluster { return f.clusters[i] }

// Stats counts the contents of a fleet.
type Stats struct {
	// Objects is the number of objects in all clusters. Bodies is the number of different bodies that the objects of
	// the fleet share.
	Objects, Bodies int
	// Connections is the number of open connections. Watches is the number of running watches.
	Connections, Watches int
	// Remembered is the number of write requests whose result came from the cache. Computed is the number of write
	// requests that were not in the cache, so that the handlers of the API server answered them.
	Remembered, Computed int
}

// Stats returns the counts of the fleet. Stats visits every cluster.
func (f *Fleet) Stats() Stats {
	s := Stats{Bodies: f.bodies.len(), Connections: int(f.network.connections.Load()),
		Watches: int(f.network.watches.Load())}
	for _, c := range f.clusters {
		c.mu.Lock()
		s.Objects += len(c.objects)
		c.mu.Unlock()
	}
	f.memo.mu.Lock()
	defer f.memo.mu.Unlock()
	s.Remembered, s.Computed = f.memo.hits, f.memo.misses
	return s
}

// createClustersWithNamespaces creates the clusters, and the namespaces that every cluster has.
func (f *Fleet) createClustersWithNamespaces() error {
	f.clusters = make([]*Cluster, f.options.Clusters)
	empty, err := f.surfaces.surfaceFor(nil)
	if err != nil {
		return err
	}
	all := make([]Cluster, f.options.Clusters)
	for i := range all {
		c := &all[i]
		c.fleet, c.index, c.version = f, i, firstVersion
		c.surface.Store(empty)
		f.clusters[i] = c
		for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
			body := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + name + `"}}`
			if _, err := c.handleInProcess(f.life, http.MethodPost, "/api/v1/namespaces", jsonType, "kube-apiserver",
				[]byte(body)); err != nil {
				return fmt.Errorf("making namespace %s of %s: %w", name, c.Name(), err)
			}
		}
		c.log, c.forgotten = nil, c.version
	}
	return nil
}

// Cluster is one cluster of a fleet. Several goroutines may call the methods of a Cluster at the same time.
type Cluster struct {
	fleet   *Fleet
	index   int
	surface atomic.Pointer[surface]
	fault   atomic.Pointer[activeFault] // the present fault; nil if there is none
	rotated atomic.Uint32               // number of calls of RotateCredentials
	valid   atomic.Pointer[string]      // the valid token; nil until it is first needed

	mu        sync.Mutex
	objects   []*object                   // in the order of their keys; guarded by mu, as all following fields
	log       []event                     // the newest changes, for watches
	logged    time.Time                   // time of the last change in log
	forgotten uint32                      // version of the newest change that is no longer in log
	version   uint32                      // resourceVersion of the last change
	changed   chan struct{}               // closed at the next change; nil if no watch waits
	tasks     []dueTask                   // the planned tasks of controllers
	wakeAt    time.Time                   // time of the cluster's entry in agenda; zero if there is no entry
	connected []*connection               // open connections
	port      *ownPort                    // only with Options.OwnPorts
	operates  map[schema.GroupKind]string // the states that replace those of Operators; nil: none

	counts counters
}

// Name returns the name of the cluster. The name of a cluster is unique in the fleet, and depends only on the index of
// the cluster.
func (c *Cluster) Name() string { return fmt.Sprintf("runtime-%05d", c.index) }

// Index returns the index of the cluster in the fleet, from 0.
func (c *Cluster) Index() int { return c.index }

// URL returns the address of the cluster's API server.
func (c *Cluster) URL() string { return "https://" + c.address() }

// token returns the bearer token that is valid at present.
func (c *Cluster) token() string {
	if known := c.valid.Load(); known != nil {
		return *known
	}
	mac := hmac.New(sha256.New, binary.BigEndian.AppendUint64(nil, c.fleet.seed))
	fmt.Fprintf(mac, "token %d %d", c.index, c.rotated.Load())
	token := hex.EncodeToString(mac.Sum(nil)[:20])
	c.valid.Store(&token)
	return token
}

// Kubeconfig returns a kubeconfig with all rights. The bearer token in the kubeconfig is valid until RotateCredentials
// is called.
func (c *Cluster) Kubeconfig() []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: %[1]s
contexts: [{name: %[1]s, context: {cluster: %[1]s, user: %[1]s}}]
clusters: [{name: %[1]s, cluster: {server: %[2]q, certificate-authority-data: %[3]s}}]
users: [{name: %[1]s, user: {token: %[4]s}}]
`, c.Name(), c.URL(), c.fleet.network.authority, c.token())
}

// RotateCredentials replaces the credentials. From then on, requests with the old credentials are answered with 401,
// also on open connections. Running watches continue. Kubeconfig returns the new credentials.
func (c *Cluster) RotateCredentials() {
	c.rotated.Add(1)
	c.valid.Store(nil)
}

var errListen = errors.New("no address is left")

// address returns host and port of the cluster's API server.
func (c *Cluster) address() string {
	if c.port != nil {
		return c.port.address
	}
	return net.JoinHostPort(loopbackIPOf(c.index), c.fleet.network.port)
}

// loopbackIPOf returns the address of a cluster in 127.0.0.0/8. The first cluster of a fleet has the address
// 127.16.0.1.
func loopbackIPOf(clusterIndex int) string {
	n := 16<<16 + clusterIndex + 1
	return fmt.Sprintf("127.%d.%d.%d", n>>16, n>>8&255, n&255)
}

// clusterIndexOf returns the index of the cluster that has an address. clusterIndexOf returns a negative number if no
// cluster can have this address.
func clusterIndexOf(ip net.IP) int {
	four := ip.To4()
	if four == nil || four[0] != 127 {
		return -1
	}
	return int(four[1])<<16 + int(four[2])<<8 + int(four[3]) - 16<<16 - 1
}
