package agent

import (
	"crypto/fips140"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Values of the label error_reason.
const (
	reasonSubresource = "invalid-subresource"
	reasonAddress     = "missing-address-or-contract"
	reasonSetup       = "request-setup"
	reasonRequest     = "failed-request"
)

// metrics are all that the agent counts. The first six have the names of the Kyma project's agent, because dashboards know them.
type metrics struct {
	registry        *prometheus.Registry
	admissions      prometheus.Counter
	admissionErrors prometheus.Counter
	events          prometheus.Counter
	failed          *prometheus.CounterVec
	duration        prometheus.Gauge
	fips            prometheus.Gauge

	lost     prometheus.Counter
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
		registry:        prometheus.NewRegistry(),
		admissions:      counter("watcher_admission_request_total", "Calls of the admission webhook."),
		admissionErrors: counter("watcher_admission_request_error_total", "Calls of the admission webhook that could not be read."),
		events:          counter("watcher_kcp_requests_total", "Events for the control plane, each once however often it had to be sent."),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "watcher_failed_kcp_total", Help: "What went wrong on the way to the control plane; each lost attempt counts.",
		}, []string{"error_reason"}),
		duration: gauge("watcher_request_duration", "Seconds that the last call of the admission webhook took."),
		fips:     gauge("watcher_fips_mode", "FIPS 140-3: 0 off, 1 on, 2 nothing else."),
		lost:     counter("watcher_lost_events_total", "Events that were dropped: the listener refuses them, or there was no room."),
		watches:  gauge("watcher_watches", "Watches that are open."),
		objects:  gauge("watcher_watched_objects", "Objects that are watched."),
		listener: gauge("watcher_kcp_reached", "Whether the listener answered the last heartbeat: 1 yes, 0 no."),
	}
	for _, reason := range []string{reasonSubresource, reasonAddress, reasonSetup, reasonRequest} {
		m.failed.WithLabelValues(reason)
	}
	switch {
	case fips140.Enforced():
		m.fips.Set(2)
	case fips140.Enabled():
		m.fips.Set(1)
	}
	m.registry.MustRegister(m.admissions, m.admissionErrors, m.events, m.failed, m.duration, m.fips, m.lost, m.watches, m.objects, m.listener,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// pending makes a gauge of the size of the queue.
func (m *metrics) pending(size func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "watcher_pending_events", Help: "Events that are still to be sent, or to be sent again.",
	}, size))
}

func (m *metrics) reached(yes bool) {
	if yes {
		m.listener.Set(1)
	} else {
		m.listener.Set(0)
	}
}
