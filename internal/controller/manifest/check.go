package manifest

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// VerifyAndRender verifies and renders the sources of a Manifest, as a reconcile does, before anything is installed.
// VerifyAndRender needs no runtime, and the Manifest need not exist in the control plane. VerifyAndRender and the
// reconciles share the rendered bundles, so the first reconcile of a version need not render its bundle again. The
// result "digest" is the digest of the desired content, and the result "crds" contains its CustomResourceDefinitions.
//
// A chart that depends on the capabilities of a cluster is rendered for a cluster with the default capabilities. If the
// templates of a chart that depends on capabilities fail, VerifyAndRender returns no error, because the chart may be
// valid in the clusters that it is for.
//
// An error that only a change of the Manifest can fix is terminal. If a source has not answered yet, the error is
// loop.Later.
func (r *Reconciler) VerifyAndRender(ctx context.Context, m *v1beta2.Manifest) (digest string,
	crds []*unstructured.Unstructured,
	err error) {
	found, err := r.sources.Find(ctx, m)
	if err != nil {
		return "", nil, err
	}
	p := newPlan(m, found, r.PullSecret, history{})
	if _, err := p.verify(ctx); err != nil {
		return "", nil, err
	}
	isEmpty := true
	for _, s := range p.sources {
		dependsOnCluster := false
		bundle, err := r.bundles.Bundle(ctx, s, p.options, nil,
			func(_ context.Context, queries []string) (render.Capabilities, error) {
				dependsOnCluster = len(queries) > 0
				return render.Capabilities{}, nil
			})
		isEmpty = isEmpty && !dependsOnCluster && (bundle == nil || len(bundle.Objects) == 0)
		if _, ofContent := errors.AsType[*render.Error](err); ofContent && dependsOnCluster {
			continue
		}
		if err != nil {
			return "", nil, terminalIfPinned(fmt.Errorf("rendering %s: %w", s.Name, err), s.Artefact)
		}
		if crds, err = appendCRDs(crds, bundle); err != nil {
			return "", nil, err
		}
	}
	if isEmpty && len(p.sources) > 0 {
		return "", nil, fmt.Errorf("rendering %s: %w", p.sources[0].Name, source.EmptyError{})
	}
	return p.digest, crds, nil
}

// appendCRDs appends the CustomResourceDefinitions of a bundle to the list in the parameter "all".
func appendCRDs(all []*unstructured.Unstructured, bundle *render.Bundle) ([]*unstructured.Unstructured, error) {
	for _, o := range bundle.Objects {
		if _, is := o.CRD(); !is {
			continue
		}
		crd := &unstructured.Unstructured{}
		if err := crd.UnmarshalJSON(o.AppendJSON(nil, "", render.Overlay{})); err != nil {
			return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", o.Name, err)
		}
		all = append(all, crd)
	}
	return all, nil
}
