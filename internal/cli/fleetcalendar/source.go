// Package fleetcalendar has the command klm calendar, and reads the data of a calendar, also for the dashboard.
//
// # Use
//
//	root.AddCommand(fleetcalendar.Command(a))
//	c := fleetcalendar.Of(month, fleetcalendar.Source{Members: snapshot.Members, Catalog: snapshot.Catalog, Now: now})
//
// # How it works
//
// Package calendar makes the calendar. This package reads the data for the calendar (the rows of Kymas, the maintenance
// policy of the manager, ModuleRollouts and RolloutPolicies; no Manifests), and shows the calendar as text.
//
// # What it does not do
//
// The package decides nothing about windows, freezes and rollouts.
package fleetcalendar

import (
	"errors"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/calendar"
)

// Source contains the data from which a calendar is made.
type Source struct {
	Now time.Time
	// Maintenance is the maintenance policy of the manager. If the policy is not known, Maintenance is nil, and Unknown
	// is the reason.
	Maintenance *channel.Policy
	Unknown     string
	// Members are the runtimes in the calendar, sorted by name.
	Members []*fleetlist.Member
	// Catalog has the rollouts and policies. The releases of the catalog are needed only if the calendar is filtered by
	// module.
	Catalog *connection.Catalog
	// Filter selects modules. If Filter is nil, all modules are selected.
	Filter *console.Listing
}

// Of is a function that returns the calendar of a month.
func Of(m calendar.Month, s Source) *calendar.Calendar {
	in := calendar.Inputs{Now: s.Now, Maintenance: s.Maintenance, Unknown: s.Unknown,
		Runtimes: make([]calendar.Runtime, len(s.Members))}
	for i, member := range s.Members {
		in.Runtimes[i] = runtimeOf(member)
	}
	accepts := func(module string) bool { return s.Filter == nil || s.Filter.Accepts(console.FilterModule, module) }
	for _, name := range slices.Sorted(maps.Keys(s.Catalog.Rollouts)) {
		if r := s.Catalog.Rollouts[name]; accepts(r.Spec.Module) {
			in.Rollouts = append(in.Rollouts, r)
		}
	}
	in.Policies = s.Catalog.Policies
	if s.Filter != nil && s.Filter.Value(console.FilterModule) != "" {
		in.Policies = policiesFor(s.Catalog, in.Rollouts, accepts)
	}
	return calendar.Of(m, in)
}

func runtimeOf(m *fleetlist.Member) calendar.Runtime {
	r := calendar.Runtime{Name: m.Metadata.Name, Labels: m.Metadata.Labels, SkipWindows: m.Spec.SkipWindows}
	if deferring := m.Metadata.Annotations.Deferring; deferring != nil {
		r.Deferring = &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: m.Metadata.Name, Annotations: deferring}}
		r.Module = func(name string) (version, of string) {
			for i := range m.Status.Modules {
				if e := &m.Status.Modules[i]; e.Name == name {
					return e.Version, e.Channel
				}
			}
			return "", ""
		}
	}
	return r
}

// policiesFor returns the RolloutPolicies that apply to a channel or to a rollout of a module. Only modules for which
// the parameter accepts returns true are regarded.
func policiesFor(s *connection.Catalog, rollouts []*v1beta2.ModuleRollout,
	accepts func(module string) bool) []v1beta2.RolloutPolicy {
	names := map[string]bool{}
	for _, r := range rollouts {
		names[r.Spec.Policy] = names[r.Spec.Policy] || !r.Status.Phase.IsOver()
	}
	for _, module := range s.Modules() {
		if !accepts(module) {
			continue
		}
		channels := s.ChannelsOf(module)
		if r := s.Releases[module]; r != nil && r.IsMandatory() {
			channels = append(channels, v1beta2.MandatoryChannel)
		}
		for _, of := range channels {
			policy, err := rollout.PolicyFor(s.Policies, module, of)
			if conflict := (*rollout.PolicyConflict)(nil); errors.As(err, &conflict) {
				for _, name := range conflict.Policies {
					names[name] = true
				}
			}
			if policy != nil {
				names[policy.Name] = true
			}
		}
	}
	var all []v1beta2.RolloutPolicy
	for i := range s.Policies {
		if names[s.Policies[i].Name] {
			all = append(all, s.Policies[i])
		}
	}
	return all
}
