// Package metrics holds every metric of the manager in one list, so that a reader of dashboards finds name, help and labels in
// one place and so that cardinality is decided here and nowhere else.
//
// Use: call [Register] once with the registry that is served, then add to the variables from where things happen.
//
// Cardinality: labels are controllers, steps, results, modules, versions and states; none of them grows with the number of
// runtimes. Only the gauges with the names of the Kyma project (lifecycle_mgr_kyma_state, lifecycle_mgr_module_state and that of mandatory modules)
// carry a runtime, because existing dashboards join on it: a line for the state of each Kyma, and one for that of each of its modules. Two more
// name runtimes that are in trouble, and only these. Flag --runtime-metrics=false switches them all off.
//
// What it does not do: it never reads a registry back and it keeps no state of its own.
package metrics

import (
	"crypto/fips140"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a pass comes back, the values of label "requeue_type" of [Requeues].
const (
	// RequeueIntended says that a step waits for something.
	RequeueIntended = "intended"
	// RequeueUnexpected says that a step failed.
	RequeueUnexpected = "unexpected"
)

// Results of a step, the values of label "result" of [Steps].
const (
	// ResultDone says that the step had nothing left to do.
	ResultDone = "done"
	// ResultLater says that the step waits for something and will be tried again.
	ResultLater = "later"
	// ResultError says that the step failed and is retried with back-off.
	ResultError = "error"
	// ResultTerminal says that the step failed and nothing but a change will help.
	ResultTerminal = "terminal"
)

// What the purge removes, the values of label "what" of [Purged].
const (
	// PurgedResource is a custom resource that was asked to go.
	PurgedResource = "custom_resource"
	// PurgedFinalizers are those of one custom resource.
	PurgedFinalizers = "finalizers"
	// PurgedObject is an object of an inventory.
	PurgedObject = "object"
)

// How tombstones end, the values of label "how" of [TombstonesEnded].
const (
	// TombstoneCleaned: the runtime has come back, and everything is gone from it.
	TombstoneCleaned = "cleaned"
	// TombstoneClusterGone: the access Secret was removed, so the cluster is gone.
	TombstoneClusterGone = "cluster_gone"
	// TombstoneReplaced: there is a Kyma for that runtime again, which looks after what is there.
	TombstoneReplaced = "replaced"
)

// ListenerName is the only value of the label server_name, which dashboards of the Kyma project know.
const ListenerName = "listener"

// What was heard from runtimes, the values of label "what" of [WatcherHeard].
const (
	// HeardEvent is a change of an object.
	HeardEvent = "event"
	// HeardHeartbeat is a heartbeat.
	HeardHeartbeat = "heartbeat"
)

// What happens to shards, the values of label "change" of [ShardChanges].
const (
	// ShardAcquired: it came to this replica.
	ShardAcquired = "acquired"
	// ShardReleased: it was handed over, or given up at the end of the process.
	ShardReleased = "released"
	// ShardLost: the Lease of this replica could not be renewed in time.
	ShardLost = "lost"
)

// Where the listener passes requests on to, the values of label "to" of [WatcherForwarded].
const (
	// ForwardedToLeader is the replica that works on runtimes.
	ForwardedToLeader = "leader"
	// ForwardedToManager is another manager.
	ForwardedToManager = "manager"
)

// listenerLabels are those of all metrics that have the names of the Kyma project's listener.
var listenerLabels = prometheus.Labels{"server_name": ListenerName}

var (
	// Steps measures the steps of every reconciler, in seconds, by controller, step and result.
	// Cardinality: controllers (6) x steps (about 8 each) x 4 results.
	Steps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lifecycle_mgr_step_duration_seconds",
		Help:    "Duration of one step of a reconcile pass in seconds.",
		Buckets: []float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10},
	}, []string{"controller", "step", "result"})

	// Requeues counts what makes a pass come back, by requeue_reason (CONTROLLER_STEP) and requeue_type (intended: not yet; unexpected: an error).
	// Cardinality: controllers (6) x steps (about 8 each) x 2.
	Requeues = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_requeue_reason_total",
		Help: "Passes that ended before their last step and come back, by the step that ended them.",
	}, []string{"requeue_reason", "requeue_type"})

	// FIPSMode is 0 without FIPS 140-3 mode of Go, 1 with it, 2 where nothing else is allowed.
	FIPSMode = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_fips_mode",
		Help: "FIPS 140-3 mode of the program: 0 off, 1 on, 2 only.",
	})

	// StatusWrites counts patches of status in the control plane, by controller. It does not move while nothing changes.
	StatusWrites = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_status_writes_total",
		Help: "Status patches sent to the control plane.",
	}, []string{"controller"})

	// Objects counts what was done to objects in runtimes, by action: applied, deleted, failed.
	Objects = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_runtime_objects_total",
		Help: "Objects applied to, deleted from, or refused by runtimes.",
	}, []string{"action"})

	// Purged counts what the purge of a runtime has removed, by what: custom_resource, finalizers (of a custom resource), object
	// (of an inventory).
	Purged = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_purged_objects_total",
		Help: "Custom resources deleted or freed of finalizers, and objects of modules deleted, because a Kyma did not go in time.",
	}, []string{"what"})

	// Orphans counts what was found to belong to nobody when it was last looked for, by kind: manifest (without Kyma), access_secret
	// (without Kyma), runtime_object (without Manifest), catalog_object (without source).
	Orphans = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_orphans",
		Help: "Objects that belong to nobody, as last looked for.",
	}, []string{"kind"})

	// GivenUp counts deletions that were given up because the runtime could not be worked on, by reason.
	GivenUp = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_deletions_given_up_total",
		Help: "Deletions of Kymas that were given up with a tombstone, because the runtime could not be worked on in time.",
	}, []string{"reason"})

	// Tombstones is the number of ConfigMaps that tell of Kymas that are gone and have left something in their runtime; nearly always, that is
	// one for each.
	Tombstones = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_tombstones",
		Help: "Deletions that were given up and wait for their runtime to come back.",
	})

	// TombstonesEnded counts tombstones that are no longer needed, by how: cleaned, cluster_gone, replaced.
	TombstonesEnded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_tombstones_ended_total",
		Help: "Tombstones that are no longer needed, by what became of the runtime.",
	}, []string{"how"})

	// Blocked counts how often something began to keep a module from moving on, by module and reason. Cardinality: modules x reasons.
	Blocked = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_module_blocked_total",
		Help: "How often something began to keep a module of a Kyma from its wish.",
	}, []string{"module", "reason"})

	// PolicyRead is 1 if the maintenance policy that was read last is in force, 0 if there is none or it could not be understood.
	PolicyRead = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_maintenance_window_config_read_success",
		Help: "1 if the maintenance policy that was read last is in force.",
	})

	// CatalogWrites counts the objects of the catalog that were written to, or deleted from, runtimes. It does not move while nothing changes.
	CatalogWrites = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lifecycle_mgr_catalog_writes_total",
		Help: "Objects of the catalog written to or deleted from runtimes.",
	})

	// Ready measures the time from a change of a Manifest's spec to the moment it was seen ready, in seconds.
	Ready = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lifecycle_mgr_module_ready_seconds",
		Help:    "Seconds from the change of a module's wish to the module being ready.",
		Buckets: []float64{0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800},
	}, []string{"module"})

	// Runtimes counts connections to runtimes by state: connected, broken.
	Runtimes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_runtimes",
		Help: "Connections to runtimes by state of their circuit breaker.",
	}, []string{"state"})

	// AuthorityRoots is the number of roots that are trusted: more than one during a rotation.
	AuthorityRoots = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_authority_roots",
		Help: "Roots of the certificate authority that are trusted.",
	})

	// AuthorityRootExpiry is when the newest root ends, in seconds since 1970.
	AuthorityRootExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_authority_root_expiry_timestamp_seconds",
		Help: "End of the newest root of the certificate authority, in seconds since 1970.",
	})

	// AuthorityStragglers is the number of runtimes that are not seen on the newest root. It is 0 while there is one root.
	AuthorityStragglers = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_authority_stragglers",
		Help: "Runtimes that are not seen with a certificate of the newest root, during a rotation.",
	})

	// AuthorityBroken is 1 while the roots cannot be read from where they are kept; the former ones stay in force.
	AuthorityBroken = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_authority_broken",
		Help: "1 while the Secret with the roots of the certificate authority cannot be understood.",
	})

	// CertificatesIssued counts the certificates that our own authority has issued to runtimes.
	CertificatesIssued = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lifecycle_mgr_certificates_issued_total",
		Help: "Certificates issued to runtimes by the certificate authority of the manager.",
	})

	// CertificateOverdue is 1 for a Kyma whose runtime should have had another certificate for a day. There is no series for others.
	CertificateOverdue = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_self_signed_cert_not_renew",
		Help: "1 if the certificate of a runtime should have been renewed and was not.",
	}, []string{"kyma_name"})

	// AgentTroubles counts how often agents began not to be heard, by reason.
	AgentTroubles = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_agent_troubles_total",
		Help: "How often the agent of a runtime began not to be heard, or to watch less than it should.",
	}, []string{"reason"})

	// ListenerDuration is how long the last request to the listener took.
	ListenerDuration = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "watcher_listener_request_duration", ConstLabels: listenerLabels,
		Help: "Seconds that the last request of a runtime took.",
	})

	// ListenerRequests counts requests to the listener, answered in whatever way.
	ListenerRequests = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "watcher_listener_requests_total", ConstLabels: listenerLabels,
		Help: "Requests of runtimes.",
	})

	// ListenerErrors counts requests to the listener that had another answer than 200.
	ListenerErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "watcher_listener_request_errors_total", ConstLabels: listenerLabels,
		Help: "Requests of runtimes that were refused, or could not be passed on.",
	})

	// ListenerInFlight is the number of requests to the listener at this moment.
	ListenerInFlight = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "watcher_listener_inflight_requests", ConstLabels: listenerLabels,
		Help: "Requests of runtimes that are being answered.",
	})

	// ListenerTooLarge counts requests to the listener with too large a body.
	ListenerTooLarge = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "watcher_listener_exceeding_size_limit_requests_total", ConstLabels: listenerLabels,
		Help: "Requests of runtimes that were refused because of the size of their body.",
	})

	// ListenerUnverified counts requests to the listener without a client certificate of a runtime. Cardinality: 3.
	ListenerUnverified = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "watcher_listener_failed_verification_requests_total",
		Help: "Requests that were refused because no client certificate of a runtime came with them.",
	}, []string{"server_name", "request_uri_label"})

	// WatcherRequestSeconds measures requests to the listener.
	WatcherRequestSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "lifecycle_mgr_watcher_request_seconds",
		Help:    "Seconds that a request of a runtime took.",
		Buckets: []float64{0.0005, 0.002, 0.01, 0.05, 0.25, 1, 5},
	})

	// WatcherHeard counts what was heard from runtimes, by what: event, heartbeat.
	WatcherHeard = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_watcher_heard_total",
		Help: "Events and heartbeats that were heard from runtimes.",
	}, []string{"what"})

	// WatcherRefused counts requests and connections that the listener refused, by reason. Cardinality: the reasons (about 25).
	WatcherRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_watcher_refused_total",
		Help: "Requests and connections to the listener that were refused.",
	}, []string{"reason"})

	// WatcherMissed counts how often it was found that a runtime may have changed unheard.
	WatcherMissed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lifecycle_mgr_watcher_missed_total",
		Help: "How often events of a runtime were found to be missing.",
	})

	// WatcherForwarded counts requests that the listener passed on, by to (leader, manager) and result (done, error).
	WatcherForwarded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_watcher_forwarded_total",
		Help: "Requests of runtimes that were passed on to another replica or another manager.",
	}, []string{"to", "result"})

	// WatcherHeardRuntimes is the number of runtimes that send heartbeats.
	WatcherHeardRuntimes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_watcher_heard_runtimes",
		Help: "Runtimes that are heard.",
	})

	// WatcherLostRuntimes is the number of runtimes that have sent heartbeats to this process and do not any more.
	WatcherLostRuntimes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_watcher_lost_runtimes",
		Help: "Runtimes that were heard and are silent now.",
	})

	// WatcherLastHeartbeat is when the last heartbeat of a runtime came that was heard and is silent now. There is no series for others. Off with
	// --runtime-metrics=false.
	WatcherLastHeartbeat = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_watcher_last_heartbeat_timestamp_seconds",
		Help: "Time of the last heartbeat of a runtime that is silent now, in seconds since 1970.",
	}, []string{"kyma_name"})

	// Shards is the number of shards of the fleet that this replica holds. It stays 0 with --shards=0.
	Shards = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_shards",
		Help: "Shards of the fleet that this replica holds; over all replicas there are 64.",
	})

	// ShardChanges counts how shards came to this replica and left it, by change (acquired, released, lost).
	ShardChanges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lifecycle_mgr_shard_changes_total",
		Help: "Shards that this replica acquired, released to another one, or lost because it could not renew its Lease.",
	}, []string{"change"})

	// KymaState is 1 for the current state of a Kyma; there is no series for the others. Cardinality: Kymas.
	KymaState = NewStates(prometheus.Opts{
		Name: "lifecycle_mgr_kyma_state",
		Help: "Current state of a Kyma: 1 for the state that holds, nothing for others.",
	}, []string{"kyma_name", "state", "shoot", "instance_id"})

	// MandatoryModuleState is ModuleState for mandatory modules. Cardinality: Kymas x mandatory modules.
	MandatoryModuleState = NewStates(prometheus.Opts{
		Name: "lifecycle_mgr_mandatory_module_state",
		Help: "Current state of a mandatory module of a Kyma: 1 for the state that holds, nothing for others.",
	}, []string{"module_name", "kyma_name", "state"})

	// ModuleState is 1 for the current state of a module of a Kyma; there is no series for the others. Cardinality: Kymas x modules.
	ModuleState = NewStates(prometheus.Opts{
		Name: "lifecycle_mgr_module_state",
		Help: "Current state of a module of a Kyma: 1 for the state that holds, nothing for others.",
	}, []string{"module_name", "kyma_name", "state", "shoot", "instance_id"})
)

