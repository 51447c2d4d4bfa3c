package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// Names of the objects that cert-manager uses.
const (
	// GatewaySecretName is the name of the Secret of an Istio gateway. If this Secret of the gateway has the key
	// ca.crt, runtimes also trust the roots in ca.crt, in addition to the root in the Secret klm-watcher.
	GatewaySecretName = "klm-istio-gateway"
	// ListenerName is the name of the Certificate and the Secret of the listener.
	ListenerName = "klm-watcher-listener"
	// CertificateSuffix is the end of the names of a runtime's Certificate and Secret, which begin with the name of the
	// Kyma.
	CertificateSuffix = "-webhook-tls"
)

// issuerDelay is how long an issuer of cert-manager may still use the previous root after the root was changed.
const issuerDelay = 5 * time.Minute

// certificateKind is the kind of cert-manager's Certificate.
var certificateKind = schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}

// CertManagerOptions configure a CertManager. If a field is zero, its default applies.
type CertManagerOptions struct {
	// Client reads and writes Certificates and their Secrets. Client must not have a cache.
	Client client.Client
	// Namespace is the namespace of all objects of this package.
	Namespace string
	// Issuer is the name of the cert-manager issuer. The cert-manager issuer must sign with the root in the Secret
	// klm-watcher. Default klm-watcher-selfsigned.
	Issuer string
	// IssuerKind is the kind of the cert-manager issuer: Issuer (default) or ClusterIssuer.
	IssuerKind string
	// Hosts are the names and IP addresses of the listener. Issue refuses a certificate for a runtime with one of the
	// listener's names or addresses, because the runtime could pose as the listener.
	Hosts []string
	// Reserved are common names that no runtime can have, because the listener trusts the owners of certificates with
	// these names.
	Reserved []string
	// Lifetime is the validity of certificates. Default 60 days.
	Lifetime time.Duration
	// RenewBefore is the time before expiry at which cert-manager renews a certificate. Default half of Lifetime.
	RenewBefore time.Duration
	// Interval is the time between two checks of the roots and of the certificate of the listener. Default one minute.
	Interval time.Duration
	// Log receives messages about problems. If Log is zero, these messages are dropped.
	Log logr.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// CertManager issues certificates with cert-manager. CertManager is a Runnable of a controller-runtime manager.
//
// Each Kyma has a Certificate with the name of the Kyma and CertificateSuffix. cert-manager writes the Secret of this
// Certificate. The certificates are signed by the root in the Secret klm-watcher, which cert-manager maintains.
// Runtimes trust the root in the Secret klm-watcher, and the roots in the bundle of the gateway. When cert-manager
// replaces a root, there is no period in which runtimes trust both the old root and the new root. If runtimes have to
// trust two roots for a while, keep the previous root in the bundle of the gateway. The listener also trusts previous
// roots until its process ends.
type CertManager struct {
	CertManagerOptions
	notifier
	trust   atomic.Pointer[bundle]          // nil until the roots were read
	serving atomic.Pointer[tls.Certificate] // nil until the listener has a certificate
	problem atomic.Pointer[failure]         // the problem of the last check, nil if there was none
}

// bundle is a set of trusted roots with its digest.
type bundle struct {
	newest  string // fingerprint of the newest root
	handed  []*x509.Certificate
	pem     []byte // roots as PEM, as delivered to runtimes
	digest  string // digest of pem
	trusted []*x509.Certificate
}

// failure wraps an error, so that an atomic pointer can point to it.
type failure struct{ error }

// NewCertManager returns a CertManager that has not read its roots yet. NewCertManager sends no request.
func NewCertManager(o CertManagerOptions) (*CertManager, error) {
	if o.Client == nil || o.Namespace == "" {
		return nil, errors.New("building the issuer by cert-manager: it needs a client and a namespace")
	}
	if o.Issuer == "" {
		o.Issuer = "klm-watcher-selfsigned"
	}
	if o.IssuerKind == "" {
		o.IssuerKind = "Issuer"
	}
	if o.Lifetime == 0 {
		o.Lifetime = 60 * 24 * time.Hour
	}
	if o.RenewBefore == 0 {
		o.RenewBefore = o.Lifetime / 2
	}
	if o.Interval == 0 {
		o.Interval = time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Lifetime < time.Hour || o.RenewBefore < 0 || o.RenewBefore >= o.Lifetime || o.Interval < 0 {
		return nil, fmt.Errorf(
			"building the issuer by cert-manager: certificates live %s and are renewed %s before their end: they "+
				"must live an hour, and longer than that", o.Lifetime, o.RenewBefore)
	}
	return &CertManager{CertManagerOptions: o, notifier: newNotifier()}, nil
}

// NeedLeaderElection returns false: every replica verifies certificates.
func (c *CertManager) NeedLeaderElection() bool { return false }

// Start synchronises the roots and the certificate of the listener until ctx ends. Start never returns an error.
// Problems are retried, logged, and returned by LastError.
func (c *CertManager) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		after := c.Interval
		if err := c.sync(ctx); err != nil && ctx.Err() == nil {
			if former := c.problem.Swap(&failure{err}); former == nil || former.Error() != err.Error() {
				c.Log.Error(err, "looking after the certificates of cert-manager; it is tried again")
			}
			if c.serving.Load() == nil { // with a certificate, a problem may last until cert-manager is repaired
				after = min(after, retryInterval)
			}
		} else {
			c.problem.Store(nil)
		}
		timer.Reset(after)
	}
}

