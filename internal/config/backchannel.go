package config

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/pflag"
)

// registerBackChannel adds the flags about how the manager learns what happens in runtimes.
func (m *Manager) registerBackChannel(f *pflag.FlagSet) {
	f.StringVar(&m.WatchMode, "watch-mode", m.WatchMode, "how changes in runtimes are noticed: agent (one runs in each runtime and tells), hub (watches from here), poll (looks) (default agent with --listener-address, else hub)")
	f.IntVar(&m.PollBudget, "poll-budget", m.PollBudget, "looks per second at runtimes that do not tell; 0 is no limit")
	f.DurationVar(&m.ListenInterval, "listen-interval", m.ListenInterval, "how often a runtime that tells is looked at all the same")
	f.StringVar(&m.ListenerAddress, "listener-address", m.ListenerAddress, "host:port by which agents in runtimes reach the listener")
	f.StringVar(&m.ListenerBindAddress, "listener-bind-address", m.ListenerBindAddress, "address of the listener, over TLS with client certificates; 0 switches it off")
	f.StringVar(&m.KymaSkrListenerBindAddress, "kyma-skr-listener-bind-address", m.KymaSkrListenerBindAddress, "address of the listener behind an ingress that ends TLS; needs --listener-forwarded-from; 0 switches it off")
	f.StringSliceVar(&m.ListenerForwardedFrom, "listener-forwarded-from", m.ListenerForwardedFrom, "networks of that ingress: only from there the header X-Forwarded-Client-Cert is believed")
	f.StringSliceVar(&m.ListenerPeers, "listener-peers", m.ListenerPeers, "common names in certificates of ingresses that may forward client certificates to --listener-bind-address")
	f.StringVar(&m.PodIP, "pod-ip", m.PodIP, "address by which other replicas reach this one (default $POD_IP)")
	f.DurationVar(&m.HeartbeatInterval, "heartbeat-interval", m.HeartbeatInterval, "time between two heartbeats of an agent")
	f.IntVar(&m.HeartbeatBudget, "heartbeat-budget", m.HeartbeatBudget, "heartbeats per second from idle runtimes, by replica; more runtimes send them less often; 0 is no limit")
	f.StringVar(&m.IstioGatewayNamespace, "istio-gateway-namespace", m.IstioGatewayNamespace, "namespace of the Istio gateways that Watchers select (default --namespace)")
	f.StringVar(&m.SkrWatcherImageRegistry, "skr-watcher-image-registry", m.SkrWatcherImageRegistry, "registry of the agent's image")
	f.StringVar(&m.SkrWatcherImageName, "skr-watcher-image-name", m.SkrWatcherImageName, "name of the agent's image")
	f.StringVar(&m.SkrWatcherImageTag, "skr-watcher-image-tag", m.SkrWatcherImageTag, "tag of the agent's image")
	f.StringVar(&m.SkrWebhookMemoryLimits, "skr-webhook-memory-limits", m.SkrWebhookMemoryLimits, "memory limit of the agent")
	f.StringVar(&m.SkrWebhookCPULimits, "skr-webhook-cpu-limits", m.SkrWebhookCPULimits, "CPU limit of the agent")
	f.StringVar(&m.CertManagement, "cert-management", m.CertManagement, "who issues certificates for agents: empty for an authority of the manager's own, or cert-manager.io/v1")
	f.DurationVar(&m.SelfSignedCertDuration, "self-signed-cert-duration", m.SelfSignedCertDuration, "how long the certificate of an agent is valid (default 168h, with cert-manager 1440h)")
	f.StringVar(&m.SelfSignedCertIssuerName, "self-signed-cert-issuer-name", m.SelfSignedCertIssuerName, "Issuer in --namespace that cert-manager uses")
	f.StringSliceVar(&m.AdditionalDNSNames, "additional-dns-names", m.AdditionalDNSNames, "DNS names added to the certificates of agents")
}

// CertManager is the value of --cert-management that has cert-manager issue certificates.
const CertManager = "cert-manager.io/v1"

// validateBackChannel fills in what depends on other fields and checks the rest.
func (m *Manager) validateBackChannel(check func(ok bool, flag, format string, args ...any)) {
	if m.WatchMode == "" {
		m.WatchMode = WatchHub
		if m.ListenerAddress != "" {
			m.WatchMode = WatchAgent
		}
	}
	if m.SelfSignedCertDuration == 0 {
		m.SelfSignedCertDuration = 168 * time.Hour
		if m.CertManagement == CertManager {
			m.SelfSignedCertDuration = 1440 * time.Hour
		}
	}
	m.AdditionalDNSNames = slices.DeleteFunc(m.AdditionalDNSNames, func(name string) bool { return name == "" })
	check(m.WatchMode == WatchAgent || m.WatchMode == WatchHub || m.WatchMode == WatchPoll, "watch-mode", "%q is none of agent, hub and poll", m.WatchMode)
	check(m.PollBudget >= 0, "poll-budget", "must not be negative")
	check(m.ListenInterval >= time.Minute, "listen-interval", "must be at least 1m")
	if m.WatchMode != WatchAgent {
		return
	}
	host, port, err := net.SplitHostPort(m.ListenerAddress)
	check(m.Mode != ModeInCluster, "watch-mode", "agent has no use with --mode=in-cluster: take hub")
	check(err == nil && host != "" && port != "", "listener-address", "%q is not host:port; agents have to know where to report to", m.ListenerAddress)
	check(isAddress(m.ListenerBindAddress), "listener-bind-address", "%q is neither host:port nor 0", m.ListenerBindAddress)
	check(isAddress(m.KymaSkrListenerBindAddress), "kyma-skr-listener-bind-address", "%q is neither host:port nor 0", m.KymaSkrListenerBindAddress)
	check(m.ListenerBindAddress != "0" || m.KymaSkrListenerBindAddress != "0", "listener-bind-address", "give this or --kyma-skr-listener-bind-address: agents are not heard otherwise")
	check(m.KymaSkrListenerBindAddress == "0" || len(m.ListenerForwardedFrom) > 0, "listener-forwarded-from", "say which networks the ingress in front of --kyma-skr-listener-bind-address is in")
	for _, cidr := range m.ListenerForwardedFrom {
		_, err := netip.ParsePrefix(cidr)
		check(err == nil, "listener-forwarded-from", "%q is no network, such as 10.0.0.0/8", cidr)
	}
	check(m.HeartbeatInterval >= time.Second, "heartbeat-interval", "must be at least 1s")
	check(m.HeartbeatBudget >= 0, "heartbeat-budget", "must not be negative")
	check(m.SkrWatcherImageName != "" && m.SkrWatcherImageTag != "", "skr-watcher-image-name", "the agent's image has a name and a tag")
	check(m.CertManagement == "" || m.CertManagement == CertManager, "cert-management", "%q is neither empty nor %s", m.CertManagement, CertManager)
	check(m.SelfSignedCertDuration >= time.Hour, "self-signed-cert-duration", "must be at least 1h")
}
