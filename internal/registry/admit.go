package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// Verify applies the trust policy to a layer and returns the result. Fetch calls Verify, so its callers need not.
// Verify is for callers that already have the content and must not use content that the policy refuses. If Verify
// admits a layer, Verify remembers the result until the policy changes.
//
// Verify returns the same errors as Fetch.
func (r *Registry) Verify(ctx context.Context, layer Layer) (trust.Signature, error) {
	where, err := r.placesOf(ctx, layer)
	if err != nil {
		return trust.Signature{}, err
	}
	_, s, err := r.admit(ctx, layer, where, r.opts.Trust.Current())
	return s, err
}

// CheckUnsignedSource applies the trust policy to a source that cannot have a supported signature, such as a chart in a
// chart repository or a folder. The parameter location is the host and the path of the source, in the format of the
// prefixes in the rules. The parameter whyUnverifiable states why the source cannot be verified; the error message
// contains it. If the policy is enforced for the location, CheckUnsignedSource returns an error with reason
// SignatureMissing.
func (r *Registry) CheckUnsignedSource(location, whyUnverifiable string) (trust.Signature, error) {
	rule := r.opts.Trust.Current().RuleForRepository(trust.SubjectOf(location))
	if rule.Mode == trust.Off {
		return trust.Signature{}, nil
	}
	e := &ocm.Error{Ref: location, Doing: "verifying", Code: ocm.SignatureMissing,
		Problem: fmt.Sprintf("it cannot be verified: %s: package it as a signed component version, or change rule %q "+
			"of the trust policy", whyUnverifiable, rule.Prefix)}
	if rule.Mode == trust.Enforce {
		return trust.Signature{}, e
	}
	return trust.Signature{Problem: e.Error()}, nil
}

func proofKey(p *trust.Rules, subject, digest string) string {
	return strings.Join([]string{p.Version, subject, digest}, " ")
}

// remember stores a result of Verify in the cache. If the artefact has a valid signature, the result is stored without
// a time limit. If the signature is missing, the result is stored only for tagCachePeriod, because somebody may sign
// the artefact later.
func (r *Registry) remember(key string, s trust.Signature) {
	if s.Verified {
		r.proofs.put(key, s, 1, 0)
		return
	}
	r.problems.put(key, s, 1, tagCachePeriod)
}

func (r *Registry) remembered(key string) (trust.Signature, bool) {
	if s, ok := r.proofs.get(key); ok {
		return s, true
	}
	return r.problems.get(key)
}

// admit decides whether a layer may be used, and returns the digest of the layer. The returned digest may be empty if
// the layer is referenced by a tag and the policy does not enforce signatures. A layer that is referenced by a digest
// is admitted in the three cases of the list below.
//
//  1. the policy does not require a signature
//  2. a component version that was verified since the process started references the layer
//  3. the component version named in the fields Component and Version of the layer is verified and references the layer
//
// A layer that is referenced by a tag is admitted if the image manifest or the component version with this tag is
// verified.
func (r *Registry) admit(ctx context.Context, layer Layer, where placement, p *trust.Rules) (
	string, trust.Signature, error) {
	subject := trust.SubjectOf(where.places[0].Name())
	rule := p.RuleForRepository(subject)
	if rule.Mode == trust.Off {
		return where.digest, trust.Signature{}, nil
	}
	if where.digest != "" {
		if s, ok := r.remembered(proofKey(p, subject, where.digest)); ok {
			return where.digest, s, nil
		}
	}
	digest := where.digest
	var s trust.Signature
	var err error
	if where.tag == "" {
		s, err = r.admitDigest(ctx, layer, where)
	} else {
		digest, s, err = r.admitTag(ctx, layer, where, rule, p)
	}
	if err == nil && digest != "" {
		r.remember(proofKey(p, subject, digest), s)
		if where.tag != "" {
			r.tags.put(tagKey(where.places[0], where.tag, layer.Name), digest, 1, tagCachePeriod)
		}
	}
	if err != nil && rule.Mode == trust.Warn && ctx.Err() == nil {
		return digest, trust.Signature{Problem: err.Error()}, nil
	}
	return digest, s, err
}

