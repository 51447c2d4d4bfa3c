package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

const (
	issuer       = "https://kubernetes.default.svc.cluster.local" // issuer of ServiceAccount tokens
	serviceRange = "10.96.0.0/16"                                 // addresses of Services; pods have 10.128.0.0/9

	pollInterval    = 20 * time.Millisecond
	maxPollInterval = 150 * time.Millisecond // of a check that reads from the API server or etcd
)

// kubernetesVersion returns the version of the Go module k8s.io/kubernetes in this program, such as "v1.37.1". The
// version package of Kubernetes knows this version only in release builds of Kubernetes. A test binary has no list of
// its Go modules, so kubernetesVersion then returns a version that ends in ".0".
var kubernetesVersion = sync.OnceValue(func() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "k8s.io/kubernetes" {
				return module.Version
			}
		}
	}
	return "v" + version.DefaultKubeBinaryVersion + ".0"
})

// released is an effective version whose Info returns the version of Kubernetes in this program.
type released struct {
	basecompatibility.EffectiveVersion
}

// Info implements basecompatibility.EffectiveVersion. The API server returns the result of Info at the path /version.
func (r released) Info() *apimachineryversion.Info {
	info := *r.EffectiveVersion.Info()
	info.GitVersion = kubernetesVersion()
	parts := strings.SplitN(strings.TrimPrefix(info.GitVersion, "v"), ".", 3)
	if len(parts) == 3 {
		info.Major, info.Minor = parts[0], parts[1]
	}
	info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	return &info
}

// construction is locked while parts of Kubernetes are constructed, because the construction of some parts sets global
// variables of their packages.
var construction sync.Mutex

// apiServer is one running kube-apiserver. As in Kubernetes, the API server is a chain of three servers: the
// aggregator, the core API and the API extensions for CRDs.
type apiServer struct {
	pki       *pki
	address   string // host:port that the server listens on; clients connect through the proxy
	client    kubernetes.Interface
	informers *cache.InformerName
	cancel    context.CancelFunc
	ended     chan struct{} // closed when the server has shut down
	err       error         // error of the shutdown; read only after ended is closed
}

