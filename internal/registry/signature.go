package registry

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
)

// Kinds of signature.
const (
	// KindOCM is a signature in the component descriptor.
	KindOCM = "ocm"
	// KindCosign is a cosign signature of the OCI manifest.
	KindCosign = "cosign"
)

// Signature is what the trust policy found about an artefact. The zero value says that the policy asks for nothing.
type Signature struct {
	// Verified says that there is a valid signature by a key of the policy.
	Verified bool
	// Key is the name of that key in the policy, or its fingerprint if it has none there.
	Key string
	// Kind is KindOCM or KindCosign.
	Kind string
	// Problem says in one sentence why nothing could be verified, where the policy only warns.
	Problem string
}

// maxSignatures bounds how many signatures of one artefact are looked at.
const maxSignatures = 20

// blobDigest is the algorithm of a digest that is that of a blob as it is.
const blobDigest = "genericBlobDigest/v1"

// media types of OCM signatures.
const (
	rsaType = "application/vnd.ocm.signature.rsa"
	pssType = "application/vnd.ocm.signature.rsa.pss"
	pemType = "application/x-pem-file"
)

// descriptorSignature is one signature in a component descriptor.
type descriptorSignature struct {
	Name      string         `json:"name"`
	Digest    artefactDigest `json:"digest"`
	Signature struct {
		Algorithm string `json:"algorithm"`
		MediaType string `json:"mediaType"`
		Value     string `json:"value"`
	} `json:"signature"`
}

// search is one attempt to find a signature by a key of a rule.
type search struct {
	*session
	rule    rule
	seen    int      // signatures that were looked at
	reasons []string // why each of them does not count
}

func (f *search) note(format string, args ...any) {
	f.reasons = append(f.reasons, firstLine(fmt.Sprintf(format, args...)))
}

// fail is the error of a search that has found nothing.
func (f *search) fail(ref string) *Error {
	const most = 5 // a message is read by people
	var keys []string
	for _, k := range f.rule.keys[:min(most, len(f.rule.keys))] {
		keys = append(keys, strings.TrimSpace(k.name+" "+k.fingerprint))
	}
	if more := len(f.rule.keys) - most; more > 0 {
		keys = append(keys, fmt.Sprintf("%d more", more))
	}
	e := &Error{Ref: ref, doing: "verifying", reason: SignatureMissing}
	what := "it has no signature, neither in a component descriptor nor by cosign"
	if f.seen > 0 || len(f.reasons) > 0 {
		what = "no valid signature"
	}
	if f.seen > 0 {
		e.reason = SignatureInvalid
	}
	shown := f.reasons[:min(most, len(f.reasons))]
	if len(shown) > 0 {
		what += " (" + strings.Join(shown, "; ") + ")"
	}
	e.problem = fmt.Sprintf("%s; keys tried: %s: sign it with one of them, or change rule %q of the trust policy", what, strings.Join(keys, ", "), f.rule.prefix)
	return e
}

// verifyComponent does with c what the policy says. A verified component names all layers by digest, and images, too: what else the
// descriptor says about where they lie is not signed.
func (r *Registry) verifyComponent(ctx context.Context, s *session, found *imageManifest, d *descriptor, c *Component, p *policy) error {
	subject := subjectOf(s.Name())
	rule := p.ruleFor(subject)
	if rule.mode == Off {
		return nil
	}
	f := &search{session: s, rule: rule}
	if k := f.verifyDescriptor(d); k != nil {
		if err := r.pinBySignedDigests(ctx, f, found, d, c); err == nil {
			c.Signature = Signature{Verified: true, Key: k.String(), Kind: KindOCM}
		} else {
			f.note("%s", err)
		}
	}
	if !c.Signature.Verified {
		k, err := f.verifyImage(ctx, found)
		if err == nil && k == nil {
			err = f.fail(found.ref)
		}
		if err == nil {
			err = pinByManifest(found, c)
		}
		if err != nil && rule.mode == Enforce {
			return err
		}
		if err != nil {
			c.Signature = Signature{Problem: err.Error()}
			return nil
		}
		c.Signature = Signature{Verified: true, Key: k.String(), Kind: KindCosign}
	}
	for _, layer := range c.Layers {
		r.remember(proofKey(p, subject, layer.Ref), c.Signature)
	}
	return nil
}

