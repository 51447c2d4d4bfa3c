package heatmap

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// These groupings and colourings of the heat map can be chosen only together with a module.
const (
	byStage    = "stage"
	byVersion  = "version"
	byProgress = "progress"
)

// Groupings are the properties by which the fleet can be grouped in the heat map. The first grouping is the default.
var Groupings = []Named{{"region", "Region"}, {"plan", "Plan"}, {"tenant", "Account"}, {"channel", "Channel"},
	{byVersion, "Version"}, {byStage, "Stage"}, {"none", "Nothing"}}

// groupLabels maps each grouping by a label to the key of the label.
var groupLabels = map[string]string{"region": v1beta2.LabelRegion, "plan": v1beta2.LabelBrokerPlanName,
	"tenant": v1beta2.LabelGlobalAccountID}

// group is a group of runtimes. Groups with a lower order are first.
type group struct {
	name  string
	order int
}

func (g group) compare(other group) int {
	return cmp.Or(g.order-other.order, connection.CompareVersions(g.name, other.name),
		strings.Compare(g.name, other.name))
}

// nobody is the last group of the heat map: the runtimes that have no value for the grouping, such as no region.
var nobody = group{"none", 1 << 20}

// groupBy returns the function that returns the group of a runtime. If a module is chosen, channel and version are the
// channel and the version of the module.
func (v *View) groupBy(key string) func(*fleetlist.Member) group {
	named := func(name string) group {
		if name == "" {
			return nobody
		}
		return group{name: name}
	}
	switch label := groupLabels[key]; {
	case label != "":
		return func(m *fleetlist.Member) group { return named(m.Metadata.Labels[label]) }
	case key == "channel" && v.Module == "":
		return func(m *fleetlist.Member) group { return named(m.Spec.Channel) }
	case key == "channel":
		return func(m *fleetlist.Member) group {
			e := ModuleOf(m, v.Module)
			if e == nil {
				return nobody
			}
			return named(cmp.Or(e.Channel, "pinned"))
		}
	case key == byVersion:
		return func(m *fleetlist.Member) group {
			if e := ModuleOf(m, v.Module); e != nil {
				return named(e.Version)
			}
			return nobody
		}
	case key == byStage:
		return v.stageOf
	}
	return func(*fleetlist.Member) group { return group{name: "all"} }
}

// stageOf returns the stage that a runtime has in the rollout of its channel.
func (v *View) stageOf(m *fleetlist.Member) group {
	e := ModuleOf(m, v.Module)
	if e == nil {
		return nobody
	}
	o, found := v.rollouts[e.Channel]
	if !found || o.places == nil || len(o.Spec.Stages) == 0 {
		return nobody
	}
	i := o.places.Of(m.Metadata.Name, m.Metadata.Labels).Stage
	name := o.Spec.Stages[i].Name
	if len(v.rollouts) > 1 {
		name = e.Channel + " · " + name
	}
	const maxStages = 32
	return group{name, o.order*maxStages + i}
}

// groups returns all groups in their order, and the index of the group of each runtime.
func (v *View) groups() (all []group, groupIndexes []uint16) {
	known := map[group]bool{}
	for _, m := range v.fleet.Members {
		if g := v.group(m); !known[g] {
			known[g] = true
			all = append(all, g)
		}
	}
	slices.SortFunc(all, group.compare)
	const maxGroups = 1 << 12
	if len(all) > maxGroups {
		all = append(all[:maxGroups:maxGroups], group{name: "others"})
	}
	number := make(map[group]uint16, len(all))
	for i, g := range all {
		number[g] = uint16(i)
	}
	groupIndexes = make([]uint16, len(v.fleet.Members))
	for i, m := range v.fleet.Members {
		n, is := number[v.group(m)]
		if !is {
			n = uint16(len(all) - 1) //nolint:gosec // at most maxGroups
		}
		groupIndexes[i] = n
	}
	return all, groupIndexes
}
