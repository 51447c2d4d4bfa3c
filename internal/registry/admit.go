package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// Verify does with a layer what the trust policy says, and returns what it found. Fetch does the same first; Verify is for callers
// who have the bytes already and must not use them under a policy that refuses them. A positive answer is remembered for as long as the
// policy does not change.
//
// Errors are those of Fetch.
func (r *Registry) Verify(ctx context.Context, layer Layer) (Signature, error) {
	where, err := r.placesOf(layer)
	if err != nil {
		return Signature{}, err
	}
	_, s, err := r.admit(ctx, layer, where, r.opts.Trust.current())
	return s, err
}

// VerifyUnsigned says what the trust policy says of something that can have no signature that is understood here, such as a chart in a
// chart repository or a folder: location is host and path as rules have them, why completes "it cannot be verified: ". The error has
// reason SignatureMissing.
func (r *Registry) VerifyUnsigned(location, why string) (Signature, error) {
	rule := r.opts.Trust.current().ruleFor(subjectOf(location))
	if rule.mode == Off {
		return Signature{}, nil
	}
	e := &Error{Ref: location, doing: "verifying", reason: SignatureMissing,
		problem: fmt.Sprintf("it cannot be verified: %s: package it as a signed component version, or change rule %q of the trust policy", why, rule.prefix)}
	if rule.mode == Enforce {
		return Signature{}, e
	}
	return Signature{Problem: e.Error()}, nil
}

func proofKey(p *policy, subject, digest string) string {
	return strings.Join([]string{p.version, subject, digest}, " ")
}

// remember keeps what was found: that something is signed for good, that it is not for a minute, since it may be signed then.
func (r *Registry) remember(key string, s Signature) {
	if s.Verified {
		r.proofs.put(key, s, 1, 0)
		return
	}
	r.problems.put(key, s, 1, tagLifetime)
}

func (r *Registry) remembered(key string) (Signature, bool) {
	if s, ok := r.proofs.get(key); ok {
		return s, true
	}
	return r.problems.get(key)
}

// admit decides whether a layer may be used, and by which digest: it is empty if the layer is named by a tag and the policy does not
// insist. What is named by a digest is admitted
//
//  1. where the policy asks for nothing
//  2. if a verified component version has named it since this process started
//  3. if the component version that the layer states is verified and names it
//
// and what is named by a tag, if the image manifest or component version behind it is verified.
func (r *Registry) admit(ctx context.Context, layer Layer, where placement, p *policy) (string, Signature, error) {
	subject := subjectOf(where.places[0].Name())
	rule := p.ruleFor(subject)
	if rule.mode == Off {
		return where.digest, Signature{}, nil
	}
	if where.digest != "" {
		if s, ok := r.remembered(proofKey(p, subject, where.digest)); ok {
			return where.digest, s, nil
		}
	}
	digest := where.digest
	var s Signature
	var err error
	if where.tag == "" {
		s, err = r.admitDigest(ctx, layer, where)
	} else {
		digest, s, err = r.admitTag(ctx, layer, where, rule, p)
	}
	if err == nil && digest != "" {
		r.remember(proofKey(p, subject, digest), s)
		if where.tag != "" {
			r.tags.put(tagKey(where.places[0], where.tag, layer.Name), digest, 1, tagLifetime)
		}
	}
	if err != nil && rule.mode == Warn && ctx.Err() == nil {
		return digest, Signature{Problem: err.Error()}, nil
	}
	return digest, s, err
}

// admitDigest looks for the layer in the component version that it states.
func (r *Registry) admitDigest(ctx context.Context, layer Layer, where placement) (Signature, error) {
	ref := where.places[0].Name() + "@" + where.digest
	unsigned := func(reason, format string, args ...any) error {
		return &Error{Ref: ref, doing: "verifying", reason: reason, problem: fmt.Sprintf(format, args...)}
	}
	if layer.Version == "" {
		return Signature{}, unsigned(SignatureMissing, "a layer bears no signature itself, and no component version is stated: state the version of the component that it belongs to")
	}
	c, err := r.componentAt(ctx, where.base, where.plain, layer.Component, layer.Version)
	if reasonOf(err) == ArtifactNotFound {
		return Signature{}, unsigned(SignatureMissing, "a layer bears no signature itself, and there is no component version %s that could name it: state the right one, or push it",
			firstLine(layer.Version))
	}
	if err != nil {
		return Signature{}, err
	}
	if !c.Signature.Verified {
		return c.Signature, nil
	}
	for _, of := range c.Layers {
		if of.Ref == where.digest {
			return c.Signature, nil
		}
	}
	return Signature{}, unsigned(SignatureInvalid, "component version %s is signed but has no such layer: take the digest from its descriptor", firstLine(layer.Version))
}

// admitTag finds what a tag stands for and verifies it: a component version by its descriptor or by cosign, any other image by cosign.
func (r *Registry) admitTag(ctx context.Context, layer Layer, where placement, rule rule, p *policy) (string, Signature, error) {
	type result struct {
		digest string
		s      Signature
	}
	key := strings.Join([]string{"admit", where.places[0].Name(), layer.Ref, layer.Name, p.version}, " ")
	got, err := shared(ctx, r, key, where.places[0].Name()+" "+layer.Ref, func(ctx context.Context) (result, error) {
		var refused error // by the place that a person would look at first
		for i, at := range where.places {
			s, err := r.open(ctx, at)
			var found *imageManifest
			if err == nil {
				found, err = s.manifest(ctx, where.tag)
			}
			switch {
			case err != nil && !mayBeElsewhere(err):
				return result{}, err
			case err != nil:
				refused = cmp.Or(refused, err)
				continue
			case i == 0 && found.Config.MediaType == configType:
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

// admitComponent finds the layer in the component version that a tag stands for.
func (r *Registry) admitComponent(ctx context.Context, layer Layer, where placement) (string, Signature, error) {
	version := strings.Replace(where.tag, ".build-", "+", 1)
	c, err := r.componentAt(ctx, where.base, where.plain, layer.Component, version)
	if err != nil {
		return "", Signature{}, err
	}
	if of, ok := c.Layers[layer.Name]; ok && strings.Contains(of.Ref, ":") {
		return of.Ref, c.Signature, nil
	}
	if !c.Signature.Verified {
		return "", c.Signature, nil
	}
	return "", Signature{}, &Error{Ref: where.places[0].Name() + ":" + where.tag, doing: "verifying", reason: SignatureInvalid,
		problem: fmt.Sprintf("it is signed but has no resource %q: name one that its descriptor has", firstLine(layer.Name))}
}

// admitImage verifies the image manifest that a tag stands for, once for each digest.
func (r *Registry) admitImage(ctx context.Context, s *session, found *imageManifest, layer Layer, rule rule, p *policy) (string, Signature, error) {
	digest, err := layerOf(found.Manifest, layer.Name, found.ref)
	if err != nil {
		return "", Signature{}, err
	}
	key := proofKey(p, subjectOf(s.Name()), "manifest "+found.digest)
	if sig, ok := r.remembered(key); ok {
		return digest, sig, nil
	}
	f := &search{session: s, rule: rule}
	k, err := f.verifyImage(ctx, found)
	if err != nil {
		return "", Signature{}, err
	}
	if k == nil && rule.mode == Warn {
		return digest, Signature{Problem: f.fail(found.ref).Error()}, nil
	}
	if k == nil {
		return "", Signature{}, f.fail(found.ref)
	}
	sig := Signature{Verified: true, Key: k.String(), Kind: KindCosign}
	r.remember(key, sig)
	return digest, sig, nil
}
