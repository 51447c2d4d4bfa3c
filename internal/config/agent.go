package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Agent is the configuration of cmd/runtime-watcher. Agent also reads the environment variables that the Kyma project's
// agent reads; a flag overrides its variable.
type Agent struct {
	// CACert, TLSCert and TLSKey are paths of files. CACert contains the root certificates with which the agent
	// verifies the listener. TLSCert contains the certificate of the agent, and TLSKey its private key. The agent reads
	// a file again when the file changes. The flags for CACert, TLSCert and TLSKey are mandatory, unless the
	// environment variables CA_CERT, TLS_CERT and TLS_KEY contain the paths.
	CACert  string
	TLSCert string
	TLSKey  string
	// KCPAddr is the host:port of the listener in the control plane, without a scheme. KCPAddr is mandatory. Default
	// $KCP_ADDR.
	KCPAddr string
	// KCPContract is the first segment of the URL paths of the listener, such as v2. KCPContract is mandatory. Default
	// $KCP_CONTRACT.
	KCPContract string
	// WebhookPort is the port of the admission webhook. The default is $WEBHOOK_PORT if its value is a valid port, else
	// 8443.
	WebhookPort int
	// MetricsPort is the port of the metrics and health endpoints. The default is $METRICS_PORT if its value is a valid
	// port, else 2112.
	MetricsPort int
	// BindAddress is the IP address on which the webhook port and the metrics port listen. Default: $POD_IP, else all
	// addresses.
	BindAddress string
	// PodName is the name of the pod. PodName is used only in the log. Default $POD_NAME.
	PodName string
	// Kubeconfig is the path of the kubeconfig of the watched runtime. The default is $KUBECONFIG, else the service
	// account of the pod.
	Kubeconfig string
	// Watchlist is the namespace/name of the ConfigMap that contains the watch list. Default
	// kyma-system/skr-webhook-watches.
	Watchlist string
	// MemoryLimitBytes is the soft memory limit of the Go runtime, in bytes. Above this limit, the garbage collector
	// runs more often. 0 means that $GOMEMLIMIT applies instead. Default 24 MiB.
	MemoryLimitBytes int64
	// LogLevel is the verbosity of the log. 0 (default) logs changes and errors. 1 also logs retries.
	LogLevel int
	// Version is true if the program only prints its version and exits.
	Version bool
}

// NewAgent returns the default configuration, which is partly read from the environment. An environment variable with
// an invalid port is not an error: NewAgent uses the default port and returns, in "notes", a text about the invalid
// port for the log.
func NewAgent() (a *Agent, notes []string) {
	a = &Agent{
		CACert: os.Getenv("CA_CERT"), TLSCert: os.Getenv("TLS_CERT"), TLSKey: os.Getenv("TLS_KEY"),
		KCPAddr: os.Getenv("KCP_ADDR"), KCPContract: os.Getenv("KCP_CONTRACT"), PodName: os.Getenv("POD_NAME"),
		BindAddress: os.Getenv("POD_IP"),
		Kubeconfig:  os.Getenv("KUBECONFIG"), Watchlist: "kyma-system/skr-webhook-watches", MemoryLimitBytes: 24 << 20,
	}
	port := func(variable string, byDefault int) int {
		text := os.Getenv(variable)
		n, err := strconv.Atoi(text)
		if err == nil && isPortAcceptedByKymaAgent(n) {
			return n
		}
		if text != "" {
			notes = append(notes, fmt.Sprintf("$%s is %q, which is not a port: using %d", variable, text, byDefault))
		}
		return byDefault
	}
	a.WebhookPort, a.MetricsPort = port("WEBHOOK_PORT", 8443), port("METRICS_PORT", 2112)
	return a, notes
}

// isPortAcceptedByKymaAgent reports whether the Kyma project's agent accepts n as a port: n must be greater than 1 and
// less than 65535.
func isPortAcceptedByKymaAgent(n int) bool { return n > 1 && n < 65535 }

