package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// Marker is the name of a file that marks a folder as the folder of a host. A lock on the marker file prevents a second
// host from using the folder.
const Marker = ".playground"

// maxSocketPath is the maximum length of the path of a Unix socket, with some reserve.
const maxSocketPath = 100

const (
	firstSubnet = 128 // pods have 10.128.0.0 to 10.255.255.253; each cluster has its own second octet
	subnets     = 128
	subnetPort  = 10250 // port of the socket that reserves a subnet
)

// Options configure a Host. The zero value is ready for use.
type Options struct {
	// Dir is the folder for data, certificates and logs. Dir is created if it does not exist. An existing folder must
	// be empty or the folder of a Host. Only one Host at a time can use a folder. The data in the folder is kept over
	// restarts. If Dir is empty, the Host uses a temporary folder, and Close removes this folder.
	Dir string
	// Images selects the pods that run as local processes. The key of Images is an image repository without tag and
	// digest, as in "example.com/team/operator". Pods with any other image are simulated.
	Images map[string]Image
	// Audit enables the recording of every request at the API servers, for Cluster.Requests.
	Audit bool
	// Bare starts clusters without controllers, scheduler, node and proxy. Clients connect to the API server directly,
	// so Cut and Slow have no effect. The etcd of a bare host may grow to 16 GiB. Use Bare for measurements in which no
	// other component should use processor time.
	Bare bool
	// Reusable makes Host.Reset possible: the host stores the state of each cluster after its first start.
	Reusable bool
	// Log receives the log of the servers. The default is the file servers.log in Dir. Kubernetes has one log for the
	// whole process.
	Log io.Writer
}

// Image describes how a container with this image runs as a local process.
type Image struct {
	// Command is the path of the executable. Command replaces the entry point of the image and the first element of the
	// command of a container.
	Command string
	// Args are arguments that are inserted before the arguments in the spec of the container.
	Args []string
	// Env is added to the environment as NAME=value. Variables in the spec of the pod have precedence.
	Env []string
}

// Host runs several clusters with one etcd in this process. Several goroutines may call the methods of a Host at the
// same time.
type Host struct {
	options Options
	dir     string
	lock    *os.File  // holds the marker's lock while the host is open
	log     io.Writer // receives the log of the servers
	logFile *os.File  // the file behind log, if the host has opened it
	etcd    *embed.Etcd
	etcdURL string
	sockets string // short private folder for Unix sockets
	bridge  *bridge
	forks   *forker
	life    context.Context // ends with Close
	end     context.CancelFunc

	mu       sync.Mutex // guards what follows
	clusters map[string]*Cluster
	closed   bool
}

// Open creates or opens the folder and starts etcd. The context limits only the start. The Host runs until Close.
//
// Open returns an error if Dir contains files that are not from a Host, if another Host uses Dir, or if the command of
// an image is not an executable file.
func Open(ctx context.Context, options Options) (_ *Host, err error) {
	for repository, image := range options.Images {
		if info, err := os.Stat(image.Command); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return nil, fmt.Errorf(
				"opening host: image %q: %q is not an executable file: build it, or correct the path", repository,
				image.Command)
		}
	}
	h := &Host{options: options, clusters: map[string]*Cluster{}}
	h.life, h.end = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if err := h.createAndLockDir(); err != nil {
		return nil, err
	}
	if h.log = options.Log; h.log == nil {
		if h.logFile, err = os.OpenFile(filepath.Join(h.dir, "servers.log"),
			os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err != nil {
			return nil, fmt.Errorf("opening the servers' log: %w", err)
		}
		h.log = h.logFile
	}
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(h.log))))
	// This function is called when an API server has failed and ends the process of the Host. The function prints the
	// end of the server's log, because the log file may be removed soon.
	klog.OsExit = func(code int) {
		fmt.Fprintln(os.Stderr, "playground: an API server gave up; the end of its log:\n"+h.serversLogTail())
		os.Exit(code)
	}
	if h.sockets, err = os.MkdirTemp("", "playground-"); err != nil {
		return nil, fmt.Errorf("making a folder for sockets: %w", err)
	}
	if len(h.sockets) > maxSocketPath-len("/etcd.sock") {
		return nil, fmt.Errorf("making a socket in %q: the path is too long: set TMPDIR to a short one", h.sockets)
	}
	if err := h.startEtcd(ctx); err != nil {
		return nil, err
	}
	if h.bridge, err = startAPIServerEgressProxy(ctx, h.sockets); err != nil {
		return nil, err
	}
	h.forks = newForker()
	return h, nil
}

