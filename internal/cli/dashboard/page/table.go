package page

import (
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/heatmap"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
)

// The parts of tables that every view uses.
type (
	table  = sheet.Table
	column = sheet.Column
	cell   = sheet.Cell
	row    = sheet.Row
	bar    = sheet.Bar
)

// arrange sorts the rows of a table and selects one page of rows, as the URL of the request demands.
func (r *request) arrange(t table, rows []row) (table, error) { return sheet.Arrange(r.URL, t, rows) }

// urlWith returns the URL of the request with changed query parameters, and without those with an empty value.
func (r *request) urlWith(pairs ...string) string { return sheet.WithQuery(r.URL, pairs...) }

// stateBar returns a stacked bar with the numbers of runtimes by state, out of a total.
func stateBar(total int, label string, states map[string]int) *bar {
	var shares []sheet.Share
	for _, s := range heatmap.States {
		shares = append(shares, sheet.Share{Class: "state-" + string(s), N: states[string(s)]})
	}
	return sheet.BarOf(total, label, shares...)
}
