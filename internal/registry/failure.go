package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// Fault classes what a client of a registry failed with, as everything here does. doing is "pulling" or "pushing", ref what it was about.
func Fault(doing, ref string, err error) error { return failed(doing, ref, err) }

// failed classes an error of the transport. A cancelled context is no fact about the registry and is returned as it is.
//
//  1. classed already          -> as it is
//  2. caller gave up           -> as it is, without a reason
//  3. 401, 403                 -> RegistryUnauthorized
//  4. 404                      -> ArtifactNotFound
//  5. 400, 405, 414 and others -> InvalidReference
//  6. 408, 429, 5xx            -> RegistryUnreachable
//  7. everything else          -> RegistryUnreachable: name resolution, connection, TLS, time-out, broken answer
func failed(doing, ref string, err error) error {
	if _, ok := errors.AsType[*ocm.Error](err); ok {
		return err
	}
	out := &ocm.Error{Ref: ref, Doing: doing, Code: ocm.RegistryUnreachable, Cause: err}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		status := fmt.Sprintf("%d %s%s", answer.StatusCode, http.StatusText(answer.StatusCode), saying(answer))
		switch code := answer.StatusCode; {
		case code == http.StatusUnauthorized, code == http.StatusForbidden:
			out.Code = ocm.RegistryUnauthorized
			out.Problem = "the registry answers " + status + ": check the registry credentials and what they may read"
		case code == http.StatusNotFound:
			out.Code = ocm.ArtifactNotFound
			out.Problem = "not found (" + status + "): check name and version, and that the module has been pushed to this registry"
		case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
			out.Problem = "the registry answers " + status + ": it is tried again"
		default:
			out.Code = ocm.InvalidReference
			out.Problem = "the registry answers " + status + ": check host, name and version"
		}
		return out
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s %s: %w", doing, ref, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		out.Problem = "the registry did not answer in time: check that it can be reached from here"
	default:
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // its URL may be a signed one
		}
		out.Problem = "the registry cannot be reached: " + ocm.FirstLine(err.Error()) + ": check its host and scheme, and the network"
	}
	return out
}

// saying returns the registry's own words, as far as they are fit to be shown.
func saying(answer *transport.Error) string {
	if len(answer.Errors) == 0 {
		return ""
	}
	d := answer.Errors[0]
	return " " + ocm.FirstLine(string(d.Code)+": "+d.Message)
}
