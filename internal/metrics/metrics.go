// Package metrics declares every metric of the manager, with its name, help text and labels. All metrics are declared
// in one package, so that the number of series can be reviewed in one place.
//
// Call [MustRegister] once with the registry that is served. After MustRegister, set or increase the variable of a
// metric in the code that causes the counted event.
//
// The labels are controllers, steps, results, modules, versions and states. The number of label values does not grow
// with the number of runtimes. The exceptions are the gauges whose names come from the Kyma project:
// lifecycle_mgr_kyma_state, lifecycle_mgr_module_state and the gauge of the states of mandatory modules. The three
// gauges from the Kyma project have one series for the state of each Kyma and of each of its modules, because existing
// dashboards join them with other metrics by the name of the Kyma. Two further gauges have one series for each runtime
// that has a problem. The flag --runtime-metrics=false switches all of these gauges off.
//
// The package does not read metrics, and stores nothing besides the metrics.
package metrics

import (
	"crypto/fips140"

	"github.com/prometheus/client_golang/prometheus"
)

// The following constants are values of the label "requeue_type" of the metric [Requeues].
const (
	// RequeueIntended is the type of a requeue by a step that waits for a condition.
	RequeueIntended = "intended"
	// RequeueUnexpected is the type of a requeue by a step that failed.
	RequeueUnexpected = "unexpected"
)

// The following constants are values of the label "result" of the metric [Steps].
const (
	// ResultDone is the result of a step that is complete.
	ResultDone = "done"
	// ResultLater is the result of a step that waits for a condition and is retried.
	ResultLater = "later"
	// ResultError is the result of a step that failed and is retried with back-off.
	ResultError = "error"
	// ResultTerminal is the result of a step that failed and is retried only after a change.
	ResultTerminal = "terminal"
)

// The following constants are values of the label "result" of the metric [Renderings]. All other values are the reason
// codes of errors in the content of a module.
const (
	// RenderDone is the result of a rendering that is complete.
	RenderDone = "done"
	// RenderError is the result of a rendering that failed for a cause outside of the content.
	RenderError = "error"
)

// The following constants are values of the label "what" of the metric [Purged].
const (
	// PurgedResource is a custom resource that was deleted.
	PurgedResource = "custom_resource"
	// PurgedFinalizers is a custom resource whose finalizers were removed.
	PurgedFinalizers = "finalizers"
	// PurgedObject is an object from an inventory that was deleted.
	PurgedObject = "object"
)

// The following constants are values of the label "how" of the metric [TombstonesEnded]. The values show why a
// tombstone was deleted.
const (
	// TombstoneCleaned means that the runtime became reachable again, and that all objects of the tombstone were
	// deleted.
	TombstoneCleaned = "cleaned"
	// TombstoneClusterDeleted means that the access Secret was deleted, because the cluster does not exist any more.
	TombstoneClusterDeleted = "cluster_gone"
	// TombstoneReplaced means that somebody has created a new Kyma for the runtime of the tombstone. This new Kyma
	// adopts the objects that the deleted Kyma has left in the runtime.
	TombstoneReplaced = "replaced"
)

// ListenerName is the only value of the label server_name. The label exists because dashboards of the Kyma project use
// it.
const ListenerName = "listener"

// The following constants are values of the label "what" of the metric [AgentReports].
const (
	// ReportEvent is a report about a change of an object.
	ReportEvent = "event"
	// ReportHeartbeat is a report without a change, which shows that the agent is connected.
	ReportHeartbeat = "heartbeat"
)

// The following constants are values of the label "change" of the metric [ShardChanges].
const (
	// ShardAcquired is a shard that this replica has acquired.
	ShardAcquired = "acquired"
	// ShardReleased is a shard that this replica has handed over to another replica, or has released when the process
	// ended.
	ShardReleased = "released"
	// ShardLost is a shard that this replica has lost because it could not renew its Lease in time.
	ShardLost = "lost"
)

// The following constants are values of the label "to" of the metric [ListenerForwarded].
const (
	// ForwardedToLeader is a request that was forwarded to the replica that reconciles the runtime.
	ForwardedToLeader = "leader"
	// ForwardedToManager is a request that was forwarded to another manager.
	ForwardedToManager = "manager"
)

// listenerLabels are the labels of all metrics whose names come from the listener of the Kyma project.
var listenerLabels = prometheus.Labels{"server_name": ListenerName}

