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

// Options say what to open. Only Clusters is needed.
type Options struct {
	// Clusters is how many there are, at most 1,000,000.
	Clusters int
	// Seed decides tokens, UIDs and which requests meet a fault: equal seeds, equal fleets.
	Seed uint64
	// Ready is how long a workload takes to become available after it was created or changed. 0 means 100 ms.
	Ready time.Duration
	// Operators look after custom resources.
	Operators []Operator
	// Varying are keys of strings that differ from cluster to cluster though the objects are otherwise equal, such as
	// labels. They only save memory and time. nil means the label and the annotation by which the manager names a
	// Manifest.
	Varying []string
	// History is how many changes a cluster remembers for watches, for five minutes. 0 means 1,000.
	History int
	// Bookmarks is the time between two bookmarks of a watch. 0 means one minute.
	Bookmarks time.Duration
	// OwnPorts gives each cluster a listener and a port of 127.0.0.1, in place of an address of its own behind one
	// listener. It costs a file descriptor and a goroutine per cluster. Where there is no network 127.0.0.0/8 (that is,
	// not on Linux) it is always so.
	OwnPorts bool
	// Changed is called with every change of an object, in the order of a cluster's changes, unless it is nil. The
	// cluster is locked meanwhile: it must neither block nor ask the cluster.
	Changed func(Change)
}

// Change says that an object of a cluster was created, changed or deleted.
type Change struct {
	// Cluster is the index of the cluster.
	Cluster int
	// Resource, Namespace and Name say which object; what is cluster-wide has no namespace.
	Resource        schema.GroupResource
	Namespace, Name string
	// Deleted says that it is gone.
	Deleted bool
	// Last is, of what was deleted, its last metadata as the JSON of a PartialObjectMetadata.
	Last []byte
	// Version is the resourceVersion of the change.
	Version int
}

// Operator sets status.state of custom resources to Ready.
type Operator struct {
	// Kind it looks after, in all versions.
	Kind schema.GroupKind
	// Namespace and Deployment that must be available first. Empty: none.
	Namespace, Deployment string
	// After is how long it takes, after the resource was created or changed.
	After time.Duration
	// State that it sets. Empty means Ready.
	State string
}

// Fleet is a number of clusters. Its methods may be called concurrently.
type Fleet struct {
	options  Options
	seed     uint64
	now      func() time.Time
	clusters []*Cluster
	life     context.Context // ends with Close; requests of controllers have it
	end      context.CancelFunc

	handler         http.Handler // of built-in kinds
	schemas         map[string]*spec.Schema
	builtins        map[kindKey]*kind // never changes after Open
	builtinKinds    map[string]*kind  // the same, by apiVersion and kind
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

// Open starts a fleet. It is ready when Open returns. The context bounds its life, which Close ends.
//
// It fails if an address cannot be listened on.
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
	server, schemas, err := installBuiltins()
	if err != nil {
		return nil, err
	}
	f.handler, f.schemas = server.Handler.Director, schemas
	if err := f.askBuiltins(f.life); err != nil {
		return nil, err
	}
	f.learnBuiltins()
	f.namespaceResource = f.resources.of(schema.GroupResource{Resource: "namespaces"})
	f.definitionResource = f.resources.of(schema.GroupResource{Group: "apiextensions.k8s.io",
		Resource: "customresourcedefinitions"})
	if err := f.populate(); err != nil {
		return nil, err
	}
	if err := f.listen(); err != nil {
		return nil, err
	}
	f.wg.Go(f.work)
	f.wg.Go(f.sweep)
	return f, nil
}

// Close stops all clusters and returns when no connection and no goroutine is left.
func (f *Fleet) Close() error {
	f.end()
	err := f.network.close()
	f.wg.Wait()
	return err
}

// Len returns the number of clusters, and Cluster the one with an index from 0.
func (f *Fleet) Len() int { return len(f.clusters) }

