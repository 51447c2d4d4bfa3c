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

// Reasons of Error: why a request failed.
const (
	// ObjectRefused: the object itself is invalid (400, 403 by admission, 413, 422). It is refused again until object
	// or policy change.
	ObjectRefused = "ObjectRefused"
	// AdmissionRefused: an admission webhook or policy of the cluster rejects the object. No event reports when it
	// would accept it.
	AdmissionRefused = "AdmissionRefused"
	// FieldImmutable: a field of the object is immutable (422); Error.Fields names it. See AnnotationOnImmutable.
	FieldImmutable = "FieldImmutable"
	// StoredVersionDropped: a CustomResourceDefinition lacks a version in which objects may be stored (422). Nothing
	// was changed.
	StoredVersionDropped = "StoredVersionDropped"
	// ObjectConflict: another client wrote at the same time (409). A retry resolves it.
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
	// RuntimeUnreachable: no connection, no answer in time, or an answer that is not from an API server.
	RuntimeUnreachable = "RuntimeUnreachable"
	// RuntimeUnauthorized: the credential is not accepted (401).
	RuntimeUnauthorized = "RuntimeUnauthorized"
	// RuntimeForbidden: the credential lacks a right (403); the message says which verb on which resource.
	RuntimeForbidden = "RuntimeForbidden"
	// Throttled: the API server requests a delay (429, or 503 with Retry-After). See Error.RetryAfter.
	Throttled = "Throttled"
	// WebhookFailed: an admission or conversion webhook could not be called, or did not answer in time.
	WebhookFailed = "WebhookFailed"
	// ServerFault: the API server failed (5xx).
	ServerFault = "ServerFault"
	// StateRuleInvalid: a rule that reads the state of a custom resource is invalid; the message names it. See
	// StateEvaluator.
	StateRuleInvalid = "StateRuleInvalid"
)

// advice states, for each reason, what to do.
var advice = map[string]string{
	ObjectRefused:    "correct the object in the module, or the policy that refuses it",
	AdmissionRefused: "correct the object in the module, or the webhook or policy that refuses it; it is retried",
	FieldImmutable: "leave these fields as they were, or annotate the object with " + AnnotationOnImmutable +
		": recreate if it may be deleted and created again",
	StoredVersionDropped: "keep that version in the module (served: false is enough) until all objects are stored in " +
		"another version and it is removed from status.storedVersions",
	ObjectConflict:       "it is retried",
	ObjectExists:         "delete it if it is not wanted",
	ObjectNotFound:       "create it if it is wanted",
	KindUnknown:          "install the CRD of this kind, or use a version that the cluster serves",
	NamespaceNotFound:    "create the namespace, or add it to the module",
	NamespaceTerminating: "wait until the namespace is deleted, or remove what blocks its deletion",
	RuntimeUnreachable:   "check that the API server runs and that its address can be reached",
	RuntimeUnauthorized:  "renew the credential in the access Secret",
	RuntimeForbidden:     "grant that right to the credential in the access Secret",
	Throttled:            "it is retried later",
	WebhookFailed:        "check the workload behind the webhook, or remove the webhook if it has none; it is retried",
	ServerFault:          "it is retried",
	StateRuleInvalid:     "correct it in the ModuleTemplate",
}

// Error is the failure of one request, and the only error type of this package but for those of a context.
type Error struct {
	// Operation is what failed: "applying", "deleting", "reading".
	Operation string
	// Ref is the object, zero if the request was about none.
	Ref Ref
	// Code is the HTTP status, 0 if there was no answer.
	Code int
	// Message is that of the API server (or of the connection), at most 1 KiB.
	Message string
	// Fields that the API server names in a conflict or as immutable, at most ten, sorted.
	Fields []string
	// RetryAfter is the delay that the API server requested, 0 if none.
	RetryAfter time.Duration

	reason   string
	managers []string // that own Fields, in a conflict; at most ten, sorted
	err      error
}

// Reason is one of the constants above.
func (e *Error) Reason() string { return e.reason }

// Unwrap returns the error of the connection, nil if the API server answered.
func (e *Error) Unwrap() error { return e.err }

// Webhook returns the name of the admission webhook that could not be called if Reason is WebhookFailed; "" for other
// reasons, or if the API server does not name it.
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

// Error names the object, the message of the API server, and what to do.
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

// Class states how a caller should react to an error.
type Class int

const (
	// Transient means: retry with back-off.
	Transient Class = iota
	// Terminal means: the same request will be refused again; wait until the module or the policy of the cluster
	// changes.
	Terminal
	// Unreachable means: the whole cluster does not answer or throttles; send one probe before other requests.
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
		return Transient // also KindUnknown, RuntimeForbidden, AdmissionRefused: no event reports a change
	}
}

// concernsCluster reports whether an error concerns the cluster as a whole, so that no more requests should be sent
// now.
func concernsCluster(err error) bool {
	if _, ok := errors.AsType[*Error](err); !ok {
		return true // the context of the caller has ended
	}
	class := ClassOf(err)
	return class == Unreachable || class == Unauthorized
}

// reasonIs reports whether err is an Error with this reason.
func reasonIs(err error, reason string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.reason == reason
}

