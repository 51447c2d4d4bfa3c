package scenario

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// trust writes a trust policy with one key for all artefacts, made at the first call.
func (s *scenario) trust(c *call) error {
	if err := c.want(2, 2, "trust FILE enforce|warn|off"); err != nil {
		return err
	}
	if s.signer == nil {
		var err error
		if s.signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return err
		}
	}
	der, err := x509.MarshalPKIXPublicKey(&s.signer.PublicKey)
	if err != nil {
		return err
	}
	key := strings.ReplaceAll(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "\n", "\n    ")
	policy := fmt.Sprintf("keys:\n  release: |\n    %s\nrules:\n- {prefix: \"\", mode: %s, keys: [release]}\n", key,
		c.args[1])
	return os.WriteFile(c.script.MkAbs(c.args[0]), []byte(policy), 0o600)
}

// sign signs a component version as cosign does. The signature is stored next to the component version in the registry.
func (s *scenario) sign(c *call) error {
	if err := c.want(2, 2, "sign COMPONENT VERSION"); err != nil {
		return err
	}
	host := strings.TrimPrefix(s.land.RegistryHost, "http://")
	ref, err := name.NewTag(host+"/component-descriptors/"+c.args[0]+":"+c.args[1], name.Insecure)
	if err != nil {
		return err
	}
	manifest, err := remote.Head(ref, remote.WithContext(s.ctx))
	if err != nil {
		return err
	}
	payload := fmt.Sprintf(`{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`,
		ref.Context().Name(), manifest.Digest)
	sum := sha256.Sum256([]byte(payload))
	signature, err := ecdsa.SignASN1(rand.Reader, s.signer, sum[:])
	if err != nil {
		return err
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer: static.NewLayer([]byte(payload),
			types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(
			signature)},
	})
	if err != nil {
		return err
	}
	return remote.Write(ref.Context().Tag(strings.Replace(manifest.Digest.String(), ":", "-", 1)+".sig"),
		image, remote.WithContext(s.ctx))
}
