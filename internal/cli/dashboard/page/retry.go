package page

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetadmin"
)

// retry is the form that requests a retry of a runtime or of one of its modules.
type retry struct{ Path, Module, Text, Command, Kubectl string }

// retryForm returns the form for a runtime, or nil if there is nothing to retry or the viewer may not request retries.
func (r *request) retryForm(facts *diagnosis.Facts, module string, state v1beta2.State) *retry {
	waits := []v1beta2.State{v1beta2.StateError, v1beta2.StateWarning, v1beta2.StateProcessing, v1beta2.StateDeleting}
	command := fleetadmin.RetryCommand(facts, module)
	if !r.viewer.MayRetry || !slices.Contains(waits, state) || command == "" {
		return nil
	}
	return &retry{Path: "/runtimes/" + facts.Kyma.Name + "/retry", Module: module, Kubectl: command,
		Command: r.server.program + " retry " + strings.TrimSpace(facts.Kyma.Name+" "+module),
		Text:    "The manager tries again by itself, after a delay that grows to some minutes. This ends the delay."}
}

// retry requests a retry of a runtime or of a module, if the viewer has the permission. retry calls the same function
// as klm retry.
func (s *Server) retry(w http.ResponseWriter, r *pageserver.Request) {
	name := r.PathValue("name")
	back := link{"Back to the runtime", "/runtimes/" + name}
	if !s.requireConfirmation(w, r, r.Viewer.MayRetry, s.program+" retry "+name, back) {
		return
	}
	if m := r.Fleet.Manager; m != nil {
		if err := m.Report(time.Time{}).ErrIfNotWorking(); err != nil {
			s.showOutcome(w, r, "", err, back)
			return
		}
	}
	effect, err := fleetadmin.Retry(r.Context(), r.Viewer.Acts, name, r.PostForm.Get("module"), s.Now())
	s.showOutcome(w, r, effect, err, back)
}

// maxForm limits the bytes of a form.
const maxForm = 16 << 10

// requireConfirmation reports whether a viewer may make a change and has confirmed the change in the form. If
// requireConfirmation returns false, it has already answered the request with the reason why nothing was changed. The
// parameter "command" is the klm command that makes the same change as the form.
func (s *Server) requireConfirmation(w http.ResponseWriter, r *pageserver.Request, mayAct bool, command string,
	back link) (ok bool) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	const unchanged = "Nothing was changed"
	switch err := r.ParseForm(); {
	case !mayAct || r.Viewer.Acts == nil:
		s.show(w, r, problemPage(http.StatusForbidden, unchanged, "The dashboard only reads, or you lack the right.",
			"Start it with --actions, or use "+command+".", back))
	case err != nil:
		s.show(w, r, problemPage(http.StatusBadRequest, unchanged, "The form cannot be read: "+err.Error(), "", back))
	case r.PostForm.Get("sure") != "yes":
		s.show(w, r, problemPage(http.StatusBadRequest, unchanged, "The change was not confirmed.",
			"Tick the box beside the button.", back))
	default:
		return true
	}
	return false
}

// showOutcome answers the request with the effect of the change, or with the reason why the change was not made.
func (s *Server) showOutcome(w http.ResponseWriter, r *pageserver.Request, effect string, err error, back link) {
	if err != nil {
		c := errorPage("Nothing was changed", err)
		p, _ := c.Data.(problem)
		p.Links = []link{back}
		c.Data = p
		s.show(w, r, c)
		return
	}
	s.show(w, r, content{Title: "Done", Template: "problem", isPersonal: true,
		Data: problem{Title: "Done", Message: strings.ToUpper(effect[:1]) + effect[1:] + ".",
			Remedy: "The manager follows within seconds.",
			Links:  []link{back}}})
}

// show answers the request with a page that has already been made.
func (s *Server) show(w http.ResponseWriter, r *pageserver.Request, c content) {
	s.render(s.request(r), func(*request) content { return c }).Write(w, r)
}
