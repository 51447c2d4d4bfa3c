package apply

import (
	"cmp"
	"context"
	"crypto/tls"
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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// Reasons of an Error.
const (
	// ObjectRefused: the object is invalid (400, 403 by admission, 413, 422). The API server rejects the same object
	// again until the object or the policy changes.
	ObjectRefused = "ObjectRefused"
	// AdmissionRefused: an admission webhook or admission policy of the cluster rejects the object. The caller has to
	// apply the object again from time to time, because no watch event shows when the webhook or the policy would
	// accept the object.
	AdmissionRefused = "AdmissionRefused"
	// FieldImmutable: a field of the object is immutable (422); Error.Fields names it. See AnnotationOnImmutable.
	FieldImmutable = "FieldImmutable"
	// StoredVersionDropped: a new CustomResourceDefinition lacks a version that status.storedVersions lists. The API
	// server has rejected the PATCH of the CustomResourceDefinition with 422 and has changed nothing.
	StoredVersionDropped = "StoredVersionDropped"
	// ObjectConflict: another client wrote the object at the same time (409). A retry resolves the conflict.
	ObjectConflict = "ObjectConflict"
	// ObjectExists: [Cluster.Create] failed, because an object with the same name exists.
	ObjectExists = "ObjectExists"
	// AdoptionRefused: the object exists, another client created it, and the policy forbids to adopt it. See Adoption.
	AdoptionRefused = "AdoptionRefused"
	// OwnedByOtherModule: the object belongs to another installation, which applies it with other content. See
	// Ownership.
	OwnedByOtherModule = "OwnedByOtherModule"
	// ObjectNotFound: the object that Get requested does not exist.
	ObjectNotFound = "ObjectNotFound"
	// KindUnknown: the cluster does not serve the kind, or does not serve the kind in this version.
	KindUnknown = "KindUnknown"
	// NamespaceNotFound: the namespace of the object does not exist.
	NamespaceNotFound = "NamespaceNotFound"
	// NamespaceTerminating: the namespace of the object is being deleted.
	NamespaceTerminating = "NamespaceTerminating"
	// RuntimeUnreachable: the connection failed, the request timed out, or the response is not from an API server.
	RuntimeUnreachable = "RuntimeUnreachable"
	// RuntimeCertificateInvalid: the certificate of the API server is not trusted, is for another host, or has expired.
	RuntimeCertificateInvalid = "RuntimeCertificateInvalid"
	// RuntimeUnauthorized: the API server does not accept the credential (401, or a TLS alert).
	RuntimeUnauthorized = "RuntimeUnauthorized"
	// RuntimeForbidden: the credential lacks a right (403). The message of the error contains the missing verb and
	// resource.
	RuntimeForbidden = "RuntimeForbidden"
	// Throttled: the API server requests that the client waits (429, or 503 with Retry-After). See Error.RetryAfter.
	Throttled = "Throttled"
	// WebhookFailed: an admission or conversion webhook could not be called or timed out.
	WebhookFailed = "WebhookFailed"
	// ServerFault: the API server returned a server error (5xx).
	ServerFault = "ServerFault"
	// StateRuleInvalid: a rule that reads the state of a custom resource is invalid. The message of an error with
	// reason StateRuleInvalid contains the invalid rule. See StateEvaluator.
	StateRuleInvalid = "StateRuleInvalid"
)

// advice has an instruction for each reason: how a user can fix the problem.
var advice = map[string]string{
	ObjectRefused:    "correct the object in the module, or the policy that refuses it",
	AdmissionRefused: "correct the object in the module, or the webhook or policy that refuses it; it is retried",
	FieldImmutable: "leave these fields as they were, or annotate the object with " + AnnotationOnImmutable +
		": recreate if it may be deleted and created again",
	StoredVersionDropped: "keep that version in the module (served: false is enough) until all objects are stored in " +
		"another version and it is removed from status.storedVersions",
	ObjectConflict: "it is retried",
	ObjectExists:   "delete it if it is not wanted",
	AdoptionRefused: "rename the object in the module, delete the existing object, or allow its adoption with the " +
		"annotation " + AnnotationAdoption + ": adopt in the module",
	OwnedByOtherModule:   "make both modules contain the same object, or remove it from one of them",
	ObjectNotFound:       "create it if it is wanted",
	KindUnknown:          "install the CRD of this kind, or use a version that the cluster serves",
	NamespaceNotFound:    "create the namespace, or add it to the module",
	NamespaceTerminating: "wait until the namespace is deleted, or remove what blocks its deletion",
	RuntimeUnreachable:   "check that the API server runs and that its address can be reached",
	RuntimeCertificateInvalid: "correct certificate-authority-data and server of the kubeconfig in the access Secret, " +
		"or the certificate of the API server",
	RuntimeUnauthorized: "renew the credential in the access Secret",
	RuntimeForbidden:    "grant that right to the credential in the access Secret",
	Throttled:           "it is retried later",
	WebhookFailed:       "check the workload behind the webhook, or remove the webhook if it has none; it is retried",
	ServerFault:         "it is retried",
	StateRuleInvalid:    "correct it in the ModuleTemplate",
}

// Error is the failure of one request. All errors of this package are of type *Error, except errors of a context.
type Error struct {
	// Operation is the failed operation: "applying", "deleting", "reading".
	Operation string
	// Ref is the object. Ref is zero if the request did not concern an object.
	Ref Ref
	// Code is the HTTP status. Code is 0 if there was no response.
	Code int
	// Message is the message of the API server or of the connection, at most 1 KiB.
	Message string
	// Fields are the fields that the API server reports as conflicting or immutable, at most ten, sorted.
	Fields []string
	// RetryAfter is the delay that the API server requested. RetryAfter is 0 if no delay was requested.
	RetryAfter time.Duration

	reason   string
	advice   string   // replaces the advice for the reason; usually ""
	managers []string // managers that own Fields in a conflict; at most ten, sorted
	unserved string   // see unservedVersion
	err      error
}

// Reason returns one of the reasons defined above.
func (e *Error) Reason() string { return e.reason }

// Unwrap returns the connection error that caused e, or nil if the API server responded.
func (e *Error) Unwrap() error { return e.err }

// FailedWebhook returns the name of the admission webhook that could not be called if Reason is WebhookFailed.
// FailedWebhook returns "" if Reason is not WebhookFailed, or if the response of the API server does not contain the
// name of the webhook.
func (e *Error) FailedWebhook() string {
	_, rest, found := strings.Cut(e.Message, "failed calling webhook ")
	if e.reason != WebhookFailed || !found {
		return ""
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return ""
	}
	name, _ := strconv.Unquote(quoted) // the name is quoted in the message
	return name
}

// Error returns the object, the message of the API server, and the advice for the reason.
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
	what := cmp.Or(e.advice, advice[e.reason])
	if e.reason == FieldImmutable && !canRecreate(e.Ref) {
		what = "leave these fields as they were"
	}
	return b.String() + ": " + what
}

