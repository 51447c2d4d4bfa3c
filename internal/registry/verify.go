package registry

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// verifyComponent does with c what the policy says. A verified component names all layers by digest, and images, too: what else the
// descriptor says about where they lie is not signed.
func (r *Registry) verifyComponent(ctx context.Context, s *session, found *ocm.ImageManifest, d *ocm.Descriptor, c *Component, p *trust.Rules) error {
	subject := trust.SubjectOf(s.Name())
	rule := p.RuleFor(subject)
	if rule.Mode == trust.Off {
		return nil
	}
	f := trust.NewVerification(s, rule)
	if k := f.VerifyDescriptor(d); k != nil {
		if err := r.pinBySignedDigests(ctx, s, found, d, c); err == nil {
			c.Signature = trust.Signature{Verified: true, Key: k.String(), Kind: trust.KindOCM}
		} else {
			f.Note("%s", err)
		}
	}
	if !c.Signature.Verified {
		k, err := f.VerifyImage(ctx, found)
		if err == nil && k == nil {
			err = f.Fail(found.Ref)
		}
		if err == nil {
			err = pinByManifest(found, c)
		}
		if err != nil && rule.Mode == trust.Enforce {
			return err
		}
		if err != nil {
			c.Signature = trust.Signature{Problem: err.Error()}
			return nil
		}
		c.Signature = trust.Signature{Verified: true, Key: k.String(), Kind: trust.KindCosign}
	}
	for _, layer := range c.Layers {
		r.remember(proofKey(p, subject, layer.Ref), c.Signature)
	}
	return nil
}

// pinByManifest names every layer by its digest, if the manifest is signed: a tag might lead elsewhere tomorrow.
func pinByManifest(found *ocm.ImageManifest, c *Component) error {
	for name, layer := range c.Layers {
		if strings.Contains(layer.Ref, ":") {
			continue
		}
		digest, err := ocm.LayerOf(found.Manifest, name, found.Ref)
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
func (r *Registry) pinBySignedDigests(ctx context.Context, s *session, found *ocm.ImageManifest, d *ocm.Descriptor, c *Component) error {
	layers, images := map[string]Layer{}, []string(nil)
	for _, res := range d.Component.Resources {
		switch a := res.Access; {
		case a.IsLocal():
			layer := c.Layers[res.Name]
			digest, err := r.signedLayer(ctx, s, found, res, layer.Ref)
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
func (r *Registry) signedLayer(ctx context.Context, s *session, found *ocm.ImageManifest, res ocm.Element, ref string) (string, error) {
	if res.Digest == nil || res.Digest.NormalisationAlgorithm != ocm.GenericBlobDigest {
		return "", nil
	}
	if !strings.Contains(ref, ":") {
		digest, err := ocm.LayerOf(found.Manifest, res.Name, found.Ref)
		if err != nil {
			return "", err
		}
		ref = digest
	}
	value := strings.ToLower(res.Digest.Value)
	switch ocm.HashOf(res.Digest.HashAlgorithm) {
	case crypto.SHA256:
		if ref != "sha256:"+value {
			return "", fmt.Errorf("resource %q lies at a digest that is not the signed one: the descriptor was changed after signing", ocm.FirstLine(res.Name))
		}
		return ref, nil
	case crypto.SHA512:
		data, err := s.Blob(ctx, ref, r.opts.MaxLayerBytes)
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
func signedImage(reference string, d *ocm.ElementDigest) (string, bool) {
	if d == nil || ocm.HashOf(d.HashAlgorithm) != crypto.SHA256 || len(d.Value) != 2*sha256.Size {
		return "", false
	}
	signed := "sha256:" + strings.ToLower(d.Value)
	name, digest, _ := strings.Cut(reference, "@")
	switch d.NormalisationAlgorithm {
	case "ociArtifactDigest/v1":
		return name + "@" + signed, digest == "" || digest == signed
	case ocm.GenericBlobDigest:
		return reference, digest == signed
	}
	return "", false
}
