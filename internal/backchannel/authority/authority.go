// Package authority issues the certificates with which runtimes and the control plane authenticate each other, and
// manages the root certificates (roots) that both sides trust.
//
// # Use
//
//	a, err := authority.New(authority.Options{Client: …, Namespace: "kcp-system", Hosts: []string{"klm.example.com"}, RuntimesByRoot: …})
//	err = mgr.Add(a)                            // every replica, leader or not
//	c, err := a.Issue(ctx, authority.Subject{…}) // to be delivered to the runtime; c.Record() is recorded in the Kyma
//	stale, why := a.Stale(held, revokedBefore)  // reports whether the certificate must be replaced
//	roots, pair := a.Roots(), a.Serving         // for the listener
//
// [CertManager] issues certificates by cert-manager instead of an own authority. [Authority] and [CertManager]
// implement [Issuer].
//
// # How it works
//
// The roots (certificates and keys) are in one Secret that all replicas share ([SecretName]). The first replica creates
// this Secret; if several replicas try to create the Secret at the same time, the other replicas use the roots of the
// first one. Each replica reads the Secret in two cases: after a change of the Secret (a metadata watch on this one
// object), and once per Interval. After each read of the Secret, the table in rotate.go decides whether a new root is
// needed, which root signs the certificate of the listener, and which root can be removed. A replica acts on a decision
// about roots only after it has written the new state of the roots to the Secret.
//
// A rotation of the roots has several phases. A new root becomes the first in the list of trusted roots in the Secret.
// The listener trusts all roots in the list of the Secret. Each runtime receives the list of roots together with its
// next certificate. One runtime after the other receives a certificate that the new root has signed. A runtime receives
// its certificate and the list of roots together, so a runtime that connects with a certificate of the new root also
// trusts the new root. When all runtimes trust the new root, the listener uses a certificate of the new root. After
// SettlePeriod the old root is removed. If a runtime never connects, the old root is used until it expires. A second
// rotation may begin before the first has ended. If there are more than two roots, the listener uses the newest root
// that every runtime trusts. A runtime that connects with a certificate of one root also trusts all older roots.
// Therefore every runtime trusts the oldest of the roots that have signed certificates of runtimes, and this root signs
// the certificate of the listener.
//
// Certificates become valid [protocol.BackdatePeriod] before they are issued, so that a clock that is wrong by an hour
// is harmless. Certificates are renewed well before they expire, each at a different time, so that the certificates of
// a fleet are not all renewed within the same hour.
//
// If the Secret cannot be parsed, the previous roots stay in use in every replica that has read them, and
// [Authority.LastError] returns the problem. An existing Secret is never replaced by a new CA. If the Secret is
// deleted, a replica that knows the roots creates the Secret again. An operator may remove a root from the Secret by
// hand; after that, the root is no longer trusted.
//
// A replica whose clock is fast may create a root that is not valid yet by the clocks of the other replicas. Such a
// root signs nothing until it is valid. If no other root is left, the first replica with another clock creates one.
//
// # What it does not do
//
// The package does not deliver certificates, and does not store certificates: only the caller of Issue has the private
// key. The package has no revocation list. To revoke the certificates of a runtime, users write a time into an
// annotation on the Kyma, and the listener refuses certificates that were issued before this time. The package does not
// manage the CAs of the runtimes themselves.
package authority

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// SecretName is the name of the Secret with the root certificates, whether an Authority or cert-manager issues them.
const SecretName = "klm-watcher"

// Subject describes the recipient of a certificate.
type Subject struct {
	// Kyma is the name of the Kyma. CertManager uses the name of the Kyma in the names of its objects.
	Kyma string
	// CommonName is the runtime ID of the Kyma, or the name of the Kyma if the Kyma has no runtime ID.
	CommonName string
	// UID is the UID of the Kyma. The type Authority writes the UID into the certificate.
	UID string
	// DNSNames are the DNS names of the runtime, in addition to the DNS names of the agent's Service. Empty names in
	// DNSNames are ignored.
	DNSNames []string
	// NotBefore is the time in the annotation certificates-not-before of the Kyma, or the time at which the Kyma was
	// created if this is later. CertManager renews a certificate that was issued before NotBefore. If NotBefore is
	// zero, CertManager renews no certificate because of its time of issue.
	NotBefore time.Time
}

