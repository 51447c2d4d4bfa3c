package backchannel

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// root is a root certificate authority for tests.
type root struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// certRequest describes a certificate that a test needs. The zero value of certRequest describes a valid certificate of
// a client.
type certRequest struct {
	name     string
	uid      string // with the URI of our authority, and its back-dating
	from     time.Duration
	valid    time.Duration // from issue on; default one hour
	dns      []string
	usage    []x509.ExtKeyUsage // default client
	ca       bool
	issuedAt time.Time // default now
}

var serial atomic.Int64

func newRoot(t testing.TB, name string) *root {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &root{c, key}
}

// issue makes a certificate.
func (a *root) issue(t testing.TB, w certRequest) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if w.issuedAt.IsZero() {
		w.issuedAt = time.Now()
	}
	if w.valid == 0 {
		w.valid = time.Hour
	}
	if w.usage == nil {
		w.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: w.name},
		NotBefore: w.issuedAt.Add(w.from), NotAfter: w.issuedAt.Add(w.valid),
		ExtKeyUsage: w.usage, KeyUsage: x509.KeyUsageDigitalSignature, DNSNames: w.dns, IsCA: w.ca,
		BasicConstraintsValid: w.ca,
	}
	if w.ca {
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	if w.uid != "" {
		template.URIs = []*url.URL{protocol.SubjectURI(w.uid)}
		template.NotBefore = w.issuedAt.Add(-protocol.BackdatePeriod)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// newIntermediate creates an intermediate authority that the root has signed.
func (a *root) newIntermediate(t testing.TB) *root {
	t.Helper()
	c := a.issue(t, certRequest{name: "middle", ca: true})
	return &root{c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)}
}

// trustIn returns a function that always returns the same roots.
func trustIn(roots ...*root) func() []*x509.Certificate {
	var list []*x509.Certificate
	for _, r := range roots {
		list = append(list, r.Certificate)
	}
	return func() []*x509.Certificate { return list }
}
