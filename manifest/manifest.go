// Package manifest installs charts on a cluster, checks the installations and uninstalls them. The package needs
// neither Helm's releases nor the custom resources of this project, such as Kyma and Manifest. The package is for
// authors of other operators, and combines packages render and apply. The following example shows all functions.
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
//	status, err := manifest.InstallOrUpgradeChart(ctx, info) // repeat until status.Ready
//	status, err = manifest.ConsistencyCheck(ctx, info)       // reads only
//	changes, err := manifest.Diff(ctx, info)                 // the changes of InstallOrUpgradeChart; reads only
//	status, err = manifest.UninstallChart(ctx, info)         // repeat until status.Ready
//
// # How it works
//
// Each call does everything that is possible at that time, and returns. No call waits, unless the flags Wait and
// Timeout are set. If every object is in the desired state, a call writes nothing. A call after an error or a crash
// continues where the last call ended; calling again is safe at any time. Two concurrent calls for one release do no
// harm. If two concurrent calls for one release have different charts, the calls may revert each other's changes.
//
// InstallOrUpgradeChart renders the chart; package render documents which parts of Helm are supported. Transforms may
// change the rendered objects. InstallOrUpgradeChart then applies the objects with server-side apply, in the order of
// package apply, with one request for each object and change. To upgrade, call InstallOrUpgradeChart with the new
// version. Objects that the new version does not contain are deleted after all other objects are applied. CRDs are
// applied together with the first objects, and upgraded with the chart. CustomResources are created when all other
// objects are ready (with CheckReadyStates), or when all other objects are applied (without CheckReadyStates).
// InstallOrUpgradeChart never changes a custom resource after it has created it: from then on the user owns the custom
// resource.
//
// The inventory is the list of applied objects. The inventory is stored in a ConfigMap in the namespace of the release.
// An object is added to the inventory before the object is created. UninstallChart therefore needs neither the chart
// nor its repository; of an InstallInfo, it reads only the cluster, the name of the release and the namespace. The
// inventory contains only names of objects, and no values. If you want to store the inventory elsewhere, use packages
// render and apply directly; this package mainly calls them.
//
// UninstallChart deletes the CustomResources first and waits until they are deleted, because their operator has to
// clean up before it is deleted. When the CustomResources are deleted, UninstallChart deletes all other objects:
// workloads before access rights, access rights before CRDs, CRDs before namespaces. The namespace of the release is
// deleted only by UninstallChart, and only if InstallOrUpgradeChart created it or the chart contains it.
//
// # Objects of others
//
// If an object of the chart existed before the installation, InstallOrUpgradeChart applies the object, names it in
// Status.TakenOver, and records that it existed before. When the chart does not contain the object any more, or the
// release is uninstalled, the object stays, without the fields of the release. [apply.AnnotationAdoption] of an object
// changes this rule. A custom resource in CustomResources that existed before is neither changed nor deleted.
//
// Several releases may contain the same object; each of them applies the object, so it should have the same content in
// all of them. The object is deleted with the last of these releases. A CRD is not deleted as long as another release
// contains an object of its group. Objects with [apply.AnnotationOwnedBy] belong to another installation, for example a
// module of Lifecycle Manager, and are not deleted. If a module contains an object of a release, the module adopts it,
// because modules have another field manager than [FieldManager]: the fields of the release stay.
//
// A namespace is deleted only if nothing remains in it that does not belong to the release, such as objects of another
// release or of users, volumes of a StatefulSet, or objects that [apply.AnnotationPrune] keeps. Otherwise the namespace
// stays: UninstallChart names it in Status.Left and becomes ready. Nobody deletes the namespace later, not even another
// release that was the reason why the namespace stays. Before the deletion of a namespace, the objects of all
// namespaced kinds in it are listed; if the credential may not list one of these kinds, the namespace stays. Before
// every deletion, the inventories of all releases are listed. Without the right to list ConfigMaps in all namespaces,
// cluster-scoped objects cannot be deleted.
//
// # What it does not do
//
// The package stores no releases for the helm command, runs no hooks, rolls nothing back and watches nothing. Unlike
// Helm, the package does not refuse to change an object that somebody else has created. If a CRD is deleted with its
// release, the cluster deletes all custom resources of the CRD, also those of users; [apply.AnnotationPrune] of the CRD
// prevents this. Each call renders the chart again; an operator for many clusters should share bundles through
// [render.Cache] and use package apply.
package manifest

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// FieldManager is the field manager of all objects that this package applies and creates, also of the inventory.
// With the field manager of modules, a module that contains the same object would remove the fields of the release.
const FieldManager = "lifecycle-manager-release"

// InstallInfo defines what to install and where. The fields of ChartInfo, ResourceInfo and ClusterInfo are described at
// these structs.
type InstallInfo struct {
	ChartInfo
	ResourceInfo
	ClusterInfo
	// CheckFn, if set, is called by InstallOrUpgradeChart, ConsistencyCheck and UninstallChart. CheckFn is the last
	// check: it is called only when all other checks have passed.
	CheckFn CheckFn
	// CheckReadyStates adds a check of the readiness of workloads, Jobs, volumes and CRDs; see
	// [apply.Cluster.CheckReady]. Without CheckReadyStates, an installation is ready as soon as all objects are
	// applied.
	CheckReadyStates bool
}

