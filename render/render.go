// Package render renders the artefact of a module to a Bundle: the objects to apply, each encoded once. An artefact is
// a set of manifests, a Helm chart or a Kustomize directory, which is detected by its content.
//
//	artefact, err := render.Load(layer, render.Limits{}) // or LoadFolder(root.FS(), render.Limits{})
//	settings := render.Settings{Release: "redis", Namespace: "cache", Set: []string{"replica.count=2"}}
//	queries := artefact.CapabilityQueries(settings)
//	options := render.Options{Labels: …, Images: …, Digest: settings.Digest(artefact.Digest(), queries)}
//	bundle, err := cache.Get(ctx, options.BundleDigest(), func() (*render.Bundle, error) {
//		return artefact.Render(ctx, settings, options)
//	})
//	for _, o := range bundle.Objects {
//		body = o.AppendJSON(body[:0], namespace, overlay)
//	}
//
// ReadManifests, Parse and Build are the steps for callers that have manifests only.
//
// # How it works
//
// Load and LoadFolder detect the kind of artefact and unpack it in memory under Limits; nothing is ever written to a
// disk. Parse decodes the stream of documents into object trees: numbers keep their type and every digit, duplicate
// keys are refused, aliases are limited, Lists are flattened, and every error names document, line and object. Build
// makes all changes that are the same for all runtimes (labels, annotations, images, pull secret) and encodes each
// object once. What differs by runtime, the namespace of an object without one and an Overlay of labels and
// annotations, is added by Object.AppendJSON, which copies bytes and allocates nothing but space in the caller's slice.
//
// A Bundle is immutable and safe for concurrent use, so all runtimes with the same module version and the same
// configuration share one; a Cache stores them. The same input always results in the same bytes and the same digest.
// The digest is that of artefact, Settings, Options and of the cluster's answers to Artefact.CapabilityQueries. A
// caller that stores these can compute the digest without the artefact, and without rendering.
//
// # Charts and Kustomize directories
//
// Package helm renders charts and lists what of Helm is supported; package kustomize does so for Kustomize directories.
// Package input unpacks and decodes what both and this package read. Everything that a caller needs of them has a name
// here.
//
// # Time and memory
//
// Files are limited by Limits, including subcharts in archives. The functions of templates that count or repeat are
// limited, too. Templates stop when ctx ends, with reason RenderTimeout: it is checked in each iteration of a loop and
// each included template. Two parts cannot be interrupted: a loop in a text that a chart passes to tpl, and Kustomize,
// which has no loops.
//
// # What it does not do
//
// It does not access a cluster: which kinds are namespaced, the order of applying and which objects exist are left to
// package apply. It fetches nothing. Manifests are not templated: an object is as in the artefact, except for the rules
// of Options, and without what only an API server may set. Build leaves out status and, of the metadata,
// creationTimestamp, deletionGracePeriodSeconds, deletionTimestamp, generation, managedFields, ownerReferences (they
// point to UIDs of another cluster; its garbage collector would delete the object), resourceVersion, selfLink and uid.
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
	// Digest identifies artefact and Options together, as "sha256:<hex>". It is Options.BundleDigest if Options has the
	// digest of the artefact, else computed from the objects.
	Digest string
	// Objects in the order of the artefact.
	Objects []*Object
	// LeftOut names, one sentence each, what the artefact contains and the bundle does not: hooks, results of lookup.
	// It is for people.
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

// Options defines what Build changes in the objects of an artefact. The zero value changes nothing.
type Options struct {
	// Labels and Annotations are set in the metadata of every object (not of pod templates) and override its own.
	Labels, Annotations map[string]string
	// Images replace equal images in Deployments and StatefulSets: container and init container images, and environment
	// values that are images, become the first reference of this list with the same last path segment and the same tag.
	Images []string
	// PullSecret is added to imagePullSecrets of every Deployment and StatefulSet, and passed to the containers of the
	// manager as environment variable SKR_IMG_PULL_SECRET. Empty: neither.
	PullSecret string
	// Manager is the workload that is the manager for PullSecret; nil means every Deployment and StatefulSet.
	Manager *Manager
	// Digest is the digest of the artefact that the objects came from. Empty means the bundle's digest is computed from
	// the objects.
	Digest string
}

// Manager identifies the workload that runs a module's operator.
type Manager struct {
	Group, Version, Kind string
	// Namespace of the workload; empty matches any.
	Namespace string
	Name      string
}

// BundleDigest returns the digest that Build will give to the bundle of these options, without the artefact. It is
// empty if Digest is, because it then depends on the objects.
func (o Options) BundleDigest() string {
	if o.Digest == "" {
		return ""
	}
	return o.digest(o.Digest)
}

// digest returns the digest of the options and the digest of the content.
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