// LastError returns the problem that the last check has found, or nil if the last check has found no problem.
func (c *CertManager) LastError() error {
	if p := c.problem.Load(); p != nil {
		return p.error
	}
	return nil
}

// Ready is a health check that fails until the roots were read from the cluster.
func (c *CertManager) Ready(*http.Request) error {
	if c.trust.Load() != nil {
		return nil
	}
	if err := c.LastError(); err != nil {
		return err
	}
	return &Error{Code: v1beta2.ReasonAuthorityNotReady,
		Message: fmt.Sprintf("the root in Secret %s/%s is not read yet", c.Namespace, SecretName)}
}

// Roots returns the trusted root certificates, the newest one first. Before the roots were read, Roots returns no
// certificates. Roots is cheap, because it sends no request. The caller must not modify the result.
func (c *CertManager) Roots() []*x509.Certificate {
	if b := c.trust.Load(); b != nil {
		return b.trusted
	}
	return nil
}

// Serving returns the certificate of the listener. Serving is cheap, because it sends no request.
func (c *CertManager) Serving() (*tls.Certificate, error) {
	if s := c.serving.Load(); s != nil {
		return s, nil
	}
	if err := c.LastError(); err != nil {
		return nil, err
	}
	return nil, certificateNotReadyError("Certificate %s/%s of the listener is not issued yet", c.Namespace,
		ListenerName)
}

// sync reads the roots, applies the Certificate of the listener, and reads the certificate of the listener. sync
// applies the Certificate each time, because cert-manager keeps the Secret of a Certificate that somebody has deleted.
// An unchanged Certificate costs one request, and no write of the API server. If the Certificate cannot be applied, for
// example because the webhook of cert-manager does not answer, sync reads the certificate anyway.
func (c *CertManager) sync(ctx context.Context) error {
	if err := c.readRoots(ctx); err != nil {
		return err
	}
	declared, applyErr := c.applyCertificate(ctx, ListenerName, protocol.ManagerName, c.Hosts)
	readErr := c.readServing(ctx)
	switch {
	case applyErr != nil:
		return applyErr
	case readErr != nil:
		return readErr
	}
	return c.checkRenewed(declared, c.serving.Load().Leaf)
}

// readServing reads the certificate of the listener.
func (c *CertManager) readServing(ctx context.Context) error {
	secret, err := c.secretOrNil(ctx, ListenerName)
	if err != nil {
		return err
	}
	if secret == nil {
		return certificateNotReadyError("Secret %s/%s has no certificate for the listener yet: look at the "+
			"Certificate of this name", c.Namespace, ListenerName)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return certificateNotReadyError("Secret %s/%s has no certificate that can be used: %v", c.Namespace,
			ListenerName, err)
	}
	c.serving.Store(&pair)
	return nil
}

