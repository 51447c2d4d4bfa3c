package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of Error: what kept an API server from doing what it was asked.
const (
	// ObjectRefused: the object itself is not acceptable (400, 403 by admission, 413, 422). It stays so until object or policy change.
	ObjectRefused = "ObjectRefused"
	// ObjectConflict: somebody else wrote at the same moment (409). The next try settles it.
	ObjectConflict = "ObjectConflict"
	// ObjectExists: Create found an object of that name.
	ObjectExists = "ObjectExists"
	// ObjectNotFound: Get found no such object.
	ObjectNotFound = "ObjectNotFound"
	// KindUnknown: the cluster does not serve the kind (or not in this version).
	KindUnknown = "KindUnknown"
	// NamespaceNotFound: the namespace of the object does not exist.
	NamespaceNotFound = "NamespaceNotFound"
	// NamespaceTerminating: the namespace of the object is being deleted.
	NamespaceTerminating = "NamespaceTerminating"
	// RuntimeUnreachable: no connection, no answer in time, or the answer of something that is not an API server.
	RuntimeUnreachable = "RuntimeUnreachable"
	// RuntimeUnauthorized: the credential is not accepted (401).
	RuntimeUnauthorized = "RuntimeUnauthorized"
	// RuntimeForbidden: the credential lacks a right (403); the message says which verb on which resource.
	RuntimeForbidden = "RuntimeForbidden"
	// Throttled: the API server asks to come back later (429, or 503 with Retry-After). See Error.RetryAfter.
	Throttled = "Throttled"
	// ServerFault: the API server failed (5xx), a webhook that could not be called included.
	ServerFault = "ServerFault"
)

// advice says what to do about a reason.
var advice = map[string]string{
	ObjectRefused:        "correct the object in the module, or the policy that refuses it",
	ObjectConflict:       "it is tried again",
	ObjectExists:         "delete it if it is not wanted",
	ObjectNotFound:       "create it if it is wanted",
	KindUnknown:          "install what defines this kind, or use a version of it that the cluster serves",
	NamespaceNotFound:    "create the namespace, or add it to the module",
	NamespaceTerminating: "wait until the namespace is gone, or remove what blocks its deletion",
	RuntimeUnreachable:   "check that the API server runs and that its address can be reached",
	RuntimeUnauthorized:  "renew the credential in the access Secret",
	RuntimeForbidden:     "grant that right to the credential in the access Secret",
	Throttled:            "it is tried again later",
	ServerFault:          "it is tried again",
}

// Error is the failure of one request, and the only error type of this package but for those of a context.
type Error struct {
	// Doing is what was tried: "applying", "deleting", "reading".
	Doing string
	// Ref is the object, zero if the request was about none.
	Ref Ref
	// Code is the HTTP status, 0 if there was no answer.
	Code int
	// Message is what the API server (or the connection) said, at most 1 KiB.
	Message string
	// RetryAfter is how long the API server asked to wait, 0 if it did not.
	RetryAfter time.Duration

	reason string
	err    error
}

// Reason is one of the constants above.
func (e *Error) Reason() string { return e.reason }

// Unwrap returns the error of the connection, nil if the API server answered.
func (e *Error) Unwrap() error { return e.err }

// Error names the object, the API server's own words, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Doing)
	if e.Ref.Kind != "" {
		b.WriteString(" " + e.Ref.String())
	}
	b.WriteString(": " + e.Message)
	if e.Code != 0 {
		b.WriteString(" (HTTP " + strconv.Itoa(e.Code) + ")")
	}
	return b.String() + ": " + advice[e.reason]
}

// Class says what a caller can do about an error.
type Class int

const (
	// Transient means: try again, with back-off.
	Transient Class = iota
	// Terminal means: the same request will be refused again; wait until the module or the cluster's policy changes.
	Terminal
	// Unreachable means: the whole cluster does not answer or asks for a pause; one probe decides when to go on.
	Unreachable
	// Unauthorized means: the credential is not accepted; wait for another one.
	Unauthorized
)

// ClassOf returns the class of an error of this package, wrapped or not. Every other error is Transient.
func ClassOf(err error) Class {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return Transient
	}
	switch e.reason {
	case ObjectRefused:
		return Terminal
	case RuntimeUnreachable, Throttled:
		return Unreachable
	case RuntimeUnauthorized:
		return Unauthorized
	default:
		return Transient // KindUnknown and RuntimeForbidden too: nobody tells when that has changed
	}
}

// stops reports whether an error is about the cluster as a whole, so that more requests make no sense now.
func stops(err error) bool {
	if _, ok := errors.AsType[*Error](err); !ok {
		return true // the caller's context has ended
	}
	class := ClassOf(err)
	return class == Unreachable || class == Unauthorized
}

// reasonIs reports whether err is an Error with this reason.
func reasonIs(err error, reason string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.reason == reason
}

