// Package config holds the flags and the environment of every binary: one struct each, registered with [pflag] and validated
// before anything starts.
//
// Use: make a struct with its defaults ([NewManager]), let Register add its flags, parse, then call Validate and show the user
// what it says. No other package reads the environment.
//
// Names: where the Kyma project's lifecycle-manager has a flag for the same thing, ours has the same name and takes the same
// values. A flag is the kebab-case of its field.
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
	// WatchAgent has an agent installed in each runtime, which tells of changes: nothing is asked of a runtime while nothing changes.
	WatchAgent = "agent"
	// WatchHub holds watches on each runtime from the control plane: changes are seen at once, one connection per runtime stays open.
	WatchHub = "hub"
	// WatchPoll holds no watch; each runtime is looked at every --poll-interval.
	WatchPoll = "poll"
)

// AllShards is the value of --shards that has all replicas work.
const AllShards = 64

// Manager is the configuration of cmd/lifecycle-manager.
type Manager struct {
	// Mode is ModeControlPlane (default) or ModeInCluster.
	Mode string
	// Namespace holds Kymas, Manifests, templates and access Secrets. Default: kcp-system, in-cluster kyma-system.
	Namespace string
	// Kubeconfig is the file of the cluster the manager works on. Default: $KUBECONFIG, else the service account of the pod.
	Kubeconfig string
	// LogLevel is the verbosity: 0 (default) says what happened, 1 also what is waited for, 2 everything.
	LogLevel int
	// LogRuntimeLimit is the number of log lines a minute about one runtime; 0 is no limit. Default 60.
	LogRuntimeLimit int
	// OTLPEndpoint is where traces of passes are sent to, http://HOST:PORT or https://HOST:PORT, by OTLP over gRPC. Default empty: nowhere.
	OTLPEndpoint string
	// TraceRatio is the part of all passes that is traced, 0 to 1. Default 1.
	TraceRatio float64

	// MetricsBindAddress serves /metrics over TLS to whoever the API server lets read it; "0" switches it off. Default :8443.
	MetricsBindAddress string
	// MetricsSecure asks for TLS and an authorised token on the metrics endpoint. Default true.
	MetricsSecure bool
	// HealthProbeBindAddress serves /healthz and /readyz; "0" switches it off. Default :8081.
	HealthProbeBindAddress string
	// PprofBindAddress serves Go's profiles to anybody who reaches it, so bind it to loopback; "0" (default) switches it off.
	PprofBindAddress string
	// MemoryTarget is what the process may take before the garbage collector works as much as Go has it, and up to twice that, in bytes, at least 64 MiB: below
	// it, memory is traded for processor time. It is no limit: when half as much again as what lives does not fit, the process takes more. 0 leaves
	// both to Go, that is to $GOGC and $GOMEMLIMIT. Default 1.375 GiB, for 10,000 runtimes.
	MemoryTarget int64
	// RuntimeMetrics adds the metrics with one series per runtime and module. Default true.
	RuntimeMetrics bool

	// EnableWebhooks serves v1alpha1 of Kyma, Manifest and ModuleTemplate too: the manager converts, for the API server. Default false.
	EnableWebhooks bool
	// WebhookBindAddress is where conversions are asked for, over TLS with a certificate of the manager's own. Default :9443.
	WebhookBindAddress string
	// WebhookService is the Service in Namespace by which API servers reach it, on port 443. Default lifecycle-manager-webhook.
	WebhookService string
	// WebhookURL replaces WebhookService where the manager does not run on the cluster: https://HOST[:PORT]/convert.
	WebhookURL string

	// LeaderElect lets several replicas agree on the one that works. Default true.
	LeaderElect bool
	// LeaderElectionLeaseDuration, LeaderElectionRenewDeadline and LeaderElectionRetryPeriod time the lease. The lease is given
	// up on exit, so that they matter only when the manager is killed. Defaults 15 s, 10 s, 2 s.
	LeaderElectionLeaseDuration time.Duration
	LeaderElectionRenewDeadline time.Duration
	LeaderElectionRetryPeriod   time.Duration

	// Shards is 0 (default): one replica works, the leader; or 64: all replicas work, each on the runtimes of some of 64 shards. It is the same
	// for all replicas. Not with ModeInCluster.
	Shards int
	// ShardLeaseDuration is how long other replicas wait for one that was killed before they take its shards over, at least 3 s. A replica renews its
	// Lease three times as often. Default 12 s.
	ShardLeaseDuration time.Duration

	// MaxConcurrentKymaReconciles is the number of Kymas worked on at the same time. Default 64: they mostly wait for answers.
	MaxConcurrentKymaReconciles int
	// MaxConcurrentManifestReconciles is the number of Manifests worked on at the same time. Default 128.
	MaxConcurrentManifestReconciles int
	// MaxConcurrentBeginnings is the number of runtimes that get their modules for the first time at the same time, and of those that lose all of them;
	// others wait for their turn. One that takes longer than a minute counts no more. Default 128.
	MaxConcurrentBeginnings int
	// MaxConcurrentWatcherReconciles is the number of Watchers worked on at the same time. Default 4.
	MaxConcurrentWatcherReconciles int
	// FailureBaseDelay and FailureMaxDelay bound the back-off after an error. Defaults 250 ms, 5 m.
	FailureBaseDelay time.Duration
	FailureMaxDelay  time.Duration
	// K8sClientQPS limits requests per second to the control plane; 0 is no limit but the server's own. Default 0.
	K8sClientQPS float32
	// MaxControlPlaneWrites is the number of writes to the control plane that are under way at the same time, beside those that a person waits for. Default 16.
	MaxControlPlaneWrites int
	// MaxControlPlaneWritesBehind is the same while a person waits for something, at most MaxControlPlaneWrites. Default 2.
	MaxControlPlaneWritesBehind int

	// OCIRegistryHost is the registry of modules: host[:port], http:// in front of it for plain HTTP.
	OCIRegistryHost string
	// OCIRegistryCredSecret names a Secret of type kubernetes.io/dockerconfigjson in Namespace; its single entry says registry and login.
	OCIRegistryCredSecret string
	// ModulesRepositorySubpath is put between registry and component-descriptors. Default empty.
	ModulesRepositorySubpath string
	// RegistryCacheBytes bounds the memory for artefacts. Default 256 MiB.
	RegistryCacheBytes int64
	// TrustPolicy is the file that says what has to be signed, and by whom; it is read again when it changes. Default empty: nothing.
	TrustPolicy string

	// BundleCacheBytes bounds the memory for rendered modules, shared by all runtimes. Default 128 MiB.
	BundleCacheBytes int64
	// LocalSources is a folder of which Manifests may name folders as sources of type kustomize. Default empty: none.
	LocalSources string
	// SKRImagePullSecret names a Secret in Namespace that every runtime gets, and that workloads of modules pull images with. Default empty: none.
	SKRImagePullSecret string
	// CustomStateCheck says that a module is Ready only when its custom resource is, where the Manifest does not say otherwise. Default true.
	CustomStateCheck bool

	// RestrictedDefaultModules are modules that are only for Kymas that spec.kymaSelector of their ModuleReleaseMeta selects. Default none.
	RestrictedDefaultModules []string
	// MaintenancePolicyConfigmap names a ConfigMap in Namespace with the maintenance policy under the key policy.json. Default empty: the
	// policy is in MaintenancePolicyFile.
	MaintenancePolicyConfigmap string
	// MaintenancePolicyFile has the maintenance policy; it is read again when it changes. It may be missing: then there is none, and updates that
	// need a downtime have to be told not to wait. Default /etc/maintenance-policy/policy.json.
	MaintenancePolicyFile string
	// MinMaintenanceWindowSize is how much of a maintenance window has to be left for an update to start. Default 20 m.
	MinMaintenanceWindowSize time.Duration
	// CatalogSpread is the time over which a change that concerns many runtimes, such as a new version in the catalog, is spread. The change
	// reaches runtimes that use it at once, and few runtimes are done sooner. Many may take longer: only a few have their turn at a time. Default 30 s.
	CatalogSpread time.Duration

	// PurgeGracePeriod is how long the deletion of a Kyma may take before what was deployed to its runtime is purged, from when its modules are
	// asked to go; 0 is never. Default 5 m.
	PurgeGracePeriod time.Duration
	// DeletionDeadline is how long the runtime of a Kyma that is being deleted may be out of reach, at least 1 s; then the deletion is given
	// up, with a tombstone that finishes it if the runtime comes back. 0 (default) is never. Not with ModeInCluster.
	DeletionDeadline time.Duration
	// SkipFinalizerPurgingFor are patterns for kinds whose custom resources are never purged: plural.group or kind.group, with * for any
	// text. Default none.
	SkipFinalizerPurgingFor []string
	// OrphanSweepInterval is how often it is looked for what belongs to nobody, in the control plane and in every runtime; 0 is never. Sweeps of a
	// fleet are spread over it. Default 24 h.
	OrphanSweepInterval time.Duration
	// OrphanCleanup deletes what certainly belongs to nobody, instead of telling only. Default false.
	OrphanCleanup bool

	// WatchMode is WatchAgent, WatchHub or WatchPoll. Default: WatchAgent if ListenerAddress is given, else WatchHub.
	WatchMode string
	// PollInterval is how often a runtime that is not watched, or whose agent is not heard, is looked at. Default 1 m.
	PollInterval time.Duration
	// PollBudget is the number of such looks per second; if there are more runtimes, each is looked at less often. Default 500; 0 is no limit.
	PollBudget int
	// ListenInterval is how often a runtime that is watched, or whose agent is heard, is looked at all the same. Default 6 h.
	ListenInterval time.Duration
	// AuditInterval is how often every object of a module is compared with what it should be, in a runtime that is not heard, and for a module
	// with Secrets, of which agents do not tell. Audits of a fleet are spread over it. Default 1 h.
	AuditInterval time.Duration
	// HeardAuditInterval is the same for a runtime that is watched, or whose agent is heard. It costs a request for each object. Default 12 h:
	// with five modules of ten objects, a request in twelve minutes.
	HeardAuditInterval time.Duration
	// RuntimeTimeout is the deadline of one request to a runtime. Default 15 s.
	RuntimeTimeout time.Duration
	// RuntimeConcurrency is the number of requests to one runtime at the same time. Default 8.
	RuntimeConcurrency int

	// ListenerAddress is host:port by which agents reach the listener. Needed with WatchAgent.
	ListenerAddress string
	// ListenerBindAddress is where the listener is, over TLS with client certificates. Default :8445; "0" switches it off.
	ListenerBindAddress string
	// KymaSkrListenerBindAddress is where it is behind an ingress that ends TLS, over plain HTTP; needs ListenerForwardedFrom. Default "0": nowhere.
	KymaSkrListenerBindAddress string
	// ListenerForwardedFrom are the networks of that ingress, in CIDR notation: only from there a forwarded client certificate is believed.
	ListenerForwardedFrom []string
	// ListenerPeers are the common names in the certificates of ingresses that may forward client certificates over TLS. Default none.
	ListenerPeers []string
	// HeartbeatInterval is the time between two heartbeats of an agent. One that was not heard for three of them is not heard. Default 30 s.
	HeartbeatInterval time.Duration
	// HeartbeatBudget is the number of heartbeats per second that agents send in whose runtimes nothing happens, to one replica. When there are so many
	// runtimes that this is less than one for each HeartbeatInterval, the agents are told to wait longer, up to an hour, and to hang up meanwhile. One that
	// has been told to wait is not heard after that time and three HeartbeatIntervals. Default 12, which is 833 s with 10,000 runtimes; 0 is no limit.
	HeartbeatBudget int
	// IstioGatewayNamespace holds the Istio gateways that Watchers select. Default Namespace; another one needs rights there.
	IstioGatewayNamespace string
	// SkrWatcherImageRegistry, SkrWatcherImageName and SkrWatcherImageTag are the image of the agent. Defaults: none, runtime-watcher, the
	// manager's own version.
	SkrWatcherImageRegistry string
	SkrWatcherImageName     string
	SkrWatcherImageTag      string
	// SkrWebhookMemoryLimits and SkrWebhookCpuLimits limit the agent. Defaults 200Mi, 100m.
	SkrWebhookMemoryLimits string
	SkrWebhookCPULimits    string
	// CertManagement is empty for an authority of our own (default), or cert-manager.io/v1.
	CertManagement string
	// SelfSignedCertDuration is how long the certificate of an agent is valid. Default 168 h, with cert-manager 1440 h.
	SelfSignedCertDuration time.Duration
	// SelfSignedCertIssuerName names the Issuer in Namespace that cert-manager uses. Default klm-watcher-selfsigned.
	SelfSignedCertIssuerName string
	// AdditionalDNSNames are added to the certificates of agents. Default none.
	AdditionalDNSNames []string

	// PodIP is where other replicas reach this one. It is $POD_IP.
	PodIP string
	// PodName tells replicas apart: no two that run at the same time may have the same. One that was killed and runs again under its name is the
	// leader at once if it was before, where others wait for LeaderElectionLeaseDuration. Default $POD_NAME; without it, a name that no other has.
	PodName string

	// ExitAfterStep is for tests of faults, and hidden: CONTROLLER/STEP[:N] ends the process at once, as a kill would, after the N-th time (1)
	// that this step of controller kyma or manifest ran. Default empty: never.
	ExitAfterStep string
}

