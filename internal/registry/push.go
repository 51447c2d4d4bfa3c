package registry

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

const (
	configType     = "application/vnd.ocm.software.component.config.v1+json"
	descriptorType = "application/vnd.ocm.software.component-descriptor.v2+yaml+tar"
	tarType        = "application/x-tar"
	fileType       = "application/octet-stream"
)

// Archive is a module version to be pushed.
type Archive struct {
	// Name and Version of the component, both required.
	Name, Version string
	// Provider of the component; empty means kyma-project.io.
	Provider string
	// Labels of the component, in this order.
	Labels []Label
	// RawManifest is the YAML that installs the module, required.
	RawManifest []byte
	// Tar puts RawManifest and DefaultCR into a tar archive each, as modulectl does; otherwise they are layers as they are.
	Tar bool
	// ManifestFile is the name of RawManifest in its archive; empty means raw-manifest.yaml.
	ManifestFile string
	// DefaultCR is the YAML of the module's default custom resource; nil means it has none.
	DefaultCR []byte
	// Images that the module uses, as references. They become resources of the component, in this order.
	Images []string
	// RepositoryContext is the base URL that the descriptor states as its home; empty means this Registry's.
	RepositoryContext string
}

// Label is a label of a component.
type Label struct {
	Name string
	// Value is anything that can be written as JSON.
	Value any
}

// Push writes a component version in the layout that OCM tools and modulectl write, and returns the digest of its manifest. An
// existing version is replaced. Equal archives give equal digests: files bear a fixed time, and the descriptor none.
//
// Errors are of type *Error with reason InvalidReference, InvalidDescriptor, RegistryUnauthorized, RegistryUnreachable or ArtifactNotFound,
// or the context's if it was cancelled.
func (r *Registry) Push(ctx context.Context, a Archive) (string, error) {
	p, err := r.repository(r.base, r.plain, "component-descriptors", a.Name)
	if err != nil {
		return "", err
	}
	ref := p.Tag(tagOf(a.Version))
	if err := checkTag(p, ref.TagStr()); err != nil {
		return "", err
	}
	if len(a.RawManifest) == 0 {
		return "", &Error{Ref: ref.Name(), doing: "pushing", reason: InvalidDescriptor, problem: "there is no raw manifest: give the YAML that installs the module"}
	}
	blobs, manifest, err := r.pack(a)
	if err != nil {
		return "", &Error{Ref: ref.Name(), doing: "pushing", reason: InvalidDescriptor, err: err, problem: "packing failed: " + firstLine(err.Error())}
	}

	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	auth, err := authn.Resolve(ctx, r.opts.Keychain, p.Repository)
	if err != nil {
		return "", &Error{Ref: ref.Name(), doing: "pushing", reason: RegistryUnauthorized, err: err,
			problem: "finding the registry credentials failed: " + firstLine(err.Error())}
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuth(auth), remote.WithTransport(r.carrier(p))}
	for _, blob := range blobs {
		if err := remote.WriteLayer(p.Repository, blob, options...); err != nil {
			return "", failed("pushing", ref.Name(), err)
		}
	}
	if err := remote.Put(ref, manifest, options...); err != nil {
		return "", failed("pushing", ref.Name(), err)
	}
	key := componentKey(p, a.Version, r.opts.Trust.current())
	r.components.remove(key)
	r.failures.remove(key)
	return digestOf(manifest), nil
}

// rawManifest is an image manifest in the form that remote.Put takes.
type rawManifest []byte

// RawManifest returns the bytes to send.
func (m rawManifest) RawManifest() ([]byte, error) { return m, nil }