// Key is a private key as PEM. Printing, formatting and marshalling a Key do not reveal the private key.
type Key []byte

// Format writes a placeholder instead of the private key, so that no formatted message contains the key.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("(key)")) }

// MarshalText returns a placeholder instead of the private key.
func (Key) MarshalText() ([]byte, error) { return []byte("(key)"), nil }

// Certificate is an issued certificate with its key and the roots to trust.
type Certificate struct {
	// PEM is the certificate. Key is the private key of the certificate, and is not stored anywhere else. CA has all
	// trusted roots, the newest one first. PEM, Key and CA are in PEM format.
	PEM []byte
	Key Key
	CA  []byte
	// Serial is the serial number of the certificate in hexadecimal digits.
	Serial string
	// Root is the fingerprint of the root that signed the certificate.
	Root string
	// Issued is the time when the certificate was issued. NotAfter is the time when the certificate expires.
	Issued, NotAfter time.Time
}

// Record returns the record of the certificate that is stored in the Kyma.
func (c *Certificate) Record() Held {
	return Held{Serial: c.Serial, Root: c.Root, Bundle: Digest(c.CA), Issued: c.Issued, NotAfter: c.NotAfter}
}

// Held is the record of a certificate that was delivered to a runtime. If Held is zero, the runtime has no certificate
// yet.
type Held struct {
	// Serial is the serial number of the certificate in hexadecimal digits.
	Serial string `json:"serial"`
	// Root is the fingerprint of the root that signed the certificate.
	Root string `json:"root"`
	// Bundle is the Digest of the roots that were delivered with the certificate.
	Bundle string `json:"bundle"`
	// Issued is the time when the certificate was issued, in seconds.
	Issued time.Time `json:"issued"`
	// NotAfter is the time when the certificate expires.
	NotAfter time.Time `json:"notAfter"`
}

// Digest returns a short digest of a bundle of root certificates.
func Digest(ca []byte) string {
	sum := sha256.Sum256(ca)
	return hex.EncodeToString(sum[:8])
}

// Issuer issues certificates to runtimes.
type Issuer interface {
	// Issue returns a certificate for a runtime. Issue may return the certificate that the previous call has returned,
	// with the same Serial. Each error has a Reason.
	Issue(ctx context.Context, s Subject) (*Certificate, error)
	// Stale reports whether a certificate or the delivered roots must be replaced, and returns the reason. If
	// revokedBefore is not zero, a certificate that was issued earlier must be replaced.
	Stale(h Held, revokedBefore time.Time) (bool, string)
	// Due returns the time at which the certificate must be replaced because of its age.
	Due(h Held) time.Time
	// Release deletes the certificates that were issued for a Kyma. If a Kyma has no certificates, Release returns no
	// error.
	Release(ctx context.Context, kyma string) error
}

var (
	_ Issuer = (*Authority)(nil)
	_ Issuer = (*CertManager)(nil)
)

