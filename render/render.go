// Package render renders the artefact of a module to a Bundle, which contains the objects to apply, each encoded once.
// An artefact is a set of manifests, a Helm chart or a Kustomize directory. The files of an artefact show whether it is
// a chart, a Kustomize directory or a set of manifests, so callers need not say so.
//
//	artefact, err := render.Load(layer, render.Limits{}) // or LoadFolder(root.FS(), render.Limits{})
//	settings := render.Settings{Release: "redis", Namespace: "cache", Set: []string{"replica.count=2"}}
//	queries := artefact.CapabilityQueries(settings)
//	options := render.Options{Labels: …, Images: …, Digest: settings.Digest(artefact.Digest(), queries)}
//	bundle, err := cache.Get(ctx, options.ResultingBundleDigest(), func() (*render.Bundle, error) {
//		return artefact.Render(ctx, settings, options)
//	})
//	for _, o := range bundle.Objects {
//		body = o.AppendJSON(body[:0], namespace, overlay)
//	}
//
// Callers that have only manifests can call the single steps ReadManifests, Parse and Build.
//
// # How it works
//
// Load and LoadFolder detect the kind of the artefact and unpack the artefact in memory. Limits is the maximum size of
// the unpacked artefact. Nothing is written to a disk. Parse decodes the stream of YAML documents into object trees.
// Numbers keep their type and every digit, duplicate keys are refused, aliases are limited, and a List is replaced by
// its items. Every error contains the document, the line and the object. Build makes all changes that are the same for
// all runtimes (labels, annotations, images, pull secret), and encodes each object once. Object.AppendJSON adds the
// parts that differ between runtimes: the namespace of an object without a namespace, and an Overlay of labels and
// annotations. Object.AppendJSON copies bytes and allocates only space in the caller's slice.
//
// A Bundle is immutable and safe for concurrent use. Therefore all runtimes with the same module version and the same
// configuration share one Bundle. A Cache stores Bundles. The same input always results in the same bytes and the same
// digest. The digest is computed from four inputs: the artefact, Settings, Options and the cluster's answers to
// Artefact.CapabilityQueries. For the artefact, only its digest is needed. A caller can therefore compute the digest of
// a Bundle without the artefact and without rendering.
//
// # Charts and Kustomize directories
//
// Package helm renders charts, and its package comment lists the supported features of Helm. Package kustomize builds
// Kustomize directories, and its package comment lists the supported features of Kustomize. Package input unpacks and
// decodes the content of artefacts for the packages helm, kustomize and render. Package render has an alias for every
// name of packages helm, kustomize and input that a caller needs.
//
// # Time and memory
//
// Limits applies to the total size of all files, including subcharts in archives. The time and memory of a template can
// be limited only from outside of the process: with WithRunner, charts and Kustomize directories are rendered in
// another process, and package process sets the limits. Without a Runner, the caller must trust the artefact. Without a
// Runner, there are only weaker limits: some template functions limit the size of their results, and ctx is checked in
// each iteration of a loop and in each included template. In spite of these limits, a template can use up all memory,
// or end the process by an endless recursion.
//
// # What it does not do
//
// The package does not access a cluster. Package apply finds out from the cluster which kinds are namespaced and which
// objects exist, and chooses the order in which objects are applied. The package does not download anything. Manifests
// are not templates: the package does not change an object, except for the changes in Options and for fields that only
// an API server may set. Build removes the status of an object, and these fields of its metadata: creationTimestamp,
// deletionGracePeriodSeconds, deletionTimestamp, generation, managedFields, ownerReferences, resourceVersion, selfLink
// and uid. An owner reference would contain a UID of another cluster, so the garbage collector of the runtime would
// delete the object.
package render

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// Bundle is the rendered content of one module version with one configuration. A Bundle must not be changed.
type Bundle struct {
	// Digest identifies the artefact and the Options together, as "sha256:<hex>". If Options.Digest is set, Digest is
	// Options.ResultingBundleDigest. If Options.Digest is empty, Digest is computed from the objects.
	Digest string
	// Objects are the rendered objects, in the order of the artefact.
	Objects []*Object
	// LeftOut lists the content of the artefact that is not in the bundle, for example hooks and results of lookup.
	// Each item of LeftOut is one sentence for a human reader.
	LeftOut []string
}

// EncodedBytes is the length of all encoded objects in bytes.
func (b *Bundle) EncodedBytes() int {
	size := 0
	for _, o := range b.Objects {
		size += o.Size()
	}
	return size
}