// failed makes an Error of a request that got no answer, or returns the end of the caller's context as it is.
func (r *request) failed(ctx context.Context, wait time.Duration, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", r.doing, r.subject(), context.Cause(ctx))
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without method and URL, which say nothing to the reader
	}
	message := plain(err)
	if errors.Is(err, context.DeadlineExceeded) {
		message = fmt.Sprintf("no answer within %s", wait)
	}
	return &Error{Doing: r.doing, Ref: r.ref, Message: bounded(message), reason: RuntimeUnreachable, err: err}
}

// plain is what an error of a connection says without our own port, which is another one each time: messages end up in a status.
func plain(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return "looking up " + dns.Name + ": no such host"
		case dns.IsTimeout:
			return "looking up " + dns.Name + ": no answer"
		}
		return "looking up " + dns.Name + ": it failed"
	}
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Addr == nil {
		return err.Error()
	}
	cause := op.Err
	for inner, ok := errors.AsType[*net.OpError](cause); ok; inner, ok = errors.AsType[*net.OpError](cause) {
		cause = inner.Err
	}
	return op.Op + " " + op.Net + " " + op.Addr.String() + ": " + cause.Error()
}

// refused makes an Error of an answer that is not a success.
func (r *request) refused(code int, header http.Header, body []byte) *Error {
	e := &Error{Doing: r.doing, Ref: r.ref, Code: code}
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds >= 0 {
		e.RetryAfter = time.Duration(min(seconds, 3600)) * time.Second
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		status = metav1.Status{Message: string(body[:min(len(body), 256)])} // without a kind: not from an API server's own code
	}
	e.Message = bounded(status.Message)
	if e.Message == "" {
		e.Message = http.StatusText(code)
	}
	e.reason = r.classify(code, &status, e.RetryAfter > 0)
	return e
}

// classify finds the reason of a refusal. In the order of the cases:
//
//	401                              RuntimeUnauthorized
//	403 the namespace is going       NamespaceTerminating
//	403 by authorisation             RuntimeForbidden
//	404                              KindUnknown, NamespaceNotFound or ObjectNotFound
//	409                              ObjectExists for a POST, else ObjectConflict
//	429, 503 with Retry-After        Throttled
//	5xx not by an API server, 3xx    RuntimeUnreachable
//	500 on a malformed object        ObjectRefused
//	5xx                              ServerFault
//	other 4xx                        ObjectRefused
func (r *request) classify(code int, status *metav1.Status, pause bool) string {
	switch {
	case code == http.StatusUnauthorized:
		return RuntimeUnauthorized
	case code == http.StatusForbidden && hasCause(status, "NamespaceTerminating"):
		return NamespaceTerminating
	case code == http.StatusForbidden && isAuthorization(status):
		return RuntimeForbidden
	case code == http.StatusNotFound:
		return notFound(status, r.ref)
	case code == http.StatusConflict && status.Reason == metav1.StatusReasonAlreadyExists && r.method == http.MethodPost:
		return ObjectExists
	case code == http.StatusConflict:
		return ObjectConflict
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable && pause:
		return Throttled
	case code >= 500 && status.Kind != "Status", code < 400:
		return RuntimeUnreachable
	case code == http.StatusInternalServerError && isMalformed(status):
		return ObjectRefused
	case code >= 500:
		return ServerFault
	default:
		return ObjectRefused
	}
}

func hasCause(status *metav1.Status, cause metav1.CauseType) bool {
	if status.Details == nil {
		return false
	}
	for _, c := range status.Details.Causes {
		if c.Type == cause {
			return true
		}
	}
	return false
}

// isAuthorization tells a missing right from a refusal by admission. Both are 403 Forbidden with the same details; only the
// words differ. The authoriser and the check against escalation of rights name the user first, admission does not.
func isAuthorization(status *metav1.Status) bool {
	return strings.Contains(status.Message, `forbidden: User "`) || strings.Contains(status.Message, `forbidden: user "`)
}

// isMalformed recognises an object that does not fit the schema of its kind. The API server answers 500 without a reason,
// as it does when its storage is slow; only the words differ.
func isMalformed(status *metav1.Status) bool {
	return status.Reason == metav1.StatusReasonUnknown &&
		(strings.HasPrefix(status.Message, "failed to create typed patch object") || strings.HasPrefix(status.Message, "failed to convert new object"))
}

// notFound tells what is missing. An API server that does not serve a kind answers without naming an object.
func notFound(status *metav1.Status, ref Ref) string {
	switch {
	case status.Details == nil || status.Details.Name == "":
		return KindUnknown
	case status.Details.Kind == "namespaces" && ref.groupKind() != namespaceKind:
		return NamespaceNotFound
	default:
		return ObjectNotFound
	}
}

// bounded cuts a text at 1 KiB and puts it on one line.
func bounded(text string) string {
	const limit = 1024
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
