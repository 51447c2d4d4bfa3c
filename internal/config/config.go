// Package config contains the flags and the environment variables of every program. Each program has one struct, whose
// fields are flags of [pflag]. The program validates this struct before it starts anything.
//
// To use the package, create the struct with its defaults ([DefaultManager]), add its flags with Register, and parse
// the command line. After parsing, call Validate and show its error to the user. No other package reads environment
// variables.
//
// The name of a flag is the kebab-case form of the name of its field. If the lifecycle-manager of the Kyma project has
// a flag with the same purpose, this project uses the same name and the same values. A renamed flag is also accepted
// under its former name, which the help marks as deprecated.
package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Modes of the manager, which are the values of --mode.
const (
	// ModeControlPlane is the mode in which the manager manages runtimes that it reaches with access Secrets.
	ModeControlPlane = "control-plane"
	// ModeInCluster is the mode in which the manager manages the cluster on which it runs. In-cluster mode needs no
	// access Secret.
	ModeInCluster = "in-cluster"
)

// Watch modes of the manager, which are the values of --watch-mode.
const (
	// WatchAgent means that the manager installs an agent in each runtime. The agent reports changes to the manager, so
	// that the manager sends no requests to a runtime in which nothing changes.
	WatchAgent = "agent"
	// WatchHub means that the manager itself opens watches on each runtime from the control plane. The manager receives
	// changes in runtimes at once, but one connection to each runtime stays open.
	WatchHub = "hub"
	// WatchPoll means that the manager opens no watches. The manager reconciles each runtime every --poll-interval.
	WatchPoll = "poll"
)

// AllShards is the number of shards, and the value of --shards with which all replicas reconcile runtimes.
const AllShards = 64