var (
	// Steps measures the duration of the steps of every reconciler, in seconds, by controller, step and result. Series:
	// controllers (6) x steps (about 8 each) x 4 results.
	Steps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lifecycle_mgr_step_duration_seconds",
		Help:    "Duration of one step of a reconcile in seconds.",
		Buckets: []float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10},
	}, []string{"controller", "step", "result"})

	// Requeues counts the steps that ended a reconcile early and requeued the object. The label requeue_reason has the
	// form CONTROLLER_STEP, with the names of the controller and of the step. The label requeue_type is intended if the
	// step waits for a condition, and unexpected if the step failed. Series: controllers (6) x steps (about 8 each) x
	// types (2).
	Requeues = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_requeue_reason_total",
		Help: "Reconciles that ended before their last step and were requeued, by the step that ended them.",
	}, []string{"requeue_reason", "requeue_type"})

	// FIPSMode is the FIPS 140-3 mode of Go: 0 is off, 1 is on, and 2 allows only approved algorithms.
	FIPSMode = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_fips_mode",
		Help: "FIPS 140-3 mode of the program: 0 off, 1 on, 2 only.",
	})

	// StatusWrites counts the status patches in the control plane, by controller. StatusWrites does not grow while
	// nothing changes.
	StatusWrites = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_status_writes_total",
		Help: "Status patches sent to the control plane.",
	}, []string{"controller"})

	// RolloutRuntimes is the number of runtimes of each active rollout, by verdict (waiting, updating, proven, failed,
	// lost or excused).
	RolloutRuntimes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_rollout_runtimes",
		Help: "Runtimes of an active rollout, by verdict.",
	}, []string{"module", "channel", "verdict"})

	// RolloutPhase is 1 for the phase of each active rollout. Alert on a phase that stays.
	RolloutPhase = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_rollout_phase",
		Help: "1 for the phase of an active rollout.",
	}, []string{"module", "channel", "phase"})

	// RolloutETA is the time at which the last runtime of an active rollout is expected to have the version.
	RolloutETA = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_rollout_eta_timestamp_seconds",
		Help: "Time at which the last runtime of an active rollout is expected to have the version.",
	}, []string{"module", "channel"})

	// RolloutPolicyReady is 1 for a RolloutPolicy that can be applied, and 0 for a RolloutPolicy that cannot be
	// applied.
	RolloutPolicyReady = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_rollout_policy_ready",
		Help: "1 for a RolloutPolicy that can be applied, 0 for one with a field that is not valid or with a conflict.",
	}, []string{"policy"})

	// RolloutPolicyChannels is the number of channels of modules that a RolloutPolicy applies to.
	RolloutPolicyChannels = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_rollout_policy_channels",
		Help: "Channels of modules that move by a RolloutPolicy.",
	}, []string{"policy"})

	// RolloutsHalted counts halts of rollouts, by reason.
	RolloutsHalted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_rollout_halted_total",
		Help: "Rollouts that were halted, by reason.",
	}, []string{"reason"})

	// RolloutsUrgent counts the rollouts with urgency Hotfix or Emergency.
	RolloutsUrgent = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_rollout_urgent_total",
		Help: "Rollouts that were made with urgency Hotfix or Emergency.",
	}, []string{"urgency"})

	// SavesPostponed counts the status patches that are sent later, because the runtime has used its budget of status
	// patches.
	SavesPostponed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_status_writes_postponed_total",
		Help: "Status patches that are sent later, because one runtime caused too many.",
	}, []string{"controller"})

	// RuntimeRequestsPostponed counts the requests to runtimes that were not sent or were cancelled, because too many
	// requests wait for runtimes that do not answer.
	RuntimeRequestsPostponed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lifecycle_mgr_runtime_requests_postponed_total",
		Help: "Requests to a runtime that wait for its answer to a probe, because many other runtimes do not answer.",
	})

	// EventsDropped counts the events that are not recorded in the control plane, because the runtime has used its
	// budget of events.
	EventsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lifecycle_mgr_events_dropped_total",
		Help: "Events not recorded in the control plane, because one runtime caused too many.",
	})

	// Objects counts the writes of objects in runtimes, by action (applied, deleted or failed).
	Objects = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_runtime_objects_total",
		Help: "Objects applied to, deleted from, or refused by runtimes.",
	}, []string{"action"})

	// Renderings counts the renderings of modules, by result: done, error, or the reason of an error in the content.
	// Runtimes share one rendering of a version if the capabilities that the chart queries are the same in these
	// runtimes. The metric has about 20 series, one for each result.
	Renderings = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_renderings_total",
		Help: "Renderings of modules, by result.",
	}, []string{"result"})

	// Purged counts what the purge controller has removed from runtimes. The label "what" of Purged is custom_resource,
	// finalizers (of a custom resource) or object (in an inventory).
	Purged = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_purged_objects_total",
		Help: "Custom resources deleted, custom resources whose finalizers were removed, and objects of modules " +
			"deleted, because the deletion of a Kyma took longer than the grace period.",
	}, []string{"what"})

	// Orphans is the number of orphaned objects that the last search found, by kind. manifest and access_secret are
	// objects without a Kyma, runtime_object is an object without a Manifest, and catalog_object is an object of the
	// catalog copy without a source.
	Orphans = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_orphans",
		Help: "Orphaned objects at the last search.",
	}, []string{"kind"})

	// DeletionsGivenUp counts the Kymas that were deleted with a tombstone, by reason. The manager creates a tombstone
	// if it cannot clean up the runtime in time.
	DeletionsGivenUp = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_deletions_given_up_total",
		Help: "Kymas that were deleted with a tombstone because their runtime could not be cleaned in time.",
	}, []string{"reason"})

	// Tombstones is the number of ConfigMaps that are tombstones: each belongs to a deleted Kyma whose objects may
	// still exist in the runtime. A Kyma nearly always has only one tombstone.
	Tombstones = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_tombstones",
		Help: "Tombstones of deleted Kymas, which wait until their runtime can be reached again.",
	})

	// TombstonesEnded counts the tombstones that are no longer needed. The label "how" of TombstonesEnded is cleaned,
	// cluster_gone or replaced.
	TombstonesEnded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_tombstones_ended_total",
		Help: "Tombstones that are no longer needed, by the reason.",
	}, []string{"how"})

	// ModuleBlocked counts how often a module of a Kyma became blocked, by module and reason. Series: modules x
	// reasons.
	ModuleBlocked = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_module_blocked_total",
		Help: "How often a module of a Kyma was blocked from reaching its desired state.",
	}, []string{"module", "reason"})

	// MaintenancePolicyValid is 1 if the latest maintenance policy is valid and in use. MaintenancePolicyValid is 0 if
	// the policy is missing or invalid.
	MaintenancePolicyValid = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_maintenance_window_config_read_success",
		Help: "1 if the maintenance policy that was read last is in force, 0 if it is missing or cannot be used.",
	})

	// CatalogWrites counts the objects of the catalog copy that were written to runtimes or deleted from runtimes.
	// CatalogWrites does not grow while nothing changes.
	CatalogWrites = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lifecycle_mgr_catalog_writes_total",
		Help: "Objects of the catalog copy written to or deleted from runtimes.",
	})

	// ModuleReadySeconds measures the time from a change of the spec of a Manifest until the Manifest is ready, in
	// seconds.
	ModuleReadySeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lifecycle_mgr_module_ready_seconds",
		Help:    "Seconds from a change of the desired state of a module until the module was ready.",
		Buckets: []float64{0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800},
	}, []string{"module"})

	// Runtimes is the number of connections to runtimes, by state (connected or broken).
	Runtimes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_runtimes",
		Help: "Connections to runtimes by state of their circuit breaker.",
	}, []string{"state"})

	// AuthorityRoots is the number of trusted root certificates. AuthorityRoots is greater than 1 during a rotation of
	// the root certificate.
	AuthorityRoots = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_authority_roots",
		Help: "Root certificates of the certificate authority that are trusted.",
	})

	// AuthorityRootExpiry is the time at which the newest root certificate expires, in seconds since 1970.
	AuthorityRootExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_authority_root_expiry_timestamp_seconds",
		Help: "Time at which the newest root of the certificate authority expires, in seconds since 1970.",
	})

	// AuthorityOutdatedRuntimes is the number of runtimes whose agents do not yet use a certificate that the newest
	// root certificate has signed. AuthorityOutdatedRuntimes is 0 while there is only one root certificate.
	AuthorityOutdatedRuntimes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_authority_stragglers",
		Help: "Runtimes that do not use a certificate of the newest root yet, during a rotation.",
	})

	// AuthoritySecretInvalid is 1 while the Secret with the root certificates is invalid. While the Secret is invalid,
	// the previous root certificates stay in use.
	AuthoritySecretInvalid = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_authority_broken",
		Help: "1 while the Secret with the roots of the certificate authority is invalid.",
	})

	// CertificatesIssued counts the certificates that the manager's own certificate authority has issued to runtimes.
	CertificatesIssued = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lifecycle_mgr_certificates_issued_total",
		Help: "Certificates issued to runtimes by the certificate authority of the manager.",
	})

	// CertificateOverdue is 1 for a Kyma whose certificate should have been renewed at least a day ago. Other Kymas
	// have no series.
	CertificateOverdue = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_self_signed_cert_not_renew",
		Help: "1 if the certificate of a runtime should have been renewed and was not.",
	}, []string{"kyma_name"})

	// AgentProblems counts how often an agent was disconnected or could not watch everything, by reason.
	AgentProblems = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_agent_troubles_total",
		Help: "How often the agent of a runtime was disconnected, or could not watch everything.",
	}, []string{"reason"})

	// ListenerDuration is the duration of the last request to the listener, in seconds.
	ListenerDuration = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "watcher_listener_request_duration", ConstLabels: listenerLabels,
		Help: "Seconds that the last request of a runtime took.",
	})

	// ListenerRequests counts all requests to the listener.
	ListenerRequests = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "watcher_listener_requests_total", ConstLabels: listenerLabels,
		Help: "Requests of runtimes.",
	})

	// ListenerErrors counts the requests to the listener whose response status is not 200.
	ListenerErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "watcher_listener_request_errors_total", ConstLabels: listenerLabels,
		Help: "Requests of runtimes that were refused or could not be forwarded.",
	})

	// ListenerInFlight is the number of requests that the listener is handling.
	ListenerInFlight = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "watcher_listener_inflight_requests", ConstLabels: listenerLabels,
		Help: "Requests of runtimes that are being handled.",
	})

	// ListenerTooLarge counts requests to the listener with a body that is too large.
	ListenerTooLarge = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "watcher_listener_exceeding_size_limit_requests_total", ConstLabels: listenerLabels,
		Help: "Requests of runtimes that were refused because of the size of their body.",
	})

	// ListenerUnverified counts the requests to the listener without the client certificate of a runtime. Series: 3.
	ListenerUnverified = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "watcher_listener_failed_verification_requests_total",
		Help: "Requests that were refused because they had no client certificate of a runtime.",
	}, []string{"server_name", "request_uri_label"})

	// ListenerRequestSeconds measures the duration of requests to the listener, in seconds.
	ListenerRequestSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "lifecycle_mgr_watcher_request_seconds",
		Help:    "Seconds that a request of a runtime took.",
		Buckets: []float64{0.0005, 0.002, 0.01, 0.05, 0.25, 1, 5},
	})

	// AgentReports counts the reports of agents. The label "what" of AgentReports is event or heartbeat.
	AgentReports = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_watcher_heard_total",
		Help: "Events and heartbeats that agents have sent.",
	}, []string{"what"})

	// ListenerRefused counts the requests and connections that the listener rejected, by reason. Series: one for each
	// reason (about 25).
	ListenerRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_watcher_refused_total",
		Help: "Requests and connections to the listener that were refused.",
	}, []string{"reason"})

	// EventsMissed counts how often the manager detected that events of a runtime were lost. After events were lost,
	// any object in the runtime may have changed.
	EventsMissed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lifecycle_mgr_watcher_missed_total",
		Help: "How often events of a runtime were found to be missing.",
	})

	// ListenerForwarded counts the requests that the listener forwarded. The label "to" of ListenerForwarded is leader
	// or manager, and the label "result" is done or error.
	ListenerForwarded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_watcher_forwarded_total",
		Help: "Requests of runtimes that were forwarded to another replica or another manager.",
	}, []string{"to", "result"})

	// AgentsConnected is the number of runtimes whose agents send heartbeats.
	AgentsConnected = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_watcher_heard_runtimes",
		Help: "Runtimes with a connected agent.",
	})

	// AgentsDisconnected is the number of runtimes whose agents have sent heartbeats to this process but are no longer
	// connected.
	AgentsDisconnected = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_watcher_lost_runtimes",
		Help: "Runtimes whose agent was connected and is not any more.",
	})

	// LastHeartbeat is the time of the last heartbeat of an agent that was connected and is no longer connected. Other
	// agents have no series. With --runtime-metrics=false, LastHeartbeat has no series.
	LastHeartbeat = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_watcher_last_heartbeat_timestamp_seconds",
		Help: "Time of the last heartbeat of an agent that is not connected any more, in seconds since 1970.",
	}, []string{"kyma_name"})

	// Shards is the number of shards that this replica holds. With --shards=0, the metric Shards stays 0.
	Shards = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_shards",
		Help: "Shards of the fleet that this replica holds; over all replicas there are 64.",
	})

	// ShardChanges counts the shards that this replica acquired, released or lost. The label "change" of ShardChanges
	// is acquired, released or lost.
	ShardChanges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_shard_changes_total",
		Help: "Shards that this replica acquired, released to another one, or lost because it could not renew " +
			"its Lease.",
	}, []string{"change"})

	// KymaState is 1 for the current state of a Kyma. Other states have no series. The labels shoot and instance_id
	// come from metadata that only the Kyma project's managed service sets on Kymas; without this metadata, the labels
	// are absent. Series: Kymas.
	KymaState = NewStates(prometheus.Opts{
		Name: "lifecycle_mgr_kyma_state",
		Help: "Current state of a Kyma: 1 for that state, no series for others.",
	}, []string{"kyma_name", "state"}, "shoot", "instance_id")

	// MandatoryModuleState is 1 for the current state of a mandatory module of a Kyma. Other states have no series.
	// Series: Kymas x mandatory modules.
	MandatoryModuleState = NewStates(prometheus.Opts{
		Name: "lifecycle_mgr_mandatory_module_state",
		Help: "Current state of a mandatory module of a Kyma: 1 for that state, no series for others.",
	}, []string{"module_name", "kyma_name", "state"})

	// ModuleState is 1 for the current state of a module of a Kyma. Other states have no series. The labels shoot and
	// instance_id come from metadata that only the Kyma project's managed service sets on Kymas; without this metadata,
	// the labels are absent. Series: Kymas x modules.
	ModuleState = NewStates(prometheus.Opts{
		Name: "lifecycle_mgr_module_state",
		Help: "Current state of a module of a Kyma: 1 for that state, no series for others.",
	}, []string{"module_name", "kyma_name", "state"}, "shoot", "instance_id")

	// Modules counts the modules of all Kymas, including mandatory modules. Series: modules x versions x channels x
	// states.
	Modules = NewCounts(prometheus.Opts{
		Name: "lifecycle_mgr_modules",
		Help: "Modules in the fleet, by installed version, channel and state. The channel of a module with a fixed " +
			"version is empty.",
	}, []string{"module", "version", "channel", "state"})

	// BuildInfo is 1. The labels of BuildInfo are those of [SetBuild].
	BuildInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_build_info",
		Help: "How this manager was built: always 1.",
	}, []string{"version", "revision", "goversion"})
)

