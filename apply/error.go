package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of Error: what kept an API server from doing what it was asked.
const (
	// ObjectRefused: the object itself is not acceptable (400, 403 by admission, 413, 422). It stays so until object or policy change.
	ObjectRefused = "ObjectRefused"
	// AdmissionRefused: an admission webhook or policy of the cluster does not accept the object. Nobody tells when it will.
	AdmissionRefused = "AdmissionRefused"
	// FieldImmutable: a field of the object cannot be changed (422); Error.Fields names it. See AnnotationOnImmutable.
	FieldImmutable = "FieldImmutable"
	// StoredVersionDropped: a CustomResourceDefinition lacks a version in which objects may be stored (422). Nothing was changed.
	StoredVersionDropped = "StoredVersionDropped"
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
	// WebhookFailed: an admission or conversion webhook could not be called, or did not answer in time.
	WebhookFailed = "WebhookFailed"
	// ServerFault: the API server failed (5xx).
	ServerFault = "ServerFault"
	// StateRuleInvalid: a rule that reads the state of a custom resource is wrong; the message names it. See States.
	StateRuleInvalid = "StateRuleInvalid"
)

// advice says what to do about a reason.
var advice = map[string]string{
	ObjectRefused:        "correct the object in the module, or the policy that refuses it",
	AdmissionRefused:     "correct the object in the module, or the webhook or policy that refuses it; it is tried again",
	FieldImmutable:       "leave these fields as they were, or annotate the object with " + AnnotationOnImmutable + ": recreate if losing it does no harm",
	StoredVersionDropped: "keep that version in the module (served: false is enough) until all objects are stored in another one and it has left status.storedVersions",
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
	WebhookFailed:        "check the workload behind the webhook, or remove the webhook if nothing is; it is tried again",
	ServerFault:          "it is tried again",
	StateRuleInvalid:     "correct it in the ModuleTemplate",
}

// Error is the failure of one request, and the only error type of this package but for those of a context.
type Error struct {
	// Operation is what was tried: "applying", "deleting", "reading".
	Operation string
	// Ref is the object, zero if the request was about none.
	Ref Ref
	// Code is the HTTP status, 0 if there was no answer.
	Code int
	// Message is what the API server (or the connection) said, at most 1 KiB.
	Message string
	// Fields that the API server names in a conflict or an immutable field, at most ten, sorted.
	Fields []string
	// RetryAfter is how long the API server asked to wait, 0 if it did not.
	RetryAfter time.Duration

	reason   string
	managers []string // that own Fields, in a conflict; at most ten, sorted
	err      error
}

// Reason is one of the constants above.
func (e *Error) Reason() string { return e.reason }

// Unwrap returns the error of the connection, nil if the API server answered.
func (e *Error) Unwrap() error { return e.err }

// Webhook returns the name of the admission webhook that could not be called, if that is the Reason; "" if it is not, or if the API
// server does not name it.
func (e *Error) Webhook() string {
	_, rest, found := strings.Cut(e.Message, "failed calling webhook ")
	if e.reason != WebhookFailed || !found {
		return ""
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return ""
	}
	name, _ := strconv.Unquote(quoted) // it is quoted
	return name
}

// Error names the object, the API server's own words, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Operation)
	if e.Ref.Kind != "" {
		b.WriteString(" " + e.Ref.String())
	}
	b.WriteString(": " + e.Message)
	if e.Code != 0 {
		b.WriteString(" (HTTP " + strconv.Itoa(e.Code) + ")")
	}
	what := advice[e.reason]
	if e.reason == FieldImmutable && !canRecreate(e.Ref) {
		what = "leave these fields as they were"
	}
	return b.String() + ": " + what
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
	case ObjectRefused, FieldImmutable, StoredVersionDropped, StateRuleInvalid:
		return Terminal
	case RuntimeUnreachable, Throttled:
		return Unreachable
	case RuntimeUnauthorized:
		return Unauthorized
	default:
		return Transient // KindUnknown, RuntimeForbidden and AdmissionRefused too: nobody tells when that has changed
	}
}