// createAndLockDir creates the folder and locks its Marker.
func (h *Host) createAndLockDir() (err error) {
	if h.options.Dir == "" {
		h.dir, err = os.MkdirTemp("", "playground-")
	} else {
		h.dir, err = createOrCheckHostDir(h.options.Dir)
	}
	if err != nil {
		return fmt.Errorf("opening folder %q: %w", h.options.Dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(h.dir, Marker), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening folder %q: %w", h.dir, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf(
			"opening folder %q: another playground uses it: stop that one, or name another folder", h.dir),
			lock.Close())
	}
	h.lock = lock
	return nil
}

// createOrCheckHostDir creates the folder, or checks that an existing folder is the folder of a host.
// createOrCheckHostDir returns the absolute path.
func createOrCheckHostDir(path string) (string, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == Marker }) {
		return "", errors.New("it is not empty and was not made by a playground: name an empty or a new one")
	}
	return dir, nil
}

// serversLogTail returns the last kilobytes of the log of the servers, if the host has opened the log file.
func (h *Host) serversLogTail() string {
	if h.logFile == nil {
		return "it was given to Options.Log"
	}
	data, err := os.ReadFile(h.logFile.Name())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4096):])
}

// startEtcd starts the etcd server of the host. startEtcd listens only on a Unix socket in a private folder. startEtcd
// does not wait until data is on the disk, so its data survives the end of the process, but not a crash of the machine.
func (h *Host) startEtcd(ctx context.Context) error {
	config := embed.NewConfig()
	config.Dir = filepath.Join(h.dir, "etcd")
	config.UnsafeNoFsync = true
	if h.options.Bare {
		config.QuotaBackendBytes = 16 << 30
	}
	config.ListenPeerUrls = nil
	socket := filepath.Join(h.sockets, "etcd.sock")
	h.etcdURL = "unix://" + socket
	config.ListenClientUrls = config.ListenClientUrls[:1]
	config.ListenClientUrls[0].Scheme, config.ListenClientUrls[0].Host, config.ListenClientUrls[0].Path = "unix", "",
		socket
	config.AdvertiseClientUrls = config.ListenClientUrls
	encoder := zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig())
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(
		zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(h.log)), zap.WarnLevel)))
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("starting etcd in %q: %w", config.Dir, err)
	}
	h.etcd = etcd
	select {
	case <-etcd.Server.ReadyNotify():
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("starting etcd in %q: %w", config.Dir, err)
	case <-ctx.Done():
		return fmt.Errorf("starting etcd in %q: %w", config.Dir, ctx.Err())
	}
}

// Start creates and starts the cluster with this name. If the cluster exists but does not run, Start starts it again
// with its data and its address. If the cluster runs already, Start only returns it.
//
// Start returns when the cluster is ready: its API server, controllers and scheduler run, its node is Ready, and the
// default ServiceAccount exists. The context limits only the start. The cluster runs until Stop or Close.
func (h *Host) Start(ctx context.Context, name string) (*Cluster, error) {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return nil, fmt.Errorf("starting cluster %q: a name is 1 to 63 lower case letters, digits and hyphens: %s",
			name, strings.Join(problems, ", "))
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, fmt.Errorf("starting cluster %q: the host is closed", name)
	}
	c := h.clusters[name]
	if c == nil {
		c = &Cluster{host: h, name: name, dir: filepath.Join(h.dir, "clusters", name)}
		if h.options.Audit {
			c.audit = &auditLog{}
		}
		h.clusters[name] = c
	}
	h.mu.Unlock()
	if err := c.ensureStarted(ctx); err != nil {
		return nil, fmt.Errorf("starting cluster %q: %w", name, err)
	}
	return c, nil
}

// starting is locked while an API server starts. An API server uses two processors while it starts, and ends the
// process if it is not ready within half a minute. Therefore only one API server may start at a time.
var starting = make(chan struct{}, 1)

