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

// Agent is the configuration of cmd/runtime-watcher. What the Kyma project's agent reads from the environment is read from there too; a flag
// goes before.
type Agent struct {
	// CACert, TLSCert and TLSKey are files with the roots that the listener is verified with, and the agent's own certificate and key. They are read
	// again when they change. Mandatory. Defaults $CA_CERT, $TLS_CERT, $TLS_KEY.
	CACert  string
	TLSCert string
	TLSKey  string
	// KCPAddr is host:port of the listener in the control plane, without a scheme. Mandatory. Default $KCP_ADDR.
	KCPAddr string
	// KCPContract is the first segment of the listener's paths, such as v2. Mandatory. Default $KCP_CONTRACT.
	KCPContract string
	// WebhookPort serves the admission webhook. Default $WEBHOOK_PORT if that is a port, else 8443.
	WebhookPort int
	// MetricsPort serves metrics and health. Default $METRICS_PORT if that is a port, else 2112.
	MetricsPort int
	// BindAddress is the address that both ports are on. Default $POD_IP, else all addresses.
	BindAddress string
	// PodName is only told in the log. Default $POD_NAME.
	PodName string
	// Kubeconfig is the file of the runtime that is watched. Default: $KUBECONFIG, else the service account of the pod.
	Kubeconfig string
	// Watchlist is namespace/name of the ConfigMap that says what is watched. Default kyma-system/skr-webhook-watches.
	Watchlist string
	// MemoryLimitBytes is where the garbage collector begins to work harder; 0 leaves that to $GOMEMLIMIT. Default 24 MiB.
	MemoryLimitBytes int64
	// LogLevel is the verbosity: 0 (default) says what happened, 1 also what is tried again.
	LogLevel int
	// Version prints the version and ends.
	Version bool
}

// NewAgent returns the defaults, of which some are in the environment. A port there that is none is not an error: notes say, for the log, what
// was taken instead.
func NewAgent() (a *Agent, notes []string) {
	a = &Agent{
		CACert: os.Getenv("CA_CERT"), TLSCert: os.Getenv("TLS_CERT"), TLSKey: os.Getenv("TLS_KEY"),
		KCPAddr: os.Getenv("KCP_ADDR"), KCPContract: os.Getenv("KCP_CONTRACT"), PodName: os.Getenv("POD_NAME"), BindAddress: os.Getenv("POD_IP"),
		Kubeconfig: os.Getenv("KUBECONFIG"), Watchlist: "kyma-system/skr-webhook-watches", MemoryLimitBytes: 24 << 20,
	}
	port := func(variable string, byDefault int) int {
		text := os.Getenv(variable)
		n, err := strconv.Atoi(text)
		if err == nil && isPort(n) {
			return n
		}
		if text != "" {
			notes = append(notes, fmt.Sprintf("$%s is %q, which is no port: using %d", variable, text, byDefault))
		}
		return byDefault
	}
	a.WebhookPort, a.MetricsPort = port("WEBHOOK_PORT", 8443), port("METRICS_PORT", 2112)
	return a, notes
}

// isPort tells whether n is a port as the Kyma project's agent has it: strictly between 1 and 65535.
func isPort(n int) bool { return n > 1 && n < 65535 }

// Register adds a flag for every field.
func (a *Agent) Register(f *pflag.FlagSet) {
	f.StringVar(&a.CACert, "ca-cert", a.CACert, "file with the roots that the listener is verified with ($CA_CERT)")
	f.StringVar(&a.TLSCert, "tls-cert", a.TLSCert, "file with the certificate of this agent ($TLS_CERT)")
	f.StringVar(&a.TLSKey, "tls-key", a.TLSKey, "file with its key ($TLS_KEY)")
	f.StringVar(&a.KCPAddr, "kcp-addr", a.KCPAddr, "host:port of the listener in the control plane ($KCP_ADDR)")
	f.StringVar(&a.KCPContract, "kcp-contract", a.KCPContract, "first segment of the listener's paths, such as v2 ($KCP_CONTRACT)")
	f.IntVar(&a.WebhookPort, "webhook-port", a.WebhookPort, "port of the admission webhook ($WEBHOOK_PORT)")
	f.IntVar(&a.MetricsPort, "metrics-port", a.MetricsPort, "port of /metrics, /healthz and /readyz ($METRICS_PORT)")
	f.StringVar(&a.BindAddress, "bind-address", a.BindAddress, "address of both ports; empty: all ($POD_IP)")
	f.StringVar(&a.PodName, "pod-name", a.PodName, "name of this pod, for the log ($POD_NAME)")
	f.StringVar(&a.Kubeconfig, "kubeconfig", a.Kubeconfig, "file of the cluster to watch ($KUBECONFIG); empty: the one of this pod")
	f.StringVar(&a.Watchlist, "watchlist", a.Watchlist, "namespace/name of the ConfigMap that says what is watched")
	f.Int64Var(&a.MemoryLimitBytes, "memory-limit-bytes", a.MemoryLimitBytes, "where the garbage collector begins to work harder; 0: $GOMEMLIMIT")
	f.IntVar(&a.LogLevel, "log-level", a.LogLevel, "0: what happened, 1: also what is tried again")
	f.BoolVar(&a.Version, "version", a.Version, "print the version and end")
}

var contract = regexp.MustCompile(`^[a-z0-9]+$`)

// Validate returns every mistake, each naming its flag and its variable.
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
		check(mandatory.value != "", mandatory.flag, "give it, or set $%s", mandatory.variable)
	}
	host, port, err := net.SplitHostPort(cmp.Or(a.KCPAddr, "none:1"))
	check(err == nil && host != "" && port != "" && !strings.Contains(a.KCPAddr, "/"), "kcp-addr", "%q is not host:port ($KCP_ADDR)", a.KCPAddr)
	check(a.KCPContract == "" || contract.MatchString(a.KCPContract), "kcp-contract", "%q is not a segment of a path ($KCP_CONTRACT)", a.KCPContract)
	check(isPort(a.WebhookPort), "webhook-port", "%d is no port", a.WebhookPort)
	check(isPort(a.MetricsPort), "metrics-port", "%d is no port", a.MetricsPort)
	check(a.WebhookPort != a.MetricsPort, "metrics-port", "%d is that of the webhook", a.MetricsPort)
	namespace, name, found := strings.Cut(a.Watchlist, "/")
	check(found && dnsLabel.MatchString(namespace) && dnsName.MatchString(name), "watchlist", "%q is not namespace/name", a.Watchlist)
	check(a.MemoryLimitBytes >= 0, "memory-limit-bytes", "must not be negative")
	return errors.Join(errs...)
}
