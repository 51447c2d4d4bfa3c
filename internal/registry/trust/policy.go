package trust

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// Bounds of a trust policy.
const (
	maxPolicy    = 512 << 10       // bytes of the file
	maxRules     = 1000            // in one policy
	maxKeys      = 50              // of one rule: each is tried with each signature
	minRSABits   = 2048            // of a key
	policyPeriod = 5 * time.Second // how long the file is believed unchanged
)

// Mode says what becomes of an artefact that has no valid signature.
type Mode string

// The modes of a rule.
const (
	// Enforce: it is refused, with reason SignatureMissing or SignatureInvalid.
	Enforce Mode = "enforce"
	// Warn: it is used, and [Signature.Problem] says what is wrong.
	Warn Mode = "warn"
	// Off: nothing is looked for.
	Off Mode = "off"
)

// UnmarshalJSON takes YAML's false for "off", since that is what YAML makes of the bare word.
func (m *Mode) UnmarshalJSON(data []byte) error {
	var text string
	if string(data) == "false" {
		text = string(Off)
	} else if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("mode is neither enforce, warn nor off")
	}
	switch *m = Mode(text); *m {
	case Enforce, Warn, Off:
		return nil
	}
	return fmt.Errorf("mode %q is neither enforce, warn nor off", text)
}

// Trust is a trust policy: which artefacts have to be signed, and by whom. It is made by [LoadTrust] or [ParseTrust], and safe for
// concurrent use.
type Policy struct {
	path    string // empty: it never changes
	changed func(version string, err error)
	now     func() time.Time

	mu      sync.Mutex // guards what follows
	rules   *Rules     // the last good one, never nil
	seen    string     // version of what was read last, good or not; empty: it could not be read
	err     error      // why what was read last is not taken
	checked time.Time
}

// LoadTrust reads a trust policy from a file: in the manager, a mounted ConfigMap. The file is read again when the policy is used, at
// most every five seconds. If it can no longer be read or understood, the last good policy stays in force, and changed is told.
//
// changed, which may be nil, is called with the version of the policy in force after each change, and with the reason why what is in
// the file is not taken, if it is not. It must not use the Trust.
//
// Errors are of type *Error with reason TrustPolicyInvalid. Whoever gets one must not go on without a policy.
func Load(path string, changed func(version string, err error)) (*Policy, error) {
	return LoadWithClock(path, changed, time.Now)
}

func LoadWithClock(path string, changed func(version string, err error), now func() time.Time) (*Policy, error) {
	data, err := readPolicy(path)
	if err != nil {
		return nil, policyError(path, err)
	}
	p, err := parsePolicy(data)
	if err != nil {
		return nil, policyError(path, err)
	}
	if changed == nil {
		changed = func(string, error) {}
	}
	return &Policy{path: path, changed: changed, now: now, rules: p, seen: p.Version, checked: now()}, nil
}

// ParseTrust reads a trust policy that does not change. Errors are of type *Error with reason TrustPolicyInvalid.
func Parse(data []byte) (*Policy, error) {
	p, err := parsePolicy(data)
	if err != nil {
		return nil, policyError("the trust policy", err)
	}
	return &Policy{rules: p}, nil
}

func policyError(what string, err error) error {
	return &ocm.Error{Ref: what, Doing: "reading", Code: ocm.TrustPolicyInvalid, Cause: err, Problem: ocm.FirstLine(err.Error())}
}

// Version identifies the policy in force: the beginning of the digest of its text.
func (t *Policy) Version() string { return t.Current().Version }

