package trust

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// ParsePrivateKey parses a private key in the format PKCS 1, PKCS 8 or SEC 1, or an encrypted private key of cosign.
// The function password is called only for an encrypted key. Errors never contain the text of the key.
func ParsePrivateKey(text []byte, password func() ([]byte, error)) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("not a PEM block: use a private key")
	}
	der := block.Bytes
	switch block.Type {
	case "RSA PRIVATE KEY":
		k, err := x509.ParsePKCS1PrivateKey(der)
		if err != nil {
			return nil, errors.New("the RSA key cannot be read")
		}
		return k, nil
	case "EC PRIVATE KEY":
		k, err := x509.ParseECPrivateKey(der)
		if err != nil {
			return nil, errors.New("the EC key cannot be read")
		}
		return k, nil
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		secret, err := password()
		if err != nil {
			return nil, err
		}
		if der, err = encrypted.Decrypt(der, secret); err != nil {
			return nil, errors.New("the key cannot be decrypted: check the password")
		}
	case "PRIVATE KEY":
	case "PUBLIC KEY":
		return nil, errors.New("this is a public key: use the private key")
	default:
		return nil, fmt.Errorf(
			"a %s is not a supported private key: use PRIVATE KEY, RSA PRIVATE KEY, EC PRIVATE KEY or a key of cosign",
			ocm.FirstLine(block.Type))
	}
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("the key cannot be read")
	}
	signer, ok := k.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign: use RSA, ECDSA or Ed25519", k)
	}
	return signer, nil
}

// PublicPEM returns the public key of a key pair in PEM format, as trust policies contain it.
func PublicPEM(k crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding the public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// Sign returns a copy of the artifact whose descriptor has an OCM signature with the given name. The new signature
// replaces an existing signature with the same name. The signature is RSASSA-PSS over jsonNormalisation/v4alpha1 with
// SHA-256. Sign calls the function resolve for each image whose resource has no digest. resolve returns the digest of
// the image, so that the signature covers all images.
func Sign(ctx context.Context, a *ocm.Artifact, name string, k *rsa.PrivateKey,
	resolve func(ctx context.Context, image string) (string, error)) (*ocm.Artifact, error) {
	if k.N.BitLen() < minRSABits {
		return nil, fmt.Errorf("an RSA key of %d bits is too short: use %d or more", k.N.BitLen(), minRSABits)
	}
	covered, err := a.WithEditedDescriptor(func(d map[string]any) error {
		return addMissingImageDigests(ctx, d,
			resolve)
	})
	if err != nil {
		return nil, err
	}
	text, err := covered.ComponentDescriptor()
	if err != nil {
		return nil, err
	}
	d, err := ocm.ParseDescriptor(text, a.Repository+":"+a.Tag)
	if err != nil {
		return nil, err
	}
	form, err := ocm.Normalise(d, ocm.Normalisation4alpha1)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(form)
	value, err := rsa.SignPSS(rand.Reader, k, crypto.SHA256, digest[:], nil)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return covered.WithEditedDescriptor(func(d map[string]any) error {
		signatures := []any{}
		old, _ := d["signatures"].([]any)
		for _, s := range old {
			if m, ok := s.(map[string]any); !ok || m["name"] != name {
				signatures = append(signatures, s)
			}
		}
		d["signatures"] = append(signatures, map[string]any{
			"name": name,
			"digest": map[string]any{"hashAlgorithm": "SHA-256", "normalisationAlgorithm": ocm.Normalisation4alpha1,
				"value": hex.EncodeToString(digest[:])},
			"signature": map[string]any{"algorithm": "RSASSA-PSS", "mediaType": pssType,
				"value": hex.EncodeToString(value)},
		})
		return nil
	})
}

// addMissingImageDigests adds a digest to every image resource that has no digest.
func addMissingImageDigests(ctx context.Context, d map[string]any, resolve func(context.Context, string) (
	string, error)) error {
	return ocm.EachImage(d, func(resource, access map[string]any, image string) error {
		if resource["digest"] != nil {
			return nil
		}
		_, digest, pinned := strings.Cut(image, "@")
		if !pinned {
			var err error
			if digest, err = resolve(ctx, image); err != nil {
				return fmt.Errorf("resource %q: %w", resource["name"], err)
			}
		}
		_, value, _ := strings.Cut(digest, ":")
		resource["digest"] = map[string]any{"hashAlgorithm": "SHA-256",
			"normalisationAlgorithm": ocm.ImageArtifactDigest, "value": value}
		return nil
	})
}

// NewCosignSignature returns a cosign signature of an artifact. The signature is an artifact that contains a
// simple-signing payload. The caller writes the signature to the repository of the signed artifact, with the tag
// sha256-<digest>.sig. If the repository already has an artifact with this tag, the parameter existing is that
// artifact, and its signatures are kept. The parameter repository is the name of the repository, including the
// registry. The name becomes a part of the signed payload.
func NewCosignSignature(of, existing *ocm.Artifact, repository string, k crypto.Signer) (*ocm.Artifact, error) {
	p := payload.SimpleContainerImage{}
	p.Critical.Type = payload.CosignSignatureType
	p.Critical.Image.DockerManifestDigest = of.Digest()
	p.Critical.Identity.DockerReference = repository
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the payload: %w", err)
	}
	value, err := signBytes(k, text)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	made := &ocm.Artifact{Repository: of.Repository, Tag: strings.Replace(of.Digest(), ":", "-", 1) + ".sig",
		Blobs: map[string][]byte{}}
	layer := made.AddBlob(text, simpleSigningType)
	layer.Annotations = map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(value)}
	if err := setSignatureLayers(made, []v1.Descriptor{layer}); err != nil || existing == nil {
		return made, err
	}
	return MergeSignatures(existing, made)
}