// Options defines what Build changes in the objects of an artefact. With the zero value of Options, Build does not add
// or replace anything.
type Options struct {
	// Labels and Annotations are set in the metadata of every object, but not in pod templates. Labels and Annotations
	// override those of the object.
	Labels, Annotations map[string]string
	// Images are the references that replace images in Deployments and StatefulSets. The images of containers and init
	// containers are replaced, and also images in the values of environment variables. An image is replaced by the
	// first reference in Images that has the same last path segment and the same tag.
	Images []string
	// PullSecret is the name of a Secret with the credentials to pull images. PullSecret is added to imagePullSecrets
	// of every Deployment and StatefulSet. In the containers of the module's manager, the environment variable
	// SKR_IMG_PULL_SECRET is set to the name of the PullSecret. If PullSecret is empty, neither the field
	// imagePullSecrets nor the environment variable SKR_IMG_PULL_SECRET is changed.
	PullSecret string
	// Manager identifies the workload in whose containers the environment variable SKR_IMG_PULL_SECRET is set. If
	// Manager is nil, every Deployment and StatefulSet counts as a manager.
	Manager *Manager
	// Injection replaces the data of Secrets that have the annotation Injection.Annotation. If Injection is nil,
	// Secrets with any annotation are treated like all other objects.
	Injection *Injection
	// Digest is the digest of the artefact that contains the objects. If Digest is empty, the digest of the bundle is
	// computed from the objects.
	Digest string
}

// Manager identifies the workload that runs a module's operator.
type Manager struct {
	Group, Version, Kind string
	// Namespace is the namespace of the workload. An empty Namespace matches every namespace.
	Namespace string
	Name      string
}

// ResultingBundleDigest returns the digest of the Bundle that Build creates with the Options o. ResultingBundleDigest
// does not need the artefact. If o.Digest is empty, ResultingBundleDigest returns "", because the digest of the Bundle
// is then computed from the objects.
func (o Options) ResultingBundleDigest() string {
	if o.Digest == "" {
		return ""
	}
	return o.digest(o.Digest)
}

// digest returns one digest of the Options and the content of the bundle. The parameter contentDigest is the digest of
// the artefact or of the objects.
func (o Options) digest(contentDigest string) string {
	sum := sha256.New()
	input.Hash(sum, input.EncodingVersion, contentDigest, o.PullSecret)
	for _, set := range []map[string]string{o.Labels, o.Annotations} {
		input.Hash(sum, strconv.Itoa(len(set)))
		for _, key := range slices.Sorted(maps.Keys(set)) {
			input.Hash(sum, key, set[key])
		}
	}
	input.Hash(sum, strconv.Itoa(len(o.Images)))
	input.Hash(sum, o.Images...)
	if m := o.Manager; m != nil && o.PullSecret != "" {
		input.Hash(sum, m.Group, m.Version, m.Kind, m.Namespace, m.Name)
	}
	input.Hash(sum, o.Injection.digestInputs()...)
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Build renders objects to a Bundle. Build does not change the objects passed to it. Objects with the same identity
// (group, kind, namespace and name) must be equal; the Bundle contains only the first of them.
//
// Errors are of type *Error with reason InvalidObject, DuplicateObject, InvalidImage or InjectionFailed, and name the
// object.
func Build(objects []*unstructured.Unstructured, opts Options) (*Bundle, error) {
	images, err := parseLocalizedImages(opts.Images)
	if err != nil {
		return nil, err
	}
	type id struct {
		schema.GroupKind
		namespace, name string
	}
	seen := make(map[id]*Object, len(objects))
	bundle := &Bundle{Objects: make([]*Object, 0, len(objects))}
	content := sha256.New()
	for _, in := range objects {
		if err := input.ValidateObject(in.Object); err != nil {
			return nil, err
		}
		in, err := customizeWorkload(in, images, opts)
		if err != nil {
			return nil, err
		}
		in, ignored, err := opts.Injection.replaceMarkedSecretData(in)
		if err != nil {
			return nil, err
		}
		if ignored != "" {
			bundle.LeftOut = append(bundle.LeftOut, ignored)
		}
		object, err := encodeObject(in.Object, opts)
		if err != nil {
			return nil, err
		}
		key := id{object.GVK.GroupKind(), object.Namespace, object.Name}
		if first, ok := seen[key]; ok {
			if first.digest != object.digest {
				return nil, &Error{Code: DuplicateObject, Object: input.Describe(in.Object),
					Problem: "the artefact holds it more than once with different content: keep one"}
			}
			continue
		}
		seen[key] = object
		bundle.Objects = append(bundle.Objects, object)
		input.Hash(content, object.digest, object.Namespace)
	}
	if bundle.Digest = opts.ResultingBundleDigest(); bundle.Digest == "" {
		bundle.Digest = opts.digest(hex.EncodeToString(content.Sum(nil)))
	}
	return bundle, nil
}
