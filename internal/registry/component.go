package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// needed are the resources that something is installed from.
var needed = []string{"raw-manifest", "config", "crds", "default-cr"}

// Component is one version of a module as its component descriptor tells. It is shared and must not be changed.
type Component struct {
	Name, Version string
	// Layers are the resources that lie in the component's own repository, by name: raw-manifest, default-cr, config, crds, …
	Layers map[string]Layer
	// Images are the references of the resources with access type ociArtifact, in the order of the descriptor.
	Images []string
	// Signature says what the trust policy found. It is the zero value where the policy asks for nothing.
	Signature trust.Signature
}

// Component returns the component of that name and version. Where the trust policy is enforced, it and all it names are signed.
//
// Errors are of type *Error with any of the reasons, or the context's if it was cancelled.
func (r *Registry) Component(ctx context.Context, name, version string) (*Component, error) {
	return r.componentAt(ctx, r.base, r.plain, name, version)
}

func (r *Registry) componentAt(ctx context.Context, base string, plain bool, name, version string) (*Component, error) {
	p, err := r.repository(base, plain, "component-descriptors", name)
	if err != nil {
		return nil, err
	}
	policy := r.opts.Trust.Current()
	key := componentKey(p, version, policy)
	if c, ok := r.components.get(key); ok {
		return c, nil
	}
	tag := ocm.TagOf(version)
	if err := checkTag(p, tag); err != nil {
		return nil, err
	}
	return shared(ctx, r, key, p.Name()+":"+tag, func(ctx context.Context) (*Component, error) {
		if c, ok := r.components.get(key); ok { // another pull was faster
			return c, nil
		}
		c, err := r.pullComponent(ctx, p, base, name, version, policy)
		if err != nil {
			return nil, err
		}
		keep := time.Duration(0)
		if c.Signature.Problem != "" {
			keep = tagLifetime // it may be signed in the meantime
		}
		r.components.put(key, c, 1, keep)
		return c, nil
	})
}

// componentKey identifies what was found under one policy: another policy may find otherwise.
func componentKey(p place, version string, policy *trust.Rules) string {
	return strings.Join([]string{"component", p.Name(), version, policy.Version}, " ")
}

func (r *Registry) pullComponent(ctx context.Context, p place, base, name, version string, policy *trust.Rules) (*Component, error) {
	s, err := r.open(ctx, p)
	if err != nil {
		return nil, err
	}
	found, err := s.Manifest(ctx, ocm.TagOf(version))
	if err != nil {
		return nil, err
	}
	d, err := r.pullDescriptor(ctx, s, found)
	if err != nil {
		return nil, err
	}
	c, err := componentOf(d, base, found.Ref)
	if err != nil {
		return nil, err
	}
	if c.Name != name || c.Version != version {
		return nil, ocm.NewError(ocm.InvalidDescriptor, found.Ref, "its descriptor is of %s:%s: push the module under its own name and version", c.Name, c.Version)
	}
	if err := r.verifyComponent(ctx, s, found, d, c, policy); err != nil {
		return nil, err
	}
	return c, nil
}

// pullDescriptor reads the descriptor that the config of a component version names.
func (r *Registry) pullDescriptor(ctx context.Context, s *session, of *ocm.ImageManifest) (*ocm.Descriptor, error) {
	data, err := s.Blob(ctx, of.Config.Digest.String(), maxConfig)
	if err != nil {
		return nil, err
	}
	var config struct {
		Layer *struct {
			Digest string `json:"digest"`
		} `json:"componentDescriptorLayer"`
	}
	if err := json.Unmarshal(data, &config); err != nil || config.Layer == nil {
		return nil, ocm.NewError(ocm.InvalidDescriptor, of.Ref, "its config names no componentDescriptorLayer: it is no component version; push the module with a tool for OCM")
	}
	if _, err := v1.NewHash(config.Layer.Digest); err != nil {
		return nil, ocm.NewError(ocm.InvalidDescriptor, of.Ref, "its config names the component descriptor by %q, which is no digest: push the module again", config.Layer.Digest)
	}
	if data, err = s.Blob(ctx, config.Layer.Digest, r.opts.MaxDescriptorBytes+ocm.DescriptorRoom); err != nil {
		return nil, err
	}
	if data, err = ocm.UnpackDescriptor(data, r.opts.MaxDescriptorBytes, of.Ref); err != nil {
		return nil, err
	}
	return ocm.ParseDescriptor(data, of.Ref)
}

// componentOf makes a Component of a descriptor. What a resource's access type means:
//
//  1. localBlob, localOciBlob          -> a layer of the component's repository
//  2. ociArtifact, ociRegistry         -> an image; listed if the type is exactly ociArtifact
//  3. another, resource is needed      -> error AccessTypeNotSupported
//  4. another                          -> left out: nothing is installed from it
func componentOf(d *ocm.Descriptor, repo, ref string) (*Component, error) {
	c := &Component{Name: d.Component.Name, Version: d.Component.Version, Layers: map[string]Layer{}}
	for _, res := range d.Component.Resources {
		switch a := res.Access; {
		case a.IsLocal():
			if _, ok := c.Layers[res.Name]; ok {
				return nil, ocm.NewError(ocm.InvalidDescriptor, ref, "its component descriptor has two resources %q: keep one", res.Name)
			}
			layer := Layer{Name: res.Name, Repo: repo, Component: c.Name, Version: c.Version, Ref: cmp.Or(a.LocalReference, a.Digest, c.Version), Type: OCIRef}
			if a.MediaType == "application/x-tar" {
				layer.Type = OCIDir
			}
			c.Layers[res.Name] = layer
		case slices.Contains([]string{"ociArtifact", "ociArtifact/v1", "ociRegistry", "ociRegistry/v1"}, a.Type):
			if a.Type == "ociArtifact" && a.ImageReference != "" {
				c.Images = append(c.Images, a.ImageReference)
			}
		default:
			if slices.Contains(needed, res.Name) {
				return nil, ocm.NewError(ocm.AccessTypeNotSupported, ref, "resource %q has access type %q: package it as a local blob of the component", res.Name, a.Type)
			}
		}
	}
	return c, nil
}
