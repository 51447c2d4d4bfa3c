package ocm

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// IsReason tells whether an error is an *Error with this reason.
func IsReason(err error, reason string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == reason
}

// isAbsent reports whether an error says that there is nothing to be had, or nothing that is understood, and not that the registry is not
// well. Some registries say 401 or 403 for what does not exist.
func IsAbsent(err error) bool {
	switch ReasonOf(err) {
	case ArtifactNotFound, RegistryUnauthorized, InvalidReference, InvalidDescriptor, DigestMismatch, ArtifactTooLarge:
		return true
	}
	return false
}

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

	Code    string
	Doing   string // "pushing", "verifying" or "reading"; empty means pulling
	Problem string
	Cause   error
}

// Reason is one of the reasons above.
func (e *Error) Reason() string { return e.Code }

// Unwrap returns the cause. Its text may name URLs that are not meant for everybody.
func (e *Error) Unwrap() error { return e.Cause }

// reasonOf returns the reason of an error, and nothing for one that has none.
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
			return ' ' // names may come from anywhere
		}
		return r
	}, doing+" "+e.Ref+": "+e.Problem)
}

func NewError(reason, ref, format string, args ...any) *Error {
	return &Error{Ref: ref, Code: reason, Problem: fmt.Sprintf(format, args...)}
}

// firstLine cuts foreign text to what belongs in a condition.
func FirstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return strings.TrimSpace(s)
}