// ChartInfo defines the chart and how it is rendered. Instead of a chart, ChartInfo may define a set of manifests or a
// Kustomize directory. For manifests and Kustomize directories, SetFlags must be empty.
type ChartInfo struct {
	// Path is a local folder or file. If Path is set, Repository and Version are ignored.
	Path string
	// Repository is the repository that contains the chart. Use the same Repository for several calls, because a
	// Repository caches its index.
	Repository *Repository
	// Name is the name of the chart in the repository. The part of Name before a slash is ignored, because the helm
	// command has the name of the repository before the slash, as in bitnami/redis.
	Name string
	// Version is an exact version or a range such as "1.x". If Version is "", the newest version that is not a
	// pre-release is used.
	Version string
	// ReleaseName identifies the installation in its namespace. If ReleaseName is "", the default is Name. If both
	// ReleaseName and Name are "", the default is the last element of Path without its extension.
	ReleaseName string
	// ConfigFlags are options of Helm's install action. The valid keys are Namespace, CreateNamespace, Wait, Timeout
	// and the names of the other fields of [render.ClientConfig]. Other keys have no effect.
	ConfigFlags map[string]any
	// SetFlags are values that override the values of the chart. Dots in a key separate nested keys, and a leading dot
	// is ignored: ".some.value" is "value" in "some". \. is a dot within a key.
	SetFlags map[string]any
}

// ResourceInfo defines the objects of an installation that are not in the chart.
type ResourceInfo struct {
	// BaseResource is the object for which the chart is installed. BaseResource is passed to transforms and CheckFn,
	// and is not changed. BaseResource may be nil.
	BaseResource client.Object
	// CustomResources are created after all other objects, if they do not exist. CustomResources are deleted before all
	// other objects.
	CustomResources []*unstructured.Unstructured
	// CRDs are applied with the first objects of the chart, upgraded with the chart, and deleted with the last objects.
	CRDs []*unstructured.Unstructured
}

// ClusterInfo defines the cluster in which the chart is installed.
type ClusterInfo struct {
	// Config is the connection to the cluster. Config is required.
	Config *rest.Config
	// Client is passed to CheckFn and not used otherwise. Client may be nil if CheckFn does not need it.
	Client client.Client
}

// CheckFn reports whether an installation is ready by the rules of the caller. UninstallChart calls CheckFn after all
// objects are deleted. An error of CheckFn becomes an error of the operation.
type CheckFn func(ctx context.Context, base client.Object, cluster ClusterInfo) (bool, error)

// ObjectTransform changes the rendered objects before they are applied. ObjectTransform may change, add and remove
// objects in Items.
type ObjectTransform func(ctx context.Context, base client.Object, resources *Resources) error

// Resources are the objects of an installation before they are encoded. The CRDs of the InstallInfo are first, followed
// by the objects of the chart.
type Resources struct {
	Items []*unstructured.Unstructured
}

// Status is the result of InstallOrUpgradeChart, ConsistencyCheck or UninstallChart.
type Status struct {
	// Ready means that the operation has nothing left to do: the installation is complete, consistent or deleted.
	Ready bool
	// Pending states why the operation is not ready. Pending has one sentence for each object, with the name of the
	// object. The sentence about an object changes only if the reason why the object is not ready changes.
	Pending []string
	// LeftOut names the parts of the chart that are not applied, such as hooks; see package render.
	LeftOut []string
	// TakenOver names the objects that existed before the installation and were applied by this call for the first
	// time, and the objects in which this call has overwritten fields of other field managers.
	TakenOver []string
	// Left names the objects that the release does not need any more, but that stay in the cluster because they do not
	// belong only to the release. The text about an object states the reason.
	Left []string
	// Objects is the inventory after the operation.
	Objects []apply.Ref
}

// addPending adds a reason why an operation is not ready to Status.Pending.
func (s *Status) addPending(why string) { s.Pending = append(s.Pending, why) }

// addLeft adds the message about an object that stays in the cluster to Status.Left.
func (s *Status) addLeft(message string) { s.Left = appendNew(s.Left, []string{message}) }

// appendNew returns the first list, followed by those texts of the second list that the first list does not contain.
func appendNew(list, more []string) []string {
	for _, text := range more {
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// Change is a change that InstallOrUpgradeChart would make to one object.
type Change struct {
	Ref apply.Ref
	// Action is Create, Update or Delete.
	Action string
	// Fields are the names of the fields that differ, at most ten. Only an Update has values in Fields. The values of
	// the fields are left out, because they may be secret.
	Fields []string
	// Managers are the field managers that own the fields listed in Change.Fields before InstallOrUpgradeChart is
	// called.
	Managers []string
}

// The constants are the possible values of Change.Action.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
)
