package authority

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
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	// This import makes the Go module of cert-manager, which contains its CRDs, a dependency of this module.
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
)

// certManager lets a test act as cert-manager in one namespace.
type certManager struct {
	*testing.T
	namespace string
	ca        *x509.Certificate
	key       *ecdsa.PrivateKey
}

// installCRD creates the CRD of Certificates from the release of cert-manager.
func installCRD(t *testing.T) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/cert-manager/cert-manager").Output()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "deploy", "crds",
		"cert-manager.io_certificates.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		t.Fatal(err)
	}
	create(t, crd)
	eventually(t, func() string {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("cert-manager.io/v1")
		list.SetKind("CertificateList")
		if err := kube.List(t.Context(), list); err != nil {
			return err.Error()
		}
		return ""
	})
}

// rotateRoot creates a new root, and writes it to the Secret to which cert-manager would write it.
func (m *certManager) rotateRoot(name string) {
	m.Helper()
	m.ca, m.key = newCA(m.T, name)
	key, err := x509.MarshalECPrivateKey(m.key)
	if err != nil {
		m.Fatal(err)
	}
	m.writeSecret(authority.SecretName, map[string][]byte{
		"tls.crt": encode("CERTIFICATE", m.ca.Raw), "ca.crt": encode("CERTIFICATE", m.ca.Raw),
		"tls.key": encode("EC PRIVATE KEY", key),
	})
}

func newCA(t *testing.T, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return sign(t, template, template, key, key), key
}

func sign(t *testing.T, template, parent *x509.Certificate, key, with *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), with)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writeSecret puts data into a Secret.
func (m *certManager) writeSecret(name string, data map[string][]byte) {
	m.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name}, Data: data}
	err := kube.Create(m.Context(), s)
	if err != nil {
		err = kube.Update(m.Context(), s)
	}
	if err != nil {
		m.Fatal(err)
	}
}

func (m *certManager) certificate(name string) *unstructured.Unstructured {
	m.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("cert-manager.io/v1")
	o.SetKind("Certificate")
	if err := kube.Get(m.Context(), client.ObjectKey{Namespace: m.namespace, Name: name}, o); err != nil {
		m.Fatal(err)
	}
	return o
}

// setCondition sets the conditions of a Certificate.
func (m *certManager) setCondition(name, ready, message string) {
	m.Helper()
	o := m.certificate(name)
	o.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": ready, "reason": "Test", "message": message, "observedGeneration": o.GetGeneration(),
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}}
	if err := kube.Status().Update(m.Context(), o); err != nil {
		m.Fatal(err)
	}
}

// issueCertificate issues the certificate that a Certificate requests.
func (m *certManager) issueCertificate(name string, issued time.Time) {
	m.Helper()
	spec, _, _ := unstructured.NestedMap(m.certificate(name).Object, "spec")
	life, err := time.ParseDuration(spec["duration"].(string))
	if err != nil {
		m.Fatal(err)
	}
	names, _, _ := unstructured.NestedStringSlice(spec, "dnsNames")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.Fatal(err)
	}
	leaf := sign(m.T, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: spec["commonName"].(string)},
		DNSNames:  names,
		NotBefore: issued, NotAfter: issued.Add(life), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, m.ca, key, m.key)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		m.Fatal(err)
	}
	m.writeSecret(spec["secretName"].(string), map[string][]byte{
		"tls.crt": encode("CERTIFICATE", leaf.Raw), "tls.key": encode("EC PRIVATE KEY", der),
		"ca.crt": encode("CERTIFICATE", m.ca.Raw),
	})
	m.setCondition(name, "True", "Certificate is up to date and has not expired")
}

// checkError checks that no certificate was issued: err has this reason, and the text of err contains these words.
func checkError(t *testing.T, err error, reason, words string) {
	t.Helper()
	e, ok := errors.AsType[*authority.Error](err)
	if !ok || e.Reason() != reason || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want reason %s and %q", err, reason, words)
	}
}

