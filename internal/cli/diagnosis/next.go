package diagnosis

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// The manager does not write the time of its next retry into a status, because that would need a write for each retry.
// klm estimates the next retry from the time since the first failure: the longer the failure lasts, the longer are the
// delays between retries.
const (
	// maxProbeDelay is the longest delay between two probes of a runtime: 80 s and a random part of at most 16 s.
	maxProbeDelay = 96 * time.Second
	// maxFailureDelay is the default of --failure-max-delay.
	maxFailureDelay = 5 * time.Minute
	// minDelay is the shortest delay that klm assumes for the time until the manager's next try. The manager's first
	// delays of probes and of other retries are even shorter.
	minDelay = time.Second
)

// trigger is the event after which the manager tries again.
type trigger int

const (
	onBackoff   trigger = iota // the delay after errors, which doubles
	onProbe                    // an answer to a probe of the runtime
	onSecret                   // a change of the access Secret
	onOwner                    // a change of the access Secret, or of the owner of the cluster
	onModule                   // another version of the module, or another request
	onRequest                  // a change of the Kyma or of the catalog
	onRuntime                  // a change in the runtime
	onPerson                   // a person ends it
	onFinalizer                // another controller removes its finalizer
	onWindow                   // a maintenance window
)

// triggers maps a reason to the event for which the manager waits. If the manager does not wait for an event and only
// retries with back-off, triggers does not contain the reason. There is one exception: for a module in state Processing
// or Deleting, a reason that is not in triggers means that the manager waits for a change in the runtime.
var triggers = map[string]trigger{
	v1beta2.ReasonRuntimeUnreachable:        onProbe,
	v1beta2.ReasonRuntimeUnauthorized:       onProbe,
	v1beta2.ReasonRuntimeCertificateInvalid: onProbe,
	v1beta2.ReasonCredentialExpired:         onProbe,
	v1beta2.ReasonAccessSecretNotFound:      onSecret,
	v1beta2.ReasonAccessSecretAmbiguous:     onSecret,
	v1beta2.ReasonKubeconfigInvalid:         onSecret,
	v1beta2.ReasonKubeconfigRefused:         onSecret,
	v1beta2.ReasonRuntimeTaken:              onOwner,
	v1beta2.ReasonRuntimeReplaced:           onOwner,
	v1beta2.ReasonRuntimeIsControlPlane:     onOwner,
	v1beta2.ReasonInvalidReference:          onModule,
	v1beta2.ReasonRefusedFeature:            onModule,
	v1beta2.ReasonInvalidYAML:               onModule,
	v1beta2.ReasonInvalidObject:             onModule,
	v1beta2.ReasonDuplicateObject:           onModule,
	v1beta2.ReasonInvalidImage:              onModule,
	v1beta2.ReasonRenderCrashed:             onModule,
	v1beta2.ReasonRenderMemory:              onModule,
	v1beta2.ReasonRenderTimeout:             onModule,
	v1beta2.ReasonWorkloadFailed:            onRuntime,
	v1beta2.ReasonCustomResourceNotReady:    onRuntime,
	v1beta2.ReasonInvalidModuleRequest:      onRequest,
	v1beta2.ReasonModuleNotFound:            onRequest,
	v1beta2.ReasonChannelNotFound:           onRequest,
	v1beta2.ReasonVersionNotFound:           onRequest,
	v1beta2.ReasonInvalidRelease:            onRequest,
	v1beta2.ReasonTemplateAmbiguous:         onRequest,
	v1beta2.ReasonTemplateNotFound:          onRequest,
	v1beta2.ReasonModuleConflict:            onRequest,
	v1beta2.ReasonModuleNotAllowed:          onRequest,
	v1beta2.ReasonVersionReplaced:           onRequest,
	v1beta2.ReasonDowngradeRefused:          onRequest,
	v1beta2.ReasonRestoredOlder:             onRequest,
	v1beta2.ReasonWaitingForWindow:          onWindow,
	v1beta2.ReasonWindowUnknown:             onRequest,
	v1beta2.ReasonKymaPaused:                onPerson,
	v1beta2.ReasonModulePaused:              onPerson,
	v1beta2.ReasonSkipReconciliation:        onPerson,
	v1beta2.ReasonUnmanaged:                 onPerson,
	v1beta2.ReasonDriftDetected:             onPerson,
	v1beta2.ReasonFinalizersRemaining:       onFinalizer,
}

// NextTry describes when the manager will try again: at a time, or after an event. NextTry contains only what klm can
// know.
type NextTry struct {
	// AtLatest is the latest time at which the next try begins. If the manager waits for an event, AtLatest is the zero
	// time.
	AtLatest time.Time `json:"atLatest,omitzero"`
	// When is a text that describes the time of the next try or the event for which the manager waits.
	When string `json:"when"`
	// Retry is true if klm retry makes the manager try again immediately.
	Retry bool `json:"retry,omitempty"`
}

// nextTry returns the time or the event at which the manager tries again to resolve a blocker, or nil if klm knows
// neither the time nor the event. In a runtime, klm retry cannot be used.
func (f *Facts) nextTry(reason string, state v1beta2.State, since time.Time) *NextTry {
	next := nextTry(reason, state, since, f.Now)
	if next != nil && f.Cluster.OwnKyma != "" {
		next.Retry = false
	}
	return next
}

// nextTry returns the time or the event at which the manager retries the reconciliation of an object that has a reason
// and a state. nextTry returns nil if klm knows neither the time nor the event.
func nextTry(reason string, state v1beta2.State, since, now time.Time) *NextTry {
	on, listed := triggers[reason]
	switch {
	case !listed && (state == v1beta2.StateProcessing || state == v1beta2.StateDeleting):
		on = onRuntime
	case !listed && state != v1beta2.StateError:
		return nil
	}
	switch on {
	case onProbe:
		// 240 percent is twice the time, plus a random addition of up to a fifth.
		return nextTryAfter("the runtime is probed", since, now, 240, maxProbeDelay)
	case onSecret:
		return &NextTry{When: "when the access Secret changes"}
	case onOwner:
		return &NextTry{When: "when the access Secret changes, and at the poll interval", Retry: true}
	case onModule:
		return &NextTry{When: "when the module gets another version, or the request changes", Retry: true}
	case onRequest:
		return &NextTry{When: "when the request or the catalog changes"}
	case onRuntime:
		return &NextTry{When: "when something changes in the runtime"}
	case onPerson:
		return &NextTry{When: "when somebody ends it"}
	case onFinalizer:
		return &NextTry{When: "when the finalizers are removed"}
	case onWindow:
		return &NextTry{When: "when the window begins"}
	}
	return nextTryAfter("the manager tries again", since, now, 100, maxFailureDelay)
}

// nextTryAfter returns the time of the next try, if the delay between tries grows with the time since the first
// failure.
func nextTryAfter(what string, since, now time.Time, percent int, limit time.Duration) *NextTry {
	delay := limit
	if !since.IsZero() {
		delay = min(max(now.Sub(since)*time.Duration(percent)/100, minDelay), limit)
	}
	return &NextTry{AtLatest: now.Add(delay), Retry: true,
		When: fmt.Sprintf("%s within %s", what, duration.HumanDuration(delay))}
}
