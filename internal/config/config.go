// Package config holds the flags and the environment of every program: one struct for each, whose fields are flags of
// [pflag], and which is validated before anything starts.
//
// Use: make a struct with its defaults ([NewManager]), add its flags with Register, parse, then call Validate and show
// its error to the user. No other package reads the environment.
//
// Names: a flag is the kebab-case of its field. Where the lifecycle-manager of the Kyma project has a flag for the same
// thing, ours has the same name and takes the same values. A flag that was renamed is accepted under its former name
// too, as deprecated.
package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Modes of the manager, values of --mode.
const (
	// ModeControlPlane serves runtimes that are reached by access Secrets.
	ModeControlPlane = "control-plane"
	// ModeInCluster serves the cluster that the manager runs on, which needs no Secret.
	ModeInCluster = "in-cluster"
)

// Watch modes of the manager, values of --watch-mode.
const (
	// WatchAgent installs an agent in each runtime, which reports changes: the manager makes no requests to a runtime
	// while nothing changes.
	WatchAgent = "agent"
	// WatchHub holds watches on each runtime from the control plane: changes are noticed at once, one connection for
	// each runtime stays open.
	WatchHub = "hub"
	// WatchPoll holds no watch; each runtime is reconciled every --poll-interval.
	WatchPoll = "poll"
)

// AllShards is the value of --shards with which all replicas reconcile.
const AllShards = 64