// Class is how a caller should react to an error.
type Class int

const (
	// Transient means that the caller should retry with backoff.
	Transient Class = iota
	// Terminal means that the API server will reject the same request again. After a Terminal error, the caller should
	// wait until the module changes, or the policy in the cluster that rejects the request.
	Terminal
	// Unreachable means that the whole cluster does not respond or throttles. After an Unreachable error, the caller
	// should send a single probe request, and other requests only when the probe has succeeded.
	Unreachable
	// Unauthorized means that the credential is not accepted. The caller should wait for another credential.
	Unauthorized
)

// ClassOf returns the class of an error of this package, wrapped or not. The class of an error that joins the failures
// of several objects, such as the error of Result.Err, is the class of all these failures, or Transient if they have
// different classes: then a retry can succeed for some of the objects. The class of every other error is Transient.
func ClassOf(err error) Class {
	if f, ok := errors.AsType[*failures](err); ok {
		return f.class()
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return Transient
	}
	switch e.reason {
	case ObjectRefused, FieldImmutable, StoredVersionDropped, StateRuleInvalid:
		return Terminal
	case RuntimeUnreachable, RuntimeCertificateInvalid, Throttled:
		return Unreachable
	case RuntimeUnauthorized:
		return Unauthorized
	default:
		return Transient // also KindUnknown, RuntimeForbidden, AdmissionRefused: no event reports a change
	}
}

