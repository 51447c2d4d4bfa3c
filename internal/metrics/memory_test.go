package metrics

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkMemory measures the memory of the metrics of a large fleet: 10,000 runtimes with five modules each, with two
// versions and two channels of each module.
//
//	go test ./internal/metrics -run '^$' -bench Memory -benchtime 1x
//
//	Counts, as lifecycle_mgr_modules      1.4 MiB, 143 bytes a runtime, 20 series
//	States, a series for each entry       4.0 MiB, 415 bytes a runtime, 50,000 series
func BenchmarkMemory(b *testing.B) {
	const runtimes, modules = 10_000, 5
	entriesOf := func(kyma int, more ...string) (all [][]string) {
		for m := range modules {
			all = append(all, append([]string{fmt.Sprintf("module-%d", m), fmt.Sprintf("1.%d.0", kyma%2),
				[]string{"regular", "fast"}[kyma/2%2], "Ready"}, more...))
		}
		return all
	}
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	measure := func(b *testing.B, fill func() prometheus.Collector) {
		for b.Loop() {
			before := used()
			c := fill()
			bytes := used() - before
			series := 0
			to := make(chan prometheus.Metric)
			go func() { c.Collect(to); close(to) }()
			for range to {
				series++
			}
			b.ReportMetric(float64(bytes)/runtimes, "B/runtime")
			b.ReportMetric(float64(bytes)/(1<<20), "MiB")
			b.ReportMetric(float64(series), "series")
		}
	}
	b.Run("Counts", func(b *testing.B) {
		measure(b, func() prometheus.Collector {
			c := NewCounts(prometheus.Opts{Name: "counts"}, []string{"module", "version", "channel", "state"})
			for kyma := range runtimes {
				c.Set(fmt.Sprintf("runtime-%05d", kyma), entriesOf(kyma)...)
			}
			return c
		})
	})
	b.Run("States", func(b *testing.B) {
		measure(b, func() prometheus.Collector {
			s := NewStates(prometheus.Opts{Name: "states"}, []string{"module", "version", "channel", "state", "kyma"})
			for kyma := range runtimes {
				name := fmt.Sprintf("runtime-%05d", kyma)
				s.Set(name, entriesOf(kyma, name)...)
			}
			return s
		})
	})
}