// pinByManifest names every layer by its digest, if the manifest is signed: a tag might lead elsewhere tomorrow.
func pinByManifest(found *imageManifest, c *Component) error {
	for name, layer := range c.Layers {
		if strings.Contains(layer.Ref, ":") {
			continue
		}
		digest, err := layerOf(found.Manifest, name, found.ref)
		if err != nil {
			return err
		}
		layer.Ref = digest
		c.Layers[name] = layer
	}
	return nil
}

// pinBySignedDigests makes what is used of a descriptor depend on nothing but what its signature covers: that is the digest of each
// resource, and not where it lies.
func (r *Registry) pinBySignedDigests(ctx context.Context, f *search, found *imageManifest, d *descriptor, c *Component) error {
	layers, images := map[string]Layer{}, []string(nil)
	for _, res := range d.Component.Resources {
		switch a := res.Access; {
		case a.isLocal():
			layer := c.Layers[res.Name]
			digest, err := r.signedLayer(ctx, f.session, found, res, layer.Ref)
			if err != nil {
				return err
			}
			if digest == "" && slices.Contains(needed, res.Name) {
				return fmt.Errorf("the signature does not cover the content of resource %q: add its digest before signing, as ocm sign does", res.Name)
			}
			if digest != "" {
				layer.Ref = digest
				layers[res.Name] = layer
			}
		case a.Type == "ociArtifact" && a.ImageReference != "":
			image, ok := signedImage(a.ImageReference, res.Digest)
			if !ok {
				return fmt.Errorf("the signature does not cover the content of image %q, resource %q: add its digest before signing, as ocm sign does", a.ImageReference, res.Name)
			}
			images = append(images, image)
		}
	}
	c.Layers, c.Images = layers, images
	return nil
}

// signedLayer returns the digest by which a local resource may be fetched: the signed one. It is empty if there is none that says
// something about a blob.
func (r *Registry) signedLayer(ctx context.Context, s *session, found *imageManifest, res element, ref string) (string, error) {
	if res.Digest == nil || res.Digest.NormalisationAlgorithm != blobDigest {
		return "", nil
	}
	if !strings.Contains(ref, ":") {
		digest, err := layerOf(found.Manifest, res.Name, found.ref)
		if err != nil {
			return "", err
		}
		ref = digest
	}
	value := strings.ToLower(res.Digest.Value)
	switch hashOf(res.Digest.HashAlgorithm) {
	case crypto.SHA256:
		if ref != "sha256:"+value {
			return "", fmt.Errorf("resource %q lies at a digest that is not the signed one: the descriptor was changed after signing", firstLine(res.Name))
		}
		return ref, nil
	case crypto.SHA512:
		data, err := s.blob(ctx, ref, r.opts.MaxLayerBytes)
		if err != nil {
			return "", err
		}
		if sum := sha512.Sum512(data); hex.EncodeToString(sum[:]) != value {
			return "", fmt.Errorf("resource %q is not what is signed: the registry holds other content", res.Name)
		}
		return ref, nil
	}
	return "", nil
}

// signedImage adds the signed digest to a reference, so that only what was signed can be run.
//
//  1. ociArtifactDigest/v1 -> digest of the image manifest
//  2. genericBlobDigest/v1 -> the same with some tools, and of a blob with others: counts only if the reference has it already
//  3. another, or none     -> nothing is signed
func signedImage(reference string, d *artefactDigest) (string, bool) {
	if d == nil || hashOf(d.HashAlgorithm) != crypto.SHA256 || len(d.Value) != 2*sha256.Size {
		return "", false
	}
	signed := "sha256:" + strings.ToLower(d.Value)
	name, digest, _ := strings.Cut(reference, "@")
	switch d.NormalisationAlgorithm {
	case "ociArtifactDigest/v1":
		return name + "@" + signed, digest == "" || digest == signed
	case blobDigest:
		return reference, digest == signed
	}
	return "", false
}

