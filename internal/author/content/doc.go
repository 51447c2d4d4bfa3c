// Package content reads what a component version contains: the parts that the manager installs, and the images that
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
// [Load] returns one [Part] for each layer that is installed, in the order of installation: crds, then raw-manifest.
// Each part is rendered by package render with the settings that the config layer has for it, as the manager does.
// [ImagesOf] reads the images of all containers, and of environment variables whose name or value marks an image.
// A [Finding] is a note to the module author about one file or object.
//
// # What it does not do
//
// It applies nothing to a cluster, and it does not verify signatures: the registry client does.
package content
