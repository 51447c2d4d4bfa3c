package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestEveryFieldHasItsFlag(t *testing.T) {
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	DefaultManager().Register(flags)
	words := regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
	fields := reflect.TypeFor[Manager]()
	for field := range fields.Fields() {
		name := strings.ToLower(words.ReplaceAllString(field.Name, "$1$3-$2$4"))
		if flags.Lookup(name) == nil {
			t.Errorf("field %s has no flag --%s", field.Name, name)
		}
	}
	count := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Deprecated == "" {
			count++
		}
	})
	if count != fields.NumField() {
		t.Errorf("%d flags for %d fields", count, fields.NumField())
	}
}

func TestValidate(t *testing.T) {
	good := func() *Manager {
		m := DefaultManager()
		m.OCIRegistryHost = "registry.example.com"
		return m
	}
	cases := map[string]struct {
		reason string
		edit   func(*Manager)
		want   string // flag in the error; "" for no error
	}{
		"Defaults":  {"the defaults and a registry are enough", func(*Manager) {}, ""},
		"InCluster": {"in-cluster has its own namespace", func(m *Manager) { m.Mode = ModeInCluster }, ""},
		"CredSecret": {"the Secret names the registry",
			func(m *Manager) { m.OCIRegistryHost, m.OCIRegistryCredSecret = "", "s" }, ""},
		"NoRegistry": {"modules come from somewhere", func(m *Manager) { m.OCIRegistryHost = "" },
			"--oci-registry-host"},
		"TwoRegistries": {"and only from one place", func(m *Manager) { m.OCIRegistryCredSecret = "s" },
			"--oci-registry-host"},
		"RegistryName": {"a name without domain and port is a path elsewhere",
			func(m *Manager) { m.OCIRegistryHost = "x" }, "--oci-registry-host"},
		"RegistryPath": {"a path is allowed", func(m *Manager) { m.OCIRegistryHost = "https://r.example.com/a/b" }, ""},
		"RegistryPort": {"http, too", func(m *Manager) { m.OCIRegistryHost = "http://registry:5000" }, ""},
		"RegistryIPv6": {"and brackets", func(m *Manager) { m.OCIRegistryHost = "[::1]:5000" }, ""},
		"RegistryUser": {"credentials are in a Secret", func(m *Manager) { m.OCIRegistryHost = "a@r.example.com" },
			"--oci-registry-host"},
		"Mode":       {"there are two modes", func(m *Manager) { m.Mode = "x" }, "--mode"},
		"WatchMode":  {"there are two watch modes", func(m *Manager) { m.WatchMode = "x" }, "--watch-mode"},
		"Namespace":  {"a namespace is a label", func(m *Manager) { m.Namespace = "A B" }, "--namespace"},
		"Namespaces": {"further namespaces are served", func(m *Manager) { m.WatchNamespaces = []string{"default"} }, ""},
		"NamespacesTwice": {"each namespace is served once",
			func(m *Manager) { m.WatchNamespaces = []string{"kcp-system"} }, "--watch-namespaces"},
		"NamespacesOdd": {"a namespace is a label", func(m *Manager) { m.WatchNamespaces = []string{"A"} },
			"--watch-namespaces"},
		"NamespacesHere": {"in-cluster there is one Kyma",
			func(m *Manager) { m.WatchNamespaces, m.Mode = []string{"default"}, ModeInCluster }, "--watch-namespaces"},
		"Egress": {"networks and addresses", func(m *Manager) {
			m.EgressAllow, m.EgressDeny = []string{"127.0.0.1"}, []string{"10.96.0.0/12", "fd00::/8"}
		}, ""},
		"EgressAllow": {"no names", func(m *Manager) { m.EgressAllow = []string{"localhost"} }, "--egress-allow"},
		"EgressDeny":  {"no empty network", func(m *Manager) { m.EgressDeny = []string{""} }, "--egress-deny"},
		"RuntimeMemory": {"an API server sends MiB", func(m *Manager) { m.RuntimeMemoryLimit = 1 << 20 },
			"--runtime-memory-limit"},
		"RenderTimeout": {"a chart takes time", func(m *Manager) { m.RenderTimeout = 0 }, "--render-timeout"},
		"RenderMemory":  {"and memory", func(m *Manager) { m.RenderMemoryLimit = 1 << 20 }, "--render-memory-limit"},
		"Lease": {"a leader renews before others take over",
			func(m *Manager) { m.LeaderElectionRenewDeadline = time.Hour }, "--leader-election-renew-deadline"},
		"Retry": {"and tries more than once", func(m *Manager) { m.LeaderElectionRetryPeriod = time.Hour },
			"--leader-election-retry-period"},
		"LogLimit": {"nobody says less than nothing", func(m *Manager) { m.LogRuntimeLimit = -1 },
			"--log-runtime-limit"},
		"Traces": {"a collector has a host and a port",
			func(m *Manager) { m.OTLPEndpoint = "https://collector:4317" }, ""},
		"TracesScheme": {"and it is said whether it speaks TLS", func(m *Manager) { m.OTLPEndpoint = "collector:4317" },
			"--otlp-endpoint"},
		"TraceRatio":  {"no more than all passes are traced", func(m *Manager) { m.TraceRatio = 2 }, "--trace-ratio"},
		"Shards":      {"there are 64 shards", func(m *Manager) { m.Shards = 64 }, ""},
		"ShardsOther": {"and never another number", func(m *Manager) { m.Shards = 32 }, "--shards"},
		"ShardsHere": {"one runtime is not split", func(m *Manager) { m.Shards, m.Mode = 64, ModeInCluster },
			"--shards"},
		"ShardsAlone": {"somebody does what is not about a runtime",
			func(m *Manager) { m.Shards, m.LeaderElect = 64, false }, "--shards"},
		"ShardLease": {"a Lease counts in seconds", func(m *Manager) { m.ShardLeaseDuration = time.Second },
			"--shard-lease-duration"},
		"PodName": {"a pod has a name", func(m *Manager) { m.PodName = "a b" }, "--pod-name"},
		"Workers": {"somebody has to work", func(m *Manager) { m.MaxConcurrentKymaReconciles = 0 },
			"--max-concurrent-kyma-reconciles"},
		"Backoff": {"a back-off grows", func(m *Manager) { m.FailureBaseDelay = time.Hour },
			"--failure-base-delay"},
		"Restricted": {"a module has a name", func(m *Manager) { m.RestrictedDefaultModules = []string{"keda", ""} },
			"--restricted-default-modules"},
		"Policy": {"a ConfigMap has a name", func(m *Manager) { m.MaintenancePolicyConfigmap = "a b" },
			"--maintenance-policy-configmap"},
		"PolicyNamed": {"dots are fine", func(m *Manager) { m.MaintenancePolicyConfigmap = "maintenance.policy" }, ""},
		"Window": {"no window is shorter than nothing", func(m *Manager) { m.MinMaintenanceWindowSize = -1 },
			"--min-maintenance-window-size"},
		"Spread": {"nothing is done before it happened", func(m *Manager) { m.CatalogSpread = -1 },
			"--catalog-spread"},
		"Purge": {"a deletion does not end before it begins", func(m *Manager) { m.PurgeGracePeriod = -1 },
			"--purge-grace-period"},
		"PurgeOff": {"off is fine", func(m *Manager) { m.PurgeGracePeriod = 0 }, ""},
		"Deadline": {"a runtime may be away for a moment",
			func(m *Manager) { m.DeletionDeadline = time.Millisecond }, "--deletion-deadline"},
		"DeadlineSet": {"an hour will do", func(m *Manager) { m.DeletionDeadline = time.Hour }, ""},
		"DeadlineHere": {"nobody gives himself up", func(m *Manager) {
			m.Mode, m.DeletionDeadline = ModeInCluster,
				time.Hour
		}, "--deletion-deadline"},
		"Skip": {"stars are fine", func(m *Manager) {
			m.SkipFinalizerPurgingFor = []string{"*.cattle.io",
				"things.example.com"}
		}, ""},
		"SkipBad": {"a bracket has two ends", func(m *Manager) { m.SkipFinalizerPurgingFor = []string{"[a"} },
			"--skip-finalizer-purging-for"},
		"Orphans": {"a sweep takes its time", func(m *Manager) { m.OrphanSweepInterval = 1 },
			"--orphan-sweep-interval"},
		"OrphansOff": {"off is fine", func(m *Manager) { m.OrphanSweepInterval = 0 }, ""},
		"Poll":       {"polling has a floor", func(m *Manager) { m.PollInterval = 0 }, "--poll-interval"},
		"Metrics": {"an address or off", func(m *Manager) { m.MetricsBindAddress = "here" },
			"--metrics-bind-address"},
		"TrustPolicy": {"a policy may be given", func(m *Manager) { m.TrustPolicy = "/etc/trust/policy.yaml" }, ""},
		"Exit":        {"a step and how often", func(m *Manager) { m.ExitAfterStep = "kyma/install:2" }, ""},
		"ExitNowhere": {"other controllers have no steps", func(m *Manager) { m.ExitAfterStep = "orphan/sweep" },
			"--exit-after-step"},
		"MetricsOff": {"off is fine", func(m *Manager) { m.MetricsBindAddress = "0" }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := good()
			c.edit(m)
			err := m.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s: %v", c.reason, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want+":")):
				t.Errorf("%s: error is %v, want one that names %s", c.reason, err, c.want)
			}
		})
	}
	m := good()
	m.Mode, m.WatchMode = "x", "y"
	if err := m.Validate(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two mistakes give %v, want both named", err)
	}
	m = good()
	if err := m.Validate(); err != nil || m.Namespace != "kcp-system" {
		t.Errorf("namespace is %q (%v), want kcp-system", m.Namespace, err)
	}
}

