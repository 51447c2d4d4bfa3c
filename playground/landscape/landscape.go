// Package landscape starts everything that a fleet needs on one machine: a control plane, runtimes, a registry with the
// sample module, and the manager as a process with the rights of its own service account.
//
// # Use
//
//	l, err := landscape.Up(ctx, landscape.Options{Dir: "…", Bin: "bin", Runtimes: []string{"runtime-a"}})
//	defer l.CloseAndRemoveDir()
//	err = l.PushAndCreateModuleTemplate(ctx, module) // artefact and ModuleTemplate
//	err = l.Register(ctx, "runtime-a", "regular")    // access Secret and Kyma
//
// # How it works
//
// Package cluster runs the clusters. The registry is that of go-containerregistry, in memory, over HTTP on loopback.
// The manager gets its RBAC roles from the folder deploy, so each test shows that these roles are sufficient. A chart
// repository of our own serves charts. Faults can be injected: a registry or chart repository that fails, serves wrong
// data or requires a login, and any access Secret. API servers can fail for a certain request, webhooks can refuse or
// hang, and the manager can be killed. CloseAndRemoveDir stops and removes everything.
//
// # What it does not do
//
// The package never waits for a module; its callers have to wait.
package landscape

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// ControlPlane is the name of the cluster that the manager runs on.
const ControlPlane = "control-plane"

// ManagerImage is the image of the manager in pods, without tag.
const ManagerImage = "registry.example.com/team/lifecycle-manager"

// Options configure a Landscape.
type Options struct {
	// Dir is the folder for kubeconfigs, logs and data. Up creates the folder, and CloseAndRemoveDir removes it.
	Dir string
	// Bin is the folder with the binaries lifecycle-manager, runtime-watcher and sample-operator.
	Bin string
	// Runtimes are the names of the runtimes. Leave it empty with InCluster.
	Runtimes []string
	// InCluster runs the manager in in-cluster mode: the Kyma and its modules are on the control plane itself.
	InCluster bool
	// Deployed means that the caller deploys the CRDs, the roles and the manager. The manager then runs in pods with
	// ManagerImage.
	Deployed bool
	// Ingress starts the ingress gateway of a service mesh in front of the listener. Agents send their reports to this
	// gateway. The gateway routes requests by the VirtualServices in the control plane.
	Ingress bool
	// NoLeaderElection starts each manager without leader election. Without leader election, a manager does not end
	// if it gets no processor time until its Lease expires. Only one manager may then run on a control plane at a time.
	// By default, managers elect a leader, and their Leases last so long that they keep them on a busy machine.
	NoLeaderElection bool
	// LongTimeouts starts each manager with long timeouts of requests to runtimes and of renderings. With the default
	// timeouts, a runtime that is only slow on a busy machine counts as unreachable, and a slow rendering counts as
	// failed. A test of these timeouts sets them by ManagerArgs.
	LongTimeouts bool
	// ManagerArgs are additional flags of the manager. They override the flags that Up sets.
	ManagerArgs []string
	// ManagerEnv are additional environment variables of the manager, in the form NAME=VALUE.
	ManagerEnv []string
	// Say is called with a message about each step. nil discards the messages.
	Say func(format string, args ...any)
	// Host runs the clusters. If Host is nil, Up opens a host in Dir, and CloseAndRemoveDir closes this host. The
	// caller can also open a host with OpenHost. Such a host must be new or reset. CloseAndRemoveDir does not close a
	// host that the caller opened, and does not change its clusters.
	Host *cluster.Host
}

// Landscape is a running landscape.
type Landscape struct {
	Options
	// Clusters has the clusters by name.
	Clusters map[string]*cluster.Cluster
	// Clients has a client with all permissions for each cluster, by the name of the cluster.
	Clients map[string]client.WithWatch
	// Registry is the registry for modules. RegistryHost is the address of the registry for the manager.
	// LockedRegistryHost is another address of the same registry, which requires the user name LoginUser and the
	// password LoginPassword. RegistryHost and LockedRegistryHost begin with http://.
	Registry                         *registry.Registry
	RegistryHost, LockedRegistryHost string
	// ChartsURL is the URL of a chart repository. LockedChartsURL is another URL of the same chart repository, which
	// requires LoginUser and LoginPassword.
	ChartsURL, LockedChartsURL string
	// Manager is the process of the manager.
	Manager *Process
	// HealthAddress and MetricsAddress are the addresses of the manager on the loopback interface.
	HealthAddress, MetricsAddress string
	// ListenerAddress is the address to which agents send their reports, if there are agents. ListenerAddress is the
	// address of a relay to the listener of the most recently started replica.
	ListenerAddress string
	// Replica is the process of a second replica of the manager; nil if there is none.
	Replica *Process

	ownsHost    bool               // CloseAndRemoveDir closes the host
	servers     []*httptest.Server // servers of registry, charts and gates
	images      front              // proxy in front of the registry
	charts      *chartRepository   // the chart repository
	chartsFront front              // proxy in front of the chart repository
	gates       map[string]*Gate   // the key is the name of the cluster
	relay       *relay             // in front of the listeners; nil without agents
	ingress     *ingress           // nil without Options.Ingress
	granted     []string           // the chart values from which the permissions of the manager were rendered
	metrics     *http.Client       // has the token for the metrics endpoint; created at the first use
}

