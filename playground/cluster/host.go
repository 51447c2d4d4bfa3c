package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
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

// Marker is the name of the file that says that a folder is a host's, and the lock that keeps a second host out of it.
const Marker = ".playground"

// maxSocketPath is what fits into the address of a Unix socket, with some room.
const maxSocketPath = 100

const (
	firstSubnet = 128 // pods have 10.128.0.0 to 10.255.255.253, a second octet for each cluster
	subnets     = 128
	subnetPort  = 10250 // of the socket that holds a subnet
)

// Options say where a Host keeps its files and how its pods run. The zero value is useful.
type Options struct {
	// Dir is the folder for data, certificates and logs. It is created if needed, must be empty or a Host's, and
	// belongs to one Host at a time. Its data is kept over restarts. Empty means a temporary folder that Close removes.
	Dir string
	// Images says which pods run as local processes, by image repository without tag and digest, as in
	// "example.com/team/operator". Pods with any other image are simulated.
	Images map[string]Image
	// Audit records every request at the API servers, for Cluster.Requests.
	Audit bool
	// Bare leaves clusters without controllers, scheduler and node, and without the proxy: clients reach the API server
	// itself, so Cut and Slow do nothing. Its etcd may grow to 16 GiB. It is for measuring, where nothing else should
	// cost processor time.
	Bare bool
	// Log is where the servers' own log goes. Default: the file servers.log in Dir. The log of Kubernetes is one for
	// the whole process.
	Log io.Writer
}

// Image says how a pod's container with this image runs as a local process.
type Image struct {
	// Command is the path of the executable; it stands for the image's entry point and for the first element of a
	// container's command.
	Command string
	// Args come before the arguments that the pod gives.
	Args []string
	// Env is added to the environment as NAME=value; what the pod sets wins.
	Env []string
}