// startAPIServer builds the server, starts it, and returns when the server reports that it is ready. The server runs
// until the context life ends.
func startAPIServer(ctx, life context.Context, c *Cluster) (_ *apiServer, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening a port for the API server: %w", err)
	}
	s := &apiServer{pki: c.pki, address: listener.Addr().String(), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close())
		}
	}()
	if err := errors.Join(c.pki.writeServingCert(), c.pki.writeKubeletClientCert()); err != nil {
		return nil, err
	}

	o := options.NewServerRunOptions()
	o.GenericServerRunOptions.AdvertiseAddress = net.IPv4(127, 0, 0, 1)
	o.Features.EnablePriorityAndFairness = false
	o.SecureServing.Listener = listener
	o.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	o.SecureServing.ExternalAddress = net.IPv4(127, 0, 0, 1)
	o.SecureServing.ServerCert.CertKey.CertFile = c.pki.path("server.crt")
	o.SecureServing.ServerCert.CertKey.KeyFile = c.pki.path("server.key")
	o.Etcd.StorageConfig.Transport.ServerList = []string{c.host.etcdURL}
	o.Etcd.StorageConfig.Prefix = "/" + c.name
	o.Authentication.ClientCert.ClientCA = c.pki.path("ca.crt")
	o.Authentication.ServiceAccounts.Issuers = []string{issuer}
	o.Authentication.ServiceAccounts.KeyFiles = []string{c.pki.path("sa.key")}
	o.ServiceAccountSigningKeyFile = c.pki.path("sa.key")
	o.Authorization.Modes = []string{"RBAC"}
	// Nodes are created without taints, and claims without finalizers, because the playground does not run the
	// controllers that remove these taints and finalizers.
	o.Admission.GenericAdmission.DisablePlugins = []string{"TaintNodesByCondition",
		"StorageObjectInUseProtection", "PodGroupProtection"}
	o.KubeletConfig.PreferredAddressTypes = []string{string(corev1.NodeInternalIP)}
	o.KubeletConfig.TLSClientConfig.CAFile = c.pki.path("ca.crt")
	o.KubeletConfig.TLSClientConfig.CertFile = c.pki.path("kubelet.crt")
	o.KubeletConfig.TLSClientConfig.KeyFile = c.pki.path("kubelet.key")
	// The API server connects to a webhook behind a Service at the address of a pod, through the bridge.
	o.EnableAggregatorRouting = true
	o.EgressSelector.ConfigFile = c.host.bridge.config
	o.Features.EnableProfiling = false
	o.ServiceClusterIPRanges = serviceRange
	o.EndpointReconcilerType = "none" // Kubernetes refuses 127.0.0.1 as an endpoint
	o.AllowPrivileged = true

	life, cancelLife := context.WithCancel(life)
	defer func() {
		if err != nil {
			cancelLife()
		}
	}()
	run, err := s.build(life, c, o)
	if err != nil {
		return nil, fmt.Errorf("setting up the API server: %w", err)
	}
	admin, err := s.adminConfig("kube-apiserver-probe")
	if err != nil {
		return nil, err
	}
	if s.client, err = kubernetes.NewForConfig(admin); err != nil {
		return nil, fmt.Errorf("setting up the API server: %w", err)
	}
	// The server must run longer than its users, so only stop ends it.
	serving, cancel := context.WithCancel(context.WithoutCancel(life))
	s.cancel = func() {
		cancelLife()
		cancel()
	}
	go func() {
		defer close(s.ended)
		s.err = run(serving)
		s.informers.Release()
	}()
	if err := s.awaitReady(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// build constructs the server from its options and returns a function that runs the server.
func (s *apiServer) build(life context.Context, c *Cluster, o *options.ServerRunOptions) (
	run func(context.Context) error, err error) {
	construction.Lock()
	defer construction.Unlock()
	defer func() {
		if err != nil {
			s.informers.Release()
		}
	}()
	completed, err := o.Complete(life)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	if s.informers, err = cache.NewInformerName("kube-apiserver-" + c.dir); err != nil {
		return nil, err
	}
	completed.InformerName = s.informers
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, err
	}
	for _, generic := range []*genericapiserver.Config{
		config.KubeAPIs.ControlPlane.Generic, &config.ApiExtensions.GenericConfig.Config,
		&config.Aggregator.GenericConfig.Config,
	} {
		generic.EffectiveVersion = released{generic.EffectiveVersion}
	}
	if c.audit != nil { // every request passes through the aggregator first
		config.Aggregator.GenericConfig.AuditBackend = c.audit
		config.Aggregator.GenericConfig.AuditPolicyRuleEvaluator = c.audit
	}
	chain, err := config.Complete()
	if err != nil {
		return nil, err
	}
	server, err := app.CreateServerChain(chain)
	if err != nil {
		return nil, err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return nil, err
	}
	return prepared.Run, nil
}

// stop shuts the server down and returns when the shutdown is complete.
func (s *apiServer) stop() {
	s.cancel()
	<-s.ended
}

// ip returns the address that the server listens on.
func (s *apiServer) ip() string { return "127.0.0.1" }

