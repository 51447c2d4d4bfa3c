// Package pageserver serves the pages of the dashboard. The package handles requests, viewers and caching, and is
// independent of the content of the pages.
//
// # Use
//
//	s, err := pageserver.New(pageserver.Options{Index: x, Viewer: authenticate, Hosts: []string{"127.0.0.1:4711"},
//		Assets: files, Cell: cell})
//	s.HandleCached("GET /versions", render)
//	http.Serve(listener, s)
//
// # How it works
//
// For every request, the host, the origin and the viewer are checked. Answers are kept in memory until the next
// snapshot of the index (answer.go), so many viewers of one page cost as much as one viewer. After each snapshot, the
// open streams get an event with the changes (events.go), and the pages reload their content.
//
// # What it does not do
//
// The package makes no HTML. The package does not decide who may view the pages: its caller authenticates each request,
// and returns the cluster with the permissions of the viewer.
package pageserver

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// Viewer is the user of one request.
type Viewer struct {
	// Name is the name of the viewer that pages show, or "" if the name is not known.
	Name string
	// The field Acts is a client of the cluster with the identity of the viewer, for changes. If the field Acts is nil,
	// the viewer may only read.
	Acts *connection.Cluster
	// MayMove reports whether the viewer may change rollouts. MayApprove reports whether the viewer may also approve
	// and resume rollouts. MayRetry reports whether the viewer may request retries of runtimes. These permissions have
	// an effect only if the field Acts is not nil.
	MayMove, MayApprove, MayRetry bool
}

// Options are the options of a server.
type Options struct {
	// Index contains the data that the pages show. Index is required.
	Index *fleetindex.Index
	// Viewer returns the user of a request. If Viewer returns nil, Viewer has already answered the request itself.
	// Viewer is required.
	Viewer func(http.ResponseWriter, *http.Request) *Viewer
	// Hosts are the values of the header Host that are accepted. The check of this header prevents DNS rebinding: pages
	// of another site, whose host name resolves to this server, cannot use the dashboard. Hosts is required.
	Hosts []string
	// Assets are public files, such as styles, which are served below /assets/ without authentication. Assets is
	// required.
	Assets fs.FS
	// Cell returns the cell for a runtime in the heat map. The event that reports a change of the runtime to browsers
	// contains the new cell. Cell is required.
	Cell func(*fleetlist.Member) byte
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// MaxStreams is the maximum number of open streams of events. The default is 2,000.
	MaxStreams int
}

// Request is one request for a page.
type Request struct {
	*http.Request
	Viewer *Viewer
	// Fleet is the snapshot that the page shows. Now is the time of the request.
	Fleet *fleetindex.Snapshot
	Now   time.Time
}

// Server serves pages.
type Server struct {
	Options
	mux     *http.ServeMux
	handler http.Handler
	assets  map[string]*Answer
	cache   answerCache
	streams chan struct{}
	// writeTimeout is the time in which a client has to receive an event. Tests change writeTimeout.
	writeTimeout time.Duration
	// streamTimeout is the time after which a stream ends. Tests change streamTimeout.
	streamTimeout time.Duration
}

// New returns a server without pages.
func New(o Options) (*Server, error) {
	if o.Index == nil || o.Viewer == nil || len(o.Hosts) == 0 || o.Assets == nil || o.Cell == nil {
		return nil, errors.New("making the server: Index, Viewer, Hosts, Assets and Cell are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 2000
	}
	s := &Server{Options: o, mux: http.NewServeMux(), streams: make(chan struct{}, o.MaxStreams),
		writeTimeout: writeTimeout, streamTimeout: streamTimeout}
	if err := s.loadAssets(); err != nil {
		return nil, err
	}
	s.mux.HandleFunc("GET /assets/{name}", s.serveAsset)
	s.Handle("GET /events", s.serveEvents)
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "This request came from another site, so nothing was changed.")
	}))
	s.handler = s.secure(crossOrigin.Handler(s.mux))
	return s, nil
}

// Handle registers the function next for a pattern of paths. Handle calls next for each request that matches the
// pattern, together with the viewer who sent the request.
func (s *Server) Handle(pattern string, next func(http.ResponseWriter, *Request)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if v := s.Viewer(w, r); v != nil {
			next(w, &Request{Request: r, Viewer: v, Fleet: s.Index.Snapshot(), Now: s.Now()})
		}
	})
}

// HandleCached registers the function render, which makes the pages for the requests whose paths match a pattern. An
// answer is made once for each snapshot and URL, and kept for a few seconds for all viewers with the same permissions.
// Therefore an answer must not contain the name of a viewer, only the placeholder [Answer.Name].
func (s *Server) HandleCached(pattern string, render func(*Request) *Answer) {
	s.Handle(pattern, func(w http.ResponseWriter, r *Request) {
		key := fmt.Sprint(r.URL.RequestURI(), " ", r.Viewer.Name != "", " ", r.Viewer.Acts != nil,
			r.Viewer.MayMove, r.Viewer.MayApprove, r.Viewer.MayRetry)
		a := s.cache.get(r.Fleet.Revision, key, r.Now)
		if a == nil {
			a = render(r)
			a.made = r.Now
			s.cache.put(r.Fleet.Revision, key, a)
		}
		a.Write(w, r)
	})
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Policy is the Content-Security-Policy of all answers. Inline scripts and styles are not allowed, so a text that was
// inserted into a page without escaping is not executed.
const Policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// secure sets the security headers of all answers, and refuses requests whose header Host is not an accepted value.
func (s *Server) secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // no-referrer would also hide the origin of our forms
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !slices.Contains(s.Hosts, r.Host) {
			refuse(w, http.StatusMisdirectedRequest, "This dashboard is not at the host that was requested. "+
				"Open the address that klm dashboard has printed.")
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" && !s.isOwn(origin) {
			refuse(w, http.StatusForbidden, "This request came from another site, so it was refused.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwn reports whether an origin is the origin of this server.
func (s *Server) isOwn(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && slices.Contains(s.Hosts, u.Host)
}

// loadAssets reads the files.
func (s *Server) loadAssets() error {
	s.assets = map[string]*Answer{}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml"}
	entries, err := fs.ReadDir(s.Assets, ".")
	if err != nil {
		return fmt.Errorf("reading the assets: %w", err)
	}
	for _, e := range entries {
		data, err := fs.ReadFile(s.Assets, e.Name())
		if err != nil {
			return fmt.Errorf("reading the assets: %w", err)
		}
		s.assets[e.Name()] = NewAnswer(http.StatusOK, kinds[path.Ext(e.Name())], data).SetETag()
	}
	return nil
}

// serveAsset serves a file. A file can be requested without authentication.
func (s *Server) serveAsset(w http.ResponseWriter, r *http.Request) {
	a, found := s.assets[r.PathValue("name")]
	if !found {
		refuse(w, http.StatusNotFound, "There is no such file.")
		return
	}
	a.Write(w, &Request{Request: r, Viewer: &Viewer{}})
}

// refuse answers a request with an error text, without a page. refuse is for requests that are refused before the
// viewer is authenticated.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, message)
}