func hashOf(name string) crypto.Hash {
	switch strings.ToLower(name) {
	case "sha-256", "sha256":
		return crypto.SHA256
	case "sha-512", "sha512":
		return crypto.SHA512
	}
	return 0
}

// verifyDescriptor looks for a signature in the descriptor and returns the key that made it, or nil.
func (f *search) verifyDescriptor(d *descriptor) *key {
	for i, s := range d.Signatures {
		if i == maxSignatures {
			f.note("there are more than %d signatures in the descriptor", maxSignatures)
			return nil
		}
		f.seen++
		k, err := verifyDescriptorBy(d, s, f.rule.keys)
		if err == nil {
			return k
		}
		f.note("OCM signature %q: %s", firstLine(s.Name), err)
	}
	return nil
}

// verifyDescriptorBy verifies one signature with whichever of the keys made it.
func verifyDescriptorBy(d *descriptor, s descriptorSignature, keys []key) (*key, error) {
	hash := hashOf(s.Digest.HashAlgorithm)
	if hash == 0 {
		return nil, fmt.Errorf("hash %q is not supported: sign with SHA-256 or SHA-512", firstLine(s.Digest.HashAlgorithm))
	}
	text, err := normalise(d, s.Digest.NormalisationAlgorithm)
	if err != nil {
		return nil, err
	}
	h := hash.New()
	_, _ = h.Write(text) // never fails
	digest := h.Sum(nil)
	if !strings.EqualFold(hex.EncodeToString(digest), s.Digest.Value) {
		return nil, fmt.Errorf("the descriptor is not the one that was signed")
	}
	algorithm, value, err := s.decode()
	if err != nil {
		return nil, err
	}
	var rsaKeys int
	for i := range keys {
		public, ok := keys[i].public.(*rsa.PublicKey)
		if !ok {
			continue
		}
		rsaKeys++
		switch algorithm {
		case "RSASSA-PKCS1-V1_5":
			err = rsa.VerifyPKCS1v15(public, hash, digest, value)
		case "RSASSA-PSS":
			err = rsa.VerifyPSS(public, hash, digest, value, nil)
		default:
			return nil, fmt.Errorf("algorithm %q is not supported: sign with RSASSA-PKCS1-V1_5 or RSASSA-PSS", firstLine(algorithm))
		}
		if err == nil {
			return &keys[i], nil
		}
	}
	if rsaKeys == 0 {
		return nil, fmt.Errorf("it is by an RSA key, and the rule has none")
	}
	return nil, fmt.Errorf("it is by another key")
}

// decode returns algorithm and bytes of a signature. Certificates that come along are not looked at: the policy has the keys.
func (s descriptorSignature) decode() (algorithm string, value []byte, err error) {
	switch s.Signature.MediaType {
	case rsaType, pssType:
		if value, err = hex.DecodeString(s.Signature.Value); err != nil {
			return "", nil, fmt.Errorf("its value is not hexadecimal")
		}
		algorithm = s.Signature.Algorithm
		if algorithm == "" && s.Signature.MediaType == pssType {
			algorithm = "RSASSA-PSS"
		}
		return cmp.Or(algorithm, "RSASSA-PKCS1-V1_5"), value, nil
	case pemType:
		block, _ := pem.Decode([]byte(s.Signature.Value))
		if block == nil || block.Type != "SIGNATURE" {
			return "", nil, fmt.Errorf("its value is not a PEM block SIGNATURE")
		}
		return cmp.Or(s.Signature.Algorithm, block.Headers["Signature Algorithm"]), block.Bytes, nil
	}
	return "", nil, fmt.Errorf("media type %q is not supported: sign with an RSA key", firstLine(s.Signature.MediaType))
}