// setSignatureLayers makes the manifest of a cosign signature, whose layers are the signed payloads.
func setSignatureLayers(a *ocm.Artifact, layers []v1.Descriptor) error {
	ids := []string{}
	for _, l := range layers {
		ids = append(ids, l.Digest.String())
	}
	config, err := json.Marshal(map[string]any{"architecture": "", "os": "", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids}})
	if err != nil {
		return fmt.Errorf("encoding the config: %w", err)
	}
	a.Manifest, err = json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: a.AddBlob(config, types.OCIConfigJSON), Layers: layers})
	return err
}

// MergeSignatures returns an artifact with the signatures of two artifacts. Cosign has written both artifacts with the
// same tag for the same manifest: the signatures with the tag sha256-<digest>.sig, or the list of referrers with the
// tag sha256-<digest>. If one of the two artifacts has all signatures, MergeSignatures returns it unchanged, byte for
// byte.
func MergeSignatures(existing, added *ocm.Artifact) (*ocm.Artifact, error) {
	if !strings.HasSuffix(added.Tag, ".sig") {
		return mergeReferrers(existing, added)
	}
	old, err := existing.ParseManifest()
	if err != nil {
		return nil, err
	}
	m, err := added.ParseManifest()
	if err != nil {
		return nil, err
	}
	missing := descriptorsNotIn(old.Layers, m.Layers)
	switch {
	case len(missing) == 0:
		return existing, nil
	case len(descriptorsNotIn(m.Layers, old.Layers)) == 0:
		return added, nil
	}
	out := &ocm.Artifact{Repository: added.Repository, Tag: added.Tag, Blobs: map[string][]byte{}}
	for _, l := range old.Layers {
		out.Blobs[l.Digest.String()] = existing.Blobs[l.Digest.String()]
	}
	for _, l := range missing {
		out.Blobs[l.Digest.String()] = added.Blobs[l.Digest.String()]
	}
	return out, setSignatureLayers(out, slices.Concat(old.Layers, missing))
}

// mergeReferrers is MergeSignatures for two lists of referrers.
func mergeReferrers(existing, added *ocm.Artifact) (*ocm.Artifact, error) {
	old, err := v1.ParseIndexManifest(bytes.NewReader(existing.Manifest))
	if err != nil {
		return nil, fmt.Errorf("reading the list of referrers %s: %w", existing.Tag, err)
	}
	m, err := v1.ParseIndexManifest(bytes.NewReader(added.Manifest))
	if err != nil {
		return nil, fmt.Errorf("reading the list of referrers %s: %w", added.Tag, err)
	}
	missing := descriptorsNotIn(old.Manifests, m.Manifests)
	switch {
	case len(missing) == 0:
		return existing, nil
	case len(descriptorsNotIn(m.Manifests, old.Manifests)) == 0:
		return added, nil
	}
	m.Manifests = slices.Concat(old.Manifests, missing)
	out := &ocm.Artifact{Repository: added.Repository, Tag: added.Tag, MediaType: added.MediaType}
	if out.Manifest, err = json.Marshal(m); err != nil {
		return nil, fmt.Errorf("encoding the list of referrers: %w", err)
	}
	return out, nil
}

// descriptorsNotIn returns those of the given descriptors that a list does not have. Two signatures may have the same
// digest, because several keys can sign the same payload, and cosign stores the signature in an annotation.
func descriptorsNotIn(list, given []v1.Descriptor) (missing []v1.Descriptor) {
	for _, d := range given {
		if !slices.ContainsFunc(list, func(l v1.Descriptor) bool {
			return l.Digest == d.Digest && l.Annotations[signatureAnnotation] == d.Annotations[signatureAnnotation]
		}) {
			missing = append(missing, d)
		}
	}
	return missing
}

// signBytes signs a text. The signature scheme is the one that cosign uses for this type of key.
func signBytes(k crypto.Signer, text []byte) ([]byte, error) {
	switch k.Public().(type) {
	case ed25519.PublicKey:
		return k.Sign(rand.Reader, text, crypto.Hash(0))
	case *rsa.PublicKey, *ecdsa.PublicKey:
		digest := sha256.Sum256(text)
		return k.Sign(rand.Reader, digest[:], crypto.SHA256)
	}
	return nil, fmt.Errorf("keys of type %T are not supported: use RSA, ECDSA or Ed25519", k.Public())
}
