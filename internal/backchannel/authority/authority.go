// Package authority issues the certificates by which runtimes and control plane know each other, and says which roots to trust.
//
// # Use
//
//	a, err := authority.New(authority.Options{Client: …, Namespace: "kcp-system", Hosts: []string{"klm.example.com"}, Seen: …})
//	err = mgr.Add(a)                            // every replica, leader or not
//	c, err := a.Issue(ctx, authority.Subject{…}) // to be delivered to the runtime; what to record of it is c.Held()
//	stale, why := a.Stale(held, mark)           // whether it is time for another
//	roots, pair := a.Roots(), a.Serving         // for the listener
//
// [CertManager] does the same with the certificates of cert-manager; both are an [Issuer].
//
// # How it works
//
// The roots, certificates and keys, are in one Secret that all replicas share ([SecretName]). Whoever comes first makes it; a replica that
// loses the race takes what the other wrote. Each replica looks at the Secret whenever it changes, told by a watch on the metadata of this
// one object, and once a minute, and then decides by the one table in rotate.go what is to be done: whether a new root is needed, which root
// signs the certificate of the listener, which root can go. What is decided is written first, and in force only when it is written.
//
// A rotation goes so: there is a new root, first in the list. All roots of the list are trusted, by the listener and, with the next
// certificate, by each runtime. Runtimes get certificates of the new root, one after the other. A runtime that is seen with such a
// certificate has got the bundle beside it, so it trusts the new root too. When all are seen, the listener takes a certificate of the new
// root, and a little later the old root is dropped. A runtime that is never seen keeps the old root in force until that ends. A second
// rotation may begin while the first goes on: of more than two roots, the listener uses the newest that every runtime trusts, which is
// the oldest that a runtime is seen on.
//
// Certificates begin to be valid [protocol.BackdatePeriod] before they are issued, and are renewed well before their end, each at a moment of its
// own, so that a clock an hour off does not matter and a fleet does not renew in one hour.
//
// If the Secret cannot be understood, the former roots stay in force in every replica that knows them, and [Authority.Err] says what is
// wrong. A CA is never made over an existing Secret. If the Secret is deleted, a replica that knows the roots writes them again.
// An operator may remove a root from the Secret by hand; it is not trusted from then on.
//
// # What it does not do
//
// It does not deliver certificates and does not remember whom it issued one to: the key is in what Issue returns and nowhere else. It keeps
// no list of revoked certificates: the listener compares when one was issued with a mark on the Kyma. It does not serve the runtimes' own CAs.
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

// SecretName is the name of the Secret with the roots, of our own authority and of cert-manager.
const SecretName = "klm-watcher"

// Subject is who gets a certificate.
type Subject struct {
	// Kyma is the name of the Kyma. CertManager names its objects by it.
	Kyma string
	// CommonName is the runtime ID of the Kyma, or its name if it has none.
	CommonName string
	// UID is that of the Kyma. Our own authority puts it into the certificate.
	UID string
	// DNSNames are the names of the runtime, beside those of the agent's Service. Empty ones do not count.
	DNSNames []string
	// NotBefore is the time of the annotation certificates-not-before: CertManager has a certificate renewed that is older. Zero is none.
	NotBefore time.Time
}

// Key is a private key as PEM. It does not show itself to what prints, formats or marshals it.
type Key []byte

// Format writes a word instead of the key.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("(key)")) }

// MarshalText returns a word instead of the key.
func (Key) MarshalText() ([]byte, error) { return []byte("(key)"), nil }

// Certificate is a certificate that was issued, with all that its owner needs.
type Certificate struct {
	// PEM is the certificate, Key its key, which nobody else has, and CA all roots to trust, newest first. All are PEM.
	PEM []byte
	Key Key
	CA  []byte
	// Serial is its serial number, hexadecimal.
	Serial string
	// Root is the fingerprint of the root that signed it.
	Root string
	// Issued is when it was issued, NotAfter when it ends.
	Issued, NotAfter time.Time
}

// Held returns what is to be recorded of the certificate.
func (c *Certificate) Held() Held {
	return Held{Serial: c.Serial, Root: c.Root, Bundle: Digest(c.CA), Issued: c.Issued, NotAfter: c.NotAfter}
}

// Held is what is recorded of a certificate that was delivered to a runtime. The zero value says that there is none.
type Held struct {
	// Serial is the serial number, hexadecimal.
	Serial string `json:"serial"`
	// Root is the fingerprint of the root that signed it.
	Root string `json:"root"`
	// Bundle is the Digest of the roots that were delivered with it.
	Bundle string `json:"bundle"`
	// Issued is when it was issued, to the second.
	Issued time.Time `json:"issued"`
	// NotAfter is when it ends.
	NotAfter time.Time `json:"notAfter"`
}

