// Package protocol defines the messages between the agent in a runtime and the listener in the control plane.
//
// # Use
//
// The agent posts an [Event] to [EventPath] when an object has changed, and a [Heartbeat] to [HeartbeatPath] at a
// regular interval. The agent reads a [Watchlist] from a ConfigMap of its runtime. The watch list contains the
// resources that the agent watches. [ParseEvent], [ParseHeartbeat] and [ParseWatchlist] parse these messages.
//
// # How it works
//
// An event is only a hint: it names an object that has changed, and the receiver reads this object. The agent of the
// Kyma project sends only the first two fields of an event, Watched and WatchedGVK, and the listener of the Kyma
// project reads only Watched and WatchedGVK. All other fields of an event are optional additions of this project. No
// message contains the name of the runtime: the client certificate identifies the runtime, see [Identity].
//
// Every event of an agent has a sequence number. A heartbeat contains the last assigned sequence number and the number
// of pending events. By the last sequence number and the number of pending events, the listener finds out whether
// events are missing.
//
// # What it does not do
//
// The package opens no connection. The parsers do not limit the size of a message: their callers limit the bytes that
// they read from the network.
package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// The following constants limit the size of messages. The maximum size of an event is the same as in the Kyma project's
// listener.
const (
	// MaxEventBytes is the maximum size of the body of an event.
	MaxEventBytes = 16384
	// MaxStateBytes is the maximum size of the state of one object in an event. MaxStatesBytes is the maximum size of
	// all states in an event.
	MaxStateBytes  = 6 << 10
	MaxStatesBytes = 10 << 10
	// MaxEventEntries is the maximum number of Event.Objects, and also of the managedFields of all objects in an event
	// together. An empty entry has three bytes in an event, and needs 250 bytes of memory. The agent sends at most 61
	// objects and 81 managedFields, because it counts 200 bytes for an object and 150 for managedFields, up to 12 KiB.
	// The names, UIDs and labels of 128 objects do not fit into MaxEventBytes, so an agent of any version sends fewer.
	MaxEventEntries = 128
	// maxStateContainers is the maximum number of JSON objects and lists in all states of an event. An object of 8
	// bytes needs 300 bytes of memory. The state of a Deployment has about 15 objects and lists, so the states that fit
	// into MaxStatesBytes have about 150.
	maxStateContainers = 500
	// MaxHeartbeatBytes is the maximum size of the body of a heartbeat.
	MaxHeartbeatBytes = 1024
)

// The agent and the listener use the following names.
const (
	// ManagerName is the name of the lifecycle manager in URL paths.
	ManagerName = "lifecycle-manager"
	// HeaderInstance is a header in every answer of our listener. HeaderInstance identifies the process of the
	// listener. When an answer comes from another process than before, the agent repeats recent events: the former
	// process may have ended before it acted on them.
	HeaderInstance = "X-Listener-Instance"
	// HeaderNextHeartbeat is a header with which the listener delays the next heartbeat of an agent. The value is the
	// number of seconds until this heartbeat. In a large fleet, the listener sets the header so that it does not get
	// more heartbeats than it can handle. An agent may send a heartbeat earlier, for example when its watch list has
	// changed. If an answer lacks this header, the interval in the watch list applies. An agent waits at most
	// MaxHeartbeatInterval between two heartbeats, whatever the value of the header is.
	HeaderNextHeartbeat = "X-Listener-Next"
	// WatchlistKey is the key in the data of the ConfigMap whose value is a Watchlist as JSON.
	WatchlistKey = "watches.json"
)

// EventPath returns the URL path to which an agent posts the events for a manager.
func EventPath(manager string) string { return "/v2/" + manager + "/event" }

// HeartbeatPath returns the URL path to which an agent posts the heartbeats for a manager.
func HeartbeatPath(manager string) string { return "/v2/" + manager + "/heartbeat" }

