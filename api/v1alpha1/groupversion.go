package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Version is the API version of all kinds of this package.
const Version = "v1alpha1"

var (
	// GroupVersion is the group and version of all kinds of this package.
	GroupVersion = schema.GroupVersion{Group: v1beta2.Group, Version: Version}

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
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