// MediaType says what they are.
func (m rawManifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// pack returns all blobs of a component version, and its manifest.
func (r *Registry) pack(a Archive) (blobs []v1.Layer, manifest rawManifest, err error) {
	var layers []v1.Descriptor
	add := func(data []byte, mediaType types.MediaType, resource string) v1.Descriptor {
		blobs = append(blobs, static.NewLayer(data, mediaType))
		hash, _ := v1.NewHash(digestOf(data)) // always well-formed
		d := v1.Descriptor{MediaType: mediaType, Size: int64(len(data)), Digest: hash}
		if resource != "" {
			note, _ := json.Marshal([]map[string]any{{"kind": "resource", "identity": map[string]string{"name": resource}}})
			d.Annotations = map[string]string{artifactAnnotation: string(note)}
		}
		return d
	}
	resources := []map[string]any{}
	for _, image := range a.Images {
		resources = append(resources, imageResource(image))
	}
	for _, f := range []struct {
		resource, file string
		data           []byte
	}{
		{"raw-manifest", path.Base(cmp.Or(a.ManifestFile, "raw-manifest.yaml")), a.RawManifest},
		{"default-cr", "default-cr.yaml", a.DefaultCR},
	} {
		if f.data == nil {
			continue
		}
		data, mediaType := f.data, types.MediaType(fileType)
		if a.Tar {
			if data, err = tarOf(f.file, 0o644, f.data); err != nil {
				return nil, nil, err
			}
			mediaType = tarType
		}
		d := add(data, mediaType, f.resource)
		layers = append(layers, d)
		resources = append(resources, map[string]any{
			"name": f.resource, "version": a.Version, "type": "directoryTree", "relation": "local",
			"access": map[string]any{"type": "localBlob", "localReference": d.Digest.String(), "mediaType": mediaType},
			"digest": map[string]any{"hashAlgorithm": "SHA-256", "normalisationAlgorithm": "genericBlobDigest/v1", "value": d.Digest.Hex},
		})
	}
	text, err := r.describe(a, resources)
	if err != nil {
		return nil, nil, err
	}
	if text, err = tarOf(descriptorFile, 0, text); err != nil {
		return nil, nil, err
	}
	descriptorLayer := add(text, descriptorType, "")
	config, _ := json.Marshal(map[string]any{"componentDescriptorLayer": map[string]any{
		"mediaType": descriptorLayer.MediaType, "digest": descriptorLayer.Digest, "size": descriptorLayer.Size}})
	raw, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config:      add(config, configType, ""),
		Layers:      append([]v1.Descriptor{descriptorLayer}, layers...),
		Annotations: map[string]string{"software.ocm.componentversion": a.Name + ":" + a.Version, "software.ocm.creator": "lifecycle-manager"},
	})
	return blobs, raw, err
}

// describe returns the component descriptor, schema v2.
func (r *Registry) describe(a Archive, resources []map[string]any) ([]byte, error) {
	provider, _ := json.Marshal(map[string]any{"name": cmp.Or(a.Provider, "kyma-project.io"), "labels": []map[string]string{
		{"name": "kyma-project.io/built-by", "value": "lifecycle-manager", "version": "v1"}}})
	home := map[string]any{"type": "OCIRegistry", "componentNameMapping": "urlPath", "baseUrl": a.RepositoryContext}
	if a.RepositoryContext == "" {
		scheme := "https://"
		if r.plain {
			scheme = "http://"
		}
		home["baseUrl"] = scheme + r.host
		if _, sub, ok := strings.Cut(r.base, "/"); ok {
			home["subPath"] = sub
		}
	}
	component := map[string]any{
		"name": a.Name, "version": a.Version, "provider": string(provider), "componentReferences": []any{}, "sources": []any{},
		"repositoryContexts": []any{home}, "resources": resources,
	}
	labels := []map[string]any{}
	for _, l := range a.Labels {
		labels = append(labels, map[string]any{"name": l.Name, "value": l.Value, "version": "v1"})
	}
	if len(labels) > 0 {
		component["labels"] = labels
	}
	return yaml.Marshal(map[string]any{"meta": map[string]any{"schemaVersion": "v2"}, "component": component})
}

// tarOf returns a tar archive of one file, always with the same bytes. It fails if the name is too long for the format.
func tarOf(file string, mode int64, data []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: file, Mode: mode, Size: int64(len(data)), Typeflag: tar.TypeReg,
		Format: tar.FormatUSTAR, ModTime: time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err == nil {
		_, err = w.Write(data)
	}
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

var (
	semver  = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	foreign = regexp.MustCompile(`[^A-Za-z0-9.-]`)
)

// imageResource describes an image as a resource. Name and version are made from the reference as modulectl makes them.
func imageResource(image string) map[string]any {
	rest, digest, _ := strings.Cut(image, "@")
	name, tag, _ := strings.Cut(path.Base(rest), ":")
	version := tag
	if !semver.MatchString(tag) {
		version = "0.0.0"
		if clean := strings.Trim(foreign.ReplaceAllString(tag, "-"), "-."); clean != "" {
			version += "-" + clean
		} else if digest == "" {
			version += "-unknown"
		}
	}
	if _, hex, ok := strings.Cut(digest, ":"); ok {
		name += "-" + hex[:min(8, len(hex))]
		version += "+sha256." + hex[:min(12, len(hex))]
	}
	return map[string]any{
		"name": name, "version": version, "type": "ociArtifact", "relation": "external",
		"labels": []map[string]string{{"name": "scan.security.kyma-project.io/type", "value": "third-party-image", "version": "v1"}},
		"access": map[string]any{"type": "ociArtifact", "imageReference": image},
	}
}
