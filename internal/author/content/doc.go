// Package content reads the content of a component version: the parts that the manager installs, and the images that
// their objects use.
//
//	i, err := content.Load(ctx, registry, "kyma-project.io/module/btp-operator", "1.4.0")
//	for _, part := range i.Parts {
//		bundle, err := part.Bundle(ctx, options, capabilities) // the objects of one layer
//	}
//	images, findings := content.ImagesOf(objects)
//
// # How it works
//
// [Load] returns one [Part] for each layer that the manager installs, in the order of installation: crds first, then
// raw-manifest. As in the manager, package render renders each part, with the settings in the layer config of the
// component version. [ImagesOf] returns the images of all containers, and the images in environment variables. An
// environment variable counts if its name or its value identifies an image. A [Finding] is a note to the module author
// about one file or object.
//
// # What it does not do
//
// The package does not apply objects to a cluster. The package does not verify signatures, because the registry client
// verifies signatures.
package content
