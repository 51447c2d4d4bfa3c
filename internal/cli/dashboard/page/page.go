// Package page makes the HTML pages of the dashboard from an index in memory.
//
// # Use
//
//	s, err := page.New(page.Options{Index: x, Viewer: authenticate, Hosts: []string{"127.0.0.1:4711"}})
//	http.Serve(listener, s)
//
// # How it works
//
// The data of a page flows in one direction. This package reads the index (package fleetindex), uses package heatmap
// for the heat map, and makes HTML. Package pageserver sends the HTML pages to browsers.
//
// Every page is made from one snapshot of the index, without a request to the API server. The URL of a page contains
// its whole state: view, filters, order, page number. A page works without JavaScript. With JavaScript, a page reloads
// its content after a change of one of its topics. Therefore the rows always match the filters. The heat map is a
// canvas that is drawn from bytes; the table below the canvas has the same counts.
//
// Only objects of a single runtime, such as its events and its Manifests, are read from the API server: when the page
// of the runtime is viewed for the first time, and after the objects have changed.
//
// # What it does not do
//
// The package decides nothing about modules. The package makes only two changes, with the same code as klm: the package
// edits the spec of a rollout, and requests a retry of a runtime or of one of its modules.
package page

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/heatmap"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
)

//go:embed templates assets
var files embed.FS

// Options are the options of the pages.
type Options struct {
	// Index contains the data that the pages show. Index is required.
	Index *fleetindex.Index
	// Viewer returns the user of a request, or answers the request itself and returns nil. Viewer is required.
	Viewer func(http.ResponseWriter, *http.Request) *pageserver.Viewer
	// Hosts are the values of the header Host that are accepted. Hosts is required.
	Hosts []string
	// SignOut is the path to which the form for signing out is sent. If SignOut is "", pages have no such form.
	SignOut string
	// WithoutSecrets means that the dashboard has no right to list access Secrets, so pages do not show access Secrets.
	WithoutSecrets bool
	// Program is the name of klm in the commands that are shown. The default is klm.
	Program string
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// MaxStreams is the maximum number of open streams of events. If MaxStreams is 0, the maximum is the default of
	// MaxStreams in pageserver.Options.
	MaxStreams int
}

// Server serves the pages.
type Server struct {
	*pageserver.Server
	program, signOut string
	withoutSecrets   bool
	templates        *template.Template
	reads            fleetindex.OnDemand
	nameMark         string // in place of the name of the viewer
}

// New returns a server of all pages.
func New(o Options) (*Server, error) {
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		return nil, fmt.Errorf("reading the assets: %w", err)
	}
	s := &Server{program: cmp.Or(o.Program, "klm"), signOut: o.SignOut, nameMark: rand.Text(),
		withoutSecrets: o.WithoutSecrets}
	if s.Server, err = pageserver.New(pageserver.Options{Index: o.Index, Viewer: o.Viewer, Hosts: o.Hosts,
		Assets: assets, Cell: heatmap.StateCell, Now: o.Now, MaxStreams: o.MaxStreams}); err != nil {
		return nil, err
	}
	if s.templates, err = template.New("").Funcs(functions).ParseFS(files, "templates/*.html"); err != nil {
		return nil, fmt.Errorf("parsing the templates: %w", err)
	}
	s.route()
	return s, nil
}

// route has all paths.
func (s *Server) route() {
	s.registerView("GET /{$}", fleetView)
	s.registerView("GET /versions", versionsView)
	s.registerView("GET /runtimes/{name}", runtimeView)
	s.registerView("GET /runtimes/{name}/{module}", moduleView)
	s.registerView("GET /rollouts", rolloutsView)
	s.registerView("GET /rollouts/{name}", rolloutView)
	s.registerView("GET /rollouts/{name}/plan", rolloutPlanView)
	s.registerView("GET /plan", planView)
	s.registerView("GET /changes", changesView)
	s.registerView("GET /calendar", calendarView)
	s.registerView("GET /catalog", catalogView)
	s.registerView("GET /catalog/{module}", catalogModuleView)
	s.registerView("GET /", notFoundView)
	s.HandleCached("GET /fleet/cells", s.heatMapCells)
	s.Handle("GET /changes.csv", s.serveChangesExport)
	s.Handle("GET /changes.json", s.serveChangesExport)
	s.Handle("POST /rollouts/{name}/{verb}", s.actOnRollout)
	s.Handle("POST /runtimes/{name}/retry", s.retry)
}

