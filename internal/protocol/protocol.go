// Package protocol has the messages between the agent in a runtime and the listener in the control plane.
//
// # Use
//
// The agent posts an [Event] to [EventPath] when an object changed, and a [Heartbeat] to [HeartbeatPath] in an
// interval. A [Watchlist] in a ConfigMap of its runtime lists what it watches. [ParseEvent], [ParseHeartbeat] and
// [ParseWatchlist] read the messages of the other side.
//
// # How it works
//
// An event is a hint: it names an object that changed, and its receiver reads the object. The agent of the Kyma project
// sends only the first two fields, and its listener reads only these; the other fields are additions, and optional. No
// message contains the name of the runtime: the client certificate identifies it, see [Identity].
//
// Every event of an agent has a sequence number. A heartbeat has the last number that was assigned and the number of
// events that are pending, so that the listener finds out whether it has missed some.
//
// # What it does not do
//
// It opens no connection. It does not limit the size of what it parses: its callers limit what they read from the
// network.
package protocol

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of messages. The limit of events is that of the Kyma project's listener.
const (
	// MaxEventBytes is the largest body of an event.
	MaxEventBytes = 16384
	// MaxHeartbeatBytes is the largest body of a heartbeat.
	MaxHeartbeatBytes = 1024
)

// Names that both sides use.
const (
	// ManagerName is the name of the lifecycle manager in paths.
	ManagerName = "lifecycle-manager"
	// HeaderInstance is a header of every answer of our listener. It identifies the process. When it changes, the agent
	// repeats recent events, because the former process may have ended before it acted on them.
	HeaderInstance = "X-Listener-Instance"
	// HeaderNextHeartbeat is a header of answers to heartbeats in a large fleet: the seconds until the next heartbeat,
	// if the agent has no other reason for one. Without it, the interval of the watch list applies. Agents wait at most
	// MaxHeartbeatInterval.
	HeaderNextHeartbeat = "X-Listener-Next"
	// WatchlistKey is the key of the ConfigMap that holds a Watchlist as JSON.
	WatchlistKey = "watches.json"
)

// EventPath returns the path to which events for a manager are posted.
func EventPath(manager string) string { return "/v2/" + manager + "/event" }

// HeartbeatPath returns the path to which heartbeats for a manager are posted.
func HeartbeatPath(manager string) string { return "/v2/" + manager + "/heartbeat" }

// Event reports that an object of a runtime changed.
type Event struct {
	// Watched is the object.
	Watched Name `json:"watched"`
	// WatchedGVK is its kind.
	WatchedGVK metav1.GroupVersionKind `json:"watchedGvk"`

	// BootID identifies the start of the agent that Sequence belongs to. "" in events of the Kyma project's agent.
	BootID string `json:"boot,omitempty"`
	// Sequence numbers the events for one manager since the agent started, from 1. An event that is sent again keeps
	// its number.
	Sequence uint64 `json:"sequence,omitempty"`
	// Resource is the plural name of the kind.
	Resource string `json:"resource,omitempty"`
	// WatchStarted is true if the agent has started to watch Resource, or has missed changes of it: Watched and Object
	// are empty, and any of its objects may have changed.
	WatchStarted bool `json:"began,omitempty"`
	// ObjectsComplete is true, with WatchStarted, if Objects are all objects of Resource that match the watch, as they
	// were when it started: a receiver that remembers their state need not read them.
	ObjectsComplete bool `json:"complete,omitempty"`
	// Objects are the names and namespaces of these objects, and their metadata as [TrimMetadata] returns it.
	Objects []metav1.ObjectMeta `json:"there,omitempty"`
	// Deleted is true if the object was deleted.
	Deleted bool `json:"deleted,omitempty"`
	// Object is the metadata of the object, see [TrimMetadata]. nil if it is too large or unknown.
	Object *metav1.ObjectMeta `json:"object,omitempty"`
}

// Name is the name of an object. Its JSON keys are capitalised like those of the Kyma project's agent.
type Name struct {
	// Namespace is empty for cluster-scoped objects.
	Namespace string `json:"Namespace"`
	Name      string `json:"Name"`
}

