package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// authority signs certificates for a listener and its agents.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{}
	a.cert, a.key = sign(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign creates a certificate. Without an authority, the certificate is self-signed.
func sign(t testing.TB, by *authority, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, parentKey := template, key
	if by != nil {
		parent, parentKey = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// issue makes a certificate for a client and for a server on the loopback interface.
func (a *authority) issue(t testing.TB, name string) (certificate, key []byte) {
	t.Helper()
	cert, private := sign(t, a, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// writeFiles puts the files of an agent into a folder.
func (a *authority) writeFiles(t testing.TB, dir, name string) {
	t.Helper()
	certificate, key := a.issue(t, name)
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	for file, data := range map[string][]byte{"ca.crt": root, "tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// received is one event that the listener has received.
type received struct {
	protocol.Event
	manager string
	at      time.Time
}

// listener is a control plane that records the events it receives.
type listener struct {
	address string
	config  *tls.Config

	mu       sync.Mutex // guards what follows
	server   *http.Server
	instance string
	status   int // of every answer; 0 is 200
	events   []received
	beats    []protocol.Heartbeat
	opened   int // connections
	refused  int // events
}

func newListener(t testing.TB, a *authority) *listener {
	t.Helper()
	certificate, key := a.issue(t, "listener")
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	l := &listener{
		address: "127.0.0.1:0", instance: "one",
		config: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots},
	}
	l.up(t)
	t.Cleanup(l.down)
	return l
}

// up starts to listen on the address that it had before.
func (l *listener) up(t testing.TB) {
	t.Helper()
	socket, err := net.Listen("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.address = socket.Addr().String()
	l.server = &http.Server{Handler: l, TLSConfig: l.config.Clone(), ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			l.mu.Lock()
			l.opened++
			l.mu.Unlock()
		}
	}}
	go func(s *http.Server) { _ = s.ServeTLS(socket, "", "") }(l.server)
}

// down stops listening and closes all connections.
func (l *listener) down() {
	l.mu.Lock()
	s := l.server
	l.mu.Unlock()
	_ = s.Close()
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set(protocol.HeaderInstance, l.instance)
	manager, isEvent := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v2/"), "/event")
	if l.status != 0 {
		w.WriteHeader(l.status)
		if isEvent {
			l.refused++
		}
		return
	}
	if isEvent {
		e, err := protocol.ParseEvent(body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		l.events = append(l.events, received{e, manager, time.Now()})
		return
	}
	if beat, err := protocol.ParseHeartbeat(body); err == nil {
		l.beats = append(l.beats, beat)
	}
}

// since returns those of the events after the first n events for which pass returns true. If pass is nil, since returns
// all events after the first n.
func (l *listener) since(n int, pass func(received) bool) []received {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []received
	for _, e := range l.events[n:] {
		if pass == nil || pass(e) {
			all = append(all, e)
		}
	}
	return all
}

// mark returns the number of events so far.
func (l *listener) mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// lastHeartbeat returns the last heartbeat.
func (l *listener) lastHeartbeat() protocol.Heartbeat {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.beats) == 0 {
		return protocol.Heartbeat{}
	}
	return l.beats[len(l.beats)-1]
}

func (l *listener) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened
}

func (l *listener) refusals() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

func (l *listener) setResponse(status int, instance string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status, l.instance = status, instance
}
