package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
)

// material is the content of the certificate files at one point in time.
type material struct {
	files       [3][]byte
	certificate tls.Certificate
	roots       *x509.CertPool
}

// use sets the certificate and the trusted roots of m in the Poster, which sends the requests to the listener.
func (m *material) use(p *outbox.Poster) { p.UseCertificate(m.roots, &m.certificate) }

// identity holds the content of the certificate files. identity reads the files again when they change.
type identity struct {
	ca, certificate, key string // paths
	log                  logr.Logger
	problems             *problems

	current atomic.Pointer[material] // nil until the files were read without an error
}

// load reads the files and reports whether their content has changed. If the new content is invalid, load returns an
// error, and the former content stays in use.
func (i *identity) load() (changed bool, err error) {
	var m material
	for n, path := range []string{i.ca, i.certificate, i.key} {
		//nolint:gosec // the files are named by the flags of the agent
		if m.files[n], err = os.ReadFile(path); err != nil {
			return false, fmt.Errorf("reading the certificate files: %w", err)
		}
	}
	if now := i.current.Load(); now != nil && bytes.Equal(bytes.Join(now.files[:], nil), bytes.Join(m.files[:], nil)) {
		return false, nil
	}
	if m.certificate, err = tls.X509KeyPair(m.files[1], m.files[2]); err != nil {
		return false, fmt.Errorf("reading %s and %s: %w", i.certificate, i.key, err)
	}
	m.roots = x509.NewCertPool()
	if !m.roots.AppendCertsFromPEM(m.files[0]) {
		return false, fmt.Errorf("reading %s: it contains no certificate", i.ca)
	}
	i.current.Store(&m)
	return true, nil
}

// watch reads the certificate files at once and after every interval, and passes changed files to use.
func (i *identity) watch(ctx context.Context, interval time.Duration, use func(*material)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	failed := 0
	for {
		changed, err := i.load()
		switch {
		case err != nil:
			failed++
		case changed:
			m := i.current.Load()
			i.log.Info("using a certificate", "subject", m.certificate.Leaf.Subject.CommonName, "until",
				m.certificate.Leaf.NotAfter)
			use(m)
			fallthrough
		default:
			failed = 0
			i.problems.setAndNotify("certificates", "")
		}
		if failed == 3 { // fewer failures may be caused by files that are being written
			i.log.Error(err, "the certificate files cannot be used; those read before stay in use")
			i.problems.setAndNotify("certificates", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// serverCertificate returns the certificate of the agent for its TLS servers.
func (i *identity) serverCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m := i.current.Load()
	if m == nil {
		return nil, fmt.Errorf("there is no certificate in %s yet", i.certificate)
	}
	return &m.certificate, nil
}
