package ocm

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// IsReason reports whether an error is an *Error with the given reason code.
func IsReason(err error, reason string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == reason
}

// IsAbsentOrUnusable reports whether an error means that the artefact does not exist or cannot be parsed. If the error
// means that the registry itself has failed, IsAbsentOrUnusable returns false. IsAbsentOrUnusable also returns true for
// the reason RegistryUnauthorized, because some registries respond with 401 or 403 if an artefact does not exist.
func IsAbsentOrUnusable(err error) bool {
	switch ReasonOf(err) {
	case ArtifactNotFound, RegistryUnauthorized, InvalidReference, InvalidDescriptor, DigestMismatch, ArtifactTooLarge:
		return true
	}
	return false
}

// Reasons of an Error. The reason codes do not change, because conditions and events contain them.
const (
	// RegistryUnreachable: there is no connection, or the response comes too late, or the response reports an overload
	// or a failure of the registry (429, 5xx).
	RegistryUnreachable = "RegistryUnreachable"
	// EgressRefused: the registry, a redirect or the token server of the registry has an address that must not be
	// reached.
	EgressRefused = "EgressRefused"
	// RegistryUnauthorized: the registry rejects the credentials, or requires credentials.
	RegistryUnauthorized = "RegistryUnauthorized"
	// ArtifactNotFound: the registry has no such repository, tag or digest.
	ArtifactNotFound = "ArtifactNotFound"
	// DigestMismatch: the received bytes do not match the digest.
	DigestMismatch = "DigestMismatch"
	// ArtifactTooLarge: the artefact is larger than the limits in the Options.
	ArtifactTooLarge = "ArtifactTooLarge"
	// InvalidDescriptor: the manifest, the config or the component descriptor cannot be parsed, or belongs to another
	// component.
	InvalidDescriptor = "InvalidDescriptor"
	// AccessTypeNotSupported: a resource has an access type that is not supported.
	AccessTypeNotSupported = "AccessTypeNotSupported"
	// InvalidReference: a host, repository, version or digest is malformed.
	InvalidReference = "InvalidReference"
	// SignatureMissing: the trust policy requires a signature, but the artefact has no signature that can be verified.
	SignatureMissing = "SignatureMissing"
	// SignatureInvalid: the artefact has signatures, but none of them is a valid signature of this artefact by a key of
	// the trust policy.
	SignatureInvalid = "SignatureInvalid"
	// ArtifactExists: the tag already exists with other content, and the caller does not allow to replace it. Only
	// write operations return reason ArtifactExists.
	ArtifactExists = "ArtifactExists"
	// TrustPolicyInvalid: the file with the trust policy cannot be read or parsed.
	TrustPolicyInvalid = "TrustPolicyInvalid"
)

// Error describes which artefact could not be read or written, why, and how to correct this. The text of an Error is
// one line without credentials.
type Error struct {
	// Ref is the reference of the artefact: host/repository:tag or host/repository@digest.
	Ref string

	Code    string
	Doing   string // "pushing", "verifying" or "reading"; empty means pulling
	Problem string
	Cause   error
}

// Reason returns Code, which is one of the reason codes above.
func (e *Error) Reason() string { return e.Code }

// Unwrap returns the cause of the error. The text of the cause may contain URLs with secrets.
func (e *Error) Unwrap() error { return e.Cause }

// ReasonOf returns the reason code of an error, or "" if the error has none.
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func (e *Error) Error() string {
	doing := e.Doing
	if doing == "" {
		doing = "pulling"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' ' // names are user input and may contain control characters
		}
		return r
	}, doing+" "+e.Ref+": "+e.Problem)
}

// NewError returns an Error about the component version or artefact ref, with a reason code and a formatted text.
func NewError(reason, ref, format string, args ...any) *Error {
	return &Error{Ref: ref, Code: reason, Problem: fmt.Sprintf(format, args...)}
}

// FirstLine returns the first line of a text that comes from outside, with at most 200 characters. The returned line
// can be used in conditions.
func FirstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return strings.TrimSpace(s)
}