// checkRenewed returns an error if a certificate is not valid yet, or if cert-manager should have renewed it long ago.
// cert-manager renews a certificate RenewBefore before its end, or in its last third if the issuer has issued it for no
// longer than RenewBefore. checkRenewed leaves a third of this time to cert-manager for repeated attempts.
func (c *CertManager) checkRenewed(declared *unstructured.Unstructured, leaf *x509.Certificate) error {
	before := c.RenewBefore
	if life := leaf.NotAfter.Sub(leaf.NotBefore); before >= life {
		before = life / 3
	}
	if c.Now().Before(leaf.NotBefore) || leaf.NotAfter.Sub(c.Now()) < before*2/3 {
		return notRenewedError(declared, leaf)
	}
	return nil
}

// notRenewedError returns the error for a certificate that is not valid, or not much longer, because cert-manager has
// not renewed it.
func notRenewedError(declared *unstructured.Unstructured, leaf *x509.Certificate) error {
	_, message := isConditionTrue(declared, "Ready")
	return certificateNotReadyError("the certificate in Certificate %s/%s is valid only from %s to %s, and cert-manager "+
		"has not renewed it (%s): check that cert-manager works and that its clock is right", declared.GetNamespace(),
		declared.GetName(), leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339),
		message)
}

// readRoots reads the trusted roots. While the Secret cannot be parsed, the previous roots stay in use.
func (c *CertManager) readRoots(ctx context.Context) error {
	root, err := c.secretOrNil(ctx, SecretName)
	if err != nil {
		return err
	}
	if root == nil {
		return &Error{Code: v1beta2.ReasonAuthorityNotReady,
			Message: fmt.Sprintf(
				"Secret %s/%s with the root of cert-manager is not there: create the Certificate that fills it",
				c.Namespace, SecretName)}
	}
	gateway, err := c.secretOrNil(ctx, GatewaySecretName)
	if err != nil {
		return err
	}
	sources := [][]byte{root.Data[corev1.TLSCertKey], root.Data[KeyRoots]}
	if gateway != nil {
		sources = append(sources, gateway.Data[KeyRoots])
	}
	now, b := c.Now(), &bundle{}
	for i, data := range sources {
		if i > 0 && len(data) == 0 {
			continue
		}
		found, err := readCertificates(data)
		if err != nil {
			return &Error{Code: v1beta2.ReasonAuthorityBroken,
				Message: fmt.Sprintf(
					"the roots in Secret %s or %s of namespace %s are broken (%v): have cert-manager issue them anew",
					SecretName, GatewaySecretName, c.Namespace, err)}
		}
		b.handed = appendRoots(b.handed, found, now)
	}
	if len(b.handed) == 0 {
		return &Error{Code: v1beta2.ReasonAuthorityBroken,
			Message: fmt.Sprintf("Secret %s/%s has no root that is valid: have cert-manager issue it anew", c.Namespace,
				SecretName)}
	}
	for _, r := range b.handed {
		b.pem = append(b.pem, encodePEM(pemCertificate, r.Raw)...)
	}
	b.newest, b.digest = protocol.ShortFingerprint(b.handed[0]), Digest(b.pem)
	b.trusted = appendRoots(slices.Clone(b.handed), c.Roots(), now)
	if before := c.trust.Swap(b); before == nil || before.digest != b.digest {
		c.notify()
	}
	return nil
}

// appendRoots appends certificates of the list in the parameter "more" to the list in the parameter "all", and returns
// the result. appendRoots leaves out certificates that are no CAs, that have expired, or that the first list contains
// already.
func appendRoots(all, more []*x509.Certificate, now time.Time) []*x509.Certificate {
	for _, r := range more {
		if r.IsCA && now.Before(r.NotAfter) && !slices.ContainsFunc(all, r.Equal) {
			all = append(all, r)
		}
	}
	return all
}

// Issue implements [Issuer]. Issue applies the Certificate of the Kyma and returns the certificate that cert-manager
// has issued for it. If nothing has changed, Issue returns the same certificate as the previous call. If the
// certificate is signed by an old root, or is older than s.NotBefore, Issue triggers a renewal.
func (c *CertManager) Issue(ctx context.Context, s Subject) (*Certificate, error) {
	issued, err := c.applyAndReadCertificate(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("having a certificate issued to %q: %w", s.CommonName, err)
	}
	return issued, nil
}