// Host is one process that serves several clusters from one etcd. Its methods may be called concurrently.
type Host struct {
	options Options
	dir     string
	lock    *os.File  // holds the marker's lock while the host is open
	log     io.Writer // where the servers log
	logFile *os.File  // log, if it is ours
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

// Open makes or opens the folder and starts etcd. The context bounds the start only; the Host runs until Close.
//
// It fails if Dir holds foreign files, if another Host uses it, or if an image's command is not an executable file.
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
	if err := h.claim(); err != nil {
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
	// a server gave up, which ends the process: say why, for its log may be gone a moment later
	klog.OsExit = func(code int) {
		fmt.Fprintln(os.Stderr, "playground: an API server gave up; the end of its log:\n"+h.logTail())
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
	if h.bridge, err = newBridge(ctx, h.sockets); err != nil {
		return nil, err
	}
	h.forks = newForker()
	return h, nil
}

// claim makes the folder and takes its lock.
func (h *Host) claim() (err error) {
	if h.options.Dir == "" {
		h.dir, err = os.MkdirTemp("", "playground-")
	} else {
		h.dir, err = prepareDir(h.options.Dir)
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

// prepareDir makes the folder, or checks that one that is there is ours, and returns its absolute path.
func prepareDir(path string) (string, error) {
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

// logTail returns the last kilobytes of the servers' own log, if it is a file of ours.
func (h *Host) logTail() string {
	if h.logFile == nil {
		return "it was given to Options.Log"
	}
	data, err := os.ReadFile(h.logFile.Name())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4096):])
}

// startEtcd starts the one etcd server. It listens on a Unix socket in a private folder and on nothing else, and it
// does not wait for the disk: what it wrote outlives the process, not the machine.
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

// Start creates the cluster with this name, or starts it again with the data and the address that it had, and returns
// when it is ready: its API server, controllers and scheduler run, its node is Ready, and the default ServiceAccount is
// there. Starting a cluster that runs returns it. The context bounds the start only; the cluster runs until Stop or
// Close.
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
	if err := c.start(ctx); err != nil {
		return nil, fmt.Errorf("starting cluster %q: %w", name, err)
	}
	return c, nil
}

// Close stops all clusters and etcd, and returns when no process, no listener and, if Dir was empty, no file is left.
// It may be called more than once.
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
			c.stop()
			c.release()
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

// Dir returns the folder of the host; the logs of pods are in its folder "logs".
func (h *Host) Dir() string { return h.dir }

// Cluster is one Kubernetes cluster. Its methods may be called concurrently.
type Cluster struct {
	host  *Host
	name  string
	dir   string
	audit *auditLog // nil: no audit

	turn sync.Mutex // held by start and stop, so that they take turns

	mu    sync.Mutex // guards what follows
	proxy *proxy     // from the first start until the host closes
	pki   *pki       // as proxy
	admin *rest.Config
	run   *running // nil: stopped

	subnet int       // second octet of the pods' addresses
	hold   io.Closer // holds them, as proxy
}

// running is what exists only while a cluster runs.
type running struct {
	server *apiServer
	stop   context.CancelFunc // stops controllers, scheduler and node
	wg     sync.WaitGroup     // their goroutines
	node   *node
}

// state is what a cluster remembers over a restart of its host.
type state struct {
	Port   int `json:"port"`   // of the address that clients use
	Subnet int `json:"subnet"` // second octet of the pods' addresses, unless another cluster has them now
}

// start brings the cluster up unless it runs.
func (c *Cluster) start(ctx context.Context) (err error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	runs := c.run != nil
	c.mu.Unlock()
	if runs {
		return nil
	}
	kept, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	run := &running{}
	var life context.Context
	life, run.stop = context.WithCancel(c.host.life)
	defer func() {
		if err != nil {
			run.halt()
		}
	}()
	if run.server, err = startAPIServer(ctx, life, c); err != nil {
		return err
	}
	if !c.host.options.Bare {
		if err := c.animate(ctx, life, run, kept.Subnet); err != nil {
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
	return c.proxy.serve(run.server.address)
}

// animate starts what makes a cluster of an API server.
func (c *Cluster) animate(ctx, life context.Context, run *running, subnet int) error {
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
	return run.server.awaitUse(ctx)
}

// prepare makes the cluster's folder, certificates and address, once.
func (c *Cluster) prepare(ctx context.Context) (state, error) {
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
		if c.admin, err = c.pki.config(c.proxy.address(), "playground-admin", "system:masters"); err != nil {
			return kept, err
		}
	}
	if c.hold == nil {
		if kept.Subnet == 0 {
			kept.Subnet = likelySubnet(c.dir)
		}
		if c.subnet, c.hold, err = reserveSubnet(ctx, kept.Subnet); err != nil {
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

// reserveSubnet takes a range of addresses for pods, 10.SUBNET.0.0/16, that no other cluster on this machine has, as
// its holder a socket at the range's end on the loopback side. It begins to look at the given subnet.
func reserveSubnet(ctx context.Context, subnet int) (int, io.Closer, error) {
	for range subnets {
		conn, err := new(net.ListenConfig).ListenPacket(
			ctx, "udp4", fmt.Sprintf("127.%d.255.254:%d", subnet, subnetPort))
		if err == nil {
			return subnet, conn, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, nil, fmt.Errorf("reserving addresses for pods: %w", err)
		}
		subnet = firstSubnet + (subnet+1-firstSubnet)%subnets
	}
	return 0, nil, fmt.Errorf(
		"reserving addresses for pods: the %d ranges are all taken by clusters on this machine: stop some", subnets)
}

// likelySubnet spreads clusters over the subnets, so that one that is started again mostly finds its own free.
func likelySubnet(dir string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(dir))
	return firstSubnet + int(hash.Sum32()%subnets)
}

// Stop shuts the cluster down: its pods' processes, node, scheduler, controllers and API server. Connections are then
// refused. Its data and its address stay for the next Start. Stopping a stopped cluster does nothing. When the context
// ends first, Stop returns its error and the cluster goes on stopping.
func (c *Cluster) Stop(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.stop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping cluster %q: %w", c.name, ctx.Err())
	}
}

// Start starts the cluster again after Stop; it is Host.Start with the cluster's name.
func (c *Cluster) Start(ctx context.Context) error {
	_, err := c.host.Start(ctx, c.name)
	return err
}

// stop takes the cluster down, from the pods to the API server.
func (c *Cluster) stop() {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	run := c.run
	c.run = nil
	c.mu.Unlock()
	if run == nil {
		return
	}
	c.proxy.close()
	run.halt()
}

// halt ends what runs, also after a start that failed half-way.
func (r *running) halt() {
	if r.node != nil {
		r.node.shutDown()
	}
	r.stop()
	r.wg.Wait()
	if r.server != nil {
		r.server.stop()
	}
}

// release gives the cluster's address back, when the host closes.
func (c *Cluster) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proxy != nil {
		c.proxy.release()
	}
	if c.hold != nil {
		_ = c.hold.Close()
	}
}

// Name returns the name given to Host.Start.
func (c *Cluster) Name() string { return c.name }

// Address returns the URL of the API server, which stays the same over restarts, unless the host is bare.
func (c *Cluster) Address() string { return c.Config().Host }

// Version returns the version of Kubernetes that the cluster serves, as in "v1.37.1".
func (c *Cluster) Version() string { return kubernetesVersion() }

// Config returns a configuration for clients with all rights. Each call returns a copy; its user is "playground-admin".
func (c *Cluster) Config() *rest.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rest.CopyConfig(c.admin)
}

// Kubeconfig returns Config as a kubeconfig with everything embedded and the server's certificate verified.
func (c *Cluster) Kubeconfig() []byte { return kubeconfig(c.name, c.Config(), "") }

// TokenKubeconfig returns a kubeconfig for a ServiceAccount, with a token from the API server that is valid for a year.
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

// Cut breaks the connections between clients and the API server, in the given way, until Mend or the next Start. The
// cluster itself goes on: its controllers and its pods do not use this way in.
func (c *Cluster) Cut(how Cut) { c.proxy.cut(how) }

// Mend ends Cut and Slow.
func (c *Cluster) Mend() { c.proxy.mend() }

// Slow delays every chunk of data between clients and the API server by d, in both directions, until Mend; 0 is no
// delay.
func (c *Cluster) Slow(d time.Duration) { c.proxy.slow(d) }