// Namespace returns the namespace of Kymas, templates and Secrets.
func (l *Landscape) Namespace() string {
	if l.InCluster {
		return v1beta2.RuntimeNamespace
	}
	return v1beta2.ControlPlaneNamespace
}

// Up starts a landscape.
func Up(ctx context.Context, o Options) (_ *Landscape, err error) {
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	l := &Landscape{Options: o, Clusters: map[string]*cluster.Cluster{}, Clients: map[string]client.WithWatch{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.CloseAndRemoveDir())
		}
	}()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return l, fmt.Errorf("making the folder of the landscape: %w", err)
	}
	if err := l.startRegistry(); err != nil {
		return l, err
	}
	l.startCharts()
	if o.Ingress {
		if err := l.startIngress(); err != nil {
			return l, err
		}
	}
	bin, err := filepath.Abs(o.Bin)
	if err != nil {
		return l, fmt.Errorf("finding the binaries: %w", err)
	}
	l.Bin = bin
	if l.Host == nil {
		l.ownsHost = true
		if l.Host, err = OpenHost(ctx, bin, cluster.Options{Dir: filepath.Join(o.Dir, "data")}); err != nil {
			return l, err
		}
	}
	for _, name := range append([]string{ControlPlane}, o.Runtimes...) {
		if err := l.startClusterAndClient(ctx, name); err != nil {
			return l, err
		}
	}
	if o.Deployed {
		return l, nil
	}
	if err := l.installCRDsAndPermissions(ctx); err != nil {
		return l, err
	}
	return l, l.StartManagerWithoutWait(ctx)
}

// OpenHost opens a host for landscapes. The processes of its pods are the binaries in the folder bin.
func OpenHost(ctx context.Context, bin string, o cluster.Options) (*cluster.Host, error) {
	o.Audit = true
	o.Images = map[string]cluster.Image{
		"sample-operator": {Command: filepath.Join(bin, "sample-operator")},
		"runtime-watcher": {Command: filepath.Join(bin, "runtime-watcher")},
		ManagerImage:      {Command: filepath.Join(bin, "lifecycle-manager")},
	}
	return cluster.Open(ctx, o)
}

// CloseAndRemoveDir stops all parts that were started and removes all files that were created.
func (l *Landscape) CloseAndRemoveDir() error {
	var errs []error
	for _, p := range []*Process{l.Manager, l.Replica} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	if l.relay != nil {
		l.relay.close()
	}
	if l.Host != nil && l.ownsHost {
		errs = append(errs, l.Host.Close())
	}
	if l.metrics != nil {
		l.metrics.CloseIdleConnections()
	}
	for _, server := range l.servers {
		server.CloseClientConnections() // some connections wait for a peer that has ended
		server.Close()
	}
	return errors.Join(append(errs, os.RemoveAll(l.Dir))...)
}

// startClusterAndClient starts one cluster and writes its kubeconfig.
func (l *Landscape) startClusterAndClient(ctx context.Context, name string) error {
	begin := time.Now()
	c, err := l.Host.Start(ctx, name)
	if err != nil {
		return err
	}
	l.Clusters[name] = c
	if err := os.WriteFile(l.KubeconfigPath(name), c.Kubeconfig(), 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", name, err)
	}
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1beta2.AddToScheme(s)); err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	cfg := rest.CopyConfig(c.Config())
	cfg.QPS, cfg.UserAgent = -1, "landscape"
	if l.Clients[name], err = client.NewWithWatch(cfg, client.Options{Scheme: s}); err != nil {
		return fmt.Errorf("connecting to %s: %w", name, err)
	}
	l.Say("%-14s %s  Kubernetes %s, ready after %.1f s", name, c.ServerURL(), c.Version(), time.Since(begin).Seconds())
	return nil
}

// KubeconfigPath returns the path of the kubeconfig of a cluster.
func (l *Landscape) KubeconfigPath(name string) string {
	return filepath.Join(l.Dir, name+".kubeconfig")
}