// Event is a message that reports that an object of a runtime has changed.
type Event struct {
	// Watched is the name of the changed object.
	Watched Name `json:"watched"`
	// WatchedGVK is the group, version and kind of the changed object.
	WatchedGVK metav1.GroupVersionKind `json:"watchedGvk"`

	// BootID identifies one run of the agent process. The field Sequence starts from 1 in each run. BootID is "" in
	// events of the Kyma project's agent.
	BootID string `json:"boot,omitempty"`
	// Sequence is the number of the event. Sequence counts the events for one manager since the agent started, from 1.
	// If an event is sent again, it has the same number.
	Sequence uint64 `json:"sequence,omitempty"`
	// Resource is the plural name of the resource of the object.
	Resource string `json:"resource,omitempty"`
	// WatchStarted is true if the agent has started to watch Resource, or has missed changes of Resource. If
	// WatchStarted is true, any object of Resource may have changed, so the receiver has to read the objects of
	// Resource again, unless ObjectsComplete is true. An event about missed changes has no Watched and no Object.
	WatchStarted bool `json:"began,omitempty"`
	// ObjectsComplete means that Objects has all objects of Resource that match the watch, as they were when the watch
	// started. ObjectsComplete is only used together with WatchStarted. A receiver that has stored the objects of an
	// earlier list can compare them with Objects, and need not read the objects from the runtime.
	ObjectsComplete bool `json:"complete,omitempty"`
	// If ObjectsComplete is true, Objects has an entry for each object, with its name, its namespace, and its metadata
	// as [EventMetadata] returns it.
	Objects Objects `json:"there,omitempty"`
	// Deleted is true if the object was deleted.
	Deleted bool `json:"deleted,omitempty"`
	// Object is the metadata of the changed object, see [EventMetadata]. Object is nil if the metadata is too large or
	// not known.
	Object *metav1.ObjectMeta `json:"object,omitempty"`
	// State is the changed object itself, as [TrimAndEncodeState] returns it, if the watch has [Watch.State]. State is
	// missing if the object is too large or could not be read, and in events of agents of former versions. If State is
	// missing, the receiver reads the changed object from the API server of the runtime.
	State json.RawMessage `json:"state,omitempty"`
	// States are the states of Objects, in the same order. If an entry of States is null or missing, the agent has not
	// sent the state of this object.
	States []json.RawMessage `json:"states,omitempty"`
}

// Objects is the metadata of at most MaxEventEntries objects.
type Objects []metav1.ObjectMeta

// UnmarshalJSON implements [json.Unmarshaler]. It is an error if an object has no name. UnmarshalJSON decodes the
// objects one by one, so that it does not need memory for more than MaxEventEntries objects.
func (o *Objects) UnmarshalJSON(data []byte) error {
	if *o = nil; string(data) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return errors.New("there is not a list")
	}
	for d.More() {
		if len(*o) == MaxEventEntries {
			return fmt.Errorf("there has more than %d objects", MaxEventEntries)
		}
		var m metav1.ObjectMeta
		if err := d.Decode(&m); err != nil {
			return err
		}
		if m.Name == "" {
			return fmt.Errorf("there[%d].name is missing", len(*o))
		}
		*o = append(*o, m)
	}
	return nil
}

// Name is the name and namespace of an object. The JSON keys of Name begin with a capital letter, as in the messages of
// the Kyma project's agent.
type Name struct {
	// Namespace is empty for cluster-scoped objects.
	Namespace string `json:"Namespace"`
	Name      string `json:"Name"`
}

// Heartbeat is a message that reports that the agent is running.
type Heartbeat struct {
	// BootID is a random name that the agent chooses when it starts.
	BootID string `json:"boot"`
	// Version is the version of the agent.
	Version string `json:"version"`
	// Sequence is the highest sequence number of all events for this manager, or 0 if there was no event.
	Sequence uint64 `json:"sequence"`
	// Pending is the number of events that are not delivered yet.
	Pending int `json:"pending"`
	// EventsLost is true if the agent had to drop events since the last heartbeat that was answered. If EventsLost is
	// true, any object in the runtime may have changed.
	EventsLost bool `json:"lost,omitempty"`
	// Watchlist is the Digest of the watch list that the agent uses at present.
	Watchlist string `json:"watchlist,omitempty"`
	// Problem is a text for people. Problem names the resources that cannot be watched, with the reasons. Problem has
	// at most 300 bytes. "" means that there is no problem.
	Problem string `json:"problem,omitempty"`
}

// Field is the part of an object whose changes cause events.
type Field string

// Values of Field.
const (
	// FieldAny selects every change.
	FieldAny Field = ""
	// FieldSpec means that every change causes an event, unless only the status has changed.
	FieldSpec Field = "spec"
	// FieldStatus means that every change causes an event, unless only the spec has changed.
	FieldStatus Field = "status"
)