// Err says why the last change of the file was not taken over, and is nil if it was. It is of type *Error with reason TrustPolicyInvalid.
func (t *Policy) Err() error {
	t.Current()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// current returns the policy in force. No Trust means the policy that asks for nothing.
func (t *Policy) Current() *Rules {
	if t == nil {
		return noPolicy
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path == "" || t.now().Sub(t.checked) < policyPeriod {
		return t.rules
	}
	t.checked = t.now()
	data, err := readPolicy(t.path)
	seen := ""
	if err == nil {
		seen = versionOf(data)
	}
	if seen == t.seen {
		return t.rules
	}
	t.seen = seen
	var p *Rules
	if err == nil {
		p, err = parsePolicy(data)
	}
	if err != nil {
		t.err = policyError(t.path, err)
		t.changed(t.rules.Version, t.err)
		return t.rules
	}
	t.rules, t.err = p, nil
	t.changed(p.Version, nil)
	return p
}

// readPolicy reads a file of bounded size.
func readPolicy(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // whoever starts the manager names it
	if err != nil {
		return nil, fmt.Errorf("the file cannot be opened: %w: mount it, or correct --trust-policy", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	return data, nil
}

// policy is one text of a trust policy, understood.
type Rules struct {
	Version string
	List    []Rule // longest prefix first; the last has none
}

// rule says what holds for the artefacts below a prefix.
type Rule struct {
	Prefix string
	Mode   Mode
	keys   []key
}

// key is a public key and the ways in which signatures are made with it.
type key struct {
	name        string // empty: it stands in the rule itself
	fingerprint string // of its PKIX form
	public      crypto.PublicKey
	verifiers   []signature.Verifier // of bytes, for cosign
}

// noPolicy asks for nothing.
var noPolicy = &Rules{List: []Rule{{Mode: Off}}}

// String names a key for people.
func (k key) String() string {
	if k.name == "" {
		return k.fingerprint
	}
	return k.name
}

func versionOf(data []byte) string { return strings.TrimPrefix(ocm.DigestOf(data), "sha256:")[:16] }

// policyFile is what the file of a trust policy holds.
type policyFile struct {
	Keys  map[string]string `json:"keys"` // PEM by name
	Rules []policyRule      `json:"rules"`
}

type policyRule struct {
	Prefix *string  `json:"prefix"`
	Mode   Mode     `json:"mode"`
	Keys   []string `json:"keys"` // names or PEM
}

// parsePolicy reads a policy strictly: what is not understood might be what was meant to protect.
func parsePolicy(data []byte) (*Rules, error) {
	if len(data) > maxPolicy {
		return nil, fmt.Errorf("it is larger than %d bytes: remove rules or keys", maxPolicy)
	}
	var file policyFile
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("it is not a trust policy: %s", ocm.FirstLine(strings.ReplaceAll(err.Error(), "\n", " ")))
	}
	if len(file.Rules) > maxRules {
		return nil, fmt.Errorf("it has %d rules, at most %d are allowed: use shorter prefixes", len(file.Rules), maxRules)
	}
	keys := map[string]key{} // by name or PEM, each read once: a file may have one key in many rules
	for name, text := range file.Keys {
		k, err := parseKey(name, text)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", name, err)
		}
		keys[name] = k
	}
	p := &Rules{Version: versionOf(data)}
	for i, r := range file.Rules {
		made, err := r.parse(keys)
		if err == nil && slices.ContainsFunc(p.List, func(o Rule) bool { return o.Prefix == made.Prefix }) {
			err = fmt.Errorf("another rule has prefix %q, too: keep one", *r.Prefix)
		}
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		p.List = append(p.List, made)
	}
	slices.SortFunc(p.List, func(a, b Rule) int { return len(b.Prefix) - len(a.Prefix) })
	if len(p.List) == 0 || p.List[len(p.List)-1].Prefix != "" {
		return nil, errors.New(`no rule has prefix "": add one that says what holds for everything else, for example with mode enforce, or "off"`)
	}
	return p, nil
}

// parse checks a rule. Keys that stand in it are added to keys.
func (r policyRule) parse(keys map[string]key) (Rule, error) {
	if r.Prefix == nil {
		return Rule{}, fmt.Errorf("it has no prefix: give one, or %q for everything that no other rule names", "")
	}
	about := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("prefix %q: %w", *r.Prefix, fmt.Errorf(format, args...))
	}
	switch {
	case r.Mode == "":
		return about("it has no mode: give enforce, warn or off")
	case len(r.Keys) > maxKeys:
		return about("it has %d keys, at most %d are allowed", len(r.Keys), maxKeys)
	case len(r.Keys) == 0 && r.Mode != Off:
		return about("it has mode %s and no keys: nothing could ever fulfil it", r.Mode)
	}
	made := Rule{Prefix: SubjectOf(*r.Prefix), Mode: r.Mode}
	for _, text := range r.Keys {
		k, ok := keys[text]
		if !ok && !strings.Contains(text, "-----BEGIN") {
			return about("there is no key %q: add it to the keys", ocm.FirstLine(text))
		}
		if !ok {
			var err error
			if k, err = parseKey("", text); err != nil {
				return about("%w", err)
			}
			keys[text] = k
		}
		made.keys = append(made.keys, k)
	}
	return made, nil
}

// parseKey reads one public key. Its errors never quote the text, which might be a private key by mistake.
func parseKey(name, text string) (key, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil {
		return key{}, errors.New("not a PEM block: give a public key, as cosign.pub holds it")
	}
	if strings.Contains(block.Type, "PRIVATE") {
		return key{}, errors.New("this is a private key: replace it by its public key, and make a new pair, since others may have read it here")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return key{}, errors.New("there is more than one PEM block: give each key a name of its own")
	}
	public, err := cryptoutils.UnmarshalPEMToPublicKey(pem.EncodeToMemory(block))
	if err != nil {
		return key{}, fmt.Errorf("a %s is not a public key: give PUBLIC KEY or RSA PUBLIC KEY", ocm.FirstLine(block.Type))
	}
	switch k := public.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return key{}, fmt.Errorf("an RSA key of %d bits is too short: use %d or more", k.N.BitLen(), minRSABits)
		}
	case *ecdsa.PublicKey:
		if c := k.Curve; c != elliptic.P256() && c != elliptic.P384() && c != elliptic.P521() {
			return key{}, fmt.Errorf("curve %s is not supported: use P-256 or P-384", k.Curve.Params().Name)
		}
	case ed25519.PublicKey:
	default:
		return key{}, fmt.Errorf("a key of type %T is not supported: use ECDSA, RSA or Ed25519", public)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return key{}, fmt.Errorf("the key cannot be encoded: %w", err)
	}
	sum := sha256.Sum256(der)
	made := key{name: name, fingerprint: "SHA256:" + hex.EncodeToString(sum[:8]), public: public}
	made.verifiers, err = verifiersOf(public)
	return made, err
}