// admitDigest admits a layer that is referenced by a digest. The component version that layer.Component and
// layer.Version name must be verified and must reference the layer.
func (r *Registry) admitDigest(ctx context.Context, layer Layer, where placement) (trust.Signature, error) {
	ref := where.places[0].Name() + "@" + where.digest
	unsigned := func(reason, format string, args ...any) error {
		return &ocm.Error{Ref: ref, Doing: "verifying", Code: reason, Problem: fmt.Sprintf(format, args...)}
	}
	if layer.Version == "" {
		return trust.Signature{}, unsigned(ocm.SignatureMissing,
			"layers are not signed themselves, and the layer states no component version: add the version of its "+
				"component")
	}
	c, err := r.componentAt(ctx, where.base, where.plain, layer.Component, layer.Version)
	if ocm.ReasonOf(err) == ocm.ArtifactNotFound {
		return trust.Signature{}, unsigned(ocm.SignatureMissing,
			"layers are not signed themselves, and component version %s does not exist: correct the version, or "+
				"push it",
			ocm.FirstLine(layer.Version))
	}
	if err != nil {
		return trust.Signature{}, err
	}
	if !c.Signature.Verified {
		return c.Signature, nil
	}
	for _, of := range c.Layers {
		if of.Ref == where.digest {
			return c.Signature, nil
		}
	}
	return trust.Signature{}, unsigned(ocm.SignatureInvalid,
		"component version %s is signed but has no such layer: use the digest in its descriptor",
		ocm.FirstLine(layer.Version))
}

// admitTag resolves the tag of a layer and verifies the image that the tag points to. A component version is verified
// by the signature in its descriptor or by a cosign signature. An image that is not a component version is verified by
// a cosign signature.
func (r *Registry) admitTag(ctx context.Context, layer Layer, where placement, rule trust.Rule, p *trust.Rules) (
	string, trust.Signature, error) {
	type result struct {
		digest string
		s      trust.Signature
	}
	key := strings.Join([]string{"admit", where.places[0].Name(), layer.Ref, layer.Name, p.Version}, " ")
	got, err := pullOnce(ctx, r, key, where.places[0].Name()+" "+layer.Ref, func(ctx context.Context) (result, error) {
		var refused error // the error of the first repository, which usually contains the layer
		for i, at := range where.places {
			s, err := r.openSession(ctx, at)
			var found *ocm.ImageManifest
			if err == nil {
				found, err = s.Manifest(ctx, where.tag)
			}
			switch {
			case err != nil && !shouldTryNext(err):
				return result{}, err
			case err != nil:
				refused = cmp.Or(refused, err)
				continue
			case i == 0 && found.Config.MediaType == ocm.ConfigType:
				digest, sig, err := r.admitComponent(ctx, layer, where)
				return result{digest, sig}, err
			}
			digest, sig, err := r.admitImage(ctx, s, found, layer, rule, p)
			return result{digest, sig}, err
		}
		return result{}, refused
	})
	return got.digest, got.s, err
}

// admitComponent verifies the component version to which a tag points, and returns the digest of the given layer in the
// component version.
func (r *Registry) admitComponent(ctx context.Context, layer Layer, where placement) (string, trust.Signature, error) {
	version := strings.Replace(where.tag, ".build-", "+", 1)
	c, err := r.componentAt(ctx, where.base, where.plain, layer.Component, version)
	if err != nil {
		return "", trust.Signature{}, err
	}
	if of, ok := c.Layers[layer.Name]; ok && strings.Contains(of.Ref, ":") {
		return of.Ref, c.Signature, nil
	}
	if !c.Signature.Verified {
		return "", c.Signature, nil
	}
	return "", trust.Signature{}, &ocm.Error{Ref: where.places[0].Name() + ":" + where.tag, Doing: "verifying",
		Code: ocm.SignatureInvalid,
		Problem: fmt.Sprintf("it is signed but has no resource %q: name one that its descriptor has",
			ocm.FirstLine(layer.Name))}
}

// admitImage verifies the image manifest to which a tag points. Each digest is verified only once.
func (r *Registry) admitImage(ctx context.Context, s *session, found *ocm.ImageManifest, layer Layer, rule trust.Rule,
	p *trust.Rules) (string, trust.Signature, error) {
	digest, err := ocm.LayerDigestOf(found.Manifest, layer.Name, found.Ref)
	if err != nil {
		return "", trust.Signature{}, err
	}
	key := proofKey(p, trust.SubjectOf(s.Name()), "manifest "+found.Digest)
	if sig, ok := r.remembered(key); ok {
		return digest, sig, nil
	}
	f := trust.NewVerification(s, rule)
	k, err := f.FindCosignImageSigner(ctx, found)
	if err != nil {
		return "", trust.Signature{}, err
	}
	if k == nil && rule.Mode == trust.Warn {
		return digest, trust.Signature{Problem: f.SignatureError(found.Ref).Error()}, nil
	}
	if k == nil {
		return "", trust.Signature{}, f.SignatureError(found.Ref)
	}
	sig := trust.Signature{Verified: true, Key: k.String(), Kind: trust.KindCosign}
	r.remember(key, sig)
	return digest, sig, nil
}
