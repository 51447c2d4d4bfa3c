// Package author builds and checks modules for module authors: it turns a module-config file into a component version.
//
//	m, err := author.Build(ctx, author.Source{File: "module-config.yaml"})
//	for _, f := range m.Findings { … }                          // errors and notes about the config and the manifest
//	made, err := registry.Pack(m.Archive())                     // equal input gives an equal digest
//	previous, err := author.Load(ctx, place)                    // a released version, from a registry or an archive
//	findings := m.Lint(previous)                                // checks the module and the upgrade from previous
//
// The packages below it: [content] reads what a component version contains, [storage] keeps component versions in
// archives and registries and copies and signs them, [trial] tries a module on a cluster and previews changes.
//
// # How it works
//
// The config is parsed strictly: an unknown key is an error with its line, and all errors are returned together. The
// manifest may be a YAML file, a Helm chart or a Kustomize directory; package render turns each of them into one YAML
// file, because every client of module artefacts can read that. The images in that file become resources of the
// component descriptor.
//
// Lint compares the module with the rules for modules, and its CRDs and objects with those of the previous version.
//
// # What it does not do
//
// It connects to no cluster and to no registry except in Load, builds no images, and follows no component references.
//
// [content]: github.com/kyma-fleet/lifecycle-manager/internal/author/content
// [storage]: github.com/kyma-fleet/lifecycle-manager/internal/author/storage
// [trial]: github.com/kyma-fleet/lifecycle-manager/internal/author/trial
package author