// Sources are the functions from which metrics are read at each scrape.
type Sources struct {
	// MandatoryModules returns the number of mandatory modules, NaN if it is not known.
	MandatoryModules func() float64
}

// newMandatoryModules returns the gauge of the number of mandatory modules.
func newMandatoryModules(count func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lifecycle_mgr_mandatory_modules",
		Help: "Number of mandatory modules.",
	}, count)
}

// Register adds every metric of this package to the registry r. It panics when called twice with the same registry, as
// [prometheus.Registerer.MustRegister] does.
func Register(r prometheus.Registerer, s Sources) {
	if fips140.Enabled() {
		FIPSMode.Set(1)
	}
	if fips140.Enforced() {
		FIPSMode.Set(2)
	}
	r.MustRegister(Steps, Requeues, FIPSMode, StatusWrites, Objects, Purged, Orphans, GivenUp, Tombstones, TombstonesEnded, Blocked, PolicyRead, newMandatoryModules(s.MandatoryModules), CatalogWrites,
		Ready, Runtimes, AgentTroubles, CertificateOverdue, KymaState, MandatoryModuleState, ModuleState,
		AuthorityRoots, AuthorityRootExpiry, AuthorityStragglers, AuthorityBroken, CertificatesIssued,
		ListenerDuration, ListenerRequests, ListenerErrors, ListenerInFlight, ListenerTooLarge, ListenerUnverified,
		WatcherRequestSeconds, WatcherHeard, WatcherRefused, WatcherMissed, WatcherForwarded, WatcherHeardRuntimes, WatcherLostRuntimes, WatcherLastHeartbeat,
		Shards, ShardChanges)
}
