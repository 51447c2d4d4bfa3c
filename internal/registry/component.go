package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
)

// installedResources are the names of the resources from which a module is installed: they contain its objects or the
// settings of its chart.
var installedResources = []string{"raw-manifest", "config", "crds", "default-cr"}

// layersOnly are the names of the resources of a component that must be stored as layers in the OCI registry. A
// resource with one of these names cannot be a chart in a chart repository.
var layersOnly = []string{"config", "crds", "default-cr"}

// Component is one version of a module, made from its component descriptor. Callers share a Component, so they must not
// change it.
type Component struct {
	Name, Version string
	// Digest is the digest of the manifest from which the component was read. The tag of a version can be moved, so a
	// caller that has read the manifest before compares the digests.
	Digest string
	// Layers are the resources in the repository of the component, by name: raw-manifest, default-cr, config, crds, …
	Layers map[string]Layer
	// Charts are the resources in chart repositories, by name.
	Charts map[string]Chart
	// Order lists the names of all Layers and Charts in the order of the descriptor.
	Order []string
	// Content is the digest of everything that the component installs: the digests of its layers, the versions of its
	// charts and the references of its images. Content does not depend on signatures and registries, so it stays the
	// same when the component is signed or copied to another registry.
	Content string
	// Images are the references of the resources with access type ociArtifact, in the order of the descriptor. If the
	// descriptor is signed, Images are the pinned references of all images, also by their signed names.
	Images []string
	// Signature is the result of applying the trust policy to the component version. If the policy requires no
	// signature, Signature is the zero value.
	Signature trust.Signature
}

// Chart is the location of a chart in a chart repository.
type Chart struct {
	// URL is the address of the repository: https://, http:// or oci://.
	URL string
	// Name is the name of the chart, and Version is its exact version.
	Name, Version string
}

// Component returns the component with the given name and version. If the trust policy is enforced, the component, all
// its layers and all its images are signed. If a result was pulled more than componentCachePeriod ago, or before a
// requested retry, it is pulled again. If the registry does not respond, Component returns the earlier result.
//
// Errors are of type *Error and can have any of the reason codes. If the context was cancelled, the error is the error
// of the context.
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
	earlier, isFresh := r.cachedComponent(ctx, key)
	if isFresh {
		return earlier, nil
	}
	tag := ocm.TagOf(version)
	if err := checkTag(p, tag); err != nil {
		return nil, err
	}
	c, err := pullOnce(ctx, r, key, p.Name()+":"+tag, func(ctx context.Context) (*Component, error) {
		if c, isFresh := r.cachedComponent(ctx, key); isFresh { // a concurrent pull stored it
			return c, nil
		}
		c, err := r.pullComponent(ctx, p, base, name, version, policy)
		if err != nil {
			return nil, err
		}
		r.cacheComponent(key, c)
		return c, nil
	})
	if earlier != nil && ocm.ReasonOf(err) == ocm.RegistryUnreachable {
		r.cacheComponent(key, earlier) // used for another period
		return earlier, nil
	}
	return c, err
}

func (r *Registry) cacheComponent(key string, c *Component) {
	keep := time.Duration(0)
	if c.Signature.Problem != "" {
		keep = tagCachePeriod // the component may be signed later
	}
	r.components.put(key, c, 1, keep)
}

// cachedComponent returns a component from the cache, or nil if it is not cached. isFresh is false if the component has
// to be compared with the registry.
func (r *Registry) cachedComponent(ctx context.Context, key string) (c *Component, isFresh bool) {
	c, stored, ok := r.components.getDated(key)
	return c, ok && r.components.now().Sub(stored) < componentCachePeriod && !retry.IsOutdated(ctx, stored)
}

// componentKey returns the key under which a component is cached for one version of the trust policy. The key contains
// the version of the policy, because another version may refuse the component or require another signature.
func componentKey(p place, version string, policy *trust.Rules) string {
	return strings.Join([]string{"component", p.Name(), version, policy.Version}, " ")
}

func (r *Registry) pullComponent(ctx context.Context, p place, base, name, version string,
	policy *trust.Rules) (*Component, error) {
	s, err := r.openSession(ctx, p)
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
		return nil, ocm.NewError(ocm.InvalidDescriptor, found.Ref,
			"its descriptor is of %s:%s: push the module under its own name and version", c.Name, c.Version)
	}
	c.Digest, c.Content = found.Digest, contentDigest(c, found)
	if err := r.applyTrustPolicyAndPin(ctx, s, found, d, c, policy); err != nil {
		return nil, err
	}
	return c, nil
}

