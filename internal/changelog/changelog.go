// Package changelog records the changes of modules, and derives events from them.
//
// # Use
//
//	entry.History = changelog.Next(entry.History, changelog.Observation{…}, now) // with each report of the status
//	for _, e := range changelog.Events(before.Modules, after.Modules) {…}      // after the status was saved
//
// # How it works
//
// A change is about one version of a module: it begins when the manager writes the version into the Manifest, and it
// ends when the module is Ready or Warning with this version for the first time. If the module fails while it has this
// version, the failure is the outcome of the change, even if the module was Ready before. An event results from the
// comparison of a module's last change in two successive statuses of the Kyma. If the manager restarts or repeats a
// reconcile, the last change stays the same, and no event is recorded.
//
// A change is written in the same request as the state of the module, because both change at the same time. Recording a
// change therefore costs no additional write.
//
// Every function of the package is pure.
//
// # What it does not do
//
// The package itself records no event. If a runtime cannot be reached, the package does not count that as a failure of
// its modules.
package changelog

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Limit is the number of changes that are stored for each module.
const Limit = 10

// Observation is the state of one module, as a reconcile has observed it.
type Observation struct {
	// Version is the version that is being installed, or that is installed.
	Version string
	// Installed is the last version that was installed completely. If no change is in progress, Installed equals
	// Version.
	Installed string
	// IsInstalled is true if a version was installed completely before, even if its name is not known.
	IsInstalled bool
	// State is the state of the module. If State is none of Ready, Warning, Error and Processing, the observation
	// changes nothing.
	State v1beta2.State
	// Reason is the reason code of the problem.
	Reason string
}

// Next adds an observation of a module to the module's list of changes, and returns the new list. If the observation
// shows nothing new, Next returns the given list unmodified. The first row that matches decides what is new:
//
//	1  the state is not known, because the runtime cannot be reached   nothing new
//	2  the module is deleted or Unmanaged, or its state is not known   nothing new
//	3  no change is recorded, and the version is installed             nothing new, but an Error is recorded
//	4  the last change has another version                             a new change
//	5  the last change has ended, and the module is not installed      a new change
//	6  any other                                                       the last change continues
func Next(changes []v1beta2.ModuleChange, o Observation, now time.Time) []v1beta2.ModuleChange {
	if IsAccessReason(o.Reason) {
		return changes
	}
	switch o.State {
	case v1beta2.StateReady, v1beta2.StateWarning, v1beta2.StateError, v1beta2.StateProcessing:
	default:
		return changes
	}
	last := Last(changes)
	isInstalled := o.IsInstalled && o.Installed == o.Version
	if last == nil && isInstalled && o.State != v1beta2.StateError {
		return changes
	}
	changed := slices.Clone(changes)
	if last == nil || last.Version != o.Version || wasEverReady(last) && !o.IsInstalled {
		c := v1beta2.ModuleChange{Version: o.Version}
		if last != nil || !isInstalled {
			c.From, c.Started = o.Installed, toSeconds(now)
		}
		changed = append(changed, c)
	}
	updateOutcome(&changed[len(changed)-1], o, now)
	if last != nil && len(changed) == len(changes) && *last == changed[len(changed)-1] {
		return changes
	}
	return changed[max(0, len(changed)-Limit):]
}

// CatchUp adds the last change in a module's Manifest to the module's list of changes in the Kyma, if the list lacks
// this change. The list can lack a change that began while the manager was not running, or before the status of the
// Kyma was saved. Only the Manifest then records the former version of the module. If the list in the Kyma contains the
// last change of the Manifest, but not the end of this change, CatchUp adds the end. The list lacks the end if the next
// version was written into the Manifest before a reconcile of the Kyma observed that the change had ended.
func CatchUp(changes []v1beta2.ModuleChange, ofManifest *v1beta2.ModuleChange) []v1beta2.ModuleChange {
	if ofManifest == nil || ofManifest.Started.IsZero() {
		return changes
	}
	last := Last(changes)
	switch {
	case last == nil:
	case last.Version == ofManifest.Version && !wasEverReady(last) && !ofManifest.Ended.IsZero() &&
		!ofManifest.Ended.Before(&last.Started):
		changed := slices.Clone(changes)
		end := &changed[len(changed)-1]
		end.Ended, end.Outcome, end.Reason = ofManifest.Ended, ofManifest.Outcome, ofManifest.Reason
		return changed
	case last.Version == ofManifest.Version, !last.Started.Before(&ofManifest.Started):
		return changes
	}
	changed := append(slices.Clone(changes), *ofManifest)
	return changed[max(0, len(changed)-Limit):]
}

// LastChangeOfManifest returns the value of the field status.lastChange of a Manifest after this reconcile. The
// parameter "installed" is the status of the Manifest before this reconcile, which has the installed version. The
// observed state and spec are those of the Manifest m.
func LastChangeOfManifest(m *v1beta2.Manifest, installed *v1beta2.ManifestStatus, reason string,
	now time.Time) *v1beta2.ModuleChange {
	if !m.DeletionTimestamp.IsZero() || m.IsUnmanaged() || m.IsRestored() {
		return m.Status.LastChange
	}
	var changes []v1beta2.ModuleChange
	if m.Status.LastChange != nil {
		changes = []v1beta2.ModuleChange{*m.Status.LastChange}
	}
	return Last(Next(changes, Observation{Version: m.Spec.Version, Installed: installed.Version,
		IsInstalled: installed.AppliedDigest != "", State: m.Status.State, Reason: reason}, now))
}

// updateOutcome sets the outcome and the end of a change, according to the state of the Manifest.
func updateOutcome(c *v1beta2.ModuleChange, o Observation, now time.Time) {
	switch o.State {
	case v1beta2.StateReady, v1beta2.StateWarning:
		if !wasEverReady(c) {
			c.Ended = toSeconds(now)
		}
		c.Outcome, c.Reason = o.State, ""
	case v1beta2.StateError:
		c.Outcome, c.Reason = o.State, o.Reason
	}
}

// toSeconds rounds a time to the precision of the API, so that it equals the saved time.
func toSeconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// wasEverReady reports whether the module was Ready or Warning with the version that a change is about.
func wasEverReady(c *v1beta2.ModuleChange) bool { return c.Started.IsZero() || !c.Ended.IsZero() }

// Last returns the last change in a list of changes, or nil if the list is empty. The returned pointer points into the
// given slice.
func Last(changes []v1beta2.ModuleChange) *v1beta2.ModuleChange {
	if len(changes) == 0 {
		return nil
	}
	return &changes[len(changes)-1]
}

// IsAccessReason reports whether a reason means that the manager cannot access the runtime. Without access to a
// runtime, nothing is known about its modules.
func IsAccessReason(reason string) bool {
	switch reason {
	case v1beta2.ReasonAccessSecretNotFound, v1beta2.ReasonAccessSecretAmbiguous, v1beta2.ReasonKubeconfigInvalid,
		v1beta2.ReasonKubeconfigRefused, v1beta2.ReasonRuntimeUnreachable, v1beta2.ReasonRuntimeUnauthorized,
		v1beta2.ReasonRuntimeCertificateInvalid, v1beta2.ReasonCredentialExpired:
		return true
	}
	return false
}