// Digest returns a short digest of a bundle of roots.
func Digest(ca []byte) string {
	sum := sha256.Sum256(ca)
	return hex.EncodeToString(sum[:8])
}

// Issuer issues certificates to runtimes.
type Issuer interface {
	// Issue returns a certificate. Errors have a Reason. What it returns may be what it returned before (same Serial).
	Issue(ctx context.Context, s Subject) (*Certificate, error)
	// Stale tells whether a certificate and its roots are to be replaced, and why. Those issued before the mark are; the zero mark is none.
	Stale(h Held, mark time.Time) (bool, string)
	// Due returns when the certificate becomes stale by its age.
	Due(h Held) time.Time
	// Release forgets the certificates of a Kyma. It is no error if there are none.
	Release(ctx context.Context, kyma string) error
}

var (
	_ Issuer = (*Authority)(nil)
	_ Issuer = (*CertManager)(nil)
)

// Options say where the roots are and how long things live. Units are those of Go; zero is the default.
type Options struct {
	// Client reads, watches and writes the Secret. It must have no cache.
	Client client.WithWatch
	// Namespace is that of the Secret.
	Namespace string
	// Hosts are the names and IP addresses that the listener is reached by. No runtime may have a certificate for one of them.
	Hosts []string
	// Reserved are common names that no runtime may have, because the listener believes who has them. That of the listener is anyway.
	Reserved []string

	// Life is how long certificates of runtimes and the listener are valid. Default 7 days, at least a second.
	Life time.Duration
	// RenewBefore is how long before its end a certificate is replaced at the latest. Default a third of Life.
	RenewBefore time.Duration
	// RenewSpread is the time over which replacements spread, before RenewBefore. Default half of RenewBefore.
	RenewSpread time.Duration
	// RootLife is how long a root is valid. Default 180 days.
	RootLife time.Duration
	// Overlap is how long before its end a root gets a successor. Default a quarter of RootLife, at least Life.
	Overlap time.Duration
	// Settle is how long an old root stays after the listener has left it, for replicas that hear of it late. Default 10 minutes,
	// negative is not at all.
	Settle time.Duration
	// Interval is the time between two looks at the Secret and the fleet. Default a minute.
	Interval time.Duration

	// Seen tells which runtimes are on which root: names of Kymas by the fingerprint of the root of the client certificate that they were
	// last heard with or, if they have not been heard yet, of the one that they had before the last delivery. Under "" are those that
	// nothing is known of, although a certificate was delivered to them: while there is one, no root is given up. False says that this
	// replica does not know: it is not the leader, or has not read the Kymas yet. It is asked once an Interval, and only while there is more
	// than one root. nil never knows: old roots stay until they end.
	Seen func() (map[string][]string, bool)

	// Log is told of rotations and of what goes wrong. The zero value is silence.
	Log logr.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// orDefault returns the options with every gap filled in, or says what cannot be.
func (o Options) orDefault() (Options, error) {
	if o.Client == nil || o.Namespace == "" {
		return o, errors.New("building the certificate authority: it needs a client and a namespace")
	}
	fill := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	fill(&o.Life, 7*24*time.Hour)
	fill(&o.RenewBefore, o.Life/3)
	fill(&o.RenewSpread, o.RenewBefore/2)
	fill(&o.RootLife, 180*24*time.Hour)
	fill(&o.Overlap, o.RootLife/4)
	fill(&o.Settle, 10*time.Minute)
	fill(&o.Interval, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Life < time.Second || o.RenewBefore <= 0 || o.RenewSpread < 0 || o.Interval <= 0:
		return o, errors.New("building the certificate authority: a duration is negative, or certificates live less than a second")
	case o.RenewBefore+o.RenewSpread >= o.Life:
		return o, fmt.Errorf("building the certificate authority: certificates would be renewed as soon as issued: they live %s, and are renewed up to %s before their end", o.Life, o.RenewBefore+o.RenewSpread)
	case o.Overlap < o.Life || o.RootLife <= o.Overlap:
		return o, fmt.Errorf("building the certificate authority: roots live %s and overlap by %s: the overlap must be shorter than that, and not shorter than the life of a certificate (%s)", o.RootLife, o.Overlap, o.Life)
	}
	return o, nil
}

// Authority is our own certificate authority. It is a runnable of a controller-runtime manager.
type Authority struct {
	Options
	ring       atomic.Pointer[ring]       // nil until the Secret was read; what it points to does not change
	problem    atomic.Pointer[Error]      // why the Secret is not what is in force, nil if it is
	stragglers atomic.Pointer[Stragglers] // never nil
	serving    atomic.Pointer[serving]    // nil until somebody asked for it

	notifier

	known func() // says that it is known whether there are roots
	first <-chan struct{}

	renewing sync.Mutex // held to renew serving
}

// notifier tells of changes of the roots.
type notifier struct {
	mu      *sync.Mutex // guards changed
	changed *chan struct{}
}

func newNotifier() notifier { return notifier{new(sync.Mutex), new(make(chan struct{}))} }

// Changed returns a channel that is closed when the roots change next: what Stale says may then be another for the whole fleet.
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
	due  time.Time // when to renew it
}

