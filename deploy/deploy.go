// Package deploy contains the objects that run the manager on a cluster: a Helm chart, and kustomize bases and
// components that are generated from the chart.
//
// To install the manager, run helm install lifecycle-manager deploy/chart, or kubectl apply -k deploy/base. The base
// deploy/in-cluster is for the in-cluster flavour, which installs modules on the cluster of the manager. The folders of
// components are optional parts. Programs call [Objects], which renders the chart with given values.
//
// The objects in the folders base, in-cluster and components are generated from the chart. The folder definitions of
// the chart is a copy of package crds. The files of base, in-cluster and components are the output of "helm template".
// "make deploy-files" writes these files, and tests compare them with the chart. The chart is embedded in the program,
// so a landscape on a laptop has exactly the permissions of a real installation.
//
// The package sends no request to a cluster.
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

// Names of the deployed objects, and of the two flavours of an installation: manager for many runtimes, or for its own
// cluster.
const (
	// Release is the name of the Helm release, and also of the ServiceAccount, Deployment and Role of the manager.
	Release = "lifecycle-manager"
	// ControlPlaneFlavour manages runtimes that the manager reaches with access Secrets. The default namespace of this
	// flavour is kcp-system.
	ControlPlaneFlavour = "control-plane"
	// InClusterFlavour installs modules on the cluster that the manager runs on. The default namespace of this flavour
	// is kyma-system.
	InClusterFlavour = "in-cluster"
)

// files contains the chart.
//
//go:embed all:chart
var files embed.FS

// written contains the files that are generated from the chart.
//
//go:embed base/*.yaml components/*/*.yaml
var written embed.FS

// Options are the options for rendering the chart.
type Options struct {
	// Flavour is ControlPlaneFlavour (default) or InClusterFlavour. Flavour overrides the value "flavour" of the chart.
	Flavour string
	// Namespace is the namespace of the manager. The default namespace is kcp-system, or kyma-system for
	// InClusterFlavour.
	Namespace string
	// Values is a YAML document that overrides values in the file values.yaml of the chart. Default none.
	Values []byte
	// Set contains expressions in the syntax of Helm's --set. The expressions in Set override Values.
	Set []string
}

// DefaultNamespace returns the default namespace of a flavour.
func DefaultNamespace(flavour string) string {
	if flavour == InClusterFlavour {
		return "kyma-system"
	}
	return "kcp-system"
}

// Chart returns the files of the chart.
func Chart() fs.FS {
	chart, err := fs.Sub(files, "chart")
	if err != nil {
		panic(err) // the folder is embedded in the program
	}
	return chart
}

// Objects returns the objects of the chart, rendered with the options. If a value is invalid, the error names the
// value.
func Objects(ctx context.Context, o Options) ([]*unstructured.Unstructured, error) {
	if o.Flavour == "" {
		o.Flavour = ControlPlaneFlavour
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace(o.Flavour)
	}
	chart, err := render.LoadFolder(Chart(), render.Limits{})
	if err != nil {
		return nil, fmt.Errorf("reading the chart of the manager: %w", err)
	}
	objects, _, err := chart.RenderObjects(ctx, render.Settings{
		Release: Release, Namespace: o.Namespace, Values: o.Values,
		Set: append(append([]string{}, o.Set...), "flavour="+o.Flavour),
	})
	if err != nil {
		return nil, fmt.Errorf("rendering the chart of the manager: %w", err)
	}
	return objects, nil
}

// ControlPlaneYAML returns the objects that install the manager in a control plane, without CRDs, as a stream of YAML
// documents. ControlPlaneYAML joins the YAML files in the folders base, components/webhooks and components/agents.
func ControlPlaneYAML() []byte {
	var stream []byte
	for _, pattern := range []string{"base/*.yaml", "components/webhooks/*.yaml", "components/agents/*.yaml"} {
		names, err := fs.Glob(written, pattern)
		if err != nil {
			panic(err) // the pattern is a constant
		}
		for _, name := range names {
			if path.Base(name) == "kustomization.yaml" {
				continue
			}
			data, err := written.ReadFile(name)
			if err != nil {
				panic(err) // the file is embedded in the program
			}
			stream = append(append(stream, "---\n"...), data...)
		}
	}
	return stream
}