// SetBuild sets the labels of BuildInfo.
func SetBuild(version, revision, goVersion string) {
	BuildInfo.Reset()
	BuildInfo.WithLabelValues(version, revision, goVersion).Set(1)
}

// Sources contains functions that return the values of metrics. The functions in Sources are called at each scrape.
type Sources struct {
	// MandatoryModules returns the number of mandatory modules, or NaN if this number is not known.
	MandatoryModules func() float64
}

// newMandatoryModules returns a gauge whose value is the result of the function count: the number of mandatory modules.
func newMandatoryModules(count func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_mandatory_modules",
		Help: "Number of mandatory modules.",
	}, count)
}

// MustRegister adds every metric of this package to the registry r. A second call with the same registry panics, in the
// same way as [prometheus.Registerer.MustRegister].
func MustRegister(r prometheus.Registerer, s Sources) {
	if fips140.Enabled() {
		FIPSMode.Set(1)
	}
	if fips140.Enforced() {
		FIPSMode.Set(2)
	}
	r.MustRegister(Steps, Requeues, FIPSMode, StatusWrites, SavesPostponed,
		RuntimeRequestsPostponed, EventsDropped, Objects, Renderings,
		RolloutRuntimes, RolloutPhase, RolloutETA, RolloutPolicyReady, RolloutPolicyChannels, RolloutsHalted,
		RolloutsUrgent, Purged, Orphans, DeletionsGivenUp,
		Tombstones, TombstonesEnded, ModuleBlocked, MaintenancePolicyValid, newMandatoryModules(s.MandatoryModules),
		CatalogWrites, ModuleReadySeconds, Runtimes, AgentProblems, CertificateOverdue, KymaState,
		MandatoryModuleState, ModuleState, Modules, BuildInfo,
		AuthorityRoots, AuthorityRootExpiry, AuthorityOutdatedRuntimes, AuthoritySecretInvalid, CertificatesIssued,
		ListenerDuration, ListenerRequests, ListenerErrors, ListenerInFlight, ListenerTooLarge, ListenerUnverified,
		ListenerRequestSeconds, AgentReports, ListenerRefused, EventsMissed, ListenerForwarded, AgentsConnected,
		AgentsDisconnected, LastHeartbeat,
		Shards, ShardChanges)
}
