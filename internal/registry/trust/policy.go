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

// The constants limit the size of a trust policy and the time that verification needs.
const (
	maxPolicy    = 512 << 10       // maximum bytes of the file
	maxRules     = 1000            // maximum number of rules in one policy
	maxKeys      = 50              // maximum number of keys in one rule; each signature is checked with each key
	minRSABits   = 2048            // minimum length of an RSA key
	policyPeriod = 5 * time.Second // minimum interval between two reads of the file
)

// Mode defines what happens to an artefact without a valid signature.
type Mode string

// The modes of a rule.
const (
	// Enforce means that the artefact is refused, with reason SignatureMissing or SignatureInvalid.
	Enforce Mode = "enforce"
	// Warn means that the artefact is used, and that [Signature.Problem] describes the problem.
	Warn Mode = "warn"
	// Off means that signatures are not checked.
	Off Mode = "off"
)

// UnmarshalJSON accepts the value false and reads it as the mode "off". UnmarshalJSON has to accept false, because YAML
// parsers convert the unquoted word off to false.
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

// Policy is a trust policy. A Policy defines which artefacts must be signed, and by which keys. [Load] and [Parse]
// create a Policy. A Policy is safe for concurrent use.
type Policy struct {
	path    string // empty if the policy never changes
	changed func(version string, err error)
	now     func() time.Time

	mu      sync.Mutex // guards the fields below
	rules   *Rules     // the last valid rules, never nil
	seen    string     // version of the last content, valid or not; empty if the file could not be read
	err     error      // reason why the last content is not in force
	checked time.Time
}

// Load reads a trust policy from a file, and follows changes of the file. The policy file of the manager is mounted
// from a ConfigMap. When the policy is used, its file is read again, at most every five seconds. If the file cannot be
// read or parsed any more, the last valid policy stays in force.
//
// The function changed is called after each change of the file, with the version of the policy that is in force. If the
// new content of the file is not valid, the argument err of this call is the error. The parameter changed may be nil.
// The function changed must not call methods of the Policy.
//
// Load returns errors of type *ocm.Error with reason TrustPolicyInvalid. If Load returns an error, the caller must not
// continue without a policy.
func Load(path string, changed func(version string, err error)) (*Policy, error) {
	return LoadWithClock(path, changed, time.Now)
}

// LoadWithClock is the same as Load, with another clock. LoadWithClock is for tests.
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

// Parse reads a trust policy from data. In contrast to the result of Load, the returned Policy never changes. Parse
// returns errors of type *ocm.Error with reason TrustPolicyInvalid.
func Parse(data []byte) (*Policy, error) {
	p, err := parsePolicy(data)
	if err != nil {
		return nil, policyError("the trust policy", err)
	}
	return &Policy{rules: p}, nil
}

func policyError(what string, err error) error {
	return &ocm.Error{Ref: what, Doing: "reading", Code: ocm.TrustPolicyInvalid, Cause: err,
		Problem: ocm.FirstLine(err.Error())}
}

// Version returns the version of the policy that is in force. The version is the beginning of the hash of the policy's
// text.
func (t *Policy) Version() string { return t.Current().Version }

// Err returns the error of the last attempt to load the file. While Err returns an error, the last valid content of the
// file is in force. If the last attempt succeeded, Err returns nil. An error that Err returns is of type *ocm.Error
// with reason TrustPolicyInvalid.
func (t *Policy) Err() error {
	t.Current()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Current returns the rules that are in force. The rules of a nil Policy require no signature.
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

// readPolicy reads the file with the trust policy, but at most one byte more than maxPolicy. parsePolicy refuses a file
// that is larger than maxPolicy.
func readPolicy(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator of the manager configures the path
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

// Rules is one version of a trust policy, parsed.
type Rules struct {
	Version string
	List    []Rule // sorted by the length of the prefix, longest first; the last rule has no prefix
}

// Rule has the mode and the keys for all artefacts below a prefix.
type Rule struct {
	Prefix string
	Mode   Mode
	keys   []key
}

// key is a public key with a verifier for each of its signature schemes.
type key struct {
	name        string // empty if the key is inside a rule
	fingerprint string // fingerprint of the key in PKIX form
	public      crypto.PublicKey
	verifiers   []signature.Verifier // verifiers for cosign signatures
}

// noPolicy has rules that require no signature.
var noPolicy = &Rules{List: []Rule{{Mode: Off}}}

// String returns the name of the key, for messages. If the key has no name, String returns its fingerprint.
func (k key) String() string {
	if k.name == "" {
		return k.fingerprint
	}
	return k.name
}

func versionOf(data []byte) string { return strings.TrimPrefix(ocm.DigestOf(data), "sha256:")[:16] }

// policyFile is the parsed content of a file with a policy.
type policyFile struct {
	Keys  map[string]string `json:"keys"` // keys in PEM format, by name
	Rules []policyRule      `json:"rules"`
}

type policyRule struct {
	Prefix *string  `json:"prefix"`
	Mode   Mode     `json:"mode"`
	Keys   []string `json:"keys"` // names of keys, or keys in PEM format
}

// parsePolicy parses a policy strictly. An unknown field is an error, because it may be a misspelled field that
// requires signatures.
func parsePolicy(data []byte) (*Rules, error) {
	if len(data) > maxPolicy {
		return nil, fmt.Errorf("it is larger than %d bytes: remove rules or keys", maxPolicy)
	}
	var file policyFile
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("it is not a trust policy: %s",
			ocm.FirstLine(strings.ReplaceAll(err.Error(), "\n", " ")))
	}
	if len(file.Rules) > maxRules {
		return nil, fmt.Errorf("it has %d rules, at most %d are allowed: use shorter prefixes", len(file.Rules),
			maxRules)
	}
	keys := map[string]key{} // by name or PEM; each key is parsed once, although many rules may use it
	for name, text := range file.Keys {
		k, err := parsePublicKey(name, text)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", name, err)
		}
		keys[name] = k
	}
	p := &Rules{Version: versionOf(data)}
	for i, r := range file.Rules {
		made, err := r.parseAndAddKeys(keys)
		if err == nil && slices.ContainsFunc(p.List, func(o Rule) bool { return o.Prefix == made.Prefix }) {
			err = fmt.Errorf("another rule has the prefix %q: keep one", *r.Prefix)
		}
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		p.List = append(p.List, made)
	}
	slices.SortFunc(p.List, func(a, b Rule) int { return len(b.Prefix) - len(a.Prefix) })
	if len(p.List) == 0 || p.List[len(p.List)-1].Prefix != "" {
		return nil, errors.New(
			`no rule has prefix "": add one for all other artefacts, for example with mode enforce, or "off"`)
	}
	return p, nil
}

