// Package author is what the author of a module works with: from a module-config file to a component version, and from one place to
// another.
//
//	m, err := author.Build(ctx, author.Source{File: "module-config.yaml"})
//	for _, f := range m.Findings { … }                              // what is wrong, and what should be known
//	made, err := registry.Pack(m.Archive())                         // the same input gives the same digest
//	err = author.Save(ctx, "sample.ctf", made)                      // a Common Transport Format archive
//	findings, err := m.Lint(ctx, previous)                          // against the version before
//	report, err := author.Trial{…}.Run(ctx)                         // on a cluster: install, upgrade, uninstall
//	copied, err := author.Copy(ctx, from, to, author.Copying{Images: true})
//
// # How it works
//
// A config is read strictly: a key that is not known is an error with its line, and all errors are told at once. The manifest may be a file, a
// chart or a Kustomize directory; what package render makes of it becomes one file, since that is what every reader of modules can take.
// Images are found in it as the component descriptor has to name them.
//
// A place is an archive or a registry, see [Open]. An archive is asked by the same client as a registry: it answers the client's requests
// itself, see [Archive.RoundTrip]. So there is one way to read, to verify and to copy. Large blobs of an archive, such as layers of images, are never
// in memory as a whole.
//
// [Copy] brings images along under names that follow from those that they had. Manifests are not rewritten for that: the descriptor names images where
// they are, and whoever installs puts these names into workloads. What is left is told.
//
// [Preview] renders all layers of a version as the manager does, see [Installation], and asks an API server for a dry run.
//
// # What it does not do
//
// It changes nothing in a cluster but for a Trial, builds no images, copies no signatures of images, and follows no component references.
package author
