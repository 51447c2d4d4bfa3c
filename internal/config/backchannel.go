package config

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/pflag"
)

// registerBackChannel adds the flags for watch modes, for the listener and for agents.
func (m *Manager) registerBackChannel(f *pflag.FlagSet) {
	f.StringVar(&m.WatchMode, "watch-mode", m.WatchMode,
		"how changes in runtimes are noticed: agent (an agent in each runtime reports them), hub (watches from the "+
			"control plane), poll (reconciles at an interval) (default agent with --listener-address, else hub)")
	f.IntVar(&m.PollBudget, "poll-budget", m.PollBudget,
		"reconciles per second of runtimes that are not watched; with more runtimes, each is reconciled less often; "+
			"0 is no limit")
	f.DurationVar(&m.WatchedPollInterval, "watched-poll-interval", m.WatchedPollInterval,
		"how often a runtime that is watched, or whose agent is connected, is reconciled without any event")
	f.StringVar(&m.ListenerAddress, "listener-address", m.ListenerAddress,
		"host:port by which agents in runtimes reach the listener")
	f.StringVar(&m.ListenerBindAddress, "listener-bind-address", m.ListenerBindAddress,
		"address of the listener, over TLS with client certificates; 0 switches it off")
	f.StringVar(&m.KymaSkrListenerBindAddress, "kyma-skr-listener-bind-address", m.KymaSkrListenerBindAddress,
		"address of the listener behind an ingress that terminates TLS; needs --listener-forwarded-from; 0 switches it off")
	f.StringSliceVar(&m.ListenerForwardedFrom, "listener-forwarded-from", m.ListenerForwardedFrom,
		"networks of the ingress before --kyma-skr-listener-bind-address, in CIDR notation; the header "+
			"X-Forwarded-Client-Cert from other networks is refused")
	f.StringSliceVar(&m.ListenerPeers, "listener-peers", m.ListenerPeers,
		"common names in certificates of ingresses that may forward client certificates to --listener-bind-address")
	f.StringVar(&m.PodIP, "pod-ip", m.PodIP, "address by which other replicas reach this one (default $POD_IP)")
	f.DurationVar(&m.HeartbeatInterval, "heartbeat-interval", m.HeartbeatInterval,
		"time between two heartbeats of an agent")
	f.IntVar(&m.HeartbeatBudget, "heartbeat-budget", m.HeartbeatBudget,
		"heartbeats per second that one replica accepts from idle runtimes; in a larger fleet each agent sends them "+
			"less often; 0 is no limit")
	f.StringVar(&m.IstioGatewayNamespace, "istio-gateway-namespace", m.IstioGatewayNamespace,
		"namespace of the Istio gateways that Watchers select (default --namespace)")
	f.StringVar(&m.SkrWatcherImageRegistry, "skr-watcher-image-registry", m.SkrWatcherImageRegistry,
		"registry of the agent's image")
	f.StringVar(&m.SkrWatcherImageName, "skr-watcher-image-name", m.SkrWatcherImageName, "name of the agent's image")
	f.StringVar(&m.SkrWatcherImageTag, "skr-watcher-image-tag", m.SkrWatcherImageTag, "tag of the agent's image")
	f.StringVar(&m.SkrWebhookMemoryLimits, "skr-webhook-memory-limits", m.SkrWebhookMemoryLimits,
		"memory limit of the agent")
	f.StringVar(&m.SkrWebhookCPULimits, "skr-webhook-cpu-limits", m.SkrWebhookCPULimits, "CPU limit of the agent")
	f.StringVar(&m.AgentGodebug, "agent-godebug", m.AgentGodebug,
		"variable GODEBUG of the agent, such as fips140=only (default $GODEBUG)")
	f.StringVar(&m.CertManagement, "cert-management", m.CertManagement,
		"issuer of the certificates of agents: empty for an authority in the manager, or cert-manager.io/v1")
	f.DurationVar(&m.SelfSignedCertDuration, "self-signed-cert-duration", m.SelfSignedCertDuration,
		"how long the certificate of an agent is valid (default 168h, with cert-manager 1440h)")
	f.StringVar(&m.SelfSignedCertIssuerName, "self-signed-cert-issuer-name", m.SelfSignedCertIssuerName,
		"Issuer in --namespace that cert-manager uses")
	f.StringSliceVar(&m.AdditionalDNSNames, "additional-dns-names", m.AdditionalDNSNames,
		"DNS names added to the certificates of agents")
}

// CertManager is a value of --cert-management: with it, cert-manager issues the certificates.
const CertManager = "cert-manager.io/v1"

// defaultAndValidateBackChannel sets those defaults that depend on other fields. defaultAndValidateBackChannel also
// validates the fields whose flags registerBackChannel adds.
func (m *Manager) defaultAndValidateBackChannel(check func(ok bool, flag, format string, args ...any)) {
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
	check(m.WatchMode == WatchAgent || m.WatchMode == WatchHub || m.WatchMode == WatchPoll, "watch-mode",
		"%q is none of agent, hub and poll", m.WatchMode)
	check(m.PollBudget >= 0, "poll-budget", "must not be negative")
	check(m.WatchedPollInterval >= time.Minute, "watched-poll-interval", "must be at least 1m")
	if m.WatchMode != WatchAgent {
		return
	}
	host, port, err := net.SplitHostPort(m.ListenerAddress)
	check(m.Mode != ModeInCluster, "watch-mode", "agent cannot be used with --mode=in-cluster: use hub")
	check(err == nil && host != "" && port != "", "listener-address",
		"%q is not host:port; agents send their reports to it", m.ListenerAddress)
	check(isAddressOrZero(m.ListenerBindAddress), "listener-bind-address",
		"%q is neither host:port nor 0", m.ListenerBindAddress)
	check(isAddressOrZero(m.KymaSkrListenerBindAddress), "kyma-skr-listener-bind-address",
		"%q is neither host:port nor 0",
		m.KymaSkrListenerBindAddress)
	check(m.ListenerBindAddress != "0" || m.KymaSkrListenerBindAddress != "0", "listener-bind-address",
		"set this or --kyma-skr-listener-bind-address: agents cannot connect otherwise")
	check(m.KymaSkrListenerBindAddress == "0" || len(m.ListenerForwardedFrom) > 0, "listener-forwarded-from",
		"set the networks of the ingress in front of --kyma-skr-listener-bind-address")
	for _, cidr := range m.ListenerForwardedFrom {
		_, err := netip.ParsePrefix(cidr)
		check(err == nil, "listener-forwarded-from", "%q is not a network such as 10.0.0.0/8", cidr)
	}
	check(m.HeartbeatInterval >= time.Second, "heartbeat-interval", "must be at least 1s")
	check(m.HeartbeatBudget >= 0, "heartbeat-budget", "must not be negative")
	check(m.SkrWatcherImageName != "" && m.SkrWatcherImageTag != "", "skr-watcher-image-name",
		"set the name and the tag of the image of the agent")
	check(m.CertManagement == "" || m.CertManagement == CertManager, "cert-management", "%q is neither empty nor %s",
		m.CertManagement, CertManager)
	check(m.SelfSignedCertDuration >= time.Hour, "self-signed-cert-duration", "must be at least 1h")
}
