// Package ocm reads and writes the format of component versions of the Open Component Model: component descriptors, and
// the OCI artefacts that contain them. The package works only in memory.
//
//	a, err := ocm.Pack(ocm.Archive{Name: name, Version: version, RawManifest: yaml}) // a new component version
//	changed, err := a.WithEditedDescriptor(func(descriptor map[string]any) error { … })
//	images, err := a.Images()
//	d, err := ocm.ParseDescriptor(text, ref)
//	signedBytes, err := ocm.Normalise(d, algorithm)
//
// # How it works
//
// An [Artifact] is an OCI manifest with all its blobs, byte for byte. The config of a component version refers to the
// layer with the component descriptor. All layers except the component descriptor are the local resources of the
// component. [Pack] sets fixed times, so that equal input gives an equal digest.
//
// A [Descriptor] is the parsed form of schema v2 and of schema v3. The installation of a component and the verification
// of its signatures ([Normalise]) use the same parsed Descriptor. Because descriptors have only one parser, an attacker
// cannot write a descriptor that is read in one way for the signature and in another way for the installation.
//
// An [Error] has a reason code, such as [ArtifactNotFound], and one line of text without credentials. All packages of
// Lifecycle Manager that read or write OCI artefacts return errors of type Error.
//
// # What it does not do
//
// The package sends no requests; package registry sends them. The package neither creates nor verifies signatures;
// package trust does both. The package does not interpret the content of layers; package render does that. The package
// does not follow component references.
package ocm
