package page

import (
	"net/http"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
)

// problem is a page that states a problem and its remedy.
type problem struct {
	Title, Message, Remedy string
	Links                  []link
}

// link is a link with its text.
type link struct{ Text, Path string }

// problemPage returns a page about a problem. The page is rendered again after every change of the fleet.
func problemPage(status int, title, message, remedy string, links ...link) content {
	return content{Title: title, Template: "problem", status: status,
		Data:   problem{title, message, remedy, links},
		Topics: []fleetindex.Topic{fleetindex.Runtimes, fleetindex.Catalog, fleetindex.Rollouts, fleetindex.Manager}}
}

// errorPage returns a page about an error of klm.
func errorPage(title string, err error) content {
	status := http.StatusBadGateway
	remedy := "Load the page again; the message states what is missing."
	switch console.ExitCode(err) {
	case console.ExitNotFound:
		status, remedy = http.StatusNotFound, ""
	case console.ExitForbidden:
		status, remedy = http.StatusForbidden, ""
	case console.ExitUsage:
		status, remedy = http.StatusBadRequest, ""
	}
	return problemPage(status, title, err.Error(), remedy, link{"Show the fleet", "/"})
}

// notFoundView returns the page for an unknown path.
func notFoundView(r *request) content {
	return problemPage(http.StatusNotFound, "There is no such page", "The dashboard has no page "+r.URL.Path+".",
		"Choose a page above.", link{"Show the fleet", "/"})
}
