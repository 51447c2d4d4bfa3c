package metrics

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// States is a gauge that has one series with value 1 for each current state, and no series for other states. States
// stores only the label values of each series, because a GaugeVec needs a kilobyte for each series. For 10,000 runtimes
// with five modules each, a GaugeVec needed as much memory as the cached objects of all these runtimes. States is safe
// for concurrent use.
type States struct {
	required int
	// descs has one metric description for each set of optional labels that are present: bit n stands for the optional
	// label n. Only the last description of the list, which has all optional labels, is registered with Prometheus. The
	// other descriptions have the same name and the same required labels, but fewer optional labels.
	descs []*prometheus.Desc

	mu     sync.Mutex
	series map[string][]string // guarded by mu: joined label values, by owner
}

// separator separates label values that are joined to one string. The byte 0xff is not valid UTF-8, so it cannot occur
// in a label value.
const separator = "\xff"

// NewStates returns a gauge with the given labels and without series. A series has an optional label only if its value
// is not empty. The values of the optional labels follow the values of the other labels.
func NewStates(o prometheus.Opts, labels []string, optional ...string) *States {
	s := &States{required: len(labels), series: map[string][]string{}}
	for present := range 1 << len(optional) {
		all := slices.Clone(labels)
		for n, label := range optional {
			if present&(1<<n) != 0 {
				all = append(all, label)
			}
		}
		s.descs = append(s.descs, prometheus.NewDesc(prometheus.BuildFQName(o.Namespace, o.Subsystem, o.Name), o.Help,
			all, o.ConstLabels))
	}
	return s
}

// describe returns the description of a series, and the values of its labels.
func (s *States) describe(joined string) (*prometheus.Desc, []string) {
	all := strings.Split(joined, separator)
	values, present := all[:s.required:s.required], 0
	for n, value := range all[s.required:] {
		if value != "" {
			values, present = append(values, value), present|1<<n
		}
	}
	return s.descs[present], values
}

// Set replaces all series of an owner, such as a Kyma. Each series of an owner is a list with one value for each label.
// If an owner has the same series twice, the series is stored once. If Set is called without a series, Set deletes the
// owner and its former series. Two owners must not have the same series.
func (s *States) Set(owner string, series ...[]string) {
	joined, seen := make([]string, 0, len(series)), make(map[string]bool, len(series))
	for _, values := range series {
		if one := strings.Join(values, separator); !seen[one] {
			joined, seen[one] = append(joined, one), true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(joined) == 0:
		delete(s.series, owner)
	case !slices.Equal(s.series[owner], joined):
		s.series[strings.Clone(owner)] = joined // a clone does not keep the whole object in memory
	}
}

// Describe implements [prometheus.Collector].
func (s *States) Describe(to chan<- *prometheus.Desc) { to <- s.descs[len(s.descs)-1] }

// Collect implements [prometheus.Collector].
func (s *States) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	all := make([][]string, 0, len(s.series))
	for _, ofOwner := range s.series {
		all = append(all, ofOwner)
	}
	s.mu.Unlock()
	for _, ofOwner := range all {
		for _, values := range ofOwner {
			desc, values := s.describe(values)
			m, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, 1, values...)
			if err != nil {
				m = prometheus.NewInvalidMetric(desc, err)
			}
			to <- m
		}
	}
}
