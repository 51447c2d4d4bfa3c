package conversion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1alpha1"
	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// crds are the names of the CRDs that have two versions.
var crds = [...]string{"kymas." + v1beta2.Group, "manifests." + v1beta2.Group, "moduletemplates." + v1beta2.Group}

// enableConversion changes each CRD so that it serves v1alpha1 and uses this webhook. changed reports whether at least
// one CRD was changed.
func (w *Webhook) enableConversion(ctx context.Context, caBundle []byte) (changed bool, err error) {
	var errs []error
	for _, name := range crds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			errs = append(errs, fmt.Errorf("reading CRD %s: %w", name, err))
			continue
		}
		patch, err := w.conversionPatch(crd, caBundle)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if patch == nil {
			continue
		}
		changed = true
		if err := w.Client.Patch(ctx, crd, client.RawPatch(types.JSONPatchType, patch)); err != nil {
			errs = append(errs, fmt.Errorf("enabling v1alpha1 in CRD %s: %w", name, err))
		}
	}
	return changed, errors.Join(errs...)
}

// conversionPatch returns the JSON patch that a CRD needs. If the CRD needs no change, the patch is nil. The API server
// rejects the patch if the versions of the CRD have changed since the CRD was read.
func (w *Webhook) conversionPatch(crd *apiextensionsv1.CustomResourceDefinition, caBundle []byte) (
	jsonPatch []byte, err error) {
	i := slices.IndexFunc(crd.Spec.Versions, func(
		v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == v1alpha1.Version
	})
	if i < 0 {
		return nil, fmt.Errorf("CRD %s has no version v1alpha1: install the CRDs of this version of the manager",
			crd.Name)
	}
	var patch []map[string]any
	path := "/spec/versions/" + strconv.Itoa(i)
	if !crd.Spec.Versions[i].Served {
		patch = append(patch,
			map[string]any{"op": "test", "path": path + "/name", "value": v1alpha1.Version},
			map[string]any{"op": "replace", "path": path + "/served", "value": true})
	}
	if want := w.conversionSpec(caBundle); !equality.Semantic.DeepEqual(crd.Spec.Conversion, want) {
		patch = append(patch, map[string]any{"op": "add", "path": "/spec/conversion", "value": want})
	}
	if patch == nil {
		return nil, nil
	}
	return json.Marshal(patch)
}

// conversionSpec returns the value that spec.conversion of a CRD has to have for this webhook. The defaults that the
// API server sets are part of the returned value, so that it can be compared with the stored CRD.
func (w *Webhook) conversionSpec(bundle []byte) *apiextensionsv1.CustomResourceConversion {
	c := &apiextensionsv1.WebhookClientConfig{CABundle: bundle}
	if w.URL != "" {
		c.URL = &w.URL
	} else {
		c.Service = &apiextensionsv1.ServiceReference{Namespace: w.Namespace, Name: w.Service,
			Path: new(Path), Port: new(int32(443))}
	}
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: c, ConversionReviewVersions: []string{"v1"}},
	}
}