// Manager is the configuration of cmd/lifecycle-manager.
type Manager struct {
	// Mode is ModeControlPlane (default) or ModeInCluster.
	Mode string
	// Namespace is the namespace of Kymas, Manifests, templates and access Secrets. The default is kcp-system, or
	// kyma-system with ModeInCluster.
	Namespace string
	// WatchNamespaces are further namespaces that the manager serves like Namespace, each with its own Kymas, catalog
	// and access Secrets. Each limit applies to every namespace separately. The runtimes of Kymas in WatchNamespaces
	// have no agents. Default none.
	WatchNamespaces []string
	// Kubeconfig is the path of the kubeconfig for the cluster with the Kymas. The default is $KUBECONFIG, else the
	// service account of the pod.
	Kubeconfig string
	// LogLevel is the verbosity of the log. 0 (default) logs changes and errors. 1 also logs why a reconcile waits. 2
	// logs everything.
	LogLevel int
	// LogRuntimeLimit is the maximum number of log lines per minute about one runtime. 0 means no limit. Default 60.
	LogRuntimeLimit int
	// OTLPEndpoint is the collector that receives the traces of reconciles by OTLP over gRPC: http://HOST:PORT or
	// https://HOST:PORT. If OTLPEndpoint is empty, which is the default, the manager sends no traces.
	OTLPEndpoint string
	// TraceRatio is the fraction of reconciles that are traced, from 0 to 1. Default 1.
	TraceRatio float64

	// MetricsBindAddress is the address on which /metrics is served. "0" disables it. Default :8443.
	MetricsBindAddress string
	// MetricsSecure serves /metrics over TLS, and only to clients that are authorized by the API server. Default true.
	MetricsSecure bool
	// HealthProbeBindAddress is the address on which /healthz and /readyz are served. "0" disables them. Default :8081.
	HealthProbeBindAddress string
	// PprofBindAddress is the address on which the profiles of Go (pprof) are served. Every client that can connect to
	// the address can read the profiles, so use a loopback address. "0" (default) disables the profiles.
	PprofBindAddress string
	// MemoryTarget is the target for the memory of the process, in bytes; at least 64 MiB. Below the target, the
	// garbage collector runs less often than with Go's default, which saves CPU time. Between MemoryTarget and twice
	// MemoryTarget, the garbage collector runs more and more often. MemoryTarget is not a limit: if 1.8 times the size
	// of the live objects exceeds MemoryTarget, the process uses more memory. If MemoryTarget is 0, $GOGC and
	// $GOMEMLIMIT apply instead. The default MemoryTarget is 1.375 GiB, which is enough for 10,000 runtimes.
	MemoryTarget int64
	// RuntimeMetrics enables the metrics that have one series for each runtime and module. Default true.
	RuntimeMetrics bool

	// EnableWebhooks enables the conversion webhook, which converts Kyma, Manifest and ModuleTemplate from and to
	// v1alpha1. Default false.
	EnableWebhooks bool
	// WebhookBindAddress is the address on which the conversion webhook is served over TLS. The manager creates the TLS
	// certificate of the conversion webhook. Default :9443.
	WebhookBindAddress string
	// WebhookService is the name of the Service in Namespace through which API servers call the webhook, on port 443.
	// Default lifecycle-manager-webhook.
	WebhookService string
	// WebhookURL is the URL of the webhook, https://HOST[:PORT]/convert. WebhookURL replaces WebhookService if the
	// manager runs outside the cluster.
	WebhookURL string

	// Version is true if the program only prints its version and exits.
	Version bool
	// LeaderElect enables leader election among the replicas. Default true.
	LeaderElect bool
	// LeaderElectionLeaseDuration, LeaderElectionRenewDeadline and LeaderElectionRetryPeriod configure leader election,
	// as in controller-runtime. When the leader exits, it releases its Lease, so that another replica can become leader
	// without waiting. The three durations of leader election therefore matter only after the leader was killed: then
	// another replica leads after the lease duration, less one RetryPeriod at least and plus 4.4 RetryPeriods at most,
	// because replicas that wait look at the Lease at intervals of one to 2.2 RetryPeriods. Defaults 11 s, 8 s, 1 s.
	LeaderElectionLeaseDuration time.Duration
	LeaderElectionRenewDeadline time.Duration
	LeaderElectionRetryPeriod   time.Duration

	// Shards is 0 or 64. If Shards is 0 (default), only the leader reconciles. If Shards is 64, the fleet is divided
	// into 64 shards: each replica holds some of the shards and reconciles the runtimes of its shards. All replicas
	// must have the same value of Shards. With ModeInCluster, Shards must be 0.
	Shards int
	// ShardLeaseDuration is the duration of the Lease of a replica; at least 3 s. If a replica is killed, the other
	// replicas take over its shards after ShardLeaseDuration. A replica renews its Lease three times within
	// ShardLeaseDuration. Default 12 s.
	ShardLeaseDuration time.Duration

	// MaxConcurrentKymaReconciles is the maximum number of Kymas that are reconciled at the same time. The default is
	// 64, because a reconcile mostly waits for responses.
	MaxConcurrentKymaReconciles int
	// MaxConcurrentManifestReconciles is the maximum number of Manifests that are reconciled at the same time. Default
	// 128.
	MaxConcurrentManifestReconciles int
	// MaxNewRuntimes is the maximum number of runtimes in which the first modules are installed at the same time.
	// MaxNewRuntimes also limits, counted separately, how many runtimes have all their modules deleted at the same
	// time. Further runtimes wait for admission. One minute after its admission, a runtime no longer counts against the
	// limit. Default 32. With a higher limit, the last runtime is not complete earlier, but each runtime takes longer.
	MaxNewRuntimes int
	// MaxConcurrentWatcherReconciles is the maximum number of Watchers that are reconciled at the same time. Default 4.
	MaxConcurrentWatcherReconciles int
	// FailureBaseDelay and FailureMaxDelay are the first and the longest delay of a retry after an error. Defaults 250
	// ms, 5 m.
	FailureBaseDelay time.Duration
	FailureMaxDelay  time.Duration
	// K8sClientQPS is the maximum number of requests per second to the control plane. With 0 (default), only the API
	// server limits requests.
	K8sClientQPS float32
	// MaxControlPlaneWrites is the maximum number of concurrent writes to the control plane. If a user waits for the
	// result in a runtime, writes for this runtime do not count against the limit. Default 16.
	MaxControlPlaneWrites int
	// MaxControlPlaneWritesWhileUrgent replaces MaxControlPlaneWrites while a user waits for at least one runtime.
	// MaxControlPlaneWritesWhileUrgent is at most MaxControlPlaneWrites. Default 2.
	MaxControlPlaneWritesWhileUrgent int

	// OCIRegistryHost is the registry of modules: host[:port]. The prefix http:// selects plain HTTP.
	OCIRegistryHost string
	// OCIRegistryCredSecret is the name of a Secret of type kubernetes.io/dockerconfigjson in the namespace of the
	// field Namespace. The only entry of the Secret contains the registry and the credentials.
	OCIRegistryCredSecret string
	// ModulesRepositorySubpath is the path between the registry and the path segment component-descriptors. Default
	// empty.
	ModulesRepositorySubpath string
	// RegistryCacheBytes is the maximum size of the cache for artefacts, in bytes. Default 256 MiB.
	RegistryCacheBytes int64
	// TrustPolicy is the path of the trust policy, which lists the modules that must be signed and the keys for them.
	// The manager reads the trust policy again when its file changes. If TrustPolicy is empty, which is the default, no
	// module must be signed.
	TrustPolicy string

	// EgressAllow are networks in CIDR notation, or addresses, in which registries and chart repositories of modules
	// may be. By default, the manager refuses loopback, link-local, multicast, reserved and metadata addresses, and the
	// addresses in EgressDeny. The registry of modules in OCIRegistryHost does not need to be in EgressAllow, even if
	// it is on a loopback address or in EgressDeny. Default none.
	EgressAllow []string
	// EgressDeny are networks in CIDR notation, or addresses, in which registries and chart repositories of modules
	// must not be, in addition to the addresses that are refused by default. Set EgressDeny to the networks of the
	// cluster's pods and Services. EgressDeny always includes $KUBERNETES_SERVICE_HOST and PodIP. Default none.
	EgressDeny []string

	// RenderTimeout is the time after which the rendering of a chart or Kustomize directory is stopped, at least 1 s.
	// Default 20 s.
	RenderTimeout time.Duration
	// RenderMemoryLimit is the memory in bytes that one rendering of a chart or Kustomize directory may use, at least
	// 64 MiB. The memory limit of the manager's container must be large enough to include RenderMemoryLimit. Default
	// 512 MiB.
	RenderMemoryLimit int64

	// RolloutMaxUpdating is the maximum number of runtimes that all rollouts with stages update at the same time, in
	// addition to the limits of their policies. 0 means that only the policies limit this number. Default 0.
	RolloutMaxUpdating int
	// RolloutGateAllow are prefixes of addresses that gates of rollouts may call, for example
	// https://prometheus.example.com/. By default, no address is allowed, so a gate that has to send a request never
	// passes.
	RolloutGateAllow []string
	// BundleCacheBytes is the maximum size of the cache for rendered modules, in bytes. All runtimes share this cache.
	// Default 128 MiB.
	BundleCacheBytes int64
	// LocalSources is the path of a folder whose subfolders Manifests may use as sources of type kustomize. If
	// LocalSources is empty, which is the default, Manifests cannot use local sources.
	LocalSources string
	// SKRImagePullSecret is the name of a Secret in Namespace. The manager copies the Secret to every runtime, and
	// workloads of modules use the Secret to pull images. Default empty: no Secret.
	SKRImagePullSecret string
	// CustomStateCheck makes the readiness of a module depend on its custom resource: the module is Ready only if its
	// custom resource is Ready. An annotation of the Manifest overrides this setting. Default true.
	CustomStateCheck bool
	// AdoptionPolicy applies to an object of a module that exists in the runtime and was created by another client:
	// adopt (it stays when the module is removed), refuse (the module is not Ready), or take (it is deleted with the
	// module). An annotation of the object in the module overrides AdoptionPolicy for this object. Default adopt.
	AdoptionPolicy string

	// ControlPlaneServiceAccount is the name of a ServiceAccount in Namespace. Modules with target control-plane are
	// installed on the control plane with the rights of this ServiceAccount, which the manager impersonates. Modules
	// with target control-plane are installed only for Kymas in Namespace, not for Kymas in WatchNamespaces.
	// ControlPlaneServiceAccount is not allowed with ModeInCluster. If ControlPlaneServiceAccount is empty, which is
	// the default, modules with target control-plane are not installed.
	ControlPlaneServiceAccount string

	// RestrictedDefaultModules are the names of modules that are installed only for Kymas that match the field
	// spec.kymaSelector of the ModuleReleaseMeta. Default none.
	RestrictedDefaultModules []string
	// MaintenancePolicyConfigmap is the name of a ConfigMap in Namespace. The key policy.json of the ConfigMap contains
	// the maintenance policy. If MaintenancePolicyConfigmap is empty, which is the default, the manager reads
	// MaintenancePolicyFile instead.
	MaintenancePolicyConfigmap string
	// MaintenancePolicyFile is the path of the file with the maintenance policy. The manager reads the maintenance
	// policy again when its file changes. If there is no maintenance policy, updates with a downtime wait until a user
	// requests an immediate start. Default /etc/maintenance-policy/policy.json.
	MaintenancePolicyFile string
	// MinMaintenanceWindowSize is the minimum remaining duration of a maintenance window in which an update may start.
	// Default 20 m.
	MinMaintenanceWindowSize time.Duration
	// CatalogSpread is the period over which Kymas are enqueued after a change that affects many Kymas, such as a new
	// version in the catalog. If a change affects only few Kymas, they are enqueued over a shorter period. Runtimes
	// that use a changed module are enqueued without delay. The reconciles of all these Kymas can take longer than
	// CatalogSpread, because the other workers stay free for urgent work. Default 30 s.
	CatalogSpread time.Duration

	// PurgeGracePeriod is the time limit for the deletion of modules when a Kyma is deleted. PurgeGracePeriod starts
	// with the deletion of the modules. After PurgeGracePeriod, the manager purges the remaining objects from the
	// runtime, including custom resources of users. If PurgeGracePeriod is 0 (default), the manager never purges, so
	// the deletion waits.
	PurgeGracePeriod time.Duration
	// DeletionDeadline is the maximum time for which an unreachable runtime delays the deletion of its Kyma; at least 1
	// s. After DeletionDeadline, the manager deletes the Kyma and creates a tombstone, a ConfigMap that lists what is
	// left in the runtime. If the runtime becomes reachable again, the manager deletes the objects that the tombstone
	// lists. If DeletionDeadline is 0 (default), the deletion waits for the runtime without a time limit.
	// DeletionDeadline is not allowed with ModeInCluster.
	DeletionDeadline time.Duration
	// SkipFinalizerPurgingFor are patterns for kinds. Custom resources whose kind matches a pattern are never purged. A
	// pattern has the form plural.group or kind.group, and * matches any text. Default none.
	SkipFinalizerPurgingFor []string
	// OrphanSweepInterval is the interval between two searches for orphaned objects, in the control plane and in every
	// runtime. The searches in the runtimes are spread over the interval. 0 disables the search. Default 24 h.
	OrphanSweepInterval time.Duration
	// OrphanCleanup makes the manager delete objects that are certainly orphans. If OrphanCleanup is false (default),
	// the manager only reports orphaned objects.
	OrphanCleanup bool

	// WatchMode is WatchAgent, WatchHub or WatchPoll. The default is WatchAgent if ListenerAddress is set, else
	// WatchHub.
	WatchMode string
	// PollInterval is the interval at which a runtime is reconciled if it is not watched or if its agent is not
	// connected. Default 1 m.
	PollInterval time.Duration
	// PollBudget is the maximum number of reconciles per second that PollInterval triggers. If the number of runtimes
	// exceeds the budget, each runtime is reconciled less often. 0 means no limit. Default 500.
	PollBudget int
	// WatchedPollInterval replaces PollInterval for a runtime whose changes are reported to the manager, either by a
	// watch of the manager or by a connected agent. Without events, such a runtime is reconciled once per
	// WatchedPollInterval. Default 6 h.
	WatchedPollInterval time.Duration
	// AuditInterval is the interval of audits in a runtime that is not watched and whose agent is not connected. An
	// audit compares every object of a module with its desired state. For a module that contains Secrets, AuditInterval
	// applies in all runtimes, because agents do not report changes of Secrets. The audits of all runtimes are spread
	// over the interval. Default 1 h.
	AuditInterval time.Duration
	// WatchedAuditInterval is the interval of audits in a runtime that is watched or whose agent is connected. An audit
	// sends one request for each object. With the default of 12 h, the manager sends about 50 requests in 12 h to a
	// runtime that has five modules of ten objects each.
	WatchedAuditInterval time.Duration
	// RuntimeTimeout is the timeout of one request to a runtime. Default 15 s.
	RuntimeTimeout time.Duration
	// RuntimeConcurrency is the maximum number of concurrent requests to one runtime. Default 8.
	RuntimeConcurrency int
	// RuntimeMemoryLimit is the memory in bytes that all answers of one runtime may need at the same time, at least 16
	// MiB. One answer may need three quarters of RuntimeMemoryLimit, and one event of a watch may need an eighth of
	// RuntimeMemoryLimit. Default 64 MiB.
	RuntimeMemoryLimit int64

	// ListenerAddress is the host:port at which agents connect to the listener. Mandatory with WatchAgent.
	ListenerAddress string
	// ListenerBindAddress is the address on which the listener serves TLS with client certificates. "0" disables the
	// listener. Default :8445.
	ListenerBindAddress string
	// KymaSkrListenerBindAddress is the address on which the listener serves plain HTTP behind an ingress that
	// terminates TLS. KymaSkrListenerBindAddress requires ListenerForwardedFrom. Default "0": disabled.
	KymaSkrListenerBindAddress string
	// ListenerForwardedFrom are the networks of the ingress that terminates TLS, in CIDR notation. The listener rejects
	// a forwarded client certificate if the request does not come from one of the networks in ListenerForwardedFrom.
	ListenerForwardedFrom []string
	// ListenerPeers are common names. An ingress whose certificate has a common name in ListenerPeers may forward
	// client certificates over TLS. By default, no ingress may do so.
	ListenerPeers []string
	// HeartbeatInterval is the interval between two heartbeats of an agent. An agent counts as disconnected after three
	// intervals without a heartbeat. Default 30 s.
	HeartbeatInterval time.Duration
	// HeartbeatBudget is the maximum number of heartbeats per second that one replica receives from agents of runtimes
	// without changes. If these agents would send more heartbeats than HeartbeatBudget allows, the manager instructs
	// them to send heartbeats less often, but at least one per hour, and to close the connection after each heartbeat.
	// Then an agent counts as disconnected if its next heartbeat is late by three HeartbeatIntervals. If
	// HeartbeatBudget is 0, there is no limit. The default is 12 heartbeats per second: with 10,000 runtimes, each
	// agent sends one heartbeat every 833 s.
	HeartbeatBudget int
	// IstioGatewayNamespace is the namespace of the Istio gateways that Watchers select. Default: the value of
	// Namespace. With another namespace, the manager needs additional permissions.
	IstioGatewayNamespace string
	// SkrWatcherImageRegistry, SkrWatcherImageName and SkrWatcherImageTag form the image reference of the agent. The
	// registry has no default. The default name is runtime-watcher, and the default tag is the version of the manager.
	SkrWatcherImageRegistry string
	SkrWatcherImageName     string
	SkrWatcherImageTag      string
	// SkrWebhookMemoryLimits and SkrWebhookCpuLimits are the resource limits of the agent. Defaults 200Mi, 100m.
	SkrWebhookMemoryLimits string
	SkrWebhookCPULimits    string
	// AgentGodebug is the variable GODEBUG of the agent, for example fips140=only. Default $GODEBUG of the manager.
	AgentGodebug string
	// CertManagement is the issuer of the certificates of agents. Empty (default) means the certificate authority in
	// the manager; cert-manager.io/v1 means cert-manager.
	CertManagement string
	// SelfSignedCertDuration is the validity period of the certificate of an agent. Default 168 h, or 1440 h with
	// cert-manager.
	SelfSignedCertDuration time.Duration
	// SelfSignedCertIssuerName is the name of the Issuer in Namespace that cert-manager uses. The default name is
	// klm-watcher-selfsigned.
	SelfSignedCertIssuerName string
	// AdditionalDNSNames are additional DNS names for the certificates of agents. Default none.
	AdditionalDNSNames []string

	// PodIP is the IP address of this replica, to which other replicas connect. Default $POD_IP.
	PodIP string
	// PodName identifies the replica. Two replicas that run at the same time must not have the same name. If a leader
	// is killed and restarts under the same name, it becomes leader again at once. If a leader restarts under another
	// name, it has to wait until its old Lease expires, after LeaderElectionLeaseDuration. The default PodName is
	// $POD_NAME, or a unique name if $POD_NAME is empty.
	PodName string

	// ExitAfterStep is a hidden setting for tests that end the process at a certain point. The form of this setting is
	// CONTROLLER/STEP[:N], where the controller is kyma or manifest. When the named step has run N times (default 1),
	// the process exits at once, as after SIGKILL. If ExitAfterStep is empty, which is the default, the process does
	// not exit.
	ExitAfterStep string
}