// Stragglers are runtimes that are not seen on the newest root.
type Stragglers struct {
	// Count is their number.
	Count int
	// Names are those of up to 10 of them, sorted.
	Names []string
}

// New returns an authority that knows no roots yet. It makes no request.
func New(o Options) (*Authority, error) {
	o, err := o.orDefault()
	if err != nil {
		return nil, err
	}
	first := make(chan struct{})
	a := &Authority{Options: o, first: first, known: sync.OnceFunc(func() { close(first) }), notifier: newNotifier()}
	a.stragglers.Store(&Stragglers{})
	return a, nil
}

// NeedLeaderElection returns false: every replica issues and verifies.
func (a *Authority) NeedLeaderElection() bool { return false }

// Roots returns the roots to trust, newest first; none while they are not known. It is cheap. The caller must not change them.
func (a *Authority) Roots() []*x509.Certificate {
	if r := a.ring.Load(); r != nil {
		return r.certificates
	}
	return nil
}

// Stragglers returns the runtimes that are not on the newest root, as last looked for; none while there is one root.
func (a *Authority) Stragglers() Stragglers { return *a.stragglers.Load() }

// Err returns why the Secret is not what is in force, nil if it is. It has a Reason.
func (a *Authority) Err() error {
	if p := a.problem.Load(); p != nil {
		return p
	}
	return nil
}

// Ready fails until there are roots. It is a check of package healthz.
func (a *Authority) Ready(*http.Request) error {
	if a.ring.Load() == nil {
		return a.unknown()
	}
	return nil
}

// unknown says why there are no roots.
func (a *Authority) unknown() error {
	if err := a.Err(); err != nil {
		return err
	}
	return &Error{Code: v1beta2.ReasonAuthorityNotReady, Message: fmt.Sprintf("the roots in Secret %s/%s are not read yet", a.Namespace, SecretName)}
}

// firstLook is how long a caller waits for the Secret to be read for the first time.
const firstLook = 5 * time.Second

// roots returns the roots. Right after the start it waits for them a little, so that the first callers do not fail for nothing.
func (a *Authority) roots(ctx context.Context) (*ring, error) {
	if a.ring.Load() == nil {
		timer := time.NewTimer(firstLook)
		defer timer.Stop()
		select {
		case <-a.first:
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if r := a.ring.Load(); r != nil {
		return r, nil
	}
	return nil, a.unknown()
}

// adopt puts roots in force.
func (a *Authority) adopt(r *ring) {
	before := a.ring.Swap(r)
	a.problem.Store(nil)
	a.known()
	metrics.AuthorityBroken.Set(0)
	metrics.AuthorityRoots.Set(float64(len(r.roots)))
	metrics.AuthorityRootExpiry.Set(float64(r.roots[0].certificate.NotAfter.Unix()))
	if before == nil || before.digest != r.digest {
		a.notify()
	}
}

// Issue implements [Issuer]: a certificate of the newest root, for client and server authentication. Each call makes a new key.
func (a *Authority) Issue(ctx context.Context, s Subject) (*Certificate, error) {
	r, err := a.roots(ctx)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate to %q: %w", s.CommonName, err)
	}
	if err := admit(s, a.Hosts, a.Reserved); err != nil {
		return nil, fmt.Errorf("issuing a certificate to %q: %w", s.CommonName, err)
	}
	pair, err := r.roots[0].issue(template{commonName: s.CommonName, hosts: runtimeHosts(s.DNSNames), uid: s.UID, now: a.Now(), life: a.Life})
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate to %q: %w", s.CommonName, err)
	}
	metrics.CertificatesIssued.Inc()
	return pair.certificate(r), nil
}

// Ingress returns a certificate for whoever ends TLS in front of the listener: for its hosts, as a server and nothing else. If the one that it
// holds (PEM) will do, together with the roots that it holds, that is nil.
func (a *Authority) Ingress(held, ca []byte) (*Certificate, error) {
	r := a.ring.Load()
	if r == nil {
		return nil, fmt.Errorf("issuing the certificate of the ingress: %w", a.unknown())
	}
	signer := r.roots[r.indexOf(r.listener)]
	if block, _ := pem.Decode(held); block != nil && bytes.Equal(ca, r.pem) {
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err == nil && leaf.CheckSignatureFrom(signer.certificate) == nil && leaf.NotAfter.Sub(a.Now()) > a.RenewBefore {
			return nil, nil
		}
	}
	pair, err := signer.issue(template{commonName: protocol.ManagerName + "-ingress", servers: true, hosts: a.Hosts, now: a.Now(), life: a.Life})
	if err != nil {
		return nil, fmt.Errorf("issuing the certificate of the ingress: %w", err)
	}
	return pair.certificate(r), nil
}

