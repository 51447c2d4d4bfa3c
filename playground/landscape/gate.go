package landscape

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// Fault is the action of a Gate on a request: one of the constants, or the HTTP status of the response, such as 429.
type Fault string

// Faults of a request.
const (
	// Cut closes the connection before the API server receives the request.
	Cut Fault = "cut"
	// Lose forwards the request to the API server, and then closes the connection instead of responding.
	Lose Fault = "lose"
	// Hold delays the request until the gate is opened. The caller who opens the gate decides whether the held request
	// is forwarded or dropped.
	Hold Fault = "hold"
)

// Gate is another address of a cluster that can inject faults into single requests. Clients that use the address of the
// gate have all permissions in the cluster.
type Gate struct {
	name   string
	server *httptest.Server
	proxy  *httputil.ReverseProxy

	mu     sync.Mutex // guards what follows
	faults []*fault
	other  func(http.ResponseWriter, *http.Request) bool // see Intercept; may be nil
	// written is nil, or see InterceptWrites.
	written func(r *http.Request, body []byte, forward func() int) bool
	now     *period
	met     int // number of injected faults and forged answers since the last Open or ForgeResponses

	forgeries []forgery
}

// period is the time between two calls of Open.
type period struct {
	end     chan struct{} // closed when the gate is opened
	dropped bool          // whether held requests are dropped; read only after end is closed
}

// fault is a fault and the requests that it affects.
type fault struct {
	like *regexp.Regexp
	what Fault
	left int // remaining number of requests; negative means any number
}

// connection is the context key of the connection of a request.
type connection struct{}

// Gate returns the gate of a cluster. The first call creates it.
func (l *Landscape) Gate(name string) (*Gate, error) {
	if g := l.gates[name]; g != nil {
		return g, nil
	}
	config := l.Clusters[name].Config()
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a gate of %s: %w", name, err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("making a gate of %s: %w", name, err)
	}
	g := &Gate{name: name, now: &period{end: make(chan struct{})}}
	g.proxy = &httputil.ReverseProxy{
		Transport: transport, ErrorLog: discard, FlushInterval: -1, // responses to watches have no end
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization") // the transport has its own credentials
		},
	}
	g.server = httptest.NewUnstartedServer(g)
	g.server.EnableHTTP2 = true
	g.server.Config.ErrorLog = discard
	g.server.Config.ConnContext = func(ctx context.Context,
		c net.Conn) context.Context {
		return context.WithValue(ctx, connection{}, c)
	}
	g.server.StartTLS()
	l.servers = append(l.servers, g.server)
	if l.gates == nil {
		l.gates = map[string]*Gate{}
	}
	l.gates[name] = g
	return g, nil
}

// Kubeconfig returns a kubeconfig for the address of the gate.
func (g *Gate) Kubeconfig() ([]byte, error) {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{g.name: {Server: g.server.URL,
			CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{g.name: {Token: "gate"}},
		Contexts:       map[string]*clientcmdapi.Context{g.name: {Cluster: g.name, AuthInfo: g.name}},
		CurrentContext: g.name,
	})
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig of the gate of %s: %w", g.name, err)
	}
	return data, nil
}

// Inject injects a fault into requests whose "METHOD PATH" matches the regular expression in the parameter
// methodAndPath. The parameter times is the number of requests that fail, and 0 means all requests.
func (g *Gate) Inject(what Fault, methodAndPath *regexp.Regexp, times int) {
	if times == 0 {
		times = -1
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = append(g.faults, &fault{like: methodAndPath, what: what, left: times})
}

// Intercept lets the function answer() respond to requests in place of the API server. If answer() returns false, it
// has not responded, and the gate forwards the request. If the parameter answer is nil, the gate forwards all requests
// again.
func (g *Gate) Intercept(answer func(http.ResponseWriter, *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.other = answer
}

// InterceptWrites makes the gate call the function handle() for each request that may change an object. The argument
// body is the body of the request. The function forward() sends the request to the API server and returns the status of
// the response. If handle() returns true, the client gets this response. If handle() returns false, the gate closes the
// client's connection. If handle is nil, the gate forwards all requests again.
func (g *Gate) InterceptWrites(handle func(r *http.Request, body []byte, forward func() int) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written = handle
}

// InjectedCount returns the number of faults injected, and of answers forged, since the last Open or ForgeResponses.
func (g *Gate) InjectedCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.met
}

// Open ends all faults and forgeries. Held requests are forwarded, or dropped without reaching the API server.
func (g *Gate) Open(dropHeld bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults, g.forgeries, g.met = nil, nil, 0
	g.now.dropped = dropHeld
	close(g.now.end)
	g.now = &period{end: make(chan struct{})}
}

// takeFault returns the fault for a request and the current period. The fault is "" if no fault is injected.
func (g *Gate) takeFault(r *http.Request) (what Fault, now *period) {
	g.mu.Lock()
	defer g.mu.Unlock()
	line := r.Method + " " + r.URL.Path
	i := slices.IndexFunc(g.faults, func(f *fault) bool { return f.left != 0 && f.like.MatchString(line) })
	if i < 0 {
		return "", g.now
	}
	g.faults[i].left--
	g.met++
	return g.faults[i].what, g.now
}

// ServeHTTP forwards a request, or injects a fault.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what, now := g.takeFault(r)
	g.mu.Lock()
	other, written := g.other, g.written
	g.mu.Unlock()
	if other != nil && other(w, r) {
		return
	}
	switch what {
	case "":
		if written != nil && r.Method != http.MethodGet {
			g.interceptWrite(w, r, written)
			return
		}
		g.forwardForgingResponse(w, r)
	case Cut:
		abortConnection(r)
	case Lose:
		g.proxy.ServeHTTP(httptest.NewRecorder(), r)
		abortConnection(r)
	case Hold:
		select {
		case <-now.end:
			if now.dropped {
				abortConnection(r)
			}
			g.proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	default:
		respondWithAPIStatusError(w, string(what))
	}
}

// interceptWrite lets written send a request.
func (g *Gate) interceptWrite(w http.ResponseWriter, r *http.Request,
	written func(r *http.Request, body []byte, forward func() int) bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		abortConnection(r)
	}
	answer := httptest.NewRecorder()
	if !written(r, body, func() int {
		// The API server completes the request even if its client has ended.
		sent := r.Clone(context.WithoutCancel(r.Context()))
		sent.Body = io.NopCloser(bytes.NewReader(body))
		g.proxy.ServeHTTP(answer, sent)
		return answer.Code
	}) {
		abortConnection(r)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client may have gone
}

// abortConnection closes the connection of a request. All other requests on the same HTTP/2 connection end, too.
func abortConnection(r *http.Request) {
	if c, ok := r.Context().Value(connection{}).(net.Conn); ok {
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}

// respondWithAPIStatusError responds with an error in the same form as an API server. For 502, it responds like a proxy
// in front of an API server.
func respondWithAPIStatusError(w http.ResponseWriter, statusCode string) {
	code, err := strconv.Atoi(statusCode)
	if err != nil || code == http.StatusBadGateway {
		http.Error(w, "<html>down for a test</html>", http.StatusBadGateway)
		return
	}
	//nolint:gosec // three digits
	status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Message: "refused for a test"}
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
		status.Reason = metav1.StatusReasonTooManyRequests
	}
	body, err := yaml.Marshal(status)
	if err == nil {
		body, err = yaml.YAMLToJSON(body)
	}
	if err != nil {
		panic(err) // plain data always encodes
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may have gone
}