// startLock is the name of a file in the folder for temporary files. Its lock is starting for all processes of a user
// on the machine, because the tests of several packages run at the same time.
const startLock = "playground-start.lock"

// awaitTurnToStart waits until no other API server starts, and returns the function that lets the next one start.
func awaitTurnToStart(ctx context.Context) (done func(), err error) {
	select {
	case starting <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the start of another API server: %w", ctx.Err())
	}
	file, err := os.OpenFile(filepath.Join(os.TempDir(), startLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil { // another user has created the file: only the API servers of this process start one by one
		return func() { <-starting }, nil
	}
	done = func() {
		_ = file.Close() // releases the lock
		<-starting
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return done, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return done, nil // a file system without locks: as above
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			done()
			return nil, fmt.Errorf("waiting for the start of an API server of another process: %w", ctx.Err())
		}
	}
}

// Close stops all clusters and etcd. Close returns when all processes and listeners have ended. If Dir was empty, all
// files are removed, too. Close may be called more than once.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	clusters := h.clusters
	h.mu.Unlock()

	var problems []error
	var wg sync.WaitGroup
	for _, c := range clusters {
		wg.Go(func() {
			c.stopKeepingAddress()
			c.releaseAddressAndSubnet()
		})
	}
	wg.Wait()
	h.end()
	if h.forks != nil {
		h.forks.close()
	}
	if h.bridge != nil {
		h.bridge.close()
	}
	if h.etcd != nil {
		h.etcd.Close()
	}
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard))))
	if h.logFile != nil {
		problems = append(problems, h.logFile.Close())
	}
	if h.lock != nil {
		problems = append(problems, h.lock.Close())
	}
	if h.sockets != "" {
		problems = append(problems, os.RemoveAll(h.sockets))
	}
	if h.options.Dir == "" && h.dir != "" {
		problems = append(problems, os.RemoveAll(h.dir))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("closing host: %w", err)
	}
	return nil
}

// Names returns the names of all clusters of the host, sorted.
func (h *Host) Names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.clusters))
}

// Dir returns the folder of the host. The logs of pods are in its subfolder "logs".
func (h *Host) Dir() string { return h.dir }

// Cluster is one Kubernetes cluster. Several goroutines may call the methods of a Cluster at the same time.
type Cluster struct {
	host  *Host
	name  string
	dir   string
	audit *auditLog // nil without Options.Audit

	transition sync.Mutex // locked during start, stop and reset, so that they never run at the same time
	origin     *origin    // guarded by transition; nil without Options.Reusable

	mu    sync.Mutex // guards what follows
	proxy *proxy     // set from the first start until the host closes
	pki   *pki       // set as long as proxy
	admin *rest.Config
	run   *running // nil while the cluster is stopped or idle
	idle  *running // an API server without other parts, from a reset to the next start

	subnet int       // second octet of the pods' addresses
	hold   io.Closer // reserves subnet; set as long as proxy
}

// running has the parts of a cluster that exist only while the cluster runs.
type running struct {
	server *apiServer
	stop   context.CancelFunc // stops controllers, scheduler and node; nil while they do not run
	wg     sync.WaitGroup     // waits for the goroutines of these parts
	node   *node
}

// state is the state of a cluster that is kept over a restart of its host.
type state struct {
	Port   int `json:"port"`   // port of the address that clients use
	Subnet int `json:"subnet"` // preferred second octet of the addresses of pods; another one is used if it is taken
}