// concernsCluster reports whether an error concerns the whole cluster. After an error that concerns the whole cluster,
// the caller should send no more requests to the cluster for now.
func concernsCluster(err error) bool {
	if _, ok := errors.AsType[*Error](err); !ok {
		return true // the context of the caller has ended
	}
	class := ClassOf(err)
	return class == Unreachable || class == Unauthorized
}

// reasonIs reports whether err is an *Error with this reason.
func reasonIs(err error, reason string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.reason == reason
}

// noAnswerError returns the Error of a request that got no response. If the context of the caller has ended,
// noAnswerError returns the error of the context.
func (r *request) noAnswerError(ctx context.Context, wait time.Duration, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", r.operation, r.subject(), context.Cause(ctx))
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // remove method and URL, which do not help in a message
	}
	message := stableMessage(err)
	if errors.Is(err, context.DeadlineExceeded) {
		message = fmt.Sprintf("no answer within %s", wait)
	}
	reason := RuntimeUnreachable
	switch {
	case IsServerCertificateInvalid(err):
		reason = RuntimeCertificateInvalid
	case IsClientCertificateRefused(err):
		reason = RuntimeUnauthorized
	}
	return &Error{Operation: r.operation, Ref: r.ref, Message: clipMessage(message), reason: reason, err: err}
}

// IsServerCertificateInvalid reports whether a request failed because the certificate of the server is not valid.
func IsServerCertificateInvalid(err error) bool {
	_, invalid := errors.AsType[*tls.CertificateVerificationError](err)
	return invalid
}

// IsClientCertificateRefused reports whether a request failed because the server does not accept the client
// certificate. IsClientCertificateRefused returns true for the TLS alerts 42 to 46, 48 and 116, because RFC 8446
// defines these alerts for problems with certificates.
func IsClientCertificateRefused(err error) bool {
	alert, sent := errors.AsType[tls.AlertError](err)
	return sent && (alert >= 42 && alert <= 46 || alert == 48 || alert == 116)
}

// stableMessage returns the message of a connection error without the local port. The local port is left out, because
// it differs for each connection, and a message that is stored in a status must not change while the error stays the
// same.
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

// statusError returns the Error of a response that is not a success.
func (r *request) statusError(code int, header http.Header, body []byte) *Error {
	e := &Error{Operation: r.operation, Ref: r.ref, Code: code}
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds >= 0 {
		e.RetryAfter = time.Duration(min(seconds, 3600)) * time.Second
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		// A response without a kind is not from the API server itself.
		status = metav1.Status{Message: string(body[:min(len(body), 256)])}
	}
	e.Message = clipMessage(status.Message)
	if e.Message == "" {
		e.Message = http.StatusText(code)
	}
	e.reason = r.responseReason(code, &status, e.RetryAfter > 0)
	e.unserved = unservedVersion(code, &status)
	switch e.reason {
	case ObjectConflict:
		e.Fields, e.managers = conflictingFields(&status)
	case FieldImmutable:
		e.Fields, e.Message = rejectedFields(&status)
	case StoredVersionDropped:
		e.Message = droppedVersionsMessage(&status)
	}
	return e
}

