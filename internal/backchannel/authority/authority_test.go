package authority

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	namespace = "kcp-system"
	day       = 24 * time.Hour
)

var secretKey = client.ObjectKey{Namespace: namespace, Name: SecretName}

// clock is a clock for tests that stands still.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time           { return c.now }
func (c *clock) forward(by time.Duration) { c.now = c.now.Add(by) }

func newClock() *clock { return &clock{time.Date(2026, 11, 1, 12, 0, 0, 700_000_000, time.UTC)} }

// newTestAuthority returns an authority with roots, in a control plane with no other objects.
func newTestAuthority(t *testing.T, o Options) *Authority {
	t.Helper()
	if o.Client == nil {
		o.Client = fake.NewClientBuilder().Build()
	}
	if o.Now == nil {
		o.Now = newClock().Now
	}
	o.Namespace = namespace
	if o.Hosts == nil {
		o.Hosts = []string{"klm.example.com", "127.0.0.1"}
	}
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	syncOnce(t, a)
	return a
}

func syncOnce(t *testing.T, a *Authority) {
	t.Helper()
	if err := a.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func issue(t *testing.T, a *Authority) *Certificate {
	t.Helper()
	c, err := a.Issue(t.Context(), Subject{Kyma: "a", CommonName: "runtime-a", UID: "uid-a",
		DNSNames: []string{"a.example.com", ""}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// changeSecret changes the Secret as an operator would.
func changeSecret(t *testing.T, c client.Client, change func(*corev1.Secret)) {
	t.Helper()
	s := &corev1.Secret{}
	if err := c.Get(t.Context(), secretKey, s); err != nil {
		t.Fatal(err)
	}
	change(s)
	if err := c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func reasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason()
	}
	return ""
}

func certPool(roots []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, r := range roots {
		p.AddCert(r)
	}
	return p
}

func TestIssue(t *testing.T) {
	clock := newClock()
	a := newTestAuthority(t, Options{Now: clock.Now})
	clock.forward(3 * day)
	c := issue(t, a)

	key, err := tls.X509KeyPair(c.PEM, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := key.PrivateKey.(*ecdsa.PrivateKey); !ok {
		t.Errorf("the key is a %T", key.PrivateKey)
	}
	leaf := key.Leaf
	root := a.Roots()[0]
	if got, want := leaf.DNSNames, []string{"a.example.com", "skr-webhook.kyma-system.svc",
		"skr-webhook.kyma-system.svc.cluster.local"}; !slices.Equal(got, want) {
		t.Errorf("names: %q", got)
	}
	if leaf.IsCA || leaf.NotBefore.Before(root.NotBefore) || leaf.NotAfter.After(root.NotAfter) ||
		leaf.NotAfter.Sub(clock.now.Truncate(time.Second)) != 7*day {
		t.Errorf("valid from %s to %s, its root from %s to %s", leaf.NotBefore, leaf.NotAfter,
			root.NotBefore, root.NotAfter)
	}
	want := protocol.Identity{CommonName: "runtime-a", UID: "uid-a", Issued: clock.now.Truncate(time.Second),
		Expires: leaf.NotAfter, Root: c.Root}
	if diff := cmp.Diff(want, protocol.IdentityOf(leaf, root)); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Held{Serial: leaf.SerialNumber.Text(16), Root: protocol.ShortFingerprint(root),
		Bundle: Digest(c.CA),
		Issued: want.Issued, NotAfter: leaf.NotAfter}, c.Record()); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if other := issue(t, a); other.Serial == c.Serial || string(other.Key) == string(c.Key) {
		t.Error("two certificates have one key or one number")
	}
}

// TestHandshake performs the TLS handshake between agent and listener at several ages of their certificates, with a
// wrong clock in the runtime.
func TestHandshake(t *testing.T) {
	cases := map[string]struct {
		reason string
		slow   time.Duration // how far the clock of the runtime is behind
		after  time.Duration // since the certificate was issued
		fails  bool
	}{
		"Fresh":    {"both clocks are right", 0, 0, false},
		"Slow":     {"the certificates begin before they are issued", time.Hour, 0, false},
		"VerySlow": {"a day is as much as may be wrong", 23 * time.Hour, 0, false},
		"Fast":     {"they end long after they are renewed", -time.Hour, 0, false},
		"FastAtRenewal": {"the last moment of renewal leaves a third of the lifetime",
			-time.Hour, 7 * day * 2 / 3, false},
		"SlowAtRenewal": {"so it does for slow clocks", time.Hour, 7 * day * 2 / 3, false},
		"Ended":         {"nobody renewed it, so the listener refuses it", 0, 7*day + time.Second, true},
		"EndedByOurClock": {"the clock of the control plane decides about clients", time.Hour,
			7*day + time.Second, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			a := newTestAuthority(t, Options{Now: clock.Now})
			certificate := issue(t, a)
			clock.forward(c.after)
			err := handshake(a, certificate, func() time.Time { return clock.now.Add(-c.slow) })
			if (err != nil) != c.fails {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

// handshake connects a client to a listener. The client authenticates with the certificate c, and uses the clock
// "runtime" to check the validity of the certificate of the listener. The listener uses the certificate that the
// authority a has issued.
func handshake(a *Authority, c *Certificate, runtime func() time.Time) error {
	mine, err := tls.X509KeyPair(c.PEM, c.Key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CA) {
		return errors.New("no roots")
	}
	server := &tls.Config{
		Time: a.Now, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:      certPool(a.Roots()),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.Serving() },
	}
	agent := &tls.Config{Time: runtime, MinVersion: tls.VersionTLS13, ServerName: "klm.example.com", RootCAs: roots,
		Certificates: []tls.Certificate{mine}}
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() {
		s := tls.Server(far, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("!"))
		}
		_ = far.Close()
		ended <- err
	}()
	// In TLS 1.3, a client has to read before it knows whether the server has accepted its certificate.
	_, err = tls.Client(near, agent).Read(make([]byte, 1))
	_ = near.Close()
	return errors.Join(err, <-ended)
}

func TestRefused(t *testing.T) {
	cases := map[string]struct {
		reason  string
		subject Subject
	}{
		"NoName": {"nobody could say whose events they are", Subject{UID: "u"}},
		"NoUID":  {"a Kyma of the same name that comes later would be taken for it", Subject{CommonName: "a"}},
		"Listener": {"the listener believes what its peers forward",
			Subject{CommonName: "lifecycle-manager", UID: "u"}},
		"Reserved": {"the configuration names more peers", Subject{CommonName: "ingress", UID: "u"}},
		"OurHost": {"it could stand in for the control plane",
			Subject{CommonName: "a", UID: "u", DNSNames: []string{"KLM.example.com"}}},
		"OurAddress": {"so it could by address", Subject{CommonName: "a", UID: "u", DNSNames: []string{"127.0.0.1"}}},
		"OurHostByAll": {"a wildcard is this name too",
			Subject{CommonName: "a", UID: "u", DNSNames: []string{"*.example.com"}}},
		"NotASCII": {"a certificate cannot say it",
			Subject{CommonName: "a", UID: "u", DNSNames: []string{"ü.example.com"}}},
	}
	a := newTestAuthority(t, Options{Reserved: []string{"ingress"}})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := a.Issue(t.Context(), c.subject); reasonOf(err) != v1beta2.ReasonCertificateRefused {
				t.Errorf("%s: got %v", c.reason, err)
			}
		})
	}
}

func TestStale(t *testing.T) {
	clock := newClock()
	a := newTestAuthority(t, Options{Now: clock.Now})
	fresh, start := issue(t, a).Record(), clock.now
	with := func(change func(*Held)) Held {
		h := fresh
		change(&h)
		return h
	}
	cases := map[string]struct {
		reason string
		held   Held
		after  time.Duration
		mark   time.Time
		stale  bool
	}{
		"Fresh": {reason: "it was issued just now", held: fresh, mark: time.Time{}},
		"None":  {reason: "nothing is recorded", held: Held{}, mark: time.Time{}, stale: true},
		"Half": {
			reason: "no certificate is renewed in its first half",
			held:   fresh,
			after:  7*day/2 - time.Second,
			mark:   time.Time{},
		},
		"LastThird": {
			reason: "every one is before its last third",
			held:   fresh,
			after:  7 * day * 2 / 3,
			mark:   time.Time{},
			stale:  true,
		},
		"OtherRoot": {
			reason: "it is of a root that went",
			held:   with(func(h *Held) { h.Root = "0123" }),
			mark:   time.Time{},
			stale:  true,
		},
		"OtherBundle": {
			reason: "a root came or went",
			held:   with(func(h *Held) { h.Bundle = "0123" }),
			mark:   time.Time{},
			stale:  true,
		},
		"Revoked": {
			reason: "it is older than the mark",
			held:   fresh,
			after:  day,
			mark:   start.Add(time.Hour),
			stale:  true,
		},
		"MarkBefore": {reason: "it is what was asked for", held: fresh, after: day, mark: start.Add(-time.Hour)},
		"MarkThen": {
			reason: "certificates know no fractions of a second, so this is the mark",
			held:   fresh,
			after:  day,
			mark:   start,
		},
		"MarkTomorrow": {
			reason: "it would revoke what is issued today, again and again",
			held:   fresh,
			mark:   start.Add(day),
		},
		"NotValidYet": {
			reason: "the clock of the replica that issued it was fast by more than it is backdated",
			held:   with(func(h *Held) { h.Issued = start.Add(2 * day) }),
			stale:  true,
		},
		"Backdated": {
			reason: "it is valid, although the clock of the replica that issued it was fast",
			held:   with(func(h *Held) { h.Issued = start.Add(day - time.Hour) }),
		},
		"MarkHasCome":   {reason: "now it is in the past", held: fresh, after: day, mark: start.Add(day), stale: true},
		"RecordedAsUTC": {reason: "the record is JSON", held: encodeAndDecode(t, fresh), mark: time.Time{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			clock.now = start.Add(c.after)
			defer func() { clock.now = start }()
			if stale, why := a.Stale(c.held, c.mark); stale != c.stale || stale != (why != "") {
				t.Errorf("%s: stale is %t (%s)", c.reason, stale, why)
			}
		})
	}
}

// encodeAndDecode encodes a record as JSON, and returns the decoded record.
func encodeAndDecode(t *testing.T, h Held) Held {
	t.Helper()
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var back Held
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// TestSpread checks that certificates that were issued within one minute are renewed at times spread over several
// hours.
func TestSpread(t *testing.T) {
	a := newTestAuthority(t, Options{})
	hours := map[int]int{}
	const fleet = 2000
	for i := range fleet {
		h := Held{Serial: fmt.Sprint(i), NotAfter: a.Now().Add(7 * day)}
		left := h.NotAfter.Sub(a.Due(h))
		if left < 7*day/3 || left > 7*day/2 {
			t.Fatalf("renewed %s before the end", left)
		}
		hours[int(left.Hours())]++
	}
	busiest := slices.Max(slices.Collect(maps.Values(hours)))
	if busiest > fleet/10 {
		t.Errorf("%d of %d are renewed in one hour", busiest, fleet)
	}
}

// TestServing checks that the certificate of the listener is reused until its renewal, and that the certificate is
// valid for servers and for clients.
func TestServing(t *testing.T) {
	clock := newClock()
	a := newTestAuthority(t, Options{Now: clock.Now})
	numbers := map[string]bool{}
	for hour := 0; hour < 21*24; hour += 6 {
		pair, err := a.Serving()
		if err != nil {
			t.Fatal(err)
		}
		numbers[pair.Leaf.SerialNumber.String()] = true
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			for _, host := range a.Hosts {
				o := x509.VerifyOptions{Roots: certPool(a.Roots()), CurrentTime: clock.now.Add(time.Hour),
					DNSName:   host,
					KeyUsages: []x509.ExtKeyUsage{usage}}
				if _, err := pair.Leaf.Verify(o); err != nil {
					t.Fatalf("after %d hours, for %s: %v", hour, host, err)
				}
			}
		}
		if id := protocol.IdentityOf(pair.Leaf, a.Roots()[0]); id.CommonName != protocol.ManagerName || id.UID != "" {
			t.Fatalf("it is that of %+v", id)
		}
		clock.forward(6 * time.Hour)
	}
	if len(numbers) < 4 || len(numbers) > 6 {
		t.Errorf("%d certificates in 21 days, of a lifetime of 7 and renewed after two thirds", len(numbers))
	}
}

// TestServingAfterFastClock checks that the listener gets another certificate if its certificate is not valid yet.
func TestServingAfterFastClock(t *testing.T) {
	clock := newClock()
	a := newTestAuthority(t, Options{Now: clock.Now})
	clock.forward(3 * day)
	for range 2 {
		pair, err := a.Serving()
		if err != nil {
			t.Fatal(err)
		}
		if clock.now.Before(pair.Leaf.NotBefore) {
			t.Errorf("it is %s, but the certificate is not valid before %s", clock.now, pair.Leaf.NotBefore)
		}
		clock.forward(-3 * day)
	}
}

// TestServingByWallClock checks that the time of the renewal has no reading of the monotonic clock, which stops while a
// machine is suspended.
func TestServingByWallClock(t *testing.T) {
	a := newTestAuthority(t, Options{Now: time.Now})
	if _, err := a.Serving(); err != nil {
		t.Fatal(err)
	}
	if due := a.serving.Load().due; strings.Contains(due.String(), "m=") {
		t.Errorf("after a suspension, the certificate is renewed later than %s", due)
	}
}

// TestServingAtOnce checks that concurrent callers of Serving all get a certificate, while the certificate of the
// listener is being renewed.
func TestServingAtOnce(t *testing.T) {
	a := newTestAuthority(t, Options{})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := a.Serving(); err != nil || len(a.Roots()) != 1 {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Go(func() { syncOnce(t, a) })
	wg.Wait()
}

// TestReplicas checks that replicas that start at the same time agree on one root, and on each rotation.
func TestReplicas(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	clock := newClock()
	replicas := make([]*Authority, 8)
	for i := range replicas {
		a, err := New(Options{Client: c, Namespace: namespace, Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		replicas[i] = a
	}
	together := func(want int) {
		t.Helper()
		var wg sync.WaitGroup
		for _, a := range replicas {
			wg.Go(func() {
				if err := a.sync(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, a := range replicas {
			syncOnce(t, a)
			if a.rootSet.Load().digest != replicas[0].rootSet.Load().digest ||
				a.rootSet.Load().listener != replicas[0].rootSet.Load().listener {
				t.Error("the replicas do not agree")
			}
			if n := len(a.Roots()); n != want {
				t.Errorf("%d roots, want %d", n, want)
			}
		}
	}
	together(1)
	first := replicas[0].Changed()
	changeSecret(t, c, func(s *corev1.Secret) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1beta2.AnnotationRotateRoot, "now")
	})
	together(2)
	select {
	case <-first:
	default:
		t.Error("nobody was told of the rotation")
	}
	second := replicas[0].Changed()
	together(2)
	select {
	case <-second:
		t.Error("somebody was told of nothing")
	default:
	}
	clock.forward(150 * day) // past the time at which a new root replaces the newest one
	together(3)
}

// TestBroken checks that an invalid Secret changes nothing for replicas that know the roots, and that no replica
// creates new roots.
func TestBroken(t *testing.T) {
	other := newTestAuthority(t, Options{})
	foreign := issue(t, other)
	cases := map[string]struct {
		reason string
		data   func(before map[string][]byte) map[string][]byte
	}{
		"Empty": {"it could have been emptied by mistake",
			func(map[string][]byte) map[string][]byte { return nil }},
		"NoKeys": {"nothing could be signed",
			func(d map[string][]byte) map[string][]byte { return map[string][]byte{KeyRoots: d[KeyRoots]} }},
		"NoRoots": {"nothing could be verified",
			func(d map[string][]byte) map[string][]byte { return map[string][]byte{KeyRootKeys: d[KeyRootKeys]} }},
		"Text": {"a mistake in an editor", changeKey(
			KeyRoots, func([]byte) []byte { return []byte("see the vault") })},
		"TextAfter": {"half of a second root", changeKey(
			KeyRoots, func(b []byte) []byte { return append(b, "-----BEGIN CERT"...) })},
		"Cut": {"a root that does not end", changeKey(KeyRoots, func(b []byte) []byte { return b[:len(b)-40] })},
		"Damaged": {"PEM of something else", changeKey(
			KeyRoots, func([]byte) []byte { return encodePEM(pemCertificate, []byte("x")) })},
		"DamagedKey": {"PEM of something else", changeKey(
			KeyRootKeys, func([]byte) []byte { return encodePEM(pemKey, []byte("secret-key")) })},
		"KeysSwapped": {"the key of a runtime", changeKey(KeyRootKeys, func([]byte) []byte { return foreign.Key })},
		"KeyAsRoot": {"certificates and keys in the wrong place", func(d map[string][]byte) map[string][]byte {
			return map[string][]byte{KeyRoots: d[KeyRootKeys], KeyRootKeys: d[KeyRoots]}
		}},
		"NotCA": {"a certificate that cannot sign", func(map[string][]byte) map[string][]byte {
			return map[string][]byte{KeyRoots: foreign.PEM, KeyRootKeys: foreign.Key}
		}},
		"Twice": {"the same root two times", func(d map[string][]byte) map[string][]byte {
			return map[string][]byte{KeyRoots: slices.Repeat(d[KeyRoots], 2),
				KeyRootKeys: slices.Repeat(d[KeyRootKeys], 2)}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			store := fake.NewClientBuilder().Build()
			a := newTestAuthority(t, Options{Client: store})
			before := a.rootSet.Load()
			var good map[string][]byte
			changeSecret(t, store, func(s *corev1.Secret) {
				good = maps.Clone(s.Data)
				s.Data = c.data(maps.Clone(
					s.Data))
			})

			err := a.sync(t.Context())
			if reasonOf(err) != v1beta2.ReasonAuthorityBroken ||
				reasonOf(a.LastError()) != v1beta2.ReasonAuthorityBroken {
				t.Fatalf("%s: got %v and %v", c.reason, err, a.LastError())
			}
			if strings.Contains(err.Error(), "secret-key") || strings.Contains(err.Error(), "BEGIN") {
				t.Errorf("the error shows what is in the Secret: %v", err)
			}
			if err := a.sync(t.Context()); err != nil {
				t.Errorf("it is told again and again: %v", err)
			}
			if a.rootSet.Load() != before || handshake(a, issue(t, a), a.Now) != nil {
				t.Error("the former roots are not in force")
			}
			fresh, err := New(Options{Client: store, Namespace: namespace})
			if err != nil {
				t.Fatal(err)
			}
			_ = fresh.sync(t.Context())
			if _, err := fresh.Issue(t.Context(), Subject{CommonName: "a", UID: "u"}); len(fresh.Roots()) > 0 ||
				reasonOf(err) != v1beta2.ReasonAuthorityBroken {
				t.Errorf("after a start: %d roots, %v", len(fresh.Roots()), err)
			}
			if _, err := fresh.Serving(); reasonOf(err) != v1beta2.ReasonAuthorityBroken || fresh.Ready(nil) == nil {
				t.Errorf("after a start: %v", err)
			}

			changeSecret(t, store, func(s *corev1.Secret) { s.Data = good })
			for _, each := range []*Authority{a, fresh} {
				syncOnce(t, each)
				if each.LastError() != nil || each.rootSet.Load().digest != before.digest {
					t.Errorf("restored, but %v", each.LastError())
				}
			}
		})
	}
}

// changeKey returns a function that changes the value of one key in the data of a Secret.
func changeKey(key string, change func([]byte) []byte) func(map[string][]byte) map[string][]byte {
	return func(d map[string][]byte) map[string][]byte {
		d[key] = change(slices.Clone(d[key]))
		return d
	}
}

// TestDeleted checks that a replica that knows the roots creates the Secret again after the Secret was deleted.
func TestDeleted(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	a := newTestAuthority(t, Options{Client: c})
	held := issue(t, a).Record()
	if err := c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: SecretName}}); err != nil {
		t.Fatal(err)
	}
	syncOnce(t, a)
	b := newTestAuthority(t, Options{Client: c})
	if stale, why := b.Stale(held, time.Time{}); stale {
		t.Errorf("the roots are others: %s", why)
	}
}

// TestRemovedByHand removes a root from the Secret, as an administrator does with a root that must not be trusted any
// more.
func TestRemovedByHand(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	a := newTestAuthority(t, Options{Client: c})
	old := issue(t, a)
	changeSecret(t, c, func(s *corev1.Secret) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1beta2.AnnotationRotateRoot, "stolen")
	})
	syncOnce(t, a)
	changeSecret(t, c, func(s *corev1.Secret) {
		s.Data[KeyRoots], s.Data[KeyRootKeys] = firstPEM(s.Data[KeyRoots]), firstPEM(s.Data[KeyRootKeys])
	})
	syncOnce(t, a)
	if len(a.Roots()) != 1 || a.LastError() != nil {
		t.Fatalf("%d roots, %v", len(a.Roots()), a.LastError())
	}
	if err := handshake(a, old, a.Now); err == nil {
		t.Error("a certificate of the stolen root is believed")
	}
	if err := handshake(a, issue(t, a), a.Now); err != nil {
		t.Error(err)
	}
}

func firstPEM(data []byte) []byte {
	block, _ := pem.Decode(data)
	return pem.EncodeToMemory(block)
}

// TestKeysAreNotShown checks that a certificate that is printed, logged or encoded does not contain its key.
func TestKeysAreNotShown(t *testing.T) {
	c := issue(t, newTestAuthority(t, Options{}))
	head, _, _ := strings.Cut(string(c.Key), "\n")
	// The variable part is a piece of the secret that no output may contain: 12 base64 characters of the PEM text of
	// the key, which encode 9 bytes of the private number. These characters are in the second line of the PEM text,
	// after those that identify the curve. The curve is not secret, because the certificate contains it, too.
	part := []byte(c.Key)[len(head)+1+52:][:12]
	var log strings.Builder
	logr.FromSlogHandler(slog.NewJSONHandler(&log, nil)).Info("issued", "certificate", c, "key", c.Key)
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	numbers := strings.Trim(fmt.Sprintf("%d", part), "[]")
	for _, shown := range []string{
		fmt.Sprint(c), fmt.Sprintf("%v %+v %#v", c, *c, c), fmt.Sprintf("%s %q %x %d", c.Key, c.Key, c.Key, c.Key),
		string(data), log.String(),
	} {
		if strings.Contains(shown, string(part)) || strings.Contains(shown, numbers) ||
			strings.Contains(shown, fmt.Sprintf("%x", part)) {
			t.Errorf("the key is in %s", shown)
		}
	}
}

func TestOptions(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	cases := map[string]struct {
		reason string
		o      Options
	}{
		"NoClient":    {"nothing could be read", Options{Namespace: namespace}},
		"NoNamespace": {"nobody would know where", Options{Client: c}},
		"RenewedAtOnce": {"each pass would issue another",
			Options{Client: c, Namespace: namespace, Lifetime: time.Hour, RenewBefore: time.Hour}},
		"ShortOverlap": {"the root would end before what it signed last",
			Options{Client: c, Namespace: namespace, Overlap: day}},
		"LongOverlap": {"each pass would make another root",
			Options{Client: c, Namespace: namespace, RootLifetime: 30 * day, Overlap: 30 * day}},
		"Negative": {"it makes no sense", Options{Client: c, Namespace: namespace, Lifetime: -day}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := New(c.o); err == nil {
				t.Errorf("it is accepted, although %s", c.reason)
			}
		})
	}
}

func TestCertManagerOptions(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	cases := map[string]struct {
		reason string
		o      CertManagerOptions
	}{
		"NoClient":    {"nothing could be read", CertManagerOptions{Namespace: namespace}},
		"NoNamespace": {"nobody would know where", CertManagerOptions{Client: c}},
		"Short": {"cert-manager does not issue such ones",
			CertManagerOptions{Client: c, Namespace: namespace, Lifetime: time.Minute}},
		"RenewedAtOnce": {"each pass would ask for another",
			CertManagerOptions{Client: c, Namespace: namespace, RenewBefore: 60 * day}},
		"Negative": {"it makes no sense", CertManagerOptions{Client: c, Namespace: namespace, Interval: -day}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := NewCertManager(c.o); err == nil {
				t.Errorf("it is accepted, although %s", c.reason)
			}
		})
	}
}