// TestDeprecatedFlags checks that a flag can be set by its former name, and that the program prints the new name.
func TestDeprecatedFlags(t *testing.T) {
	cases := map[string]struct {
		value string
		field func(*Manager) any
		want  any
		name  string
	}{
		"max-concurrent-beginnings": {"7", func(m *Manager) any { return m.MaxNewRuntimes }, 7,
			"max-new-runtimes"},
		"max-control-plane-writes-behind": {"7", func(m *Manager) any { return m.MaxControlPlaneWritesWhileUrgent }, 7,
			"max-control-plane-writes-while-urgent"},
		"listen-interval": {"7h", func(m *Manager) any { return m.WatchedPollInterval },
			7 * time.Hour, "watched-poll-interval"},
		"heard-audit-interval": {"7h", func(m *Manager) any { return m.WatchedAuditInterval },
			7 * time.Hour, "watched-audit-interval"},
	}
	deprecated := 0
	for former, c := range cases {
		t.Run(former, func(t *testing.T) {
			m, flags, out := DefaultManager(), pflag.NewFlagSet("manager", pflag.ContinueOnError), &strings.Builder{}
			flags.SetOutput(out)
			m.Register(flags)
			if err := flags.Parse([]string{"--" + former, c.value}); err != nil {
				t.Fatal(err)
			}
			if got := c.field(m); got != c.want {
				t.Errorf("the field is %v, want %v", got, c.want)
			}
			if !strings.Contains(out.String(), "use --"+c.name) || flags.Lookup(c.name) == nil {
				t.Errorf("the program prints %q, want the name of the new flag", out)
			}
			deprecated = 0
			flags.VisitAll(func(f *pflag.Flag) {
				if f.Deprecated != "" {
					deprecated++
				}
			})
		})
	}
	if deprecated != len(cases) {
		t.Errorf("%d deprecated flags, %d of them tested", deprecated, len(cases))
	}
}