// verifiersOf returns the ways in which cosign signs with a key: always SHA-256 until version 2, what suits the key since.
func verifiersOf(public crypto.PublicKey) ([]signature.Verifier, error) {
	first, err := signature.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("the key cannot be used: %w", err)
	}
	all := []signature.Verifier{first}
	if second, err := signature.LoadDefaultVerifier(public); err == nil {
		all = append(all, second)
	}
	if k, ok := public.(*rsa.PublicKey); ok {
		pss, err := signature.LoadRSAPSSVerifier(k, crypto.SHA256, nil)
		if err != nil {
			return nil, fmt.Errorf("the key cannot be used: %w", err)
		}
		all = append(all, pss)
	}
	return all, nil
}

// ruleFor returns the rule with the longest prefix that names the subject or a folder above it.
func (p *Rules) RuleFor(subject string) Rule {
	for _, r := range p.List {
		if below, ok := strings.CutPrefix(subject, r.Prefix); ok && (r.Prefix == "" || below == "" || below[0] == '/') {
			return r
		}
	}
	return Rule{Mode: Off} // only noPolicy comes here, and it has a rule without prefix
}

// subjectOf is what rules speak of: host and path of a repository, without the element component-descriptors, which no author writes.
// Spellings of one host that lead to the same place become the same.
func SubjectOf(repository string) string {
	repository = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(repository), "https://"), "http://"), "oci://")
	elements := slices.DeleteFunc(strings.Split(repository, "/"), func(e string) bool { return e == "" || e == "component-descriptors" })
	if len(elements) == 0 {
		return ""
	}
	host := strings.ToLower(elements[0])
	host = strings.TrimSuffix(strings.TrimSuffix(host, ":443"), ":80")
	host = strings.TrimSuffix(host, ".")
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = name.DefaultRegistry
	}
	elements[0] = host
	return strings.Join(elements, "/")
}
