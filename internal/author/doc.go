// Package author builds and checks modules for module authors. The package converts a module-config file into a
// component version.
//
//	m, err := author.Build(ctx, author.Source{File: "module-config.yaml"})
//	for _, f := range m.Findings { … }                          // warnings and notes about the config and the manifest
//	made, err := registry.Pack(m.Archive())                     // equal input results in an equal digest
//	previous, err := author.Load(ctx, place)                    // a released version, from a registry or an archive
//	findings := m.Lint(previous)                                // checks the module and the upgrade from previous
//
// Package author has four subpackages. Package [check] compares objects with the types of Kubernetes, and with the
// objects of the previous version. Package [content] reads the content of a component version from a registry or an
// archive. Package [storage] stores component versions in archives and registries, and copies and signs them. Package
// [trial] tests a module on a cluster and previews changes.
//
// # How it works
//
// The config is parsed strictly: a misspelt key is an error that contains its line. All errors in the config are
// returned together. The manifest may be a YAML file, a Helm chart or a Kustomize directory. Package render converts a
// manifest of any of these formats into one YAML file, because every client of module artefacts can read such a file.
// The images in that YAML file become resources of the component descriptor.
//
// Lint checks the module against the rules for modules. Lint also compares the CRDs and objects of the module with the
// CRDs and objects of the previous version.
//
// # What it does not do
//
// The package does not connect to a cluster. Only Load connects to a registry. The package does not build images, and
// does not follow component references.
//
// [check]: github.com/kyma-fleet/lifecycle-manager/internal/author/check [content]:
// github.com/kyma-fleet/lifecycle-manager/internal/author/content [storage]:
// github.com/kyma-fleet/lifecycle-manager/internal/author/storage [trial]:
// github.com/kyma-fleet/lifecycle-manager/internal/author/trial
package author
