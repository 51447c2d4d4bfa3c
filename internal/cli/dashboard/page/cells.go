package page

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// cellStates are the states of cells. The position of a state is its number in a cell, for assets/map.js, too.
var cellStates = [...]v1beta2.State{v1beta2.StateReady, v1beta2.StateProcessing, v1beta2.StateWarning,
	v1beta2.StateError, v1beta2.StateDeleting, v1beta2.StateUnmanaged, console.StateNew}

// The bits of a cell besides its state.
const (
	cellPaused   = 1 << 3
	cellSilent   = 1 << 4
	cellFiltered = 1 << 5 // the filter of the page does not accept it
	cellNone     = 7      // it does not have the module
)

// cellOf returns the cell of a runtime: bits 0 to 2 are the state.
func cellOf(m *fleetlist.Member) byte {
	c := stateNumber(m.State())
	if m.IsPaused() {
		c |= cellPaused
	}
	if agent := m.Status.Agent; agent != nil && !agent.Heard {
		c |= cellSilent
	}
	return c
}

func stateNumber(s v1beta2.State) byte {
	if i := slices.Index(cellStates[:], s); i >= 0 {
		return byte(i) //nolint:gosec // there are seven states
	}
	return byte(len(cellStates) - 1)
}

// groupings are the ways to group the fleet, by the value of the parameter group. The others are labels.
var groupings = []struct{ Key, Title, label string }{
	{"region", "Region", v1beta2.LabelRegion},
	{"plan", "Plan", v1beta2.LabelBrokerPlanName},
	{"tenant", "Account", v1beta2.LabelGlobalAccountID},
	{"channel", "Channel", ""},
	{"version", "Version", ""},
	{"none", "Nothing", ""},
}

// groupOf returns the function that returns the group of a runtime. With the module, channel and version are those of
// the module.
func groupOf(by, module string) (func(*fleetlist.Member) string, error) {
	i := slices.IndexFunc(groupings, func(g struct{ Key, Title, label string }) bool { return g.Key == by })
	switch {
	case by == "version" && module == "":
		return nil, usage("the runtimes can be grouped by version for one module only: choose a module")
	case i < 0:
		return nil, usage("the runtimes cannot be grouped by %q: choose region, plan, tenant, channel, version or none",
			by)
	}
	label := groupings[i].label
	return func(m *fleetlist.Member) string {
		e := moduleOf(m, module)
		switch {
		case label != "":
			return m.Metadata.Labels[label]
		case by == "channel" && module == "":
			return m.Spec.Channel
		case by == "channel" && e != nil:
			return e.Channel
		case by == "version" && e != nil:
			return e.Version
		}
		return ""
	}, nil
}

// moduleOf returns the module of a runtime, or nil if it does not have it.
func moduleOf(m *fleetlist.Member, name string) *fleetlist.MemberModule {
	for i := range m.Status.Modules {
		if m.Status.Modules[i].Name == name {
			return &m.Status.Modules[i]
		}
	}
	return nil
}

// serveCells sends the data of the heat map: a line of JSON with the groups and the revision, a line for each runtime
// with its name, an empty line, and then three bytes for each runtime: its cell and the number of its group.
func (s *Server) serveCells(w http.ResponseWriter, r *http.Request, v *Viewer) {
	fleet := s.Index.Snapshot()
	key := "cells " + r.URL.RawQuery
	a := s.cache.get(fleet.Revision, key, s.Now())
	if a == nil {
		data, err := cellsOf(&request{Request: r, server: s, viewer: v, fleet: fleet, now: s.Now()})
		if err != nil {
			s.plainProblem(w, http.StatusBadRequest, err.Error())
			return
		}
		a = &answer{status: http.StatusOK, kind: "application/octet-stream", plain: data, packed: pack(data),
			tag: tagOf(data), made: s.Now()}
		s.cache.put(fleet.Revision, key, a)
	}
	a.write(w, r)
}

// cellsOf returns the data of the heat map.
func cellsOf(r *request) ([]byte, error) {
	v, err := r.fleetParams()
	if err != nil {
		return nil, err
	}
	groups, of := groupsOf(r.fleet, v.group)
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d %d %d\n", r.fleet.Revision, len(r.fleet.Members), len(groups))
	for _, g := range groups {
		fmt.Fprintln(&out, strings.ReplaceAll(orDash(g), "\n", " "))
	}
	for _, m := range r.fleet.Members {
		fmt.Fprintln(&out, m.Metadata.Name)
	}
	isSet := v.filter.isSet()
	for i, m := range r.fleet.Members {
		c := cellOf(m)
		if v.module != "" {
			c &^= cellNone
			if e := moduleOf(m, v.module); e == nil {
				c |= cellNone
			} else {
				c |= stateNumber(e.State)
			}
		}
		if isSet && !v.filter.accepts(m) {
			c |= cellFiltered
		}
		out.WriteByte(c)
		out.Write(binary.LittleEndian.AppendUint16(nil, of[i]))
	}
	return out.Bytes(), nil
}

// groupsOf returns the names of all groups, sorted, and the number of the group of each runtime.
func groupsOf(fleet *fleetindex.Snapshot, group func(*fleetlist.Member) string) (names []string, of []uint16) {
	sizes := map[string]int{}
	for _, m := range fleet.Members {
		sizes[group(m)]++
	}
	for name := range sizes {
		names = append(names, name)
	}
	slices.SortFunc(names, compare)
	const maxGroups = 1 << 12
	if len(names) > maxGroups {
		names = append(names[:maxGroups:maxGroups], "others")
	}
	number := make(map[string]uint16, len(names))
	for i, name := range names {
		number[name] = uint16(i)
	}
	of = make([]uint16, len(fleet.Members))
	for i, m := range fleet.Members {
		n, is := number[group(m)]
		if !is {
			n = uint16(len(names) - 1) //nolint:gosec // at most maxGroups
		}
		of[i] = n
	}
	return names, of
}
