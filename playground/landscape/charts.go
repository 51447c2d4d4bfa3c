package landscape

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"sigs.k8s.io/yaml"
)

// chartRepository is a chart repository in memory: an index and packaged charts.
type chartRepository struct {
	mu      sync.Mutex // guards what follows
	entries map[string][]chartVersion
	files   map[string][]byte
}

// chartVersion is one version of a chart in the index.
type chartVersion struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Digest  string   `json:"digest"`
	URLs    []string `json:"urls"`
}

// ServeHTTP serves index.yaml and the files in it.
func (s *chartRepository) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	data, found := s.files[r.URL.Path]
	if r.URL.Path == "/index.yaml" {
		index, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "entries": s.entries})
		data, found = index, err == nil
	}
	s.mu.Unlock()
	if !found {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// startCharts serves a chart repository on loopback. The path /open/ is public. The path /locked/ serves the same
// charts, and requires a user name and a password.
func (l *Landscape) startCharts() {
	l.charts = &chartRepository{entries: map[string][]chartVersion{}, files: map[string][]byte{}}
	mux := http.NewServeMux()
	mux.Handle("/open/", http.StripPrefix("/open", l.charts))
	mux.Handle("/locked/", requireLogin(http.StripPrefix("/locked", l.charts)))
	l.chartsFront.next = mux
	server := httptest.NewServer(&l.chartsFront)
	l.servers = append(l.servers, server)
	l.ChartsURL, l.LockedChartsURL = server.URL+"/open", server.URL+"/locked"
}

// AddChart adds a packaged chart to the chart repository, or replaces the same version.
func (l *Landscape) AddChart(name, version string, archive []byte) {
	sum := sha256.Sum256(archive)
	file := fmt.Sprintf("%s-%s.tgz", name, version)
	l.charts.mu.Lock()
	defer l.charts.mu.Unlock()
	var others []chartVersion
	for _, e := range l.charts.entries[name] {
		if e.Version != version {
			others = append(others, e)
		}
	}
	l.charts.entries[name] = append(others, chartVersion{Name: name, Version: version,
		Digest: hex.EncodeToString(sum[:]), URLs: []string{file}})
	l.charts.files["/"+file] = archive
}

// ChartRequestsAfter returns all requests to the chart repository except the first n, as method and path.
func (l *Landscape) ChartRequestsAfter(n int) []string { return l.chartsFront.requestsAfter(n) }

// SetChartsDown makes the chart repository respond to every request with 503 Service Unavailable. SetChartsDown(false)
// ends this.
func (l *Landscape) SetChartsDown(down bool) { l.chartsFront.setDown(down) }

// SwapChartFile makes the chart repository serve other bytes for a file, such as index.yaml or shop-1.0.0.tgz. If data
// is nil, SwapChartFile serves the original bytes again.
func (l *Landscape) SwapChartFile(file string, data []byte) { l.chartsFront.swapFile(file, data) }
