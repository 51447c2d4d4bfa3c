package trust

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	bundlev1 "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// Media types and annotations that cosign uses.
const (
	simpleSigningType   = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	artefactType        = "application/vnd.dev.cosign.artifact.sig.v1+json"
	bundleType          = "application/vnd.dev.sigstore.bundle"
	predicateAnnotation = "dev.sigstore.bundle.predicateType"
	signPredicate       = "https://sigstore.dev/cosign/sign/v1"
	statementType       = "application/vnd.in-toto+json"
	maxSignatureBytes   = 256 << 10 // maximum bytes of one payload or bundle
)

// FindCosignImageSigner returns the key that has made a valid cosign signature of an image manifest. If there is no
// valid signature, the key is nil and the error is nil. FindCosignImageSigner returns an error only if the registry did
// not respond.
//
// FindCosignImageSigner first checks the tag sha256-<digest>.sig, which cosign used until version 2. If the tag has no
// valid signature, FindCosignImageSigner checks the referrers of the manifest, which newer versions of cosign use. The
// referrers are read from the referrers API. If the registry does not support the referrers API, the referrers are read
// from the tag sha256-<digest>.
func (f *Verification) FindCosignImageSigner(ctx context.Context, of *ocm.ImageManifest) (*key, error) {
	tag := strings.Replace(of.Digest, ":", "-", 1)
	found, err := f.reader.Manifest(ctx, tag+".sig")
	if err == nil {
		k, err := f.findSimpleSigner(ctx, found, of)
		if k != nil || err != nil {
			return k, err
		}
	} else if !ocm.IsAbsentOrUnusable(err) {
		return nil, err
	}
	list, err := f.SignatureReferrers(ctx, of.Digest, tag)
	if err != nil {
		return nil, err
	}
	for i, d := range list {
		if i >= MaxSignatures || f.seen >= MaxSignatures {
			f.Note("there are more than %d signatures", MaxSignatures)
			return nil, nil
		}
		k, err := f.findReferrerSigner(ctx, d, of)
		if k != nil || err != nil && !ocm.IsAbsentOrUnusable(err) {
			return k, err
		}
	}
	return nil, nil
}

// SignatureReferrers returns those referrers of a manifest that may be signatures.
func (f *Verification) SignatureReferrers(ctx context.Context, digest, fallbackTag string) ([]v1.Descriptor, error) {
	data, err := f.reader.ManifestBytes(ctx, f.reader.Name()+" referrers of "+digest, "referrers/"+digest)
	if ocm.IsAbsentOrUnusable(err) {
		data, err = f.reader.ManifestBytes(ctx, f.reader.Name()+":"+fallbackTag, "manifests/"+fallbackTag)
	}
	if ocm.IsAbsentOrUnusable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil {
		f.Note("the list of referrers is not JSON")
		return nil, nil
	}
	return slices.DeleteFunc(index.Manifests, func(d v1.Descriptor) bool {
		predicate, ok := d.Annotations[predicateAnnotation]
		return ok && predicate != signPredicate || !strings.HasPrefix(d.ArtifactType, bundleType) &&
			!slices.Contains(maybeSignature, d.ArtifactType)
	}), nil
}

// maybeSignature lists the artefact types of referrers that may be signatures. Some registries report the type of the
// config, or no type, instead of the artefact type. Therefore the list also contains the empty type and the type of an
// empty config.
var maybeSignature = []string{artefactType, "", "application/vnd.oci.empty.v1+json"}

// findReferrerSigner checks whether one referrer is a valid signature of the manifest, and returns the key that has
// made the signature. If the referrer is no valid signature, the key is nil.
func (f *Verification) findReferrerSigner(ctx context.Context, referrer v1.Descriptor, signed *ocm.ImageManifest) (
	*key, error) {
	found, err := f.reader.Manifest(ctx, referrer.Digest.String())
	if err != nil {
		return nil, err
	}
	if k, err := f.findSimpleSigner(ctx, found, signed); k != nil || err != nil {
		return k, err
	}
	for _, layer := range found.Layers {
		if !strings.HasPrefix(string(layer.MediaType), bundleType) {
			continue
		}
		data, err := f.reader.Blob(ctx, layer.Digest.String(), maxSignatureBytes)
		if err != nil {
			return nil, err
		}
		f.seen++
		k, err := verifyBundle(data, signed, f.rule.keys)
		if err == nil {
			return k, nil
		}
		f.Note("cosign bundle: %s", err)
		return nil, nil
	}
	return nil, nil
}

