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

// Agent is the configuration of cmd/runtime-watcher. It reads the environment variables of the Kyma project's agent; a
// flag overrides its variable.
type Agent struct {
	// CACert, TLSCert and TLSKey are files: the root certificates that the listener is verified with, the certificate
	// of the agent, and its key. They are read again when they change. Mandatory. Defaults $CA_CERT, $TLS_CERT,
	// $TLS_KEY.
	CACert  string
	TLSCert string
	TLSKey  string
	// KCPAddr is host:port of the listener in the control plane, without a scheme. Mandatory. Default $KCP_ADDR.
	KCPAddr string
	// KCPContract is the first segment of the listener's paths, such as v2. Mandatory. Default $KCP_CONTRACT.
	KCPContract string
	// WebhookPort is the port of the admission webhook. Default $WEBHOOK_PORT if that is a port, else 8443.
	WebhookPort int
	// MetricsPort is the port of metrics and health. Default $METRICS_PORT if that is a port, else 2112.
	MetricsPort int
	// BindAddress is the address of both ports. Default $POD_IP, else all addresses.
	BindAddress string
	// PodName is only for the log. Default $POD_NAME.
	PodName string
	// Kubeconfig is the file of the runtime that is watched. Default: $KUBECONFIG, else the service account of the pod.
	Kubeconfig string
	// Watchlist is namespace/name of the ConfigMap with the watch list. Default kyma-system/skr-webhook-watches.
	Watchlist string
	// MemoryLimitBytes is the soft memory limit of Go, above which the garbage collector works more; 0 leaves it to
	// $GOMEMLIMIT. Default 24 MiB.
	MemoryLimitBytes int64
	// LogLevel is the verbosity: 0 (default) logs what happened, 1 also what is retried.
	LogLevel int
	// Version makes the program print its version and exit.
	Version bool
}

// NewAgent returns the defaults, some of which are from the environment. A variable that should be a port and is not is
// no error: the default is used, and notes has a text for the log.
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
		if err == nil && isPort(n) {
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

// isPort reports whether n is a port that the Kyma project's agent accepts: greater than 1 and less than 65535.
func isPort(n int) bool { return n > 1 && n < 65535 }

// Register adds a flag for every field.
func (a *Agent) Register(f *pflag.FlagSet) {
	f.StringVar(&a.CACert, "ca-cert", a.CACert,
		"file with the root certificates that the listener is verified with ($CA_CERT)")
	f.StringVar(&a.TLSCert, "tls-cert", a.TLSCert, "file with the certificate of this agent ($TLS_CERT)")
	f.StringVar(&a.TLSKey, "tls-key", a.TLSKey, "file with the key of that certificate ($TLS_KEY)")
	f.StringVar(&a.KCPAddr, "kcp-addr", a.KCPAddr, "host:port of the listener in the control plane ($KCP_ADDR)")
	f.StringVar(&a.KCPContract, "kcp-contract", a.KCPContract,
		"first segment of the listener's paths, such as v2 ($KCP_CONTRACT)")
	f.IntVar(&a.WebhookPort, "webhook-port", a.WebhookPort, "port of the admission webhook ($WEBHOOK_PORT)")
	f.IntVar(&a.MetricsPort, "metrics-port", a.MetricsPort, "port of /metrics, /healthz and /readyz ($METRICS_PORT)")
	f.StringVar(&a.BindAddress, "bind-address", a.BindAddress, "address of both ports; empty: all ($POD_IP)")
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

// Validate returns all errors, each with the name of its flag and its variable.
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
	check(isPort(a.WebhookPort), "webhook-port", "%d is not a port", a.WebhookPort)
	check(isPort(a.MetricsPort), "metrics-port", "%d is not a port", a.MetricsPort)
	check(a.WebhookPort != a.MetricsPort, "metrics-port", "%d is already the port of the webhook", a.MetricsPort)
	namespace, name, found := strings.Cut(a.Watchlist, "/")
	check(found && dnsLabel.MatchString(namespace) && dnsName.MatchString(name), "watchlist",
		"%q is not namespace/name", a.Watchlist)
	check(a.MemoryLimitBytes >= 0, "memory-limit-bytes", "must not be negative")
	return errors.Join(errs...)
}