// Register adds a flag for every field of the configuration.
func (a *Agent) Register(f *pflag.FlagSet) {
	f.StringVar(&a.CACert, "ca-cert", a.CACert,
		"file with the root certificates that the listener is verified with ($CA_CERT)")
	f.StringVar(&a.TLSCert, "tls-cert", a.TLSCert, "file with the certificate of this agent ($TLS_CERT)")
	f.StringVar(&a.TLSKey, "tls-key", a.TLSKey, "file with the key of --tls-cert ($TLS_KEY)")
	f.StringVar(&a.KCPAddr, "kcp-addr", a.KCPAddr, "host:port of the listener in the control plane ($KCP_ADDR)")
	f.StringVar(&a.KCPContract, "kcp-contract", a.KCPContract,
		"first segment of the listener's paths, such as v2 ($KCP_CONTRACT)")
	f.IntVar(&a.WebhookPort, "webhook-port", a.WebhookPort, "port of the admission webhook ($WEBHOOK_PORT)")
	f.IntVar(&a.MetricsPort, "metrics-port", a.MetricsPort, "port of /metrics, /healthz and /readyz ($METRICS_PORT)")
	f.StringVar(&a.BindAddress, "bind-address", a.BindAddress, "address of --metrics-port and --webhook-port; "+
		"empty: all addresses ($POD_IP)")
	f.StringVar(&a.PodName, "pod-name", a.PodName, "name of this pod, for the log ($POD_NAME)")
	f.StringVar(&a.Kubeconfig, "kubeconfig", a.Kubeconfig,
		"kubeconfig of the cluster to watch ($KUBECONFIG); empty: the service account of the pod")
	f.StringVar(&a.Watchlist, "watchlist", a.Watchlist, "namespace/name of the ConfigMap with the watch list")
	f.Int64Var(&a.MemoryLimitBytes, "memory-limit-bytes", a.MemoryLimitBytes,
		"soft memory limit, above which the garbage collector works more; 0: $GOMEMLIMIT")
	f.IntVar(&a.LogLevel, "log-level", a.LogLevel, "verbosity: 0 what happened, 1 also what is retried")
	f.BoolVar(&a.Version, "version", a.Version, "print the version and exit")
}

var contract = regexp.MustCompile(`^[a-z0-9]+$`)

// Validate returns all errors of the configuration. Each error contains the name of the flag and of its environment
// variable.
func (a *Agent) Validate() error {
	var errs []error
	check := func(ok bool, flag, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
		}
	}
	for _, mandatory := range []struct{ flag, variable, value string }{
		{"ca-cert", "CA_CERT", a.CACert}, {"tls-cert", "TLS_CERT", a.TLSCert}, {"tls-key", "TLS_KEY", a.TLSKey},
		{"kcp-addr", "KCP_ADDR", a.KCPAddr}, {"kcp-contract", "KCP_CONTRACT", a.KCPContract},
	} {
		check(mandatory.value != "", mandatory.flag, "set this flag or $%s", mandatory.variable)
	}
	host, port, err := net.SplitHostPort(cmp.Or(a.KCPAddr, "none:1"))
	check(err == nil && host != "" && port != "" && !strings.Contains(a.KCPAddr, "/"), "kcp-addr",
		"%q is not host:port ($KCP_ADDR)", a.KCPAddr)
	check(a.KCPContract == "" || contract.MatchString(a.KCPContract), "kcp-contract",
		"%q is not one segment of a path ($KCP_CONTRACT)", a.KCPContract)
	check(isPortAcceptedByKymaAgent(a.WebhookPort), "webhook-port", "%d is not a port", a.WebhookPort)
	check(isPortAcceptedByKymaAgent(a.MetricsPort), "metrics-port", "%d is not a port", a.MetricsPort)
	check(a.WebhookPort != a.MetricsPort, "metrics-port", "%d is already the port of the webhook", a.MetricsPort)
	namespace, name, found := strings.Cut(a.Watchlist, "/")
	check(found && dnsLabel.MatchString(namespace) && dnsName.MatchString(name), "watchlist",
		"%q is not namespace/name", a.Watchlist)
	check(a.MemoryLimitBytes >= 0, "memory-limit-bytes", "must not be negative")
	return errors.Join(errs...)
}
