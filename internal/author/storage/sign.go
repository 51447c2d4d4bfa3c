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

// SignOptions is how component versions are signed.
type SignOptions struct {
	// Kind is trust.KindOCM, in the descriptor with an RSA key, or trust.KindCosign, beside the manifest; empty means what suits the key.
	Kind string
	// Name of an OCM signature; empty means default.
	Name string
	// Key is the private key.
	Key crypto.Signer
}

// Signed is a component version that was signed.
type Signed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	// Digest of the manifest; an OCM signature changes it.
	Digest string `json:"digest"`
}

// Sign signs what the reference of a place names, where it lies. A signature in the descriptor makes another manifest; the tag follows. It covers the
// digests of images; of those that are named by a tag the archive is asked, if the place is one that has them, or the registry that they name.
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
			if _, err := p.write(ctx, true, []*ocm.Artifact{made}); err != nil {
				return done, err
			}
			done = append(done, Signed{a.Name(), a.Version(), s.Kind, made.Digest()})
			continue
		}
		if err := p.cosign(ctx, a, s.Key); err != nil {
			return done, fmt.Errorf("signing %s:%s: %w", a.Name(), a.Version(), err)
		}
		done = append(done, Signed{a.Name(), a.Version(), s.Kind, a.Digest()})
	}
	return done, nil
}

// cosign writes a cosign signature beside a component version.
func (p *Place) cosign(ctx context.Context, a *ocm.Artifact, k crypto.Signer) error {
	if has, err := a.HasRepositoryContext(); err != nil || !has {
		return errors.Join(err, errors.New("its descriptor has no repository context, and would get one with the first push, which makes another digest: push it before, or build it with --registry"))
	}
	var old *ocm.Artifact
	signatures, err := p.registry.Signatures(ctx, a)
	if err != nil {
		return err
	}
	for _, s := range signatures {
		if strings.HasSuffix(s.Tag, ".sig") {
			old = s
		}
	}
	made, err := trust.Cosign(a, old, p.text+"/"+a.Repository, k)
	if err != nil {
		return err
	}
	_, err = p.write(ctx, true, []*ocm.Artifact{made})
	return err
}

// imageDigest asks for the digest of an image: that of its index, if it is for several platforms.
func (p *Place) imageDigest(ctx context.Context, image string) (string, error) {
	l, err := p.locate(ocm.Image{Reference: image})
	if err == nil {
		var found *remote.Descriptor
		if found, err = p.findImage(ctx, l); err == nil {
			return found.Digest.String(), nil
		}
	}
	return "", fmt.Errorf("asking for the digest of image %s, which the signature has to cover: %w; push it before, name it by digest in the manifest, or sign as cosign does (--kind cosign)", image, err)
}

// Verified is a component version and what a trust policy says of it.
type Verified struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	// Kind of the signature and name or fingerprint of its key; empty if none was asked for.
	Kind string `json:"kind,omitempty"`
	Key  string `json:"key,omitempty"`
	// Problem says why nothing could be verified, where the policy only warns.
	Problem string `json:"problem,omitempty"`
	// Images that were looked for, each with the digest that it has.
	Images []string `json:"images,omitempty"`
}

// Verify does with what the reference names, and all its layers, what the trust policy of the place says. With images it also looks for the images of
// each version: they have to be there, and tags have to stand for the digests that the descriptor states. An error says what is not as signed, or
// incomplete.
func Verify(ctx context.Context, p *Place, images bool) ([]Verified, error) {
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
		for _, resource := range slices.Sorted(maps.Keys(c.Layers)) {
			if _, _, err := p.registry.Fetch(ctx, c.Layers[resource]); err != nil {
				return done, err
			}
		}
		v := Verified{Name: a.Name(), Version: a.Version(), Digest: a.Digest(), Kind: c.Signature.Kind, Key: c.Signature.Key, Problem: c.Signature.Problem}
		if images {
			if v.Images, err = p.verifyImages(ctx, a); err != nil {
				return done, err
			}
		}
		done = append(done, v)
	}
	return done, nil
}

// verifyImages looks for the images of a component version: by what their references say, and by what is stated of them.
func (p *Place) verifyImages(ctx context.Context, a *ocm.Artifact) ([]string, error) {
	images, err := a.Images()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, i := range images {
		digest, err := p.verifyImage(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("verifying image %s, resource %s of %s:%s: %w", i.Reference, i.Resource, a.Name(), a.Version(), err)
		}
		name, _, _ := strings.Cut(i.Reference, "@")
		found = append(found, name+"@"+digest)
	}
	return found, nil
}

func (p *Place) verifyImage(ctx context.Context, i ocm.Image) (digest string, err error) {
	l, err := p.locate(i)
	if err != nil {
		return "", err
	}
	found, err := p.findImage(ctx, l)
	if err != nil {
		return "", err
	}
	if digest = found.Digest.String(); l.digest == "" || strings.Contains(i.Reference, "@") {
		return digest, nil
	}
	l.digest = ""
	if found, err = p.findImage(ctx, l); err == nil && found.Digest.String() != digest {
		err = fmt.Errorf("its tag stands for %s, but what is signed is %s: somebody has moved the tag; release a version with the image that is meant", found.Digest, digest)
	}
	return digest, err
}