// NewManager returns the defaults.
func NewManager() *Manager {
	return &Manager{
		Mode:                            ModeControlPlane,
		Kubeconfig:                      os.Getenv("KUBECONFIG"),
		PodIP:                           os.Getenv("POD_IP"),
		PodName:                         os.Getenv("POD_NAME"),
		LogRuntimeLimit:                 60,
		TraceRatio:                      1,
		MetricsBindAddress:              ":8443",
		MetricsSecure:                   true,
		HealthProbeBindAddress:          ":8081",
		PprofBindAddress:                "0",
		MemoryTarget:                    1408 << 20,
		RuntimeMetrics:                  true,
		WebhookBindAddress:              ":9443",
		WebhookService:                  "lifecycle-manager-webhook",
		LeaderElect:                     true,
		LeaderElectionLeaseDuration:     15 * time.Second,
		LeaderElectionRenewDeadline:     10 * time.Second,
		LeaderElectionRetryPeriod:       2 * time.Second,
		ShardLeaseDuration:              12 * time.Second,
		MaxConcurrentKymaReconciles:     64,
		MaxConcurrentManifestReconciles: 128,
		MaxConcurrentBeginnings:         128,
		MaxConcurrentWatcherReconciles:  4,
		MaxControlPlaneWrites:           16,
		MaxControlPlaneWritesBehind:     2,
		FailureBaseDelay:                250 * time.Millisecond,
		FailureMaxDelay:                 5 * time.Minute,
		RegistryCacheBytes:              256 << 20,
		BundleCacheBytes:                128 << 20,
		CustomStateCheck:                true,
		MaintenancePolicyFile:           "/etc/maintenance-policy/policy.json",
		MinMaintenanceWindowSize:        20 * time.Minute,
		CatalogSpread:                   30 * time.Second,
		PurgeGracePeriod:                5 * time.Minute,
		OrphanSweepInterval:             24 * time.Hour,
		PollBudget:                      500,
		ListenInterval:                  6 * time.Hour,
		PollInterval:                    time.Minute,
		AuditInterval:                   time.Hour,
		HeardAuditInterval:              12 * time.Hour,
		RuntimeTimeout:                  15 * time.Second,
		RuntimeConcurrency:              8,
		ListenerBindAddress:             ":8445",
		KymaSkrListenerBindAddress:      "0",
		HeartbeatInterval:               30 * time.Second,
		HeartbeatBudget:                 12,
		SkrWatcherImageName:             "runtime-watcher",
		SkrWatcherImageTag:              Version,
		SkrWebhookMemoryLimits:          "200Mi",
		SkrWebhookCPULimits:             "100m",
		SelfSignedCertIssuerName:        "klm-watcher-selfsigned",
	}
}