// ensureStarted starts the cluster unless it runs.
func (c *Cluster) ensureStarted(ctx context.Context) (err error) {
	c.transition.Lock()
	defer c.transition.Unlock()
	c.mu.Lock()
	runs := c.run != nil
	c.mu.Unlock()
	if runs {
		return nil
	}
	kept, err := c.prepareFilesAndAddress(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	run := c.idle
	c.idle = nil
	c.mu.Unlock()
	defer func() {
		if err != nil && run != nil {
			run.stopAll()
		}
	}()
	if run == nil {
		done, err := awaitTurnToStart(ctx)
		if err != nil {
			return err
		}
		server, err := startAPIServer(ctx, c.host.life, c)
		done()
		if err != nil {
			return err
		}
		run = &running{server: server}
	} else if c.audit != nil {
		c.audit.clear()
	}
	if !c.host.options.Bare {
		if err := c.startControllersAndNode(ctx, run, kept.Subnet); err != nil {
			return err
		}
	}
	if c.host.options.Reusable && c.origin == nil {
		if err := c.saveOriginWhenQuiet(ctx, run.server); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run = run
	if c.host.options.Bare {
		c.admin.Host = "https://" + run.server.address
		return nil
	}
	return c.proxy.forwardTo(run.server.address)
}

// startControllersAndNode starts the parts of a cluster other than the API server: controllers, scheduler and node.
func (c *Cluster) startControllersAndNode(ctx context.Context, run *running, subnet int) error {
	var life context.Context
	life, run.stop = context.WithCancel(c.host.life)
	construction.Lock()
	err := startControllers(life, &run.wg, run.server, c.pki)
	if err == nil {
		err = startScheduler(life, &run.wg, run.server)
	}
	construction.Unlock()
	if err != nil {
		return err
	}
	if run.node, err = startNode(ctx, life, c, run.server, subnet); err != nil {
		return err
	}
	return run.server.awaitPodPrerequisites(ctx)
}

// prepareFilesAndAddress creates the folder, the certificates and the address of the cluster once.
func (c *Cluster) prepareFilesAndAddress(ctx context.Context) (state, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kept state
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return kept, fmt.Errorf("making folder %q: %w", c.dir, err)
	}
	path := filepath.Join(c.dir, "cluster.json")
	data, err := os.ReadFile(path) //nolint:gosec // the path is made of our own folder and checked names
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return kept, fmt.Errorf("reading %q: %w", path, err)
	}
	if c.pki == nil {
		if c.pki, err = openPKI(filepath.Join(c.dir, "pki")); err != nil {
			return kept, err
		}
	}
	if c.proxy == nil {
		if c.proxy, err = newProxy(kept.Port); err != nil {
			return kept, err
		}
	}
	if c.admin == nil {
		if c.admin, err = c.pki.config(c.proxy.serverURL(), "playground-admin", "system:masters"); err != nil {
			return kept, err
		}
	}
	if c.hold == nil {
		if kept.Subnet == 0 {
			kept.Subnet = likelySubnet(c.dir)
		}
		if c.subnet, c.hold, err = reservePodSubnet(ctx, kept.Subnet); err != nil {
			return kept, err
		}
	}
	if now := (state{Port: c.proxy.port, Subnet: c.subnet}); kept != now {
		kept = now
		if data, err = json.Marshal(kept); err != nil {
			return kept, fmt.Errorf("encoding %q: %w", path, err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return kept, fmt.Errorf("writing %q: %w", path, err)
		}
	}
	return kept, nil
}

// reservePodSubnet reserves a range of addresses for pods, 10.SUBNET.0.0/16, that no other cluster on this machine
// uses. To reserve the range, reservePodSubnet opens a socket on the loopback address 127.SUBNET.255.254.
// reservePodSubnet tries the value of the parameter preferred first, and then the following ones. reservePodSubnet
// returns SUBNET and the socket; closing the socket releases the range.
func reservePodSubnet(ctx context.Context, preferred int) (int, io.Closer, error) {
	for range subnets {
		conn, err := new(net.ListenConfig).ListenPacket(
			ctx, "udp4", fmt.Sprintf("127.%d.255.254:%d", preferred, subnetPort))
		if err == nil {
			return preferred, conn, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, nil, fmt.Errorf("reserving addresses for pods: %w", err)
		}
		preferred = firstSubnet + (preferred+1-firstSubnet)%subnets
	}
	return 0, nil, fmt.Errorf(
		"reserving addresses for pods: the %d ranges are all taken by clusters on this machine: stop some", subnets)
}

// likelySubnet returns the subnet at which the search for a cluster begins. likelySubnet differs between clusters, so
// that a cluster that starts again usually finds its previous subnet free.
func likelySubnet(dir string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(dir))
	return firstSubnet + int(hash.Sum32()%subnets)
}

