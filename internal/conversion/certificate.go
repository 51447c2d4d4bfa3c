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
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// caKey is the key of the trusted CAs in the data of the Secret. The CAs are in PEM format: the CA of the current
// certificate first, and the former CA second.
const caKey = "ca.crt"

// certificate is a certificate with its private key and the trusted CAs. A certificate is never changed.
type certificate struct {
	tls       tls.Certificate
	leaf      *x509.Certificate
	cert, key []byte // in PEM format
	bundle    []byte // trusted CAs in PEM format
}

func (c *certificate) equal(other *certificate) bool { return bytes.Equal(c.cert, other.cert) }

// ensureCertificate returns the certificate in the Secret, which all replicas use. If the certificate cannot be used,
// ensureCertificate writes a new certificate to the Secret.
func (w *Webhook) ensureCertificate(ctx context.Context) (*certificate, error) {
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
			before = serving.bundle // other replicas may still use the former certificate
		}
	} else {
		c, err := parseCertificate(secret.Data)
		if err == nil {
			err = c.validate(w.host, w.now())
		}
		if err == nil {
			return c, nil
		}
		w.Log.Info("making a new certificate for the conversion webhook", "reason", err.Error())
	}
	c, err := newCertificate(w.host, w.now(), before)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for the conversion webhook: %w", err)
	}
	data := map[string][]byte{corev1.TLSCertKey: c.cert, corev1.TLSPrivateKeyKey: c.key, caKey: c.bundle}
	if missing {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
				Labels: map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}},
			Type: corev1.SecretTypeTLS, Data: data,
		}
		err = w.Client.Create(ctx, secret)
	} else {
		secret.Data = data // the type of a Secret is immutable, and the webhook accepts every type
		err = w.Client.Update(ctx, secret)
	}
	if err != nil { // another replica may have updated the Secret before; the next sync uses that certificate
		return nil, fmt.Errorf("writing Secret %s with the certificate of the conversion webhook: %w", key, err)
	}
	return c, nil
}

// newCertificate creates a CA, signs a certificate for a host with the CA, and discards the key of the CA. The first CA
// of the former bundle remains trusted until this CA expires.
func newCertificate(host string, now time.Time, previousBundle []byte) (*certificate, error) {
	from, until := now.Add(-time.Hour), now.Add(Validity) // one hour, because the clock of an API server may be slow
	caSecret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		Subject: pkix.Name{CommonName: "lifecycle-manager conversion CA " +
			now.UTC().Format(time.DateTime)},
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
		Subject:   pkix.Name{CommonName: "lifecycle-manager conversion webhook"},
		NotBefore: from, NotAfter: until,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
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
	if block, _ := pem.Decode(previousBundle); block != nil {
		if old, err := x509.ParseCertificate(block.Bytes); err == nil && old.IsCA && now.Before(old.NotAfter) {
			bundle = append(bundle, encodePEM("CERTIFICATE", old.Raw)...)
		}
	}
	return parseCertificate(map[string][]byte{
		corev1.TLSCertKey: encodePEM("CERTIFICATE", der), corev1.TLSPrivateKeyKey: encodePEM("PRIVATE KEY", keyDER),
		caKey: bundle,
	})
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// parseCertificate parses the data of a Secret that has the certificate.
func parseCertificate(data map[string][]byte) (*certificate, error) {
	parsed, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(parsed.Certificate[0])
	if err != nil {
		return nil, err
	}
	return &certificate{
		tls: parsed, leaf: leaf, cert: data[corev1.TLSCertKey], key: data[corev1.TLSPrivateKeyKey], bundle: data[caKey],
	}, nil
}

// validate returns the reason why the certificate must be replaced. The result is nil if the certificate can be used.
func (c *certificate) validate(host string, now time.Time) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.bundle) {
		return errors.New("it has no CA")
	}
	if _, err := c.leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now}); err != nil {
		return err
	}
	if left := c.leaf.NotAfter.Sub(now); left < RenewBefore {
		return fmt.Errorf("it expires in %s", left.Round(time.Minute))
	}
	return nil
}