// DefaultManager returns the default configuration, which is partly read from the environment.
func DefaultManager() *Manager {
	return &Manager{
		Mode:                             ModeControlPlane,
		Kubeconfig:                       os.Getenv("KUBECONFIG"),
		PodIP:                            os.Getenv("POD_IP"),
		PodName:                          os.Getenv("POD_NAME"),
		LogRuntimeLimit:                  60,
		TraceRatio:                       1,
		MetricsBindAddress:               ":8443",
		MetricsSecure:                    true,
		HealthProbeBindAddress:           ":8081",
		PprofBindAddress:                 "0",
		MemoryTarget:                     1408 << 20,
		RuntimeMetrics:                   true,
		WebhookBindAddress:               ":9443",
		WebhookService:                   "lifecycle-manager-webhook",
		LeaderElect:                      true,
		LeaderElectionLeaseDuration:      11 * time.Second,
		LeaderElectionRenewDeadline:      8 * time.Second,
		LeaderElectionRetryPeriod:        time.Second,
		ShardLeaseDuration:               12 * time.Second,
		MaxConcurrentKymaReconciles:      64,
		MaxConcurrentManifestReconciles:  128,
		MaxNewRuntimes:                   32,
		MaxConcurrentWatcherReconciles:   4,
		MaxControlPlaneWrites:            16,
		MaxControlPlaneWritesWhileUrgent: 2,
		FailureBaseDelay:                 250 * time.Millisecond,
		FailureMaxDelay:                  5 * time.Minute,
		RegistryCacheBytes:               256 << 20,
		BundleCacheBytes:                 128 << 20,
		CustomStateCheck:                 true,
		AdoptionPolicy:                   "adopt",
		MaintenancePolicyFile:            "/etc/maintenance-policy/policy.json",
		MinMaintenanceWindowSize:         20 * time.Minute,
		CatalogSpread:                    30 * time.Second,
		OrphanSweepInterval:              24 * time.Hour,
		PollBudget:                       500,
		WatchedPollInterval:              6 * time.Hour,
		PollInterval:                     time.Minute,
		AuditInterval:                    time.Hour,
		WatchedAuditInterval:             12 * time.Hour,
		RuntimeTimeout:                   15 * time.Second,
		RuntimeConcurrency:               8,
		RuntimeMemoryLimit:               64 << 20,
		RenderTimeout:                    20 * time.Second,
		RenderMemoryLimit:                512 << 20,
		ListenerBindAddress:              ":8445",
		KymaSkrListenerBindAddress:       "0",
		HeartbeatInterval:                30 * time.Second,
		HeartbeatBudget:                  12,
		SkrWatcherImageName:              "runtime-watcher",
		SkrWatcherImageTag:               Version,
		SkrWebhookMemoryLimits:           "200Mi",
		SkrWebhookCPULimits:              "100m",
		AgentGodebug:                     os.Getenv("GODEBUG"),
		SelfSignedCertIssuerName:         "klm-watcher-selfsigned",
	}
}

