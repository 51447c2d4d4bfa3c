package page

import (
	"fmt"
	"html/template"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// functions are the functions of the templates.
var functions = template.FuncMap{
	"count":  count,
	"number": number,
}

// count returns a number with its noun, such as 1,234 runtimes.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return number(n) + " " + noun
}

// number returns a number with separators of thousands.
func number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// clock returns a time for people, in UTC.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// ago returns how long ago a time was, or – if it is not known.
func (r *request) ago(t time.Time) string {
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

// managerLine is the line about the manager, on every page.
type managerLine struct{ State, Text, More string }

// manager returns the line about the manager.
func (r *request) manager() managerLine {
	if r.fleet.Manager == nil {
		return managerLine{State: string(liveness.Unknown), Text: "whether a manager works is not known yet"}
	}
	report := r.fleet.Manager.Report(fleetlist.ParseTime(r.fleet.Tally().Changed))
	text, more := report.Texts()
	return managerLine{string(report.State), text, more}
}
