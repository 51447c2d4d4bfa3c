package v1beta2

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of all kinds of this package.
const Group = "operator.kyma-project.io"

// Version is the API version of all kinds of this package.
const Version = "v1beta2"

// Names of the kinds of this package.
const (
	KindKyma              = "Kyma"
	KindManifest          = "Manifest"
	KindModuleTemplate    = "ModuleTemplate"
	KindModuleReleaseMeta = "ModuleReleaseMeta"
	KindWatcher           = "Watcher"
	KindRolloutPolicy     = "RolloutPolicy"
	KindModuleRollout     = "ModuleRollout"
)

// resources are the plurals of the kinds of this package.
var resources = map[string]string{
	KindKyma:              "kymas",
	KindManifest:          "manifests",
	KindModuleTemplate:    "moduletemplates",
	KindModuleReleaseMeta: "modulereleasemetas",
	KindWatcher:           "watchers",
	KindRolloutPolicy:     "rolloutpolicies",
	KindModuleRollout:     "modulerollouts",
}

// ResourceOf returns the plural of a kind of this package, as in URLs and names of CRDs, or "" for another kind.
// Modules also define kinds in this API group, so the group alone does not identify the kinds of Lifecycle Manager.
func ResourceOf(kind string) string { return resources[kind] }

// IsLifecycleManagerCRD reports whether a name is the name of the CRD of a kind of this package.
func IsLifecycleManagerCRD(name string) bool {
	resource, group, _ := strings.Cut(name, ".")
	return group == Group && slices.Contains(slices.Collect(maps.Values(resources)), resource)
}

var (
	// GroupVersion is the group and version of all kinds of this package.
	GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

	// SchemeBuilder collects the kinds that AddToScheme registers.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the kinds of this package, and their lists, with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Kyma{}, &KymaList{},
		&Manifest{}, &ManifestList{},
		&ModuleTemplate{}, &ModuleTemplateList{},
		&ModuleReleaseMeta{}, &ModuleReleaseMetaList{},
		&Watcher{}, &WatcherList{},
		&RolloutPolicy{}, &RolloutPolicyList{},
		&ModuleRollout{}, &ModuleRolloutList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
