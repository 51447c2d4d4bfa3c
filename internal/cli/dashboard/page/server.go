// Package page has the pages of the dashboard: it makes them from an index in memory, and sends what changes.
//
// # Use
//
//	s, err := page.New(page.Options{Index: x, Viewer: authenticate, Hosts: []string{"127.0.0.1:4711"}})
//	http.Serve(listener, s)
//
// # How it works
//
// Every page is HTML that the server makes from one snapshot of the index, without a request to the API server. Its
// URL has the whole state: view, filters, order, page. A page works without JavaScript. With it, the page keeps a
// stream of server-sent events open (events.go): after a change of one of its topics, the page requests itself again
// and replaces its content, so a row never leaves a filter unnoticed. The heat map is a canvas that draws bytes
// (cells.go); the table below it has the same counts.
//
// Pages are kept in memory until the next snapshot, so many viewers of one page cost as much as one.
//
// Only what belongs to one runtime, such as its events and its Manifests, is read from the API server, and not more
// often than ondemandAge.
//
// # What it does not do
//
// The package does not know who may view the pages: its caller authenticates each request, and passes the cluster with
// which the viewer acts. It decides nothing about modules, and edits no objects but the spec of a rollout, by the same
// code as klm rollout.
package page

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
)

//go:embed templates assets
var files embed.FS

// Viewer is the user of one request.
type Viewer struct {
	// Name is the name that is shown, "" if it is not known.
	Name string
	// Acts is the cluster with which the viewer changes rollouts. Nil: the viewer may only read.
	Acts *connection.Cluster
}

// Options are the options of a server.
type Options struct {
	// Index is what the pages show. Required.
	Index *fleetindex.Index
	// Viewer returns the user of a request. If it returns nil, it has answered the request itself. Required.
	Viewer func(http.ResponseWriter, *http.Request) *Viewer
	// Hosts are the values of the header Host that are accepted. A page of a stranger whose name leads to this server
	// has another one. Required.
	Hosts []string
	// SignOut is the path to which the form for signing out is sent. Default "": there is no such form.
	SignOut string
	// Program is the name of klm in the commands that are shown.
	Program string
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// MaxStreams is the maximum number of open streams of events. Default 2,000.
	MaxStreams int
}

// Server serves the pages.
type Server struct {
	Options
	mux       *http.ServeMux
	handler   http.Handler
	templates *template.Template
	assets    map[string]asset
	cache     pageCache
	reads     ondemand
	streams   chan struct{}
}

// asset is one embedded file.
type asset struct {
	kind string
	data []byte
	tag  string
}

// New returns a server.
func New(o Options) (*Server, error) {
	if o.Index == nil || o.Viewer == nil || len(o.Hosts) == 0 {
		return nil, errors.New("making the pages: Index, Viewer and Hosts are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Program == "" {
		o.Program = "klm"
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 2000
	}
	s := &Server{Options: o, mux: http.NewServeMux(), streams: make(chan struct{}, o.MaxStreams)}
	var err error
	if s.templates, err = template.New("").Funcs(functions).ParseFS(files, "templates/*.html"); err != nil {
		return nil, fmt.Errorf("parsing the templates: %w", err)
	}
	if err := s.loadAssets(); err != nil {
		return nil, err
	}
	s.route()
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.plainProblem(w, http.StatusForbidden, "This request came from another site, so nothing was changed.")
	}))
	s.handler = s.secure(crossOrigin.Handler(s.mux))
	return s, nil
}

