// Package sample is the playground's module: a small but complete operator, in two versions, to install, upgrade, break
// and remove.
//
// Use: [Versions] returns the files that a module author provides for a release: the manifest of the operator and the
// default custom resource. The operator is the program in the folder operator. One program serves both versions of the
// module, and its flag --module-version selects the version.
//
// How it works: the custom resource [Sample] has a message and a number of replicas. The operator writes the message
// into a ConfigMap and runs a Deployment that carries the message. The operator reports state Ready when all replicas
// are available. A user can produce each of the five states of the module contract. If spec.fail is set, the state is
// Error. If spec.replicas is 0, the state is Warning. In version 2.0.0, an image that cannot start keeps the state
// Processing. A deleted Sample is in state Deleting until its workload is deleted.
//
// An upgrade from version 1.0.0 to 2.0.0 changes two things. The ConfigMap sample-v1-only is replaced by the ConfigMap
// sample-v2-only. The field spec.image is new in version 2.0.0.
//
// The operator does no useful work, serves one version of its API, and has only the permissions that it needs.
package sample

import (
	"embed"
	"io/fs"
	"path"
)

// Values that an author writes into ModuleTemplate and ModuleReleaseMeta.
const (
	// Module is the name of the module.
	Module = "sample"
	// Component is the name of its OCM component.
	Component = "kyma-project.io/module/sample"
	// Namespace is the namespace of the operator and of the default custom resource.
	Namespace = "kyma-system"
	// Operator is the name of the operator's Deployment (apps/v1): spec.manager of the ModuleTemplate.
	Operator = "sample-operator"
	// OperatorImage is the repository of the operator's image. The tag of the image is the version.
	OperatorImage = "sample-operator"
)

// Version is one release of the module.
type Version struct {
	// Version is a semantic version, such as 1.0.0.
	Version string
	// Manifest is a YAML stream of the objects to install. The CRD comes first.
	Manifest []byte
	// DefaultCR is the custom resource that activates the module, as YAML.
	DefaultCR []byte
	// Images lists the container images in Manifest.
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
	for _, folder := range folders { // in the order of their names: 1.0.0 comes before 2.0.0
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
