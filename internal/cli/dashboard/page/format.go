package page

import (
	"html/template"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// functions are the functions of the templates.
var functions = template.FuncMap{
	"count":  sheet.Count,
	"number": sheet.Number,
}

// formatUTC returns a time for people, in UTC.
func formatUTC(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// age returns how long ago a time was, or the dash "–" if the time is not known.
func (r *request) age(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return duration.HumanDuration(max(r.now.Sub(t), 0))
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// managerLine is the line on every page that shows whether the manager works.
type managerLine struct{ State, Text, More string }

// manager returns the line that shows whether the manager works.
func (r *request) manager() managerLine {
	if r.fleet.Manager == nil {
		return managerLine{State: string(liveness.Unknown), Text: "whether a manager works is not known yet"}
	}
	report := r.fleet.Manager.Report(fleetlist.ParseTime(r.fleet.Tally().Changed))
	text, more := report.Texts()
	return managerLine{string(report.State), text, more}
}