// Stop stops the cluster: the processes of its pods, node, scheduler, controllers and API server. Connections are then
// refused. The data and the address of the cluster are kept for the next Start. If the cluster is already stopped, Stop
// does nothing. If the context ends first, Stop returns the error of the context, and the cluster continues to stop.
func (c *Cluster) Stop(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.stopKeepingAddress()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping cluster %q: %w", c.name, ctx.Err())
	}
}

// Start starts the cluster again after Stop. Cluster.Start does the same as Host.Start with the name of the cluster.
func (c *Cluster) Start(ctx context.Context) error {
	_, err := c.host.Start(ctx, c.name)
	return err
}

// stopKeepingAddress stops the parts of the cluster, from the pods to the API server.
func (c *Cluster) stopKeepingAddress() {
	c.transition.Lock()
	defer c.transition.Unlock()
	c.mu.Lock()
	run := cmp.Or(c.run, c.idle)
	c.run, c.idle = nil, nil
	c.mu.Unlock()
	if run == nil {
		return
	}
	c.proxy.stopForwarding()
	run.stopAll()
}

// stopAll stops all parts that run. stopAll is also used after a start that has failed before its end.
func (r *running) stopAll() {
	r.stopControllersAndNode()
	r.server.stop()
}

// stopControllersAndNode stops all parts that run, except the API server.
func (r *running) stopControllersAndNode() {
	if r.node != nil {
		r.node.shutDown()
		r.node = nil
	}
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
	r.wg.Wait()
}

// releaseAddressAndSubnet releases the address of the cluster and the addresses of its pods when the host closes.
func (c *Cluster) releaseAddressAndSubnet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proxy != nil {
		c.proxy.release()
	}
	if c.hold != nil {
		_ = c.hold.Close()
	}
}

// Name returns the name that was the argument of Host.Start.
func (c *Cluster) Name() string { return c.name }

// ServerURL returns the URL of the API server. The address of a cluster stays the same over restarts, unless the host
// is bare.
func (c *Cluster) ServerURL() string { return c.Config().Host }

// Version returns the version of Kubernetes that the cluster serves, as in "v1.37.1".
func (c *Cluster) Version() string { return kubernetesVersion() }

// Config returns a client configuration with all permissions. The user of the returned configuration is
// "playground-admin". Each call returns a copy.
func (c *Cluster) Config() *rest.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rest.CopyConfig(c.admin)
}

// Kubeconfig returns Config as a kubeconfig. The kubeconfig embeds all data, and verifies the certificate of the
// server.
func (c *Cluster) Kubeconfig() []byte { return kubeconfig(c.name, c.Config(), "") }

// AdminKubeconfigAs returns a kubeconfig with all permissions for another user, so that Requests shows which client has
// sent a request.
func (c *Cluster) AdminKubeconfigAs(user string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, err := c.pki.config(c.proxy.serverURL(), user, "system:masters")
	if err != nil {
		return nil, fmt.Errorf("making a kubeconfig for user %s of cluster %s: %w", user, c.name, err)
	}
	return kubeconfig(c.name, config, ""), nil
}

// TokenKubeconfig returns a kubeconfig for a ServiceAccount. The token in the kubeconfig is from the API server and is
// valid for a year.
func (c *Cluster) TokenKubeconfig(ctx context.Context, namespace, serviceAccount string) ([]byte, error) {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, fmt.Errorf("requesting a token for %s/%s: %w", namespace, serviceAccount, err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(
		int64(365 * 24 * 3600))}}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount,
		request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token for %s/%s: %w", namespace, serviceAccount, err)
	}
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = token.Status.Token
	return kubeconfig(c.name, config, namespace), nil
}

// Cut interrupts the connections between clients and the API server in the given way until Mend or the next Start. The
// cluster itself continues to work, because its controllers and pods do not connect through the proxy.
func (c *Cluster) Cut(how Cut) { c.proxy.cut(how) }

// Mend ends the effects of Cut and Slow.
func (c *Cluster) Mend() { c.proxy.mend() }

// Slow delays every chunk of data between clients and the API server by the duration perChunk, in both directions,
// until Mend is called. 0 means no delay.
func (c *Cluster) Slow(perChunk time.Duration) { c.proxy.slow(perChunk) }
