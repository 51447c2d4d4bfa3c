// Package heatmap computes the heat map of a fleet: one cell for each runtime, in groups, with a class that has a
// colour and a shape.
//
// # Use
//
//	v, note := heatmap.New(snapshot, heatmap.Choice{Module: "istio", Group: "stage", Colour: "version"}, now)
//	data := v.Encode(filter.accepts)           // what the canvas draws
//	counts := v.CountByGroupAndClass(members)  // the same as numbers, for a table
//
// # How it works
//
// A grouping (group.go) is a function that returns the group of a given runtime. A colouring (colour.go) is a function
// that returns the class of the cell of a given runtime. If a grouping or a colouring needs a module or a rollout that
// does not exist, New uses the default instead and returns a note with the reason.
//
// # What it does not do
//
// The package makes no decisions: states and versions come from the statuses of the Kymas, and stages from the rollout.
package heatmap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// Choice is what a viewer has chosen for the heat map: a module, a grouping and a colouring. The zero value groups by
// region and colours by state.
type Choice struct {
	// Module is the module whose state, version and channel are shown. If Module is "", the state and the channel of
	// the runtimes are shown.
	Module string
	// Group and Colour are keys of Groupings and Colourings. "" means the first grouping or the first colouring.
	Group, Colour string
}

// Named is a grouping or a colouring.
type Named struct{ Key, Title string }

// View is the heat map of one snapshot.
type View struct {
	Choice
	// Classes are the classes (colour and symbol) of the cells. The index of a class in Classes is the number by which
	// an encoded cell refers to the class.
	Classes []Class

	fleet    *fleetindex.Snapshot
	now      time.Time
	rollouts rollouts
	group    func(*fleetlist.Member) group
	classOf  func(*fleetlist.Member) byte
}

// Class is a class of cells in the heat map: cells of a class have the same meaning, colour and shape.
type Class struct {
	Name string
	// Shape is the name of a symbol in assets/shapes.svg. Tint is the suffix of the name of the style property that
	// holds the colour.
	Shape, Tint string
}

// A cell is encoded as one byte: these flags, and a class in the three lowest bits.
const (
	bitPaused   = 1 << 3
	bitSilent   = 1 << 4
	bitFiltered = 1 << 5 // the filter of the page does not accept it
	// None is the class of a runtime that has nothing to show, such as one without the module.
	None = 7
)

// New returns the heat map for the grouping and the colouring that a viewer has chosen. A grouping or a colouring that
// does not exist is an error. If the chosen grouping or colouring cannot be shown, New uses the default instead, and
// the second result, note, is a text with the reason. Otherwise, note is "".
func New(fleet *fleetindex.Snapshot, c Choice, now time.Time) (v *View, note string, err error) {
	v = &View{Choice: c, fleet: fleet, now: now}
	if v.Group, err = choose("grouped", Groupings, c.Group); err != nil {
		return nil, "", err
	}
	if v.Colour, err = choose("coloured", Colourings, c.Colour); err != nil {
		return nil, "", err
	}
	v.rollouts = lastRolloutsOf(fleet.Catalog, c.Module)
	var notes []string
	if problem := v.missing(v.Group); problem != "" {
		v.Group, notes = Groupings[0].Key, append(notes, problem)
	}
	if problem := v.missing(v.Colour); problem != "" {
		v.Colour = Colourings[0].Key
		if !slices.Contains(notes, problem) {
			notes = append(notes, problem)
		}
	}
	v.group = v.groupBy(v.Group)
	v.Classes, v.classOf = v.colourBy(v.Colour)
	return v, strings.Join(notes, " "), nil
}

// choose returns the chosen key, or an error if the key is unknown.
func choose(how string, all []Named, key string) (string, error) {
	if key == "" {
		return all[0].Key, nil
	}
	var keys []string
	for _, n := range all {
		if n.Key == key {
			return key, nil
		}
		keys = append(keys, n.Key)
	}
	last := len(keys) - 1
	return "", fmt.Errorf("the runtimes cannot be %s by %q: choose %s or %s", how, key,
		strings.Join(keys[:last], ", "), keys[last])
}