// request is one request for a view.
type request struct {
	*http.Request
	server *Server
	viewer *pageserver.Viewer
	fleet  *fleetindex.Snapshot
	now    time.Time
}

func (s *Server) request(r *pageserver.Request) *request {
	return &request{Request: r.Request, server: s, viewer: r.Viewer, fleet: r.Fleet, now: r.Now}
}

// content is the content of a view.
type content struct {
	// Title is the title of the window. Template is the name of the HTML template for the main part of the page. Data
	// is the input of the HTML template.
	Title, Template string
	Data            any
	// Topics are the parts of the index that the page shows, such as the catalog. The page is rendered again after a
	// change of one of its topics.
	Topics []fleetindex.Topic
	// Section is the entry of the navigation that is marked as the current one.
	Section string
	// The field status is the HTTP status of the response; 0 means 200. The field isPersonal is true if the page must
	// not be cached for other viewers or later requests.
	status     int
	isPersonal bool
}

// frame is the data of the whole page.
type frame struct {
	content
	Sections []section
	Viewer   *pageserver.Viewer
	Name     string // is replaced by the name of each viewer
	SignOut  string
	Cluster  string
	Manager  managerLine
	Fleet    *fleetindex.Tally
	Revision uint64
	Problem  string
	Since    string
	Notes    []string
	Ready    bool
}

// section is an entry of the navigation.
type section struct {
	Name, Path string
	Current    bool
}

// sections are the entries of the navigation.
var sections = []section{{Name: "Fleet", Path: "/"}, {Name: "Versions", Path: "/versions"}, {Name: "Rollouts",
	Path: "/rollouts"}, {Name: "Changes", Path: "/changes"}, {Name: "Calendar", Path: "/calendar"}, {Name: "Catalog",
	Path: "/catalog"}}

// registerView registers a view.
func (s *Server) registerView(pattern string, show func(*request) content) {
	s.HandleCached(pattern, func(r *pageserver.Request) *pageserver.Answer { return s.render(s.request(r), show) })
}

// render makes a page.
func (s *Server) render(r *request, show func(*request) content) *pageserver.Answer {
	c := content{}
	switch problem := r.fleet.Problem; {
	case r.fleet.Ready:
		c = show(r)
	case problem != nil:
		c = problemPage(http.StatusServiceUnavailable, "The fleet cannot be read", problem.Error(),
			"The dashboard tries again by itself.")
	default:
		c = problemPage(http.StatusServiceUnavailable, "Reading the fleet", "The runtimes are being listed.",
			"This page shows them as soon as the list is complete.")
	}
	f := frame{content: c, Viewer: r.viewer, SignOut: s.signOut, Fleet: r.fleet.Tally(),
		Revision: r.fleet.Revision, Ready: r.fleet.Ready,
		Notes: r.fleet.Notes, Manager: r.manager()}
	if r.fleet.Cluster != nil {
		f.Cluster = r.fleet.Cluster.Context
	}
	if p := r.fleet.Problem; p != nil {
		f.Problem, f.Since = p.Error(), formatUTC(r.fleet.ProblemSince)
	}
	if r.viewer.Name != "" {
		f.Name = s.nameMark
	}
	for _, is := range sections {
		is.Current = is.Name == c.Section
		f.Sections = append(f.Sections, is)
	}
	var out bytes.Buffer
	if err := s.templates.ExecuteTemplate(&out, "frame.html", f); err != nil {
		return pageserver.Problem(http.StatusInternalServerError, "The page cannot be made: "+err.Error())
	}
	a := pageserver.NewAnswer(max(c.status, http.StatusOK), "text/html; charset=utf-8", out.Bytes())
	a.IsPersonal, a.Name = c.isPersonal, f.Name
	return a
}