// Manager is the configuration of cmd/lifecycle-manager.
type Manager struct {
	// Mode is ModeControlPlane (default) or ModeInCluster.
	Mode string
	// Namespace holds Kymas, Manifests, templates and access Secrets. Default: kcp-system, in-cluster kyma-system.
	Namespace string
	// Kubeconfig is the file of the cluster the manager works on. Default: $KUBECONFIG, else the service account of the
	// pod.
	Kubeconfig string
	// LogLevel is the verbosity: 0 (default) logs what happened, 1 also what reconciles wait for, 2 everything.
	LogLevel int
	// LogRuntimeLimit is the number of log lines a minute about one runtime; 0 is no limit. Default 60.
	LogRuntimeLimit int
	// OTLPEndpoint receives the traces of reconciles: http://HOST:PORT or https://HOST:PORT, by OTLP over gRPC. Default
	// empty: no traces.
	OTLPEndpoint string
	// TraceRatio is the share of all reconciles that are traced, 0 to 1. Default 1.
	TraceRatio float64

	// MetricsBindAddress is the address of /metrics; "0" switches it off. Default :8443.
	MetricsBindAddress string
	// MetricsSecure serves /metrics over TLS, and only to clients that the API server allows to read it. Default true.
	MetricsSecure bool
	// HealthProbeBindAddress serves /healthz and /readyz; "0" switches it off. Default :8081.
	HealthProbeBindAddress string
	// PprofBindAddress is the address of Go's profiles. They are served to every client that reaches it, so bind it to
	// loopback; "0" (default) switches it off.
	PprofBindAddress string
	// MemoryTarget is the memory of the process, in bytes, below which the garbage collector works less than Go's
	// default, to save processor time; at least 64 MiB. Between once and twice the target it works more and more. It is
	// no limit: if the live objects and half as much again do not fit, the process takes more. 0 leaves the collector
	// to $GOGC and $GOMEMLIMIT. Default 1.375 GiB, for 10,000 runtimes.
	MemoryTarget int64
	// RuntimeMetrics serves the metrics with one series for each runtime and module. Default true.
	RuntimeMetrics bool

	// EnableWebhooks runs the webhook that converts Kyma, Manifest and ModuleTemplate from and to v1alpha1. Default
	// false.
	EnableWebhooks bool
	// WebhookBindAddress is the address of that webhook, over TLS with a certificate that the manager makes. Default
	// :9443.
	WebhookBindAddress string
	// WebhookService is the Service in Namespace by which API servers reach the webhook, on port 443. Default
	// lifecycle-manager-webhook.
	WebhookService string
	// WebhookURL replaces WebhookService where the manager does not run on the cluster: https://HOST[:PORT]/convert.
	WebhookURL string

	// LeaderElect makes several replicas elect a leader. Default true.
	LeaderElect bool
	// LeaderElectionLeaseDuration, LeaderElectionRenewDeadline and LeaderElectionRetryPeriod are the times of leader
	// election, as in controller-runtime. The Lease is released on exit, so they matter only when the manager is
	// killed. Defaults 15 s, 10 s, 2 s.
	LeaderElectionLeaseDuration time.Duration
	LeaderElectionRenewDeadline time.Duration
	LeaderElectionRetryPeriod   time.Duration

	// Shards is 0 (default): only the leader reconciles; or 64: all replicas reconcile, each the runtimes of some of 64
	// shards. All replicas must have the same value. Not with ModeInCluster.
	Shards int
	// ShardLeaseDuration is how long other replicas wait before they take over the shards of one that was killed, at
	// least 3 s. A replica renews its Lease three times as often. Default 12 s.
	ShardLeaseDuration time.Duration

	// MaxConcurrentKymaReconciles is the number of Kymas that are reconciled at the same time. Default 64: most of the
	// time they wait for answers.
	MaxConcurrentKymaReconciles int
	// MaxConcurrentManifestReconciles is the number of Manifests that are reconciled at the same time. Default 128.
	MaxConcurrentManifestReconciles int
	// MaxNewRuntimes is the number of runtimes that get their first modules at the same time, and also the number of
	// runtimes that lose all modules at the same time. The others wait to be admitted. A runtime that takes longer than
	// a minute is not counted. Default 128.
	MaxNewRuntimes int
	// MaxConcurrentWatcherReconciles is the number of Watchers that are reconciled at the same time. Default 4.
	MaxConcurrentWatcherReconciles int
	// FailureBaseDelay and FailureMaxDelay are the first and the longest delay after an error. Defaults 250 ms, 5 m.
	FailureBaseDelay time.Duration
	FailureMaxDelay  time.Duration
	// K8sClientQPS limits requests per second to the control plane; 0 is no limit but the server's own. Default 0.
	K8sClientQPS float32
	// MaxControlPlaneWrites is the number of concurrent writes to the control plane. Writes for a runtime that a person
	// waits for are not counted. Default 16.
	MaxControlPlaneWrites int
	// MaxControlPlaneWritesWhileUrgent is the same limit while a person waits for any runtime, at most
	// MaxControlPlaneWrites. Default 2.
	MaxControlPlaneWritesWhileUrgent int

	// OCIRegistryHost is the registry of modules: host[:port], http:// in front of it for plain HTTP.
	OCIRegistryHost string
	// OCIRegistryCredSecret names a Secret of type kubernetes.io/dockerconfigjson in Namespace. Its only entry has the
	// registry and the login.
	OCIRegistryCredSecret string
	// ModulesRepositorySubpath is put between registry and component-descriptors. Default empty.
	ModulesRepositorySubpath string
	// RegistryCacheBytes limits the memory for artefacts. Default 256 MiB.
	RegistryCacheBytes int64
	// TrustPolicy is the file with the modules that must be signed and the keys for them. It is read again when it
	// changes. Default empty: no module must be signed.
	TrustPolicy string

	// BundleCacheBytes limits the memory for rendered modules, shared by all runtimes. Default 128 MiB.
	BundleCacheBytes int64
	// LocalSources is a folder whose folders Manifests may use as sources of type kustomize. Default empty: no such
	// sources.
	LocalSources string
	// SKRImagePullSecret names a Secret in Namespace that is copied to every runtime, and that workloads of modules
	// pull images with. Default empty: none.
	SKRImagePullSecret string
	// CustomStateCheck makes a module Ready only when its custom resource is. An annotation of the Manifest overrides
	// it. Default true.
	CustomStateCheck bool

	// RestrictedDefaultModules are modules that only Kymas get which spec.kymaSelector of the ModuleReleaseMeta
	// selects. Default none.
	RestrictedDefaultModules []string
	// MaintenancePolicyConfigmap names a ConfigMap in Namespace with the maintenance policy under the key policy.json.
	// Default empty: the policy is in MaintenancePolicyFile.
	MaintenancePolicyConfigmap string
	// MaintenancePolicyFile has the maintenance policy. It is read again when it changes. If it is missing there is no
	// policy, and updates that need a downtime wait until they are requested to start at once. Default
	// /etc/maintenance-policy/policy.json.
	MaintenancePolicyFile string
	// MinMaintenanceWindowSize is how much of a maintenance window must be left for an update to start. Default 20 m.
	MinMaintenanceWindowSize time.Duration
	// CatalogSpread is the time over which the Kymas are enqueued that a change concerns many of, such as a new version
	// in the catalog. If few are concerned it takes less. Runtimes that use a changed module are not delayed by it. It
	// can take longer, because only a part of the workers reconciles for such changes. Default 30 s.
	CatalogSpread time.Duration

	// PurgeGracePeriod is how long the deletion of a Kyma may take, from when its modules are deleted, before what is
	// left in its runtime is purged; 0 is never. Default 5 m.
	PurgeGracePeriod time.Duration
	// DeletionDeadline is how long the runtime of a Kyma that is being deleted may be unreachable, at least 1 s. After
	// that the Kyma is deleted, and a tombstone finishes the deletion if the runtime can be reached again. 0 (default)
	// is no deadline. Not with ModeInCluster.
	DeletionDeadline time.Duration
	// SkipFinalizerPurgingFor are patterns for kinds whose custom resources are never purged: plural.group or
	// kind.group, with * for any text. Default none.
	SkipFinalizerPurgingFor []string
	// OrphanSweepInterval is the interval of the search for orphaned objects, in the control plane and in every
	// runtime; 0 is never. The runtimes of a fleet are spread over it. Default 24 h.
	OrphanSweepInterval time.Duration
	// OrphanCleanup deletes objects that are certainly orphaned, instead of only reporting them. Default false.
	OrphanCleanup bool

	// WatchMode is WatchAgent, WatchHub or WatchPoll. Default: WatchAgent if ListenerAddress is given, else WatchHub.
	WatchMode string
	// PollInterval is how often a runtime is reconciled that is not watched, or whose agent is not connected. Default 1
	// m.
	PollInterval time.Duration
	// PollBudget is the number of such reconciles per second. With more runtimes, each is reconciled less often.
	// Default 500; 0 is no limit.
	PollBudget int
	// WatchedPollInterval is how often a runtime is reconciled, without any event, that is watched or whose agent is
	// connected. Default 6 h.
	WatchedPollInterval time.Duration
	// AuditInterval is how often every object of a module is compared with its desired state, in a runtime that is not
	// watched and whose agent is not connected, and for modules with Secrets, which agents do not report. The audits of
	// a fleet are spread over it. Default 1 h.
	AuditInterval time.Duration
	// WatchedAuditInterval is the same in a runtime that is watched or whose agent is connected. An audit costs a
	// request for each object. Default 12 h: with five modules of ten objects, a request in twelve minutes.
	WatchedAuditInterval time.Duration
	// RuntimeTimeout is the deadline of one request to a runtime. Default 15 s.
	RuntimeTimeout time.Duration
	// RuntimeConcurrency is the number of requests to one runtime at the same time. Default 8.
	RuntimeConcurrency int

	// ListenerAddress is the host:port by which agents reach the listener. Needed with WatchAgent.
	ListenerAddress string
	// ListenerBindAddress is the address of the listener, over TLS with client certificates. Default :8445; "0"
	// switches it off.
	ListenerBindAddress string
	// KymaSkrListenerBindAddress is the address of the listener behind an ingress that ends TLS, over plain HTTP. It
	// needs ListenerForwardedFrom. Default "0": off.
	KymaSkrListenerBindAddress string
	// ListenerForwardedFrom are the networks of that ingress, in CIDR notation: a forwarded client certificate from
	// elsewhere is refused.
	ListenerForwardedFrom []string
	// ListenerPeers are the common names in the certificates of ingresses that may forward client certificates over
	// TLS. Default none.
	ListenerPeers []string
	// HeartbeatInterval is the time between two heartbeats of an agent. An agent is disconnected after three intervals
	// without one. Default 30 s.
	HeartbeatInterval time.Duration
	// HeartbeatBudget is the number of heartbeats per second that one replica gets from agents of runtimes in which
	// nothing happens. If there are too many runtimes for that, agents are instructed to send heartbeats less often, at
	// least one an hour, and to close their connection in between. Such an agent is disconnected after that time and
	// three HeartbeatIntervals. Default 12, which is a heartbeat every 833 s with 10,000 runtimes; 0 is no limit.
	HeartbeatBudget int
	// IstioGatewayNamespace is the namespace of the Istio gateways that Watchers select. Default Namespace; another one
	// needs permissions there.
	IstioGatewayNamespace string
	// SkrWatcherImageRegistry, SkrWatcherImageName and SkrWatcherImageTag are the image of the agent. Defaults: none,
	// runtime-watcher, the manager's own version.
	SkrWatcherImageRegistry string
	SkrWatcherImageName     string
	SkrWatcherImageTag      string
	// SkrWebhookMemoryLimits and SkrWebhookCpuLimits limit the agent. Defaults 200Mi, 100m.
	SkrWebhookMemoryLimits string
	SkrWebhookCPULimits    string
	// CertManagement is the issuer of the certificates of agents: empty (default) for an authority in the manager, or
	// cert-manager.io/v1.
	CertManagement string
	// SelfSignedCertDuration is how long the certificate of an agent is valid. Default 168 h, with cert-manager 1440 h.
	SelfSignedCertDuration time.Duration
	// SelfSignedCertIssuerName names the Issuer in Namespace that cert-manager uses. Default klm-watcher-selfsigned.
	SelfSignedCertIssuerName string
	// AdditionalDNSNames are added to the certificates of agents. Default none.
	AdditionalDNSNames []string

	// PodIP is the address by which other replicas reach this one. Default $POD_IP.
	PodIP string
	// PodName identifies the replica. Two replicas that run at the same time must not have the same name. A leader that
	// was killed and is restarted under the same name leads again at once; with another name it waits for
	// LeaderElectionLeaseDuration. Default $POD_NAME, else a unique name.
	PodName string

	// ExitAfterStep is for tests of faults, and hidden: CONTROLLER/STEP[:N] ends the process at once, as SIGKILL would,
	// after this step of controller kyma or manifest has run N times (default 1). Default empty: never.
	ExitAfterStep string
}

