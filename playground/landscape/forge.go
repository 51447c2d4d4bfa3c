package landscape

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
)

// forgery is a change of the answers to some requests.
type forgery struct {
	like *regexp.Regexp
	edit func(object map[string]any)
}

// ForgeResponses makes the gate change objects in the answers of the API server, until the gate is opened or
// ForgeResponses is called again. A request is affected if its "METHOD PATH" matches the regular expression in the
// parameter methodAndPath. The objects in the API server do not change. Each call begins a new count of InjectedCount.
// Between two calls, no request gets the true answer.
func (g *Gate) ForgeResponses(methodAndPath *regexp.Regexp, edit func(object map[string]any)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgeries, g.met = []forgery{{methodAndPath, edit}}, 0
}

// matchForgeries returns the changes of the answer to a request.
func (g *Gate) matchForgeries(r *http.Request) (edits []func(map[string]any)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.forgeries {
		if f.like.MatchString(r.Method + " " + r.URL.Path) {
			edits = append(edits, f.edit)
			g.met++
		}
	}
	return edits
}

// forwardForgingResponse forwards a request, and changes the object in its answer if that is to be forged.
func (g *Gate) forwardForgingResponse(w http.ResponseWriter, r *http.Request) {
	edits := g.matchForgeries(r)
	if len(edits) == 0 {
		g.proxy.ServeHTTP(w, r)
		return
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Del("Accept-Encoding")
	answer := httptest.NewRecorder()
	g.proxy.ServeHTTP(answer, r)
	body := answer.Body.Bytes()
	object := map[string]any{}
	if answer.Code == http.StatusOK && json.Unmarshal(body, &object) == nil {
		for _, edit := range edits {
			edit(object)
		}
		forged, err := json.Marshal(object)
		if err != nil {
			panic(fmt.Sprintf("encoding a forged answer: %v", err)) // plain data always encodes
		}
		body = forged
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body) // the client may have gone
}