// Heartbeat reports that an agent is running.
type Heartbeat struct {
	// BootID is a random name that the agent chooses when it starts.
	BootID string `json:"boot"`
	// Version is the version of the agent.
	Version string `json:"version"`
	// Sequence is the highest sequence number of an event for this manager, 0 if there was none.
	Sequence uint64 `json:"sequence"`
	// Pending is the number of events that are still to be sent, or to be sent again.
	Pending int `json:"pending"`
	// EventsLost is true if the agent had to drop events since its last heartbeat that was answered: any object may
	// have changed.
	EventsLost bool `json:"lost,omitempty"`
	// Watchlist is the Digest of the watch list in force.
	Watchlist string `json:"watchlist,omitempty"`
	// Problem explains to people which resources of the watch list cannot be watched, and why, in at most 300 bytes. ""
	// if there is none.
	Problem string `json:"problem,omitempty"`
}

// Field is the part of an object that is watched.
type Field string

// Values of Field.
const (
	// FieldAny is every change.
	FieldAny Field = ""
	// FieldSpec is every change except those of the status alone.
	FieldSpec Field = "spec"
	// FieldStatus is every change except those of the spec alone.
	FieldStatus Field = "status"
)

// Watch is one collection of objects that an agent watches for one manager.
type Watch struct {
	// Manager receives the events. "" is ManagerName.
	Manager string `json:"manager,omitempty"`
	Group   string `json:"group,omitempty"`
	// Version is an API version, or * for the preferred one of the API server.
	Version string `json:"version"`
	// Resource is the plural name in lower case.
	Resource string `json:"resource"`
	// Kind is the kind in events. "" is found out by discovery.
	Kind string `json:"kind,omitempty"`
	// Namespace and Name limit it to one namespace and one object. Empty is all.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Selector is a label selector. Empty is all.
	Selector string `json:"selector,omitempty"`
	// Field is the part whose changes are reported.
	Field Field `json:"field,omitempty"`
}

// Watchlist lists the resources that an agent watches.
type Watchlist struct {
	// Watches are sorted.
	Watches []Watch `json:"watches"`
	// HeartbeatInterval is the time between two heartbeats. 0 is DefaultHeartbeatInterval.
	HeartbeatInterval metav1.Duration `json:"heartbeat,omitzero"`
}

// DefaultHeartbeatInterval is the time between two heartbeats if the watch list has none.
const DefaultHeartbeatInterval = 30 * time.Second

// MaxHeartbeatInterval is the longest time between two heartbeats, also if the listener requests a longer one.
const MaxHeartbeatInterval = time.Hour

// EffectiveHeartbeatInterval returns HeartbeatInterval or its default.
func (w Watchlist) EffectiveHeartbeatInterval() time.Duration {
	if w.HeartbeatInterval.Duration > 0 {
		return w.HeartbeatInterval.Duration
	}
	return DefaultHeartbeatInterval
}

// Identity is the content of the client certificate of an agent.
type Identity struct {
	// CommonName is the runtime ID of the Kyma, or its name if it has none.
	CommonName string
	// UID is the UID of the Kyma. "" if another authority than ours issued the certificate.
	UID string
	// Issued is when our authority issued the certificate. Zero if another one did.
	Issued time.Time
	// Expires is when the certificate expires.
	Expires time.Time
	// Root is the fingerprint of the root certificate that verified it, see [Fingerprint].
	Root string
}

// BackdatePeriod is how long before their issue the certificates of our authority begin to be valid: the clock of a
// runtime may be slow.
const BackdatePeriod = 24 * time.Hour

// ParseEvent reads the body of an event. The event must have a kind, and the name of an object unless WatchStarted is
// true.
func ParseEvent(body []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(body, &e); err != nil {
		return Event{}, fmt.Errorf("reading an event: it is not JSON of the expected form: %w", err)
	}
	if e.WatchedGVK.Kind == "" {
		return Event{}, fmt.Errorf("reading an event: watchedGvk.kind is missing")
	}
	if e.Watched.Name == "" && !e.WatchStarted {
		return Event{}, fmt.Errorf("reading an event: watched.Name is missing")
	}
	return e, nil
}
