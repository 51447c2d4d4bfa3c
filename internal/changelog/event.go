package changelog

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Event is an event to be recorded.
type Event struct {
	// Type is Normal or Warning.
	Type string
	// Reason is one of the constants Event… of package v1beta2.
	Reason string
	// Note is the text for people. Note contains no times, so that equal events have equal notes.
	Note string
	// Module is the name of the module. Module is "" if the event is not about one module.
	Module string
}

// If there are events with the same reason about more than foldAbove modules, they become one event, which has the
// names of at most maxNamed modules. Events of type Normal about two to foldAbove modules also become one event, which
// has all their notes if they are not longer than maxNotes.
const (
	foldAbove = 5
	maxNamed  = 10
	maxNotes  = 1000 // bytes of several notes in one event
)

// FoldByReason replaces events with the same reason by one event, because each recorded event costs a request and space
// in the cluster. Up to foldAbove events of type Normal become one event with all their notes. Up to foldAbove events
// of type Warning stay separate, because each reports another problem. More than foldAbove events of either type become
// one event with the number of the modules, some of their names, and the note of the first replaced event.
// FoldByReason does not change the order of the reasons.
func FoldByReason(all []Event) []Event {
	type key struct{ kind, reason string }
	names, notes := map[key][]string{}, map[key][]string{}
	for _, e := range all {
		if k := (key{e.Type, e.Reason}); e.Module != "" {
			names[k], notes[k] = append(names[k], e.Module), append(notes[k], e.Note)
		}
	}
	folded := map[key]bool{}
	var rest []Event
	for _, e := range all {
		k := key{e.Type, e.Reason}
		switch many := names[k]; {
		case e.Module == "" || len(many) == 1 || len(many) <= foldAbove && e.Type != corev1.EventTypeNormal:
			rest = append(rest, e)
		case !folded[k]:
			folded[k] = true
			if all := strings.Join(notes[k], "; "); len(many) <= foldAbove && len(all) <= maxNotes {
				e.Note = all
			} else {
				e.Note = countAndNames(many) + "; the first one: " + e.Note
			}
			e.Module = ""
			rest = append(rest, e)
		}
	}
	return rest
}

