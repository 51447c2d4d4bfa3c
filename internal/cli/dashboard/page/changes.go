package page

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// move is one change of a channel or of a rollout.
type move struct {
	At      time.Time `json:"at"`
	Module  string    `json:"module"`
	Channel string    `json:"channel"`
	What    string    `json:"what"`
	From    string    `json:"from,omitempty"`
	To      string    `json:"to,omitempty"`
	By      string    `json:"by,omitempty"`
	Outcome string    `json:"outcome,omitempty"`
	Rollout string    `json:"rollout,omitempty"`
	Undo    string    `json:"undo,omitempty"`
}

// moves returns the last moves of all channels with the approvals and resumptions of their rollouts, the newest first.
func (r *request) moves() []move {
	var all []move
	for name, release := range r.fleet.Catalog.Releases {
		for i := range release.Status.Channels {
			s := &release.Status.Channels[i]
			for j := range s.History {
				m := &s.History[j]
				is := move{At: m.At.Time, Module: name, Channel: s.Channel, What: "moved", To: m.Version, By: m.By,
					Outcome: cmp.Or(string(m.Outcome), "under way"), Rollout: rollout.Name(name, s.Channel, m.Revision)}
				if j > 0 {
					is.From = s.History[j-1].Version
				}
				if m.Direction == v1beta2.RolloutBack {
					is.What = "taken back"
				}
				if j == len(s.History)-1 && is.From != "" && s.Channel != v1beta2.MandatoryChannel {
					is.Undo = r.server.program + " rollout undo " + name + " " + s.Channel
				}
				all = append(all, is)
			}
		}
	}
	for name, o := range r.fleet.Catalog.Rollouts {
		of := move{Module: o.Spec.Module, Channel: o.Spec.Channel, Rollout: name}
		for _, a := range o.Spec.Approvals {
			of.At, of.What, of.By = a.At.Time, "stage "+a.Stage+" approved", a.By
			all = append(all, of)
		}
		for _, a := range o.Spec.Resumptions {
			of.At, of.What, of.By, of.Outcome = a.At.Time, "resumed", a.By, a.Reason
			all = append(all, of)
		}
	}
	slices.SortFunc(all, func(a, b move) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Rollout, b.Rollout), strings.Compare(a.What, b.What))
	})
	return all
}

// filteredMoves returns the moves that the filters of the URL accept.
func (r *request) filteredMoves() ([]move, error) {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.moves(), func(m move) bool {
		return !f.Accepts(console.FilterModule, m.Module) ||
			!f.Accepts(console.FilterChannel, m.Channel) ||
			!f.Accepts(console.FilterVersion, m.From, m.To) ||
			!f.Accepts(console.FilterState, m.Outcome)
	}), nil
}

// changesView shows who moved which channel when, and how it ended.
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
			return []cell{{Text: clock(m.At)}, {Text: m.Module, Path: "/catalog/" + m.Module}, {Text: m.Channel}, what,
				{Text: orDash(m.From)}, {Text: orDash(m.To)}, {Text: cmp.Or(m.By, "unknown")},
				{Text: orDash(m.Outcome), State: m.Outcome}, {Text: m.Undo, Code: m.Undo != ""}}
		}})
	}
	if t, err = r.arrange(t, rows); err != nil {
		return errorPage("This order is not known", err)
	}
	query := r.with(sheet.ParamSort, "", sheet.ParamPage, "")
	query = strings.TrimPrefix(query, "/changes")
	return content{Title: "Changes", Section: "Changes", Template: "tables",
		Topics: []fleetindex.Topic{fleetindex.Catalog, fleetindex.Rollouts}, Data: tablesPage{Heading: "Changes",
			Intro: "The last ten moves of each channel, with approvals and resumptions. Who is the field manager that " +
				"changed the version, such as klm or argocd-controller.",
			Links:  []link{{"Export as CSV", "/changes.csv" + query}, {"Export as JSON", "/changes.json" + query}},
			Tables: []table{t}}}
}

// serveChanges exports the changes as CSV or JSON.
func (s *Server) serveChanges(w http.ResponseWriter, r *pageserver.Request) {
	all, err := s.request(r).filteredMoves()
	if err != nil {
		pageserver.Problem(http.StatusBadRequest, err.Error()).Write(w, r)
		return
	}
	kind, data := "application/json", []byte(nil)
	if strings.HasSuffix(r.URL.Path, ".json") {
		if all == nil {
			all = []move{}
		}
		data, err = json.MarshalIndent(all, "", "  ")
	} else {
		kind = "text/csv; charset=utf-8"
		var out bytes.Buffer
		c := csv.NewWriter(&out)
		rows := [][]string{{"at", "module", "channel", "what", "from", "to", "by", "outcome", "rollout"}}
		for _, m := range all {
			rows = append(rows, []string{m.At.UTC().Format(time.RFC3339), m.Module, m.Channel, m.What, m.From, m.To,
				m.By, m.Outcome, m.Rollout})
		}
		for i := range rows {
			for j := range rows[i] {
				rows[i][j] = noFormula(rows[i][j])
			}
		}
		err, data = c.WriteAll(rows), out.Bytes()
	}
	if err != nil {
		pageserver.Problem(http.StatusInternalServerError, "The changes cannot be exported: "+err.Error()).Write(w, r)
		return
	}
	w.Header().Set("Content-Disposition", "attachment; filename="+strings.TrimPrefix(r.URL.Path, "/"))
	pageserver.NewAnswer(http.StatusOK, kind, data).Write(w, r)
}

// noFormula returns a text that a spreadsheet does not take for a formula.
func noFormula(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