// admit refuses subjects that would be taken for somebody else: for the listener, at these hosts, or for one of its peers.
func admit(s Subject, hosts, reserved []string) error {
	switch {
	case s.CommonName == "" || s.UID == "":
		return refused("a runtime ID, or a name, and the UID of a Kyma are needed")
	case s.CommonName == protocol.ManagerName || slices.Contains(reserved, s.CommonName):
		return refused("this name is not for runtimes: correct the label %s of the Kyma", v1beta2.LabelRuntimeID)
	}
	leaf := template{hosts: s.DNSNames}.names()
	for _, host := range hosts {
		if leaf.VerifyHostname(host) == nil {
			return refused("%q, the address of the control plane, would be one of its names: correct the annotation %s of the Kyma", host, v1beta2.AnnotationSKRDomain)
		}
	}
	return nil
}

// Release implements [Issuer]. There is nothing to forget.
func (a *Authority) Release(context.Context, string) error { return nil }

// Due implements [Issuer]: RenewBefore before the end, and up to RenewSpread earlier, which differs from certificate to certificate.
func (a *Authority) Due(h Held) time.Time { return due(h, a.RenewBefore, a.RenewSpread) }

// due returns when a certificate is to be renewed.
func due(h Held, before, spread time.Duration) time.Time {
	sum := sha256.Sum256([]byte(h.Root + "/" + h.Serial))
	share := float64(uint16(sum[0])<<8|uint16(sum[1])) / (1 << 16)
	return h.NotAfter.Add(-before - time.Duration(share*float64(spread)))
}

// Stale implements [Issuer]. It is cheap. While the roots are not known nothing is stale, as nothing could be issued.
func (a *Authority) Stale(h Held, mark time.Time) (bool, string) {
	r := a.ring.Load()
	if r == nil {
		return false, ""
	}
	newest, end := r.roots[0], a.Due(h)
	if !h.NotAfter.Before(newest.certificate.NotAfter) {
		end = h.NotAfter // a new one would not live longer
	}
	return isStale(h, newest.fingerprint, r.digest, mark, a.Now(), end)
}

// isStale tells whether a certificate is to be replaced, and why.
//
//	1  there is none
//	2  its root is not the newest
//	3  the roots beside it are not the present ones
//	4  it was issued before the mark, if that is not in the future
//	5  it is due by its age
func isStale(h Held, newest, digest string, mark, now, due time.Time) (bool, string) {
	switch {
	case h == Held{}:
		return true, "there is none"
	case h.Root != newest:
		return true, "there is a newer root"
	case h.Bundle != digest:
		return true, "the roots to trust are others"
	case isRevoked(h, mark, now):
		return true, "it was issued before " + mark.UTC().Format(time.RFC3339)
	case !now.Before(due):
		return true, "it ends at " + h.NotAfter.UTC().Format(time.RFC3339)
	}
	return false, ""
}

// isRevoked tells whether the certificate was issued before the mark, to the second. A mark in the future would revoke what is issued
// now, again and again, so it does not count yet.
func isRevoked(h Held, mark, now time.Time) bool {
	return !mark.IsZero() && !mark.After(now) && h.Issued.Before(mark.Truncate(time.Second))
}

// Serving returns the certificate of the listener, for servers and, as replicas talk to each other, clients. It is renewed by itself. It is
// cheap unless it is being renewed.
func (a *Authority) Serving() (*tls.Certificate, error) {
	r := a.ring.Load()
	if r == nil {
		return nil, fmt.Errorf("issuing the certificate of the listener: %w", a.unknown())
	}
	if s := a.serving.Load(); s != nil && s.root == r.listener && a.Now().Before(s.due) {
		return s.pair, nil
	}
	a.renewing.Lock()
	defer a.renewing.Unlock()
	now := a.Now()
	if s := a.serving.Load(); s != nil && s.root == r.listener && now.Before(s.due) {
		return s.pair, nil // somebody was faster
	}
	signer := r.roots[r.indexOf(r.listener)]
	pair, err := signer.issue(template{commonName: protocol.ManagerName, hosts: a.Hosts, now: now, life: a.Life})
	if err != nil {
		return nil, fmt.Errorf("issuing the certificate of the listener: %w", err)
	}
	left := pair.leaf.NotAfter.Sub(now)
	s := &serving{pair: pair.tls(), root: signer.fingerprint, due: now.Add(min(left*2/3, a.Life-a.RenewBefore))}
	a.serving.Store(s)
	return s.pair, nil
}
