package outbox

import "github.com/prometheus/client_golang/prometheus"

// ReasonSetup and ReasonRequest are values of the label error_reason of the counter Metrics.Failed.
const (
	ReasonSetup   = "request-setup"
	ReasonRequest = "failed-request"
)

// Metrics are the metrics that a Queue and a Poster set.
type Metrics struct {
	// Events counts the delivered events. An event that is sent several times is counted once.
	Events prometheus.Counter
	// Lost counts events that were dropped.
	Lost prometheus.Counter
	// Failed counts failed delivery attempts, by the label error_reason.
	Failed *prometheus.CounterVec
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return Metrics{
		Events: counter("watcher_kcp_requests_total",
			"Events for the control plane, each once however often it had to be sent."),
		Lost: counter("watcher_lost_events_total",
			"Events that were dropped: the listener refuses them, or there was no room."),
		Failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "watcher_failed_kcp_total",
			Help: "What went wrong on the way to the control plane; each lost attempt counts.",
		}, []string{"error_reason"}),
	}
}