func (c *CertManager) applyAndReadCertificate(ctx context.Context, s Subject) (*Certificate, error) {
	if s.Kyma == "" {
		return nil, certificateRefusedError("the name of a Kyma is needed")
	}
	if err := checkSubject(s, c.Hosts, c.Reserved); err != nil {
		return nil, err
	}
	if err := c.readRoots(ctx); err != nil {
		return nil, err
	}
	name := s.Kyma + CertificateSuffix
	declared, err := c.applyCertificate(ctx, name, s.CommonName, withAgentHosts(s.DNSNames))
	if err != nil {
		return nil, err
	}
	if ready, message := isConditionTrue(declared, "Ready"); !ready {
		return nil, certificateNotReadyError("Certificate %s/%s is not ready: %s", c.Namespace, name, message)
	}
	secret, err := c.secretOrNil(ctx, name)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		return nil, certificateNotReadyError("Secret %s/%s is not there yet", c.Namespace, name)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, certificateNotReadyError("Secret %s/%s has no certificate that can be used: %v", c.Namespace, name,
			err)
	}
	if now := c.Now(); now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
		return nil, notRenewedError(declared, pair.Leaf)
	}
	b := c.trust.Load()
	by := signingRootFingerprint(&pair, b.trusted, c.Now())
	if by != b.newest && pair.Leaf.NotBefore.After(b.handed[0].NotBefore.Add(issuerDelay)) {
		return nil,
			certificateNotReadyError("Certificate %s/%s is not signed with the root in Secret %s, although it is younger: "+
				"let %s %s use that Secret",
				c.Namespace, name, SecretName, c.IssuerKind, c.Issuer)
	}
	if by != b.newest || isRevoked(Held{Issued: pair.Leaf.NotBefore}, s.NotBefore, c.Now()) {
		return nil, c.requestRenewal(ctx, declared)
	}
	return &Certificate{
		PEM: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey], CA: b.pem,
		Serial: pair.Leaf.SerialNumber.Text(16), Root: by, Issued: pair.Leaf.NotBefore, NotAfter: pair.Leaf.NotAfter,
	}, nil
}

// signingRootFingerprint returns the fingerprint of the root that has signed a certificate, or "" if none of the roots
// has signed it.
func signingRootFingerprint(pair *tls.Certificate, roots []*x509.Certificate, now time.Time) string {
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	for _, r := range roots {
		only := x509.NewCertPool()
		only.AddCert(r)
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: only, Intermediates: between, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
			return protocol.ShortFingerprint(r)
		}
	}
	return ""
}

// applyCertificate applies the desired Certificate and returns the object that the API server has stored.
func (c *CertManager) applyCertificate(ctx context.Context, name, commonName string, hosts []string) (
	*unstructured.Unstructured, error) {
	t := template{hosts: hosts}.hostsTemplate()
	spec := map[string]any{
		"secretName": name, "commonName": commonName,
		"duration": c.Lifetime.String(), "renewBefore": c.RenewBefore.String(),
		"usages":     []any{"digital signature", "key encipherment", "server auth", "client auth"},
		"privateKey": map[string]any{"algorithm": "ECDSA", "size": int64(256), "rotationPolicy": "Always"},
		"issuerRef":  map[string]any{"name": c.Issuer, "kind": c.IssuerKind, "group": certificateKind.Group},
		"secretTemplate": map[string]any{"labels": map[string]any{
			v1beta2.LabelPurpose:   v1beta2.PurposeWatcherCertificate,
			v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager,
		}},
	}
	if len(t.DNSNames) > 0 {
		spec["dnsNames"] = toAny(t.DNSNames)
	}
	var addresses []string
	for _, ip := range t.IPAddresses {
		addresses = append(addresses, ip.String())
	}
	if len(addresses) > 0 {
		spec["ipAddresses"] = toAny(addresses)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name, "namespace": c.Namespace,
			"labels": map[string]any{v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}},
		"spec": spec,
	}}
	o.SetGroupVersionKind(certificateKind)
	err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o),
		client.FieldOwner(v1beta2.FieldOwner), client.ForceOwnership)
	switch {
	case meta.IsNoMatchError(err):
		return nil,
			certificateNotReadyError("cert-manager is not installed in the control plane: install it, or choose the " +
				"authority of the manager")
	case err != nil:
		return nil, fmt.Errorf("writing Certificate %s/%s: %w", c.Namespace, name, err)
	}
	return o, nil
}