// StartManagerWithoutWait starts the manager as a process with the permissions of its service account. Agents send
// their reports to the manager that StartManagerWithoutWait has started.
func (l *Landscape) StartManagerWithoutWait(ctx context.Context) error {
	var err error
	if l.HealthAddress, err = cluster.FreeAddress(); err != nil {
		return err
	}
	if l.MetricsAddress, err = cluster.FreeAddress(); err != nil {
		return err
	}
	l.Manager, err = l.startManagerWithNewToken(ctx, "manager", l.HealthAddress, l.MetricsAddress)
	return err
}

// StartReplica starts another replica of the manager. The new replica becomes the leader when the first replica ends.
// Agents send their reports to the started replica immediately.
func (l *Landscape) StartReplica(ctx context.Context) error {
	health, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	l.Replica, err = l.startManagerWithNewToken(ctx, "replica", health, "0")
	return err
}

// StartManagerAgain starts the manager again after its end, with the login and the addresses of the previous process.
// StartManagerAgain sends no request to the control plane, so it also works during an outage of the control plane.
func (l *Landscape) StartManagerAgain() error {
	p, err := l.startManagerProcess("manager", l.HealthAddress, l.MetricsAddress)
	if err == nil {
		l.Manager = p
	}
	return err
}

// startManagerWithNewToken starts a process of the manager with a login of its own.
func (l *Landscape) startManagerWithNewToken(ctx context.Context, name, healthAddress, metricsAddress string) (
	*Process, error) {
	if err := l.applyManagerPermissions(ctx); err != nil {
		return nil, err
	}
	kubeconfig, err := l.Clusters[ControlPlane].TokenKubeconfig(ctx, l.Namespace(), "lifecycle-manager")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(l.KubeconfigPath(name), kubeconfig, 0o600); err != nil {
		return nil, fmt.Errorf("writing the manager's kubeconfig: %w", err)
	}
	return l.startManagerProcess(name, healthAddress, metricsAddress)
}

// startManagerProcess starts a process of the manager and connects the relay for agents with it.
func (l *Landscape) startManagerProcess(name, health, metrics string) (*Process, error) {
	args := []string{
		"--kubeconfig=" + l.KubeconfigPath(name), "--oci-registry-host=" + l.RegistryHost,
		"--health-probe-bind-address=" + health, "--metrics-bind-address=" + metrics,
		"--egress-allow=127.0.0.0/8", // for the chart repository and other servers of scenarios
		// On a busy machine, a manager may get no processor time for longer than the default renew deadline of 10 s.
		"--leader-election-lease-duration=90s", "--leader-election-renew-deadline=80s",
	}
	if l.NoLeaderElection {
		args = append(args, "--leader-elect=false")
	}
	if l.LongTimeouts {
		args = append(args, "--runtime-timeout=10m", "--render-timeout=10m")
	}
	if l.InCluster {
		args = append(args, "--mode=in-cluster")
	}
	if slices.Contains(l.ManagerArgs, "--watch-mode=agent") {
		more, err := l.redirectAgents()
		if err != nil {
			return nil, err
		}
		args = append(args, more...)
	}
	if slices.Contains(l.ManagerArgs, "--enable-webhooks") { // the manager is a process: there is no Service
		address, err := cluster.FreeAddress()
		if err != nil {
			return nil, err
		}
		args = append(args, "--webhook-bind-address="+address, "--webhook-url=https://"+address+"/convert")
	}
	//nolint:gosec // the name is one of ours
	logs, err := os.OpenFile(filepath.Join(l.Dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the manager's log: %w", err)
	}
	process, err := start(filepath.Join(l.Bin, "lifecycle-manager"), append(args, l.ManagerArgs...), l.ManagerEnv, logs)
	if err != nil {
		return nil, err
	}
	l.Say("%-14s process %d, log %s", name, process.PID(), logs.Name())
	return process, nil
}

// redirectAgents prepares an address for the listener of the next process of the manager, and returns the flags for it.
// Without an ingress, redirectAgents also makes the relay for agents forward to this address.
func (l *Landscape) redirectAgents() ([]string, error) {
	if g := l.ingress; g != nil {
		return []string{
			"--listener-address=" + l.ListenerAddress, "--listener-bind-address=0",
			"--kyma-skr-listener-bind-address=" + g.behind, "--listener-forwarded-from=127.0.0.1/32",
		}, nil
	}
	listener, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	if err := l.ensureAgentRelay(); err != nil {
		return nil, err
	}
	l.relay.redirect(listener)
	return []string{"--listener-address=" + l.ListenerAddress, "--listener-bind-address=" + listener}, nil
}