// NewManager returns the defaults.
func NewManager() *Manager {
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
		LeaderElectionLeaseDuration:      15 * time.Second,
		LeaderElectionRenewDeadline:      10 * time.Second,
		LeaderElectionRetryPeriod:        2 * time.Second,
		ShardLeaseDuration:               12 * time.Second,
		MaxConcurrentKymaReconciles:      64,
		MaxConcurrentManifestReconciles:  128,
		MaxNewRuntimes:                   128,
		MaxConcurrentWatcherReconciles:   4,
		MaxControlPlaneWrites:            16,
		MaxControlPlaneWritesWhileUrgent: 2,
		FailureBaseDelay:                 250 * time.Millisecond,
		FailureMaxDelay:                  5 * time.Minute,
		RegistryCacheBytes:               256 << 20,
		BundleCacheBytes:                 128 << 20,
		CustomStateCheck:                 true,
		MaintenancePolicyFile:            "/etc/maintenance-policy/policy.json",
		MinMaintenanceWindowSize:         20 * time.Minute,
		CatalogSpread:                    30 * time.Second,
		PurgeGracePeriod:                 5 * time.Minute,
		OrphanSweepInterval:              24 * time.Hour,
		PollBudget:                       500,
		WatchedPollInterval:              6 * time.Hour,
		PollInterval:                     time.Minute,
		AuditInterval:                    time.Hour,
		WatchedAuditInterval:             12 * time.Hour,
		RuntimeTimeout:                   15 * time.Second,
		RuntimeConcurrency:               8,
		ListenerBindAddress:              ":8445",
		KymaSkrListenerBindAddress:       "0",
		HeartbeatInterval:                30 * time.Second,
		HeartbeatBudget:                  12,
		SkrWatcherImageName:              "runtime-watcher",
		SkrWatcherImageTag:               Version,
		SkrWebhookMemoryLimits:           "200Mi",
		SkrWebhookCPULimits:              "100m",
		SelfSignedCertIssuerName:         "klm-watcher-selfsigned",
	}
}