// Watch describes a collection of objects that an agent watches for one manager.
type Watch struct {
	// Manager is the name of the manager that gets the events. "" means ManagerName.
	Manager string `json:"manager,omitempty"`
	Group   string `json:"group,omitempty"`
	// Version is an API version. The value * means the version that the API server prefers.
	Version string `json:"version"`
	// Resource is the plural name of the resource in lower case.
	Resource string `json:"resource"`
	// Kind is the kind of the objects, spelled as in events. If Kind is "", the agent finds the kind by discovery.
	Kind string `json:"kind,omitempty"`
	// Namespace limits the watch to one namespace, and Name limits the watch to the objects with one name. If Namespace
	// is empty, objects in all namespaces are watched; if Name is empty, objects with all names are watched.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Selector is a label selector. "" selects all objects.
	Selector string `json:"selector,omitempty"`
	// Field is the part of an object whose changes cause events.
	Field Field `json:"field,omitempty"`
	// If State is true, each event of this watch contains the changed object itself and not only its metadata, see
	// [Event.State]. Agents of former versions ignore the field State. Therefore two entries that differ only in State
	// count as equal, and the Digest of the watch list does not include State.
	State bool `json:"state,omitempty"`
}

// Watchlist is the list of the resources that an agent watches.
type Watchlist struct {
	// Watches are the entries of the watch list, one for each watch, in a fixed order.
	Watches []Watch `json:"watches"`
	// HeartbeatInterval is the time between two heartbeats. 0 means DefaultHeartbeatInterval.
	HeartbeatInterval metav1.Duration `json:"heartbeat,omitzero"`
}

// DefaultHeartbeatInterval is the time between two heartbeats if the watch list contains no interval.
const DefaultHeartbeatInterval = 30 * time.Second

// MaxHeartbeatInterval is the longest time between two heartbeats. If the listener requests a longer interval, the
// agent sends a heartbeat after MaxHeartbeatInterval nevertheless.
const MaxHeartbeatInterval = time.Hour

// HeartbeatIntervalOrDefault returns HeartbeatInterval, or DefaultHeartbeatInterval if HeartbeatInterval is 0.
func (w Watchlist) HeartbeatIntervalOrDefault() time.Duration {
	if w.HeartbeatInterval.Duration > 0 {
		return w.HeartbeatInterval.Duration
	}
	return DefaultHeartbeatInterval
}

// Identity has the identity and the dates in an agent's client certificate.
type Identity struct {
	// CommonName is the runtime ID of the Kyma. If the Kyma has no runtime ID, CommonName is the name of the Kyma.
	CommonName string
	// UID is the UID of the Kyma. If our authority did not issue the certificate, UID is "".
	UID string
	// Issued is the time when our authority issued the certificate. If another authority issued the certificate, Issued
	// is zero.
	Issued time.Time
	// Expires is the time when the certificate expires.
	Expires time.Time
	// Root is the fingerprint of the root certificate with which the client certificate was verified, see
	// [ShortFingerprint].
	Root string
}

// BackdatePeriod is how long before its issuance a certificate becomes valid. A certificate is backdated because the
// clock of a runtime may be slow.
const BackdatePeriod = 24 * time.Hour

// ParseEvent parses the body of an event. The event must have a kind. Unless WatchStarted is true, the event must also
// name an object. ParseEvent drops the owner references of objects, which no agent sends.
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
	entries := 0
	reduce := func(m *metav1.ObjectMeta) {
		entries += len(m.ManagedFields)
		m.OwnerReferences = nil
	}
	if e.Object != nil {
		reduce(e.Object)
	}
	for i := range e.Objects {
		reduce(&e.Objects[i])
	}
	if entries > MaxEventEntries {
		return Event{}, fmt.Errorf("reading an event: its objects have %d managedFields, at most %d are allowed",
			entries, MaxEventEntries)
	}
	return e, nil
}

// DecodeValidStates returns the states of the objects of an event, by namespace and name. A state with the name of
// another object is ignored. If the states have too many objects and lists, all states are ignored, so that the
// receiver reads the objects from the API server of the runtime.
func (e *Event) DecodeValidStates() map[types.NamespacedName]*unstructured.Unstructured {
	containers := 0
	for _, state := range append(slices.Clip(e.States), e.State) {
		containers += bytes.Count(state, []byte("{")) + bytes.Count(state, []byte("["))
	}
	if containers > maxStateContainers {
		return nil
	}
	var all map[types.NamespacedName]*unstructured.Unstructured
	decode := func(name types.NamespacedName, state json.RawMessage) {
		u := &unstructured.Unstructured{}
		if len(state) == 0 || u.UnmarshalJSON(state) != nil || u.GetName() != name.Name ||
			u.GetNamespace() != name.Namespace {
			return
		}
		if all == nil {
			all = map[types.NamespacedName]*unstructured.Unstructured{}
		}
		all[name] = u
	}
	decode(types.NamespacedName{Namespace: e.Watched.Namespace, Name: e.Watched.Name}, e.State)
	for i := range min(len(e.Objects), len(e.States)) {
		decode(types.NamespacedName{Namespace: e.Objects[i].Namespace, Name: e.Objects[i].Name}, e.States[i])
	}
	return all
}
