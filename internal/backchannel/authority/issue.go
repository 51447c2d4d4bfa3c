package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// Types of PEM blocks.
const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// root is a root certificate with its private key.
type root struct {
	certificate *x509.Certificate
	key         crypto.Signer
	fingerprint string
}

// isValidAt reports whether the root is valid at the given time. A root is not valid yet if a replica whose clock was
// fast has created it.
func (r root) isValidAt(now time.Time) bool {
	return !now.Before(r.certificate.NotBefore) && now.Before(r.certificate.NotAfter)
}

// newRoot creates a root that is valid until now+lifetime. The validity of the root begins earlier than the validity of
// each certificate that the root signs, even if the clock of the signing replica is behind.
func newRoot(now time.Time, lifetime time.Duration) (root, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return root{}, fmt.Errorf("making a root: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "lifecycle-manager watcher CA " +
			now.UTC().Format(time.DateTime)},
		NotBefore: now.Add(-2 * protocol.BackdatePeriod), NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return root{}, fmt.Errorf("making a root: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return root{}, fmt.Errorf("making a root: %w", err)
	}
	return root{certificate, key, protocol.ShortFingerprint(certificate)}, nil
}

// withAgentHosts returns the DNS names for the certificate of a runtime: those in the parameter dnsNames, and the names
// of the agent's Service.
func withAgentHosts(dnsNames []string) []string {
	return append(slices.Clone(dnsNames), AgentHost, AgentHost+".cluster.local")
}

// AgentHost is the host name with which the API server of a runtime reaches the agent.
const AgentHost = "skr-webhook.kyma-system.svc"

// template describes a certificate that is to be issued.
type template struct {
	commonName string
	uid        string // "" for the listener
	servers    bool   // whether the certificate is only for server authentication
	hosts      []string
	now        time.Time
	lifetime   time.Duration
}

// hostsTemplate returns a certificate template with the host names and IP addresses in t.hosts. Duplicate host names
// are left out.
func (t template) hostsTemplate() *x509.Certificate {
	leaf := &x509.Certificate{}
	for _, host := range t.hosts {
		host = strings.TrimSuffix(host, ".")
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else if host != "" && !slices.Contains(leaf.DNSNames, host) {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	return leaf
}

// pair is a certificate with its private key.
type pair struct {
	leaf *x509.Certificate
	key  crypto.Signer
	pem  []byte
	raw  Key // the private key as PEM
	by   string
}

// issue generates a key and issues a certificate for this key. The certificate expires no later than the root that
// signs the certificate.
func (r root) issue(t template) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	leaf := t.hostsTemplate()
	leaf.Subject = pkix.Name{CommonName: t.commonName}
	leaf.NotBefore, leaf.NotAfter = t.now.Add(-protocol.BackdatePeriod), t.now.Add(t.lifetime)
	leaf.BasicConstraintsValid, leaf.KeyUsage = true, x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if t.servers {
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	if leaf.NotAfter.After(r.certificate.NotAfter) {
		leaf.NotAfter = r.certificate.NotAfter
	}
	if t.uid != "" {
		leaf.URIs = []*url.URL{protocol.SubjectURI(t.uid)}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, r.certificate, key.Public(), r.key)
	if err != nil {
		return nil, certificateRefusedError("its names are not allowed in a certificate: %v", err)
	}
	if leaf, err = x509.ParseCertificate(der); err != nil {
		return nil, certificateRefusedError("its names are not allowed in a certificate: %v", err)
	}
	raw, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return &pair{leaf: leaf, key: key, raw: raw, pem: encodePEM(pemCertificate, der), by: r.fingerprint}, nil
}

// certificate returns the certificate and the private key as a Certificate, together with the trusted roots.
func (p *pair) certificate(r *rootSet) *Certificate {
	return &Certificate{
		PEM: p.pem, Key: p.raw, CA: r.pem, Root: p.by, Serial: p.leaf.SerialNumber.Text(16),
		Issued: p.leaf.NotBefore.Add(protocol.BackdatePeriod), NotAfter: p.leaf.NotAfter,
	}
}

// tlsCertificate returns the certificate and the private key in the form that a TLS server or client needs.
func (p *pair) tlsCertificate() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.leaf.Raw}, PrivateKey: p.key, Leaf: p.leaf}
}

func encodeKey(key crypto.Signer) (Key, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return encodePEM(pemKey, der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
