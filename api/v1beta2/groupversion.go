package v1beta2

import (
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
