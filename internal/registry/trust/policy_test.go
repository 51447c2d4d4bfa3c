package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// pair is a key pair for tests.
type pair struct {
	private crypto.Signer
	pem     string
}

// pairs has one key pair of each kind. All tests share the key pairs in the variable pairs, because generating RSA keys
// is slow.
var pairs = sync.OnceValue(func() map[string]pair {
	made := map[string]pair{}
	add := func(name string, private crypto.Signer, err error) {
		if err != nil {
			panic(err)
		}
		der, err := x509.MarshalPKIXPublicKey(private.Public())
		if err != nil {
			panic(err)
		}
		made[name] = pair{private, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
	}
	for _, name := range []string{"rsa", "rsa-other"} {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		add(name, k, err)
	}
	for name, curve := range map[string]elliptic.Curve{"p256": elliptic.P256(),
		"p256-other": elliptic.P256(), "p384": elliptic.P384()} {
		k, err := ecdsa.GenerateKey(curve, rand.Reader)
		add(name, k, err)
	}
	_, k, err := ed25519.GenerateKey(rand.Reader)
	add("ed25519", k, err)
	return made
})

func indent(text string, by int) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", by))
}

// policyOf returns a policy with one rule: every artefact must have a signature by one of the named keys.
func policyOf(names ...string) string {
	var b strings.Builder
	b.WriteString("keys:\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  %s: |\n    %s\n", name, indent(pairs()[name].pem, 4))
	}
	fmt.Fprintf(&b, "rules:\n- {prefix: \"\", mode: %s, keys: [%s]}\n", Enforce, strings.Join(names, ", "))
	return b.String()
}

func mustParse(t testing.TB, text string) *Policy {
	t.Helper()
	made, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestPolicies(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(small.Public())
	if err != nil {
		t.Fatal(err)
	}
	short := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	secret := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("top-secret")}))
	key := func(text string) string {
		return "keys:\n  k: |\n    " + indent(text, 4) + "\nrules: [{prefix: \"\", mode: warn, keys: [k]}]"
	}
	inline := "rules:\n- prefix: r.io\n  mode: enforce\n  keys:\n  - |\n    " + indent(pairs()["p256"].pem, 4) +
		"\n- {prefix: \"\", mode: off}"
	for name, tc := range map[string]struct{ reason, text, want string }{
		"Good":      {"a key by name", policyOf("p256", "p384", "rsa", "ed25519"), ""},
		"Inline":    {"a key in the rule, and mode off without quotes, which YAML reads as false", inline, ""},
		"QuotedOff": {"mode off with quotes", `rules: [{prefix: "", mode: "off"}]`, ""},
		"Empty":     {"a lost file must not switch everything off", "", `prefix ""`},
		"NotYAML":   {"", "a: b: c", "not a trust policy"},
		"Unknown": {"a misspelt field may be what was to protect", `rules: [{prefix: "", mode: "off", key: x}]`,
			"key"},
		"Twice":    {"", "rules: []\nrules: []", "not a trust policy"},
		"Mode":     {"", `rules: [{prefix: "", mode: on}]`, "mode"},
		"NoMode":   {"", `rules: [{prefix: ""}]`, "has no mode"},
		"NoPrefix": {"", `rules: [{mode: "off"}]`, "has no prefix"},
		"NoDefault": {"it has to be said what holds for everything else",
			`rules: [{prefix: r.io, mode: "off"}]`, `prefix ""`},
		"NoKeys":     {"", `rules: [{prefix: "", mode: enforce}]`, "no keys"},
		"KeyMissing": {"", `rules: [{prefix: "", mode: enforce, keys: [nobody]}]`, `"nobody"`},
		"SamePrefix": {"two spellings of one place",
			`rules: [{prefix: "", mode: "off"}, {prefix: R.io/a/, mode: "off"}, {prefix: "https://r.io:443/component-descriptors/a", mode: "off"}]`, "another rule"},
		"NotPEM":     {"", key("hello"), "not a PEM block"},
		"PrivateKey": {"", key(secret), "private key"},
		"Certificate": {"", key(strings.ReplaceAll(pairs()["rsa"].pem, "PUBLIC KEY", "CERTIFICATE")),
			"not a public key"},
		"ShortKey":  {"", key(short), "1024 bits"},
		"TwoKeys":   {"", key(pairs()["rsa"].pem + pairs()["p256"].pem), "more than one"},
		"ManyRules": {"", "rules:" + strings.Repeat("\n- {prefix: a, mode: \"off\"}", maxRules+1), "at most 1000"},
		"ManyKeys": {"", `rules: [{prefix: "", mode: warn, keys: [` + strings.Repeat("a, ", maxKeys) + "a]}]",
			"at most 50"},
		"Large": {"", "#" + strings.Repeat("x", maxPolicy), "larger than"},
		"DefaultFirst": {"the order of rules does not matter",
			`rules: [{prefix: "", mode: "off"}, {prefix: r.io, mode: "off"}]`, ""},
	} {
		_, err := Parse([]byte(tc.text))
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %s: %v", name, tc.reason, err)
			}
			continue
		}
		checkReason(t, err)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %s: got %v, want %s", name, tc.reason, err, tc.want)
		}
	}
}

