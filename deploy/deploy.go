// Package deploy holds what it takes to run the manager on a cluster: a Helm chart, and the kustomize bases and components that are written
// from it.
//
// Use: helm install lifecycle-manager deploy/chart, or kubectl apply -k deploy/base, or deploy/in-cluster for the flavour that installs
// modules where it runs; with components/webhooks, agents and monitoring for what is optional. Programs take [Objects], which are those of
// the chart with values of their own.
//
// How it works: the chart is the one source. Its folder definitions is a copy of package crds, and the files of base, in-cluster and components
// are what "helm template" makes of it; "make deploy-files" writes them anew, and tests hold that nothing differs. The chart is part of the
// program, so that a landscape on a laptop runs with exactly the rights of a real installation.
//
// What it does not do: it talks to no cluster.
package deploy

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Names of what is deployed.
const (
	// Release is the name of the release, and of ServiceAccount, Deployment and role.
	Release = "lifecycle-manager"
	// ControlPlaneFlavour serves runtimes that are reached by access Secrets. It belongs into namespace kcp-system.
	ControlPlaneFlavour = "control-plane"
	// InClusterFlavour installs modules on the cluster that the manager runs on. It belongs into namespace kyma-system.
	InClusterFlavour = "in-cluster"
)

//go:embed all:chart
var files embed.FS

//go:embed base/*.yaml components/*/*.yaml
var written embed.FS

// Options say what is deployed.
type Options struct {
	// Flavour is ControlPlaneFlavour (default) or InClusterFlavour. It goes before the value flavour.
	Flavour string
	// Namespace is where. Default: kcp-system, in-cluster kyma-system.
	Namespace string
	// Values is a YAML document that goes over values.yaml of the chart. Default none.
	Values []byte
	// Set are expressions in the syntax of Helm's --set, which go over Values.
	Set []string
}

// Home returns the namespace of a flavour.
func Home(flavour string) string {
	if flavour == InClusterFlavour {
		return "kyma-system"
	}
	return "kcp-system"
}

// Chart returns the files of the chart.
func Chart() fs.FS {
	chart, err := fs.Sub(files, "chart")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	return chart
}

// Objects returns what the chart makes of the options. An error says which value is wrong.
func Objects(ctx context.Context, o Options) ([]*unstructured.Unstructured, error) {
	if o.Flavour == "" {
		o.Flavour = ControlPlaneFlavour
	}
	if o.Namespace == "" {
		o.Namespace = Home(o.Flavour)
	}
	chart, err := render.Open(Chart(), render.Limits{})
	if err != nil {
		return nil, fmt.Errorf("reading the chart of the manager: %w", err)
	}
	objects, _, err := chart.Objects(ctx, render.Settings{
		Release: Release, Namespace: o.Namespace, Values: o.Values, Set: append(append([]string{}, o.Set...), "flavour="+o.Flavour),
	})
	if err != nil {
		return nil, fmt.Errorf("rendering the chart of the manager: %w", err)
	}
	return objects, nil
}

// ControlPlane returns the control-plane flavour with all that is optional, but for the definitions, as a stream of YAML documents. It is what the
// files of base and components are.
func ControlPlane() []byte {
	var stream []byte
	for _, pattern := range []string{"base/*.yaml", "components/webhooks/*.yaml", "components/agents/*.yaml"} {
		names, err := fs.Glob(written, pattern)
		if err != nil {
			panic(err) // the pattern is ours
		}
		for _, name := range names {
			if path.Base(name) == "kustomization.yaml" {
				continue
			}
			data, err := written.ReadFile(name)
			if err != nil {
				panic(err) // the file is part of the program
			}
			stream = append(append(stream, "---\n"...), data...)
		}
	}
	return stream
}
