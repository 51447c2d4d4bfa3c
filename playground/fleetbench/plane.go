package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// rolePlane is the subcommand that runs the control plane, in a separate process.
const rolePlane = "control-plane"

// planeReady is the message that the control plane writes when it is ready. planeReady is the only line of its output.
type planeReady struct {
	Kubeconfig []byte
	Version    string
}

// Settings of the API server that reduce work of its own, which the benchmark should not measure. The API server
// collects garbage less often, as long as there is memory. The API server does not compare its caches with etcd: with
// 50,000 Manifests that would take 45 s of processor time, every 5 to 7.5 minutes.
const (
	collectAt   = 300                 // per cent
	collectFrom = 6 << 30             // bytes; or planeShare, if that is more
	planeShare  = 45                  // per cent of the machine's memory
	checkEvery  = 30 * 24 * time.Hour // longer than any run
)

// servePlane runs the process of the control plane until its input ends. A line of the standard input that contains a
// path starts a processor profile, which is written to the file with this path. An empty line ends the profile.
func servePlane(ctx context.Context, dir string, profilePaths io.Reader, out io.Writer) (err error) {
	debug.SetGCPercent(collectAt)
	debug.SetMemoryLimit(max(collectFrom, thisMachine(time.Now()).Memory/100*planeShare))
	consistency.CheckPeriod = checkEvery
	host, err := cluster.Open(ctx, cluster.Options{Dir: dir, Bare: true})
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	c, err := host.Start(ctx, rolePlane)
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	if err := json.NewEncoder(out).Encode(planeReady{c.Kubeconfig(), c.Version()}); err != nil {
		return fmt.Errorf("saying that the control plane is ready: %w", err)
	}
	for lines := bufio.NewScanner(profilePaths); lines.Scan(); { // until the input is closed
		pprof.StopCPUProfile()
		if lines.Text() != "" {
			if err := startCPUProfile(lines.Text()); err != nil {
				return err
			}
		}
	}
	pprof.StopCPUProfile()
	return nil
}

// startCPUProfile starts a processor profile of this process.
func startCPUProfile(path string) error {
	file, err := os.Create(path) //nolint:gosec // whoever runs the benchmark names the folder
	if err != nil {
		return fmt.Errorf("opening a profile: %w", err)
	}
	// The file is never closed explicitly. The garbage collector closes it when the profile is complete and nothing
	// refers to the file any more.
	if err := pprof.StartCPUProfile(file); err != nil {
		return fmt.Errorf("beginning a profile: %w", err)
	}
	return nil
}

// plane is the control plane: a process with API server and etcd, and clients for it.
type plane struct {
	*child

	stdin   io.WriteCloser
	log     *os.File
	version string
	config  *rest.Config
	client  client.WithWatch
	raw     *rest.RESTClient
	own     *ownRequests
}

// startPlane starts the control plane, and creates our CRDs and roles in it.
func startPlane(ctx context.Context, dir string) (_ *plane, err error) {
	p := &plane{own: &ownRequests{counts: map[string]int{}}}
	//nolint:gosec // the folder is ours
	if p.log, err = os.Create(filepath.Join(dir, "control-plane.log")); err != nil {
		return nil, fmt.Errorf("opening the log of the control plane: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	p.stdin = stdin
	stdout, out := io.Pipe()
	p.child, err = startChild(self, []string{rolePlane, filepath.Join(dir, "data")}, in, out, p.log)
	_ = in.Close() // the child has its own copy
	if err != nil {
		return nil, err
	}
	go func() {
		<-p.done
		_ = out.CloseWithError(fmt.Errorf("the control plane has ended: %w; see %s",
			errors.Join(p.err, io.EOF), p.log.Name()))
	}()
	var ready planeReady
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		return p, fmt.Errorf("waiting for the control plane: %w", err)
	}
	p.version = ready.Version
	if err := p.connect(ready.Kubeconfig); err != nil {
		return p, err
	}
	return p, p.installCRDsAndRoles(ctx)
}

// stopProcessAndCloseLog ends the process.
func (p *plane) stopProcessAndCloseLog() error {
	_ = p.stdin.Close() // the process ends with its input
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("the control plane did not stop in %v", stopTimeout), p.killAndWait())
	}
	return errors.Join(p.err, p.log.Close())
}