// Options configure an Authority. If a field is zero, its default applies.
type Options struct {
	// Client reads, watches and writes the Secret. Client must not have a cache.
	Client client.WithWatch
	// Namespace is the namespace of the Secret.
	Namespace string
	// Hosts are the names and IP addresses of the listener. Issue refuses a certificate for a runtime with one of the
	// listener's names or addresses, because the runtime could pose as the listener.
	Hosts []string
	// Reserved are common names that no runtime can have, because the listener trusts the owners of certificates with
	// these names. The common name of the listener is always reserved, even if Reserved does not contain it.
	Reserved []string

	// Lifetime is the validity of certificates of runtimes and of the listener. Lifetime is 7 days by default, and at
	// least one second.
	Lifetime time.Duration
	// RenewBefore is the minimum remaining validity of a certificate. A certificate is replaced before its remaining
	// validity is shorter than RenewBefore. Default a third of Lifetime.
	RenewBefore time.Duration
	// RenewSpread is a period by which the replacements of certificates are spread: a certificate is replaced when its
	// remaining validity is between RenewBefore and RenewBefore + RenewSpread. RenewSpread is half of RenewBefore by
	// default.
	RenewSpread time.Duration
	// RootLifetime is the validity of a root. Default 180 days.
	RootLifetime time.Duration
	// When the newest root expires in less than Overlap, a new root is created, and both roots are valid for the time
	// of Overlap. Default a quarter of RootLifetime, at least Lifetime.
	Overlap time.Duration
	// SettlePeriod is the time for which an old root is kept after the listener has stopped using it. During
	// SettlePeriod, replicas that have not read the changed Secret yet still accept certificates of the old root.
	// Default 10 minutes. A negative value means that the old root is removed immediately.
	SettlePeriod time.Duration
	// Interval is the time between two checks of the Secret and the fleet. Default one minute.
	Interval time.Duration

	// RuntimesByRoot returns the names of Kymas, grouped by the fingerprint of the root that signed their client
	// certificate. The client certificate of a runtime is the certificate with which its agent sent the last heartbeat.
	// If no heartbeat has arrived yet, the certificate delivered last may not be in use, so the one before it counts.
	// The key "" has the runtimes for which the root of the certificate is not known. No root is removed while the key
	// "" has runtimes.
	//
	// RuntimesByRoot returns false if this replica has no result, because it is not the leader or has not read the
	// Kymas yet. RuntimesByRoot is called once per Interval, and only while there are several roots. If RuntimesByRoot
	// is nil, the authority cannot know which roots are still needed, so it keeps old roots until they expire.
	RuntimesByRoot func() (map[string][]string, bool)

	// Log receives messages about rotations and problems. The zero value means that the messages are dropped.
	Log logr.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// orDefault returns the options with all defaults set, or an error if an option is invalid.
func (o Options) orDefault() (Options, error) {
	if o.Client == nil || o.Namespace == "" {
		return o, errors.New("building the certificate authority: it needs a client and a namespace")
	}
	fill := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	fill(&o.Lifetime, 7*24*time.Hour)
	fill(&o.RenewBefore, o.Lifetime/3)
	fill(&o.RenewSpread, o.RenewBefore/2)
	fill(&o.RootLifetime, 180*24*time.Hour)
	fill(&o.Overlap, o.RootLifetime/4)
	fill(&o.SettlePeriod, 10*time.Minute)
	fill(&o.Interval, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Lifetime < time.Second || o.RenewBefore <= 0 || o.RenewSpread < 0 || o.Interval <= 0:
		return o, errors.New("building the certificate authority: a duration is negative, or certificates live less " +
			"than a second")
	case o.RenewBefore+o.RenewSpread >= o.Lifetime:
		return o, fmt.Errorf("building the certificate authority: certificates would be renewed as soon as issued: "+
			"they live %s, and are renewed up to %s before their end", o.Lifetime, o.RenewBefore+o.RenewSpread)
	case o.Overlap < o.Lifetime || o.RootLifetime <= o.Overlap:
		return o, fmt.Errorf("building the certificate authority: roots live %s and overlap by %s: the overlap must "+
			"be shorter than that, and not shorter than the lifetime of a certificate (%s)",
			o.RootLifetime, o.Overlap, o.Lifetime)
	}
	return o, nil
}

// Authority is the certificate authority of Lifecycle Manager itself, without cert-manager. Authority is a Runnable of
// a controller-runtime manager.
type Authority struct {
	Options
	rootSet  atomic.Pointer[rootSet]          // nil until the Secret was read; immutable
	problem  atomic.Pointer[Error]            // the reason why the content of the Secret is not used; nil if it is used
	outdated atomic.Pointer[OutdatedRuntimes] // never nil
	serving  atomic.Pointer[serving]          // nil until the first call of Serving

	notifier

	known func() // called once the Secret was read or was found to be broken
	first <-chan struct{}

	renewing sync.Mutex // locked while serving is renewed

	replacedAt time.Time // when this replica has replaced roots that were not valid yet; used by sync only
}

// notifier sends notifications about changes of the roots.
type notifier struct {
	mu      *sync.Mutex // guards changed
	changed *chan struct{}
}

func newNotifier() notifier { return notifier{new(sync.Mutex), new(make(chan struct{}))} }

// Changed returns a channel that is closed at the next change of the roots. After a change of the roots, Stale may
// return another result than before for each runtime of the fleet.
func (n notifier) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return *n.changed
}

