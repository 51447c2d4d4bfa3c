package ocm

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media types of component versions.
const (
	// ConfigType is the media type of the configuration of a component version.
	ConfigType     = "application/vnd.ocm.software.component.config.v1+json"
	descriptorType = "application/vnd.ocm.software.component-descriptor.v2+yaml+tar"
	tarType        = "application/x-tar"
	fileType       = "application/octet-stream"
)

// Archive is the input from which a component version is made: the content of a module and its metadata.
type Archive struct {
	// Name and Version are the name and the version of the component. Name and Version are required.
	Name, Version string
	// Provider is the provider of the component; empty means kyma-project.io.
	Provider string
	// Labels are the labels of the component. The descriptor contains the labels in the order of the list Labels.
	Labels []Label
	// RawManifest is the YAML with the objects of the module. RawManifest is required.
	RawManifest []byte
	// Tar states whether the layers that contain RawManifest and DefaultCR are tar archives. If Tar is true, each of
	// the two layers is a tar archive with one file, as in modulectl. If Tar is false, each of the two layers is the
	// file itself.
	Tar bool
	// ManifestFile is the name of RawManifest in its archive; empty means raw-manifest.yaml.
	ManifestFile string
	// DefaultCR is the YAML of the module's default custom resource; nil means that the module has none.
	DefaultCR []byte
	// DefaultCRFile is the name of DefaultCR in its archive; empty means default-cr.yaml.
	DefaultCRFile string
	// Template is the YAML of the ModuleTemplate, which is added as a file; nil means that it is not added.
	Template []byte
	// Images are the references of the images that the module uses. The component gets one resource for each image, in
	// the order of the list.
	Images []string
	// Source is the location of the module's source code; nil means that the component has no source.
	Source *Source
	// RepositoryContext is the base URL of the registry that [Pack] writes to the descriptor. If RepositoryContext is
	// empty, [Pack] writes no URL, and Registry.Push writes the URL of its registry.
	RepositoryContext string
}

// Source is a commit in a Git repository.
type Source struct {
	// Repository is the URL of the Git repository. Commit is the full hash of the commit.
	Repository, Commit string
}

// Label is a label of a component.
type Label struct {
	Name string
	// Value is any value that can be encoded as JSON.
	Value any
}

// Pack makes a component version from an archive. Errors are of type *Error with reason InvalidDescriptor.
func Pack(a Archive) (*Artifact, error) { return PackAt(a, RepositoryContext(a.RepositoryContext)) }

// PackAt makes a component version from an archive. repositoryContext is nil if there is no repository context.
func PackAt(a Archive, repositoryContext map[string]any) (*Artifact, error) {
	out := &Artifact{Repository: DescriptorRepository(a.Name), Tag: TagOf(a.Version), Blobs: map[string][]byte{}}
	failed := func(err error) (*Artifact, error) {
		return nil, &Error{Ref: a.Name + ":" + a.Version, Doing: "packing", Code: InvalidDescriptor, Cause: err,
			Problem: FirstLine(err.Error())}
	}
	if len(a.RawManifest) == 0 {
		return failed(errors.New("the raw manifest is missing: provide the YAML that installs the module"))
	}
	var layers []v1.Descriptor
	resources := []map[string]any{}
	for _, image := range a.Images {
		resources = append(resources, imageResource(image))
	}
	makeNameAndVersionUnique(resources)
	for _, f := range []struct {
		resource, kind, file string
		data                 []byte
	}{
		{"raw-manifest", "directoryTree", path.Base(cmp.Or(a.ManifestFile, "raw-manifest.yaml")), a.RawManifest},
		{"default-cr", "directoryTree", path.Base(cmp.Or(a.DefaultCRFile, "default-cr.yaml")), a.DefaultCR},
		{"moduletemplate", "PlainText", "", a.Template},
	} {
		if f.data == nil {
			continue
		}
		data, mediaType := f.data, types.MediaType(fileType)
		if a.Tar && f.file != "" {
			var err error
			if data, err = TarFile(f.file, 0o644, f.data); err != nil {
				return failed(err)
			}
			mediaType = tarType
		}
		d := out.AddBlob(data, mediaType)
		note, _ := json.Marshal(
			[]map[string]any{{"kind": "resource", "identity": map[string]string{"name": f.resource}}})
		d.Annotations = map[string]string{artifactAnnotation: string(note)}
		layers = append(layers, d)
		resources = append(resources, map[string]any{
			"name": f.resource, "version": a.Version, "type": f.kind, "relation": "local",
			"access": map[string]any{"type": "localBlob", "localReference": d.Digest.String(), "mediaType": mediaType},
			"digest": map[string]any{"hashAlgorithm": "SHA-256", "normalisationAlgorithm": GenericBlobDigest,
				"value": d.Digest.Hex},
		})
	}
	if err := out.setContent(buildDescriptor(a, repositoryContext, resources), layers, map[string]string{
		"software.ocm.componentversion": a.Name + ":" + a.Version, "software.ocm.creator": "lifecycle-manager",
	}); err != nil {
		return failed(err)
	}
	return out, nil
}