// Register adds a flag for every field of the configuration. The default of a flag is the current value of its field.
func (m *Manager) Register(f *pflag.FlagSet) {
	f.StringVar(&m.Mode, "mode", m.Mode,
		"control-plane: runtimes are reached by access Secrets; in-cluster: modules are installed on this cluster")
	f.StringVar(&m.Namespace, "namespace", m.Namespace,
		"namespace of Kymas, Manifests, templates and access Secrets (default kcp-system; in-cluster kyma-system)")
	f.StringSliceVar(&m.WatchNamespaces, "watch-namespaces", m.WatchNamespaces,
		"further namespaces that the manager serves, each separately; it watches their runtimes itself, without agents")
	f.StringVar(&m.Kubeconfig, "kubeconfig", m.Kubeconfig,
		"kubeconfig of the cluster to work on (default: $KUBECONFIG, else the pod's service account)")
	f.IntVar(&m.LogLevel, "log-level", m.LogLevel,
		"verbosity: 0 what happened, 1 also what reconciles wait for, 2 everything")
	f.IntVar(&m.LogRuntimeLimit, "log-runtime-limit", m.LogRuntimeLimit,
		"log lines per minute about one runtime; 0 is no limit")
	f.StringVar(&m.OTLPEndpoint, "otlp-endpoint", m.OTLPEndpoint,
		"receiver of the traces of reconciles, by OTLP over gRPC: http://HOST:PORT or https://HOST:PORT; empty: "+
			"no traces")
	f.Float64Var(&m.TraceRatio, "trace-ratio", m.TraceRatio, "share of all reconciles that are traced, 0 to 1")
	f.StringVar(&m.MetricsBindAddress, "metrics-bind-address", m.MetricsBindAddress,
		"address of /metrics; 0 switches it off")
	f.BoolVar(&m.MetricsSecure, "metrics-secure", m.MetricsSecure,
		"serve metrics over TLS and only to clients that may GET /metrics")
	f.StringVar(&m.HealthProbeBindAddress, "health-probe-bind-address", m.HealthProbeBindAddress,
		"address of /healthz and /readyz; 0 switches it off")
	f.StringVar(&m.PprofBindAddress, "pprof-bind-address", m.PprofBindAddress,
		"address of Go's profiles, which are served to every client that reaches it; 0 switches it off")
	f.Int64Var(&m.MemoryTarget, "memory-target", m.MemoryTarget,
		"memory in bytes below which the garbage collector works less to save processor time; it is not a limit; 0: "+
			"$GOGC and $GOMEMLIMIT apply")
	f.BoolVar(&m.RuntimeMetrics, "runtime-metrics", m.RuntimeMetrics,
		"serve the metrics with one series for each runtime and module")
	f.BoolVar(&m.EnableWebhooks, "enable-webhooks", m.EnableWebhooks,
		"run the webhook that converts Kyma, Manifest and ModuleTemplate from and to v1alpha1")
	f.StringVar(&m.WebhookBindAddress, "webhook-bind-address", m.WebhookBindAddress,
		"address of the conversion webhook")
	f.StringVar(&m.WebhookService, "webhook-service", m.WebhookService,
		"Service in --namespace by which API servers reach --webhook-bind-address, on port 443")
	f.StringVar(&m.WebhookURL, "webhook-url", m.WebhookURL,
		"URL of the conversion webhook instead of --webhook-service: https://HOST[:PORT]/convert")
	f.BoolVar(&m.Version, "version", m.Version, "print the version and exit")
	f.BoolVar(&m.LeaderElect, "leader-elect", m.LeaderElect, "elect a leader among the replicas")
	f.DurationVar(&m.LeaderElectionLeaseDuration, "leader-election-lease-duration", m.LeaderElectionLeaseDuration,
		"how long other replicas wait before they replace a leader that was killed")
	f.DurationVar(&m.LeaderElectionRenewDeadline, "leader-election-renew-deadline", m.LeaderElectionRenewDeadline,
		"how long the leader tries to renew its Lease before it gives up; less than the lease duration")
	f.DurationVar(&m.LeaderElectionRetryPeriod, "leader-election-retry-period", m.LeaderElectionRetryPeriod,
		"interval of the attempts to acquire or renew the Lease")
	f.IntVar(&m.Shards, "shards", m.Shards,
		"0: only the leader reconciles; 64: all replicas reconcile, each the runtimes of some of 64 shards")
	f.StringVar(&m.PodName, "pod-name", m.PodName,
		"unique name of this replica in Leases and, with --shards, in the user agent of its requests; a leader that "+
			"is restarted under the same name leads again at once (default $POD_NAME)")
	f.DurationVar(&m.ShardLeaseDuration, "shard-lease-duration", m.ShardLeaseDuration,
		"with --shards, how long other replicas wait before they take over the shards of one that was killed")
	f.IntVar(&m.MaxConcurrentKymaReconciles, "max-concurrent-kyma-reconciles", m.MaxConcurrentKymaReconciles,
		"Kymas that are reconciled at the same time")
	f.IntVar(&m.MaxConcurrentManifestReconciles, "max-concurrent-manifest-reconciles",
		m.MaxConcurrentManifestReconciles, "Manifests that are reconciled at the same time")
	f.IntVar(&m.MaxNewRuntimes, "max-new-runtimes", m.MaxNewRuntimes,
		"runtimes that get their first modules at the same time, and runtimes that lose all modules at the same "+
			"time; others wait to be admitted")
	f.IntVar(&m.MaxConcurrentWatcherReconciles, "max-concurrent-watcher-reconciles", m.MaxConcurrentWatcherReconciles,
		"Watchers that are reconciled at the same time")
	f.DurationVar(&m.FailureBaseDelay, "failure-base-delay", m.FailureBaseDelay,
		"first delay after an error; it doubles with each further error")
	f.DurationVar(&m.FailureMaxDelay, "failure-max-delay", m.FailureMaxDelay, "longest delay after an error")
	f.Float32Var(&m.K8sClientQPS, "k8s-client-qps", m.K8sClientQPS,
		"requests per second to the control plane; 0: only the API server limits them")
	f.IntVar(&m.MaxControlPlaneWrites, "max-control-plane-writes", m.MaxControlPlaneWrites,
		"concurrent writes to the control plane, not counting those for a runtime that a person waits for")
	f.IntVar(&m.MaxControlPlaneWritesWhileUrgent, "max-control-plane-writes-while-urgent",
		m.MaxControlPlaneWritesWhileUrgent, "limit instead of --max-control-plane-writes while a person waits for "+
			"any runtime")
	f.StringVar(&m.OCIRegistryHost, "oci-registry-host", m.OCIRegistryHost,
		"registry of modules, host[:port]; http:// in front for plain HTTP")
	f.StringVar(&m.OCIRegistryCredSecret, "oci-registry-cred-secret", m.OCIRegistryCredSecret,
		"Secret of type kubernetes.io/dockerconfigjson with the registry and the login")
	f.StringVar(&m.ModulesRepositorySubpath, "modules-repository-subpath", m.ModulesRepositorySubpath,
		"path in the registry before component-descriptors")
	f.Int64Var(&m.RegistryCacheBytes, "registry-cache-bytes", m.RegistryCacheBytes, "memory for artefacts in bytes")
	f.StringVar(&m.TrustPolicy, "trust-policy", m.TrustPolicy,
		"file with the modules that must be signed and the keys for them; empty: no module must be signed")
	f.StringSliceVar(&m.EgressAllow, "egress-allow", m.EgressAllow,
		"networks in CIDR notation that registries and chart repositories of modules may be in, although loopback, "+
			"link-local, multicast and metadata addresses and --egress-deny are refused")
	f.StringSliceVar(&m.EgressDeny, "egress-deny", m.EgressDeny,
		"networks in CIDR notation that they must not be in, such as those of the cluster's pods and Services")
	f.DurationVar(&m.RenderTimeout, "render-timeout", m.RenderTimeout,
		"time after which the rendering of a chart or Kustomize directory is stopped")
	f.Int64Var(&m.RenderMemoryLimit, "render-memory-limit", m.RenderMemoryLimit,
		"memory in bytes that such a rendering may use, next to that of the manager; one runs at a time")
	f.IntVar(&m.RolloutMaxUpdating, "rollout-max-updating", m.RolloutMaxUpdating,
		"maximum number of runtimes that all rollouts with stages update at the same time; 0: only the policies limit it")
	f.StringSliceVar(&m.RolloutGateAllow, "rollout-gate-allow", m.RolloutGateAllow,
		"prefixes of addresses that gates of rollouts may call, separated by commas")
	f.Int64Var(&m.BundleCacheBytes, "bundle-cache-bytes", m.BundleCacheBytes, "memory for rendered modules in bytes")
	f.StringVar(&m.LocalSources, "local-sources", m.LocalSources,
		"folder with the directories that Manifests may use as sources of type kustomize; empty: no such sources")
	f.StringVar(&m.SKRImagePullSecret, "skr-image-pull-secret", m.SKRImagePullSecret,
		"Secret in --namespace that is copied to every runtime, where modules pull their images with it")
	f.BoolVar(&m.CustomStateCheck, "custom-state-check", m.CustomStateCheck,
		"make a module Ready only when its custom resource is Ready; an annotation of the Manifest overrides it")
	f.StringVar(&m.AdoptionPolicy, "adoption-policy", m.AdoptionPolicy,
		"default for objects that exist and were made by somebody else: adopt, refuse or take")
	f.StringVar(&m.ControlPlaneServiceAccount, "control-plane-service-account", m.ControlPlaneServiceAccount,
		"ServiceAccount in --namespace with whose rights modules with target control-plane are installed; empty: "+
			"such modules are refused")
	f.StringSliceVar(&m.RestrictedDefaultModules, "restricted-default-modules", m.RestrictedDefaultModules,
		"modules that only Kymas get which their ModuleReleaseMeta selects, separated by commas")
	f.StringVar(&m.MaintenancePolicyConfigmap, "maintenance-policy-configmap", m.MaintenancePolicyConfigmap,
		"ConfigMap in --namespace with the maintenance policy, key policy.json; empty: --maintenance-policy-file")
	f.StringVar(&m.MaintenancePolicyFile, "maintenance-policy-file", m.MaintenancePolicyFile,
		"file with the maintenance policy; without the file there is no policy")
	f.DurationVar(&m.MinMaintenanceWindowSize, "min-maintenance-window-size", m.MinMaintenanceWindowSize,
		"how much of a maintenance window must be left for an update to start")
	f.DurationVar(&m.CatalogSpread, "catalog-spread", m.CatalogSpread,
		"time over which Kymas are enqueued when a change concerns many of them; less if it concerns few")
	f.DurationVar(&m.PurgeGracePeriod, "purge-grace-period", m.PurgeGracePeriod,
		"time from the deletion of a Kyma's modules after which its runtime is purged, including custom resources "+
			"of users; 0 is never")
	f.DurationVar(&m.DeletionDeadline, "deletion-deadline", m.DeletionDeadline,
		"how long the runtime of a Kyma that is being deleted may be unreachable before the Kyma is deleted and a "+
			"tombstone left; 0 is no deadline")
	f.StringSliceVar(&m.SkipFinalizerPurgingFor, "skip-finalizer-purging-for", m.SkipFinalizerPurgingFor,
		"kinds whose custom resources are never purged: plural.group or kind.group; * matches any text")
	f.DurationVar(&m.OrphanSweepInterval, "orphan-sweep-interval", m.OrphanSweepInterval,
		"interval of the search for orphaned objects, over which the runtimes are spread; 0 is never")
	f.BoolVar(&m.OrphanCleanup, "orphan-cleanup", m.OrphanCleanup,
		"delete objects that are certainly orphaned, instead of only reporting them")
	f.DurationVar(&m.PollInterval, "poll-interval", m.PollInterval,
		"how often a runtime that is not watched, or whose agent is not connected, is reconciled")
	m.registerBackChannel(f)
	f.DurationVar(&m.AuditInterval, "audit-interval", m.AuditInterval,
		"how often every object of a module is compared with its desired state, in a runtime that is not watched and "+
			"whose agent is not connected")
	f.DurationVar(&m.WatchedAuditInterval, "watched-audit-interval", m.WatchedAuditInterval,
		"--audit-interval of a runtime that is watched or whose agent is connected")
	f.DurationVar(&m.RuntimeTimeout, "runtime-timeout", m.RuntimeTimeout, "deadline of one request to a runtime")
	f.IntVar(&m.RuntimeConcurrency, "runtime-concurrency", m.RuntimeConcurrency,
		"requests to one runtime at the same time")
	f.Int64Var(&m.RuntimeMemoryLimit, "runtime-memory-limit", m.RuntimeMemoryLimit,
		"memory in bytes that the answers of one runtime may need at once; larger ones are refused")
	f.StringVar(&m.ExitAfterStep, "exit-after-step", m.ExitAfterStep,
		"for tests of faults: CONTROLLER/STEP[:N] ends the process after this step has run N times")
	_ = f.MarkHidden("exit-after-step") // the flag was added one line above
	m.registerFormerFlagNames(f)
}