func (n notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(*n.changed)
	*n.changed = make(chan struct{})
}

// serving is the certificate of the listener.
type serving struct {
	pair *tls.Certificate
	root string
	due  time.Time // time of the renewal
}

// isUsable reports whether the listener can use the certificate s at the given time, although a root may have been
// replaced, or the clock may have been set back before the time at which the certificate becomes valid.
func (s *serving) isUsable(signer *root, now time.Time) bool {
	return s != nil && s.root == signer.fingerprint && now.Before(s.due) && !now.Before(s.pair.Leaf.NotBefore)
}

// OutdatedRuntimes are the runtimes whose certificate is not signed by the newest root.
type OutdatedRuntimes struct {
	// Count is the number of runtimes whose certificate is not signed by the newest root.
	Count int
	// Names are the names of at most 10 runtimes whose certificate is not signed by the newest root, sorted.
	Names []string
}

// New returns an Authority that has not read its roots yet. New sends no request.
func New(o Options) (*Authority, error) {
	o, err := o.orDefault()
	if err != nil {
		return nil, err
	}
	first := make(chan struct{})
	a := &Authority{Options: o, first: first, known: sync.OnceFunc(func() { close(first) }), notifier: newNotifier()}
	a.outdated.Store(&OutdatedRuntimes{})
	return a, nil
}

// NeedLeaderElection returns false: every replica issues and verifies certificates.
func (a *Authority) NeedLeaderElection() bool { return false }

// Roots returns the trusted root certificates, the newest one first. Before the roots were read from the Secret, Roots
// returns no certificates. Roots is cheap, because it sends no request. The caller must not modify the result.
func (a *Authority) Roots() []*x509.Certificate {
	if r := a.rootSet.Load(); r != nil {
		return r.certificates
	}
	return nil
}

// OutdatedRuntimes returns the runtimes whose certificate was not signed by the newest root at the last check. While
// there is only one root, OutdatedRuntimes returns no runtimes.
func (a *Authority) OutdatedRuntimes() OutdatedRuntimes { return *a.outdated.Load() }

// LastError returns the reason why the content of the Secret is not in use, or nil if the content is in use. The error
// has a Reason.
func (a *Authority) LastError() error {
	if p := a.problem.Load(); p != nil {
		return p
	}
	return nil
}

// Ready is a health check that fails until the roots were read from the Secret.
func (a *Authority) Ready(*http.Request) error {
	if a.rootSet.Load() == nil {
		return a.notReadError()
	}
	return nil
}

// notReadError returns an error with the reason why the roots were not read yet.
func (a *Authority) notReadError() error {
	if err := a.LastError(); err != nil {
		return err
	}
	return &Error{Code: v1beta2.ReasonAuthorityNotReady,
		Message: fmt.Sprintf("the roots in Secret %s/%s are not read yet", a.Namespace, SecretName)}
}

// firstReadTimeout limits how long a caller waits for the first read of the Secret.
const firstReadTimeout = 5 * time.Second

// waitForRoots returns the roots that are in use. Directly after the start, the method waitForRoots waits at most
// firstReadTimeout for the first read of the Secret, so that the first callers do not fail needlessly.
func (a *Authority) waitForRoots(ctx context.Context) (*rootSet, error) {
	if a.rootSet.Load() == nil {
		timer := time.NewTimer(firstReadTimeout)
		defer timer.Stop()
		select {
		case <-a.first:
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if r := a.rootSet.Load(); r != nil {
		return r, nil
	}
	return nil, a.notReadError()
}

// setRoots makes the authority use the roots in the set r.
func (a *Authority) setRoots(r *rootSet) {
	before := a.rootSet.Swap(r)
	a.problem.Store(nil)
	a.known()
	metrics.AuthoritySecretInvalid.Set(0)
	metrics.AuthorityRoots.Set(float64(len(r.roots)))
	metrics.AuthorityRootExpiry.Set(float64(r.roots[0].certificate.NotAfter.Unix()))
	if before == nil || before.digest != r.digest {
		a.notify()
	}
}

// Issue implements [Issuer]. Issue returns a certificate for client and server authentication that the newest valid
// root has signed. Each call generates a new key.
func (a *Authority) Issue(ctx context.Context, s Subject) (*Certificate, error) {
	r, err := a.waitForRoots(ctx)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate to %q: %w", s.CommonName, err)
	}
	if err := checkSubject(s, a.Hosts, a.Reserved); err != nil {
		return nil, fmt.Errorf("issuing a certificate to %q: %w", s.CommonName, err)
	}
	signer, _ := r.signers(a.Now())
	if signer == nil {
		return nil, fmt.Errorf("issuing a certificate to %q: %w", s.CommonName, noValidRootError())
	}
	pair, err := signer.issue(template{commonName: s.CommonName, hosts: withAgentHosts(s.DNSNames), uid: s.UID,
		now: a.Now(), lifetime: a.Lifetime})
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate to %q: %w", s.CommonName, err)
	}
	metrics.CertificatesIssued.Inc()
	return pair.certificate(r), nil
}

