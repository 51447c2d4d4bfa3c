// Package ocm reads and writes the format of component versions of the Open Component Model: component descriptors, and
// the OCI artefacts that contain them. The package works in memory only.
//
//	a, err := ocm.Pack(ocm.Archive{Name: name, Version: version, RawManifest: yaml}) // a new component version
//	changed, err := a.Edit(func(descriptor map[string]any) error { … })
//	images, err := a.Images()
//	d, err := ocm.ParseDescriptor(text, ref)
//	signedBytes, err := ocm.Normalise(d, algorithm)
//
// # How it works
//
// An [Artifact] is an OCI manifest with all its blobs, byte for byte. The config of a component version references the
// layer with the component descriptor. The other layers are the local resources. [Pack] sets fixed times, so that equal
// input results in an equal digest.
//
// A [Descriptor] is the parsed form of schema v2 and of schema v3. The installation and the verification of signatures
// ([Normalise]) read the same parsed value. Therefore no spelling of the text can cause a difference between the
// installed content and the signed content.
//
// An [Error] has a stable reason, such as [ArtifactNotFound], and one line of text without credentials. All packages
// that read or write artefacts return this type.
//
// # What it does not do
//
// The package does not send requests; package registry does. The package does not create or verify signatures; package
// trust does. The package does not interpret the content of layers; package render does. The package does not follow
// component references.
package ocm