// connect makes clients with all rights. Their requests are counted.
func (p *plane) connect(kubeconfig []byte) (err error) {
	if p.config, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig); err != nil {
		return fmt.Errorf("reading the kubeconfig of the control plane: %w", err)
	}
	p.config.QPS, p.config.UserAgent = -1, "fleetbench"
	p.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, p.own} })
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1beta2.AddToScheme(s)); err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	if p.client, err = client.NewWithWatch(p.config, client.Options{Scheme: s}); err != nil {
		return fmt.Errorf("connecting to the control plane: %w", err)
	}
	raw := rest.CopyConfig(p.config)
	raw.NegotiatedSerializer, raw.GroupVersion = scheme.Codecs.WithoutConversion(), &corev1.SchemeGroupVersion
	if p.raw, err = rest.UnversionedRESTClientFor(raw); err != nil {
		return fmt.Errorf("connecting to the control plane: %w", err)
	}
	return nil
}

// installCRDsAndRoles installs our CRDs and the manager's namespace, service account and roles.
func (p *plane) installCRDsAndRoles(ctx context.Context) error {
	var objects []*unstructured.Unstructured
	for _, crd := range crds.All() {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return fmt.Errorf("encoding CRD %s: %w", crd.Name, err)
		}
		unstructured.RemoveNestedField(fields, "status")
		unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
		objects = append(objects, &unstructured.Unstructured{Object: fields})
	}
	roles, err := render.Parse(deploy.ControlPlaneYAML())
	if err != nil {
		return fmt.Errorf("reading the manager's roles: %w", err)
	}
	for _, o := range append(objects, roles...) {
		if o.GetKind() == "Deployment" {
			continue // the manager runs as a process, not as a Deployment
		}
		if err := p.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("fleetbench"),
			client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return poll(ctx, startTimeout, "the control plane to serve our kinds", func() (bool, error) {
		var kymas v1beta2.KymaList
		var watchers v1beta2.WatcherList
		return p.client.List(ctx, &kymas, client.Limit(1)) == nil &&
			p.client.List(ctx, &watchers, client.Limit(1)) == nil, nil
	})
}

// managerKubeconfig returns a kubeconfig with the rights of the manager's service account, for a day.
func (p *plane) managerKubeconfig(ctx context.Context) ([]byte, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1beta2.ControlPlaneNamespace,
		Name: "lifecycle-manager"}}
	day := int64(24 * time.Hour / time.Second)
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}
	if err := p.client.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("asking for a token for the manager: %w", err)
	}
	return encodeKubeconfig(p.config.Host, p.config.CAData, token.Status.Token)
}

// managerRequestCounts returns the API server's counts of requests, by verb and resource, as in "PATCH kymas/status".
// managerRequestCounts includes only kinds that the manager uses. Leases and the requests of the benchmark are left
// out.
func (p *plane) managerRequestCounts(ctx context.Context) (map[string]int, error) {
	text, err := p.raw.Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	counts := map[string]int{}
	for _, s := range parseMetrics(text, "apiserver_request_total") {
		if !strings.HasPrefix(s.labels["group"], v1beta2.GroupVersion.Group) && !coreResources[s.labels["resource"]] {
			continue
		}
		name := s.labels["verb"] + " " + s.labels["resource"]
		if sub := s.labels["subresource"]; sub != "" {
			name += "/" + sub
		}
		counts[name] += int(s.value)
	}
	for name, n := range p.own.read() {
		if counts[name] -= n; counts[name] <= 0 {
			delete(counts, name)
		}
	}
	return counts, nil
}

// coreResources lists the resources that the manager uses in addition to our own.
var coreResources = map[string]bool{"secrets": true, "configmaps": true, "events": true}

// ownRequests counts the requests of the benchmark to the control plane.
type ownRequests struct {
	mu     sync.Mutex
	counts map[string]int // guarded by mu; by verb and resource
}

func (o *ownRequests) add(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[name]++
}

func (o *ownRequests) read() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.counts)
}

// counted is an http.RoundTripper that counts requests.
type counted struct {
	next http.RoundTripper
	own  *ownRequests
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err == nil {
		c.own.add(requestName(r.Method, r.URL.Path, r.Header.Get("Content-Type"), r.URL.Query().Get("watch") != ""))
	}
	return response, err
}

// requestName returns the name of a request in the API server's metrics: verb and resource, with subresource.
func requestName(method, path, contentType string, watch bool) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch { // remove the prefix /api/v1/ or /apis/GROUP/VERSION/
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	verb, named := method, len(parts) > 1
	switch {
	case watch:
		verb = "WATCH"
	case method == http.MethodGet && !named:
		verb = "LIST"
	case method == http.MethodPatch && strings.HasPrefix(contentType, "application/apply-patch"):
		verb = "APPLY"
	}
	name := verb + " " + parts[0]
	if len(parts) > 2 {
		name += "/" + parts[2]
	}
	return name
}

// encodeKubeconfig returns a kubeconfig with a bearer token.
func encodeKubeconfig(host string, authority []byte, token string) ([]byte, error) {
	const name = "control-plane"
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: host, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return data, nil
}