// IssueIngressCertificateIfDue returns a new server certificate for the proxy that terminates TLS in front of the
// listener. The certificate is valid for the hosts of the listener. The parameters currentCertificate and currentRoots
// are the certificate and the roots that the proxy has. If the certificate and the roots of the proxy need no
// replacement, IssueIngressCertificateIfDue returns nil.
func (a *Authority) IssueIngressCertificateIfDue(currentCertificate, currentRoots []byte) (*Certificate, error) {
	r := a.rootSet.Load()
	if r == nil {
		return nil, fmt.Errorf("issuing the certificate of the ingress: %w", a.notReadError())
	}
	_, signer := r.signers(a.Now())
	if signer == nil {
		return nil, fmt.Errorf("issuing the certificate of the ingress: %w", noValidRootError())
	}
	if block, _ := pem.Decode(currentCertificate); block != nil && bytes.Equal(currentRoots, r.pem) {
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err == nil && leaf.CheckSignatureFrom(signer.certificate) == nil &&
			!a.Now().Before(leaf.NotBefore) && leaf.NotAfter.Sub(a.Now()) > a.RenewBefore {
			return nil, nil
		}
	}
	pair, err := signer.issue(template{commonName: protocol.ManagerName + "-ingress", servers: true, hosts: a.Hosts,
		now: a.Now(), lifetime: a.Lifetime})
	if err != nil {
		return nil, fmt.Errorf("issuing the certificate of the ingress: %w", err)
	}
	return pair.certificate(r), nil
}

// checkSubject refuses a subject that could impersonate the listener, one of its hosts, or another replica.
func checkSubject(s Subject, forbiddenHosts, reservedNames []string) error {
	switch {
	case s.CommonName == "" || s.UID == "":
		return certificateRefusedError("a runtime ID or name, and the UID of the Kyma, are required")
	case s.CommonName == protocol.ManagerName || slices.Contains(reservedNames, s.CommonName):
		return certificateRefusedError("this name is reserved: correct the label %s of the Kyma",
			v1beta2.LabelRuntimeID)
	}
	leaf := template{hosts: s.DNSNames}.hostsTemplate()
	for _, host := range forbiddenHosts {
		if leaf.VerifyHostname(host) == nil {
			return certificateRefusedError(
				"%q is an address of the control plane: correct the annotation %s of the Kyma",
				host, v1beta2.AnnotationSKRDomain)
		}
	}
	return nil
}

// Release implements [Issuer]. Release does nothing, because the authority stores no certificate.
func (a *Authority) Release(context.Context, string) error { return nil }

// Due implements [Issuer]. At the returned time, the remaining validity of the certificate is between RenewBefore and
// RenewBefore + RenewSpread; the returned time differs from certificate to certificate.
func (a *Authority) Due(h Held) time.Time { return renewalTime(h, a.RenewBefore, a.RenewSpread) }

// renewalTime returns the time at which a certificate is renewed.
func renewalTime(h Held, before, spread time.Duration) time.Time {
	sum := sha256.Sum256([]byte(h.Root + "/" + h.Serial))
	share := float64(uint16(sum[0])<<8|uint16(sum[1])) / (1 << 16)
	return h.NotAfter.Add(-before - time.Duration(share*float64(spread)))
}