// buildDescriptor returns a component descriptor with schema v2.
func buildDescriptor(a Archive, repositoryContext map[string]any, resources []map[string]any) map[string]any {
	provider, _ := json.Marshal(map[string]any{"name": cmp.Or(a.Provider, "kyma-project.io"),
		"labels": []map[string]string{
			{"name": "kyma-project.io/built-by", "value": "lifecycle-manager", "version": "v1"}}})
	component := map[string]any{
		"name": a.Name, "version": a.Version, "provider": string(provider),
		"componentReferences": []any{}, "sources": []any{},
		"repositoryContexts": []any{}, "resources": resources,
	}
	if repositoryContext != nil {
		component["repositoryContexts"] = []any{repositoryContext}
	}
	if s := a.Source; s != nil {
		component["sources"] = []any{map[string]any{"name": "module-sources", "type": "Github", "version": a.Version,
			"access": map[string]any{"type": "gitHub", "repoUrl": s.Repository, "commit": s.Commit}}}
	}
	labels := []map[string]any{}
	for _, l := range a.Labels {
		labels = append(labels, map[string]any{"name": l.Name, "value": l.Value, "version": "v1"})
	}
	if len(labels) > 0 {
		component["labels"] = labels
	}
	return map[string]any{"meta": map[string]any{"schemaVersion": "v2"}, "component": component}
}

// RepositoryContext returns a repository context that has the given base URL. If the URL is empty, RepositoryContext
// returns nil.
func RepositoryContext(url string) map[string]any {
	if url == "" {
		return nil
	}
	return map[string]any{"type": "OCIRegistry", "componentNameMapping": "urlPath", "baseUrl": url}
}

// TarFile returns a tar archive with one file. Equal input gives equal bytes. If the name is too long for the tar
// format, TarFile returns an error.
func TarFile(file string, mode int64, data []byte) ([]byte, error) {
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
	// VersionForm matches the versions of components.
	VersionForm = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	foreign     = regexp.MustCompile(`[^A-Za-z0-9.-]`)
)

// imageResource returns the resource of the component descriptor that describes an image. Like modulectl, imageResource
// takes the name and the version of this resource from the image reference.
func imageResource(image string) map[string]any {
	rest, digest, _ := strings.Cut(image, "@")
	name, tag, _ := strings.Cut(path.Base(rest), ":")
	version := tag
	if !VersionForm.MatchString(tag) {
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
		"labels": []map[string]string{{"name": "scan.security.kyma-project.io/type",
			"value": "third-party-image", "version": "v1"}},
		"access": map[string]any{"type": "ociArtifact", "imageReference": image},
	}
}

// makeNameAndVersionUnique changes the names of image resources that have the same name and version: to each of these
// names except the first, makeNameAndVersionUnique appends the first eight characters of a hash of the image reference.
func makeNameAndVersionUnique(images []map[string]any) {
	seen := map[string]bool{}
	for _, i := range images {
		name := i["name"].(string)
		if key := name + " " + i["version"].(string); !seen[key] {
			seen[key] = true
			continue
		}
		reference := i["access"].(map[string]any)["imageReference"].(string)
		i["name"] = name + "-" + strings.TrimPrefix(DigestOf([]byte(reference)), "sha256:")[:8]
	}
}