func toAny(from []string) []any {
	var all []any
	for _, s := range from {
		all = append(all, s)
	}
	return all
}

// isConditionTrue reports whether a condition of the Certificate is true for the current spec. isConditionTrue also
// returns the message of the condition.
func isConditionTrue(o *unstructured.Unstructured, conditionType string) (isTrue bool, message string) {
	for _, c := range conditionsOf(o) {
		if c.Type != conditionType {
			continue
		}
		if c.ObservedGeneration != 0 && c.ObservedGeneration != o.GetGeneration() {
			return false, "cert-manager has not seen it yet"
		}
		return c.Status == metav1.ConditionTrue, c.Message
	}
	return false, "cert-manager has not said anything about it yet"
}

// conditionsOf returns the conditions in the status of an object.
func conditionsOf(o *unstructured.Unstructured) []metav1.Condition {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	fields, _, _ := unstructured.NestedMap(o.Object, "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status); err != nil {
		return nil // the status is not in a known form
	}
	return status.Conditions
}

// requestRenewal makes cert-manager renew a certificate, unless a renewal is in progress. To start the renewal,
// requestRenewal sets the condition Issuing of the Certificate, as cmctl renew does. A renewal takes time, so
// requestRenewal always returns an error, which says that the certificate is being renewed or why the renewal could not
// be started.
func (c *CertManager) requestRenewal(ctx context.Context, o *unstructured.Unstructured) (notReady error) {
	waiting := certificateNotReadyError("Certificate %s/%s is being renewed", c.Namespace, o.GetName())
	if issuing, _ := isConditionTrue(o, "Issuing"); issuing {
		return waiting
	}
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return fmt.Errorf("reading the conditions of Certificate %s/%s: %w", c.Namespace, o.GetName(), err)
	}
	conditions = slices.DeleteFunc(conditions, func(each any) bool {
		fields, _ := each.(map[string]any)
		return fields["type"] == "Issuing"
	})
	conditions = append(conditions, map[string]any{
		"type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
		"message":            "The lifecycle manager asks for another certificate",
		"lastTransitionTime": c.Now().UTC().Format(time.RFC3339), "observedGeneration": o.GetGeneration(),
	})
	if err := unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions"); err != nil {
		return fmt.Errorf("asking for renewal of Certificate %s/%s: %w", c.Namespace, o.GetName(), err)
	}
	if err := c.Client.Status().Update(ctx, o); err != nil {
		return fmt.Errorf("asking for renewal of Certificate %s/%s: %w", c.Namespace, o.GetName(), err)
	}
	return waiting
}

// secretOrNil returns a Secret, or nil if the Secret does not exist.
func (c *CertManager) secretOrNil(ctx context.Context, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", c.Namespace, name, err)
	}
	return s, nil
}

// Stale implements [Issuer]. Stale is cheap, because it sends no request. Before the roots were read, Stale returns
// false.
func (c *CertManager) Stale(record Held, revokedBefore time.Time) (stale bool, reason string) {
	b := c.trust.Load()
	if b == nil {
		return false, ""
	}
	return isStale(record, b.newest, b.digest, revokedBefore, c.Now(), c.Due(record))
}

// Due implements [Issuer]. Due returns a time shortly after the one at which cert-manager renews the certificate, so
// that the renewed certificate is there; the returned time differs from certificate to certificate.
func (c *CertManager) Due(h Held) time.Time {
	return renewalTime(h, c.RenewBefore-c.RenewBefore/6, c.RenewBefore/6)
}

// Release implements [Issuer]. Release deletes the Certificate of the Kyma and the Secret of the Certificate, because
// cert-manager would keep the Secret.
func (c *CertManager) Release(ctx context.Context, kyma string) error {
	certificate := &unstructured.Unstructured{}
	certificate.SetGroupVersionKind(certificateKind)
	for _, o := range []client.Object{certificate, &corev1.Secret{}} {
		o.SetNamespace(c.Namespace)
		o.SetName(kyma + CertificateSuffix)
		if err := c.Client.Delete(ctx, o); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("deleting certificate %s/%s: %w", c.Namespace, o.GetName(), err)
		}
	}
	return nil
}