// Register adds a flag for every field, with the field's value as default.
func (m *Manager) Register(f *pflag.FlagSet) {
	f.StringVar(&m.Mode, "mode", m.Mode, "control-plane: runtimes are reached by access Secrets; in-cluster: modules are installed on this cluster")
	f.StringVar(&m.Namespace, "namespace", m.Namespace, "namespace of Kymas, Manifests, templates and access Secrets (default kcp-system; in-cluster kyma-system)")
	f.StringVar(&m.Kubeconfig, "kubeconfig", m.Kubeconfig, "kubeconfig of the cluster to work on (default: $KUBECONFIG, else the pod's service account)")
	f.IntVar(&m.LogLevel, "log-level", m.LogLevel, "verbosity: 0 what happened, 1 what is waited for, 2 everything")
	f.IntVar(&m.LogRuntimeLimit, "log-runtime-limit", m.LogRuntimeLimit, "log lines a minute about one runtime; 0 is no limit")
	f.StringVar(&m.OTLPEndpoint, "otlp-endpoint", m.OTLPEndpoint, "where traces of passes are sent to by OTLP over gRPC: http://HOST:PORT or https://HOST:PORT; empty: nowhere")
	f.Float64Var(&m.TraceRatio, "trace-ratio", m.TraceRatio, "part of all passes that is traced, 0 to 1")
	f.StringVar(&m.MetricsBindAddress, "metrics-bind-address", m.MetricsBindAddress, "address of /metrics; 0 switches it off")
	f.BoolVar(&m.MetricsSecure, "metrics-secure", m.MetricsSecure, "serve metrics over TLS and only to who may GET /metrics")
	f.StringVar(&m.HealthProbeBindAddress, "health-probe-bind-address", m.HealthProbeBindAddress, "address of /healthz and /readyz; 0 switches it off")
	f.StringVar(&m.PprofBindAddress, "pprof-bind-address", m.PprofBindAddress, "address of Go's profiles, for anybody who reaches it; 0 switches it off")
	f.Int64Var(&m.MemoryTarget, "memory-target", m.MemoryTarget, "memory in bytes below which less processor time goes into collecting garbage; no limit; 0 leaves it to $GOGC and $GOMEMLIMIT")
	f.BoolVar(&m.RuntimeMetrics, "runtime-metrics", m.RuntimeMetrics, "serve the metrics with one series per runtime and module")
	f.BoolVar(&m.EnableWebhooks, "enable-webhooks", m.EnableWebhooks, "serve v1alpha1 of Kyma, Manifest and ModuleTemplate too")
	f.StringVar(&m.WebhookBindAddress, "webhook-bind-address", m.WebhookBindAddress, "address at which API servers ask for conversions")
	f.StringVar(&m.WebhookService, "webhook-service", m.WebhookService, "Service in --namespace by which API servers reach --webhook-bind-address, on port 443")
	f.StringVar(&m.WebhookURL, "webhook-url", m.WebhookURL, "instead of --webhook-service: https://HOST[:PORT]/convert")
	f.BoolVar(&m.LeaderElect, "leader-elect", m.LeaderElect, "agree with other replicas on the one that works")
	f.DurationVar(&m.LeaderElectionLeaseDuration, "leader-election-lease-duration", m.LeaderElectionLeaseDuration, "how long others wait for a leader that was killed")
	f.DurationVar(&m.LeaderElectionRenewDeadline, "leader-election-renew-deadline", m.LeaderElectionRenewDeadline, "how long the leader tries to renew before it gives up; less than the lease")
	f.DurationVar(&m.LeaderElectionRetryPeriod, "leader-election-retry-period", m.LeaderElectionRetryPeriod, "how often replicas try")
	f.IntVar(&m.Shards, "shards", m.Shards, "0: one replica works; 64: all replicas work, each on the runtimes of some of 64 shards")
	f.StringVar(&m.PodName, "pod-name", m.PodName, "name of this replica, which no other that runs has, in Leases and, with --shards, in the user agent of its requests; who was killed as leader leads at once under the same name (default $POD_NAME)")
	f.DurationVar(&m.ShardLeaseDuration, "shard-lease-duration", m.ShardLeaseDuration, "how long other replicas wait for one that was killed, with --shards")
	f.IntVar(&m.MaxConcurrentKymaReconciles, "max-concurrent-kyma-reconciles", m.MaxConcurrentKymaReconciles, "Kymas worked on at the same time")
	f.IntVar(&m.MaxConcurrentManifestReconciles, "max-concurrent-manifest-reconciles", m.MaxConcurrentManifestReconciles, "Manifests worked on at the same time")
	f.IntVar(&m.MaxConcurrentBeginnings, "max-concurrent-beginnings", m.MaxConcurrentBeginnings, "runtimes that get their modules for the first time at the same time, and as many that lose all of them; others wait for their turn")
	f.IntVar(&m.MaxConcurrentWatcherReconciles, "max-concurrent-watcher-reconciles", m.MaxConcurrentWatcherReconciles, "Watchers worked on at the same time")
	f.DurationVar(&m.FailureBaseDelay, "failure-base-delay", m.FailureBaseDelay, "first delay after an error; it doubles")
	f.DurationVar(&m.FailureMaxDelay, "failure-max-delay", m.FailureMaxDelay, "longest delay after an error")
	f.Float32Var(&m.K8sClientQPS, "k8s-client-qps", m.K8sClientQPS, "requests per second to the control plane; 0 is no limit but the server's own")
	f.IntVar(&m.MaxControlPlaneWrites, "max-control-plane-writes", m.MaxControlPlaneWrites, "writes to the control plane that are under way at the same time, beside those that a person waits for")
	f.IntVar(&m.MaxControlPlaneWritesBehind, "max-control-plane-writes-behind", m.MaxControlPlaneWritesBehind, "the same while a person waits for something")
	f.StringVar(&m.OCIRegistryHost, "oci-registry-host", m.OCIRegistryHost, "registry of modules, host[:port]; http:// in front for plain HTTP")
	f.StringVar(&m.OCIRegistryCredSecret, "oci-registry-cred-secret", m.OCIRegistryCredSecret, "Secret of type kubernetes.io/dockerconfigjson that names registry and login")
	f.StringVar(&m.ModulesRepositorySubpath, "modules-repository-subpath", m.ModulesRepositorySubpath, "path in the registry before component-descriptors")
	f.Int64Var(&m.RegistryCacheBytes, "registry-cache-bytes", m.RegistryCacheBytes, "memory for artefacts, in bytes")
	f.StringVar(&m.TrustPolicy, "trust-policy", m.TrustPolicy, "file that says which modules have to be signed, and by which keys; empty: none")
	f.Int64Var(&m.BundleCacheBytes, "bundle-cache-bytes", m.BundleCacheBytes, "memory for rendered modules, in bytes")
	f.StringVar(&m.LocalSources, "local-sources", m.LocalSources, "folder of which Manifests may name folders as sources of type kustomize; empty: none")
	f.StringVar(&m.SKRImagePullSecret, "skr-image-pull-secret", m.SKRImagePullSecret, "Secret in --namespace that every runtime gets, and that modules pull images with")
	f.BoolVar(&m.CustomStateCheck, "custom-state-check", m.CustomStateCheck, "a module is Ready only when its custom resource is; an annotation of the Manifest goes before")
	f.StringSliceVar(&m.RestrictedDefaultModules, "restricted-default-modules", m.RestrictedDefaultModules, "modules that are only for Kymas that their ModuleReleaseMeta selects, separated by commas")
	f.StringVar(&m.MaintenancePolicyConfigmap, "maintenance-policy-configmap", m.MaintenancePolicyConfigmap, "ConfigMap in --namespace with the maintenance policy, key policy.json; empty: --maintenance-policy-file")
	f.StringVar(&m.MaintenancePolicyFile, "maintenance-policy-file", m.MaintenancePolicyFile, "file with the maintenance policy; it may be missing")
	f.DurationVar(&m.MinMaintenanceWindowSize, "min-maintenance-window-size", m.MinMaintenanceWindowSize, "how much of a maintenance window has to be left for an update to start")
	f.DurationVar(&m.CatalogSpread, "catalog-spread", m.CatalogSpread, "time over which a change that concerns many runtimes is spread; few runtimes are done sooner")
	f.DurationVar(&m.PurgeGracePeriod, "purge-grace-period", m.PurgeGracePeriod, "how long the deletion of a Kyma may take before its runtime is purged, from when its modules are asked to go; 0 is never")
	f.DurationVar(&m.DeletionDeadline, "deletion-deadline", m.DeletionDeadline, "how long the runtime of a Kyma that is being deleted may be out of reach, before the deletion is given up with a tombstone; 0 is for ever")
	f.StringSliceVar(&m.SkipFinalizerPurgingFor, "skip-finalizer-purging-for", m.SkipFinalizerPurgingFor, "kinds whose custom resources are never purged: plural.group or kind.group, * is any text")
	f.DurationVar(&m.OrphanSweepInterval, "orphan-sweep-interval", m.OrphanSweepInterval, "how often it is looked for what belongs to nobody; spread over the fleet; 0 is never")
	f.BoolVar(&m.OrphanCleanup, "orphan-cleanup", m.OrphanCleanup, "delete what certainly belongs to nobody, instead of telling only")
	f.DurationVar(&m.PollInterval, "poll-interval", m.PollInterval, "how often a runtime that is not watched is looked at")
	m.registerBackChannel(f)
	f.DurationVar(&m.AuditInterval, "audit-interval", m.AuditInterval, "how often every object of a module is compared with what it should be, in a runtime that is not heard; spread over the fleet")
	f.DurationVar(&m.HeardAuditInterval, "heard-audit-interval", m.HeardAuditInterval, "the same in a runtime that is watched, or whose agent is heard")
	f.DurationVar(&m.RuntimeTimeout, "runtime-timeout", m.RuntimeTimeout, "deadline of one request to a runtime")
	f.IntVar(&m.RuntimeConcurrency, "runtime-concurrency", m.RuntimeConcurrency, "requests to one runtime at the same time")
	f.StringVar(&m.ExitAfterStep, "exit-after-step", m.ExitAfterStep, "for tests of faults: CONTROLLER/STEP[:N] ends the process after the N-th time that this step ran")
	_ = f.MarkHidden("exit-after-step") // it was added one line above
}

