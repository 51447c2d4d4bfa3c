package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kyma-fleet/lifecycle-manager/internal/egress"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// ClassifyError converts an error of a registry client to an *ocm.Error. doing is "pulling" or "pushing", and ref is
// the reference of the artefact.
func ClassifyError(doing, ref string, err error) error { return classifyError(doing, ref, err) }

// classifyError classifies an error of the transport. The end of the caller's context is not an error of the registry.
// The list below has the classes of errors with the resulting reason codes. An error that is already an *ocm.Error
// stays unchanged, and an error because the caller cancelled its context gets no reason code.
//
//  1. already classified       -> unchanged
//  2. cancelled by the caller  -> unchanged, without a reason
//  3. 401, 403                 -> RegistryUnauthorized
//  4. 404                      -> ArtifactNotFound
//  5. 400, 405, 414 and others -> InvalidReference
//  6. 408, 429, 5xx            -> RegistryUnreachable
//  7. refused by the transport -> EgressRefused
//  8. every other error        -> RegistryUnreachable: name resolution, connection, TLS, timeout, malformed response
func classifyError(doing, ref string, err error) error {
	if _, ok := errors.AsType[*ocm.Error](err); ok {
		return err
	}
	out := &ocm.Error{Ref: ref, Doing: doing, Code: ocm.RegistryUnreachable, Cause: err}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		status := fmt.Sprintf("%d %s%s", answer.StatusCode, http.StatusText(answer.StatusCode),
			registryMessageSuffix(answer))
		switch code := answer.StatusCode; {
		case code == http.StatusUnauthorized, code == http.StatusForbidden:
			out.Code = ocm.RegistryUnauthorized
			out.Problem = "the registry answers " + status + ": check the registry credentials and what they may read"
		case code == http.StatusNotFound:
			out.Code = ocm.ArtifactNotFound
			out.Problem = "not found (" + status +
				"): check name and version, and that the module has been pushed to this registry"
		case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
			out.Problem = "the registry answers " + status + ": the request is retried"
		default:
			out.Code = ocm.InvalidReference
			out.Problem = "the registry answers " + status + ": check host, name and version"
		}
		return out
	}
	refused, isRefused := errors.AsType[*egress.Error](err)
	switch {
	case isRefused:
		out.Code, out.Problem = ocm.EgressRefused, refused.Error()
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s %s: %w", doing, ref, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		out.Problem = "the registry did not answer in time: check that it can be reached from here"
	default:
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the URL of the outer error may contain a signature
		}
		out.Problem = "the registry cannot be reached: " + ocm.FirstLine(
			err.Error()) + ": check its host and scheme, and the network"
	}
	return out
}

// registryMessageSuffix returns a space and the first error message in a response of the registry, shortened. If the
// response has no error message, registryMessageSuffix returns "".
func registryMessageSuffix(answer *transport.Error) string {
	if len(answer.Errors) == 0 {
		return ""
	}
	d := answer.Errors[0]
	return " " + ocm.FirstLine(string(d.Code)+": "+d.Message)
}