// stops reports whether an error is about the cluster as a whole, so that more requests make no sense now.
func concernsCluster(err error) bool {
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
func (r *request) noAnswerError(ctx context.Context, wait time.Duration, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", r.operation, r.subject(), context.Cause(ctx))
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without method and URL, which say nothing to the reader
	}
	message := stableMessage(err)
	if errors.Is(err, context.DeadlineExceeded) {
		message = fmt.Sprintf("no answer within %s", wait)
	}
	return &Error{Operation: r.operation, Ref: r.ref, Message: bounded(message), reason: RuntimeUnreachable, err: err}
}

// plain is what an error of a connection says without our own port, which is another one each time: messages end up in a status.
func stableMessage(err error) string {
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
func (r *request) statusError(code int, header http.Header, body []byte) *Error {
	e := &Error{Operation: r.operation, Ref: r.ref, Code: code}
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
	switch e.reason {
	case ObjectConflict:
		e.Fields, e.managers = conflictingFields(&status)
	case FieldImmutable:
		e.Fields, e.Message = immutableFields(&status)
	case StoredVersionDropped:
		e.Message = droppedVersions(&status)
	}
	return e
}

// classify finds the reason of a refusal. In the order of the cases:
//
//	by a webhook or a policy         AdmissionRefused; they choose the code
//	401                              RuntimeUnauthorized
//	403 the namespace is going       NamespaceTerminating
//	403 by authorisation             RuntimeForbidden
//	404                              KindUnknown, NamespaceNotFound or ObjectNotFound
//	409                              ObjectExists for a POST, else ObjectConflict
//	429, 503 with Retry-After        Throttled
//	5xx not by an API server, 3xx    RuntimeUnreachable
//	500 on a malformed object        ObjectRefused
//	500 on a call of a webhook       WebhookFailed
//	5xx                              ServerFault
//	422 a stored version is missing  StoredVersionDropped
//	422 only fields that are fixed   FieldImmutable; of metadata.uid, which we send to mean one object, ObjectConflict
//	other 4xx                        ObjectRefused
func (r *request) classify(code int, status *metav1.Status, pause bool) string {
	switch {
	case code >= 400 && isAdmission(status):
		return AdmissionRefused
	case code == http.StatusUnauthorized:
		return RuntimeUnauthorized
	case code == http.StatusForbidden && hasCause(status, "NamespaceTerminating"):
		return NamespaceTerminating
	case code == http.StatusForbidden && isAuthorization(status):
		return RuntimeForbidden
	case code == http.StatusNotFound:
		return notFoundReason(status, r.ref)
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
	case code == http.StatusInternalServerError && isWebhook(status):
		return WebhookFailed
	case code >= 500:
		return ServerFault
	case r.ref.groupKind() == crdKind && droppedVersions(status) != "":
		return StoredVersionDropped
	case isImmutable(status):
		if fields, _ := immutableFields(status); len(fields) == 1 && fields[0] == "metadata.uid" {
			return ObjectConflict
		}
		return FieldImmutable
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

// isAdmission recognises what a webhook or a policy of the cluster has refused by the words that the API server puts first.
func isAdmission(status *metav1.Status) bool {
	return strings.HasPrefix(status.Message, `admission webhook "`) && strings.Contains(status.Message, " denied the request") ||
		strings.Contains(status.Message, "ValidatingAdmissionPolicy '") && strings.Contains(status.Message, " denied request")
}

// isWebhook recognises a webhook that could not be called, or has not answered in time.
func isWebhook(status *metav1.Status) bool {
	return strings.Contains(status.Message, "failed calling webhook") || strings.Contains(status.Message, "conversion webhook for ")
}

// causes returns the causes of a refusal; none if it has none.
func causes(status *metav1.Status) []metav1.StatusCause {
	if status.Details == nil {
		return nil
	}
	return status.Details.Causes
}

// immutableWords are how API servers and rules of CustomResourceDefinitions say that a field is fixed; the answer has no code for it.
var immutableWords = []string{"immutable", "may not change", "may not be changed", "cannot be changed", "cannot change"}

func isImmutableCause(c *metav1.StatusCause) bool {
	return (c.Type == metav1.CauseTypeFieldValueInvalid || c.Type == metav1.CauseTypeForbidden) &&
		slices.ContainsFunc(immutableWords, func(words string) bool { return strings.Contains(c.Message, words) })
}

// isImmutable reports whether fixed fields, and nothing else, are why an object was refused: created anew it would be accepted.
func isImmutable(status *metav1.Status) bool {
	all := causes(status)
	return len(all) > 0 && !slices.ContainsFunc(all, func(c metav1.StatusCause) bool { return !isImmutableCause(&c) })
}

// immutables returns the fields that cannot be changed, and that in words: without values, which may be whole pods.
func immutableFields(status *metav1.Status) (fields []string, message string) {
	var parts []string
	for _, c := range causes(status)[:min(len(causes(status)), maxFields)] {
		words, _, _ := strings.Cut(c.Message, "\n") // below it is a list of differences
		if i := strings.LastIndex(words, ": "); i >= 0 {
			words = words[i+2:]
		}
		fields = append(fields, c.Field)
		parts = append(parts, c.Field+": "+words)
	}
	slices.Sort(fields)
	slices.Sort(parts)
	return slices.Compact(fields), bounded(strings.Join(slices.Compact(parts), "; "))
}

// droppedVersions says which stored versions a CustomResourceDefinition lacks; "" if none. The API server checks that before it writes
// anything, against what it has stored at that moment, so that asking it before would only cost requests.
func droppedVersions(status *metav1.Status) string {
	var versions []string
	for _, c := range causes(status) {
		_, value, _ := strings.Cut(c.Message, "Invalid value: ")
		quoted, err := strconv.QuotedPrefix(value)
		if err == nil && strings.HasPrefix(c.Field, "status.storedVersions[") {
			versions = append(versions, strings.Trim(quoted, `"`))
		}
	}
	if len(versions) == 0 {
		return ""
	}
	slices.Sort(versions)
	return bounded("the module has dropped version " + strings.Join(versions, ", ") + ", in which objects may still be stored (status.storedVersions)")
}

// conflicts returns the fields that others own, and those others.
func conflictingFields(status *metav1.Status) (fields, managers []string) {
	for _, c := range causes(status) {
		rest, ok := strings.CutPrefix(c.Message, "conflict with ")
		manager, err := strconv.QuotedPrefix(rest)
		if c.Type != metav1.CauseTypeFieldManagerConflict || !ok || err != nil {
			continue
		}
		fields = append(fields, strings.ReplaceAll(strings.TrimPrefix(c.Field, "."), `"`, ""))
		if manager, err = strconv.Unquote(manager); err == nil {
			managers = append(managers, bounded(manager))
		}
	}
	return sortedFew(fields), sortedFew(managers)
}

// firstFew sorts texts and returns each once, at most ten.
func sortedFew(texts []string) []string {
	slices.Sort(texts)
	texts = slices.Compact(texts)
	return texts[:min(len(texts), maxFields)]
}

// notFound tells what is missing. An API server that does not serve a kind answers without naming an object.
func notFoundReason(status *metav1.Status, ref Ref) string {
	switch {
	case status.Details == nil || status.Details.Name == "":
		return KindUnknown
	case status.Details.Kind == "namespaces" && ref.groupKind() != namespaceKind:
		return NamespaceNotFound
	default:
		return ObjectNotFound
	}
}

// bounded puts a text on one line of at most 1 KiB.
func bounded(text string) string { return clip(text, 1<<10) }

// clip puts a text on one line of at most limit bytes, and an ellipsis if it was longer.
func clip(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
