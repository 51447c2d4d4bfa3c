// Package manifest installs charts on a cluster, keeps an eye on them and takes them out again, without Helm's releases and
// without the kinds of this project. It is the door to packages render and apply for whoever writes an operator of their own:
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
//	status, err := manifest.InstallChart(ctx, info)       // again later, until status.Ready
//	status, err = manifest.ConsistencyCheck(ctx, info)    // reads only
//	changes, err := manifest.Diff(ctx, info)              // what InstallChart would do; reads only
//	status, err = manifest.UninstallChart(ctx, info)      // again later, until status.Ready
//
// # How it works
//
// Each call does what can be done now and returns; none waits, unless the flags Wait and Timeout ask for it. A call that
// finds everything as it should be writes nothing. Calling again after an error, a crash or at any other time continues
// where it was left. Two calls for one release at once do no harm, but may undo each other's work if their charts differ.
//
// InstallChart renders the chart (see package render for what of Helm is supported), lets transforms change the objects, and
// applies them with server-side apply in the order of package apply: one request an object and change. An upgrade is
// another InstallChart; what the new version no longer has is deleted once the rest is applied. CRDs are applied with
// the first objects and upgraded with the chart. CustomResources are created when everything else is ready (with
// CheckReadyStates) or applied, and never changed after: they belong to their user from then on.
//
// The inventory, the list of what was applied, is a ConfigMap in the namespace of the release. It is written before the
// first object that it names is created, so that UninstallChart needs neither the chart nor its repository: all that it
// reads of an InstallInfo is the cluster, the name of the release and its namespace. It contains names only, no values. To keep an
// inventory elsewhere, use packages render and apply directly; this package is little more than the two of them in a row.
//
// UninstallChart deletes the CustomResources first and waits until they are gone, since their operator has to clean up; then all
// other objects, workloads before access rights before definitions before namespaces. The namespace goes only if InstallChart
// has created it, or the chart has it as an object.
//
// # What it does not do
//
// It stores no releases that the helm command would know, runs no hooks, rolls nothing back and watches nothing. It renders for
// each call; operators with many clusters should share bundles through [render.Cache] and use package apply.
package manifest

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// InstallInfo says what to install where. See its parts.
type InstallInfo struct {
	ChartInfo
	ResourceInfo
	ClusterInfo
	// CheckFn, if set, is asked last in InstallChart, ConsistencyCheck and UninstallChart, once all else is ready.
	CheckFn CheckFn
	// CheckReadyStates makes readiness of workloads, Jobs, volumes and definitions count, as [apply.Cluster.Ready] judges it.
	// Without it an installation is ready when all objects are applied.
	CheckReadyStates bool
}

// ChartInfo says which chart, and how to render it. A set of manifests or a Kustomize directory can stand in place of a chart;
// then there can be no SetFlags.
type ChartInfo struct {
	// Path is a local folder or file. If it is set, Repository and Version do not count.
	Path string
	// Repository is where the chart comes from. Share it between calls: it remembers the index.
	Repository *Repository
	// Name of the chart in the repository. A name before a slash, as Helm's users write it, does not count.
	Name string
	// Version is exact, or a range such as "1.x"; "" means the newest that is no pre-release.
	Version string
	// ReleaseName identifies the installation in its namespace. "" means Name, or the last element of Path without extension.
	ReleaseName string
	// ConfigFlags are options of Helm's install action by the names of its fields: Namespace, CreateNamespace, Wait, Timeout and
	// the others of [render.ClientConfig]. Others have no effect.
	ConfigFlags map[string]any
	// SetFlags are values that go over those of the chart. Dots in a key nest, with or without one in front: ".some.value" is
	// "some" with "value" in it; \. is a dot that does not.
	SetFlags map[string]any
}

// ResourceInfo says what belongs to the installation besides the chart.
type ResourceInfo struct {
	// BaseResource is the object on whose behalf this happens. It is handed to transforms and CheckFn and not touched; it may be nil.
	BaseResource client.Object
	// CustomResources are created if they do not exist, after all else, and deleted before all else.
	CustomResources []*unstructured.Unstructured
	// CRDs are applied with the first objects of the chart, upgraded with it, and deleted with the last.
	CRDs []*unstructured.Unstructured
}

// ClusterInfo says where.
type ClusterInfo struct {
	// Config is how to reach the cluster; required.
	Config *rest.Config
	// Client is for CheckFn alone; it may be nil if that does not need it.
	Client client.Client
}

// CheckFn reports whether an installation is ready in the eyes of its owner. During UninstallChart it is asked when all objects are
// gone. An error counts as an error of the operation.
type CheckFn func(ctx context.Context, base client.Object, cluster ClusterInfo) (bool, error)

// ObjectTransform changes what was rendered before it is applied. It may change, add and remove Items.
type ObjectTransform func(ctx context.Context, base client.Object, resources *Resources) error

// Resources are the objects of an installation before they are encoded: CRDs of the InstallInfo, then those of the chart.
type Resources struct {
	Items []*unstructured.Unstructured
}

// Status is what an operation came to.
type Status struct {
	// Ready says that there is nothing left to do: the installation is complete, consistent or gone.
	Ready bool
	// Pending says what keeps it from being ready, one sentence each with the object's name in it. It is stable as long as that is.
	Pending []string
	// LeftOut says what the chart holds and is not applied, such as hooks; see package render.
	LeftOut []string
	// Objects is the inventory after the operation.
	Objects []apply.Ref
}

// wait adds what keeps an operation from being ready.
func (s *Status) addPending(why string) { s.Pending = append(s.Pending, why) }

// Change is what InstallChart would do to one object.
type Change struct {
	Ref apply.Ref
	// Action is Create, Update or Delete.
	Action string
	// Fields that differ, for Update; at most ten. The value is not told: it may be secret.
	Fields []string
	// Managers are the field managers that have those fields now.
	Managers []string
}

// The actions of a Change.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
)
