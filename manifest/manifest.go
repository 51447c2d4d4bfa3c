// Package manifest installs charts on a cluster, checks them and uninstalls them again, without Helm's releases and
// without the kinds of this project. It combines packages render and apply for authors of other operators:
//
//	info := manifest.InstallInfo{
//		ChartInfo: manifest.ChartInfo{
//			Repository:  &manifest.Repository{URL: "https://charts.example.com"}, // or Path: "./charts/redis"
//			Name:        "redis",
//			Version:     "1.x",
//			ReleaseName: "cache",
//			ConfigFlags: map[string]any{"Namespace": "cache", "CreateNamespace": true},
//			SetFlags:    map[string]any{"replica.count": 2},
//		},
//		ClusterInfo:      manifest.ClusterInfo{Config: config},
//		CheckReadyStates: true,
//	}
//	status, err := manifest.InstallChart(ctx, info)       // repeat until status.Ready
//	status, err = manifest.ConsistencyCheck(ctx, info)    // reads only
//	changes, err := manifest.Diff(ctx, info)              // what InstallChart would do; reads only
//	status, err = manifest.UninstallChart(ctx, info)      // repeat until status.Ready
//
// # How it works
//
// Each call does what can be done now and returns; none waits, unless the flags Wait and Timeout request it. A call
// that finds everything in the desired state writes nothing. Calling again after an error, a crash or at any other time
// continues where the last call ended. Two concurrent calls for one release do no harm, but may revert each other if
// their charts differ.
//
// InstallChart renders the chart (see package render for what of Helm is supported), lets transforms change the
// objects, and applies them with server-side apply in the order of package apply: one request for each object and
// change. An upgrade is another InstallChart; objects that the new version no longer has are deleted once the others
// are applied. CRDs are applied with the first objects and upgraded with the chart. CustomResources are created when
// all other objects are ready (with CheckReadyStates) or applied, and never changed after: they belong to their user
// from then on.
//
// The inventory, the list of applied objects, is a ConfigMap in the namespace of the release. It is written before the
// first object in it is created, so that UninstallChart needs neither the chart nor its repository: all that it reads
// of an InstallInfo is the cluster, the name of the release and its namespace. It contains names only, no values. To
// keep an inventory elsewhere, use packages render and apply directly; this package is little more than calls of both.
//
// UninstallChart deletes the CustomResources first and waits until they are deleted, since their operator has to clean
// up; then all other objects, workloads before access rights before CRDs before namespaces. The namespace is deleted
// only if InstallChart has created it, or the chart contains it.
//
// # What it does not do
//
// It stores no releases for the helm command, runs no hooks, rolls nothing back and watches nothing. It renders for
// each call; operators with many clusters should share bundles through [render.Cache] and use package apply.
package manifest

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// InstallInfo defines what to install and where. See its parts.
type InstallInfo struct {
	ChartInfo
	ResourceInfo
	ClusterInfo
	// CheckFn, if set, is called last in InstallChart, ConsistencyCheck and UninstallChart, once all else is ready.
	CheckFn CheckFn
	// CheckReadyStates makes the result depend on the readiness of workloads, Jobs, volumes and CRDs, as
	// [apply.Cluster.CheckReady] determines it. Without it an installation is ready when all objects are applied.
	CheckReadyStates bool
}

// ChartInfo defines the chart and how it is rendered. A set of manifests or a Kustomize directory can be used in place
// of a chart, but without SetFlags.
type ChartInfo struct {
	// Path is a local folder or file. If it is set, Repository and Version are ignored.
	Path string
	// Repository contains the chart. Use one Repository for several calls: it caches the index.
	Repository *Repository
	// Name of the chart in the repository. A prefix up to a slash, as in the helm command, is ignored.
	Name string
	// Version is exact, or a range such as "1.x"; "" means the newest that is not a pre-release.
	Version string
	// ReleaseName identifies the installation in its namespace. "" means Name, or the last element of Path without
	// extension.
	ReleaseName string
	// ConfigFlags are options of Helm's install action by the names of its fields: Namespace, CreateNamespace, Wait,
	// Timeout and the others of [render.ClientConfig]. Others have no effect.
	ConfigFlags map[string]any
	// SetFlags are values that override those of the chart. Dots in a key separate nested keys; a leading dot is
	// ignored: ".some.value" is "value" in "some". \. is a dot within a key.
	SetFlags map[string]any
}

// ResourceInfo defines what is part of the installation besides the chart.
type ResourceInfo struct {
	// BaseResource is the object on whose behalf the chart is installed. It is passed to transforms and CheckFn and not
	// changed; it may be nil.
	BaseResource client.Object
	// CustomResources are created if they do not exist, after all other objects, and deleted before all others.
	CustomResources []*unstructured.Unstructured
	// CRDs are applied with the first objects of the chart, upgraded with it, and deleted with the last.
	CRDs []*unstructured.Unstructured
}

// ClusterInfo defines the cluster.
type ClusterInfo struct {
	// Config is the connection to the cluster; required.
	Config *rest.Config
	// Client is passed to CheckFn only; it may be nil if CheckFn does not need it.
	Client client.Client
}

// CheckFn reports whether an installation is ready by the rules of the caller. In UninstallChart it is called when all
// objects are deleted. Its error is returned as an error of the operation.
type CheckFn func(ctx context.Context, base client.Object, cluster ClusterInfo) (bool, error)

// ObjectTransform changes the rendered objects before they are applied. It may change, add and remove Items.
type ObjectTransform func(ctx context.Context, base client.Object, resources *Resources) error

// Resources are the objects of an installation before they are encoded: CRDs of the InstallInfo, then those of the
// chart.
type Resources struct {
	Items []*unstructured.Unstructured
}

// Status is the result of an operation.
type Status struct {
	// Ready means that nothing is left to do: the installation is complete, consistent or deleted.
	Ready bool
	// Pending states why it is not ready, one sentence for each object, with its name. It does not change as long as
	// the causes do not.
	Pending []string
	// LeftOut names what the chart contains and is not applied, such as hooks; see package render.
	LeftOut []string
	// Objects is the inventory after the operation.
	Objects []apply.Ref
}

// addPending adds a reason why an operation is not ready.
func (s *Status) addPending(why string) { s.Pending = append(s.Pending, why) }

// Change is what InstallChart would do to one object.
type Change struct {
	Ref apply.Ref
	// Action is Create, Update or Delete.
	Action string
	// Fields that differ, for Update; at most ten. Values are left out: they may be secret.
	Fields []string
	// Managers are the field managers that own those fields now.
	Managers []string
}

// The actions of a Change.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
)
