package checkup

import (
	"context"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
)

// The results of a comparison of a CRD in a cluster with the same CRD of this version of klm.
const (
	crdEqual   = "equal"
	crdDiffers = "differs"
	crdMissing = "missing"
	crdUnknown = "unknown"
)

// crdState is the result of the comparison of one CRD in a cluster with the same CRD of this version of klm.
type crdState struct {
	Name  string `json:"name"`
	State string `json:"state"`
	// Problem is the reason why the state of the CRD is unknown.
	Problem string `json:"problem,omitempty"`
}

// compareCRDs compares the CRDs of the cluster with the CRDs of this klm. A runtime has only some of the CRDs, so
// missing CRDs in a runtime are not reported.
func compareCRDs(ctx context.Context, c *connection.Cluster, isRuntime bool) []crdState {
	var all []crdState
	for _, want := range crds.All() {
		live := &apiextensionsv1.CustomResourceDefinition{}
		err := c.GetJSON(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+want.Name, live)
		s := crdState{Name: want.Name, State: crdEqual}
		switch {
		case apierrors.IsNotFound(err) && isRuntime:
			continue
		case apierrors.IsNotFound(err):
			s.State = crdMissing
		case err != nil:
			s.State, s.Problem = crdUnknown, c.Explain(err, "reading CRD "+want.Name).Error()
		case !sameSchemas(want.Spec.Versions, live.Spec.Versions, isRuntime):
			s.State = crdDiffers
		}
		all = append(all, s)
	}
	return all
}

// sameSchemas reports whether a CRD of a cluster has the same fields as the CRD of this version of klm, in the same API
// versions. A CRD in a runtime contains only the storage version. Which API versions are served and how objects are
// converted is not compared, because the manager sets these fields.
func sameSchemas(want, live []apiextensionsv1.CustomResourceDefinitionVersion, onlyStorageVersion bool) bool {
	if onlyStorageVersion {
		want = slices.DeleteFunc(slices.Clone(want),
			func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Storage })
	}
	return slices.EqualFunc(want, live, func(a, b apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return a.Name == b.Name && equality.Semantic.DeepEqual(a.Schema, b.Schema) &&
			equality.Semantic.DeepEqual(a.Subresources, b.Subresources) &&
			equality.Semantic.DeepEqual(a.AdditionalPrinterColumns, b.AdditionalPrinterColumns)
	})
}
