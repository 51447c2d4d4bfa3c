package heatmap

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// Colourings are the ways to colour the cells of the heat map. The first colouring in the list is the default.
var Colourings = []Named{{"state", "State"}, {byVersion, "Version"}, {"age", "Last heard"}, {byProgress, "Rollout"}}

// States are the states by which cells can be coloured. The index of a state in States is the number of the class
// (colour and symbol) of the cells with this state.
var States = [...]v1beta2.State{v1beta2.StateReady, v1beta2.StateProcessing, v1beta2.StateWarning,
	v1beta2.StateError, v1beta2.StateDeleting, v1beta2.StateUnmanaged, console.StateNew}

// shapes are the names of the symbols that are drawn in cells. The index of a symbol in shapes is the number of the
// class of cells that has this symbol. Each class of cells has its own symbol, so that a person who cannot distinguish
// the colours can read the heat map.
var shapes = [...]string{"square", "ring", "triangle", "cross", "corner", "outline", "dot"}

// StateCell returns the cell of a runtime that is coloured by its own state.
func StateCell(m *fleetlist.Member) byte { return stateClass(m.State()) | pausedAndSilentBits(m) }

func stateClass(s v1beta2.State) byte {
	if i := slices.Index(States[:], s); i >= 0 {
		return byte(i) //nolint:gosec // there are seven states
	}
	return byte(len(States) - 1)
}

// colourBy returns the classes of a colouring, and the function that returns the class of a runtime.
func (v *View) colourBy(key string) ([]Class, func(*fleetlist.Member) byte) {
	switch key {
	case byVersion:
		return v.versionClasses()
	case "age":
		return ageClasses, v.heartbeatAgeClass
	case byProgress:
		return v.progressClasses()
	}
	var classes []Class
	for i, s := range States {
		classes = append(classes, Class{string(s), shapes[i], strings.ToLower(string(s))})
	}
	return classes, func(m *fleetlist.Member) byte {
		if v.Module == "" {
			return stateClass(m.State())
		}
		if e := ModuleOf(m, v.Module); e != nil {
			return stateClass(cmp.Or(e.State, console.StateNew))
		}
		return None
	}
}

// versionClasses has a class for each of the highest versions, and one class for all lower versions.
func (v *View) versionClasses() ([]Class, func(*fleetlist.Member) byte) {
	found := map[string]bool{}
	for _, n := range v.fleet.Tally().Versions {
		if n.Module == v.Module && n.Version != "" {
			found[n.Version] = true
		}
	}
	versions := slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(connection.CompareVersions(b, a), strings.Compare(b, a))
	})
	last := len(shapes) - 1
	var classes []Class
	number := map[string]byte{}
	for i, version := range versions {
		number[version] = byte(min(i, last))
		if i == last && len(versions) > len(shapes) {
			version = "lower"
		}
		if i <= last {
			classes = append(classes, Class{version, shapes[i], "scale-" + string(rune('0'+i))})
		}
	}
	return classes, func(m *fleetlist.Member) byte {
		if e := ModuleOf(m, v.Module); e != nil {
			if n, is := number[e.Version]; is {
				return n
			}
		}
		return None
	}
}

// These are the classes of cells if the heat map shows the age of the last heartbeat of each runtime.
const (
	heardNow byte = iota
	heardMinutes
	heardHour
	heardDay
	heardLong
	heardByPolling
	heardNever
)

// ageClasses has the names of the classes of ages. The class of the longest time without a heartbeat has the most
// conspicuous colour.
var ageClasses = []Class{heardNow: {"agent connected", "square", "ready"},
	heardMinutes:   {"silent for less than 10 minutes", "ring", "processing"},
	heardHour:      {"less than an hour", "triangle", "warning"},
	heardDay:       {"less than a day", "corner", "deleting"},
	heardLong:      {"a day or longer", "cross", "error"},
	heardByPolling: {"polled, without an agent", "outline", "unmanaged"},
	heardNever:     {"never heard", "dot", "new"}}

// heartbeatAgeClass returns the class of the time since the last heartbeat of a runtime.
func (v *View) heartbeatAgeClass(m *fleetlist.Member) byte {
	agent := m.Status.Agent
	switch {
	case agent == nil:
		return heardByPolling
	case agent.Heard:
		return heardNow
	}
	at := fleetlist.ParseTime(agent.LastHeartbeat)
	switch silent := v.now.Sub(at); {
	case at.IsZero():
		return heardNever
	case silent < 10*time.Minute:
		return heardMinutes
	case silent < time.Hour:
		return heardHour
	case silent < 24*time.Hour:
		return heardDay
	}
	return heardLong
}

// movement is the rollout of one channel of a module.
type movement struct {
	*v1beta2.ModuleRollout
	places   *place.Places // nil if a selector is not valid
	admitted place.Admitted
	order    int // among the channels
}

// rollouts contains one rollout for each channel of a module: the rollout in progress, or the last rollout if no
// rollout is in progress.
type rollouts map[string]movement

func lastRolloutsOf(c *connection.Catalog, module string) rollouts {
	last := map[string]*v1beta2.ModuleRollout{}
	for _, o := range c.Rollouts {
		if o.Spec.Module != module {
			continue
		}
		if is := last[o.Spec.Channel]; is == nil || is.Spec.Revision < o.Spec.Revision {
			last[o.Spec.Channel] = o
		}
	}
	all := rollouts{}
	for i, channel := range slices.Sorted(maps.Keys(last)) {
		o := last[channel]
		places, err := place.New(o)
		if err != nil {
			places = nil // the CRD refuses such a selector, and the coordinator reports it in the rollout
		}
		all[channel] = movement{o, places, place.Decode(o.Status.Admitted), i}
	}
	return all
}

func (r rollouts) haveStages() bool {
	for _, o := range r {
		if len(o.Spec.Stages) > 0 {
			return true
		}
	}
	return false
}

// These are the classes of cells if the heat map shows the progress of a rollout. The class of a cell depends only on
// the version and the state that the runtime reports. The page of the rollout shows the decision of the rollout about
// each runtime.
const (
	newReady byte = iota
	moving
	admittedNext
	newBroken
	formerBroken
	former
	otherVersion
)

// progressClasses returns the classes of cells for the progress of a rollout, and a function that returns the class of
// a runtime by its version and state.
func (v *View) progressClasses() ([]Class, func(*fleetlist.Member) byte) {
	classes := []Class{newReady: {"new version, Ready", "square", "ready"},
		moving:       {"update under way", "ring", "processing"},
		admittedNext: {"may begin", "triangle", "warning"},
		newBroken:    {"new version, not Ready", "cross", "error"},
		formerBroken: {"former version, not Ready", "corner", "deleting"},
		former:       {"former version", "outline", "unmanaged"},
		otherVersion: {"another version", "dot", "new"}}
	return classes, func(m *fleetlist.Member) byte {
		e := ModuleOf(m, v.Module)
		if e == nil {
			return None
		}
		o, found := v.rollouts[e.Channel]
		if !found {
			return None
		}
		isReady := e.State == v1beta2.StateReady || e.State == v1beta2.StateUnmanaged
		switch {
		case e.State == v1beta2.StateProcessing && (e.Version == o.Spec.To || e.Version == o.Spec.From):
			return moving
		case e.Version == o.Spec.To && isReady:
			return newReady
		case e.Version == o.Spec.To:
			return newBroken
		case e.Version != o.Spec.From:
			return otherVersion
		case o.places != nil && o.admitted[o.places.Of(m.Metadata.Name, m.Metadata.Labels).Token]:
			return admittedNext
		case !isReady:
			return formerBroken
		}
		return former
	}
}