// countAndNames returns a text with the number of some modules, and the names of at most maxNamed of them.
func countAndNames(names []string) string {
	text := fmt.Sprintf("%d modules: %s", len(names), strings.Join(names[:min(len(names), maxNamed)], ", "))
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Events compares the entries of modules in two successive statuses of a Kyma, and returns the resulting events.
func Events(before, after []v1beta2.ModuleStatus) []Event {
	var all []Event
	former, present := byName(before), byName(after)
	for i := range after {
		is := &after[i]
		var was v1beta2.ModuleStatus
		if found := former[is.Name]; found != nil {
			was = *found
		}
		for _, e := range eventsOfSupersededChanges(is, Last(was.History)) {
			all = append(all, *e)
		}
		if e := eventOrNil(is.Name, Last(was.History), Last(is.History), is.Message); e != nil {
			all = append(all, *e)
		}
	}
	for i := range before {
		// If an entry has no version, the module was never installed.
		if was := &before[i]; was.Version != "" && was.State != v1beta2.StateUnmanaged &&
			present[was.Name] == nil {
			all = append(all, *Removed(was.Name))
		}
	}
	return all
}

// eventsOfSupersededChanges returns the events about changes of a module after which another change has begun: the next
// version was requested when the version of the change was Ready. former is the last change in the former status. A
// change that began after former is not in the former status, because that status was saved before the change began.
func eventsOfSupersededChanges(m *v1beta2.ModuleStatus, former *v1beta2.ModuleChange) (all []*Event) {
	if former == nil {
		return nil
	}
	at := slices.IndexFunc(m.History, func(c v1beta2.ModuleChange) bool {
		return c.Version == former.Version && c.Started.Equal(&former.Started)
	})
	for i := max(at, 0); i < len(m.History)-1; i++ {
		h := &m.History[i]
		if at < 0 && !former.Started.Before(&h.Started) {
			continue
		}
		if e := eventOrNil(m.Name, former, h, "the next version was ordered"); e != nil {
			all = append(all, e)
		}
	}
	return all
}

// ManifestEvent compares two successive statuses of a Manifest, and returns the resulting event, or nil if there is
// none.
func ManifestEvent(module string, before, after *v1beta2.ManifestStatus) *Event {
	return eventOrNil(module, before.LastChange, after.LastChange, after.LastOperation.Operation)
}

// Removed returns the event that a module was removed.
func Removed(module string) *Event {
	return &Event{Type: corev1.EventTypeNormal, Reason: v1beta2.EventRemoved, Module: module,
		Note: fmt.Sprintf("module %s is removed", module)}
}

// eventOrNil compares the last change of a module in two successive statuses, and returns the resulting event, or nil
// if there is none. The first row that matches decides the event:
//
//	1  the outcome is Error                         Failed, unless it was Error before
//	2  the outcome is neither Ready nor Warning     none
//	3  the outcome was Ready or Warning             none
//	4  the change has ended now                     Installed, Upgraded, or Recovered if the version is the old one
//	5  any other                                    Recovered
//
// So a period in which the module fails causes only one event, even if its reasons alternate. The status and the
// history of the module always show the present reason.
func eventOrNil(module string, before, after *v1beta2.ModuleChange, message string) *Event {
	if after == nil {
		return nil
	}
	if before == nil || before.Version != after.Version || !before.Started.Equal(&after.Started) {
		before = &v1beta2.ModuleChange{Started: after.Started} // another change, or the first one
	}
	normal := func(reason, note string, args ...any) *Event {
		return &Event{Type: corev1.EventTypeNormal, Reason: reason, Module: module,
			Note: fmt.Sprintf("module %s: ", module) + fmt.Sprintf(note, args...)}
	}
	switch {
	case after.Outcome == v1beta2.StateError:
		if before.Outcome == v1beta2.StateError {
			return nil
		}
		return &Event{Type: corev1.EventTypeWarning, Reason: v1beta2.EventFailed, Module: module,
			Note: fmt.Sprintf("%s: module %s, version %s: %s", after.Reason, module, versionOrUnknown(after), message)}
	case !isReadyOrWarning(after.Outcome) || isReadyOrWarning(before.Outcome):
		return nil
	case wasEverReady(before) || after.From == after.Version && after.From != "":
		return normal(v1beta2.EventRecovered, "version %s is %s again", versionOrUnknown(after), after.Outcome)
	case after.From == "":
		return normal(v1beta2.EventInstalled, "version %s is installed", versionOrUnknown(after))
	default:
		return normal(v1beta2.EventUpgraded, "upgraded from version %s to %s", after.From, versionOrUnknown(after))
	}
}

func isReadyOrWarning(s v1beta2.State) bool {
	return s == v1beta2.StateReady || s == v1beta2.StateWarning
}

// versionOrUnknown returns the version that a change is about, in a form for people.
func versionOrUnknown(c *v1beta2.ModuleChange) string {
	if c.Version == "" {
		return "unknown"
	}
	return c.Version
}

// ReachabilityEvents compares two successive statuses of a Kyma, and returns an event if its runtime has become
// unreachable, or reachable again.
func ReachabilityEvents(before, after *v1beta2.KymaStatus) []Event {
	was, is := accessProblem(before), accessProblem(after)
	switch {
	case was == nil && is != nil:
		return []Event{{Type: corev1.EventTypeWarning, Reason: v1beta2.EventRuntimeUnreachable,
			Note: is.Reason + ": " + after.LastOperation.Operation}}
	case was != nil && is == nil:
		return []Event{{Type: corev1.EventTypeNormal, Reason: v1beta2.EventRuntimeReachable,
			Note: "the runtime can be used again"}}
	}
	return nil
}

// CredentialProblemEvents compares two successive statuses of a Kyma, and returns an event if the credential of its
// runtime has a new problem.
func CredentialProblemEvents(before, after *v1beta2.KymaStatus) []Event {
	was := meta.FindStatusCondition(before.Conditions, v1beta2.ConditionCredentialHealthy)
	is := meta.FindStatusCondition(after.Conditions, v1beta2.ConditionCredentialHealthy)
	if is == nil || was != nil && was.Reason == is.Reason {
		return nil
	}
	reason := v1beta2.EventCredentialExpires
	if is.Reason == v1beta2.ReasonRightsReduced {
		reason = v1beta2.EventRightsReduced
	}
	return []Event{{Type: corev1.EventTypeWarning, Reason: reason, Note: is.Message}}
}

// accessProblem returns the condition Ready if its reason means that the runtime cannot be used, and nil otherwise.
func accessProblem(s *v1beta2.KymaStatus) *metav1.Condition {
	c := meta.FindStatusCondition(s.Conditions, v1beta2.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue || !IsAccessReason(c.Reason) {
		return nil
	}
	return c
}

// byName returns a map from the name of each module to its entry in the status. If several entries have the same name,
// the map has the first one.
func byName(all []v1beta2.ModuleStatus) map[string]*v1beta2.ModuleStatus {
	entries := make(map[string]*v1beta2.ModuleStatus, len(all))
	for i := range all {
		if entries[all[i].Name] == nil {
			entries[all[i].Name] = &all[i]
		}
	}
	return entries
}