// noAnswerError returns the Error of a request that got no answer, or the error of the caller's context if it has
// ended.
func (r *request) noAnswerError(ctx context.Context, wait time.Duration, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", r.operation, r.subject(), context.Cause(ctx))
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without method and URL, which are of no use in a message
	}
	message := stableMessage(err)
	if errors.Is(err, context.DeadlineExceeded) {
		message = fmt.Sprintf("no answer within %s", wait)
	}
	return &Error{Operation: r.operation, Ref: r.ref, Message: bounded(message), reason: RuntimeUnreachable, err: err}
}

// stableMessage returns the message of a connection error without the local port, which differs each time: messages are
// stored in a status.
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

// statusError returns the Error of an answer that is not a success.
func (r *request) statusError(code int, header http.Header, body []byte) *Error {
	e := &Error{Operation: r.operation, Ref: r.ref, Code: code}
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds >= 0 {
		e.RetryAfter = time.Duration(min(seconds, 3600)) * time.Second
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		// Without a kind: not an error of the API server itself.
		status = metav1.Status{Message: string(body[:min(len(body), 256)])}
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

// classify returns the reason of a refusal. In the order of the cases:
//
//	by a webhook or a policy         AdmissionRefused; they choose the code
//	401                              RuntimeUnauthorized
//	403 namespace is terminating     NamespaceTerminating
//	403 by authorization             RuntimeForbidden
//	404                              KindUnknown, NamespaceNotFound or ObjectNotFound
//	409                              ObjectExists for a POST, else ObjectConflict
//	429, 503 with Retry-After        Throttled
//	5xx not by an API server, 3xx    RuntimeUnreachable
//	500 on a malformed object        ObjectRefused
//	500 on a call of a webhook       WebhookFailed
//	5xx                              ServerFault
//	422 a stored version is missing  StoredVersionDropped
//	422 only immutable fields        FieldImmutable; ObjectConflict for metadata.uid, which is sent to address one object
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
	case code == http.StatusConflict && status.Reason == metav1.StatusReasonAlreadyExists &&
		r.method == http.MethodPost:
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

// isAuthorization distinguishes a missing right from a rejection by admission. Both are 403 Forbidden with the same
// details; only the messages differ. The authorizer and the check against privilege escalation name the user first,
// admission does not.
func isAuthorization(status *metav1.Status) bool {
	return strings.Contains(status.Message, `forbidden: User "`) ||
		strings.Contains(status.Message, `forbidden: user "`)
}

// isMalformed reports whether an object does not match the schema of its kind. The API server answers 500 without a
// reason, as it does when its storage is slow; only the messages differ.
func isMalformed(status *metav1.Status) bool {
	return status.Reason == metav1.StatusReasonUnknown &&
		(strings.HasPrefix(status.Message, "failed to create typed patch object") ||
			strings.HasPrefix(status.Message, "failed to convert new object"))
}

// isAdmission reports whether a webhook or policy of the cluster has rejected the object, by the prefix of the API
// server's message.
func isAdmission(status *metav1.Status) bool {
	return strings.HasPrefix(status.Message, `admission webhook "`) &&
		strings.Contains(status.Message, " denied the request") ||
		strings.Contains(status.Message, "ValidatingAdmissionPolicy '") &&
			strings.Contains(status.Message, " denied request")
}

// isWebhook reports whether a webhook could not be called or has not answered in time.
func isWebhook(status *metav1.Status) bool {
	return strings.Contains(status.Message, "failed calling webhook") ||
		strings.Contains(status.Message, "conversion webhook for ")
}

// causes returns the causes of a refusal; nil if there are none.
func causes(status *metav1.Status) []metav1.StatusCause {
	if status.Details == nil {
		return nil
	}
	return status.Details.Causes
}

// immutableWords are the words with which API servers and rules of CustomResourceDefinitions report an immutable field;
// the answer has no code for it.
var immutableWords = []string{"immutable", "may not change", "may not be changed", "cannot be changed", "cannot change"}

func isImmutableCause(c *metav1.StatusCause) bool {
	return (c.Type == metav1.CauseTypeFieldValueInvalid || c.Type == metav1.CauseTypeForbidden) &&
		slices.ContainsFunc(immutableWords, func(words string) bool { return strings.Contains(c.Message, words) })
}

// isImmutable reports whether an object was refused only because of immutable fields: if it were created anew, it would
// be accepted.
func isImmutable(status *metav1.Status) bool {
	all := causes(status)
	return len(all) > 0 && !slices.ContainsFunc(all, func(c metav1.StatusCause) bool { return !isImmutableCause(&c) })
}

// immutableFields returns the immutable fields and a message with the reasons, without values, which may be whole pod
// templates.
func immutableFields(status *metav1.Status) (fields []string, message string) {
	var parts []string
	for _, c := range causes(status)[:min(len(causes(status)), maxFields)] {
		words, _, _ := strings.Cut(c.Message, "\n") // a list of differences follows
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

// droppedVersions returns a message that names the stored versions that a CustomResourceDefinition lacks; "" if there
// are none. The API server checks that before it writes anything, so that reading the stored versions before would only
// cost requests.
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
	return bounded("the module has dropped version " + strings.Join(versions, ", ") +
		", in which objects may still be stored (status.storedVersions)")
}

// conflictingFields returns the fields that other managers own, and those managers.
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

// sortedFew returns the texts sorted, each once, at most ten.
func sortedFew(texts []string) []string {
	slices.Sort(texts)
	texts = slices.Compact(texts)
	return texts[:min(len(texts), maxFields)]
}

// notFoundReason returns what is missing. An API server that does not serve a kind answers without the name of an
// object.
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
