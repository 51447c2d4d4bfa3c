package registry

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
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
// layers without a signed digest. If the module is installed from such a layer, the result is an error. The list below
// shows which changes of the access of a resource, which the signature does not cover either, are errors.
//
//  1. a layer or an image becomes a resource without content  -> error, because of its signed digest
//  2. a layer becomes an image                                -> error, because of its signed type
//  3. an image becomes a layer                                -> error, because of its signed type
//  4. the reference of an image gets another name or tag      -> the signed name and version of the resource are pinned,
//     too, see [signedNames]
func (r *Registry) pinSignedAndDropOthers(ctx context.Context, s *session, found *ocm.ImageManifest,
	d *ocm.Descriptor, c *Component) error {
	layers, images := map[string]Layer{}, []string(nil)
	for _, res := range d.Component.Resources {
		a, isRequired := res.Access, slices.Contains(installedResources, res.Name)
		switch {
		case a.IsLocal() && isImageType(res.Type) && !isRequired:
			return fmt.Errorf(
				"resource %q is an image by its signed type, but its content is a layer, so the image cannot be pinned: "+
					"refer to the image in a registry, or sign the component version with cosign",
				ocm.FirstLine(res.Name))
		case a.IsLocal():
			layer := c.Layers[res.Name]
			digest, err := r.layerDigestSignedInDescriptor(ctx, s, found, res, layer.Ref)
			if err != nil {
				return err
			}
			if digest == "" && isRequired {
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
		case a.IsImage():
			isBlob := res.Digest != nil && res.Digest.NormalisationAlgorithm == ocm.GenericBlobDigest
			if isBlob && (isRequired || !isImageType(res.Type)) {
				return fmt.Errorf(
					"resource %q has the signed digest of a layer, but refers to an image, so somebody may have changed the "+
						"descriptor: push the signed version again; if it is an image, sign it with type ociArtifact",
					ocm.FirstLine(res.Name))
			}
			image, ok := signedImage(a.ImageReference, res.Digest)
			if !ok || a.ImageReference == "" {
				return fmt.Errorf(
					"the signature does not cover the content of image %q, resource %q: add its digest before "+
						"signing, as ocm sign does", a.ImageReference, res.Name)
			}
			images = append(append(images, image), signedNames(image, res)...)
		case a.IsNone() && res.Digest != nil && a.Type != "none" && a.Type != "None":
			// With the types none and None, the normal form has no digest, so a resource with content cannot become one
			// of these types after signing.
			return fmt.Errorf("resource %q has a signed digest, but no content, so somebody has changed the descriptor: "+
				"push the signed version again", ocm.FirstLine(res.Name))
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

// isImageType reports whether a resource with this type is an image. The signature covers the type of a resource, but
// not the type of its access.
func isImageType(resource string) bool {
	return strings.EqualFold(resource, "ociArtifact") || strings.EqualFold(resource, "ociImage")
}

var (
	imageName = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$`)
	imageTag  = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
)

// signedNames returns further references of the image in a resource: they have the name and the tag that the resource
// had when it was signed. Package render pins an image of a workload if its name and tag are those of a reference. The
// signature does not cover the reference in the resource. Without signedNames, an attacker could change the name or the
// tag in the reference, and the image of the workload would not be pinned.
//
// modulectl and klm take the name and the version of a resource from its image; for a tag that is not a version, they
// write the version 0.0.0-<tag>. If a resource has another name or version than its image, the result matches no
// workload.
func signedNames(pinned string, res ocm.Element) (more []string) {
	location, digest, _ := strings.Cut(pinned, "@")
	folder, _ := path.Split(location)
	for _, tag := range slices.Compact([]string{res.Version, strings.TrimPrefix(res.Version, "0.0.0-")}) {
		named := folder + res.Name + ":" + tag
		if named != location && imageName.MatchString(res.Name) && imageTag.MatchString(tag) {
			more = append(more, named+"@"+digest)
		}
	}
	return more
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
