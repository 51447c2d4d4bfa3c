package metrics

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// States is a gauge that is 1 for what holds, and has no series for what does not. It keeps the values of the labels of each series and nothing else: a
// GaugeVec needs a kilobyte for each, which for ten thousand runtimes with five modules was as much as their objects in the cache. Safe for
// concurrent use.
type States struct {
	desc *prometheus.Desc

	mu      sync.Mutex
	holding map[string][]string // guarded by mu: values of labels, joined, by who has said it
}

// between separates the values of labels; it is in no UTF-8.
const between = "\xff"

// NewStates returns a gauge with labels and without series.
func NewStates(o prometheus.Opts, labels []string) *States {
	return &States{desc: prometheus.NewDesc(prometheus.BuildFQName(o.Namespace, o.Subsystem, o.Name), o.Help, labels, o.ConstLabels), holding: map[string][]string{}}
}

// Set says what holds of somebody, in place of what was said of it before: for each series the values of all labels; the same twice counts once. No
// series: it is forgotten. Series of different owners have to differ.
func (s *States) Set(owner string, series ...[]string) {
	said := make([]string, 0, len(series))
	for _, values := range series {
		if joined := strings.Join(values, between); !slices.Contains(said, joined) {
			said = append(said, joined)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(said) == 0:
		delete(s.holding, owner)
	case !slices.Equal(s.holding[owner], said):
		s.holding[strings.Clone(owner)] = said
	}
}

// Describe implements [prometheus.Collector].
func (s *States) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect implements [prometheus.Collector].
func (s *States) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	all := make([][]string, 0, len(s.holding))
	for _, said := range s.holding {
		all = append(all, said)
	}
	s.mu.Unlock()
	for _, said := range all {
		for _, values := range said {
			m, err := prometheus.NewConstMetric(s.desc, prometheus.GaugeValue, 1, strings.Split(values, between)...)
			if err != nil {
				m = prometheus.NewInvalidMetric(s.desc, err)
			}
			to <- m
		}
	}
}
