// Package eventrecorder records Kubernetes events in the control plane. All controllers record their events through
// this package.
//
// # Use
//
//	recorder := eventrecorder.NewRateLimited(mgr.GetEventRecorder("lifecycle-manager"), mgr.GetLogger())
//
// # How it works
//
// The recorder of client-go merges two events if they are about the same object, have the same reason and action, and
// occur within six minutes. When it merges two events, it drops the note of the second event. To prevent client-go from
// dropping notes, Recorder adds a hash of the note to the action of each event. Only events with the same note are then
// merged and counted.
//
// What happens in a runtime could cause any number of events and overload the API server of the control plane.
// Therefore the number of events about the objects of a runtime (its Kyma and its Manifests) is limited: at most
// [Burst] events at once, and after that one event per [Interval]. Further events are dropped and counted in the metric
// lifecycle_mgr_events_dropped_total; the status of the objects shows the same information. Notes are shortened,
// because an API server refuses an event whose note has more than 1,024 bytes.
//
// An event about a change of a module, such as Upgraded, is recorded on the Kyma of the module. The Manifest has the
// same change in its status, so the same event about the Manifest is dropped. Events about a Manifest that no Kyma
// reports are recorded: the Manifest of a mandatory module, and a Manifest that a user has created.
//
// Each recorded event is also logged. If a warning is repeated within [RepeatInterval], it is not logged again; the
// next line of this warning has the number of repetitions in the attribute "repeated".
//
// # What it does not do
//
// The package records no events in runtimes: package eventlog does that.
package eventrecorder

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

const (
	// Burst is the number of events that may be recorded at once about the objects of one runtime.
	Burst = 100
	// Interval is the time after which another event may be recorded about a runtime that has used up its Burst.
	Interval = 10 * time.Second
	// RepeatInterval is the time in which the same warning about an object is logged only once.
	RepeatInterval = 5 * time.Minute
	// maxWarnings is the maximum number of warnings that Recorder remembers. If there are more than maxWarnings,
	// Recorder forgets all of them.
	maxWarnings = 4096
)

// Recorder is an [events.EventRecorder] with limits for each runtime. A Recorder is safe for concurrent use.
type Recorder struct {
	next   events.EventRecorder
	log    logr.Logger
	budget *budget.Budget

	mu       sync.Mutex
	warnings map[string]*logged // guarded by mu; by object, reason and text
}

// logged has the time of the last log line of a warning, and the number of repetitions since then.
type logged struct {
	at       time.Time
	repeated int
}

// NewRateLimited returns a Recorder that logs events. The Recorder passes the events within the limits of Burst and
// Interval to the recorder in the parameter next.
func NewRateLimited(next events.EventRecorder, log logr.Logger) *Recorder {
	return &Recorder{next: next, log: log, budget: budget.New(Burst, Interval), warnings: map[string]*logged{}}
}

// Eventf implements [events.EventRecorder].
func (r *Recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if isRecordedOnKymaInstead(regarding, reason) {
		return
	}
	if r.budget.Take(runtimeOf(regarding), time.Now()) > 0 {
		metrics.EventsDropped.Inc()
		return
	}
	text := loop.ClipLine(fmt.Sprintf(note, args...))
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	r.next.Eventf(regarding, related, kind, reason, fmt.Sprintf("%s-%08x", action, h.Sum32()), "%s", text)
	if o, ok := regarding.(client.Object); ok {
		r.logEvent(o, kind, reason, text)
	}
}

// logEvent writes an event to the log. A repeated warning is logged at most once per RepeatInterval, with the number of
// repetitions.
func (r *Recorder) logEvent(o client.Object, eventType, reason, text string) {
	object := goTypeName(o) + " " + o.GetName()
	about := []any{"runtime", runtimeOf(o), "reason", reason, "object", object}
	if eventType == corev1.EventTypeWarning {
		repeated, isNew := r.countWarning(strings.Join([]string{o.GetNamespace(), object, reason, text}, "\x00"),
			time.Now())
		if !isNew {
			return
		}
		if repeated > 0 {
			about = append(about, "repeated", repeated)
		}
	}
	r.log.Info(text, about...)
}

// countWarning reports whether a warning has to be logged now, and how often it was repeated since its last log line.
func (r *Recorder) countWarning(key string, now time.Time) (repeated int, isLogDue bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.warnings[key]
	if last != nil && now.Sub(last.at) < RepeatInterval {
		last.repeated++
		return 0, false
	}
	if last != nil {
		repeated = last.repeated
	}
	if len(r.warnings) >= maxWarnings {
		clear(r.warnings)
	}
	r.warnings[key] = &logged{at: now}
	return repeated, true
}

// isRecordedOnKymaInstead reports whether an event is about a Manifest, and the controller of Kymas records it about
// the Kyma.
func isRecordedOnKymaInstead(o runtime.Object, reason string) bool {
	m, ok := o.(*v1beta2.Manifest)
	if !ok || m.IsMandatory() || metav1.GetControllerOf(m) == nil {
		return false
	}
	switch reason {
	case v1beta2.EventInstalled, v1beta2.EventUpgraded, v1beta2.EventFailed, v1beta2.EventRecovered,
		v1beta2.EventRemoved:
		return true
	}
	return false
}

// goTypeName returns the name of the Go type of an object, which is the same as the kind of the object.
func goTypeName(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

// runtimeOf returns the runtime to which an object belongs. For the limit of events, an object that belongs to no
// runtime counts as a runtime of its own.
func runtimeOf(regarding runtime.Object) string {
	o, ok := regarding.(client.Object)
	if !ok {
		return ""
	}
	if kyma := o.GetLabels()[v1beta2.LabelKymaName]; kyma != "" {
		return kyma
	}
	if _, ok := o.(*v1beta2.Kyma); ok {
		return o.GetName()
	}
	return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
}
