package registry

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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// The constants are names in signatures and manifests that other tools read and write. The names are repeated in this
// test, so that a test fails if a constant of the package changes.
const (
	wantRsaType              = "application/vnd.ocm.signature.rsa"
	wantPemType              = "application/x-pem-file"
	wantPssType              = "application/vnd.ocm.signature.rsa.pss"
	wantSimpleSigningType    = "application/vnd.dev.cosign.simplesigning.v1+json"
	wantSignatureAnnotation  = "dev.cosignproject.cosign/signature"
	wantStatementType        = "application/vnd.in-toto+json"
	wantSignPredicate        = "https://sigstore.dev/cosign/sign/v1"
	wantPredicateAnnotation  = "dev.sigstore.bundle.predicateType"
	wantMaxSignatureBytes    = 256 << 10
	wantNormalisation1       = "jsonNormalisation/v1"
	wantNormalisation2       = "jsonNormalisation/v2"
	wantNormalisation3       = "jsonNormalisation/v3"
	wantNormalisation4alpha1 = "jsonNormalisation/v4alpha1"
	wantPolicyPeriod         = 5 * time.Second
	wantDescriptorFile       = "component-descriptor.yaml"
	wantDescriptorType       = "application/vnd.ocm.software.component-descriptor.v2+yaml+tar"
	wantArtifactAnnotation   = "software.ocm.artifact"
)

// keyPair is a key pair for tests.
type keyPair struct {
	private crypto.Signer
	pem     string
}

// keyPairs has one keyPair of each kind. All tests share the key pairs in keyPairs, because generating RSA keys is
// slow.
var keyPairs = sync.OnceValue(func() map[string]keyPair {
	made := map[string]keyPair{}
	add := func(name string, private crypto.Signer, err error) {
		if err != nil {
			panic(err)
		}
		der, err := x509.MarshalPKIXPublicKey(private.Public())
		if err != nil {
			panic(err)
		}
		made[name] = keyPair{private, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
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

func indented(text string, by int) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", by))
}

// policyText returns the text of a trust policy with one rule for all artefacts. The parameter mode is the mode of the
// rule. The parameter names lists the test key pairs whose public keys the rule accepts.
func policyText(mode trust.Mode, names ...string) string {
	var b strings.Builder
	b.WriteString("keys:\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  %s: |\n    %s\n", name, indented(keyPairs()[name].pem, 4))
	}
	fmt.Fprintf(&b, "rules:\n- {prefix: \"\", mode: %s, keys: [%s]}\n", mode, strings.Join(names, ", "))
	return b.String()
}

func trustPolicy(t testing.TB, text string) *trust.Policy {
	t.Helper()
	made, err := trust.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return made
}
