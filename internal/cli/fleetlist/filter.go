package fleetlist

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Filters are the filters that every listing of runtimes has.
var Filters = []string{console.FilterLabels, console.FilterModule, console.FilterVersion, console.FilterChannel,
	console.FilterState, console.FilterReason}

// RegisterFilters adds the filters to a command that lists runtimes.
func RegisterFilters(a *console.App, c *cobra.Command, l *console.Listing) {
	l.Register(c, append(slices.Clone(Filters), console.FilterKubernetes)...)
	RegisterFilterCompletion(a, c)
}

// States are the allowed values of --state.
var States = []string{
	string(v1beta2.StateReady), string(v1beta2.StateProcessing), string(v1beta2.StateWarning),
	string(v1beta2.StateError), string(v1beta2.StateDeleting), string(v1beta2.StateUnmanaged), string(console.StateNew),
}

// RegisterFilterCompletion completes the filters of a listing of runtimes.
func RegisterFilterCompletion(a *console.App, c *cobra.Command) {
	console.CompleteFlag(c, console.FilterState, console.FixedNames(States...))
	console.CompleteFlag(c, console.FilterModule, connection.CatalogModules(a))
}

// Matches reports whether the filters of a listing accept the runtime. The API server applies the label selector. The
// filters for channel, state and reason are about the runtime. If the listing is for a module, these filters are about
// the module in the runtime.
func (m *Member) Matches(l *console.Listing) bool {
	if !l.AcceptsVersionPrefix(console.FilterKubernetes, m.Status.KubernetesVersion) {
		return false
	}
	ofModule := l.Value(console.FilterModule) != ""
	isAccepted := l.Accepts(console.FilterChannel, m.Spec.Channel) &&
		l.Accepts(console.FilterState, string(m.State())) &&
		(l.Value(console.FilterReason) == "" || l.Accepts(console.FilterReason, m.allReasons()...))
	if !ofModule && !isAccepted {
		return false
	}
	if !ofModule && l.Value(console.FilterVersion) == "" {
		return true
	}
	for _, e := range m.Status.Modules {
		if l.Accepts(console.FilterModule, e.Name) && l.Accepts(console.FilterVersion, e.Version) &&
			(!ofModule || l.Accepts(console.FilterChannel, e.Channel) &&
				l.Accepts(console.FilterState, string(e.State)) && l.Accepts(console.FilterReason, e.Reason)) {
			return true
		}
	}
	return false
}

// allReasons returns the reasons of all blockers of the runtime and its modules.
func (m *Member) allReasons() []string {
	reason, _ := m.Blocker()
	all := []string{reason}
	if m.IsPaused() {
		all = append(all, v1beta2.ReasonKymaPaused)
	}
	for _, e := range m.Status.Modules {
		all = append(all, e.Reason)
	}
	for _, c := range m.Status.Conditions {
		if c.Status != "True" {
			all = append(all, c.Reason)
		}
	}
	return all
}