// missing returns "" if a grouping or a colouring can be shown. If the module or the rollout that it needs does not
// exist, missing returns a text about that.
func (v *View) missing(key string) string {
	switch needsRollout := key == byStage || key == byProgress; {
	case !needsRollout && key != byVersion:
		return ""
	case v.Module == "":
		return "Versions, stages and progress are those of one module: choose a module."
	case needsRollout && len(v.rollouts) == 0:
		return "There is no rollout of " + v.Module + ", so there are no stages and no progress."
	case key == byStage && !v.rollouts.haveStages():
		return "The rollouts of " + v.Module + " have no stages, because no RolloutPolicy is for them."
	}
	return ""
}

// Title returns the title of the grouping or colouring with a key.
func Title(all []Named, key string) string {
	for _, n := range all {
		if n.Key == key {
			return n.Title
		}
	}
	return key
}

// ModuleOf returns the module with a name that a runtime has, or nil if the runtime does not have the module.
func ModuleOf(m *fleetlist.Member, name string) *fleetlist.MemberModule {
	for i := range m.Status.Modules {
		if m.Status.Modules[i].Name == name {
			return &m.Status.Modules[i]
		}
	}
	return nil
}

// cell returns the cell of a runtime.
func (v *View) cell(m *fleetlist.Member) byte { return v.classOf(m) | pausedAndSilentBits(m) }

func pausedAndSilentBits(m *fleetlist.Member) (flags byte) {
	if m.IsPaused() {
		flags |= bitPaused
	}
	if agent := m.Status.Agent; agent != nil && !agent.Heard {
		flags |= bitSilent
	}
	return flags
}

// Encode returns the data of the heat map. The data begins with a line that has the revision and the numbers of
// runtimes, groups and classes. Then there are the lines of all classes, the lines of all groups and the lines of all
// runtimes. The data ends with three bytes for each runtime: its cell and the number of its group. The function
// "isMatch" is the filter; nil matches all runtimes.
func (v *View) Encode(isMatch func(*fleetlist.Member) bool) []byte {
	groups, of := v.groups()
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d %d %d %d\n", v.fleet.Revision, len(v.fleet.Members), len(groups), len(v.Classes))
	line := func(text string) { fmt.Fprintln(&out, strings.ReplaceAll(text, "\n", " ")) }
	for _, c := range v.Classes {
		line(c.Shape + " " + c.Tint + " " + c.Name)
	}
	for _, g := range groups {
		line(g.name)
	}
	for _, m := range v.fleet.Members {
		line(m.Metadata.Name)
	}
	for i, m := range v.fleet.Members {
		c := v.cell(m)
		if isMatch != nil && !isMatch(m) {
			c |= bitFiltered
		}
		out.WriteByte(c)
		out.Write(binary.LittleEndian.AppendUint16(nil, of[i]))
	}
	return out.Bytes()
}

// Count contains the numbers of runtimes of one group, by class. The last element of ByClass is the number of runtimes
// without a class.
type Count struct {
	Name     string
	Runtimes int
	ByClass  []int
}

// CountByGroupAndClass returns, for each group, the number of its runtimes in each class. The groups have the same
// order as in the heat map.
func (v *View) CountByGroupAndClass(members []*fleetlist.Member) []Count {
	byGroup := map[group]*Count{}
	var names []group
	for _, m := range members {
		g := v.group(m)
		if byGroup[g] == nil {
			byGroup[g] = &Count{Name: g.name, ByClass: make([]int, len(v.Classes)+1)}
			names = append(names, g)
		}
		class := min(int(v.classOf(m)), len(v.Classes))
		byGroup[g].Runtimes++
		byGroup[g].ByClass[class]++
	}
	slices.SortFunc(names, group.compare)
	all := make([]Count, 0, len(names))
	for _, g := range names {
		all = append(all, *byGroup[g])
	}
	return all
}