// parseAndAddKeys checks a rule and converts it. Public keys that are defined inside the rule are added to the map
// keys.
func (r policyRule) parseAndAddKeys(keys map[string]key) (Rule, error) {
	if r.Prefix == nil {
		return Rule{}, fmt.Errorf("it has no prefix: add one, or %q for all artefacts without another rule", "")
	}
	about := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("prefix %q: %w", *r.Prefix, fmt.Errorf(format, args...))
	}
	switch {
	case r.Mode == "":
		return about("it has no mode: use enforce, warn or off")
	case len(r.Keys) > maxKeys:
		return about("it has %d keys, at most %d are allowed", len(r.Keys), maxKeys)
	case len(r.Keys) == 0 && r.Mode != Off:
		return about("it has mode %s and no keys: no signature could be valid", r.Mode)
	}
	made := Rule{Prefix: SubjectOf(*r.Prefix), Mode: r.Mode}
	for _, text := range r.Keys {
		k, ok := keys[text]
		if !ok && !strings.Contains(text, "-----BEGIN") {
			return about("there is no key %q: add it to the keys", ocm.FirstLine(text))
		}
		if !ok {
			var err error
			if k, err = parsePublicKey("", text); err != nil {
				return about("%w", err)
			}
			keys[text] = k
		}
		made.keys = append(made.keys, k)
	}
	return made, nil
}

// parsePublicKey parses one public key. An error of parsePublicKey never contains the text of the key, because somebody
// may have configured a private key by mistake.
func parsePublicKey(name, pemText string) (key, error) {
	block, rest := pem.Decode([]byte(pemText))
	if block == nil {
		return key{}, errors.New("not a PEM block: use a public key, such as the content of cosign.pub")
	}
	if strings.Contains(block.Type, "PRIVATE") {
		return key{}, errors.New(
			"this is a private key: replace it by its public key, and create a new key pair, because others may have " +
				"read this one")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return key{}, errors.New("there is more than one PEM block: add each key with its own name")
	}
	public, err := cryptoutils.UnmarshalPEMToPublicKey(pem.EncodeToMemory(block))
	if err != nil {
		return key{}, fmt.Errorf("a %s is not a public key: use PUBLIC KEY or RSA PUBLIC KEY",
			ocm.FirstLine(block.Type))
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

// verifiersOf returns verifiers for the signature schemes that cosign uses with a key. Up to version 2, cosign always
// signed with SHA-256. Since version 3, cosign signs with the default hash of the key's type, for example SHA-384 for a
// P-384 key.
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

// RuleForRepository returns the rule with the longest prefix that is equal to the subject or to a parent path of the
// subject.
func (p *Rules) RuleForRepository(subject string) Rule {
	for _, r := range p.List {
		if below, ok := strings.CutPrefix(subject, r.Prefix); ok && (r.Prefix == "" || below == "" || below[0] == '/') {
			return r
		}
	}
	return Rule{Mode: Off} // never executed, because every policy has a rule without prefix
}

// SubjectOf returns the subject of a repository: the text that is compared with the prefixes of rules. The subject of a
// repository consists of its host and its path, without the path element component-descriptors. Different spellings of
// the same host give the same subject.
func SubjectOf(repository string) string {
	repository = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(repository), "https://"),
		"http://"), "oci://")
	elements := slices.DeleteFunc(strings.Split(repository, "/"),
		func(e string) bool { return e == "" || e == "component-descriptors" })
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
