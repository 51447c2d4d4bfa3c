// Package ocm knows the format of component versions of the Open Component Model: component descriptors, and the OCI
// artefacts that carry them. It works in memory only.
//
//	a, err := ocm.Pack(ocm.Archive{Name: name, Version: version, RawManifest: yaml}) // a new component version
//	changed, err := a.Edit(func(descriptor map[string]any) error { … })
//	images, err := a.Images()
//	d, err := ocm.ParseDescriptor(text, ref)
//	signedBytes, err := ocm.Normalise(d, algorithm)
//
// # How it works
//
// An [Artifact] is an OCI manifest with all its blobs, byte for byte. The config of a component version names the layer
// with the component descriptor; the other layers are the local resources. [Pack] sets fixed times, so equal input
// gives an equal digest.
//
// A [Descriptor] is parsed from schema v2 or v3 into one form. What is installed and what a signature covers
// ([Normalise]) are read from the same parsed value, so no spelling of the text can make the two differ.
//
// An [Error] has a stable reason, such as [ArtifactNotFound], and one line of text without credentials. All packages
// that read or write artefacts return it.
//
// # What it does not do
//
// It sends no requests (package registry does), verifies and makes no signatures (package trust does), does not
// interpret the content of layers (package render does), and follows no component references.
package ocm
