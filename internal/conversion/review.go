package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1alpha1"
	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

const (
	// reviewBytesLimit is the maximum size of a request, in bytes. API servers usually send one object, which has at
	// most 3 MiB.
	reviewBytesLimit = 16 << 20
	// reviewsLimit is the maximum number of requests that are handled at the same time, which limits the memory that
	// they need. Further requests wait.
	reviewsLimit = 16
	// errorsLimit is the maximum number of errors in a response.
	errorsLimit = 5
)

// review handles one request.
func (w *Webhook) review(out http.ResponseWriter, r *http.Request) {
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-r.Context().Done():
		return
	}
	var review apiextensionsv1.ConversionReview
	err := json.NewDecoder(http.MaxBytesReader(out, r.Body, reviewBytesLimit)).Decode(&review)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		http.Error(out, fmt.Sprintf("the review has more than %d bytes: request fewer objects at a time, or v1beta2",
			reviewBytesLimit), http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(out, fmt.Sprintf("reading the review: %v", err), http.StatusBadRequest)
		return
	}
	if review.Request == nil || review.APIVersion != apiextensionsv1.SchemeGroupVersion.String() {
		http.Error(out, fmt.Sprintf("%q is not a request for a review of %s", review.APIVersion,
			apiextensionsv1.SchemeGroupVersion), http.StatusBadRequest)
		return
	}
	review.Response = convertObjects(review.Request)
	if review.Response.Result.Status != metav1.StatusSuccess {
		w.Log.Info("cannot convert objects", "reason", review.Response.Result.Message)
	}
	review.Request = nil
	out.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(out).Encode(review); err != nil {
		w.Log.V(1).Info("the caller did not read the response", "reason", err.Error())
	}
}

// convertObjects converts all objects of a request. If objects cannot be converted, the response is a failure that
// lists these objects.
func convertObjects(request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{UID: request.UID,
		ConvertedObjects: make([]runtime.RawExtension, len(request.Objects))}
	var errs []error
	for i, object := range request.Objects {
		raw, err := convert(object.Raw, request.DesiredAPIVersion)
		if err != nil {
			errs = append(errs, err)
		}
		response.ConvertedObjects[i].Raw = raw
	}
	if len(errs) > errorsLimit {
		errs = append(errs[:errorsLimit], fmt.Errorf("and %d more", len(errs)-errorsLimit))
	}
	if err := errors.Join(errs...); err != nil {
		response.ConvertedObjects = []runtime.RawExtension{}
		response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
		return response
	}
	response.Result = metav1.Status{Status: metav1.StatusSuccess}
	return response
}

// convert returns an object in the given API version. Errors contain the name of the object that cannot be converted.
func convert(raw []byte, to string) ([]byte, error) {
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	var out []byte
	var err error
	up := head.APIVersion == v1alpha1.GroupVersion.String() && to == v1beta2.GroupVersion.String()
	down := head.APIVersion == v1beta2.GroupVersion.String() && to == v1alpha1.GroupVersion.String()
	switch {
	case head.APIVersion == to:
		return raw, nil
	case !up && !down:
		err = errors.New("this conversion does not exist")
	case head.Kind == v1beta2.KindKyma:
		out, err = convertTyped(raw, up, (*v1alpha1.Kyma).ConvertTo, (*v1alpha1.Kyma).ConvertFrom)
	case head.Kind == v1beta2.KindManifest:
		out, err = convertTyped(raw, up, (*v1alpha1.Manifest).ConvertTo, (*v1alpha1.Manifest).ConvertFrom)
	case head.Kind == v1beta2.KindModuleTemplate:
		out, err = convertTyped(raw, up, (*v1alpha1.ModuleTemplate).ConvertTo, (*v1alpha1.ModuleTemplate).ConvertFrom)
	default:
		err = errors.New("the kind has no other version")
	}
	if err != nil {
		return nil, fmt.Errorf("converting %s %s/%s from %s to %s: %w", head.Kind, head.Namespace,
			head.Name, head.APIVersion, to, err)
	}
	return out, nil
}

// convertTyped converts one object. If up is true, convertTyped converts from the old version to the stored version.
// Any other object is converted from the stored version to the old version.
func convertTyped[Old, Stored any](raw []byte, up bool, to, from func(*Old, *Stored) error) ([]byte, error) {
	old, stored := new(Old), new(Stored)
	if up {
		if err := json.Unmarshal(raw, old); err != nil {
			return nil, err
		}
		if err := to(old, stored); err != nil {
			return nil, err
		}
		return json.Marshal(stored)
	}
	if err := json.Unmarshal(raw, stored); err != nil {
		return nil, err
	}
	if err := from(old, stored); err != nil {
		return nil, err
	}
	return json.Marshal(old)
}
