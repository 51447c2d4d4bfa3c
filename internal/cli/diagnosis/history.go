package diagnosis

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// History is the report of klm history: the last changes of modules, the newest first.
type History []ModuleChange

// ModuleChange is one change of the version of a module, together with the name of the module.
type ModuleChange struct {
	Module string `json:"module"`
	v1beta2.ModuleChange
}

// HistoryOf returns the changes of the modules of a Kyma, or of one module.
func HistoryOf(k *v1beta2.Kyma, module string) (History, error) {
	if names := connection.ModuleNames(k); module != "" && !slices.Contains(names, module) {
		return nil, console.Fail(console.ExitNotFound, "%s has no module %q: %s", k.Name, module,
			console.SuggestionText(module, names))
	}
	all := History{}
	for _, m := range k.Status.Modules {
		for _, c := range slices.Backward(m.History) {
			if module == "" || m.Name == module {
				all = append(all, ModuleChange{m.Name, c})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b ModuleChange) int { return b.Started.Compare(a.Started.Time) })
	return all, nil
}

// Names returns the lines that -o name prints.
func (h History) Names() []string {
	var all []string
	for _, c := range h {
		all = append(all, c.Module+"/"+c.Version)
	}
	return all
}

// Show writes the report as text for people.
func (h History) Show(p *console.Page) {
	if len(h) == 0 {
		p.Line("no version of a module has changed since changes are recorded")
		return
	}
	var rows [][]string
	for _, c := range h {
		started, took := "-", "-"
		if !c.Started.IsZero() {
			started = c.Started.UTC().Format(time.RFC3339)
			if !c.Ended.IsZero() {
				took = duration.HumanDuration(c.Ended.Sub(c.Started.Time))
			}
		}
		outcome := string(c.Outcome)
		if outcome == "" {
			outcome = string(v1beta2.StateProcessing)
		}
		rows = append(rows, []string{c.Module, console.OrDash(c.From), c.Version, started, took, outcome, c.Reason})
	}
	p.Table([]string{"MODULE", "FROM", "TO", "STARTED", "TOOK", "OUTCOME", "REASON"}, rows)
}

// HistoryFilters are the filters of a listing of changes.
var HistoryFilters = []string{console.FilterVersion, console.FilterState, console.FilterReason}

// PrintModuleChanges prints changes of the modules of a runtime, or of one module. The filters of the listing select
// the printed changes.
func PrintModuleChanges(ctx context.Context, a *console.App, c *connection.Cluster, l *console.Listing, name,
	module string) error {
	changed := func() <-chan struct{} { return c.KymaChanges(ctx, name) }
	return console.PrintListing(ctx, a, l, changed, func() (History, error) {
		k, err := c.Kyma(ctx, name)
		if err != nil {
			return nil, err
		}
		return HistoryOf(k, module)
	}, func(change *ModuleChange) bool {
		return l.Accepts(console.FilterVersion, change.Version) &&
			l.Accepts(console.FilterState, string(change.Outcome)) && l.Accepts(console.FilterReason, change.Reason)
	})
}