// TestForNamespace checks that the configuration for a further namespace is valid, and opens no port.
func TestForNamespace(t *testing.T) {
	m := DefaultManager()
	m.OCIRegistryHost, m.ListenerAddress, m.WatchNamespaces = "registry.example.com", "listener.example.com:443",
		[]string{"default"}
	m.EnableWebhooks = true
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	further := m.ForNamespaceWithoutServers("default")
	if err := further.Validate(); err != nil {
		t.Error(err)
	}
	if further.Namespace != "default" || further.WatchMode != WatchHub || further.EnableWebhooks {
		t.Errorf("got %+v", further)
	}
	for _, address := range []string{further.MetricsBindAddress, further.HealthProbeBindAddress,
		further.PprofBindAddress, further.ListenerBindAddress, further.KymaSkrListenerBindAddress} {
		if address != "0" {
			t.Errorf("a further namespace has a server at %s", address)
		}
	}
	if m.Namespace != "kcp-system" || m.WatchMode != WatchAgent {
		t.Errorf("the configuration itself was changed: %+v", m)
	}
}

// TestEgressRules checks that the address of the control plane's API server and the address of the pod are denied, in
// addition to the networks of the flag --egress-deny.
func TestEgressRules(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	m := DefaultManager()
	m.PodIP, m.EgressAllow, m.EgressDeny = "fd00::7", []string{"127.0.0.9"}, []string{"10.4.7.9/14"}
	allow, deny := m.EgressRules()
	if got := fmt.Sprint(allow, deny); got != "[127.0.0.9/32] [10.96.0.1/32 fd00::7/128 10.4.0.0/14]" {
		t.Errorf("got %s", got)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	m.PodIP = ""
	if _, deny := m.EgressRules(); len(deny) != 1 {
		t.Errorf("got %v", deny)
	}
}
