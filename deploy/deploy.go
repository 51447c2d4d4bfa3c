// Package deploy holds what it takes to run the manager on a cluster, as a kustomize base: namespace, service account, roles, Deployment.
//
// Use: kubectl apply -k deploy/base, or deploy/in-cluster for the flavour that installs modules where it runs; programs that only need
// the objects take [ControlPlane] or [InCluster].
//
// How it works: the files of the folders are embedded as they are, so that a landscape on a laptop runs with exactly the rights of a
// real installation. What it does not do: it renders nothing; CRDs come from package crds.
package deploy

import (
	"bytes"
	"embed"
	"path"
)

//go:embed base/*.yaml in-cluster/*.yaml
var files embed.FS

// ControlPlane returns the objects of the flavour that serves runtimes by access Secrets, as a stream of YAML documents.
func ControlPlane() []byte { return stream("base") }

// InCluster returns the objects of the flavour that installs modules on the cluster it runs on, as a stream of YAML documents.
func InCluster() []byte { return stream("in-cluster") }

// stream joins the files of a folder, in the order of their names, without the kustomization.
func stream(folder string) []byte {
	entries, err := files.ReadDir(folder)
	if err != nil {
		panic(err) // the folder is part of the program
	}
	var documents [][]byte
	for _, entry := range entries {
		if entry.Name() == "kustomization.yaml" {
			continue
		}
		data, err := files.ReadFile(path.Join(folder, entry.Name()))
		if err != nil {
			panic(err)
		}
		documents = append(documents, bytes.TrimSpace(data))
	}
	return append(bytes.Join(documents, []byte("\n---\n")), '\n')
}