var moduleName = regexp.MustCompile(`^[a-z]{3,}(-[a-z]{3,})*$`)

var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

var endpoint = regexp.MustCompile(`^https?://[^/@\s]+:[0-9]+$`)

var stepName = regexp.MustCompile(`^(kyma|manifest)/[a-z]+(:[1-9][0-9]*)?$`)

// Validate fills in what depends on other fields and returns every mistake, each naming its flag.
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
	check(m.Mode == ModeControlPlane || m.Mode == ModeInCluster, "mode", "%q is neither control-plane nor in-cluster", m.Mode)
	m.validateBackChannel(check)
	check(dnsLabel.MatchString(m.Namespace), "namespace", "%q is no name of a namespace", m.Namespace)
	check(m.OCIRegistryHost == "" || m.OCIRegistryCredSecret == "", "oci-registry-host", "give either this or --oci-registry-cred-secret, not both")
	check(m.OCIRegistryHost != "" || m.OCIRegistryCredSecret != "", "oci-registry-host", "say where modules are: this, or --oci-registry-cred-secret")
	check(!strings.ContainsAny(m.OCIRegistryHost, " \t\n@"), "oci-registry-host", "%q is no host", m.OCIRegistryHost)
	check(m.LogRuntimeLimit >= 0, "log-runtime-limit", "must not be negative")
	check(m.OTLPEndpoint == "" || endpoint.MatchString(m.OTLPEndpoint), "otlp-endpoint", "%q is neither http://HOST:PORT nor https://HOST:PORT", m.OTLPEndpoint)
	check(m.TraceRatio >= 0 && m.TraceRatio <= 1, "trace-ratio", "must be from 0 to 1")
	check(m.LeaderElectionRetryPeriod > 0 && m.LeaderElectionRetryPeriod < m.LeaderElectionRenewDeadline, "leader-election-retry-period", "must be positive and less than the renew deadline")
	check(m.LeaderElectionRenewDeadline < m.LeaderElectionLeaseDuration, "leader-election-renew-deadline", "must be less than the lease duration")
	check(m.Shards == 0 || m.Shards == AllShards, "shards", "%d is neither 0 nor %d", m.Shards, AllShards)
	check(m.Shards == 0 || m.Mode != ModeInCluster, "shards", "is not for --mode=in-cluster, where there is one runtime")
	check(m.Shards == 0 || m.LeaderElect, "shards", "needs --leader-elect, for the work that is not about one runtime")
	check(m.PodName == "" || dnsName.MatchString(m.PodName), "pod-name", "%q is no name of a pod", m.PodName)
	check(m.ShardLeaseDuration >= 3*time.Second, "shard-lease-duration", "must be at least 3s")
	check(m.MaxConcurrentKymaReconciles > 0, "max-concurrent-kyma-reconciles", "must be at least 1")
	check(m.MaxConcurrentManifestReconciles > 0, "max-concurrent-manifest-reconciles", "must be at least 1")
	check(m.MaxConcurrentBeginnings > 0, "max-concurrent-beginnings", "must be at least 1")
	check(m.MaxConcurrentWatcherReconciles > 0, "max-concurrent-watcher-reconciles", "must be at least 1")
	check(m.FailureBaseDelay > 0 && m.FailureBaseDelay <= m.FailureMaxDelay, "failure-base-delay", "must be positive and at most --failure-max-delay")
	check(m.K8sClientQPS >= 0, "k8s-client-qps", "must not be negative")
	check(m.MaxControlPlaneWrites > 0, "max-control-plane-writes", "must be at least 1")
	check(m.MaxControlPlaneWritesBehind > 0 && m.MaxControlPlaneWritesBehind <= m.MaxControlPlaneWrites, "max-control-plane-writes-behind", "must be at least 1 and at most --max-control-plane-writes")
	check(m.RegistryCacheBytes > 0, "registry-cache-bytes", "must be positive")
	for _, name := range m.RestrictedDefaultModules {
		check(moduleName.MatchString(name), "restricted-default-modules", "%q is no name of a module", name)
	}
	check(m.MaintenancePolicyConfigmap == "" || dnsName.MatchString(m.MaintenancePolicyConfigmap), "maintenance-policy-configmap", "%q is no name of a ConfigMap", m.MaintenancePolicyConfigmap)
	check(m.MinMaintenanceWindowSize >= 0, "min-maintenance-window-size", "must not be negative")
	check(m.CatalogSpread >= 0, "catalog-spread", "must not be negative")
	check(m.PurgeGracePeriod >= 0, "purge-grace-period", "must not be negative")
	check(m.DeletionDeadline == 0 || m.DeletionDeadline >= time.Second, "deletion-deadline", "must be 0 or at least 1s")
	check(m.DeletionDeadline == 0 || m.Mode != ModeInCluster, "deletion-deadline", "is not for --mode=in-cluster, where the runtime is the control plane itself")
	for _, pattern := range m.SkipFinalizerPurgingFor {
		_, err := path.Match(pattern, "")
		check(err == nil && pattern != "", "skip-finalizer-purging-for", "%q is no pattern", pattern)
	}
	check(m.OrphanSweepInterval == 0 || m.OrphanSweepInterval >= time.Second, "orphan-sweep-interval", "must be 0 or at least 1s")
	check(m.PollInterval >= time.Second, "poll-interval", "must be at least 1s")
	check(m.AuditInterval >= 10*time.Second, "audit-interval", "must be at least 10s")
	check(m.HeardAuditInterval >= 10*time.Second, "heard-audit-interval", "must be at least 10s")
	check(m.RuntimeTimeout >= time.Second, "runtime-timeout", "must be at least 1s")
	check(m.BundleCacheBytes > 0, "bundle-cache-bytes", "must be at least 1")
	check(m.RuntimeConcurrency > 0, "runtime-concurrency", "must be at least 1")
	check(m.ExitAfterStep == "" || stepName.MatchString(m.ExitAfterStep), "exit-after-step", "%q is not CONTROLLER/STEP[:N]", m.ExitAfterStep)
	check(isAddress(m.MetricsBindAddress), "metrics-bind-address", "%q is neither host:port nor 0", m.MetricsBindAddress)
	check(isAddress(m.HealthProbeBindAddress), "health-probe-bind-address", "%q is neither host:port nor 0", m.HealthProbeBindAddress)
	check(isAddress(m.PprofBindAddress), "pprof-bind-address", "%q is neither host:port nor 0", m.PprofBindAddress)
	check(m.MemoryTarget == 0 || m.MemoryTarget >= 64<<20, "memory-target", "%d is neither 0 nor at least 67108864 (64 MiB)", m.MemoryTarget)
	if m.EnableWebhooks {
		check(m.WebhookBindAddress != "0" && isAddress(m.WebhookBindAddress), "webhook-bind-address", "%q is not host:port", m.WebhookBindAddress)
		check(m.WebhookURL != "" || dnsLabel.MatchString(m.WebhookService), "webhook-service", "%q is no name of a Service", m.WebhookService)
		check(m.WebhookURL == "" || strings.HasPrefix(m.WebhookURL, "https://"), "webhook-url", "%q does not begin with https://", m.WebhookURL)
	}
	return errors.Join(errs...)
}

// isAddress tells whether s is host:port, with host possibly empty, or "0" for off.
func isAddress(s string) bool {
	if s == "0" {
		return true
	}
	_, port, err := net.SplitHostPort(s)
	return err == nil && port != ""
}
