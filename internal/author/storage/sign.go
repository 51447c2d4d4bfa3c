package storage

import (
	"context"
	"crypto"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// SignOptions are the options of Sign.
type SignOptions struct {
	// Kind is the kind of the signature. trust.KindOCM means a signature in the descriptor, with an RSA key.
	// trust.KindCosign means a signature next to the manifest. If Kind is empty, the type of the private key decides:
	// an RSA key makes a signature in the descriptor, and any other key makes a cosign signature.
	Kind string
	// Name is the name of an OCM signature. If Name is empty, the name is "default".
	Name string
	// Key is the private key.
	Key crypto.Signer
}

// Signed is the result of signing one component version.
type Signed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	// Digest is the digest of the manifest of the component version after the signature was added. A signature that is
	// stored in the descriptor changes the manifest, and with it the digest of the manifest.
	Digest string `json:"digest"`
}

// Sign signs the component versions that the reference selects, and stores the signatures in the same registry or
// archive. A signature in the descriptor changes the manifest, so Sign moves the tag to the new manifest. The signature
// covers the digests of the images of the component. If an image reference has a tag and no digest, Sign reads the
// digest from the archive or from the registry of the image.
func Sign(ctx context.Context, p *Place, s SignOptions) ([]Signed, error) {
	rsaKey, isRSA := s.Key.(*rsa.PrivateKey)
	switch {
	case s.Kind == "" && isRSA:
		s.Kind = trust.KindOCM
	case s.Kind == "":
		s.Kind = trust.KindCosign
	case s.Kind == trust.KindOCM && !isRSA:
		return nil, errors.New("signing: signatures in a descriptor need an RSA key: use one, or sign as cosign does")
	}
	all, err := p.Select(ctx)
	if err != nil {
		return nil, err
	}
	var done []Signed
	for _, a := range all {
		if s.Kind == trust.KindOCM {
			name := s.Name
			if name == "" {
				name = "default"
			}
			made, err := trust.Sign(ctx, a, name, rsaKey, p.imageDigest)
			if err != nil {
				return done, fmt.Errorf("signing %s:%s: %w", a.Name(), a.Version(), err)
			}
			if _, err := p.addArtifactsAndSave(ctx, true, []*ocm.Artifact{made}); err != nil {
				return done, err
			}
			done = append(done, Signed{a.Name(), a.Version(), s.Kind, made.Digest()})
			continue
		}
		if err := p.addCosignSignature(ctx, a, s.Key); err != nil {
			return done, fmt.Errorf("signing %s:%s: %w", a.Name(), a.Version(), err)
		}
		done = append(done, Signed{a.Name(), a.Version(), s.Kind, a.Digest()})
	}
	return done, nil
}

// addCosignSignature writes a cosign signature next to a component version.
func (p *Place) addCosignSignature(ctx context.Context, a *ocm.Artifact, k crypto.Signer) error {
	if has, err := a.HasRepositoryContext(); err != nil || !has {
		return errors.Join(err,
			errors.New("its descriptor has no repository context, and would get one with the first push, which makes "+
				"another digest: push it before, or build it with --registry"))
	}
	var old *ocm.Artifact
	signatures, err := p.registry.CosignArtifacts(ctx, a)
	if err != nil {
		return err
	}
	for _, s := range signatures {
		if strings.HasSuffix(s.Tag, ".sig") {
			old = s
		}
	}
	made, err := trust.NewCosignSignature(a, old, p.text+"/"+a.Repository, k)
	if err != nil {
		return err
	}
	_, err = p.addArtifactsAndSave(ctx, true, []*ocm.Artifact{made})
	return err
}

// imageDigest returns the digest of an image. For an image with several platforms, imageDigest returns the digest of
// the index.
func (p *Place) imageDigest(ctx context.Context, image string) (string, error) {
	l, err := p.parseImage(ocm.Image{Reference: image})
	if err == nil {
		var found *remote.Descriptor
		if found, err = p.fetchFromArchiveOrSource(ctx, l); err == nil {
			return found.Digest.String(), nil
		}
	}
	return "", fmt.Errorf("reading the digest of image %s, which the signature must cover: %w; push the image first, "+
		"use its digest in the manifest, or sign with --kind cosign", image, err)
}

// Verified is the result of verifying one component version against a trust policy.
type Verified struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	// Kind is the kind of the signature, and Key is the name or the fingerprint of its key. Kind and Key are empty if
	// no signature is required.
	Kind string `json:"kind,omitempty"`
	Key  string `json:"key,omitempty"`
	// Problem is the reason why no signature could be verified. Problem is set only if the trust policy has mode warn
	// for the artefact, which allows a missing or invalid signature.
	Problem string `json:"problem,omitempty"`
	// Images are the images that were checked, each with its digest.
	Images []string `json:"images,omitempty"`
}

// Verify applies the trust policy of p to the component versions that the reference selects, and to all their layers.
// If images is true, Verify also checks the images of each version: each image must exist, and its tag must point to
// the digest in the descriptor. Verify returns an error if content is missing or differs from the signed content, or if
// the tag of a version was moved after Select had read it, because the result would then describe another manifest than
// the verified one.
func Verify(ctx context.Context, p *Place, withImages bool) ([]Verified, error) {
	all, err := p.Select(ctx)
	if err != nil {
		return nil, err
	}
	var done []Verified
	for _, a := range all {
		c, err := p.registry.Component(ctx, a.Name(), a.Version())
		if err != nil {
			return done, err
		}
		if c.Digest != a.Digest() {
			return done, &ocm.Error{Ref: a.Repository + ":" + a.Tag, Doing: "verifying", Code: ocm.DigestMismatch,
				Problem: fmt.Sprintf("its tag had the digest %s first and then %s: it was moved at the same time, "+
					"so verify the version again", a.Digest(), c.Digest)}
		}
		for _, resource := range slices.Sorted(maps.Keys(c.Layers)) {
			if _, _, err := p.registry.Fetch(ctx, c.Layers[resource]); err != nil {
				return done, err
			}
		}
		v := Verified{Name: a.Name(), Version: a.Version(), Digest: a.Digest(), Kind: c.Signature.Kind,
			Key: c.Signature.Key, Problem: c.Signature.Problem}
		if withImages {
			if v.Images, err = p.verifyImages(ctx, a); err != nil {
				return done, err
			}
		}
		done = append(done, v)
	}
	return done, nil
}

// verifyImages checks that the images of a component version exist and have the digests in the descriptor.
func (p *Place) verifyImages(ctx context.Context, a *ocm.Artifact) (verified []string, _ error) {
	images, err := a.Images()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, i := range images {
		digest, err := p.verifyImage(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("verifying image %s, resource %s of %s:%s: %w", i.Reference, i.Resource,
				a.Name(), a.Version(), err)
		}
		name, _, _ := strings.Cut(i.Reference, "@")
		found = append(found, name+"@"+digest)
	}
	return found, nil
}

func (p *Place) verifyImage(ctx context.Context, i ocm.Image) (digest string, err error) {
	l, err := p.parseImage(i)
	if err != nil {
		return "", err
	}
	found, err := p.fetchFromArchiveOrSource(ctx, l)
	if err != nil {
		return "", err
	}
	if digest = found.Digest.String(); l.digest == "" || strings.Contains(i.Reference, "@") {
		return digest, nil
	}
	l.digest = ""
	if found, err = p.fetchFromArchiveOrSource(ctx, l); err == nil && found.Digest.String() != digest {
		err = fmt.Errorf("its tag has digest %s, but the signed digest is %s: the tag was moved; release a version "+
			"with the intended image", found.Digest, digest)
	}
	return digest, err
}
