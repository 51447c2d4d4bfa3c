// Package render turns the artefact of a module into a Bundle: the objects to apply, each encoded once. An artefact is a set of
// manifests, a Helm chart or a Kustomize directory; which one, its content says.
//
//	artefact, err := render.Load(layer, render.Limits{}) // or Open(root.FS(), render.Limits{}) for a folder
//	settings := render.Settings{Release: "redis", Namespace: "cache", Set: []string{"replica.count=2"}}
//	options := render.Options{Labels: …, Images: …, Digest: settings.Digest(artefact.Digest(), artefact.Asks(settings))}
//	bundle, err := cache.Get(ctx, options.BundleDigest(), func() (*render.Bundle, error) { return artefact.Bundle(ctx, settings, options) })
//	for _, o := range bundle.Objects {
//		body = o.AppendJSON(body[:0], namespace, overlay)
//	}
//
// Read, Parse and Build are the parts of it for who has manifests only.
//
// # How it works
//
// Load and Open recognise what there is and unpack it in memory under Limits; nothing is ever written to a disk. Parse decodes
// the stream of documents into object trees: numbers keep their kind and every digit, duplicate keys are refused, aliases are
// bounded, Lists are flattened, and every error names document, line and object. Build decides everything that is the same for all
// runtimes (labels, annotations, images, pull secret), encodes each object once and drops the trees. What differs by runtime, the
// namespace of an object that names none and an Overlay of labels and annotations, is put in by Object.AppendJSON, which copies
// bytes and allocates nothing but room in the caller's slice.
//
// A Bundle is immutable and safe for concurrent use, so all runtimes that want the same module version with the same
// configuration share one; a Cache keeps them. The same input always gives the same bytes and the same digest. The digest is that
// of artefact, Settings, Options and of what the cluster answers to the questions of Artefact.Asks; whoever remembers these
// knows the digest without the artefact, and without rendering.
//
// # Charts and Kustomize directories
//
// Package helm renders charts and lists what of Helm is supported; package kustomize does so for Kustomize directories. Package
// input unpacks and decodes what both and this package read. Everything that a caller needs of them has a name here.
//
// # Time and memory
//
// Files are bounded by Limits, with subcharts in archives counted in; what a template may count to or repeat is bounded.
// Templates end when ctx does, with reason RenderTimeout: each round of a loop and each template that is included looks. Two
// things cannot be interrupted: a loop in a text that a chart hands to tpl, and Kustomize, which has no loops.
//
// # What it does not do
//
// It knows no cluster: which kinds are namespaced, what order to apply in and what is already there are questions to
// package apply. It fetches nothing. Manifests are not templated: an object arrives as the artefact has it, but for the rules of
// Options, and but for what only an API server may set. Build leaves out status and, of the metadata, creationTimestamp,
// deletionGracePeriodSeconds, deletionTimestamp, generation, managedFields, ownerReferences (they point to UIDs of another cluster;
// its garbage collector would delete the object), resourceVersion, selfLink and uid.
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

// Bundle is the rendered content of one module version with one configuration. It must not be changed.
type Bundle struct {
	// Digest identifies artefact and Options together, as "sha256:<hex>". It is Options.BundleDigest where Options names
	// the artefact's digest, and computed from the objects where it does not.
	Digest string
	// Objects in the order of the artefact.
	Objects []*Object
	// LeftOut says, one sentence each, what the artefact holds and the bundle does not: hooks, answers to lookup. It is for people.
	LeftOut []string
}

// Size is the length of all encoded objects in bytes.
func (b *Bundle) Size() int {
	size := 0
	for _, o := range b.Objects {
		size += o.Size()
	}
	return size
}

// Options says what Build changes in the objects of an artefact. The zero value changes nothing.
type Options struct {
	// Labels and Annotations are put on the metadata of every object (not on pod templates), over what it has.
	Labels, Annotations map[string]string
	// Images replace equal images in Deployments and StatefulSets: container and init container images, and environment
	// values that are images, become the first reference of this list with the same last path segment and the same tag.
	Images []string
	// PullSecret is added to imagePullSecrets of every Deployment and StatefulSet, and given to the containers of the
	// manager as environment variable SKR_IMG_PULL_SECRET. Empty means neither.
	PullSecret string
	// Manager is the workload that counts as the manager for PullSecret; nil means every Deployment and StatefulSet.
	Manager *Manager
	// Digest is the digest of the artefact that the objects came from. Empty means the bundle's digest is computed from the objects.
	Digest string
}

// Manager names the workload that runs a module's operator.
type Manager struct {
	Group, Version, Kind string
	// Namespace of the workload; empty matches any.
	Namespace string
	Name      string
}

// BundleDigest returns the digest that Build will give to the bundle of these options, without the artefact. It is empty
// if Digest is, because it then depends on the objects.
func (o Options) BundleDigest() string {
	if o.Digest == "" {
		return ""
	}
	return o.digest(o.Digest)
}

// digest hashes the options together with what identifies the content. Each value is quoted, so that no two different
// lists give the same text.
func (o Options) digest(content string) string {
	sum := sha256.New()
	input.Hash(sum, input.EncodingVersion, content, o.PullSecret)
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
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Build renders objects, which it does not change, into a Bundle. Objects with one identity (group, kind, namespace and
// name) become one if they are equal; the first keeps its place.
//
// Errors are of type *Error with reason InvalidObject, DuplicateObject or InvalidImage, and name the object.
func Build(objects []*unstructured.Unstructured, opts Options) (*Bundle, error) {
	images, err := parseTargets(opts.Images)
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
		object, err := newObject(in.Object, opts)
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
	if bundle.Digest = opts.BundleDigest(); bundle.Digest == "" {
		bundle.Digest = opts.digest(hex.EncodeToString(content.Sum(nil)))
	}
	return bundle, nil
}