// awaitReady waits until /readyz reports success.
func (s *apiServer) awaitReady(ctx context.Context) error {
	return s.await(ctx, "waiting for the API server", func() error {
		return s.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// awaitPodPrerequisites waits for the objects that must exist before pods can be created: the default ServiceAccount,
// and the ConfigMap with the root certificate of the cluster.
func (s *apiServer) awaitPodPrerequisites(ctx context.Context) error {
	return s.await(ctx, "waiting for the cluster", func() error {
		if _, err := s.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(
			ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := s.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(
			ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}

// await polls until the check succeeds, the server ends, or the context ends. The returned error contains the last
// error of the check.
func (s *apiServer) await(ctx context.Context, what string, check func() error) error {
	for delay := pollInterval; ; delay = min(delay*5/4, maxPollInterval) {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(delay):
		case <-s.ended:
			return fmt.Errorf("%s: it ended: %w (see the servers' log)", what, errors.Join(s.err, err))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}

// adminConfig returns a client configuration with all permissions for the given user. adminConfig connects to the
// server directly instead of through the proxy.
func (s *apiServer) adminConfig(user string) (*rest.Config, error) {
	config, err := s.pki.config("https://"+s.address, user, "system:masters")
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = user
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// protobuf changes the configuration to protobuf encoding, which is cheaper. Only typed clients of built-in kinds can
// use protobuf.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return config
}

// kubeconfig returns a client configuration with certificates or a token as a kubeconfig. The kubeconfig has one
// context with the given name.
func kubeconfig(name string, config *rest.Config, namespace string) []byte {
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
		TokenFile: config.BearerTokenFile,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	file.CurrentContext = name
	data, err := clientcmd.Write(*file)
	if err != nil {
		panic(fmt.Sprintf("encoding a kubeconfig: %v", err)) // encoding of plain data cannot fail
	}
	return data
}

// pki has the keys and certificates of a cluster: an authority for server and client certificates, and the key that
// signs ServiceAccount tokens. The authority and the key are kept in a folder. Certificates are issued at each start.
type pki struct {
	dir    string
	ca     *x509.Certificate
	caPEM  []byte
	caKey  *ecdsa.PrivateKey
	tokens *ecdsa.PrivateKey
}

// openPKI reads the pki from the folder, or creates it.
func openPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making folder %q: %w", dir, err)
	}
	var err error
	if p.caKey, err = p.loadOrCreateKey("ca.key"); err != nil {
		return nil, err
	}
	if p.tokens, err = p.loadOrCreateKey("sa.key"); err != nil {
		return nil, err
	}
	p.caPEM, err = os.ReadFile(p.path("ca.crt"))
	if errors.Is(err, os.ErrNotExist) {
		p.caPEM, err = p.sign(&x509.Certificate{
			Subject: pkix.Name{CommonName: "playground-ca"}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}, p.caKey)
		if err == nil {
			//nolint:gosec // the path is made of our own folder and checked names
			err = os.WriteFile(p.path("ca.crt"), p.caPEM, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	block, _ := pem.Decode(p.caPEM)
	if block == nil {
		return nil, fmt.Errorf("reading %q: no certificate in it: remove the cluster's folder", p.path("ca.crt"))
	}
	if p.ca, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("reading %q: %w", p.path("ca.crt"), err)
	}
	return p, nil
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// loadOrCreateKey reads a private key from the folder, or creates it.
func (p *pki) loadOrCreateKey(name string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(p.path(name))
	if errors.Is(err, os.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err == nil {
			data, err = keyutil.MarshalPrivateKeyToPEM(key)
		}
		if err == nil {
			//nolint:gosec // the path is made of our own folder and checked names
			err = os.WriteFile(p.path(name), data, 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("making key %q: %w", p.path(name), err)
		}
		return key, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading key %q: %w", p.path(name), err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("reading key %q: %w", p.path(name), err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("reading key %q: it is no ECDSA key: remove the cluster's folder", p.path(name))
	}
	return key, nil
}

// sign signs a certificate for the key and returns it as PEM. The certificate of the authority is self-signed.
func (p *pki) sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("signing certificate %q: %w", template.Subject.CommonName, err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(10, 0, 0)
	parent := p.ca
	if template.IsCA {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, p.caKey)
	if err != nil {
		return nil, fmt.Errorf("signing certificate %q: %w", template.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// issue creates a key and a certificate for the key. Both results are PEM.
func (p *pki) issue(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key for %q: %w", template.Subject.CommonName, err)
	}
	if cert, err = p.sign(template, private); err != nil {
		return nil, nil, err
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		return nil, nil, fmt.Errorf("making a key for %q: %w", template.Subject.CommonName, err)
	}
	return cert, key, nil
}

// writeServingCert writes a new serving certificate.
func (p *pki) writeServingCert() error {
	cert, key, err := p.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(p.path("server.crt"), cert, 0o600), os.WriteFile(p.path("server.key"), key, 0o600))
}

// issueFor issues a serving certificate for an address.
func (p *pki) issueFor(name string, ip net.IP) (cert, key []byte, err error) {
	return p.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{ip},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// writeKubeletClientCert writes a new client certificate for requests of the API server to nodes.
func (p *pki) writeKubeletClientCert() error {
	cert, key, err := p.issue(&x509.Certificate{
		Subject:  pkix.Name{CommonName: kubeletUser},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(p.path("kubelet.crt"), cert, 0o600),
		os.WriteFile(p.path("kubelet.key"), key, 0o600))
}

// config returns a client configuration with a new certificate for the user in the group.
func (p *pki) config(address, user, group string) (*rest.Config, error) {
	cert, key, err := p.issue(&x509.Certificate{
		Subject:  pkix.Name{CommonName: user, Organization: []string{group}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: address, TLSClientConfig: rest.TLSClientConfig{CAData: p.caPEM,
		CertData: cert, KeyData: key}}, nil
}