// Register adds a flag for every field, with the field's value as default.
func (m *Manager) Register(f *pflag.FlagSet) {
	f.StringVar(&m.Mode, "mode", m.Mode,
		"control-plane: runtimes are reached by access Secrets; in-cluster: modules are installed on this cluster")
	f.StringVar(&m.Namespace, "namespace", m.Namespace,
		"namespace of Kymas, Manifests, templates and access Secrets (default kcp-system; in-cluster kyma-system)")
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
		"memory in bytes below which the garbage collector works less to save processor time; no limit; 0 leaves it "+
			"to $GOGC and $GOMEMLIMIT")
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
		"requests per second to the control plane; 0 is no limit but the server's own")
	f.IntVar(&m.MaxControlPlaneWrites, "max-control-plane-writes", m.MaxControlPlaneWrites,
		"concurrent writes to the control plane, not counting those for a runtime that a person waits for")
	f.IntVar(&m.MaxControlPlaneWritesWhileUrgent, "max-control-plane-writes-while-urgent",
		m.MaxControlPlaneWritesWhileUrgent, "the same limit while a person waits for any runtime")
	f.StringVar(&m.OCIRegistryHost, "oci-registry-host", m.OCIRegistryHost,
		"registry of modules, host[:port]; http:// in front for plain HTTP")
	f.StringVar(&m.OCIRegistryCredSecret, "oci-registry-cred-secret", m.OCIRegistryCredSecret,
		"Secret of type kubernetes.io/dockerconfigjson with the registry and the login")
	f.StringVar(&m.ModulesRepositorySubpath, "modules-repository-subpath", m.ModulesRepositorySubpath,
		"path in the registry before component-descriptors")
	f.Int64Var(&m.RegistryCacheBytes, "registry-cache-bytes", m.RegistryCacheBytes, "memory for artefacts in bytes")
	f.StringVar(&m.TrustPolicy, "trust-policy", m.TrustPolicy,
		"file with the modules that must be signed and the keys for them; empty: no module must be signed")
	f.Int64Var(&m.BundleCacheBytes, "bundle-cache-bytes", m.BundleCacheBytes, "memory for rendered modules in bytes")
	f.StringVar(&m.LocalSources, "local-sources", m.LocalSources,
		"folder whose folders Manifests may use as sources of type kustomize; empty: no such sources")
	f.StringVar(&m.SKRImagePullSecret, "skr-image-pull-secret", m.SKRImagePullSecret,
		"Secret in --namespace that is copied to every runtime, and that modules pull images with")
	f.BoolVar(&m.CustomStateCheck, "custom-state-check", m.CustomStateCheck,
		"make a module Ready only when its custom resource is; an annotation of the Manifest overrides it")
	f.StringSliceVar(&m.RestrictedDefaultModules, "restricted-default-modules", m.RestrictedDefaultModules,
		"modules that only Kymas get which their ModuleReleaseMeta selects, separated by commas")
	f.StringVar(&m.MaintenancePolicyConfigmap, "maintenance-policy-configmap", m.MaintenancePolicyConfigmap,
		"ConfigMap in --namespace with the maintenance policy, key policy.json; empty: --maintenance-policy-file")
	f.StringVar(&m.MaintenancePolicyFile, "maintenance-policy-file", m.MaintenancePolicyFile,
		"file with the maintenance policy; without the file there is no policy")
	f.DurationVar(&m.MinMaintenanceWindowSize, "min-maintenance-window-size", m.MinMaintenanceWindowSize,
		"how much of a maintenance window must be left for an update to start")
	f.DurationVar(&m.CatalogSpread, "catalog-spread", m.CatalogSpread,
		"time over which Kymas are enqueued when a change concerns many; if few are concerned it takes less")
	f.DurationVar(&m.PurgeGracePeriod, "purge-grace-period", m.PurgeGracePeriod,
		"how long the deletion of a Kyma may take, from when its modules are deleted, before its runtime is purged; "+
			"0 is never")
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
		"how often a runtime is reconciled that is not watched, or whose agent is not connected")
	m.registerBackChannel(f)
	f.DurationVar(&m.AuditInterval, "audit-interval", m.AuditInterval,
		"how often every object of a module is compared with its desired state, in a runtime that is not watched and "+
			"whose agent is not connected")
	f.DurationVar(&m.WatchedAuditInterval, "watched-audit-interval", m.WatchedAuditInterval,
		"the same in a runtime that is watched or whose agent is connected")
	f.DurationVar(&m.RuntimeTimeout, "runtime-timeout", m.RuntimeTimeout, "deadline of one request to a runtime")
	f.IntVar(&m.RuntimeConcurrency, "runtime-concurrency", m.RuntimeConcurrency,
		"requests to one runtime at the same time")
	f.StringVar(&m.ExitAfterStep, "exit-after-step", m.ExitAfterStep,
		"for tests of faults: CONTROLLER/STEP[:N] ends the process after this step has run N times")
	_ = f.MarkHidden("exit-after-step") // it was added one line above
	m.registerDeprecated(f)
}

