package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Reasons of an Error. They are stable: conditions and events carry them.
const (
	// RegistryUnreachable: no connection, no answer in time, or an answer that says the registry is not well (429, 5xx).
	RegistryUnreachable = "RegistryUnreachable"
	// RegistryUnauthorized: the registry refuses the credentials, or wants some.
	RegistryUnauthorized = "RegistryUnauthorized"
	// ArtifactNotFound: the registry has no such repository, tag or digest.
	ArtifactNotFound = "ArtifactNotFound"
	// DigestMismatch: the bytes received are not those that the digest stands for.
	DigestMismatch = "DigestMismatch"
	// ArtifactTooLarge: more bytes than Options allow.
	ArtifactTooLarge = "ArtifactTooLarge"
	// InvalidDescriptor: manifest, config or component descriptor cannot be understood, or are of another component.
	InvalidDescriptor = "InvalidDescriptor"
	// AccessTypeNotSupported: a resource that is needed lies where it cannot be read from.
	AccessTypeNotSupported = "AccessTypeNotSupported"
	// InvalidReference: host, repository, version or digest are malformed.
	InvalidReference = "InvalidReference"
	// SignatureMissing: the trust policy wants a signature, and there is none that could be verified.
	SignatureMissing = "SignatureMissing"
	// SignatureInvalid: there are signatures, but none by a key of the trust policy, or they are of something else.
	SignatureInvalid = "SignatureInvalid"
	// ArtifactExists: the tag stands for something else already, and was not to be replaced. Only writing gives it.
	ArtifactExists = "ArtifactExists"
	// TrustPolicyInvalid: the file with the trust policy cannot be read or understood.
	TrustPolicyInvalid = "TrustPolicyInvalid"
)

// Error says what could not be read or written, why, and what to do. Its text is one line and never holds credentials.
type Error struct {
	// Ref is what was asked for: host/repository:tag or host/repository@digest.
	Ref string

	reason  string
	doing   string // "pushing", "verifying" or "reading"; empty means pulling
	problem string
	err     error
}

// Reason is one of the reasons above.
func (e *Error) Reason() string { return e.reason }

// Unwrap returns the cause. Its text may name URLs that are not meant for everybody.
func (e *Error) Unwrap() error { return e.err }

// reasonOf returns the reason of an error, and nothing for one that has none.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.reason
	}
	return ""
}

func (e *Error) Error() string {
	doing := e.doing
	if doing == "" {
		doing = "pulling"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' ' // names may come from anywhere
		}
		return r
	}, doing+" "+e.Ref+": "+e.problem)
}

func invalid(reason, ref, format string, args ...any) *Error {
	return &Error{Ref: ref, reason: reason, problem: fmt.Sprintf(format, args...)}
}

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
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	out := &Error{Ref: ref, doing: doing, reason: RegistryUnreachable, err: err}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		status := fmt.Sprintf("%d %s%s", answer.StatusCode, http.StatusText(answer.StatusCode), saying(answer))
		switch code := answer.StatusCode; {
		case code == http.StatusUnauthorized, code == http.StatusForbidden:
			out.reason = RegistryUnauthorized
			out.problem = "the registry answers " + status + ": check the registry credentials and what they may read"
		case code == http.StatusNotFound:
			out.reason = ArtifactNotFound
			out.problem = "not found (" + status + "): check name and version, and that the module has been pushed to this registry"
		case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
			out.problem = "the registry answers " + status + ": it is tried again"
		default:
			out.reason = InvalidReference
			out.problem = "the registry answers " + status + ": check host, name and version"
		}
		return out
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s %s: %w", doing, ref, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		out.problem = "the registry did not answer in time: check that it can be reached from here"
	default:
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // its URL may be a signed one
		}
		out.problem = "the registry cannot be reached: " + firstLine(err.Error()) + ": check its host and scheme, and the network"
	}
	return out
}

// saying returns the registry's own words, as far as they are fit to be shown.
func saying(answer *transport.Error) string {
	if len(answer.Errors) == 0 {
		return ""
	}
	d := answer.Errors[0]
	return " " + firstLine(string(d.Code)+": "+d.Message)
}

// firstLine cuts foreign text to what belongs in a condition.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return strings.TrimSpace(s)
}
