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
}

// Component returns the component of that name and version.
//
// Errors are of type *Error with any of the reasons, or the context's if it was cancelled.
func (r *Registry) Component(ctx context.Context, name, version string) (*Component, error) {
	key := name + ":" + version
	if c, ok := r.components.get(key); ok {
		return c, nil
	}
	p, err := r.repository(r.base, r.plain, "component-descriptors", name)
	if err != nil {
		return nil, err
	}
	tag := tagOf(version)
	if err := checkTag(p, tag); err != nil {
		return nil, err
	}
	return shared(ctx, r, "component "+key, p.Name()+":"+tag, func(ctx context.Context) (*Component, error) {
		if c, ok := r.components.get(key); ok { // another pull was faster
			return c, nil
		}
		c, err := r.pullComponent(ctx, p, name, version)
		if err == nil {
			r.components.put(key, c, 1, 0)
		}
		return c, err
	})
}

func (r *Registry) pullComponent(ctx context.Context, p place, name, version string) (*Component, error) {
	ref := p.Name() + ":" + tagOf(version)
	s, err := r.open(ctx, p)
	if err != nil {
		return nil, err
	}
	manifest, err := s.manifest(ctx, tagOf(version))
	if err != nil {
		return nil, err
	}
	data, err := s.blob(ctx, manifest.Config.Digest.String(), maxConfig)
	if err != nil {
		return nil, err
	}
	var config struct {
		Layer *struct {
			Digest string `json:"digest"`
		} `json:"componentDescriptorLayer"`
	}
	if err := json.Unmarshal(data, &config); err != nil || config.Layer == nil {
		return nil, invalid(InvalidDescriptor, ref, "its config names no componentDescriptorLayer: it is no component version; push the module with a tool for OCM")
	}
	if _, err := v1.NewHash(config.Layer.Digest); err != nil {
		return nil, invalid(InvalidDescriptor, ref, "its config names the component descriptor by %q, which is no digest: push the module again", config.Layer.Digest)
	}
	if data, err = s.blob(ctx, config.Layer.Digest, r.opts.MaxDescriptorBytes+descriptorRoom); err != nil {
		return nil, err
	}
	if data, err = unpackDescriptor(data, r.opts.MaxDescriptorBytes, ref); err != nil {
		return nil, err
	}
	c, err := parseDescriptor(data, r.base, ref)
	if err != nil {
		return nil, err
	}
	if c.Name != name || c.Version != version {
		return nil, invalid(InvalidDescriptor, ref, "its descriptor is of %s:%s: push the module under its own name and version", c.Name, c.Version)
	}
	return c, nil
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

// descriptor is what we read of a component descriptor, schema v2 (meta, component) or v3 (apiVersion, metadata, spec).
type descriptor struct {
	Meta struct {
		SchemaVersion string `json:"schemaVersion"`
	} `json:"meta"`
	Component struct {
		Name      string     `json:"name"`
		Version   string     `json:"version"`
		Resources []resource `json:"resources"`
	} `json:"component"`

	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	} `json:"metadata"`
	Spec struct {
		Resources []resource `json:"resources"`
	} `json:"spec"`
}

type resource struct {
	Name   string `json:"name"`
	Access struct {
		Type           string `json:"type"`
		MediaType      string `json:"mediaType"`
		LocalReference string `json:"localReference"`
		Digest         string `json:"digest"` // of localOciBlob
		ImageReference string `json:"imageReference"`
	} `json:"access"`
}

// parseDescriptor makes a Component of a descriptor. What a resource's access type means:
//
//  1. localBlob, localOciBlob          -> a layer of the component's repository
//  2. ociArtifact, ociRegistry         -> an image; listed if the type is exactly ociArtifact
//  3. another, resource is needed      -> error AccessTypeNotSupported
//  4. another                          -> left out: nothing is installed from it
func parseDescriptor(data []byte, repo, ref string) (*Component, error) {
	var d descriptor
	if err := yaml.Unmarshal(data, &d); err != nil {
		return nil, invalid(InvalidDescriptor, ref, "its component descriptor is not YAML: %s: push the module again", firstLine(err.Error()))
	}
	c := &Component{Name: d.Component.Name, Version: d.Component.Version, Layers: map[string]Layer{}}
	resources := d.Component.Resources
	switch {
	case d.APIVersion == "ocm.software/v3alpha1":
		c.Name, c.Version, resources = d.Metadata.Name, d.Metadata.Version, d.Spec.Resources
	case d.APIVersion != "" || d.Meta.SchemaVersion != "v2":
		return nil, invalid(InvalidDescriptor, ref, "its component descriptor has schema %q, known are v2 and ocm.software/v3alpha1: convert it",
			d.APIVersion+d.Meta.SchemaVersion)
	}
	for _, res := range resources {
		switch a := res.Access; a.Type {
		case "localBlob", "localBlob/v1", "localOciBlob", "localOciBlob/v1":
			if _, ok := c.Layers[res.Name]; ok {
				return nil, invalid(InvalidDescriptor, ref, "its component descriptor has two resources %q: keep one", res.Name)
			}
			layer := Layer{Name: res.Name, Repo: repo, Component: c.Name, Ref: cmp.Or(a.LocalReference, a.Digest, c.Version), Type: OCIRef}
			if a.MediaType == "application/x-tar" {
				layer.Type = OCIDir
			}
			c.Layers[res.Name] = layer
		case "ociArtifact", "ociArtifact/v1", "ociRegistry", "ociRegistry/v1":
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
