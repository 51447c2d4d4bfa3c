// Package protocol is the language between the agent in a runtime and the listener in the control plane.
//
// # Use
//
// The agent posts an [Event] to [EventPath] when something changed, and a [Heartbeat] to [HeartbeatPath] now and then. What it watches is told
// by a [Watchlist] in a ConfigMap of its runtime. [ParseEvent], [ParseHeartbeat] and [ParseWatchlist] read what the other side sent.
//
// # How it works
//
// An event is a hint: it says which object changed, and who gets it looks for himself. The first two fields are all that the agent of the Kyma
// project sends, and all that its listener reads; ours are added, and optional. Nothing in a body says which runtime speaks: that is
// in the client certificate, see [Identity].
//
// Every event of an agent has a number. A heartbeat says the last number that was given away and how many events are still on their way, so the
// listener sees what it has missed.
//
// # What it does not do
//
// It opens no connection, and it trusts nothing: limits on size are the business of who reads from the network.
package protocol

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of what is sent. The one on events is that of the Kyma project's listener.
const (
	// MaxEventBytes is the largest body of an event.
	MaxEventBytes = 16384
	// MaxHeartbeatBytes is the largest body of a heartbeat.
	MaxHeartbeatBytes = 1024
)

// Names that both sides know.
const (
	// ManagerName is the name of the lifecycle manager in paths.
	ManagerName = "lifecycle-manager"
	// HeaderInstance is a header of every answer of our listener: which process answers. When it changes, the agent repeats what it sent
	// lately, because the process before may have died with it.
	HeaderInstance = "X-Listener-Instance"
	// HeaderNextHeartbeat is a header of answers to heartbeats, in a large fleet: in how many seconds the next one is wanted, as long as the agent has nothing else to
	// say. Without it, that is what the watch list says. It may be more than MaxHeartbeatInterval, which is the most that an agent waits.
	HeaderNextHeartbeat = "X-Listener-Next"
	// WatchlistKey is the key of the ConfigMap that holds a Watchlist as JSON.
	WatchlistKey = "watches.json"
)

// EventPath is where events for a manager are posted to.
func EventPath(manager string) string { return "/v2/" + manager + "/event" }

// HeartbeatPath is where heartbeats are posted to.
func HeartbeatPath(manager string) string { return "/v2/" + manager + "/heartbeat" }

// Event says that an object of a runtime changed.
type Event struct {
	// Watched is the object.
	Watched Name `json:"watched"`
	// WatchedGVK is its kind.
	WatchedGVK metav1.GroupVersionKind `json:"watchedGvk"`

	// BootID is the life of the agent that Sequence belongs to. "" in events of the Kyma project's agent.
	BootID string `json:"boot,omitempty"`
	// Sequence numbers the events of one life of an agent for one manager, from 1. An event that is sent again keeps its number.
	Sequence uint64 `json:"sequence,omitempty"`
	// Resource is the plural name of the kind.
	Resource string `json:"resource,omitempty"`
	// WatchStarted says that the agent has begun to watch Resource, or has missed changes of it: Watched and Object are empty, and any object of
	// it may have changed.
	WatchStarted bool `json:"began,omitempty"`
	// ObjectsComplete says, with WatchStarted, that Objects are all objects of Resource that the watch is for, as they were when it began: who remembers them
	// need not look.
	ObjectsComplete bool `json:"complete,omitempty"`
	// Objects are those objects: name, namespace, and what [TrimMetadata] leaves.
	Objects []metav1.ObjectMeta `json:"there,omitempty"`
	// Deleted says that the object is gone.
	Deleted bool `json:"deleted,omitempty"`
	// Object is what is known of the object beside its name, see [TrimMetadata]. nil if it does not fit or is not known.
	Object *metav1.ObjectMeta `json:"object,omitempty"`
}

// Name names an object. Its keys are capitalised: they are those of the Kyma project's agent.
type Name struct {
	// Namespace is empty for what belongs to the whole cluster.
	Namespace string `json:"Namespace"`
	Name      string `json:"Name"`
}

