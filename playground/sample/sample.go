// Package sample is the playground's module: a small but complete operator, in two versions, to install, upgrade, break
// and remove.
//
// Use: [Versions] gives what an author hands over for a release: the manifest of the operator and the default custom
// resource. The operator is the program in the folder operator; one program serves both versions and learns from
// --module-version which one it is.
//
// How it works: the custom resource, [Sample], asks for a message and a number of replicas. The operator writes the
// message into a ConfigMap, runs a Deployment that carries it, and reports state Ready when all replicas are available.
// It shows each of the five states of the module contract on request: spec.fail makes it Error with that text,
// spec.replicas 0 makes it Warning, an image that cannot start (2.0.0) keeps it Processing, and deletion shows Deleting
// until what it installed is gone.
//
// 1.0.0 and 2.0.0 differ in what an upgrade has to get right: the ConfigMap sample-v1-only is in the first and
// sample-v2-only in the second, and spec.image came with 2.0.0.
//
// It does no work of any use, serves one version of its API, and asks for no permission it does not need.
package sample

import (
	"embed"
	"io/fs"
	"path"
)

// What an author writes into ModuleTemplate and ModuleReleaseMeta.
const (
	// Module is the name of the module.
	Module = "sample"
	// Component is the name of its OCM component.
	Component = "kyma-project.io/module/sample"
	// Namespace is where the operator runs, and where the default custom resource is.
	Namespace = "kyma-system"
	// Operator is the name of the operator's Deployment (apps/v1): spec.manager of the ModuleTemplate.
	Operator = "sample-operator"
	// OperatorImage is the repository of the operator's image; its tag is the version.
	OperatorImage = "sample-operator"
)

// Version is one release of the module.
type Version struct {
	// Version is a semantic version, such as 1.0.0.
	Version string
	// Manifest is a YAML stream of what is to be installed, the CRD first.
	Manifest []byte
	// DefaultCR is the custom resource that switches the module on, as YAML.
	DefaultCR []byte
	// Images lists the container images that Manifest names.
	Images []string
}

//go:embed module
var module embed.FS

// Versions returns all releases, the oldest first.
func Versions() []Version {
	folders, err := fs.ReadDir(module, "module")
	if err != nil {
		panic(err) // the files are part of the program
	}
	versions := make([]Version, 0, len(folders))
	for _, folder := range folders { // in order of names, which sorts 1.0.0 before 2.0.0
		version := folder.Name()
		versions = append(versions, Version{
			Version:   version,
			Manifest:  mustRead(version, "manifest.yaml"),
			DefaultCR: mustRead(version, "default-cr.yaml"),
			Images:    []string{OperatorImage + ":" + version},
		})
	}
	return versions
}

func mustRead(version, file string) []byte {
	data, err := module.ReadFile(path.Join("module", version, file))
	if err != nil {
		panic(err)
	}
	return data
}