// Cluster returns the cluster with an index from 0 to Len()-1.
func (f *Fleet) Cluster(i int) *Cluster { return f.clusters[i] }

// Stats say what a fleet holds.
type Stats struct {
	// Objects in all clusters, and Bodies that they share.
	Objects, Bodies int
	// Connections that are open, Watches that run.
	Connections, Watches int
	// Remembered and Computed answers to requests that may write.
	Remembered, Computed int
}

// Stats counts what the fleet holds. It looks at every cluster.
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

// populate makes the clusters, with the namespaces that every cluster has.
func (f *Fleet) populate() error {
	f.clusters = make([]*Cluster, f.options.Clusters)
	empty, err := f.surfaces.of(nil)
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
			if _, err := c.do(f.life, http.MethodPost, "/api/v1/namespaces", jsonType, "kube-apiserver",
				[]byte(body)); err != nil {
				return fmt.Errorf("making namespace %s of %s: %w", name, c.Name(), err)
			}
		}
		c.log, c.forgotten = nil, c.version
	}
	return nil
}

// Cluster is one cluster of a fleet. Its methods may be called concurrently.
type Cluster struct {
	fleet   *Fleet
	index   int
	surface atomic.Pointer[surface]
	fault   atomic.Pointer[trouble] // nil for none
	rotated atomic.Uint32           // how often credentials were replaced
	valid   atomic.Pointer[string]  // the token, once it was asked for

	mu        sync.Mutex
	objects   []*object     // in the order of their keys; guarded by mu, as all that follows
	log       []event       // the newest changes, for watches
	logged    time.Time     // when the last of them was
	forgotten uint32        // version of the newest change that is no longer in log
	version   uint32        // of the last change
	changed   chan struct{} // closed at the next change; nil if nobody waits
	tasks     []dueTask     // what its controllers will do, and when
	wakeAt    time.Time     // when agenda has it; zero if it has not
	connected []*connection // open connections
	port      *ownPort      // with Options.OwnPorts

	counts counters
}

// Name is unique in the fleet, and the same for the same index.
func (c *Cluster) Name() string { return fmt.Sprintf("runtime-%05d", c.index) }

// Index is its place in the fleet, from 0.
func (c *Cluster) Index() int { return c.index }

// URL is the address of its API server.
func (c *Cluster) URL() string { return "https://" + c.address() }

// token returns the bearer token that is valid now.
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

// Kubeconfig returns access with all rights, by a bearer token that is valid until Rotate.
func (c *Cluster) Kubeconfig() []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: %[1]s
contexts: [{name: %[1]s, context: {cluster: %[1]s, user: %[1]s}}]
clusters: [{name: %[1]s, cluster: {server: %[2]q, certificate-authority-data: %[3]s}}]
users: [{name: %[1]s, user: {token: %[4]s}}]
`, c.Name(), c.URL(), c.fleet.network.authority, c.token())
}

// Rotate replaces the credentials. Requests with the old ones get 401 from now on, on open connections too; watches go
// on. Kubeconfig returns the new ones.
func (c *Cluster) Rotate() {
	c.rotated.Add(1)
	c.valid.Store(nil)
}

var errListen = errors.New("no address is left")

// address returns host and port.
func (c *Cluster) address() string {
	if c.port != nil {
		return c.port.address
	}
	return net.JoinHostPort(addressOf(c.index), c.fleet.network.port)
}

// addressOf returns the address of 127.0.0.0/8 that a cluster has: 127.16.0.1 for the first one.
func addressOf(index int) string {
	n := 16<<16 + index + 1
	return fmt.Sprintf("127.%d.%d.%d", n>>16, n>>8&255, n&255)
}

// indexOf is the reverse of addressOf; it is negative for other addresses.
func indexOf(ip net.IP) int {
	four := ip.To4()
	if four == nil || four[0] != 127 {
		return -1
	}
	return int(four[1])<<16 + int(four[2])<<8 + int(four[3]) - 16<<16 - 1
}