// Stale implements [Issuer]. Stale is cheap, because it sends no request. Until the roots were read, and while no root
// is valid, Stale returns false, because no certificate can be issued.
func (a *Authority) Stale(record Held, revokedBefore time.Time) (stale bool, reason string) {
	r := a.rootSet.Load()
	if r == nil {
		return false, ""
	}
	newest, _ := r.signers(a.Now())
	if newest == nil {
		return false, ""
	}
	end := a.Due(record)
	if !record.NotAfter.Before(newest.certificate.NotAfter) {
		end = record.NotAfter // a new certificate would expire at the same time as the old one
	}
	return isStale(record, newest.fingerprint, r.digest, revokedBefore, a.Now(), end)
}

// isStale reports whether a certificate must be replaced, and returns the reason. The first row of this table whose
// condition is true decides the result:
//
//	1  there is no certificate
//	2  its root is not the newest root
//	3  its bundle of roots is not the current bundle
//	4  it was issued before the time revokedBefore, and this time is not in the future
//	5  it was issued in the future by the clock of this replica, so it is not valid yet
//	6  it must be renewed because of its age
func isStale(h Held, newestRoot, rootsDigest string, revokedBefore, now, due time.Time) (stale bool, reason string) {
	switch {
	case h == Held{}:
		return true, "there is no certificate"
	case h.Root != newestRoot:
		return true, "there is a newer root"
	case h.Bundle != rootsDigest:
		return true, "the roots to trust have changed"
	case isRevoked(h, revokedBefore, now):
		return true, "it was issued before " + revokedBefore.UTC().Format(time.RFC3339)
	case h.Issued.After(now.Add(protocol.BackdatePeriod)):
		return true, "it is not valid yet"
	case !now.Before(due):
		return true, "it expires at " + h.NotAfter.UTC().Format(time.RFC3339)
	}
	return false, ""
}

// isRevoked reports whether the certificate was issued before the time of revocation, which is the parameter
// revokedBefore. The time of issue and the time of revocation are compared in whole seconds, because the time of issue
// is recorded in seconds. A time of revocation in the future is ignored: until that time, each newly issued certificate
// would be revoked at once.
func isRevoked(h Held, revokedBefore, now time.Time) bool {
	return !revokedBefore.IsZero() && !revokedBefore.After(now) && h.Issued.Before(revokedBefore.Truncate(time.Second))
}

// Serving returns the certificate of the listener. The listener uses it as a server certificate, and a replica uses it
// as a client certificate in requests to other replicas. When the certificate of the listener is due for renewal,
// Serving issues a new one. Every other call of Serving is cheap.
func (a *Authority) Serving() (*tls.Certificate, error) {
	r := a.rootSet.Load()
	if r == nil {
		return nil, fmt.Errorf("issuing the certificate of the listener: %w", a.notReadError())
	}
	// The monotonic clock stops while a machine is suspended, and a certificate expires by the wall clock. Round
	// removes the reading of the monotonic clock, so that the time of the renewal is compared with the wall clock, too.
	now := a.Now().Round(0)
	_, signer := r.signers(now)
	if signer == nil {
		return nil, fmt.Errorf("issuing the certificate of the listener: %w", noValidRootError())
	}
	if s := a.serving.Load(); s.isUsable(signer, now) {
		return s.pair, nil
	}
	a.renewing.Lock()
	defer a.renewing.Unlock()
	if s := a.serving.Load(); s.isUsable(signer, now) {
		return s.pair, nil // another goroutine has renewed it
	}
	pair, err := signer.issue(template{commonName: protocol.ManagerName, hosts: a.Hosts,
		now: now, lifetime: a.Lifetime})
	if err != nil {
		return nil, fmt.Errorf("issuing the certificate of the listener: %w", err)
	}
	left := pair.leaf.NotAfter.Sub(now)
	s := &serving{pair: pair.tlsCertificate(), root: signer.fingerprint, due: now.Add(min(left*2/3,
		a.Lifetime-a.RenewBefore))}
	a.serving.Store(s)
	return s.pair, nil
}
