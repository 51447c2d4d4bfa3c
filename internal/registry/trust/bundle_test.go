package trust

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// FuzzBundle checks that a bundle is valid only if it has a signature by the key.
func FuzzBundle(f *testing.F) {
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"certificate":{}},"dsseEnvelope":{"payload":"e30=","payloadType":"x","signatures":[{"sig":"eA=="}]}}`))
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","messageSignature":{"messageDigest":{},"signature":"eA=="}}`))
	keys := mustParse(f, policyOf("p256", "ed25519")).Current().List[0].keys
	f.Fuzz(func(t *testing.T, data []byte) {
		if k, err := verifyBundle(data, &ocm.ImageManifest{Digest: ocm.DigestOf(nil)}, keys); err == nil {
			t.Fatalf("valid by %s", k)
		}
	})
}