// registerFormerFlagNames adds renamed flags under their former names.
func (m *Manager) registerFormerFlagNames(f *pflag.FlagSet) {
	const usage = "former name of another flag"
	f.IntVar(&m.MaxNewRuntimes, "max-concurrent-beginnings", m.MaxNewRuntimes, usage)
	f.IntVar(&m.MaxControlPlaneWritesWhileUrgent, "max-control-plane-writes-behind",
		m.MaxControlPlaneWritesWhileUrgent, usage)
	f.DurationVar(&m.WatchedPollInterval, "listen-interval", m.WatchedPollInterval, usage)
	f.DurationVar(&m.WatchedAuditInterval, "heard-audit-interval", m.WatchedAuditInterval, usage)
	for former, name := range map[string]string{
		"max-concurrent-beginnings":       "max-new-runtimes",
		"max-control-plane-writes-behind": "max-control-plane-writes-while-urgent",
		"listen-interval":                 "watched-poll-interval", "heard-audit-interval": "watched-audit-interval",
	} {
		_ = f.MarkDeprecated(former, "use --"+name) // the flag was added above
	}
}

var moduleName = regexp.MustCompile(`^[a-z]{3,}(-[a-z]{3,})*$`)

var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// registryHost matches the address of a registry, with a domain or a port, and optionally with a scheme and a path.
var registryHost = regexp.MustCompile(
	`^(https?://)?(localhost|[^/@\s]*[.:][^/@\s]*)(/[^@\s]*)?$`)

