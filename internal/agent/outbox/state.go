package outbox

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// stateTimeout is the deadline for the reads of one event. Tests change it.
var stateTimeout = 5 * time.Second

const (
	maxStates = 20 // maximum number of reads for the start of a watch
	// maxReadBytes is the maximum size of an object that the agent reads for its state. The size of the object includes
	// all of its fields, also those that are not part of its state. For an object larger than maxReadBytes, the event
	// has no state. The size of the objects that the agent reads is limited because many objects may be read at the
	// same time, and the agent has little memory.
	maxReadBytes = 128 << 10
)

// States adds states to events. The agent watches metadata only. If the watch list requests the state of an object
// ([protocol.Watch.State]), the agent reads the object when it sends an event about it. A read at the time of sending
// has three advantages: several changes in one event need only one read, the state is as new as possible, and the agent
// stores no objects.
type States struct {
	// Client reads from the API server of the runtime.
	Client rest.Interface
	// Watchlist returns the current watch list, or nil.
	Watchlist func() *protocol.Watchlist
}

// DelivererWithStates returns a function that adds to an event the states of objects that the watch list requests, and
// makes one attempt to deliver the event with p.
func (s *States) DelivererWithStates(p *Poster) func(context.Context, string, protocol.Event) Result {
	return func(ctx context.Context, manager string, e protocol.Event) Result {
		if manager == protocol.ManagerName {
			s.addStates(ctx, &e)
		}
		return p.Deliver(ctx, manager, e)
	}
}

// addStates adds the states of the objects of an event. An object that cannot be read has no state.
func (s *States) addStates(ctx context.Context, e *protocol.Event) {
	list := s.Watchlist()
	if list == nil || e.Deleted {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	if !e.WatchStarted {
		if e.Object != nil && requestsState(list, e, e.Watched) {
			e.State = s.readState(ctx, e, e.Watched)
		}
		return
	}
	if len(e.Objects) > maxStates {
		return
	}
	total := 0
	for i := range e.Objects {
		name := protocol.Name{Namespace: e.Objects[i].Namespace, Name: e.Objects[i].Name}
		if !requestsState(list, e, name) {
			continue
		}
		state := s.readState(ctx, e, name)
		if total += len(state); state == nil || total > protocol.MaxStatesBytes {
			continue
		}
		if e.States == nil {
			e.States = make([]json.RawMessage, len(e.Objects))
		}
		e.States[i] = state
	}
}

// requestsState reports whether an entry of the watch list requests the state of an object.
func requestsState(list *protocol.Watchlist, e *protocol.Event, name protocol.Name) bool {
	return slices.ContainsFunc(list.Watches, func(w protocol.Watch) bool {
		return w.State && w.Group == e.WatchedGVK.Group && w.Resource == e.Resource &&
			(w.Manager == "" || w.Manager == protocol.ManagerName) &&
			(w.Namespace == "" || w.Namespace == name.Namespace) && (w.Name == "" || w.Name == name.Name)
	})
}

// readState reads an object and returns its state, or nil if the object cannot be read or is too large.
func (s *States) readState(ctx context.Context, e *protocol.Event, name protocol.Name) json.RawMessage {
	path := []string{"apis", e.WatchedGVK.Group, e.WatchedGVK.Version}
	if e.WatchedGVK.Group == "" {
		path = []string{"api", e.WatchedGVK.Version}
	}
	if name.Namespace != "" {
		path = append(path, "namespaces", url.PathEscape(name.Namespace))
	}
	body, err := s.Client.Get().AbsPath(append(path, e.Resource, url.PathEscape(name.Name))...).
		SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return nil
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxReadBytes+1))
	if err != nil || len(data) > maxReadBytes {
		return nil
	}
	var object map[string]any
	if utiljson.Unmarshal(data, &object) != nil { // keeps integers
		return nil
	}
	return protocol.TrimAndEncodeState(object)
}