// TestCertManagerDue checks the time at which the certificate of a runtime is read again: this time must be after
// cert-manager has issued a new certificate, and well before the old certificate expires.
func TestCertManagerDue(t *testing.T) {
	m, err := NewCertManager(CertManagerOptions{Client: fake.NewClientBuilder().Build(), Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	end := newClock().now
	for i := range 1000 {
		if left := end.Sub(m.Due(Held{Serial: fmt.Sprint(i), NotAfter: end})); left > 30*day || left < 25*day {
			t.Fatalf("%s before the end", left)
		}
	}
	if stale, _ := m.Stale(Held{}, time.Time{}); stale || m.Ready(nil) == nil || m.Roots() != nil {
		t.Error("nothing is known yet")
	}
	if _, err := m.Serving(); reasonOf(err) != v1beta2.ReasonCertificateNotReady {
		t.Errorf("got %v", err)
	}
}

// TestCertManagerListener checks the certificate of the listener: its Certificate is applied at every sync, because
// somebody may have deleted it, and a certificate that cert-manager has not renewed in time is a problem.
func TestCertManagerListener(t *testing.T) {
	cases := map[string]struct {
		reason    string
		life      time.Duration // of the certificate
		after     time.Duration // since the certificate was issued
		applyFail bool
		problem   bool
	}{
		"Fresh":      {reason: "it was issued just now", life: 60 * day},
		"Due":        {reason: "cert-manager may need some days", life: 60 * day, after: 39 * day},
		"Overdue":    {reason: "cert-manager should have renewed it", life: 60 * day, after: 41 * day, problem: true},
		"Expired":    {reason: "agents refuse it", life: 60 * day, after: 61 * day, problem: true},
		"Future":     {reason: "the clock of cert-manager was fast", life: 60 * day, after: -2 * day, problem: true},
		"ShortLived": {reason: "the issuer decides how long it is valid", life: 7 * day, after: 5 * day},
		"ShortLivedOverdue": {reason: "it should have been renewed in its last third", life: 7 * day, after: 6 * day,
			problem: true},
		"NotApplied": {reason: "the webhook of cert-manager does not answer", life: 60 * day, applyFail: true,
			problem: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			ca, err := newRoot(clock.now, 180*day)
			if err != nil {
				t.Fatal(err)
			}
			pair, err := ca.issue(template{commonName: protocol.ManagerName, now: clock.now, lifetime: c.life})
			if err != nil {
				t.Fatal(err)
			}
			secret := func(name string, data map[string][]byte) *corev1.Secret {
				return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
			}
			applied := 0
			store := fake.NewClientBuilder().WithObjects(
				secret(SecretName, map[string][]byte{
					corev1.TLSCertKey: encodePEM(pemCertificate, ca.certificate.Raw)}),
				secret(ListenerName, map[string][]byte{corev1.TLSCertKey: pair.pem, corev1.TLSPrivateKeyKey: pair.raw}),
			).WithInterceptorFuncs(interceptor.Funcs{Apply: func(context.Context, client.WithWatch,
				runtime.ApplyConfiguration, ...client.ApplyOption) error {
				if applied++; c.applyFail {
					return errors.New("no answer")
				}
				return nil
			}}).Build()
			m, err := NewCertManager(CertManagerOptions{Client: store, Namespace: namespace, Now: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			clock.forward(c.after)
			for range 2 {
				err := m.sync(t.Context())
				if (err != nil) != c.problem {
					t.Errorf("%s: got %v", c.reason, err)
				}
				if err != nil && !c.applyFail && reasonOf(err) != v1beta2.ReasonCertificateNotReady {
					t.Errorf("%s: the reason of %v is %q", c.reason, err, reasonOf(err))
				}
			}
			if applied != 2 {
				t.Errorf("the Certificate was applied %d times in 2 syncs", applied)
			}
			if _, err := m.Serving(); err != nil {
				t.Errorf("the listener has no certificate: %v", err)
			}
		})
	}
}

// TestNotReadYet checks that a call directly after the start waits for the Secret first, and returns the reason if the
// Secret cannot be read.
func TestNotReadYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the call waits only for a limited time, which does not pass here
		a, err := New(Options{Client: fake.NewClientBuilder().Build(), Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Issue(ctx, Subject{CommonName: "a", UID: "u"})
		if reasonOf(err) != v1beta2.ReasonAuthorityNotReady {
			t.Errorf("got %v", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := a.Issue(t.Context(), Subject{CommonName: "a", UID: "u"}); err != nil {
				t.Error(err)
			}
		})
		syncOnce(t, a)
		wg.Wait()
	})
}

// TestIngress checks the certificate of the ingress: it is valid only for servers, is kept while it is valid, and is
// issued again when the roots change.
func TestIngress(t *testing.T) {
	a := newTestAuthority(t, Options{Now: newClock().Now})
	first, err := a.IssueIngressCertificateIfDue(nil, nil)
	if err != nil || first == nil {
		t.Fatalf("%v, %v", first, err)
	}
	block, _ := pem.Decode(first.PEM)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, leaf.ExtKeyUsage); diff != "" ||
		leaf.Subject.CommonName == protocol.ManagerName {
		t.Errorf("whoever has it could speak as the listener: %s, usage %s", leaf.Subject, diff)
	}
	if again, err := a.IssueIngressCertificateIfDue(first.PEM, first.CA); err != nil || again != nil {
		t.Errorf("it will do: %v, %v", again, err)
	}
	if other, err := a.IssueIngressCertificateIfDue(first.PEM, []byte("other roots")); err != nil || other == nil {
		t.Errorf("other roots have to be replaced: %v", err)
	}
}
