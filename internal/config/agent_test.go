package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// agentVariables are the environment variables that the Kyma project's deployment of its agent sets.
var agentVariables = map[string]string{
	"CA_CERT": "/ssl/ca.crt", "TLS_CERT": "/ssl/tls.crt", "TLS_KEY": "/ssl/tls.key",
	"KCP_ADDR": "listener.example.com:443", "KCP_CONTRACT": "v2",
	"WEBHOOK_PORT": "8444", "METRICS_PORT": "2113", "POD_NAME": "agent-0", "KUBECONFIG": "", "TLS_CALLBACK": "true",
}

func setVariables(t *testing.T, other map[string]string) {
	t.Helper()
	for name, value := range agentVariables {
		if replaced, there := other[name]; there {
			value = replaced
		}
		t.Setenv(name, value)
	}
}

func TestAgentEveryFieldHasItsFlag(t *testing.T) {
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	a, _ := NewAgent()
	a.Register(flags)
	count := 0
	flags.VisitAll(func(*pflag.Flag) { count++ })
	if fields := reflect.TypeFor[Agent]().NumField(); count != fields {
		t.Errorf("%d flags for %d fields", count, fields)
	}
}

func TestAgentEnvironment(t *testing.T) {
	setVariables(t, nil)
	a, notes := NewAgent()
	want := &Agent{
		CACert: "/ssl/ca.crt", TLSCert: "/ssl/tls.crt", TLSKey: "/ssl/tls.key",
		KCPAddr: "listener.example.com:443", KCPContract: "v2",
		WebhookPort: 8444, MetricsPort: 2113, PodName: "agent-0", Watchlist: "kyma-system/skr-webhook-watches",
		MemoryLimitBytes: 24 << 20,
	}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Error(diff)
	}
	if err := a.Validate(); err != nil || len(notes) > 0 {
		t.Errorf("got %v and %q", err, notes)
	}
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	a.Register(flags)
	if err := flags.Parse([]string{"--kcp-addr=other.example.com:1", "--webhook-port=9443"}); err != nil {
		t.Fatal(err)
	}
	if a.KCPAddr != "other.example.com:1" || a.WebhookPort != 9443 {
		t.Errorf("flags go before the environment: %+v", a)
	}
}

func TestAgentPorts(t *testing.T) {
	cases := map[string]struct {
		reason string
		value  string
		want   int
		noted  bool
	}{
		"Good":     {"a port is taken", "1234", 1234, false},
		"None":     {"there is a default", "", 8443, false},
		"Word":     {"what is no number is left, and told", "https", 8443, true},
		"One":      {"strictly above 1", "1", 8443, true},
		"Last":     {"strictly below 65535", "65535", 8443, true},
		"Negative": {"no port is negative", "-5", 8443, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			setVariables(t, map[string]string{"WEBHOOK_PORT": c.value})
			a, notes := NewAgent()
			if a.WebhookPort != c.want || (len(notes) > 0) != c.noted {
				t.Errorf("%s: got %d and %q", c.reason, a.WebhookPort, notes)
			}
		})
	}
}

func TestAgentValidate(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   func(*Agent)
		want   []string // flags in the error
	}{
		"Good": {"the environment is enough", func(*Agent) {}, nil},
		"Nothing": {"all that is missing is named",
			func(a *Agent) { *a = Agent{WebhookPort: 8443, MetricsPort: 2112, Watchlist: "a/b"} },
			[]string{"ca-cert", "tls-cert", "tls-key", "kcp-addr", "kcp-contract"}},
		"Scheme": {"an address has none", func(a *Agent) { a.KCPAddr = "https://listener.example.com" },
			[]string{"kcp-addr"}},
		"NoPort": {"an address has a port", func(a *Agent) { a.KCPAddr = "listener.example.com" },
			[]string{"kcp-addr"}},
		"NoHost":   {"an address has a host", func(a *Agent) { a.KCPAddr = ":443" }, []string{"kcp-addr"}},
		"Contract": {"a contract is one segment", func(a *Agent) { a.KCPContract = "v2/x" }, []string{"kcp-contract"}},
		"Port":     {"a port is a port", func(a *Agent) { a.WebhookPort = 0 }, []string{"webhook-port"}},
		"SamePort": {"two servers have two ports", func(a *Agent) { a.MetricsPort = a.WebhookPort },
			[]string{"metrics-port"}},
		"Watchlist": {"a ConfigMap is in a namespace", func(a *Agent) { a.Watchlist = "watches" },
			[]string{"watchlist"}},
		"Memory": {"nobody has less than none", func(a *Agent) { a.MemoryLimitBytes = -1 },
			[]string{"memory-limit-bytes"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			setVariables(t, nil)
			a, _ := NewAgent()
			c.edit(a)
			var lines []string
			if err := a.Validate(); err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(c.want) {
				t.Fatalf("%s: got %q", c.reason, lines)
			}
			for n, flag := range c.want {
				if !strings.HasPrefix(lines[n], "--"+flag+": ") {
					t.Errorf("%s: got %q", c.reason, lines[n])
				}
			}
		})
	}
}