// registerDeprecated adds the former names of flags.
func (m *Manager) registerDeprecated(f *pflag.FlagSet) {
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
		_ = f.MarkDeprecated(former, "use --"+name) // it was added above
	}
}

var moduleName = regexp.MustCompile(`^[a-z]{3,}(-[a-z]{3,})*$`)

var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

var endpoint = regexp.MustCompile(`^https?://[^/@\s]+:[0-9]+$`)

var stepName = regexp.MustCompile(`^(kyma|manifest)/[a-z]+(:[1-9][0-9]*)?$`)

// Validate sets the defaults that depend on other fields and returns all errors, each with the name of its flag.
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
	m.validateBackChannel(check)
	check(dnsLabel.MatchString(m.Namespace), "namespace", "%q is not a valid name of a namespace", m.Namespace)
	check(m.OCIRegistryHost == "" || m.OCIRegistryCredSecret == "", "oci-registry-host",
		"set either this or --oci-registry-cred-secret, not both")
	check(m.OCIRegistryHost != "" || m.OCIRegistryCredSecret != "", "oci-registry-host",
		"set the registry of modules: this flag or --oci-registry-cred-secret")
	check(!strings.ContainsAny(m.OCIRegistryHost, " \t\n@"), "oci-registry-host", "%q is not a host", m.OCIRegistryHost)
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
	check(m.MaxConcurrentWatcherReconciles > 0, "max-concurrent-watcher-reconciles", "must be at least 1")
	check(m.FailureBaseDelay > 0 && m.FailureBaseDelay <= m.FailureMaxDelay, "failure-base-delay",
		"must be positive and at most --failure-max-delay")
	check(m.K8sClientQPS >= 0, "k8s-client-qps", "must not be negative")
	check(m.MaxControlPlaneWrites > 0, "max-control-plane-writes", "must be at least 1")
	check(m.MaxControlPlaneWritesWhileUrgent > 0 && m.MaxControlPlaneWritesWhileUrgent <= m.MaxControlPlaneWrites,
		"max-control-plane-writes-while-urgent", "must be at least 1 and at most --max-control-plane-writes")
	check(m.RegistryCacheBytes > 0, "registry-cache-bytes", "must be positive")
	for _, name := range m.RestrictedDefaultModules {
		check(moduleName.MatchString(name), "restricted-default-modules", "%q is not a valid name of a module", name)
	}
	check(m.MaintenancePolicyConfigmap == "" || dnsName.MatchString(m.MaintenancePolicyConfigmap),
		"maintenance-policy-configmap", "%q is not a valid name of a ConfigMap", m.MaintenancePolicyConfigmap)
	check(m.MinMaintenanceWindowSize >= 0, "min-maintenance-window-size", "must not be negative")
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
	check(m.ExitAfterStep == "" || stepName.MatchString(m.ExitAfterStep), "exit-after-step",
		"%q is not CONTROLLER/STEP[:N]", m.ExitAfterStep)
	check(isAddress(m.MetricsBindAddress), "metrics-bind-address",
		"%q is neither host:port nor 0", m.MetricsBindAddress)
	check(isAddress(m.HealthProbeBindAddress), "health-probe-bind-address",
		"%q is neither host:port nor 0", m.HealthProbeBindAddress)
	check(isAddress(m.PprofBindAddress), "pprof-bind-address", "%q is neither host:port nor 0", m.PprofBindAddress)
	check(m.MemoryTarget == 0 || m.MemoryTarget >= 64<<20, "memory-target",
		"%d is neither 0 nor at least 67108864 (64 MiB)", m.MemoryTarget)
	if m.EnableWebhooks {
		check(m.WebhookBindAddress != "0" && isAddress(m.WebhookBindAddress), "webhook-bind-address",
			"%q is not host:port", m.WebhookBindAddress)
		check(m.WebhookURL != "" || dnsLabel.MatchString(m.WebhookService), "webhook-service",
			"%q is not a valid name of a Service", m.WebhookService)
		check(m.WebhookURL == "" || strings.HasPrefix(m.WebhookURL, "https://"), "webhook-url",
			"%q does not begin with https://", m.WebhookURL)
	}
	return errors.Join(errs...)
}

// isAddress reports whether s is host:port, with host possibly empty, or "0" for off.
func isAddress(s string) bool {
	if s == "0" {
		return true
	}
	_, port, err := net.SplitHostPort(s)
	return err == nil && port != ""
}