// responseReason returns the reason of an error response. The left column of the table below has the cases, and the
// right column has the reasons. responseReason uses the first case that matches.
//
//	by a webhook or a policy         AdmissionRefused; the webhook or policy chooses the code
//	401                              RuntimeUnauthorized
//	403 namespace is terminating     NamespaceTerminating
//	403 by authorization             RuntimeForbidden
//	404                              KindUnknown, NamespaceNotFound or ObjectNotFound
//	409                              ObjectExists for a POST, else ObjectConflict
//	429, 503 with Retry-After        Throttled
//	503 by an aggregated API         ServerFault; see isAggregatedAPIDown
//	5xx not by an API server, 3xx    RuntimeUnreachable
//	500 for a malformed object       ObjectRefused
//	500 for a webhook call           WebhookFailed
//	5xx                              ServerFault
//	422 a stored version is missing  StoredVersionDropped
//	422 only immutable fields        FieldImmutable; ObjectConflict for metadata.uid, which is sent to address one object
//	other 4xx                        ObjectRefused
func (r *request) responseReason(code int, status *metav1.Status, hasRetryAfter bool) string {
	switch {
	case code >= 400 && isAdmissionDenial(status):
		return AdmissionRefused
	case code == http.StatusUnauthorized:
		return RuntimeUnauthorized
	case code == http.StatusForbidden && hasCause(status, "NamespaceTerminating"):
		return NamespaceTerminating
	case code == http.StatusForbidden && isMissingPermission(status):
		return RuntimeForbidden
	case code == http.StatusNotFound:
		return notFoundReason(status, r.ref)
	case code == http.StatusConflict && status.Reason == metav1.StatusReasonAlreadyExists &&
		r.method == http.MethodPost:
		return ObjectExists
	case code == http.StatusConflict:
		return ObjectConflict
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable && hasRetryAfter:
		return Throttled
	case r.isAggregatedAPIDown(code, status):
		return ServerFault
	case code >= 500 && status.Kind != "Status", code < 400:
		return RuntimeUnreachable
	case code == http.StatusInternalServerError && isMalformedObject(status):
		return ObjectRefused
	case code == http.StatusInternalServerError && isWebhookCallFailure(status):
		return WebhookFailed
	case code >= 500:
		return ServerFault
	case r.ref.groupKind() == crdKind && droppedVersionsMessage(status) != "":
		return StoredVersionDropped
	case isOnlyImmutableFields(status):
		if fields, _ := rejectedFields(status); len(fields) == 1 && fields[0] == "metadata.uid" {
			return ObjectConflict
		}
		return FieldImmutable
	default:
		return ObjectRefused
	}
}

// aggregatedAPIDown is the plain text with which an API server responds if no server behind an APIService is available.
// The text has to match exactly: load balancers before an API server respond with other texts, and then the whole
// cluster is unreachable.
const aggregatedAPIDown = "service unavailable"