// findSimpleSigner checks the simple-signing signatures that are in the layers of a manifest, and returns the key that
// has made the first valid one. If there is no valid signature, the key is nil.
func (f *Verification) findSimpleSigner(ctx context.Context, signatures, of *ocm.ImageManifest) (*key, error) {
	for _, layer := range signatures.Layers {
		if layer.MediaType != simpleSigningType {
			continue
		}
		if f.seen >= MaxSignatures {
			f.Note("there are more than %d signatures", MaxSignatures)
			return nil, nil
		}
		f.seen++
		value, err := base64.StdEncoding.DecodeString(layer.Annotations[signatureAnnotation])
		if err != nil || len(value) == 0 {
			f.Note("cosign signature: annotation %s is missing or not base64", signatureAnnotation)
			continue
		}
		text, err := f.reader.Blob(ctx, layer.Digest.String(), maxSignatureBytes)
		if err != nil && !ocm.IsAbsentOrUnusable(err) {
			return nil, err
		}
		if err != nil {
			f.Note("cosign signature: %s", err)
			continue
		}
		k := signerOf(f.rule.keys, value, text)
		if k == nil {
			f.Note("cosign signature: it is by another key, or its payload was changed")
			continue
		}
		if err := checkPayload(text, of.Digest); err != nil {
			f.Note("cosign signature by %s: %s", k, err)
			continue
		}
		return k, nil
	}
	return nil, nil
}

// signerOf returns the key that has signed a text. If none of the keys has signed the text, the result is nil.
func signerOf(keys []key, signature, text []byte) *key {
	for i, k := range keys {
		for _, v := range k.verifiers {
			if v.VerifySignature(bytes.NewReader(signature), bytes.NewReader(text)) == nil {
				return &keys[i]
			}
		}
	}
	return nil
}

// checkPayload returns an error if a simple-signing payload is not about the manifest with this digest.
func checkPayload(text []byte, digest string) error {
	var p payload.SimpleContainerImage
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("its payload is not JSON")
	}
	if p.Critical.Type != payload.CosignSignatureType {
		return fmt.Errorf("its payload is of type %q, not a signature of an image", ocm.FirstLine(p.Critical.Type))
	}
	if p.Critical.Image.DockerManifestDigest != digest {
		return fmt.Errorf("it signs %s, not this artefact", ocm.FirstLine(p.Critical.Image.DockerManifestDigest))
	}
	return nil
}

// verifyBundle returns the key that has made the signature in a Sigstore bundle. The bundle must sign either the
// manifest itself or a statement about the manifest.
func verifyBundle(data []byte, of *ocm.ImageManifest, keys []key) (*key, error) {
	var b bundlev1.Bundle
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("it is not a Sigstore bundle")
	}
	if !strings.HasPrefix(b.GetMediaType(), bundleType) {
		return nil, fmt.Errorf("it has media type %q, not that of a Sigstore bundle", ocm.FirstLine(b.GetMediaType()))
	}
	if m := b.GetMessageSignature(); m != nil {
		if k := signerOf(keys, m.GetSignature(), of.Raw); k != nil {
			return k, nil
		}
		return nil, bundleVerificationError(&b)
	}
	envelope := b.GetDsseEnvelope()
	if envelope == nil || len(envelope.GetSignatures()) == 0 {
		return nil, fmt.Errorf("it holds no signature")
	}
	signed := dsse.PAE(envelope.GetPayloadType(), envelope.GetPayload())
	for i, s := range envelope.GetSignatures() {
		if i == MaxSignatures {
			break
		}
		if k := signerOf(keys, s.GetSig(), signed); k != nil {
			return k, checkSignatureStatement(envelope.GetPayloadType(), envelope.GetPayload(), of.Digest)
		}
	}
	return nil, bundleVerificationError(&b)
}

// bundleVerificationError returns the reason why the signature of a bundle cannot be verified.
func bundleVerificationError(b *bundlev1.Bundle) error {
	if m := b.GetVerificationMaterial(); m.GetCertificate() != nil || m.GetX509CertificateChain() != nil {
		return fmt.Errorf("it is by a certificate (keyless signing), which is not supported: sign with a key")
	}
	return fmt.Errorf("it is by another key, or its content was changed")
}

// checkSignatureStatement returns an error unless an in-toto statement is about the manifest with this digest. For
// example, a statement about a bill of materials is no signature of the manifest.
func checkSignatureStatement(payloadType string, text []byte, digest string) error {
	var s struct {
		Type      string `json:"_type"`
		Predicate string `json:"predicateType"`
		Subject   []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if payloadType != statementType || json.Unmarshal(text, &s) != nil ||
		!strings.HasPrefix(s.Type, "https://in-toto.io/Statement/") {
		return fmt.Errorf("it signs %q, not an in-toto statement", ocm.FirstLine(payloadType))
	}
	if s.Predicate != signPredicate {
		return fmt.Errorf("it is a statement of type %q, not a signature", ocm.FirstLine(s.Predicate))
	}
	for _, subject := range s.Subject {
		if value, err := hex.DecodeString(subject.Digest["sha256"]); err == nil && len(value) == sha256.Size &&
			"sha256:"+hex.EncodeToString(value) == digest {
			return nil
		}
	}
	return fmt.Errorf("it signs another artefact")
}
