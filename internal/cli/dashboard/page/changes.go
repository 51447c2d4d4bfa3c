package page

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/releases"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
)

// filteredMoves returns the moves that the filters of the URL accept.
func (r *request) filteredMoves() ([]releases.Move, error) {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(releases.Changes(r.fleet.Catalog, r.server.program), func(m releases.Move) bool {
		return !f.Accepts(console.FilterModule, m.Module) ||
			!f.Accepts(console.FilterChannel, m.Channel) ||
			!f.Accepts(console.FilterVersion, m.From, m.To) ||
			!f.Accepts(console.FilterState, m.Outcome)
	}), nil
}

// changesView lists the moves of channels, with the user, the time and the outcome.
func changesView(r *request) content {
	all, err := r.filteredMoves()
	if err != nil {
		return errorPage("This filter is not known", err)
	}
	t := table{Caption: "Changes", Columns: []column{{Title: "When", Key: "when"}, {Title: "Module", Key: "module"},
		{Title: "Channel", Key: "channel"}, {Title: "What", Key: "what"}, {Title: "From"}, {Title: "To"},
		{Title: "By", Key: "by"}, {Title: "Outcome", Key: "outcome"}, {Title: "Undo"}},
		Empty: "No channel was moved since changes are recorded."}
	rows := make([]row, 0, len(all))
	for _, m := range all {
		rows = append(rows, row{Keys: []string{m.At.UTC().Format(time.RFC3339), m.Module, m.Channel, m.What, "", "",
			m.By, m.Outcome, ""}, Cells: func() []cell {
			what := cell{Text: m.What}
			if r.fleet.Catalog.Rollouts[m.Rollout] != nil {
				what.Path = "/rollouts/" + m.Rollout
			}
			return []cell{{Text: formatUTC(m.At)}, {Text: m.Module, Path: "/catalog/" + m.Module}, {Text: m.Channel},
				what,
				{Text: orDash(m.From)}, {Text: orDash(m.To)}, {Text: cmp.Or(m.By, "unknown")},
				{Text: orDash(m.Outcome), State: m.Outcome}, {Text: m.Undo, Code: m.Undo != ""}}
		}})
	}
	if t, err = r.arrange(t, rows); err != nil {
		return errorPage("This order is not known", err)
	}
	query := r.urlWith(sheet.ParamSort, "", sheet.ParamPage, "")
	query = strings.TrimPrefix(query, "/changes")
	return content{Title: "Changes", Section: "Changes", Template: "tables",
		Topics: []fleetindex.Topic{fleetindex.Catalog, fleetindex.Rollouts}, Data: tablesPage{Heading: "Changes",
			Intro: "The last ten moves of each channel, with approvals and resumptions. Who is the field manager that " +
				"changed the version, such as klm or argocd-controller.",
			Links:  []link{{"Export as CSV", "/changes.csv" + query}, {"Export as JSON", "/changes.json" + query}},
			Tables: []table{t}}}
}

// serveChangesExport exports the changes as CSV or JSON.
func (s *Server) serveChangesExport(w http.ResponseWriter, r *pageserver.Request) {
	all, err := s.request(r).filteredMoves()
	if err != nil {
		pageserver.Problem(http.StatusBadRequest, err.Error()).Write(w, r)
		return
	}
	kind, data := "application/json", []byte(nil)
	if strings.HasSuffix(r.URL.Path, ".json") {
		if all == nil {
			all = []releases.Move{}
		}
		data, err = json.MarshalIndent(all, "", "  ")
	} else {
		kind = "text/csv; charset=utf-8"
		data, err = releases.CSV(all)
	}
	if err != nil {
		pageserver.Problem(http.StatusInternalServerError, "The changes cannot be exported: "+err.Error()).Write(w, r)
		return
	}
	w.Header().Set("Content-Disposition", "attachment; filename="+strings.TrimPrefix(r.URL.Path, "/"))
	pageserver.NewAnswer(http.StatusOK, kind, data).Write(w, r)
}
