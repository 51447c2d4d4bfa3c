package conversion

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// caKey is the key in the Secret of the CAs to believe, as PEM: that of the certificate, then the one before.
const caKey = "ca.crt"

// pair is a certificate with its key. It is not changed once made.
type pair struct {
	certificate tls.Certificate
	leaf        *x509.Certificate
	cert, key   []byte // as PEM
	bundle      []byte // CAs as PEM
}

func (p *pair) same(other *pair) bool { return bytes.Equal(p.cert, other.cert) }

// shared returns the certificate that all replicas use, from the Secret. If it is of no use, a new one is put there.
func (w *Webhook) shared(ctx context.Context) (*pair, error) {
	key := client.ObjectKey{Namespace: w.Namespace, Name: SecretName}
	secret := &corev1.Secret{}
	err := w.Client.Get(ctx, key, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, fmt.Errorf("reading Secret %s with the certificate of the conversion webhook: %w", key, err)
	}
	before := secret.Data[caKey]
	if missing {
		if serving := w.serving.Load(); serving != nil {
			before = serving.bundle // other replicas may still serve with it
		}
	} else {
		p, err := readPair(secret.Data)
		if err == nil {
			err = p.check(w.host, w.now())
		}
		if err == nil {
			return p, nil
		}
		w.Log.Info("making a new certificate for the conversion webhook", "reason", err.Error())
	}
	p, err := newPair(w.host, w.now(), before)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for the conversion webhook: %w", err)
	}
	data := map[string][]byte{corev1.TLSCertKey: p.cert, corev1.TLSPrivateKeyKey: p.key, caKey: p.bundle}
	if missing {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}},
			Type:       corev1.SecretTypeTLS, Data: data,
		}
		err = w.Client.Create(ctx, secret)
	} else {
		secret.Data = data // of another type it still serves
		err = w.Client.Update(ctx, secret)
	}
	if err != nil { // another replica may have been faster: then the next pass takes what it made
		return nil, fmt.Errorf("writing Secret %s with the certificate of the conversion webhook: %w", key, err)
	}
	return p, nil
}

// newPair makes a CA, lets it sign a certificate for a host, and forgets its key. The first CA of the bundle before is
// believed too, while it is valid.
func newPair(host string, now time.Time, before []byte) (*pair, error) {
	from, until := now.Add(-time.Hour), now.Add(Validity) // an hour for clocks that are late
	caSecret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "lifecycle-manager conversion CA " + now.UTC().Format(time.DateTime)},
		NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caSecret.Public(), caSecret)
	if err != nil {
		return nil, err
	}
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "lifecycle-manager conversion webhook"},
		NotBefore: from, NotAfter: until,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, secret.Public(), caSecret)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		return nil, err
	}
	bundle := encodePEM("CERTIFICATE", caDER)
	if block, _ := pem.Decode(before); block != nil {
		if old, err := x509.ParseCertificate(block.Bytes); err == nil && old.IsCA && now.Before(old.NotAfter) {
			bundle = append(bundle, encodePEM("CERTIFICATE", old.Raw)...)
		}
	}
	return readPair(map[string][]byte{
		corev1.TLSCertKey: encodePEM("CERTIFICATE", der), corev1.TLSPrivateKeyKey: encodePEM("PRIVATE KEY", keyDER), caKey: bundle,
	})
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// serial returns a random number of 127 bits.
func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // the system's source of randomness does not fail
	}
	return n.Add(n, big.NewInt(1))
}

// readPair reads the data of the Secret.
func readPair(data map[string][]byte) (*pair, error) {
	certificate, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		return nil, err
	}
	return &pair{certificate: certificate, leaf: leaf, cert: data[corev1.TLSCertKey], key: data[corev1.TLSPrivateKeyKey], bundle: data[caKey]}, nil
}

// check tells why the certificate should be replaced, nil if it should not.
func (p *pair) check(host string, now time.Time) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.bundle) {
		return errors.New("there is no CA next to it")
	}
	if _, err := p.leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now}); err != nil {
		return err
	}
	if left := p.leaf.NotAfter.Sub(now); left < RenewBefore {
		return fmt.Errorf("it ends in %s", left.Round(time.Minute))
	}
	return nil
}
