package agent

import (
	"crypto/fips140"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
)

// reasonSubresource and reasonAddress are values of the metric label error_reason. Package outbox has more.
const (
	reasonSubresource = "invalid-subresource"
	reasonAddress     = "missing-address-or-contract"
)

// metrics have the same names as in the Kyma project's runtime-watcher, because existing dashboards use these names.
type metrics struct {
	registry        *prometheus.Registry
	admissions      prometheus.Counter
	admissionErrors prometheus.Counter
	duration        prometheus.Gauge
	fips            prometheus.Gauge

	outbox   outbox.Metrics
	watches  prometheus.Gauge
	objects  prometheus.Gauge
	listener prometheus.Gauge
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		registry:   prometheus.NewRegistry(),
		admissions: counter("watcher_admission_request_total", "Calls of the admission webhook."),
		admissionErrors: counter("watcher_admission_request_error_total",
			"Calls of the admission webhook that could not be read."),
		duration: gauge("watcher_request_duration", "Seconds that the last call of the admission webhook took."),
		fips:     gauge("watcher_fips_mode", "FIPS 140-3: 0 off, 1 on, 2 nothing else."),
		outbox:   outbox.NewMetrics(),
		watches:  gauge("watcher_watches", "Watches that are open."),
		objects:  gauge("watcher_watched_objects", "Objects that are watched."),
		listener: gauge("watcher_kcp_reached", "Whether the listener answered the last heartbeat: 1 yes, 0 no."),
	}
	for _, reason := range []string{reasonSubresource, reasonAddress, outbox.ReasonSetup, outbox.ReasonRequest} {
		m.outbox.Failed.WithLabelValues(reason)
	}
	switch {
	case fips140.Enforced():
		m.fips.Set(2)
	case fips140.Enabled():
		m.fips.Set(1)
	}
	m.registry.MustRegister(m.admissions, m.admissionErrors, m.outbox.Events, m.outbox.Failed, m.duration, m.fips,
		m.outbox.Lost, m.watches, m.objects, m.listener,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// registerPending registers a gauge of the number of pending events.
func (m *metrics) registerPending(size func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "watcher_pending_events", Help: "Events that are still to be sent, or to be sent again.",
	}, size))
}

// setReached records in a metric whether the listener has answered the last heartbeat.
func (m *metrics) setReached(reached bool) {
	if reached {
		m.listener.Set(1)
	} else {
		m.listener.Set(0)
	}
}