func TestRules(t *testing.T) {
	key := "keys: {k: " + fmt.Sprintf("%q", pairs()["p256"].pem) + "}\n"
	p := mustParse(t, key+`
rules:
- {prefix: "", mode: "off"}
- {prefix: r.io, mode: warn, keys: [k]}
- {prefix: r.io/kyma/prod, mode: enforce, keys: [k]}
- {prefix: r.io/kyma/prod/example.com/play, mode: "off"}
- {prefix: "docker.io/org", mode: enforce, keys: [k]}
`).Current()
	for subject, want := range map[string]Mode{
		"other.io/kyma/prod/a": Off, "r.io": Warn, "r.io/kyma": Warn, "r.io/kyma/production/a": Warn,
		"r.io:5000/kyma/prod": Off, "r.ioevil/kyma/prod": Off,
		"r.io/kyma/prod": Enforce, "r.io/kyma/prod/a": Enforce, "r.io/kyma/prod/component-descriptors/a": Enforce,
		"r.io/component-descriptors/kyma/prod/a":                Enforce,
		"r.io/kyma/prod/component-descriptors/example.com/play": Off, "r.io/kyma/prod/example.com/player": Enforce,
		"R.IO:443/kyma/prod/a": Enforce, "r.io./kyma/prod/a": Enforce, "http://r.io:80/kyma/prod/a": Enforce,
		"r.io//kyma/prod/a": Enforce, "oci://r.io/kyma/prod/a": Enforce,
		"index.docker.io/org/a": Enforce, "registry-1.docker.io/org/a": Enforce,
	} {
		if got := p.RuleForRepository(SubjectOf(subject)).Mode; got != want {
			t.Errorf("%s: got %s, want %s", subject, got, want)
		}
	}
	var none *Policy
	if got := none.Current().RuleForRepository("r.io").Mode; got != Off {
		t.Errorf("without a policy: %s", got)
	}
}

// TestReload changes the file with the policy while the policy is in use.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(file, nil); ocm.ReasonOf(err) != ocm.TrustPolicyInvalid {
		t.Errorf("a missing file: got %v", err)
	}
	write("nonsense")
	_, err := Load(file, nil)
	checkReason(t, err)

	strict, lax := policyOf("p256"), `rules: [{prefix: "", mode: "off"}]`
	write(strict)
	c := &testClock{t: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var reported []string
	tr, err := LoadWithClock(file, func(version string, err error) {
		reported = append(
			reported, version+" "+ocm.ReasonOf(err))
	}, c.now)
	if err != nil {
		t.Fatal(err)
	}
	first := tr.Version()
	mode := func() Mode { return tr.Current().RuleForRepository("r.io/a").Mode }
	step := func(name string, want Mode, wantErr bool, tellings int) {
		t.Helper()
		c.forward(policyPeriod)
		if got := mode(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		c.forward(policyPeriod)
		if err := tr.Err(); (err != nil) != wantErr {
			t.Errorf("%s: got error %v", name, err)
		}
		if len(reported) != tellings {
			t.Errorf("%s: reported %q, want %d", name, reported, tellings)
		}
	}
	write(lax)
	if got := mode(); got != Enforce {
		t.Errorf("at once: got %s", got)
	}
	step("Changed", Off, false, 1)
	write(strict)
	step("ChangedBack", Enforce, false, 2)
	write("rules: [")
	step("Damaged", Enforce, true, 3)
	if got := tr.Version(); got != first {
		t.Errorf("damaged: version %s, want %s", got, first)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	step("Removed", Enforce, true, 4)
	write(strict)
	step("AsBefore", Enforce, false, 5)
	write(strings.Repeat("#", maxPolicy+1) + "\n" + lax)
	step("Large", Enforce, true, 6)
	write(lax)
	step("Mended", Off, false, 7)
}

// FuzzPolicy checks that the parser returns a policy or a one-line error for any text, and that a policy decides about
// every artefact.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(policyOf("p256")), "r.io/a")
	f.Add([]byte(`rules: [{prefix: "", mode: off}]`), "r.io")
	f.Add([]byte("rules: [{prefix: r.io, mode: warn}]"), "")
	f.Fuzz(func(t *testing.T, data []byte, subject string) {
		p, err := Parse(data)
		if err != nil {
			if ocm.ReasonOf(err) != ocm.TrustPolicyInvalid || strings.Contains(err.Error(), "\n") {
				t.Fatalf("not a proper error: %q", err)
			}
			return
		}
		r := p.Current().RuleForRepository(SubjectOf(subject))
		if r.Mode != Enforce && r.Mode != Warn && r.Mode != Off || r.Mode != Off && len(r.keys) == 0 {
			t.Fatalf("%q: rule %+v", subject, r)
		}
	})
}

// checkReason fails the test unless err has one line and the reason TrustPolicyInvalid.
func checkReason(t *testing.T, err error) {
	t.Helper()
	if ocm.ReasonOf(err) != ocm.TrustPolicyInvalid || strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("got %v, want one line with reason %s", err, ocm.TrustPolicyInvalid)
	}
}

// testClock is a clock whose time the test sets.
type testClock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *testClock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}
