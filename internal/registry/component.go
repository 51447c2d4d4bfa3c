package registry

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

// descriptorFile is the name of the component descriptor in its archive.
const descriptorFile = "component-descriptor.yaml"

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
	Signature Signature
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
	policy := r.opts.Trust.current()
	key := componentKey(p, version, policy)
	if c, ok := r.components.get(key); ok {
		return c, nil
	}
	tag := tagOf(version)
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
func componentKey(p place, version string, policy *policy) string {
	return strings.Join([]string{"component", p.Name(), version, policy.version}, " ")
}

func (r *Registry) pullComponent(ctx context.Context, p place, base, name, version string, policy *policy) (*Component, error) {
	s, err := r.open(ctx, p)
	if err != nil {
		return nil, err
	}
	found, err := s.manifest(ctx, tagOf(version))
	if err != nil {
		return nil, err
	}
	d, err := r.pullDescriptor(ctx, s, found)
	if err != nil {
		return nil, err
	}
	c, err := d.read(base, found.ref)
	if err != nil {
		return nil, err
	}
	if c.Name != name || c.Version != version {
		return nil, invalid(InvalidDescriptor, found.ref, "its descriptor is of %s:%s: push the module under its own name and version", c.Name, c.Version)
	}
	if err := r.verifyComponent(ctx, s, found, d, c, policy); err != nil {
		return nil, err
	}
	return c, nil
}

// pullDescriptor reads the descriptor that the config of a component version names.
func (r *Registry) pullDescriptor(ctx context.Context, s *session, of *imageManifest) (*descriptor, error) {
	data, err := s.blob(ctx, of.Config.Digest.String(), maxConfig)
	if err != nil {
		return nil, err
	}
	var config struct {
		Layer *struct {
			Digest string `json:"digest"`
		} `json:"componentDescriptorLayer"`
	}
	if err := json.Unmarshal(data, &config); err != nil || config.Layer == nil {
		return nil, invalid(InvalidDescriptor, of.ref, "its config names no componentDescriptorLayer: it is no component version; push the module with a tool for OCM")
	}
	if _, err := v1.NewHash(config.Layer.Digest); err != nil {
		return nil, invalid(InvalidDescriptor, of.ref, "its config names the component descriptor by %q, which is no digest: push the module again", config.Layer.Digest)
	}
	if data, err = s.blob(ctx, config.Layer.Digest, r.opts.MaxDescriptorBytes+descriptorRoom); err != nil {
		return nil, err
	}
	if data, err = unpackDescriptor(data, r.opts.MaxDescriptorBytes, of.ref); err != nil {
		return nil, err
	}
	return parseDescriptor(data, of.ref)
}

// unpackDescriptor returns the YAML or JSON text of a descriptor layer, which is a tar archive, compressed or not, or the text itself.
func unpackDescriptor(data []byte, limit int64, ref string) ([]byte, error) {
	tooLarge := invalid(ArtifactTooLarge, ref, "its component descriptor is larger than %d bytes: make it smaller or raise the limit", limit)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		unzip, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(unzip, limit+descriptorRoom+1))
		}
		if err != nil {
			return nil, invalid(InvalidDescriptor, ref, "its component descriptor is damaged (gzip: %s): push the module again", firstLine(err.Error()))
		}
		if int64(len(data)) > limit+descriptorRoom {
			return nil, tooLarge
		}
	}
	archive := tar.NewReader(bytes.NewReader(data))
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		if entries == 0 && err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			break // not a tar: the text itself
		}
		if errors.Is(err, io.EOF) {
			return nil, invalid(InvalidDescriptor, ref, "its descriptor layer holds no %s: push the module with a tool for OCM", descriptorFile)
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, invalid(InvalidDescriptor, ref, "its descriptor layer is damaged (tar: %s): push the module again", firstLine(err.Error()))
		}
		if header.Typeflag != tar.TypeReg || path.Clean(header.Name) != descriptorFile {
			continue
		}
		if data, err = io.ReadAll(io.LimitReader(archive, limit+1)); err != nil {
			return nil, invalid(InvalidDescriptor, ref, "its descriptor layer is damaged (tar: %s): push the module again", firstLine(err.Error()))
		}
		break
	}
	if int64(len(data)) > limit {
		return nil, tooLarge
	}
	return data, nil
}

// descriptor is a component descriptor, schema v2 (meta, component) or v3 (apiVersion, metadata, spec). Once parsed, Component has the
// content of either.
type descriptor struct {
	Meta struct {
		SchemaVersion string `json:"schemaVersion"`
	} `json:"meta"`
	Component content `json:"component"`

	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Metadata   content `json:"metadata"`
	Spec       struct {
		Resources  []element `json:"resources"`
		Sources    []element `json:"sources"`
		References []element `json:"references"`
	} `json:"spec"`

	Signatures []descriptorSignature `json:"signatures"`
}

// access says where a resource lies.
type access struct {
	Type           string `json:"type"`
	MediaType      string `json:"mediaType"`
	LocalReference string `json:"localReference"`
	Digest         string `json:"digest"` // of localOciBlob
	ImageReference string `json:"imageReference"`
}

func (a access) isLocal() bool {
	return slices.Contains([]string{"localBlob", "localBlob/v1", "localOciBlob", "localOciBlob/v1"}, a.Type)
}

// parseDescriptor reads the text of a descriptor.
func parseDescriptor(data []byte, ref string) (*descriptor, error) {
	var d descriptor
	if err := yaml.Unmarshal(data, &d); err != nil {
		return nil, invalid(InvalidDescriptor, ref, "its component descriptor is not YAML: %s: push the module again", firstLine(err.Error()))
	}
	switch {
	case d.APIVersion == "ocm.software/v3alpha1":
		d.Component = d.Metadata
		d.Component.Resources, d.Component.Sources, d.Component.References = d.Spec.Resources, d.Spec.Sources, d.Spec.References
	case d.APIVersion != "" || d.Meta.SchemaVersion != "v2":
		return nil, invalid(InvalidDescriptor, ref, "its component descriptor has schema %q, known are v2 and ocm.software/v3alpha1: convert it",
			d.APIVersion+d.Meta.SchemaVersion)
	}
	return &d, nil
}

// read makes a Component of a descriptor. What a resource's access type means:
//
//  1. localBlob, localOciBlob          -> a layer of the component's repository
//  2. ociArtifact, ociRegistry         -> an image; listed if the type is exactly ociArtifact
//  3. another, resource is needed      -> error AccessTypeNotSupported
//  4. another                          -> left out: nothing is installed from it
func (d *descriptor) read(repo, ref string) (*Component, error) {
	c := &Component{Name: d.Component.Name, Version: d.Component.Version, Layers: map[string]Layer{}}
	for _, res := range d.Component.Resources {
		switch a := res.Access; {
		case a.isLocal():
			if _, ok := c.Layers[res.Name]; ok {
				return nil, invalid(InvalidDescriptor, ref, "its component descriptor has two resources %q: keep one", res.Name)
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
				return nil, invalid(AccessTypeNotSupported, ref, "resource %q has access type %q: package it as a local blob of the component", res.Name, a.Type)
			}
		}
	}
	return c, nil
}
