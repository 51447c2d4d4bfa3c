package landscape

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// forwardedCertificate is the header that carries the client certificate behind an ingress.
const forwardedCertificate = "X-Forwarded-Client-Cert"

// eventsService is the destination of the VirtualService for the manager's own Watcher.
const eventsService = "klm-controller-manager-events.kcp-system.svc.cluster.local:8082"

// ingress has those features of a service mesh's ingress gateway that the manager depends on. ingress terminates TLS
// and verifies client certificates with the roots of the manager. The gateway forwards a request, with the certificate
// in a header, to the destination in the VirtualServices of the control plane. The certificate of the gateway is in a
// Secret that the manager maintains. Services have no address in this landscape, so the backend of each Service is
// registered with the gateway.
type ingress struct {
	land   *Landscape
	server *httptest.Server
	behind string // address on which the manager receives the requests from the gateway

	mu       sync.Mutex // guards what follows
	services map[string]http.Handler
	received map[string][]Received
}

// Received is one request that a component received.
type Received struct {
	// Runtime is the common name of the certificate in the header.
	Runtime string
	// Method and Path are the HTTP method and the path of the request.
	Method, Path string
	// Body is the body of the request.
	Body []byte
}

// startIngress starts the gateway. The gateway reads its certificate at each handshake, because the manager creates the
// certificate later.
func (l *Landscape) startIngress() error {
	behind, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	g := &ingress{land: l, behind: behind, received: map[string][]Received{}}
	manager := &url.URL{Scheme: "http", Host: behind}
	g.services = map[string]http.Handler{
		eventsService: &httputil.ReverseProxy{ErrorLog: discard,
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(manager) }},
	}
	g.server = httptest.NewUnstartedServer(g)
	g.server.Config.ErrorLog = discard
	g.server.EnableHTTP2 = true
	g.server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: g.configure}
	g.server.StartTLS()
	l.servers = append(l.servers, g.server)
	l.ingress, l.ListenerAddress = g, g.server.Listener.Addr().String()
	return nil
}

// configure reads the certificate and the roots from the Secret in the Gateway.
func (g *ingress) configure(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	s, err := g.land.getManagerSecret(hello.Context(), "klm-istio-gateway")
	if err != nil {
		return nil, err
	}
	own, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the ingress gateway: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.Data["ca.crt"]) {
		return nil, fmt.Errorf("reading the roots that the ingress gateway trusts: there are none")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientCAs: roots,
		ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"h2", "http/1.1"},
	}, nil
}

// ServeHTTP forwards a request.
func (g *ingress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	service, err := g.findDestination(r.Context(), r.Host, r.URL.Path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	g.mu.Lock()
	to := g.services[service]
	g.mu.Unlock()
	switch {
	case service == "":
		http.NotFound(w, r)
	case to == nil:
		http.Error(w, "nobody is behind "+service, http.StatusServiceUnavailable)
	default:
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.TLS.PeerCertificates[0].Raw})
		// If the client has sent a header with this name, the gateway replaces it, so that a client cannot name another
		// certificate.
		r.Header.Set(forwardedCertificate, `Cert="`+strings.ReplaceAll(url.QueryEscape(string(text)), "+", "%20")+`"`)
		to.ServeHTTP(w, r)
	}
}

// findDestination returns the destination of a path as host:port, or "" if there is none. findDestination uses the
// current VirtualServices.
func (g *ingress) findDestination(ctx context.Context, host, path string) (string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1",
		Kind: "VirtualServiceList"})
	if err := g.land.Clients[ControlPlane].List(ctx, list); err != nil {
		if meta.IsNoMatchError(err) {
			return "", nil
		}
		return "", fmt.Errorf("listing VirtualServices: %w", err)
	}
	for _, vs := range list.Items {
		hosts, _, _ := unstructured.NestedStringSlice(vs.Object, "spec", "hosts")
		routes, _, _ := unstructured.NestedSlice(vs.Object, "spec", "http")
		if !slices.Contains(hosts, "*") && !slices.Contains(hosts, host) {
			continue
		}
		for _, route := range routes {
			if service := destinationFor(route.(map[string]any), path); service != "" {
				return service, nil
			}
		}
	}
	return "", nil
}

// destinationFor returns the destination of one route of a VirtualService, or "" if the route does not match the path.
func destinationFor(route map[string]any, path string) string {
	matches, _, _ := unstructured.NestedSlice(route, "match")
	fits := slices.ContainsFunc(matches, func(m any) bool {
		prefix, found, _ := unstructured.NestedString(m.(map[string]any), "uri", "prefix")
		return found && strings.HasPrefix(path, prefix)
	})
	destinations, _, _ := unstructured.NestedSlice(route, "route")
	if !fits || len(destinations) != 1 {
		return ""
	}
	host, _, _ := unstructured.NestedString(destinations[0].(map[string]any), "destination", "host")
	port, _, _ := unstructured.NestedInt64(destinations[0].(map[string]any), "destination", "port", "number")
	return fmt.Sprintf("%s:%d", host, port)
}