// isAggregatedAPIDown reports whether an error response means that only the server behind an APIService is down, while
// the other APIs of the cluster work. Built-in groups have no server behind an APIService. The API server responds with
// a plain text instead of a Status.
func (r *request) isAggregatedAPIDown(code int, status *metav1.Status) bool {
	rest, ok := strings.CutPrefix(r.path, "/apis/")
	if !ok || code != http.StatusServiceUnavailable || status.Kind == "Status" ||
		strings.TrimSpace(status.Message) != aggregatedAPIDown {
		return false
	}
	group, _, _ := strings.Cut(rest, "/")
	for kind := range builtins {
		if kind.Group == group {
			return false
		}
	}
	return true
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

// isMissingPermission reports whether a 403 Forbidden means a missing right and not a rejection by admission.
// isMissingPermission has to compare the message, because the API server sends the same details for a missing right and
// for a rejection by admission. The message about a missing right contains the word User and the name of the user after
// "forbidden: ". The message about a rejection by admission names no user after "forbidden: ".
func isMissingPermission(status *metav1.Status) bool {
	return strings.Contains(status.Message, `forbidden: User "`) ||
		strings.Contains(status.Message, `forbidden: user "`)
}

// isMalformedObject reports whether an object does not match the schema of its kind. isMalformedObject has to compare
// the message: the API server responds with 500 and no reason both for a malformed object and when its storage is slow.
func isMalformedObject(status *metav1.Status) bool {
	return status.Reason == metav1.StatusReasonUnknown &&
		(strings.HasPrefix(status.Message, "failed to create typed patch object") ||
			strings.HasPrefix(status.Message, "failed to convert new object"))
}

// isAdmissionDenial reports whether an admission webhook or policy of the cluster has rejected the object.
// isAdmissionDenial checks the prefix of the message of the API server.
func isAdmissionDenial(status *metav1.Status) bool {
	return strings.HasPrefix(status.Message, `admission webhook "`) &&
		strings.Contains(status.Message, " denied the request") ||
		strings.Contains(status.Message, "ValidatingAdmissionPolicy '") &&
			strings.Contains(status.Message, " denied request")
}

// isWebhookCallFailure reports whether an error response means that a webhook could not be called or timed out.
func isWebhookCallFailure(status *metav1.Status) bool {
	return strings.Contains(status.Message, "failed calling webhook") ||
		strings.Contains(status.Message, "conversion webhook for ")
}

// causes returns the causes in an error response. causes returns nil if there are no causes.
func causes(status *metav1.Status) []metav1.StatusCause {
	if status.Details == nil {
		return nil
	}
	return status.Details.Causes
}

// immutableWords are words with which API servers, and validation rules of CustomResourceDefinitions, reject the change
// of an immutable field. The package has to search the message for immutableWords, because the API server has no reason
// code for the rejected change of an immutable field.
var immutableWords = []string{"immutable", "may not change", "may not be changed", "cannot be changed", "cannot change"}

func isImmutableCause(c *metav1.StatusCause) bool {
	return (c.Type == metav1.CauseTypeFieldValueInvalid || c.Type == metav1.CauseTypeForbidden) &&
		slices.ContainsFunc(immutableWords, func(words string) bool { return strings.Contains(c.Message, words) })
}

// IsRecreated reports whether Apply deletes an object and creates it again, after an API server has rejected the object
// with err: because only immutable fields would change, and AnnotationOnImmutable of the desired object permits it.
func IsRecreated(ref Ref, annotations map[string]string, err error) bool {
	var rejected apierrors.APIStatus
	if !errors.As(err, &rejected) || annotations[AnnotationOnImmutable] != recreate || !canRecreate(ref) {
		return false
	}
	status := rejected.Status()
	return isOnlyImmutableFields(&status)
}

// isOnlyImmutableFields reports whether an object was rejected only because of immutable fields. The API server would
// accept the object if it were deleted and created again.
func isOnlyImmutableFields(status *metav1.Status) bool {
	all := causes(status)
	return len(all) > 0 && !slices.ContainsFunc(all, func(c metav1.StatusCause) bool { return !isImmutableCause(&c) })
}

// rejectedFields returns the immutable fields that a request tried to change, and a message with the reasons. The
// message contains no values, because values may be whole pod templates.
func rejectedFields(status *metav1.Status) (fields []string, message string) {
	var parts []string
	for _, c := range causes(status)[:min(len(causes(status)), maxFields)] {
		words, _, _ := strings.Cut(c.Message, "\n") // a list of differences follows the first line
		if i := strings.LastIndex(words, ": "); i >= 0 {
			words = words[i+2:]
		}
		fields = append(fields, c.Field)
		parts = append(parts, c.Field+": "+words)
	}
	slices.Sort(fields)
	slices.Sort(parts)
	return slices.Compact(fields), clipMessage(strings.Join(slices.Compact(parts), "; "))
}

// droppedVersionsMessage returns a message with the stored versions that the rejected new CustomResourceDefinition does
// not contain. If the response of the API server names no such version, droppedVersionsMessage returns "". The API
// server checks the stored versions before it accepts a CustomResourceDefinition, so Apply need not read them.
func droppedVersionsMessage(status *metav1.Status) string {
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
	return clipMessage("the module has dropped version " + strings.Join(versions, ", ") +
		", in which objects may still be stored (status.storedVersions)")
}

// conflictingFields returns the fields in an error response that other field managers own, and the names of these
// managers.
func conflictingFields(status *metav1.Status) (fields, managers []string) {
	for _, c := range causes(status) {
		rest, ok := strings.CutPrefix(c.Message, "conflict with ")
		manager, err := strconv.QuotedPrefix(rest)
		if c.Type != metav1.CauseTypeFieldManagerConflict || !ok || err != nil {
			continue
		}
		fields = append(fields, strings.ReplaceAll(strings.TrimPrefix(c.Field, "."), `"`, ""))
		if manager, err = strconv.Unquote(manager); err == nil {
			managers = append(managers, clipMessage(manager))
		}
	}
	return sortedUniqueAtMostTen(fields), sortedUniqueAtMostTen(managers)
}

// sortedUniqueAtMostTen returns the texts sorted and without duplicates, at most ten.
func sortedUniqueAtMostTen(texts []string) []string {
	slices.Sort(texts)
	texts = slices.Compact(texts)
	return texts[:min(len(texts), maxFields)]
}

// notFoundReason returns the reason for a 404: the kind, the namespace or the object is missing. A 404 without an
// object name means that the API server does not serve the kind.
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

// clipMessage returns a text as one line of at most 1 KiB.
func clipMessage(message string) string { return text.ClipCollapsingSpaces(message, 1<<10) }

// clipExpression clips an expression that is only the beginning of a message, so that clipMessage does not clip the
// rest of the message.
func clipExpression(expression string) string { return text.ClipCollapsingSpaces(expression, 400) }