var endpoint = regexp.MustCompile(`^https?://[^/@\s]+:[0-9]+$`)

var stepName = regexp.MustCompile(`^(kyma|manifest)/[a-z]+(:[1-9][0-9]*)?$`)

// Validate sets those defaults that depend on other fields. Validate returns all errors, each with the name of its
// flag.
func (m *Manager) Validate() error {
	if m.Namespace == "" {
		m.Namespace = "kcp-system"
		if m.Mode == ModeInCluster {
			m.Namespace = "kyma-system"
		}
	}
	var errs []error
	check := func(ok bool, flag, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
		}
	}
	check(m.Mode == ModeControlPlane || m.Mode == ModeInCluster, "mode", "%q is neither control-plane nor in-cluster",
		m.Mode)
	m.defaultAndValidateBackChannel(check)
	check(dnsLabel.MatchString(m.Namespace), "namespace", "%q is not a valid name of a namespace", m.Namespace)
	served := map[string]bool{m.Namespace: true}
	for _, name := range m.WatchNamespaces {
		check(dnsLabel.MatchString(name), "watch-namespaces", "%q is not a valid name of a namespace", name)
		check(!served[name], "watch-namespaces", "namespace %q is served already: remove it from this list", name)
		served[name] = true
	}
	check(len(m.WatchNamespaces) == 0 || m.Mode != ModeInCluster, "watch-namespaces",
		"cannot be used with --mode=in-cluster, which has one runtime")
	check(m.OCIRegistryHost == "" || m.OCIRegistryCredSecret == "", "oci-registry-host",
		"set either this or --oci-registry-cred-secret, not both")
	check(m.OCIRegistryHost != "" || m.OCIRegistryCredSecret != "", "oci-registry-host",
		"set the registry of modules: this flag or --oci-registry-cred-secret")
	check(m.OCIRegistryHost == "" || registryHost.MatchString(m.OCIRegistryHost), "oci-registry-host",
		"%q is not the address of a registry: use HOST.DOMAIN, HOST:PORT or http://HOST:PORT, with a path if needed",
		m.OCIRegistryHost)
	check(m.LogRuntimeLimit >= 0, "log-runtime-limit", "must not be negative")
	check(m.OTLPEndpoint == "" || endpoint.MatchString(m.OTLPEndpoint), "otlp-endpoint",
		"%q is neither http://HOST:PORT nor https://HOST:PORT", m.OTLPEndpoint)
	check(m.TraceRatio >= 0 && m.TraceRatio <= 1, "trace-ratio", "must be from 0 to 1")
	check(m.LeaderElectionRetryPeriod > 0 && m.LeaderElectionRetryPeriod < m.LeaderElectionRenewDeadline,
		"leader-election-retry-period", "must be positive and less than the renew deadline")
	check(m.LeaderElectionRenewDeadline < m.LeaderElectionLeaseDuration, "leader-election-renew-deadline",
		"must be less than the lease duration")
	check(m.Shards == 0 || m.Shards == AllShards, "shards", "%d is neither 0 nor %d", m.Shards, AllShards)
	check(m.Shards == 0 || m.Mode != ModeInCluster, "shards",
		"cannot be used with --mode=in-cluster, which has one runtime")
	check(m.Shards == 0 || m.LeaderElect, "shards",
		"needs --leader-elect, for the work that does not belong to one runtime")
	check(m.PodName == "" || dnsName.MatchString(m.PodName), "pod-name", "%q is not a valid name of a pod", m.PodName)
	check(m.ShardLeaseDuration >= 3*time.Second, "shard-lease-duration", "must be at least 3s")
	check(m.MaxConcurrentKymaReconciles > 0, "max-concurrent-kyma-reconciles", "must be at least 1")
	check(m.MaxConcurrentManifestReconciles > 0, "max-concurrent-manifest-reconciles", "must be at least 1")
	check(m.MaxNewRuntimes > 0, "max-new-runtimes", "must be at least 1")
	check(m.RolloutMaxUpdating >= 0, "rollout-max-updating", "must not be negative")
	check(m.MaxConcurrentWatcherReconciles > 0, "max-concurrent-watcher-reconciles", "must be at least 1")
	check(m.FailureBaseDelay > 0 && m.FailureBaseDelay <= m.FailureMaxDelay, "failure-base-delay",
		"must be positive and at most --failure-max-delay")
	check(m.K8sClientQPS >= 0, "k8s-client-qps", "must not be negative")
	check(m.MaxControlPlaneWrites > 0, "max-control-plane-writes", "must be at least 1")
	check(m.MaxControlPlaneWritesWhileUrgent > 0 && m.MaxControlPlaneWritesWhileUrgent <= m.MaxControlPlaneWrites,
		"max-control-plane-writes-while-urgent", "must be at least 1 and at most --max-control-plane-writes")
	for flag, texts := range map[string][]string{"egress-allow": m.EgressAllow, "egress-deny": m.EgressDeny} {
		for _, text := range texts {
			_, err := parseNetwork(text)
			check(err == nil, flag, "%q is neither a network in CIDR notation nor an address", text)
		}
	}
	check(m.RegistryCacheBytes > 0, "registry-cache-bytes", "must be positive")
	for _, name := range m.RestrictedDefaultModules {
		check(moduleName.MatchString(name), "restricted-default-modules", "%q is not a valid name of a module", name)
	}
	check(m.MaintenancePolicyConfigmap == "" || dnsName.MatchString(m.MaintenancePolicyConfigmap),
		"maintenance-policy-configmap", "%q is not a valid name of a ConfigMap", m.MaintenancePolicyConfigmap)
	check(m.MinMaintenanceWindowSize >= 0, "min-maintenance-window-size", "must not be negative")
	check(slices.Contains([]string{"adopt", "refuse", "take"}, m.AdoptionPolicy), "adoption-policy",
		"must be adopt, refuse or take")
	check(m.ControlPlaneServiceAccount == "" || dnsName.MatchString(m.ControlPlaneServiceAccount),
		"control-plane-service-account", "%q is not a valid name of a ServiceAccount", m.ControlPlaneServiceAccount)
	check(m.ControlPlaneServiceAccount == "" || m.Mode != ModeInCluster, "control-plane-service-account",
		"cannot be used with --mode=in-cluster, where all modules are on the control plane")
	check(m.CatalogSpread >= 0, "catalog-spread", "must not be negative")
	check(m.PurgeGracePeriod >= 0, "purge-grace-period", "must not be negative")
	check(m.DeletionDeadline == 0 || m.DeletionDeadline >= time.Second, "deletion-deadline", "must be 0 or at least 1s")
	check(m.DeletionDeadline == 0 || m.Mode != ModeInCluster, "deletion-deadline",
		"cannot be used with --mode=in-cluster, where the runtime is the control plane")
	for _, pattern := range m.SkipFinalizerPurgingFor {
		_, err := path.Match(pattern, "")
		check(err == nil && pattern != "", "skip-finalizer-purging-for", "%q is not a valid pattern", pattern)
	}
	check(m.OrphanSweepInterval == 0 || m.OrphanSweepInterval >= time.Second, "orphan-sweep-interval",
		"must be 0 or at least 1s")
	check(m.PollInterval >= time.Second, "poll-interval", "must be at least 1s")
	check(m.AuditInterval >= 10*time.Second, "audit-interval", "must be at least 10s")
	check(m.WatchedAuditInterval >= 10*time.Second, "watched-audit-interval", "must be at least 10s")
	check(m.RuntimeTimeout >= time.Second, "runtime-timeout", "must be at least 1s")
	check(m.BundleCacheBytes > 0, "bundle-cache-bytes", "must be at least 1")
	check(m.RuntimeConcurrency > 0, "runtime-concurrency", "must be at least 1")
	check(m.RuntimeMemoryLimit >= 16<<20, "runtime-memory-limit", "%d is less than 16777216 (16 MiB)",
		m.RuntimeMemoryLimit)
	check(m.RenderTimeout >= time.Second, "render-timeout", "must be at least 1s")
	check(m.RenderMemoryLimit >= 64<<20, "render-memory-limit", "%d is less than 67108864 (64 MiB)",
		m.RenderMemoryLimit)
	check(m.ExitAfterStep == "" || stepName.MatchString(m.ExitAfterStep), "exit-after-step",
		"%q is not CONTROLLER/STEP[:N]", m.ExitAfterStep)
	check(isAddressOrZero(m.MetricsBindAddress), "metrics-bind-address",
		"%q is neither host:port nor 0", m.MetricsBindAddress)
	check(isAddressOrZero(m.HealthProbeBindAddress), "health-probe-bind-address",
		"%q is neither host:port nor 0", m.HealthProbeBindAddress)
	check(isAddressOrZero(m.PprofBindAddress), "pprof-bind-address", "%q is neither host:port nor 0",
		m.PprofBindAddress)
	check(m.MemoryTarget == 0 || m.MemoryTarget >= 64<<20, "memory-target",
		"%d is neither 0 nor at least 67108864 (64 MiB)", m.MemoryTarget)
	if m.EnableWebhooks {
		check(m.WebhookBindAddress != "0" && isAddressOrZero(m.WebhookBindAddress), "webhook-bind-address",
			"%q is not host:port", m.WebhookBindAddress)
		check(m.WebhookURL != "" || dnsLabel.MatchString(m.WebhookService), "webhook-service",
			"%q is not a valid name of a Service", m.WebhookService)
		check(m.WebhookURL == "" || strings.HasPrefix(m.WebhookURL, "https://"), "webhook-url",
			"%q does not begin with https://", m.WebhookURL)
	}
	return errors.Join(errs...)
}

