package metrics

import (
	"strings"
	"sync"
	"unique"

	"github.com/prometheus/client_golang/prometheus"
)

// Counts is a gauge whose series count how many entries have the same label values. For example, each Kyma is an owner
// with one entry for each of its modules, and a series counts the modules in one state. The number of series of Counts
// does not grow with the number of owners. Counts is safe for concurrent use.
type Counts struct {
	desc *prometheus.Desc

	mu      sync.Mutex
	entries map[string][]unique.Handle[string] // guarded by mu: joined label values, by owner
	counts  map[unique.Handle[string]]int      // guarded by mu
}

// NewCounts returns a gauge with the given labels and without series.
func NewCounts(o prometheus.Opts, labels []string) *Counts {
	return &Counts{desc: prometheus.NewDesc(prometheus.BuildFQName(o.Namespace, o.Subsystem, o.Name), o.Help, labels,
		o.ConstLabels), entries: map[string][]unique.Handle[string]{}, counts: map[unique.Handle[string]]int{}}
}

// Set replaces all entries of an owner. Each entry in the parameter entries is a list of label values, with one value
// for each label of the gauge. If an owner has no entries, Set removes the owner.
func (c *Counts) Set(owner string, entries ...[]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, former := range c.entries[owner] {
		if c.counts[former]--; c.counts[former] == 0 {
			delete(c.counts, former)
		}
	}
	delete(c.entries, owner)
	if len(entries) == 0 {
		return
	}
	all := make([]unique.Handle[string], len(entries))
	for i, values := range entries {
		all[i] = unique.Make(strings.Join(values, separator))
		c.counts[all[i]]++
	}
	c.entries[strings.Clone(owner)] = all
}

// Describe implements [prometheus.Collector].
func (c *Counts) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements [prometheus.Collector].
func (c *Counts) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	all := make([]prometheus.Metric, 0, len(c.counts))
	for values, n := range c.counts {
		m, err := prometheus.NewConstMetric(c.desc, prometheus.GaugeValue, float64(n),
			strings.Split(values.Value(), separator)...)
		if err != nil {
			m = prometheus.NewInvalidMetric(c.desc, err)
		}
		all = append(all, m)
	}
	c.mu.Unlock()
	for _, m := range all {
		to <- m
	}
}