// route has all paths.
func (s *Server) route() {
	s.view("GET /{$}", fleetView)
	s.view("GET /versions", versionsView)
	s.view("GET /runtimes/{name}", runtimeView)
	s.view("GET /runtimes/{name}/{module}", moduleView)
	s.view("GET /rollouts", rolloutsView)
	s.view("GET /rollouts/{name}", rolloutView)
	s.view("GET /rollouts/{name}/plan", rolloutPlanView)
	s.mux.HandleFunc("POST /rollouts/{name}/{verb}", s.viewed(s.act))
	s.view("GET /plan", planView)
	s.view("GET /changes", changesView)
	s.mux.HandleFunc("GET /changes.csv", s.viewed(s.serveChanges))
	s.mux.HandleFunc("GET /changes.json", s.viewed(s.serveChanges))
	s.view("GET /catalog", catalogView)
	s.view("GET /catalog/{module}", catalogModuleView)
	s.view("GET /", nowhere)
	s.mux.HandleFunc("GET /assets/{name}", s.serveAsset)
	s.mux.HandleFunc("GET /fleet/cells", s.viewed(s.serveCells))
	s.mux.HandleFunc("GET /events", s.viewed(s.serveEvents))
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// policy is the Content-Security-Policy of all answers. Nothing inline is allowed, so a text that reaches a page by a
// mistake is not executed.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// secure sets the headers of all answers, and refuses other hosts.
func (s *Server) secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // no-referrer would also hide the origin of our own forms
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !slices.Contains(s.Hosts, r.Host) {
			s.plainProblem(w, http.StatusMisdirectedRequest, "This dashboard is not at the host that was requested. "+
				"Open the address that klm dashboard has printed.")
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" && !s.isOwn(origin) {
			s.plainProblem(w, http.StatusForbidden, "This request came from another site, so it was refused.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwn reports whether an origin is that of this server.
func (s *Server) isOwn(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && slices.Contains(s.Hosts, u.Host)
}

// viewed calls next for the user of the request.
func (s *Server) viewed(next func(http.ResponseWriter, *http.Request, *Viewer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if v := s.Viewer(w, r); v != nil {
			next(w, r, v)
		}
	}
}

// request is one request for a view.
type request struct {
	*http.Request
	server *Server
	viewer *Viewer
	fleet  *fleetindex.Snapshot
	now    time.Time
}

// content is what a view shows.
type content struct {
	// Title is the title of the window, and Template the name of the template of the main part, with Data.
	Title, Template string
	Data            any
	// Topics are what the view depends on.
	Topics []fleetindex.Topic
	// Section is the entry of the navigation.
	Section string
	// status is the HTTP status, 0 for 200. isPersonal means that the page is for this viewer and this moment only.
	status     int
	isPersonal bool
}

// frame is the data of the whole page.
type frame struct {
	content
	Sections []section
	Viewer   *Viewer
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
	Path: "/rollouts"}, {Name: "Changes", Path: "/changes"}, {Name: "Catalog", Path: "/catalog"}}

// view registers a view. Its page is rendered once for each snapshot and URL.
func (s *Server) view(pattern string, show func(*request) content) {
	s.mux.HandleFunc(pattern, s.viewed(func(w http.ResponseWriter, r *http.Request, v *Viewer) {
		is := &request{Request: r, server: s, viewer: v, fleet: s.Index.Snapshot(), now: s.Now()}
		key := fmt.Sprint(r.URL.RequestURI(), " ", v.Name, " ", v.Acts != nil)
		page := s.cache.get(is.fleet.Revision, key, is.now)
		if page == nil {
			page = s.render(is, show)
			s.cache.put(is.fleet.Revision, key, page)
		}
		page.write(w, r)
	}))
}

// render makes a page.
func (s *Server) render(r *request, show func(*request) content) *answer {
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
	f := frame{content: c, Viewer: r.viewer, SignOut: s.SignOut, Fleet: r.fleet.Tally(),
		Revision: r.fleet.Revision, Ready: r.fleet.Ready,
		Notes: r.fleet.Notes, Manager: r.manager()}
	if r.fleet.Cluster != nil {
		f.Cluster = r.fleet.Cluster.Context
	}
	if p := r.fleet.Problem; p != nil {
		f.Problem, f.Since = p.Error(), clock(r.fleet.ProblemSince)
	}
	for _, is := range sections {
		is.Current = is.Name == c.Section
		f.Sections = append(f.Sections, is)
	}
	var out bytes.Buffer
	a := &answer{status: max(c.status, http.StatusOK), kind: "text/html; charset=utf-8", isPersonal: c.isPersonal,
		made: r.now}
	if err := s.templates.ExecuteTemplate(&out, "frame.html", f); err != nil {
		return &answer{status: http.StatusInternalServerError, kind: "text/plain; charset=utf-8",
			plain: []byte("The page cannot be made: " + err.Error()), isPersonal: true}
	}
	a.plain = out.Bytes()
	a.packed = pack(a.plain)
	return a
}

// answer is an answer that can be sent several times.
type answer struct {
	status        int
	kind, tag     string
	plain, packed []byte // packed is compressed; nil if the answer is too short for that
	isPersonal    bool
	made          time.Time
}

// pack compresses data, or returns nil if that is not worth it.
func pack(data []byte) []byte {
	const worth = 1024
	if len(data) < worth {
		return nil
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil
	}
	if _, err = z.Write(data); err != nil || z.Close() != nil {
		return nil
	}
	return out.Bytes()
}

func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	if a.tag != "" {
		h.Set("ETag", a.tag)
		h.Set("Cache-Control", "private, no-cache")
		if r.Header.Get("If-None-Match") == a.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	data := a.plain
	if a.packed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		data = a.packed
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", fmt.Sprint(len(data)))
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(data) // the client may have gone
	}
}

// pageCache keeps the pages of one snapshot. The zero value is empty.
type pageCache struct {
	mu       sync.Mutex
	revision uint64
	pages    map[string]*answer
}

const (
	// maxPages is the number of pages that are kept, and maxPageAge how long: pages show ages.
	maxPages   = 200
	maxPageAge = 5 * time.Second
)

func (c *pageCache) get(revision uint64, key string, now time.Time) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.pages[key]; c.revision == revision && a != nil && now.Sub(a.made) < maxPageAge {
		return a
	}
	return nil
}

func (c *pageCache) put(revision uint64, key string, a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.isPersonal || revision < c.revision {
		return
	}
	if revision > c.revision || c.pages == nil || len(c.pages) >= maxPages {
		c.revision, c.pages = revision, map[string]*answer{}
	}
	c.pages[key] = a
}

// loadAssets reads the embedded files.
func (s *Server) loadAssets() error {
	s.assets = map[string]asset{}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml"}
	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		return fmt.Errorf("reading the assets: %w", err)
	}
	for _, e := range entries {
		data, err := files.ReadFile("assets/" + e.Name())
		if err != nil {
			return fmt.Errorf("reading the assets: %w", err)
		}
		s.assets[e.Name()] = asset{kind: kinds[path.Ext(e.Name())], data: data, tag: tagOf(data)}
	}
	return nil
}

// serveAsset serves an embedded file. It needs no viewer: the files are public.
func (s *Server) serveAsset(w http.ResponseWriter, r *http.Request) {
	a, found := s.assets[r.PathValue("name")]
	if !found {
		s.plainProblem(w, http.StatusNotFound, "There is no such file.")
		return
	}
	(&answer{status: http.StatusOK, kind: a.kind, tag: a.tag, plain: a.data, packed: pack(a.data)}).write(w, r)
}

// plainProblem answers without a page, for requests that are refused before anybody is known.
func (s *Server) plainProblem(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, message)
}