// ForNamespaceWithoutServers returns the configuration for one of WatchNamespaces. ForNamespaceWithoutServers disables
// the parts of which a process has only one, because they run with the configuration of Namespace: the servers, the
// conversion webhook, and the listener of agents.
func (m *Manager) ForNamespaceWithoutServers(namespace string) *Manager {
	further := *m
	further.Namespace, further.WatchNamespaces = namespace, nil
	further.MetricsBindAddress, further.HealthProbeBindAddress, further.PprofBindAddress = "0", "0", "0"
	further.EnableWebhooks = false
	further.ControlPlaneServiceAccount = "" // modules of two managers cannot share objects
	further.ListenerAddress, further.ListenerBindAddress, further.KymaSkrListenerBindAddress = "", "0", "0"
	if further.WatchMode == WatchAgent {
		further.WatchMode = WatchHub
	}
	return &further
}

// EgressRules returns the networks of EgressAllow and EgressDeny. The configuration must be valid.
func (m *Manager) EgressRules() (allow, deny []netip.Prefix) {
	for _, text := range m.EgressAllow {
		if n, err := parseNetwork(text); err == nil {
			allow = append(allow, n)
		}
	}
	for _, text := range append([]string{os.Getenv("KUBERNETES_SERVICE_HOST"), m.PodIP}, m.EgressDeny...) {
		if n, err := parseNetwork(text); err == nil {
			deny = append(deny, n)
		}
	}
	return allow, deny
}

// parseNetwork parses a network in CIDR notation, or one address.
func parseNetwork(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Unmap().Prefix(ip.Unmap().BitLen())
	}
	n, err := netip.ParsePrefix(text)
	return n.Masked(), err
}

// isAddressOrZero reports whether s is a host:port, or is "0", which disables the server. The host may be empty.
func isAddressOrZero(s string) bool {
	if s == "0" {
		return true
	}
	_, port, err := net.SplitHostPort(s)
	return err == nil && port != ""
}