// AddRecordingService registers a component as the backend of a Service in the namespace of the manager. The component
// records the requests that it receives. The landscape needs Options.Ingress.
func (l *Landscape) AddRecordingService(name string, port int) {
	service := fmt.Sprintf("%s.%s.svc.cluster.local:%d", name, l.Namespace(), port)
	l.ingress.mu.Lock()
	defer l.ingress.mu.Unlock()
	delete(l.ingress.received, name)
	l.ingress.services[service] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		cn, bad := runtimeOfForwardedCert(r.Header.Get(forwardedCertificate))
		if err != nil || bad != nil {
			http.Error(w, fmt.Sprint(err, bad), http.StatusBadRequest)
			return
		}
		l.ingress.mu.Lock()
		defer l.ingress.mu.Unlock()
		l.ingress.received[name] = append(l.ingress.received[name],
			Received{Runtime: cn, Method: r.Method, Path: r.URL.Path, Body: body})
	})
}

// Received returns the requests that the named component has received so far.
func (l *Landscape) Received(name string) []Received {
	l.ingress.mu.Lock()
	defer l.ingress.mu.Unlock()
	return slices.Clone(l.ingress.received[name])
}

// runtimeOfForwardedCert returns the runtime in the header. runtimeOfForwardedCert parses the header like the listener
// of the Kyma project: the certificate follows the first "Cert=", and the common name of the certificate is the
// runtime.
func runtimeOfForwardedCert(header string) (string, error) {
	_, encoded, found := strings.Cut(header, "Cert=")
	if end := strings.IndexAny(encoded, ";,"); end >= 0 {
		encoded = encoded[:end]
	}
	text, err := url.QueryUnescape(encoded)
	if err != nil || !found {
		return "", fmt.Errorf("reading the header %q: there is no certificate in it: %w", header, err)
	}
	block, _ := pem.Decode([]byte(strings.Trim(text, `"`)))
	if block == nil {
		return "", fmt.Errorf("reading the header %q: its certificate is no PEM", header)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("reading the certificate in a header: %w", err)
	}
	return c.Subject.CommonName, nil
}

// authority is the name of the Secret with the manager's roots.
const authority = "klm-watcher"

// getManagerSecret reads a Secret of the manager.
func (l *Landscape) getManagerSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	if err := l.Clients[ControlPlane].Get(ctx, client.ObjectKey{Namespace: l.Namespace(), Name: name}, s); err != nil {
		return nil, fmt.Errorf("reading Secret %s of the manager: %w", name, err)
	}
	return s, nil
}

// Roots returns the roots of the certificates of listener and agents.
func (l *Landscape) Roots(ctx context.Context) (*x509.CertPool, error) {
	s, err := l.getManagerSecret(ctx, authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.Data["ca.crt"]) {
		return nil, fmt.Errorf("reading the roots of the manager: there are none")
	}
	return roots, nil
}

// Sign issues a certificate with the newest root of the manager. Anybody who can read the Secret with the manager's
// root keys can sign such certificates. Sign sets the serial number.
func (l *Landscape) Sign(ctx context.Context, template *x509.Certificate) (tls.Certificate, error) {
	s, err := l.getManagerSecret(ctx, authority)
	if err != nil {
		return tls.Certificate{}, err
	}
	root, key, err := newestRoot(s)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading the roots of the manager: %w", err)
	}
	return SignWith(root, key, template)
}

// newestRoot returns the newest root.
func newestRoot(s *corev1.Secret) (*x509.Certificate, crypto.Signer, error) {
	certificate, _ := pem.Decode(bytes.TrimSpace(s.Data["ca.crt"]))
	private, _ := pem.Decode(bytes.TrimSpace(s.Data["ca.key"]))
	if certificate == nil || private == nil {
		return nil, nil, fmt.Errorf("there is no certificate with a key")
	}
	root, err := x509.ParseCertificate(certificate.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(private.Bytes)
	if err != nil {
		return nil, nil, err
	}
	return root, key.(crypto.Signer), nil
}

// SignWith issues a certificate with a new key. The root signs the certificate. If root is nil, the certificate is
// self-signed. SignWith sets the serial number.
func SignWith(root *x509.Certificate, rootKey crypto.Signer, template *x509.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	if root == nil {
		root, rootKey = template, key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	der, err := x509.CreateCertificate(rand.Reader, template, root, key.Public(), rootKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