// Heartbeat says that an agent is alive.
type Heartbeat struct {
	// BootID is the life of the agent: a random name made when it starts.
	BootID string `json:"boot"`
	// Version is that of the agent.
	Version string `json:"version"`
	// Sequence is the highest number that an event for this manager got, 0 if there was none yet.
	Sequence uint64 `json:"sequence"`
	// Pending is the number of events that are still to be sent, or to be sent again.
	Pending int `json:"pending"`
	// EventsLost says that the agent had to drop events, since its last heartbeat that was answered: anything may have changed.
	EventsLost bool `json:"lost,omitempty"`
	// Watchlist is the Digest of the watch list in force.
	Watchlist string `json:"watchlist,omitempty"`
	// Problem is why something on the watch list cannot be watched, for people, at most 300 bytes. "" if all is well.
	Problem string `json:"problem,omitempty"`
}

// Field is the part of an object that is watched.
type Field string

// Values of Field.
const (
	// FieldAny is every change.
	FieldAny Field = ""
	// FieldSpec is every change but those of the status alone.
	FieldSpec Field = "spec"
	// FieldStatus is every change but those of the spec alone.
	FieldStatus Field = "status"
)

// Watch is one collection of objects that an agent watches for one manager.
type Watch struct {
	// Manager is who is told. "" is ManagerName.
	Manager string `json:"manager,omitempty"`
	Group   string `json:"group,omitempty"`
	// Version is an API version, or * for the one that the API server prefers.
	Version string `json:"version"`
	// Resource is the plural name in lower case.
	Resource string `json:"resource"`
	// Kind is what events call it. "" is to be found out.
	Kind string `json:"kind,omitempty"`
	// Namespace and Name narrow it to one namespace, one object. Empty is all.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Selector is a label selector. Empty is all.
	Selector string `json:"selector,omitempty"`
	// Field is the part that counts.
	Field Field `json:"field,omitempty"`
}

// Watchlist is what one agent watches.
type Watchlist struct {
	// Watches is in stable order.
	Watches []Watch `json:"watches"`
	// HeartbeatInterval is the time between two heartbeats. 0 is DefaultHeartbeatInterval.
	HeartbeatInterval metav1.Duration `json:"heartbeat,omitzero"`
}

// DefaultHeartbeatInterval is the time between two heartbeats where a watch list does not say.
const DefaultHeartbeatInterval = 30 * time.Second

// MaxHeartbeatInterval is the longest time between two heartbeats, whatever the listener says.
const MaxHeartbeatInterval = time.Hour

// EffectiveHeartbeatInterval is the time between two heartbeats.
func (w Watchlist) EffectiveHeartbeatInterval() time.Duration {
	if w.HeartbeatInterval.Duration > 0 {
		return w.HeartbeatInterval.Duration
	}
	return DefaultHeartbeatInterval
}

// Identity is who speaks, as the client certificate says.
type Identity struct {
	// CommonName is the runtime ID of the Kyma, or its name if it has none.
	CommonName string
	// UID is that of the Kyma. "" in certificates that others than our own authority have issued.
	UID string
	// Issued is when our authority issued the certificate. Zero if it was not ours.
	Issued time.Time
	// Expires is when the certificate ends.
	Expires time.Time
	// Root is the fingerprint of the root that it was verified with, see [Fingerprint].
	Root string
}

// BackdatePeriod is how much earlier than they were issued the certificates of our authority begin to be valid: the clock of a runtime may be slow.
const BackdatePeriod = 24 * time.Hour

// ParseEvent reads the body of an event. It must name a kind, and an object unless it says WatchStarted.
func ParseEvent(body []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(body, &e); err != nil {
		return Event{}, fmt.Errorf("reading an event: it is no JSON of the expected shape: %w", err)
	}
	if e.WatchedGVK.Kind == "" {
		return Event{}, fmt.Errorf("reading an event: watchedGvk.kind is missing")
	}
	if e.Watched.Name == "" && !e.WatchStarted {
		return Event{}, fmt.Errorf("reading an event: watched.Name is missing")
	}
	return e, nil
}
