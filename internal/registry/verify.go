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

// applyTrustPolicyAndPin applies the trust policy to the component c. In a verified component, all layers and images
// are referenced by digest, because the signature does not cover the other fields that say where the content is.
func (r *Registry) applyTrustPolicyAndPin(ctx context.Context, s *session, found *ocm.ImageManifest, d *ocm.Descriptor,
	c *Component, p *trust.Rules) error {
	subject := trust.SubjectOf(s.Name())
	rule := p.RuleForRepository(subject)
	if rule.Mode == trust.Off {
		return nil
	}
	f := trust.NewVerification(s, rule)
	if k := f.FindDescriptorSigner(d); k != nil {
		if err := r.pinSignedAndDropOthers(ctx, s, found, d, c); err == nil {
			c.Signature = trust.Signature{Verified: true, Key: k.String(), Kind: trust.KindOCM}
		} else {
			f.Note("%s", err)
		}
	}
	if !c.Signature.Verified {
		k, err := f.FindCosignImageSigner(ctx, found)
		if err == nil && k == nil {
			err = f.SignatureError(found.Ref)
		}
		if err == nil {
			err = pinTaggedLayers(found, c)
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

// pinTaggedLayers replaces the tags of layers by the digests in the signed manifest, because a tag can be moved to
// other content.
func pinTaggedLayers(signed *ocm.ImageManifest, c *Component) error {
	for name, layer := range c.Layers {
		if strings.Contains(layer.Ref, ":") {
			continue
		}
		digest, err := ocm.LayerDigestOf(signed.Manifest, name, signed.Ref)
		if err != nil {
			return err
		}
		layer.Ref = digest
		c.Layers[name] = layer
	}
	return nil
}

// pinSignedAndDropOthers replaces the references of layers and images by references with the signed digests. The
// signature of a descriptor covers the digest of each resource, but not its location. pinSignedAndDropOthers drops
// layers without a signed digest. If the module is installed from such a layer, the result is an error.
func (r *Registry) pinSignedAndDropOthers(ctx context.Context, s *session, found *ocm.ImageManifest,
	d *ocm.Descriptor, c *Component) error {
	layers, images := map[string]Layer{}, []string(nil)
	for _, res := range d.Component.Resources {
		switch a := res.Access; {
		case a.IsLocal():
			layer := c.Layers[res.Name]
			digest, err := r.layerDigestSignedInDescriptor(ctx, s, found, res, layer.Ref)
			if err != nil {
				return err
			}
			if digest == "" && slices.Contains(installedResources, res.Name) {
				return fmt.Errorf(
					"the signature does not cover the content of resource %q: add its digest before signing, as ocm "+
						"sign does", res.Name)
			}
			if digest != "" {
				layer.Ref = digest
				layers[res.Name] = layer
			}
		case a.IsChart():
			return fmt.Errorf(
				"the signature does not cover the location of the chart, resource %q: sign the component version "+
					"with cosign, which covers the whole descriptor", res.Name)
		case a.Type == "ociArtifact" && a.ImageReference != "":
			image, ok := signedImage(a.ImageReference, res.Digest)
			if !ok {
				return fmt.Errorf(
					"the signature does not cover the content of image %q, resource %q: add its digest before "+
						"signing, as ocm sign does", a.ImageReference, res.Name)
			}
			images = append(images, image)
		}
	}
	c.Layers, c.Images = layers, images
	return nil
}

// layerDigestSignedInDescriptor returns the signed digest of a local resource. The resource is then fetched by this
// digest. If the descriptor contains no digest of the resource's blob, layerDigestSignedInDescriptor returns "".
func (r *Registry) layerDigestSignedInDescriptor(ctx context.Context, s *session, found *ocm.ImageManifest,
	res ocm.Element,
	ref string) (string, error) {
	if res.Digest == nil || res.Digest.NormalisationAlgorithm != ocm.GenericBlobDigest {
		return "", nil
	}
	if !strings.Contains(ref, ":") {
		digest, err := ocm.LayerDigestOf(found.Manifest, res.Name, found.Ref)
		if err != nil {
			return "", err
		}
		ref = digest
	}
	value := strings.ToLower(res.Digest.Value)
	switch ocm.HashOf(res.Digest.HashAlgorithm) {
	case crypto.SHA256:
		if ref != "sha256:"+value {
			return "", fmt.Errorf(
				"resource %q refers to a digest other than the signed one: the descriptor was changed after signing",
				ocm.FirstLine(res.Name))
		}
		return ref, nil
	case crypto.SHA512:
		data, err := s.Blob(ctx, ref, r.opts.MaxLayerBytes)
		if err != nil {
			return "", err
		}
		if sum := sha512.Sum512(data); hex.EncodeToString(sum[:]) != value {
			return "", fmt.Errorf("resource %q differs from the signed content: the registry has other content",
				res.Name)
		}
		return ref, nil
	}
	return "", nil
}

// signedImage adds the signed digest to an image reference, so that only the signed image can run. The list below shows
// how the normalisation algorithm in the signed digest of the image decides which digest is added. The second result is
// false if the signature of the component version does not cover the image.
//
//  1. ociArtifactDigest/v1        -> the digest is the digest of the image manifest
//  2. genericBlobDigest/v1        -> the digest of an image manifest or of a blob, depending on the OCM tool;
//     accepted only if the reference already has this digest
//  3. another algorithm, or none  -> the signature does not cover the image
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