// pullDescriptor pulls the component descriptor to which the config of a component version refers.
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
		return nil, ocm.NewError(ocm.InvalidDescriptor, of.Ref,
			"its config names no componentDescriptorLayer: it is no component version; push the module with a tool "+
				"for OCM")
	}
	if _, err := v1.NewHash(config.Layer.Digest); err != nil {
		return nil, ocm.NewError(ocm.InvalidDescriptor, of.Ref,
			"its config names the component descriptor by %q, which is no digest: push the module again",
			config.Layer.Digest)
	}
	if data, err = s.Blob(ctx, config.Layer.Digest, r.opts.MaxDescriptorBytes+ocm.DescriptorRoom); err != nil {
		return nil, err
	}
	if data, err = ocm.UnpackDescriptor(data, r.opts.MaxDescriptorBytes, of.Ref); err != nil {
		return nil, err
	}
	return ocm.ParseDescriptor(data, of.Ref)
}

// contentDigest computes [Component.Content]. The caller has to call contentDigest before it replaces image references
// by references with signed digests. If the descriptor contains a tag instead of the digest of a layer, contentDigest
// takes the digest of the layer from the manifest of the component version.
func contentDigest(c *Component, found *ocm.ImageManifest) string {
	h := sha256.New()
	encode := json.NewEncoder(h)
	_ = encode.Encode([]any{c.Name, c.Version, c.Images}) // texts always encode
	for _, name := range c.Order {
		layer, chart := c.Layers[name], c.Charts[name]
		ref := layer.Ref
		if ref != "" && !strings.Contains(ref, ":") {
			if digest, err := ocm.LayerDigestOf(found.Manifest, name, found.Ref); err == nil {
				ref = digest
			}
		}
		_ = encode.Encode([]string{name, ref, layer.Type, chart.URL, chart.Name, chart.Version})
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// componentOf converts a descriptor to a Component. The list below shows, for each access type of a resource, the part
// of the Component to which the resource is converted.
//
//  1. localBlob, localOciBlob             -> a layer of the component's repository
//  2. ociArtifact, ociRegistry, ociImage  -> an image; it is in Images if the type is exactly ociArtifact
//  3. helm, helmChartRepository           -> a chart; an error for the resources config, crds and default-cr, which
//     must be layers
//  4. none                                -> skipped, because the resource has no content
//  5. any other type                      -> error AccessTypeNotSupported
func componentOf(d *ocm.Descriptor, repo, ref string) (*Component, error) {
	c := &Component{Name: d.Component.Name, Version: d.Component.Version, Layers: map[string]Layer{}}
	for _, res := range d.Component.Resources {
		if a := res.Access; a.IsLocal() || a.IsChart() {
			if slices.Contains(c.Order, res.Name) {
				return nil, ocm.NewError(ocm.InvalidDescriptor, ref,
					"its component descriptor has two resources %q: keep one", res.Name)
			}
			c.Order = append(c.Order, res.Name)
		}
		switch a := res.Access; {
		case a.IsLocal():
			layer := Layer{Name: res.Name, Repo: repo, Component: c.Name, Version: c.Version,
				Ref: cmp.Or(a.LocalReference, a.Digest, c.Version), Type: OCIRef}
			if a.MediaType == "application/x-tar" {
				layer.Type = OCIDir
			}
			c.Layers[res.Name] = layer
		case a.IsChart() && !slices.Contains(layersOnly, res.Name):
			url, name, version, err := a.Chart()
			if err != nil {
				return nil, ocm.NewError(ocm.InvalidDescriptor, ref, "resource %q with access type %q %s", res.Name,
					a.Type, err)
			}
			if c.Charts == nil {
				c.Charts = map[string]Chart{}
			}
			c.Charts[res.Name] = Chart{URL: url, Name: name, Version: version}
		case a.IsImage():
			if a.Type == "ociArtifact" && a.ImageReference != "" {
				c.Images = append(c.Images, a.ImageReference)
			}
		case a.IsNone():
		default:
			return nil, ocm.NewError(ocm.AccessTypeNotSupported, ref,
				"resource %q has access type %q, which is not supported: package it as a local blob of the component",
				res.Name, a.Type)
		}
	}
	return c, nil
}