// TestCertManager follows one runtime whose certificates are issued by cert-manager.
func TestCertManager(t *testing.T) {
	const namespace, name = "cert-manager-test", "a-webhook-tls"
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	play := &certManager{T: t, namespace: namespace}
	c, err := client.New(api.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	m, err := authority.NewCertManager(authority.CertManagerOptions{Client: c, Namespace: namespace,
		Hosts: []string{"klm.example.com", "10.0.0.1"}, Interval: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	subject := authority.Subject{Kyma: "a", CommonName: "runtime-a", UID: "uid-a", DNSNames: []string{"a.example.com"}}
	ask := func() (*authority.Certificate, error) { return m.Issue(t.Context(), subject) }
	got := func() *authority.Certificate {
		t.Helper()
		c, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}

	_, err = ask()
	checkError(t, err, v1beta2.ReasonAuthorityNotReady, "create the Certificate that fills it")
	play.rotateRoot("first")
	_, err = ask()
	checkError(t, err, v1beta2.ReasonCertificateNotReady, "cert-manager is not installed")
	installCRD(t)
	eventually(t, func() string { // the client also has to discover the new CRD
		if _, err := ask(); err == nil || strings.Contains(err.Error(), "not installed") {
			return "it is still said to be missing"
		}
		return ""
	})
	_, err = ask()
	checkError(t, err, v1beta2.ReasonCertificateNotReady, "cert-manager has not said anything")

	spec := play.certificate(name).Object["spec"]
	want := map[string]any{
		"secretName": name, "commonName": "runtime-a", "duration": "1440h0m0s", "renewBefore": "720h0m0s",
		"dnsNames": []any{"a.example.com", "skr-webhook.kyma-system.svc",
			"skr-webhook.kyma-system.svc.cluster.local"},
		"usages":     []any{"digital signature", "key encipherment", "server auth", "client auth"},
		"privateKey": map[string]any{"algorithm": "ECDSA", "size": int64(256), "rotationPolicy": "Always"},
		"issuerRef":  map[string]any{"name": "klm-watcher-selfsigned", "kind": "Issuer", "group": "cert-manager.io"},
		"secretTemplate": map[string]any{"labels": map[string]any{
			"operator.kyma-project.io/purpose":    "klm-watcher-cert-manager",
			"operator.kyma-project.io/managed-by": "lifecycle-manager",
		}},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("Certificate (-want +got):\n%s", diff)
	}
	play.setCondition(name, "False", "Issuer klm-watcher-selfsigned not found")
	_, err = ask()
	checkError(t, err, v1beta2.ReasonCertificateNotReady, "Issuer klm-watcher-selfsigned not found")

	play.issueCertificate(name, time.Now().Add(-10*time.Minute))
	first := got()
	if stale, why := m.Stale(first.Record(), time.Time{}); stale {
		t.Errorf("it is new, but %s", why)
	}
	if _, err := tls.X509KeyPair(first.PEM, first.Key); err != nil ||
		!bytes.Equal(first.CA, encode("CERTIFICATE", play.ca.Raw)) {
		t.Errorf("%v; to trust:\n%s", err, first.CA)
	}
	version := play.certificate(name).GetResourceVersion()
	if again := got(); again.Serial != first.Serial || play.certificate(name).GetResourceVersion() != version {
		t.Error("nothing has changed, but the certificate or the object has")
	}

	t.Run("Revoked", func(t *testing.T) {
		subject.NotBefore = time.Now().Add(-time.Minute)
		if stale, _ := m.Stale(first.Record(), subject.NotBefore); !stale {
			t.Error("it is not stale")
		}
		_, err := ask()
		checkError(t, err, v1beta2.ReasonCertificateNotReady, "is being renewed")
		asked := play.certificate(name)
		if conditions, _, _ := unstructured.NestedSlice(asked.Object, "status", "conditions"); len(conditions) != 2 ||
			!slices.ContainsFunc(conditions, func(c any) bool {
				return c.(map[string]any)["type"] == "Issuing" && c.(map[string]any)["status"] == "True"
			}) {
			t.Errorf("cert-manager is not asked: %v", conditions)
		}
		_, err = ask()
		checkError(t, err, v1beta2.ReasonCertificateNotReady, "is being renewed")
		if play.certificate(name).GetResourceVersion() != asked.GetResourceVersion() {
			t.Error("it is asked again while it is at it")
		}
		play.issueCertificate(name, time.Now().Add(-30*time.Second))
		if second := got(); second.Serial == first.Serial {
			t.Error("it is the old one")
		}
	})

	t.Run("OtherRoot", func(t *testing.T) {
		held := got().Record()
		former, changed := play.ca, m.Changed()
		play.rotateRoot("second")
		play.writeSecret(authority.GatewaySecretName, map[string][]byte{"ca.crt": append(encode("CERTIFICATE",
			play.ca.Raw),
			encode("CERTIFICATE", former.Raw)...)})
		_, err := ask() // the root is older than the certificate, as if the issuer had not used the new root
		checkError(t, err, v1beta2.ReasonCertificateNotReady, "let Issuer klm-watcher-selfsigned use that Secret")
		<-changed
		if stale, why := m.Stale(held, time.Time{}); !stale || why != "there is a newer root" {
			t.Errorf("stale is %t: %s", stale, why)
		}
		play.issueCertificate(name, time.Now())
		c := got()
		if roots := m.Roots(); len(roots) != 2 || !roots[0].Equal(play.ca) || !roots[1].Equal(former) ||
			bytes.Count(c.CA, []byte("BEGIN")) != 2 {
			t.Errorf("to trust are %d, and %s is handed out", len(roots), c.CA)
		}
	})

	t.Run("Listener", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Start(ctx) }()
		eventually(t, func() string {
			_, err := m.Serving()
			if err == nil || !strings.Contains(err.Error(), "has no certificate for the listener yet") {
				return "it does not wait for cert-manager"
			}
			return ""
		})
		play.issueCertificate(authority.ListenerName, time.Now())
		eventually(t, func() string {
			if _, err := m.Serving(); err != nil {
				return err.Error()
			}
			return ""
		})
		serving, err := m.Serving()
		if err != nil || serving.Leaf.Subject.CommonName != "lifecycle-manager" ||
			serving.Leaf.VerifyHostname("klm.example.com") != nil {
			t.Errorf("%v, %v", serving, err)
		}
		addresses, _, _ := unstructured.NestedStringSlice(play.certificate(authority.ListenerName).Object, "spec",
			"ipAddresses")
		if !slices.Equal(addresses, []string{"10.0.0.1"}) {
			t.Errorf("addresses: %q", addresses)
		}
		if err := kube.Delete(t.Context(), play.certificate(authority.ListenerName)); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string { // cert-manager keeps the Secret of a deleted Certificate
			o := play.certificate(name).DeepCopy() // another object of this kind
			key := client.ObjectKey{Namespace: namespace, Name: authority.ListenerName}
			if err := kube.Get(t.Context(), key, o); err != nil {
				return err.Error()
			}
			return ""
		})
		play.issueCertificate(authority.ListenerName, time.Now().Add(-61*24*time.Hour))
		eventually(t, func() string {
			if err := m.LastError(); err == nil || !strings.Contains(err.Error(), "has not renewed it") {
				return "nobody has noticed that the certificate has expired"
			}
			return ""
		})
		play.issueCertificate(authority.ListenerName, time.Now())
		eventually(t, func() string {
			if err := m.LastError(); err != nil {
				return err.Error()
			}
			return ""
		})
		play.writeSecret(authority.SecretName, map[string][]byte{"tls.crt": []byte("oops")})
		eventually(t, func() string {
			if err := m.LastError(); err == nil || !strings.Contains(err.Error(), "broken") {
				return "nobody has noticed that the root is broken"
			}
			return ""
		})
		if len(m.Roots()) != 2 {
			t.Error("the former roots are not in force")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		play.rotateRoot("third")
	})

	t.Run("ByHeart", func(t *testing.T) { // the root was replaced, and the previous root was not kept
		_, err := ask()
		if err == nil || len(m.Roots()) != 3 {
			t.Errorf("the listener trusts %d roots, of which it has met 3: %v", len(m.Roots()), err)
		}
	})

	t.Run("Refused", func(t *testing.T) {
		for _, s := range []authority.Subject{
			{
				Kyma:       "b",
				CommonName: "lifecycle-manager",
				UID:        "u"}, {CommonName: "b",
				UID: "u"}, {Kyma: "b",
				CommonName: "b",
				UID:        "u",
				DNSNames:   []string{"klm.example.com"},
			},
		} {
			_, err := m.Issue(t.Context(), s)
			checkError(t, err, v1beta2.ReasonCertificateRefused, "")
		}
	})

	t.Run("Release", func(t *testing.T) {
		for range 2 {
			if err := m.Release(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		s := &corev1.Secret{}
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s); client.IgnoreNotFound(
			err) != nil || err == nil {
			t.Errorf("the Secret is left: %v", err)
		}
	})
}
