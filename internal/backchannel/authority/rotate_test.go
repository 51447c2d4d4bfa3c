package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestRotation shows the steps of rotations. Each row of a test case describes one point in time. The part of a row
// before the bar | is the input:
//
//	135.02    the day
//	A:2 B:1   the number of runtimes whose certificate each root has signed; the root ? stands for unknown roots;
//	          - instead of numbers means that RuntimesByRoot has no result in this replica
//	rotate=x  a request for a rotation
//
// In a row of a test case, the part after the bar | is the state that results from the input: the trusted roots, the
// newest one first; the root that signs the certificates of runtimes; the root that signs the certificate of the
// listener; and the number of outdated runtimes. Roots have the names A, B, C in the order of their creation. A root is
// valid for 180 days, with an overlap of 45 days. An old root is kept for an hour after the listener has stopped using
// it.
func TestRotation(t *testing.T) {
	cases := map[string]struct {
		reason string
		rows   string
	}{
		"ByAge": {"an old root is left behind without anybody noticing", `
			0        A:3              | A    A A 0
			134      A:3              | A    A A 0
			135.01   A:3              | BA   B A 3
			135.02   A:2 B:1          | BA   B A 2
			135.03   B:3              | BA   B B 0
			135.05   B:3              | BA   B B 0
			135.10   B:3              | B    B B 0
			270      B:3              | B    B B 0
			270.11   B:3              | CB   C B 3`},
		"OnDemand": {"a value is done once; the same again, or none, is nothing new", `
			0        A:1              | A    A A 0
			1        A:1 rotate=x     | BA   B A 1
			1.1      A:1 rotate=x     | BA   B A 1
			1.2      B:1 rotate=x     | BA   B B 0
			1.3      B:1 rotate=x     | B    B B 0
			2        B:1              | B    B B 0
			3        B:1 rotate=x     | B    B B 0
			4        B:1 rotate=y     | CB   C B 1`},
		"TwiceInARow": {"the listener is on the newest root that every runtime trusts", `
			0        A:3              | A    A A 0
			1        A:3 rotate=1     | BA   B A 3
			1.1      A:2 B:1 rotate=2 | CBA  C A 3
			1.2      A:1 B:1 C:1      | CBA  C A 2
			1.3      B:2 C:1          | CBA  C B 2
			1.4      B:2 C:1          | CB   C B 2
			1.5      C:3              | CB   C C 0
			1.6      C:3              | C    C C 0`},
		"StragglerUntilTheEnd": {"who never comes keeps the old root, until that ends", `
			0        A:3              | A    A A 0
			10       A:3 rotate=1     | BA   B A 3
			11       A:1 B:2          | BA   B A 1
			100      A:1 B:2          | BA   B A 1
			179.9    A:1 B:2          | CBA  C A 3
			180.1    A:1 B:2          | CB   C B 3
			180.2    A:1 C:2          | CB   C C 1
			180.3    A:1 C:2          | C    C C 0`},
		"NeverHeard": {"nothing is known of a runtime that may trust the old root only", `
			0        A:1 ?:1          | A    A A 0
			1        A:1 ?:1 rotate=1 | BA   B A 2
			2        B:1 ?:1          | BA   B A 1
			3        B:2              | BA   B B 0
			4        B:2              | B    B B 0`},
		"NotTheLeader": {"a replica that does not know the fleet changes nothing", `
			0        -                | A    A A 0
			1        - rotate=1       | BA   B A 0
			2        -                | BA   B A 0
			3        B:2              | BA   B B 0
			4        -                | BA   B B 0
			150      -                | CBA  C B 0
			181.1    -                | C    C C 0`},
		"BackOnTheOld": {"a runtime gets an old certificate back, from a backup, before the root was dropped", `
			0        A:2              | A    A A 0
			1        A:2 rotate=1     | BA   B A 2
			2        B:2              | BA   B B 0
			2.01     A:1 B:1          | BA   B A 1
			2.1      A:1 B:1          | BA   B A 1
			2.2      B:2              | BA   B B 0
			2.3      B:2              | B    B B 0`},
		"NobodyThere": {"without runtimes a rotation is over at once", `
			0                         | A    A A 0
			1        rotate=1         | BA   B B 0
			2                         | B    B B 0`},
		"TooManyOnDemand": {"every root is in the bundle of every runtime: a sixth has to wait", `
			0        A:1              | A     A A 0
			1        A:1 rotate=1     | BA    B A 1
			2        A:1 rotate=2     | CBA   C A 1
			3        A:1 rotate=3     | DCBA  D A 1
			4        A:1 rotate=4     | EDCBA E A 1
			5        A:1 rotate=5     | EDCBA E A 1
			6        E:1 rotate=5     | EDCBA E E 0
			7        E:1 rotate=5     | FE    F E 1`},
		"AsleepForAYear": {"no replica ran while the root ended; the fleet has to be given all anew", `
			0        A:2              | A    A A 0
			400      A:2              | B    B B 0
			401      B:2              | B    B B 0`},
		"AsleepOverTheOverlap": {"no replica ran for long, but the root has not ended", `
			0        A:2              | A    A A 0
			179      A:2              | BA   B A 2
			179.5    B:2              | BA   B B 0`},
		"FastByMoreThanARoot": {"the clock was fast, and removed the only root that is valid now", `
			0        A:2              | A    A A 0
			200      A:2              | B    B B 0
			10       B:2              | CB   C C 2
			10.1     B:1 C:1          | C    C C 0`},
		"FastAndNeverHeard": {"the root of the listener has to be left, although a root is not known", `
			0        A:2              | A    A A 0
			200      A:2              | B    B B 0
			10       B:1 ?:1          | CB   C C 2
			11       C:1 ?:1          | CB   C C 1
			12       C:2              | C    C C 0`},
		"FastAndNotTheLeader": {"a replica that does not know the fleet signs with a valid root, too", `
			0        -                | A    A A 0
			200      -                | B    B B 0
			10       -                | CB   C C 0
			10.1     C:2              | CB   C C 0
			10.2     C:2              | C    C C 0`},
		"FastByLessThanARoot": {"the future root signs nothing, and is left behind at the next rotation", `
			0        A:2              | A    A A 0
			140      A:2              | BA   B A 2
			10       A:2              | BA   A A 0
			100      A:2              | BA   A A 0
			135.01   A:2              | CBA  C A 2
			135.02   C:2              | CBA  C C 0
			135.1    C:2              | C    C C 0`},
		"FastUntilNow": {"the time at which the future root becomes valid has come", `
			0        A:2              | A    A A 0
			140      A:2              | BA   B A 2
			10       A:2              | BA   A A 0
			139      A:2              | BA   B A 2
			139.1    B:2              | BA   B B 0
			139.2    B:2              | B    B B 0`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var want, got []string
			d := newDrawing(t)
			for line := range strings.Lines(strings.TrimSpace(c.rows)) {
				rotationInput, state, _ := strings.Cut(line, "|")
				want = append(want, strings.Join(strings.Fields(rotationInput+"| "+state), " "))
				got = append(got, strings.Join(strings.Fields(rotationInput), " ")+" | "+d.applyRow(
					strings.Fields(rotationInput)))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// drawing prints the states of an authority as rows of text, in which each root has a letter. drawing contains the
// authority and the clock with which a test changes the state of the authority.
type drawing struct {
	*testing.T
	a     *Authority
	clock *clock
	start time.Time
	seen  map[string][]string
	known bool
	names map[string]string // the key is the letter of a root, the value its fingerprint
}

func newDrawing(t *testing.T) *drawing {
	d := &drawing{T: t, clock: newClock(), names: map[string]string{"?": ""}}
	d.start = d.clock.now
	a, err := New(Options{
		Client: fake.NewClientBuilder().Build(), Namespace: namespace, Now: d.clock.Now, SettlePeriod: time.Hour,
		RuntimesByRoot: func() (map[string][]string, bool) { return d.seen, d.known },
	})
	if err != nil {
		t.Fatal(err)
	}
	d.a = a
	return d
}

// applyRow sets the inputs of a rotation from the words of a row, and returns the resulting state as text.
func (d *drawing) applyRow(words []string) string {
	days, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		d.Fatal(err)
	}
	d.clock.now = d.start.Add(time.Duration(days * float64(day)))
	d.seen, d.known = map[string][]string{}, true
	request := ""
	for _, word := range words[1:] {
		if value, ok := strings.CutPrefix(word, "rotate="); ok {
			request = value
			continue
		}
		if word == "-" {
			d.seen, d.known = nil, false
			continue
		}
		root, count, _ := strings.Cut(word, ":")
		n, err := strconv.Atoi(count)
		if err != nil {
			d.Fatal(err)
		}
		fingerprint, ok := d.names[root]
		if !ok {
			fingerprint = root // in the first row, the root does not exist yet
		}
		d.seen[fingerprint] = slices.Repeat([]string{"runtime"}, n)
	}
	if len(d.names) > 1 {
		changeSecret(d.T, d.a.Client, func(s *corev1.Secret) {
			delete(s.Annotations, v1beta2.AnnotationRotateRoot)
			if request != "" {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1beta2.AnnotationRotateRoot, request)
			}
		})
	}
	syncOnce(d.T, d.a)
	syncOnce(d.T, d.a) // a request that had to wait is executed in the sync after the one that removed a root
	before := d.a.rootSet.Load()
	syncOnce(d.T, d.a)
	if d.a.rootSet.Load().digest != before.digest || d.a.rootSet.Load().listener != before.listener {
		d.Errorf("day %s: it goes on although nothing happens", words[0])
	}
	return d.draw()
}

func (d *drawing) draw() string {
	all := ""
	r := d.a.rootSet.Load()
	for _, o := range slices.Backward(r.roots) {
		all = d.letter(o.fingerprint) + all
	}
	c, err := d.a.Issue(d.Context(), Subject{CommonName: "a", UID: "u"})
	if err != nil {
		d.Fatal(err)
	}
	serving, err := d.a.Serving()
	if err != nil {
		d.Fatal(err)
	}
	listener := "?"
	for _, o := range r.roots {
		if serving.Leaf.CheckSignatureFrom(o.certificate) == nil {
			listener = d.letter(o.fingerprint)
		}
	}
	return fmt.Sprintf("%s %s %s %d", all, d.letter(c.Root), listener, d.a.OutdatedRuntimes().Count)
}

// letter returns the letter that stands for a root in the rows of a test: A for the first root, B for the second, and
// so on. A root that has no letter yet gets the next free letter.
func (d *drawing) letter(fingerprint string) string {
	for letter, f := range d.names {
		if f == fingerprint {
			return letter
		}
	}
	letter := string(rune('A' + len(d.names) - 1))
	d.names[letter] = fingerprint
	return letter
}

// TestWrongClocksDoNotCompete checks two replicas with a shared Secret, one of which has a clock that is fast by more
// than the validity of a root: each removes or replaces the roots of the other, but only once per replacePeriod.
func TestWrongClocksDoNotCompete(t *testing.T) {
	store, right, fast := fake.NewClientBuilder().Build(), newClock(), newClock()
	fast.forward(200 * day)
	a := newTestAuthority(t, Options{Client: store, Now: right.Now})
	b := newTestAuthority(t, Options{Client: store, Now: fast.Now})
	made := map[string]bool{}
	compete := func() {
		for range 5 {
			for _, each := range []*Authority{a, b} {
				syncOnce(t, each)
				for _, o := range each.rootSet.Load().roots {
					made[o.fingerprint] = true
				}
			}
		}
	}
	compete()
	if len(made) != 2 { // the first root is removed before it is counted
		t.Errorf("%d roots were created in addition to the first one, want 2", len(made))
	}
	syncOnce(t, a)
	_, err := a.Issue(t.Context(), Subject{CommonName: "a", UID: "u"})
	if reasonOf(err) != v1beta2.ReasonAuthorityNotReady {
		t.Errorf("no root is valid, but issuing returns %v", err)
	}
	if _, err := a.Serving(); reasonOf(err) != v1beta2.ReasonAuthorityNotReady {
		t.Errorf("no root is valid, but serving returns %v", err)
	}
	if stale, why := a.Stale(Held{Serial: "1"}, time.Time{}); stale {
		t.Errorf("no root is valid, so nothing can be replaced, but %s", why)
	}
	right.forward(replacePeriod)
	compete()
	if len(made) != 3 {
		t.Errorf("%d roots were created in addition to the first one, want 3", len(made))
	}
}

// TestStragglersAreNamed checks that the message names, in order, some of the runtimes whose certificates were signed
// by an old root.
func TestStragglersAreNamed(t *testing.T) {
	d := newDrawing(t)
	d.applyRow([]string{"0"})
	d.applyRow([]string{"1", "A:1", "rotate=1"})
	d.seen = map[string][]string{d.names["B"]: {"fine"}, "": {"silent"}}
	for i := range 30 {
		d.seen[d.names["A"]] = append(d.seen[d.names["A"]], fmt.Sprintf("runtime-%02d", 29-i))
	}
	syncOnce(t, d.a)
	want := OutdatedRuntimes{Count: 31}
	for i := range 10 {
		want.Names = append(want.Names, fmt.Sprintf("runtime-%02d", i))
	}
	if diff := cmp.Diff(want, d.a.OutdatedRuntimes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFleet simulates a fleet for which the roots are rotated at random times; runtimes are unreachable for days, and
// clocks are wrong by up to an hour. At any time, the listener and a reachable runtime must accept each other's
// certificates, if the certificate of the runtime has not expired and its root is trusted.
func TestFleet(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulateFleet(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

// member is a runtime of the simulated fleet.
type member struct {
	name     string
	has      *Certificate
	seenRoot string    // the root of the certificate of its last connection
	back     time.Time // when it can be reached again
	clock    time.Duration
}

func simulateFleet(t *testing.T, random *rand.Rand) {
	d := newDrawing(t)
	d.a.Hosts = []string{"klm.example.com"}
	d.applyRow([]string{"0"})
	var fleet []*member
	d.known = true
	d.a.RuntimesByRoot = func() (map[string][]string, bool) {
		seen := map[string][]string{}
		for _, m := range fleet {
			if m.has != nil {
				seen[m.seenRoot] = append(seen[m.seenRoot], m.name)
			}
		}
		return seen, random.IntN(10) > 0
	}
	rotations, hands := 0, 0
	for turn := range 8 * 75 {
		d.clock.forward(stepDuration)
		if len(fleet) < 8 && random.IntN(8) == 0 {
			fleet = append(fleet, &member{name: fmt.Sprint("runtime-", len(fleet)),
				clock: time.Duration(random.IntN(121)-60) * time.Minute})
		}
		if random.IntN(8*5) == 0 {
			rotations++
			changeSecret(t, d.a.Client, func(s *corev1.Secret) {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1beta2.AnnotationRotateRoot, fmt.Sprint(turn))
			})
		}
		syncOnce(t, d.a)
		for _, m := range fleet {
			hands += d.simulateStep(m, random)
		}
		if t.Failed() {
			t.Fatalf("in turn %d, after %d rotations: roots %s", turn, rotations, d.draw())
		}
	}
	if rotations < 5 || hands < 1500 {
		t.Errorf("only %d rotations and %d verifications", rotations, hands)
	}
}

// stepDuration is the time that the simulation advances in one step.
const stepDuration = 3 * time.Hour

// simulateStep simulates a runtime for one step of the simulated time: the runtime may become unreachable, connect with
// its certificate, or receive a new certificate. simulateStep returns 1 if the runtime has connected, and 0 otherwise.
// The connection must succeed.
func (d *drawing) simulateStep(m *member, random *rand.Rand) int {
	if random.IntN(8*15) == 0 {
		m.back = d.clock.now.Add(time.Duration(random.IntN(20*24)) * time.Hour)
	}
	if d.clock.now.Before(m.back) {
		return 0 // an unreachable runtime neither receives certificates nor connects
	}
	hands := 0
	ours := m.has != nil && d.a.rootSet.Load().indexOf(m.has.Root) >= 0
	if ours && d.clock.now.Add(time.Hour).Before(m.has.NotAfter) {
		if err := d.verify(m); err != nil {
			d.Errorf("%s with a certificate of root %s, clock off by %s: %v", m.name,
				d.letter(m.has.Root), m.clock, err)
		}
		m.seenRoot, hands = m.has.Root, 1
	}
	var held Held
	if m.has != nil {
		held = m.has.Record()
	}
	if stale, _ := d.a.Stale(held, time.Time{}); stale && random.IntN(3) == 0 {
		c, err := d.a.Issue(d.Context(), Subject{CommonName: m.name, UID: m.name})
		if err != nil {
			d.Error(err)
		}
		if m.has != nil && m.seenRoot == "" {
			m.seenRoot = m.has.Root
		}
		m.has = c
	}
	return hands
}

// verify verifies the certificates of both sides, as a handshake does.
func (d *drawing) verify(m *member) error {
	serving, err := d.a.Serving()
	if err != nil {
		return err
	}
	block, _ := pem.Decode(m.has.PEM)
	mine, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(m.has.CA)
	_, here := mine.Verify(x509.VerifyOptions{Roots: certPool(d.a.Roots()), CurrentTime: d.clock.now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	_, there := serving.Leaf.Verify(x509.VerifyOptions{Roots: trusted, CurrentTime: d.clock.now.Add(m.clock),
		DNSName: "klm.example.com"})
	return errors.Join(here, there)
}

// TestNextIsPure checks that the function "next" does not change the current rootSet.
func TestNextIsPure(t *testing.T) {
	now := newClock().now
	s := rotationInput{now: now, rootLife: 180 * day, overlap: 45 * day}
	first, _, err := (*rootSet)(nil).nextRootSet(s)
	if err != nil {
		t.Fatal(err)
	}
	before, roots := first.digest, maps.Collect(slices.All(first.roots))
	s.request = "x"
	second, done, err := first.nextRootSet(s)
	if err != nil || len(done) != 1 || len(second.roots) != 2 {
		t.Fatalf("%v, %q", err, done)
	}
	if first.digest != before || len(first.roots) != len(roots) || first.rotated != "" {
		t.Error("the former rootSet has changed")
	}
}
